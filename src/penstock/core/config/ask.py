"""The fields that say what a job needs: one shape of a gang, its other groups, and the shapes it would also accept.

A job's own shape and each alternative are read by the same table, so they know the same fields.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

from penstock.core.config.fields import (
    BOOLEAN,
    NAMES,
    QUANTITY,
    SIZE,
    STRING,
    Field,
    Json,
    Values,
    cpus,
    described,
    described_fields,
    integer,
    mappings,
    quantity,
    read_fields,
    size,
    struct,
    whole,
    word,
)
from penstock.core.config.reader import NAME_MAX, Reader
from penstock.core.model import cluster
from penstock.core.model import jobs as m
from penstock.core.model.errors import nearest
from penstock.core.model.ids import PoolName
from penstock.core.model.quantities import MILLI, parse_milli, parse_rate_bps, parse_size_bytes
from penstock.core.model.resources import (
    ISOLATION_LEVELS,
    LINK_KINDS,
    DeviceAsk,
    Isolation,
    LinkKind,
    ReplicaAsk,
    Resources,
)
from penstock.core.place.mig import GEOMETRIES

CPU_LEAST_MILLI = 50
"""Of a replica without devices: what a node's agent has to do for it is bounded by that."""
REPLICAS_MAX = 10_000
"""Replicas of one job in all its groups, at its largest size."""
DEVICES_PER_REPLICA_MAX = 1_024
GROUPS_MAX = 64
ALTERNATIVES_MAX = 8
MODELS_MAX = 32
NODE_LABELS_MAX = 32
TOPOLOGY_WORDS: dict[str, m.TopologyScope] = {
    "same_node": "node",
    "same_switch": "switch",
    "same_rack": "rack",
    "spread": "spread",
}
DEVICE_FIELDS = ("count", "share", "memory_limit", "profile", "vendor", "model", "memory", "capability", "link",
                 "isolation", "oversubscribe")  # fmt: skip
SLICE = "slice"
"""The share of a job that takes one of the parts into which its pool divides a device."""
PLACEMENTS: tuple[str, ...] = get_args(cluster.PlacementPolicy)
_PROFILE = re.compile(r"[12347]g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)?)?")
_PROFILES = tuple(sorted({profile.name for geometry in GEOMETRIES for profile in geometry.profiles}))
"""Known profiles, for hints only: a driver may have others, and a submit checks whether a node can cut it."""
_RANGE = re.compile(r"\s*([0-9]{1,6})\s*\.\.\s*([0-9]{1,6})\s*")


def build_ask(values: Values, reader: Reader) -> m.GangAsk:
    """Return the gang that `values` describe; groups that it cannot have are reported at `groups`."""
    low, high = values.get("replicas", (1, 0))
    others: tuple[m.GroupAsk, ...] = values.get("groups", ())
    total = low + sum(group.replicas for group in others)
    if others and high:
        hint = "say one number of replicas, or `groups: []`"
        reader.wrong("groups", f"{len(others)} beside {low}..{high} replicas", "none in an elastic job", hint=hint)
    elif total > REPLICAS_MAX:
        reader.wrong("groups", total, f"at most {REPLICAS_MAX} replicas in all groups together")
    wanted, shunned = values.get("node_labels", ((), ()))
    return m.GangAsk(
        replicas=low,
        each=_each(values),
        pool=PoolName(values.get("pool", cluster.DEFAULT_POOL)),
        topology=values.get("topology"),
        labels_wanted=wanted,
        labels_shunned=shunned,
        replicas_max=high,
        others=others,
        placement=values.get("placement", ""),
    )


def build_alternatives(values: Values, reader: Reader) -> tuple[m.GangAsk, ...]:
    """Return the other shapes of a job; each inherits the fields that it does not name from the job's own."""
    found = []
    for where, own in values.get("alternatives", ()):
        said = reader.problems if own.keys() & {"replicas", "groups"} else []  # the job's problems are reported once
        found.append(build_ask({**values, **own}, Reader(where, said)))
    return tuple(found)


def _each(values: Values) -> ReplicaAsk:
    host = Resources(
        cpu_milli=max(values.get("cpus", MILLI), 0 if values.get("devices") else CPU_LEAST_MILLI),
        memory_bytes=values.get("memory", 0),
        storage_bytes=values.get("storage", 0),
        bandwidth_bps=values.get("bandwidth", 0),
    )
    return ReplicaAsk(host, values.get("devices"))


def _replicas(reader: Reader, field: str, value: Any) -> tuple[int, int]:
    """Return (smallest, largest) size; the largest is 0 when there is one size only."""
    inner = Reader(reader.path(field), reader.problems)
    if isinstance(value, str):
        match = _RANGE.fullmatch(value)
        if match is None:
            reader.wrong(field, value, f"a whole number from 1 to {REPLICAS_MAX}, or a range such as 2..8")
            return (1, 0)
        value = {"min": int(match[1]), "max": int(match[2])}
    if not isinstance(value, Mapping):
        return (reader.integer(field, value, low=1, high=REPLICAS_MAX, default=1), 0)
    inner.unknown(value, ("min", "max"))
    low = inner.integer("min", value.get("min", 1), low=1, high=REPLICAS_MAX, default=1)
    high = inner.integer("max", value.get("max"), low=1, high=REPLICAS_MAX, default=low)
    if high < low:
        inner.wrong("max", high, f"at least the smallest size, {low}")
    return (low, high if high > low else 0)


def _devices(reader: Reader, field: str, value: Any) -> DeviceAsk | None:
    if not isinstance(value, Mapping):
        return _device_number(reader, field, value)
    inner = Reader(reader.path(field), reader.problems)
    inner.unknown(value, DEVICE_FIELDS)
    count = inner.integer("count", value.get("count", 1), low=0, high=DEVICES_PER_REPLICA_MAX, default=1)
    models = value.get("model", [])
    if isinstance(models, str):
        models = [models]
    if (
        not isinstance(models, list)
        or len(models) > MODELS_MAX
        or not all(isinstance(w, str) and 0 < len(w) <= NAME_MAX for w in models)
    ):
        inner.wrong("model", models, f"a model name or a list of at most {MODELS_MAX} of them")
        models = []
    link: LinkKind | None = None
    if "link" in value:
        chosen = inner.word("link", value["link"], LINK_KINDS, "node")
        link = next(k for k in LINK_KINDS if k == chosen)
    isolation: Isolation = "none"
    if "isolation" in value:
        level = inner.word("isolation", value["isolation"], ISOLATION_LEVELS[1:], "driver")
        isolation = next(known for known in ISOLATION_LEVELS if known == level)
    share_milli, limit_bytes = _share(inner, value, count)
    ask = DeviceAsk(
        count=count,
        vendor=inner.name("vendor", value["vendor"]) if "vendor" in value else "",
        models=tuple(models),
        memory_min_bytes=inner.quantity("memory", value.get("memory", 0), parse_size_bytes, "40GiB"),
        capability_min=_capability(inner, value.get("capability", "0.0")),
        link=link,
        share_milli=share_milli,
        share_memory_bytes=limit_bytes,
        profile=_profile(inner, value, count),
        isolation=isolation,
        oversubscribe=_oversubscribe(inner, value),
        slot=value.get("share") == SLICE,
    )
    return ask if count else None


def _device_number(reader: Reader, field: str, value: Any) -> DeviceAsk | None:
    try:
        milli = parse_milli(value)
    except ValueError:
        milli = -1
    count, part = divmod(milli, MILLI)
    if not 0 <= count <= DEVICES_PER_REPLICA_MAX or (part and count):
        reader.wrong(field, value, f"0 to {DEVICES_PER_REPLICA_MAX} whole devices, or a part such as 0.25 of one")
        return None
    if part:
        return DeviceAsk(1, share_milli=part)
    return DeviceAsk(count) if count else None


def _share(inner: Reader, value: Mapping[str, Any], count: int) -> tuple[int, int]:
    """Return the share (thousandths) and its memory limit (bytes, 0 for its share of the memory)."""
    limit = 0
    if "memory_limit" in value:
        limit = inner.quantity("memory_limit", value["memory_limit"], _limit_bytes, "10GiB, more than 0")
    if "share" not in value:
        if "memory_limit" in value:
            hint = "say which part of the device, such as share: 0.25"
            inner.wrong("memory_limit", value["memory_limit"], "a limit only together with a share", hint=hint)
        return MILLI, 0
    try:
        milli = 1 if value["share"] == SLICE else parse_milli(value["share"])
    except ValueError:
        milli = 0
    if not 0 < milli < MILLI:
        inner.wrong("share", value["share"], "a part of one device from 0.001 to 0.999 in steps of 0.001, or slice")
        return MILLI, 0
    if count != 1:
        inner.wrong(
            "share", value["share"], "either a share or a count: a replica with a share has a part of one device"
        )
    return milli, limit


def _oversubscribe(inner: Reader, value: Mapping[str, Any]) -> bool:
    allowed = inner.flag("oversubscribe", value.get("oversubscribe", False), default=False)
    if allowed and "share" not in value:
        inner.wrong("oversubscribe", True, "only together with a share: memory of whole devices is theirs alone")
    return allowed


def _limit_bytes(value: Any) -> int:
    size = parse_size_bytes(value)
    if size <= 0:
        raise ValueError(value)
    return size


def _profile(inner: Reader, value: Mapping[str, Any], count: int) -> str:
    if "profile" not in value:
        return ""
    profile = value["profile"]
    if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
        hint = nearest(profile.strip().lower()[:64], _PROFILES) if isinstance(profile, str) else ""
        inner.wrong("profile", profile, "a MIG profile such as 1g.10gb or 3g.40gb", hint=hint)
        return ""
    if "share" in value:
        inner.wrong("profile", profile, "either a profile or a share")
    elif count != 1:
        inner.wrong("profile", profile, "either a profile or a count: a replica has one partition")
    return profile


def _capability(reader: Reader, value: Any) -> tuple[int, int]:
    parts = str(value).split(".")
    if isinstance(value, bool) or len(parts) > 2 or not all(p.isdecimal() and len(p) < 5 for p in parts):
        reader.wrong("capability", value, "a compute capability such as 8.0")
        return (0, 0)
    return (int(parts[0]), int(parts[1]) if len(parts) == 2 else 0)


def _topology(reader: Reader, field: str, value: Any) -> m.Topology | None:
    required = True
    if isinstance(value, Mapping):
        inner = Reader(reader.path(field), reader.problems)
        inner.unknown(value, ("scope", "required"))
        required = inner.flag("required", value.get("required", True), default=True)
        value = value.get("scope")
    word = reader.word(field, value, list(TOPOLOGY_WORDS), "same_node")
    return m.Topology(TOPOLOGY_WORDS[word], required)


def _node_labels(
    reader: Reader, field: str, value: Any
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a mapping with wanted and shunned")
        return (), ()
    inner.unknown(value, ("wanted", "shunned"))
    wanted, shunned = (inner.pairs(name, value.get(name, {}), NODE_LABELS_MAX) for name in ("wanted", "shunned"))
    return wanted, shunned


def _groups(reader: Reader, field: str, value: Any) -> tuple[m.GroupAsk, ...]:
    found = []
    for inner, entry in mappings(reader, field, value, GROUPS_MAX):
        values = read_fields(inner, entry, GROUP)
        found.append(m.GroupAsk(values.get("replicas", 1), _each(values)))
    return tuple(found)


def _alternatives(reader: Reader, field: str, value: Any) -> list[tuple[str, Values]]:
    """Return the fields that each alternative names, with its path."""
    found = []
    for inner, entry in mappings(reader, field, value, ALTERNATIVES_MAX):
        if not entry:
            Reader("", reader.problems).wrong(inner.where, entry, "at least one field of a shape")
        found.append((inner.where, read_fields(inner, entry, SHAPE)))
    return found


_PART: Json = {"type": "number", "minimum": 0.001, "maximum": 0.999}
_DEVICES_SCHEMA: Json = {
    "anyOf": [
        whole(0, DEVICES_PER_REPLICA_MAX),
        _PART,
        struct(
            count=described(whole(0, DEVICES_PER_REPLICA_MAX), "whole devices (1)"),
            share=described(
                {"anyOf": [_PART, {"enum": [SLICE]}]},
                "part of one device, such as 0.25, or `slice`: one of the parts that its pool makes of a device",
            ),
            memory_limit=described(SIZE, "memory of a part (its share of the device's memory)"),
            profile=described(
                {"type": "string", "pattern": f"^{_PROFILE.pattern}$"}, "MIG partition of one device, such as 1g.10gb"
            ),
            vendor=described(STRING, "vendor of the devices (any)"),
            model=described(
                {"anyOf": [STRING, {"type": "array", "items": STRING}]}, "model of the devices, or several models (any)"
            ),
            memory=described(SIZE, "least memory of each device (any)"),
            capability=described({**QUANTITY, "examples": ["8.0"]}, "least compute capability of each device (any)"),
            link=described({"enum": list(LINK_KINDS)}, "slowest link between the devices of a replica (any)"),
            isolation=described(
                {"enum": list(ISOLATION_LEVELS[1:])}, "weakest isolation of a part of a device that it accepts (any)"
            ),
            oversubscribe=described(
                BOOLEAN,
                "its part may share a device of which more memory is promised than there is",
                default=False,
            ),
        ),
    ]
}
_SIZES_SCHEMA: Json = {
    "anyOf": [
        whole(1, REPLICAS_MAX),
        {"type": "string", "pattern": r"^\s*[0-9]+\s*\.\.\s*[0-9]+\s*$"},
        {
            **struct(
                min=described(whole(1, REPLICAS_MAX), "smallest size of an elastic job (1)"),
                max=described(whole(1, REPLICAS_MAX), "largest size of an elastic job"),
            ),
            "required": ["max"],
        },
    ]
}
_TOPOLOGY: Json = {"enum": list(TOPOLOGY_WORDS)}
_TOPOLOGY_STRUCT = struct(
    scope=described(_TOPOLOGY, "where its replicas stand together, or `spread`: on different nodes"),
    required=described(BOOLEAN, "wait until that is possible (true), or only prefer it (false)", default=True),
)

EACH: dict[str, Field] = {
    "devices": Field(
        _devices, _DEVICES_SCHEMA, "accelerators of each replica: a number, a part of one, or a MIG profile"
    ),
    "cpus": cpus("CPU cores of each replica (1); without devices 0.05 at least, so a node starts 20 a core at most"),
    "memory": size("host memory of each replica; enforced (no limit when left out)"),
    "storage": size("scratch space of each replica"),
    "bandwidth": quantity("network bandwidth of each replica", parse_rate_bps, "10Gbps"),
}
GROUP: dict[str, Field] = {"replicas": integer("how many of this shape", 1, REPLICAS_MAX), **EACH}
SHAPE: dict[str, Field] = {
    "replicas": Field(_replicas, _SIZES_SCHEMA, "how many start together, all or none; `2..8` for an elastic job"),
    **EACH,
    "groups": Field(
        _groups,
        {"type": "array", "maxItems": GROUPS_MAX, "items": struct(**described_fields(GROUP))},
        "replicas of other shapes in the same gang",
    ),
    "topology": Field(
        _topology,
        {"anyOf": [_TOPOLOGY, {**_TOPOLOGY_STRUCT, "required": ["scope"]}]},
        "how replicas stand to each other",
    ),
    "node_labels": Field(
        _node_labels,
        struct(
            wanted=described(NAMES, "labels that its nodes have"),
            shunned=described(NAMES, "labels that its nodes do not have"),
        ),
        "labels that the nodes must or must not have",
    ),
    "placement": word("how its nodes are chosen (its pool's)", PLACEMENTS),
}
ALTERNATIVES = Field(
    _alternatives,
    {
        "type": "array",
        "maxItems": ALTERNATIVES_MAX,
        "items": {**struct(**described_fields(SHAPE)), "minProperties": 1},
    },
    "other shapes it would also accept, in order of preference",
)
