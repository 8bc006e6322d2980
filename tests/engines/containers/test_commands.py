"""The words that start containers, as recorded: by what the node has, and by what the replica needs."""

import pytest
from msgspec.structs import replace

from penstock.core.model.containers import Mount
from penstock.engines.containers.commands import Container, ContainerUser, Runtime, created, prefix, renumbered
from penstock.engines.containers.probe import described_devices

MOUNTS = (Mount("/data/jobs/7/work", "/data/jobs/7/work"), Mount("/sets", "/in/sets", read_only=True))
TRAIN = Container("penstock-1", "n1", "sha256:ab", ("python", "train.py"), "/data/jobs/7/work", MOUNTS,
                  environment_file="/n/e", pid_file="/n/p", conmon_file="/n/c")  # fmt: skip
FOLDER = Container("penstock-1", "n1", "/images/train", ("python", "train.py"), "/data/jobs/7/work", MOUNTS)
IMAGE = {"/": ["bin@usr/bin", "usr/", "data/", "etc/", "init"], "/data": ["old/", "jobs/"], "/data/jobs": ["7/"],
         "/data/jobs/7": ["work/", "x"], "/in": []}  # fmt: skip


def words(runtime: Runtime, container: Container, **fields) -> str:
    return " ".join(prefix(runtime, container, inside=lambda folder: IMAGE[folder], **fields))


def test_podman_of_root_makes_a_container_that_has_nothing_of_root_for_an_account():
    limits = ("--ulimit", "nofile=9:9")
    runtime = Runtime("podman", "/usr/bin/podman", options=("--runtime", "runc"), create=limits, held="below")
    user = ContainerUser(1000, 100, (44, 109))
    made = created(runtime, replace(TRAIN, user=user, devices=("nvidia.com/gpu=0",)))
    assert " ".join(made) == (
        "/usr/bin/podman --runtime runc create --name penstock-1 --label penstock.node=n1 "
        "--label penstock.replica=penstock-1 --pull=never --network=host --ipc=host --uts=host --no-healthcheck "
        "--ulimit nofile=9:9 --log-driver=passthrough --systemd=false --sdnotify=ignore --http-proxy=false --no-hosts "
        "--cgroups=no-conmon --pidfile /n/p --conmon-pidfile /n/c --pid=host --user=1000:100 --group-add=44 "
        "--group-add=109 --cap-drop=all --security-opt=no-new-privileges --device=nvidia.com/gpu=0 "
        "--mount type=bind,source=/n/p.parts/0,target=/data/jobs/7/work "
        "--mount type=bind,source=/n/p.parts/1,target=/in/sets,readonly "
        "--workdir /data/jobs/7/work --env-file /n/e --entrypoint= sha256:ab python train.py"
    )


def test_rootless_podman_keeps_the_callers_user_and_a_process_namespace():
    made = created(Runtime("podman", "podman", rootless=True), TRAIN)
    assert "--userns=keep-id" in made
    assert "--pid=host" not in made
    assert not [word for word in made if word.startswith(("--user=", "--cap-drop"))]


def test_apptainer_shows_devices_by_the_vendors_flag():
    runtime = Runtime("apptainer", "/usr/bin/apptainer")
    assert words(runtime, FOLDER, vendors=["nvidia"]) == (
        "/usr/bin/apptainer --silent exec --no-home --no-mount=cwd --nv --bind=/data/jobs/7/work:/data/jobs/7/work "
        "--bind=/sets:/in/sets:ro --pwd=/data/jobs/7/work /images/train"
    )
    assert " --rocm " in words(runtime, FOLDER, vendors=["amd"])
    assert " --nv " not in words(runtime, FOLDER)


def test_charliecloud_is_a_plain_command():
    assert words(Runtime("charliecloud", "ch-run"), replace(FOLDER, root="/roots/7")) == (
        "ch-run --bind=/images/train/etc:/etc --bind=/images/train/init:/init --bind=/images/train/usr:/usr "
        "--bind=/images/train/data/old:/data/old --bind=/images/train/data/jobs/7/x:/data/jobs/7/x "
        "--bind=/data/jobs/7/work:/data/jobs/7/work --bind=/sets:/in/sets --cd=/data/jobs/7/work /roots/7 --"
    )


def test_bubblewrap_makes_room_for_mounts_in_an_image_that_cannot_be_written():
    assert words(Runtime("bubblewrap", "bwrap"), FOLDER) == (
        "bwrap --symlink usr/bin /bin --dir /data --ro-bind /images/train/etc /etc --ro-bind /images/train/init /init "
        "--ro-bind /images/train/usr /usr --dir /data/jobs --ro-bind /images/train/data/old /data/old "
        "--dir /data/jobs/7 --ro-bind /images/train/data/jobs/7/x /data/jobs/7/x "
        "--proc /proc --dev-bind /dev /dev --bind /tmp /tmp --bind /data/jobs/7/work /data/jobs/7/work "
        "--ro-bind /sets /in/sets --chdir /data/jobs/7/work --"
    )


def test_devices_that_a_container_counts_from_0_are_listed_so():
    seen = {"CUDA_VISIBLE_DEVICES": "GPU-7,GPU-9", "ROCR_VISIBLE_DEVICES": "", "OTHER": "x"}
    assert renumbered(seen, ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), 2) == {"CUDA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize(
    ("name", "text", "kinds"),
    [
        ("a.json", '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}', ("nvidia.com/gpu",)),
        ("a.json", '{\n  "devices": [{"name": "kind"}],\n  "kind": "amd.com/gpu"\n}', ("amd.com/gpu",)),
        ("a.json", '{"kind": "nvidia.com/gpu"', ()),
        ("a.json", '{"kind": ["nvidia.com/gpu"]}', ()),
        (
            "a.yaml",
            "cdiVersion: 0.5.0\ndevices:\n" + "- name: x\n" * 20_000 + "kind: nvidia.com/gpu\n",
            ("nvidia.com/gpu",),
        ),
        ("a.txt", '{"kind": "nvidia.com/gpu"}', ()),
    ],
    ids=["one line", "last", "cut", "list", "after much", "other file"],
)
def test_kinds_of_devices_are_read_from_descriptions(tmp_path, name, text, kinds):
    (tmp_path / name).write_text(text)
    assert described_devices([tmp_path, tmp_path / "none"]) == kinds
