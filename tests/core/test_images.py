"""Images of jobs: how the field is read, and what of it a cluster allows."""

import csv
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.lifecycle.images import closed_image
from penstock.core.lifecycle.registering import believed
from penstock.core.model.cluster import Settings
from penstock.core.model.containers import ImageAsk, Mount, is_plain
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.node_faults import fault_of
from penstock.core.model.selectors import accepted
from penstock.engines.processes.spawn import KEEPER_KILLED
from penstock.testing.builders import node

PINNED = f"python@sha256:{'ab' * 32}"


def read(image, **fields):
    jobs, problems = parse_request({"command": "true", "image": image, **fields})
    return [one.message for one in problems] if problems else jobs[0].spec.image


def test_an_image_is_a_name_or_says_more():
    assert read("docker.io/library/python:3.11") == ImageAsk("docker.io/library/python:3.11")
    assert read("/images/train") == ImageAsk("/images/train")
    more = {"name": PINNED, "pull": "always", "runtime": "podman"}
    mounts = ["/data", "/sets:/in", "/sets:/ro:ro"]
    found = (Mount("/data", "/data"), Mount("/sets", "/in"), Mount("/sets", "/ro", read_only=True))
    assert read(more | {"mounts": mounts}) == ImageAsk(PINNED, "always", "podman", found)


NOT_OF_A_REGISTRY = (
    *("dir:/etc", "dir:etc", "oci:etc", "oci:/etc:a", "oci:5000/a", "oci-archive:a.tar", "docker-archive:/a.tar"),
    *("docker-daemon:a:b", "containers-storage:a", "containers-storage:[overlay@/a]b", "ostree:a@/b", "sif:a.sif"),
    *("tarball:a.tar", "http://a.b/c", "https://a.b/c", "library://a/b", "oras://a.b/c", "file:///etc", "../a", "./a"),
    *("a b", " a", "a ", "a\tb", "a\n", "a\x00", "--help", "-a", "a/-b", "a//b", "a/", "a/../b"),
    *("A", "a/B", "a:", "a@", "a:b:c"),
    *("a:-b", "a@sha256:ab", f"a@sha256:{'g' * 32}", "é", "a" * 256, f"a:{'b' * 129}"),
)


@pytest.mark.parametrize(
    "name",
    [
        *("python", "python:3.11", "docker.io/library/python:3.11", "localhost/a", "LOCALHOST:5000/a/b__c/d.e-f:A_1.b"),
        *("127.0.0.1:5000/a", "[::1]:5000/a", "a--b", PINNED, f"a.b/c:d@sha512:{'0f' * 64}", "dir/a", "oci.example/a"),
        *("a" * 255, f"a:{'b' * 128}", "/images/train"),
    ],
)
def test_an_image_of_a_registry_or_a_folder_is_accepted(name):
    assert read(name) == ImageAsk(name)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("", "image is ''"),
        ("-v/:/host", "image is '-v/:/host'"),
        ("docker://python", "image is 'docker://python'"),
        ("/images/../root", "image is '/images/../root'"),
        *((name, "expected an image such as docker.io/") for name in NOT_OF_A_REGISTRY),
        ({"name": "oci:a"}, "image.name is 'oci:a'"),
        ({"pull": "never"}, "image.name is None"),
        ({"name": "a", "pull": "sometimes"}, "image.pull is 'sometimes', expected one of missing, always, never"),
        ({"name": "a", "runtime": "lxc"}, "image.runtime is 'lxc', expected one of podman, apptainer"),
        ({"name": "/a", "runtime": "podman"}, "expected charliecloud, apptainer or bubblewrap"),
        ({"name": "a", "runtime": "bubblewrap"}, "bubblewrap runs images that lie unpacked in a folder"),
        ({"name": "a", "mounts": ["data"]}, "image.mounts[0] is 'data', expected absolute paths"),
        ({"name": "a", "mounts": ["/a,b"]}, "image.mounts[0]"),
        ({"name": "a", "mounts": ["/"]}, "expected absolute paths"),
        ({"name": "a", "mounts": ["/x:/usr"]}, "/usr is the image's own"),
        ({"name": "a", "mounts": ["/x:/proc/sys"]}, "/proc/sys is the image's own"),
        ({"name": "a", "mounts": ["/x:/in", "/y:/in"]}, "expected one folder for each target"),
        ({"name": "a", "mounts": ["/x"] * 65}, "at most 64 folders"),
        ({"name": "a", "mount": []}, "image.mount is not a field"),
    ],
)
def test_a_wrong_image_is_refused_with_what_was_expected(image, text):
    assert text in "; ".join(read(image))


@pytest.mark.parametrize(("field", "value"), [("runtime", "ray"), ("lease", True)])
def test_what_an_image_cannot_be_combined_with_is_named(field, value):
    fields = {field: value, "time_limit": "1h"} | ({"command": None} if field == "lease" else {})
    assert f"image is given, and so is {field}: the two cannot be combined" in read("a", **fields)


def test_nothing_of_the_image_is_covered_by_the_workdir():
    assert read("a", workdir="/usr/") == [
        "workdir is '/usr/', and the job has an image: /usr is the image's own, or made by the runtime"
    ]
    assert read("a", workdir="/home/ana") == ImageAsk("a")


@pytest.mark.parametrize("folder", ["/home/x,source=/etc", "/home/a:b", "/home/../etc", '/home/a"b', "/home/a\nb"])
def test_a_workdir_that_a_runtime_could_misread_is_refused(folder):
    (problem,) = read("a", workdir=folder)
    assert "the job has an image: no runtime mounts such a path safely" in problem


@given(path=st.text(alphabet='ab/.,:"\\\n\u202e =', min_size=1, max_size=12).map(lambda text: "/" + text))
def test_a_plain_path_is_read_alike_by_all_runtimes(path):
    """As a field of CSV, before and after a colon, and cleaned: each has to give the path back."""
    if is_plain(path):
        assert next(csv.reader([f"type=bind,source={path},target=/in"]))[1] == f"source={path}"
        assert f"{path}:{path}".split(":") == [path, path]
        assert posixpath.normpath(path) == path.removesuffix("/")


def closed(image: ImageAsk, workdir: str = "", **settings) -> list[str]:
    return [one.message for one in closed_image(Settings(**settings), image, workdir, "")]


def test_a_cluster_says_which_runtimes_and_folders_images_may_have():
    mounted = ImageAsk("a", mounts=(Mount("/data/sets", "/in"), Mount("/database", "/db")))
    assert closed(mounted) == [
        f"image.mounts[{at}] is {path}, expected none: this cluster lets jobs mount no folders"
        for at, path in ((0, "/data/sets"), (1, "/database"))
    ]
    assert closed(mounted, container_mounts="/scratch, /data/") == [
        "image.mounts[1] is /database, expected one in /scratch, /data/"
    ]
    assert closed(ImageAsk("a"), "/home/ana") == [
        "workdir is /home/ana, expected none: this cluster lets jobs mount no folders"
    ]
    assert closed(ImageAsk("a"), "/scratch/ana", container_mounts="/scratch") == []
    assert closed(ImageAsk("a", runtime="apptainer"), container_runtimes="podman") == ["image.runtime: expected podman"]
    assert closed(ImageAsk("a"), container_runtimes="podman") == []
    assert closed(ImageAsk("a"), container_runtimes="none") == ["image: jobs of this cluster have no images"]


def test_a_job_goes_to_no_node_that_has_tried_and_cannot_run_its_image():
    jobs, _ = parse_request({"command": "true", "image": "a", "alternatives": [{"cpus": 1}]})
    for ask in (jobs[0].spec.ask, *jobs[0].spec.alternatives):
        assert accepted(ask.label_terms, {})
        assert accepted(ask.label_terms, {"penstock.image/name": "podman-4.3.1", "penstock.image/folder": "none"})
        assert not accepted(ask.label_terms, {"penstock.image/name": "none", "penstock.image/folder": "bubblewrap-0.8"})
    chosen, _ = parse_request({"command": "true", "image": {"name": "a", "runtime": "podman"}})
    assert not accepted(chosen[0].spec.ask.label_terms, {"penstock.image/podman": "none"})


def test_a_node_is_believed_which_runtimes_work_there_and_no_other_label():
    known = node("n1", labels=(("disk", "ssd"),))
    said = replace(known, labels=(("disk", "hdd"), ("penstock.image/name", "podman-4.3.1")))
    spec, more = believed(said, known)
    assert spec.labels == (("disk", "ssd"), ("penstock.image/name", "podman-4.3.1"))
    assert more == ("labels",)
    many = tuple((f"penstock.image/{number:02}", "x") for number in range(40))
    spec, more = believed(replace(known, labels=(*known.labels, *many)), known)
    assert (len(spec.labels), more) == (17, ())


@pytest.mark.parametrize("text", ["its image cannot be used: x", "its container could not be made: x", KEEPER_KILLED])
def test_an_image_speaks_against_no_node(text):
    assert fault_of(ExitInfo(problem=text)) is None
