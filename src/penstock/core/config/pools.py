"""The pools of a cluster file, and the windows for which nodes are reserved."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from penstock.core.config.elastic import ELASTIC
from penstock.core.config.fields import (
    NAME,
    QUANTITY,
    STRING,
    Field,
    Plain,
    Section,
    described,
    from_milli,
    label,
    note,
    number,
    section,
    struct,
    time,
    whole,
    word,
)
from penstock.core.config.matching import MODELS
from penstock.core.config.reader import Reader
from penstock.core.config.sharing import SHARING
from penstock.core.model import cluster as c
from penstock.core.model.ids import NodeName, is_node_name
from penstock.core.model.measured import POWER_MAX_MW
from penstock.core.model.quantities import MILLI, format_time, parse_milli, parse_part_milli
from penstock.core.model.resources import OVERSUBSCRIPTION_MAX, DividingStrategy, Virtualization
from penstock.core.order.extension import NAME_CHARACTERS

ENTRIES_MAX = 10_000
REPLICAS_PER_DEVICE = {"inference": 4, "development": 2}
REPLICAS_PER_DEVICE_MAX = 64
POWER_LIMIT_MAX_MW = 10**12
"""A gigawatt."""
POOL_KINDS = ("gpu", "npu", "cpu", "mixed")
PLACEMENTS: tuple[str, ...] = get_args(c.PlacementPolicy)
BACKFILL_RULES: tuple[str, ...] = get_args(c.BackfillRule)
VIRTUALIZATIONS: tuple[str, ...] = get_args(Virtualization)
MIG_STRATEGIES: tuple[str, ...] = ("none", *get_args(DividingStrategy))


def is_plain(name: object) -> bool:
    """Return whether this can be the name of an entry."""
    return isinstance(name, str) and 0 < len(name) <= 63 and set(name) <= NAME_CHARACTERS


def _read_virtualization(reader: Reader, field: str, value: Any) -> Virtualization:
    if value == "vgpu":
        hint = "a virtual machine with a vGPU can be a node of its own, whose devices are given out whole"
        expected = f"one of {', '.join(VIRTUALIZATIONS)}: virtual GPUs are not made here"
        reader.wrong(field, value, expected, code="not_supported", hint=hint)
        return "any"
    return cast("Virtualization", reader.word(field, value, VIRTUALIZATIONS, "any"))


def _read_reserve(reader: Reader, field: str, value: Any) -> int:
    try:
        return parse_part_milli(value)
    except ValueError:
        reader.wrong(field, value, "a part of the pool's devices from 0 to 1, such as 0.15 or 15%")
        return 0


def _read_oversubscription(reader: Reader, field: str, value: Any) -> int:
    try:
        factor_milli = parse_milli(value)
    except ValueError:
        factor_milli = 0
    if not MILLI <= factor_milli <= OVERSUBSCRIPTION_MAX * MILLI:
        reader.wrong(field, value, f"a factor from 1 (none) to {OVERSUBSCRIPTION_MAX}, such as 1.5")
        return MILLI
    return factor_milli


def _read_replicas_per_device(reader: Reader, field: str, value: Any) -> int:
    number = REPLICAS_PER_DEVICE.get(value, value) if isinstance(value, str) else value
    if type(number) is not int or not 1 <= number <= REPLICAS_PER_DEVICE_MAX:
        expected = f"a whole number from 1 to {REPLICAS_PER_DEVICE_MAX}, or one of {', '.join(REPLICAS_PER_DEVICE)}"
        reader.wrong(field, value, expected)
        return 0
    return number


def _gives_out_what_it_divides(reader: Reader, pool: c.Pool) -> None:
    if pool.mig_strategy != "none" and pool.virtualization not in ("any", "mig"):
        expected = f"none where virtualization is {pool.virtualization}: such a pool gives out no MIG instances"
        reader.wrong("mig_strategy", pool.mig_strategy, expected)


_FACTOR = number("", "a number above 0 in steps of 0.001, such as 2.2", low=1, high=10**9)
_SPEED = {"speed": _FACTOR, "cost": _FACTOR}


def _read_speeds(reader: Reader, field: str, raw: Any) -> tuple[tuple[str, int, int], ...]:
    """Read, by device model, its speed and its cost per hour: two numbers above 0, or the speed alone."""
    if not isinstance(raw, Mapping):
        reader.wrong(field, raw, "a mapping such as {A100: {speed: 1, cost: 1.5}, H100: {speed: 2.2, cost: 3}}")
        return ()
    found = []
    for model, entry in raw.items():
        if not isinstance(model, str) or not model or len(model) > 128 or not model.isprintable():
            reader.wrong(field, model, "names of device models")
            continue
        inner = Reader(reader.path(f"{field}.{model}"), reader.problems)
        own = entry if isinstance(entry, Mapping) else {"speed": entry}
        inner.unknown(own, tuple(_SPEED))
        speed, cost = (_FACTOR.read(inner, name, own.get(name, 1)) for name in _SPEED)
        found.append((model, speed, cost))
    return tuple(sorted(found))


def _plain_speeds(speeds: tuple[tuple[str, int, int], ...]) -> Plain:
    return {model: {"speed": from_milli(speed), "cost": from_milli(cost)} for model, speed, cost in speeds}


_SPEED_STRUCT = struct(
    speed=described(QUANTITY, "speed against the other models, such as 2.2", default=1),
    cost=described(QUANTITY, "cost of an hour against the other models", default=1),
)
_SPEEDS = {
    "type": "object",
    "additionalProperties": {"anyOf": [QUANTITY, _SPEED_STRUCT]},
}
POOL = Section(
    c.Pool,
    {
        "name": NAME,
        "kind": word("kind of its devices (information only)", POOL_KINDS, "mixed"),
        "description": note("description"),
        "placement": word("placement policy", PLACEMENTS),
        "backfill": word("backfill rule for jobs behind one that does not fit", BACKFILL_RULES),
        "reserve": Field(
            _read_reserve,
            QUANTITY,
            "share of its devices for preemptible jobs only, such as 15%",
            "reserve_milli",
            from_milli,
        ),
        "speeds": Field(
            _read_speeds,
            _SPEEDS,
            "relative speed and cost of each device model, for jobs that accept several",
            write=_plain_speeds,
        ),
        "models": section("which of its device models each job gets, where it has several", MODELS),
        "memory_oversubscription": Field(
            _read_oversubscription,
            QUANTITY,
            "how much of a device's memory may be promised to fractions that all allow it, such as 1.5",
            "memory_oversubscription_milli",
            from_milli,
        ),
        "replicas_per_device": Field(
            _read_replicas_per_device,
            {"anyOf": [whole(1, REPLICAS_PER_DEVICE_MAX), {"enum": list(REPLICAS_PER_DEVICE)}]},
            "equal parts of a device for jobs that ask for a slice: a number, `inference` (4) or `development` (2)",
        ),
        "power_limit": number(
            "watts that its devices in use may be expected to draw together; a start that would exceed it waits",
            "a number of watts from 1, such as 20000",
            low=MILLI,
            high=POWER_LIMIT_MAX_MW,
            default=0,
            at="power_limit_mw",
        ),
        "sharing": section("when jobs that say `shareable` share a device", SHARING),
        "device_power_limit": number(
            "watts that each of its devices may draw, set by the vendor's tool where it can be",
            "a number of watts from 1, such as 300",
            low=MILLI,
            high=POWER_MAX_MW,
            default=0,
            at="device_power_limit_mw",
        ),
        "elastic": section("how the sizes of its elastic jobs are chosen", ELASTIC),
        "virtualization": Field(_read_virtualization, {"enum": list(VIRTUALIZATIONS)}, "kinds of device sharing"),
        "mig_strategy": word(
            "MIG instances into which devices are divided ahead of demand: halves (`training`), the smallest "
            "(`inference`), both (`balanced`)",
            MIG_STRATEGIES,
            "none",
        ),
    },
    _gives_out_what_it_divides,
)


def _read_nodes(reader: Reader, field: str, value: Any) -> tuple[NodeName, ...]:
    valid = isinstance(value, list) and 0 < len(value) <= ENTRIES_MAX
    if not valid or not all(is_plain(one) and is_node_name(one) for one in value):
        reader.wrong(field, value, "a list of names of nodes")
        return ()
    if len(set(value)) < len(value):
        reader.wrong(field, value, "each node once")
    return tuple(sorted(set(value)))


def _ends_after_its_start(reader: Reader, window: c.Reservation) -> None:
    if window.start_ms and 0 < window.end_ms <= window.start_ms:
        reader.wrong("end", format_time(window.end_ms), f"later than start, {format_time(window.start_ms)}")


RESERVATION = Section(
    c.Reservation,
    {
        "name": NAME,
        "tenant": label("tenant that the nodes are reserved for"),
        "start": time("begin", at="start_ms"),
        "end": time("end", at="end_ms"),
        "nodes": Field(_read_nodes, {"type": "array", "items": STRING}, "nodes, as a whole", write=list),
    },
    _ends_after_its_start,
)
