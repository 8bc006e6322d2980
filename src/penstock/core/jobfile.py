"""Job files: plain data (from YAML or JSON) to checked job requests, with *all* problems found, not the first.

One table of fields drives parsing, error messages and the JSON Schema.
"""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from penstock.core.errors import Problem, nearest
from penstock.core.jobgraph import sorted_by_dependency
from penstock.core.lifecycle.requests import NewJob
from penstock.core.model import cluster
from penstock.core.model import jobs as m
from penstock.core.model.ids import JobId, PoolName, QueueName, TenantName
from penstock.core.model.resources import LINK_KINDS, DeviceAsk, LinkKind, ReplicaAsk, Resources
from penstock.core.reader import TEXT_MAX, Raw, Reader, shown
from penstock.core.units import parse_duration_ms, parse_rate_bps, parse_size_bytes

Json = dict[str, Any]

REPLICAS_MAX = 10_000
DEVICES_PER_REPLICA_MAX = 1_024
ARRAY_MAX = 100_000
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP")
TOPOLOGY_WORDS: dict[str, m.TopologyScope] = {
    "same_node": "node",
    "same_switch": "switch",
    "same_rack": "rack",
    "spread": "spread",
}


def parse_request(raw: object) -> tuple[tuple[NewJob, ...], list[Problem]]:
    """Return the entries of a submit request in dependency order, and everything wrong with it.

    Args:
        raw: one job as a mapping, a list of jobs, or a mapping with `jobs` (a list) and optional `defaults`.
    Returns: entries (usable only when there are no problems) and problems.
    """
    problems: list[Problem] = []
    entries = _entries(raw, problems)
    jobs: list[NewJob] = []
    seen: dict[bytes, NewJob] = {}
    for where, entry in entries:
        marker = _marker(entry) if len(entries) > 1 else b""
        known = seen.get(marker) if marker else None
        if known is None:
            known = parse_job(entry, where, problems)
            if marker:
                seen[marker] = known
        jobs.append(known)
        if len(problems) > 200:
            break
    if problems:
        return (), problems
    return sorted_by_dependency(jobs, problems), problems


def _marker(entry: Raw) -> bytes:
    """Return bytes by which entries that are alike can be told, or b'' for one that is read by itself."""
    if "after_ok" in entry or "after_any" in entry or "after_failed" in entry:
        return b""
    try:
        return msgspec.msgpack.encode(entry)
    except (OverflowError, TypeError, ValueError):
        return b""  # whatever is wrong with it is said when it is read


def _entries(raw: object, problems: list[Problem]) -> list[tuple[str, Raw]]:
    top = Reader("", problems)
    defaults: Raw = {}
    if isinstance(raw, Mapping) and "jobs" in raw:
        top.unknown(raw, ("jobs", "defaults"))
        given = raw.get("defaults", {})
        if isinstance(given, Mapping):
            defaults = given
        else:
            top.wrong("defaults", given, "a mapping of job fields")
        raw = raw["jobs"]
        if not isinstance(raw, list) or not raw:
            top.wrong("jobs", raw, "a list of at least one job")
            return []
    if isinstance(raw, list):
        if not raw:
            problems.append(Problem("bad_value", "", "the list of jobs is empty", "[]", "give at least one job"))
        found = []
        for index, entry in enumerate(raw):
            if isinstance(entry, Mapping):
                found.append((f"jobs[{index}]", {**defaults, **entry} if defaults else entry))
            else:
                top.wrong(f"jobs[{index}]", entry, "a mapping of job fields")
        return found
    if not isinstance(raw, Mapping):
        problems.append(
            Problem("bad_value", "", f"a job is a mapping of fields, found {shown(raw)}", shown(raw), "see the docs")
        )
        return []
    return [("", raw)]


def parse_job(raw: Raw, where: str, problems: list[Problem]) -> NewJob:
    """Return one entry; problems are appended. With problems the value must not be used."""
    reader = Reader(where, problems)
    reader.unknown(raw, tuple(FIELDS))
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name in FIELDS and value is not None:
            values[name] = FIELDS[name].read(reader, name, value)
    if not values.get("command"):
        if raw.get("command") is None:
            text = f"{reader.path('command')} is missing, expected what to run"
            problems.append(Problem("missing_field", reader.path("command"), text, "", "command: python train.py"))
        values["command"] = ("true",)
    return _build(values, where)


def _build(values: dict[str, Any], where: str) -> NewJob:
    wanted, shunned = values.get("node_labels", ((), ()))
    host = Resources(
        cpu_milli=values.get("cpus", 1000),
        memory_bytes=values.get("memory", 0),
        storage_bytes=values.get("storage", 0),
        bandwidth_bps=values.get("bandwidth", 0),
    )
    ask = m.GangAsk(
        replicas=values.get("replicas", 1),
        each=ReplicaAsk(host, values.get("devices")),
        pool=PoolName(values.get("pool", cluster.DEFAULT_POOL)),
        topology=values.get("topology"),
        labels_wanted=wanted,
        labels_shunned=shunned,
    )
    kinds = get_args(m.DependencyKind)
    after = [(item, kind) for kind in kinds for item in values.get(kind, ())]
    command = values["command"]
    spec = m.JobSpec(
        command=command,
        ask=ask,
        name=values.get("name") or _name_of(command),
        tenant=TenantName(values.get("tenant", cluster.DEFAULT_TENANT)),
        queue=QueueName(values.get("queue", cluster.DEFAULT_QUEUE)),
        priority=values.get("priority", m.PRIORITY_CLASSES["medium"]),
        preemptible=values.get("preemptible", True),
        after=tuple(m.Dependency(JobId(item), kind) for item, kind in after if isinstance(item, int)),
        time_limit_ms=values.get("time_limit", 0),
        estimated_duration_ms=values.get("estimated_duration", 0),
        grace_ms=values.get("grace", 30_000),
        max_wait_ms=values.get("max_wait", 0),
        retries_max=values.get("retries", 0),
        env=values.get("env", ()),
        workdir=values.get("workdir", ""),
        checkpoint=values.get("checkpoint", m.CheckpointSpec()),
        labels=values.get("labels", ()),
    )
    names = tuple((item, kind) for item, kind in after if isinstance(item, str))
    return NewJob(spec, values.get("array", 0), names, where)


def _name_of(command: tuple[str, ...]) -> str:
    words = command[2].split() if command[:2] == ("/bin/sh", "-c") else list(command)
    base = words[0].rsplit("/", 1)[-1] if words else "job"
    if base.startswith("python") and len(words) > 1:
        base = next((w for w in words[1:] if not w.startswith("-")), base).rsplit("/", 1)[-1]
    return base[:64] or "job"


class Field(msgspec.Struct, frozen=True):
    """How one field is read, and its JSON Schema."""

    read: Callable[[Reader, str, Any], Any]
    schema: Json
    about: str


def _command(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip() and len(value) <= TEXT_MAX and "\0" not in value:
        return ("/bin/sh", "-c", value)
    if isinstance(value, list) and value and all(isinstance(v, str | int | float) for v in value):
        words = tuple(str(v) for v in value)
        if words[0] and all("\0" not in w for w in words) and sum(map(len, words)) <= TEXT_MAX:
            return words
    reader.wrong(field, value, "a command line, or a list of words")
    return ()


def _devices(reader: Reader, field: str, value: Any) -> DeviceAsk | None:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        if isinstance(value, float):
            reader.wrong(field, value, "whole devices (fractions of a device are not offered yet)")
            return None
        count = reader.integer(field, value, low=0, high=DEVICES_PER_REPLICA_MAX, default=0)
        return DeviceAsk(count) if count else None
    inner.unknown(value, ("count", "vendor", "model", "memory", "capability", "link"))
    count = inner.integer("count", value.get("count", 1), low=0, high=DEVICES_PER_REPLICA_MAX, default=0)
    models = value.get("model", [])
    if isinstance(models, str):
        models = [models]
    if not isinstance(models, list) or not all(isinstance(w, str) and w for w in models):
        inner.wrong("model", models, "a model name or a list of them")
        models = []
    memory = value.get("memory", 0)
    link: LinkKind | None = None
    if "link" in value:
        chosen = inner.word("link", value["link"], LINK_KINDS, "node")
        link = next(k for k in LINK_KINDS if k == chosen)
    ask = DeviceAsk(
        count=count,
        vendor=inner.text("vendor", value["vendor"]) if "vendor" in value else "",
        models=tuple(models),
        memory_min_bytes=inner.quantity("memory", memory, parse_size_bytes, "40GiB"),
        capability_min=_capability(inner, value.get("capability", "0.0")),
        link=link,
    )
    return ask if count else None


def _capability(reader: Reader, value: Any) -> tuple[int, int]:
    parts = str(value).split(".")
    if isinstance(value, bool) or len(parts) > 2 or not all(p.isdecimal() and len(p) < 5 for p in parts):
        reader.wrong("capability", value, "a compute capability such as 8.0")
        return (0, 0)
    return (int(parts[0]), int(parts[1]) if len(parts) == 2 else 0)


def _cpus(reader: Reader, field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100_000:
        reader.wrong(field, value, "a number of CPUs such as 2 or 0.5")
        return 0
    return round(value * 1000)


def _priority(reader: Reader, field: str, value: Any) -> int:
    if isinstance(value, str) and value in m.PRIORITY_CLASSES:
        return m.PRIORITY_CLASSES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
        return value
    words = list(m.PRIORITY_CLASSES)
    hint = nearest(value, words) if isinstance(value, str) else ""
    reader.wrong(field, value, "one of " + ", ".join(words) + " or a number from 0 to 10000", hint=hint)
    return m.PRIORITY_CLASSES["medium"]


def _topology(reader: Reader, field: str, value: Any) -> m.Topology | None:
    required = True
    if isinstance(value, Mapping):
        inner = Reader(reader.path(field), reader.problems)
        inner.unknown(value, ("scope", "required"))
        required = inner.flag("required", value.get("required", True), default=True)
        value = value.get("scope")
    word = reader.word(field, value, list(TOPOLOGY_WORDS), "same_node")
    return m.Topology(TOPOLOGY_WORDS[word], required)


def _dependencies(reader: Reader, field: str, value: Any) -> list[int | str]:
    items = value if isinstance(value, list) else [value]
    found: list[int | str] = []
    for item in items:
        if isinstance(item, str) and item.isdecimal() and len(item) < 17:
            item = int(item)
        if isinstance(item, bool) or not isinstance(item, int | str) or item == "" or (item != item):
            reader.wrong(field, item, "job numbers, or names of jobs in the same file")
        elif isinstance(item, int) and not 0 < item < 2**53:
            reader.wrong(field, item, "a job number from 1")
        else:
            found.append(item)
    return found


def _checkpoint(reader: Reader, field: str, value: Any) -> m.CheckpointSpec:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a mapping with signal, request_signal, interval")
        return m.CheckpointSpec()
    inner.unknown(value, ("signal", "request_signal", "interval"))
    request = value.get("request_signal")
    return m.CheckpointSpec(
        stop_signal=inner.word("signal", value.get("signal", "SIGTERM"), SIGNALS, "SIGTERM"),
        request_signal=inner.word("request_signal", request, SIGNALS, "") if request is not None else "",
        interval_ms=inner.quantity("interval", value.get("interval", "10m"), parse_duration_ms, "10m"),
    )


def _node_labels(
    reader: Reader, field: str, value: Any
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a mapping with wanted and shunned")
        return (), ()
    inner.unknown(value, ("wanted", "shunned"))
    return inner.pairs("wanted", value.get("wanted", {})), inner.pairs("shunned", value.get("shunned", {}))


def _count(low: int, high: int, default: int) -> Callable[[Reader, str, Any], int]:
    return lambda reader, field, value: reader.integer(field, value, low=low, high=high, default=default)


def _size(reader: Reader, field: str, value: Any) -> int:
    return reader.quantity(field, value, parse_size_bytes, "40GiB")


def _duration(reader: Reader, field: str, value: Any) -> int:
    return reader.quantity(field, value, parse_duration_ms, "2h or 90s")


def _text(reader: Reader, field: str, value: Any) -> str:
    return reader.text(field, value)


_STRING: Json = {"type": "string"}
_QUANTITY: Json = {"type": ["string", "number"]}
_NAMES: Json = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_JOB_REF: Json = {"type": ["string", "integer"], "minimum": 1, "maximum": 2**53 - 1, "minLength": 1}
_JOBS: Json = {"anyOf": [_JOB_REF, {"type": "array", "items": _JOB_REF}]}
_DEVICES: Json = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": DEVICES_PER_REPLICA_MAX},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "count": {"type": "integer", "minimum": 0, "maximum": DEVICES_PER_REPLICA_MAX},
                "vendor": _STRING,
                "model": {"anyOf": [_STRING, {"type": "array", "items": _STRING}]},
                "memory": _QUANTITY,
                "capability": {"type": ["string", "number"]},
                "link": {"enum": list(LINK_KINDS)},
            },
        },
    ]
}


def _whole(low: int, high: int) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high}


FIELDS: dict[str, Field] = {
    "name": Field(_text, _STRING, "name of the job; by default the program's"),
    "command": Field(
        _command,
        {"anyOf": [_STRING, {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}]},
        "a line for /bin/sh, or a list of words that is executed as it is",
    ),
    "replicas": Field(_count(1, REPLICAS_MAX, 1), _whole(1, REPLICAS_MAX), "how many start together, all or none"),
    "devices": Field(_devices, _DEVICES, "accelerators of each replica"),
    "cpus": Field(_cpus, {"type": "number", "minimum": 0}, "CPU cores of each replica (1)"),
    "memory": Field(_size, _QUANTITY, "host memory of each replica; enforced (no limit when left out)"),
    "storage": Field(_size, _QUANTITY, "scratch space of each replica"),
    "bandwidth": Field(
        lambda r, f, v: r.quantity(f, v, parse_rate_bps, "10Gbps"), _QUANTITY, "network bandwidth of each replica"
    ),
    "pool": Field(_text, _STRING, "pool to run in"),
    "queue": Field(_text, _STRING, "queue to wait in"),
    "tenant": Field(_text, _STRING, "team that the job belongs to"),
    "priority": Field(_priority, {"type": ["string", "integer"]}, "low, medium, high, or a number"),
    "preemptible": Field(
        lambda r, f, v: r.flag(f, v, default=True), {"type": "boolean"}, "may make room for a higher priority (true)"
    ),
    "after_ok": Field(_dependencies, _JOBS, "start when these have succeeded"),
    "after_any": Field(_dependencies, _JOBS, "start when these have ended in any way"),
    "after_failed": Field(_dependencies, _JOBS, "start when these have failed"),
    "array": Field(_count(1, ARRAY_MAX, 1), _whole(1, ARRAY_MAX), "submit this many copies with their own index"),
    "time_limit": Field(_duration, _QUANTITY, "an attempt that runs longer is stopped"),
    "estimated_duration": Field(_duration, _QUANTITY, "how long it will probably run"),
    "max_wait": Field(_duration, _QUANTITY, "cancel it when it has waited this long"),
    "grace": Field(_duration, _QUANTITY, "time between the stop signal and the kill (30s)"),
    "retries": Field(_count(0, 100, 0), _whole(0, 100), "attempts after a failure of its own (0)"),
    "env": Field(lambda r, f, v: r.pairs(f, v), _NAMES, "environment variables"),
    "workdir": Field(_text, _STRING, "directory to start in"),
    "topology": Field(
        _topology,
        {
            "anyOf": [
                {"enum": list(TOPOLOGY_WORDS)},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"scope": {"enum": list(TOPOLOGY_WORDS)}, "required": {"type": "boolean"}},
                },
            ]
        },
        "how replicas stand to each other",
    ),
    "node_labels": Field(
        _node_labels,
        {"type": "object", "additionalProperties": False, "properties": {"wanted": _NAMES, "shunned": _NAMES}},
        "labels that the nodes must or must not have",
    ),
    "labels": Field(lambda r, f, v: r.pairs(f, v), _NAMES, "labels of the job"),
    "checkpoint": Field(
        _checkpoint,
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "signal": {"enum": list(SIGNALS)},
                "request_signal": {"enum": list(SIGNALS)},
                "interval": _QUANTITY,
            },
        },
        "how the program is asked to save",
    ),
}


def job_schema() -> Json:
    """Return the JSON Schema of one job."""
    properties = {name: {**field.schema, "description": field.about} for name, field in FIELDS.items()}
    return {
        "title": "Job",
        "type": "object",
        "properties": properties,
        "required": ["command"],
        "additionalProperties": False,
    }


def request_schema() -> Json:
    """Return the JSON Schema (2020-12) of a job file: one job, or a list of them with defaults."""
    job = job_schema()
    defaults = {**job, "title": "Defaults"}
    defaults.pop("required")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock job file",
        "anyOf": [
            {"$ref": "#/$defs/job"},
            {"type": "array", "items": {"$ref": "#/$defs/job"}, "minItems": 1},
            {
                "type": "object",
                "required": ["jobs"],
                "additionalProperties": False,
                "properties": {
                    "jobs": {"type": "array", "minItems": 1},
                    "defaults": defaults,
                },
            },
        ],
        "$defs": {"job": job},
    }
