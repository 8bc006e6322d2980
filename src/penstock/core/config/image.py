"""The field `image` of a job: what its replicas run in, and what of their node they see."""

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from penstock.core.config.fields import STRING, Json, described, struct
from penstock.core.config.reader import Reader
from penstock.core.model.containers import NOT_HERE, ImageAsk, Mount, PullRule, RuntimeKind, is_plain, is_reference
from penstock.core.model.gang import GangAsk
from penstock.core.model.selectors import LabelRule

NAME_MAX = 512
MOUNTS_MAX = 64
RUNTIMES, RULES = get_args(RuntimeKind), get_args(PullRule)
EXPECTED = "an image such as docker.io/library/python:3.11, or the absolute path of one that lies unpacked on the nodes"
OF_THE_IMAGE = (
    "/",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var",
    "/root",
)
"""Nothing is mounted over these: the image has them, or the runtime makes them."""
OF_THE_KERNEL = ("/proc/", "/sys/", "/dev/")

IMAGE_SCHEMA: Json = {
    "anyOf": [
        STRING,
        {
            **struct(
                name=described(STRING, "as a registry names it, or the absolute path of an unpacked image"),
                pull=described({"enum": list(RULES)}, "when a node pulls it: if it has none, for each attempt, never"),
                runtime=described({"enum": list(RUNTIMES)}, "what runs it (what the node has)"),
                mounts=described(
                    {"type": "array", "items": STRING, "maxItems": MOUNTS_MAX},
                    "folders of the node: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro",
                ),
            ),
            "required": ["name"],
        },
    ]
}


def read_image(reader: Reader, field: str, value: Any) -> ImageAsk:
    """Read an image: its name, or a mapping with more of it."""
    if not isinstance(value, Mapping):
        return ImageAsk(_name(reader, field, value))
    inside = Reader(reader.path(field), reader.problems)
    inside.unknown(value, ("name", "pull", "runtime", "mounts"))
    runtime = value.get("runtime")
    name = _name(inside, "name", value.get("name"))
    pull = inside.word("pull", value.get("pull", RULES[0]), RULES, RULES[0])
    chosen = inside.word("runtime", runtime, RUNTIMES, RUNTIMES[0]) if runtime is not None else ""
    if name.startswith("/") and chosen == "podman":
        text = "charliecloud, apptainer or bubblewrap: podman runs images by their names"
        inside.wrong("runtime", chosen, text)
    if chosen == "bubblewrap" and name and not name.startswith("/"):
        inside.wrong("runtime", chosen, "another one: bubblewrap runs images that lie unpacked in a folder")
    return ImageAsk(name, pull, chosen, _mounts(inside, value.get("mounts") or []))  # type: ignore[arg-type]


def _name(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, str) and len(value) <= NAME_MAX:
        if value.startswith("docker://"):
            reader.wrong(field, value, EXPECTED, hint=f"leave docker:// out: {value.removeprefix('docker://')[:80]}")
            return ""
        if is_reference(value) or is_plain(value):
            return value
    reader.wrong(field, value, EXPECTED)
    return ""


def _mounts(reader: Reader, value: Any) -> tuple[Mount, ...]:
    if not isinstance(value, list) or len(value) > MOUNTS_MAX:
        reader.wrong("mounts", value, f"a list of at most {MOUNTS_MAX} folders such as /data or /data/sets:/data:ro")
        return ()
    found = [mount for index, one in enumerate(value) if (mount := _mount(reader, f"mounts[{index}]", one))]
    targets = [mount.target for mount in found]
    for target in sorted({target for target in targets if targets.count(target) > 1}):
        reader.wrong("mounts", target, "one folder for each target")
    return tuple(found)


def _mount(reader: Reader, field: str, value: Any) -> Mount | None:
    parts = value.split(":") if isinstance(value, str) else []
    read_only = len(parts) > 1 and parts[-1] in ("ro", "rw")
    paths = parts[:-1] if read_only else parts
    if not 1 <= len(paths) <= 2 or not all(map(is_plain, paths)):
        reader.wrong(field, value, "absolute paths: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro, without '..' and ','")
        return None
    if reason := covers(paths[-1]):
        reader.wrong(field, value, f"another target: {reason}")
        return None
    return Mount(paths[0], paths[-1], read_only and parts[-1] == "ro")


def covers(target: str) -> str:
    """Return why nothing can be mounted there, or ''."""
    if target in OF_THE_IMAGE or target.startswith(OF_THE_KERNEL):
        return f"{target} is the image's own, or made by the runtime"
    return ""


def with_runtime(ask: GangAsk, image: ImageAsk | None) -> GangAsk:
    """Return an ask that no node accepts which has tried runtimes of containers, and has none for the image."""
    if image is None:
        return ask
    rule = LabelRule(image.label, "not_in", (NOT_HERE,))
    return replace(ask, label_terms=tuple((*term, rule) for term in ask.label_terms or ((),)))
