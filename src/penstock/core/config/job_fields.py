"""The table of fields of a job: how each is read, its JSON Schema, and a line on it for people."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from penstock.core.config.ask import ALTERNATIVES, SHAPE
from penstock.core.config.elastic import BATCH
from penstock.core.config.environments import ENVIRONMENT
from penstock.core.config.fields import (
    NAMES,
    SIZE,
    STRING,
    Field,
    Json,
    Section,
    described,
    duration,
    flag,
    integer,
    label,
    pairs,
    section,
    struct,
    whole,
    word,
)
from penstock.core.config.image import IMAGE_SCHEMA, read_image
from penstock.core.config.job_notify import job_notify
from penstock.core.config.reader import NAME_MAX, TEXT_MAX, Reader, short, shown
from penstock.core.config.schedules import SCHEDULE
from penstock.core.model import inputs, secrets
from penstock.core.model import jobs as m
from penstock.core.model.errors import nearest
from penstock.core.model.quantities import parse_size_bytes

ARRAY_MAX = 100_000
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = "PENSTOCK_"
WORDS_MAX = 4_096
"""Words of a command."""
PATH_MAX = 4_096
SECRETS_MAX = 100
DEPENDENCIES_MAX = 1_000
"""Numbers or names in one field of a job."""
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP")


def _command(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip() and len(value) <= TEXT_MAX and "\0" not in value:
        return ("/bin/sh", "-c", value)
    if isinstance(value, list) and 0 < len(value) <= WORDS_MAX and all(isinstance(v, str | int | float) for v in value):
        words = tuple(str(v) for v in value)
        if words[0] and all("\0" not in w for w in words) and sum(map(len, words)) <= TEXT_MAX:
            return words
    reader.wrong(field, value, "a command line, or a list of words")
    return ()


def _priority(reader: Reader, field: str, value: Any) -> int:
    if isinstance(value, str) and value in m.PRIORITY_CLASSES:
        return m.PRIORITY_CLASSES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
        return value
    words = list(m.PRIORITY_CLASSES)
    hint = nearest(value, words) if isinstance(value, str) else ""
    reader.wrong(field, value, "one of " + ", ".join(words) + " or a number from 0 to 10000", hint=hint)
    return m.PRIORITY_CLASSES["medium"]


def _dependencies(reader: Reader, field: str, value: Any) -> list[int | str]:
    items = value if isinstance(value, list) else [value]
    found: list[int | str] = []
    if len(items) > DEPENDENCIES_MAX:
        hint = "give these jobs one name, and name that"
        reader.wrong(field, f"a list of {len(items)}", f"at most {DEPENDENCIES_MAX} jobs", hint=hint)
        return found
    for item in items:
        if isinstance(item, str) and item.isdecimal() and len(item) < 17:
            item = int(item)
        if (
            isinstance(item, bool)
            or not isinstance(item, int | str)
            or item == ""
            or (item != item)
            or (isinstance(item, str) and len(item) > NAME_MAX)
        ):
            reader.wrong(field, item, "job numbers, or names of jobs in the same file")
        elif isinstance(item, int) and not 0 < item < 2**53:
            reader.wrong(field, item, "a job number from 1")
        else:
            found.append(item)
    return found


def _secrets(reader: Reader, field: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Read variables and their secrets; in a list a variable has the name of its secret."""
    if isinstance(value, list | Mapping) and len(value) > SECRETS_MAX:
        reader.wrong(field, f"{len(value)} secrets", f"at most {SECRETS_MAX}")
        return ()
    if isinstance(value, list):
        value = {name if isinstance(name, str) else shown(name): name for name in value}
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a list of secrets, or a mapping of variables to secrets")
        return ()
    found = []
    for variable, name in value.items():
        if len(str(variable)) > NAME_MAX or not VARIABLE.fullmatch(str(variable)) or str(variable).startswith(RESERVED):
            reader.wrong(field, variable, f"names of variables such as HF_TOKEN, not beginning with {RESERVED}")
        elif not isinstance(name, str) or not secrets.NAME.fullmatch(name):
            reader.wrong(f"{field}.{short(str(variable))}", name, f"the name of a secret: {secrets.NAME_EXPECTED}")
        else:
            found.append((str(variable), name))
    return tuple(sorted(found))


RAY = "the same, with settings of that cluster"
OBJECT_STORE = "size of its object store at each place (30 % of its memory)"
SNAPSHOT = "folder that the submitting client sends, read-only on the nodes; or the name of one sent before"


class Workdir(NamedTuple):
    """Where a job starts: one of the two, or neither."""

    folder: str = ""
    snapshot: str = ""


def _workdir(reader: Reader, field: str, value: Any) -> Workdir:
    if not isinstance(value, Mapping):
        return Workdir(folder=reader.text(field, value, most=PATH_MAX))
    inside = Reader(reader.path(field), reader.problems)
    inside.unknown(value, ("snapshot",))
    return Workdir(snapshot=inside.text("snapshot", value.get("snapshot"), most=PATH_MAX))


RUNTIMES = ("ray",)
STORE_MIN_BYTES, STORE_MAX_BYTES = 80 * 2**20, 2**44
"""Ray refuses a smaller object store."""


class RuntimeAsk(NamedTuple):
    """What the places form before the command runs."""

    kind: m.Runtime = ""
    object_store_bytes: int = 0


def _runtime(reader: Reader, field: str, value: Any) -> RuntimeAsk:
    if isinstance(value, Mapping) and set(value) == {"ray"} and isinstance(value["ray"], Mapping):
        inside = Reader(reader.path(f"{field}.ray"), reader.problems)
        inside.unknown(value["ray"], ("object_store",))
        given = value["ray"].get("object_store", 0)
        size = inside.quantity("object_store", given, parse_size_bytes, "2GiB") if given else 0
        if given and not STORE_MIN_BYTES <= size <= STORE_MAX_BYTES:
            inside.wrong("object_store", given, "a size from 80MiB to 16TiB")
        return RuntimeAsk("ray", size)
    if value != "ray":
        hint = nearest(value, RUNTIMES) if isinstance(value, str) else ""
        reader.wrong(field, value, "ray, or {ray: {object_store: 2GiB}}", hint=hint)
    return RuntimeAsk("ray")


INPUT = "URL of a file, or of a folder where it ends with '/': fetched by the node before the job starts"


def _inputs(reader: Reader, field: str, value: Any) -> tuple[m.Input, ...]:
    if not isinstance(value, Mapping) or not 0 < len(value) <= inputs.INPUTS_MAX:
        found = f"{len(value)} inputs" if isinstance(value, Mapping) else value
        reader.wrong(
            field, found, f"1 to {inputs.INPUTS_MAX} paths with an URL each, such as data/train: s3://bucket/train/"
        )
        return ()
    inside = Reader(reader.path(field), reader.problems)
    found = tuple(
        _input(inside, str(path), given) for path, given in sorted(value.items(), key=lambda one: str(one[0]))
    )
    if problem := inputs.inputs_problem(found):
        reader.wrong(field, problem, "paths below PENSTOCK_INPUTS_DIR, none of them in another")
    return found


def _input(inside: Reader, path: str, given: Any) -> m.Input:
    wanted, sha256 = given, ""
    name = short(path)
    if isinstance(given, Mapping):
        reader = Reader(inside.path(name), inside.problems)
        reader.unknown(given, ("url", "sha256"))
        wanted = given.get("url")
        if "sha256" in given:
            sha256 = str(given["sha256"]).lower()
            if not inputs.SHA256.fullmatch(sha256):
                reader.wrong("sha256", given["sha256"], "64 hexadecimal digits, in quotes, as sha256sum prints them")
    url = wanted if isinstance(wanted, str) else ""
    if problem := inputs.url_problem(url):
        at = f"{name}.url" if isinstance(given, Mapping) else name
        inside.wrong(at, inputs.public_url(url) if url else wanted, problem)
    elif sha256 and url.endswith("/"):
        inside.wrong(f"{name}.sha256", sha256, f"none for a folder: {inputs.public_url(url)} ends with '/'")
    return m.Input(path.rstrip("/"), url, sha256)


_ARRAY = re.compile(r"\s*([0-9]{1,9})\s*(-\s*([0-9]{1,9})\s*(:\s*([0-9]{1,9})\s*)?)?(%\s*([0-9]{1,9})\s*)?")


class ArrayIndexes(NamedTuple):
    """The indexes of an array's members: `members` of them from `first` on, `parallel` at a time (0: all)."""

    members: int
    first: int = 0
    step: int = 1
    parallel: int = 0


def _array(reader: Reader, field: str, value: Any) -> ArrayIndexes:
    match = _ARRAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return ArrayIndexes(reader.integer(field, value, low=1, high=ARRAY_MAX, default=1))
    low, high, step, parallel = (int(text) if text else None for text in match.group(1, 3, 5, 7))
    assert low is not None, "the pattern begins with a number"
    if parallel == 0 or step == 0:
        reader.wrong(field, value, "indexes such as 0-9, 0-20:5, or 1-100%4 (4 at a time)")
        return ArrayIndexes(1)
    first, last, by = (0, low - 1, 1) if high is None else (low, high, step or 1)
    count = (last - first) // by + 1
    if not 1 <= count <= ARRAY_MAX:
        reader.wrong(field, value, f"1 to {ARRAY_MAX} members, the larger index last")
        return ArrayIndexes(1)
    return ArrayIndexes(count, first, by, 0 if parallel is None or parallel >= count else parallel)


PORTS_MAX = 8
_PORT = re.compile(r"[a-z][a-z0-9_]{0,31}")


def _ports(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    right = isinstance(value, list) and 0 < len(value) <= PORTS_MAX
    if not right or not all(isinstance(one, str) and _PORT.fullmatch(one) for one in value):
        hint = "the number is given by the node: a program finds it in PENSTOCK_PORT_NAME"
        reader.wrong(field, value, f"1 to {PORTS_MAX} names such as http, of a-z, 0-9 and _", hint=hint)
        return ()
    if len(set(value)) != len(value):
        reader.wrong(field, value, "names that differ", code="duplicate_name")
    return tuple(value)


_JOB_REF: Json = {"type": ["string", "integer"], "minimum": 1, "maximum": 2**53 - 1, "minLength": 1}
_JOBS: Json = {"anyOf": [_JOB_REF, {"type": "array", "items": _JOB_REF}]}

_INPUT: Json = {
    **struct(url=described(STRING, INPUT), sha256=described(STRING, "of the file's content: another is refused")),
    "required": ["url"],
}
_CHECKPOINT = Section(
    m.CheckpointSpec,
    {
        "signal": word("signal to save and leave (SIGTERM)", SIGNALS, at="stop_signal"),
        "request_signal": word("signal to save and continue (none)", SIGNALS),
        "interval": duration("expected interval of its saves (10m)", at="interval_ms", example="10m"),
        "shared": flag("refuse the job where not all its nodes reach what it saves (false)"),
    },
)
FIELDS: dict[str, Field] = {
    "name": label("name of the job; by default the program's"),
    "command": Field(
        _command,
        {"anyOf": [STRING, {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}]},
        "a line for /bin/sh, or a list of words that is executed as it is",
    ),
    "lease": flag("no command: holds what it asks for until its time limit (false)"),
    "hold": flag("wait until it is released (false)"),
    **SHAPE,
    "alternatives": ALTERNATIVES,
    "batch": BATCH,
    "shareable": flag("its devices may be shared while they are little used (false)"),
    "pool": label("pool to run in"),
    "queue": label("queue to wait in (the default of the user or of the cluster)"),
    "tenant": label("team that the job belongs to (the default of the user or of the cluster)"),
    "priority": Field(
        _priority, {"anyOf": [{"enum": list(m.PRIORITY_CLASSES)}, whole(0, 10_000)]}, "higher ones start first (medium)"
    ),
    "preemptible": flag("may be asked to make room for others (true)", default=True),
    "on_preempt": word("make room by saving and leaving, or frozen with its memory (stop)", ("stop", "suspend")),
    "after_ok": Field(_dependencies, _JOBS, "start when these have succeeded"),
    "after_any": Field(_dependencies, _JOBS, "start when these have ended in any way"),
    "after_failed": Field(_dependencies, _JOBS, "start when these have failed"),
    "array": Field(
        _array,
        {"anyOf": [whole(1, ARRAY_MAX), {"type": "string", "pattern": f"^{_ARRAY.pattern}$"}]},
        "submit copies with an index each: how many, or indexes such as 0-9, 0-20:5, 1-100%4 (4 at a time)",
    ),
    "workload_class": word(
        "what it is for: its share of CPUs and disks that others want too (training)", get_args(m.WorkloadClass)
    ),
    "time_limit": duration("an attempt that runs longer is stopped"),
    "estimated_duration": duration("how long it will probably run"),
    "max_wait": duration("cancel it when it has waited this long"),
    "grace": duration("time between the stop signal and the kill (30s)"),
    "retries": integer("retries after a failure of the program (0)", 0, 100),
    "on_hang": word("what follows when a rank hangs (restart)", ("restart", "report")),
    "hang_limit": duration("how long without a step is too long, where it is not certain (15m)"),
    "env": pairs("environment variables"),
    "secrets": Field(
        _secrets,
        {"anyOf": [{"type": "array", "items": STRING}, NAMES]},
        "environment variables that get secrets: their names, or variable: secret",
    ),
    "workdir": Field(
        _workdir,
        {"anyOf": [STRING, {**struct(snapshot=described(STRING, SNAPSHOT)), "required": ["snapshot"]}]},
        "directory on the nodes to start in; or `snapshot: .`, a folder that is sent there, as it is at submit",
    ),
    "runtime": Field(
        _runtime,
        {
            "anyOf": [
                {"enum": list(RUNTIMES)},
                {**struct(ray=described(struct(object_store=described(SIZE, OBJECT_STORE)), RAY)), "required": ["ray"]},
            ]
        },
        "`ray`: all places form a Ray cluster of the job's own, and the command runs once on it, at the first place",
    ),
    "image": Field(
        read_image,
        IMAGE_SCHEMA,
        "container image that its replicas run in: a name, or a mapping with pull, runtime and mounts",
    ),
    "inputs": Field(
        _inputs,
        {"type": "object", "maxProperties": inputs.INPUTS_MAX, "additionalProperties": {"anyOf": [STRING, _INPUT]}},
        "what the nodes fetch before it starts: paths below PENSTOCK_INPUTS_DIR, and the URL for each",
    ),
    **ENVIRONMENT,
    "labels": pairs("labels of the job", m.LABELS_MAX),
    "notify": job_notify(
        "events of it that are sent to you, to all your destinations (as set for all your jobs); mappings name others"
    ),
    "ports": Field(
        _ports,
        {"type": "array", "minItems": 1, "maxItems": PORTS_MAX, "items": {"type": "string", "pattern": _PORT.pattern}},
        "names of ports that each replica gets on its node, in `PENSTOCK_PORT_NAME`",
    ),
    "checkpoint": section("how the program is asked to save", _CHECKPOINT),
    "schedule": section("submit it again and again, at the times of a cron expression", SCHEDULE),
}
