"""Queues as a file says them, `queues.yaml` in a ConfigMap: read to what Queue objects say, with all of its problems.

An entry has a name and the fields of a Queue's spec; `fairShare` says how the top-level queues share.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.core.config.fields import STRING, Field, Section, duration, flag, integer, label, sections, struct, word
from penstock.core.config.pools import is_plain
from penstock.core.config.queues import WEIGHT_MAX
from penstock.core.config.reader import QUANTITY_MAX, Reader, shown
from penstock.core.model.errors import Problem, Problems, TooManyProblems
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.penstock import Queue, QueueSpec
from penstock.engines.kubernetes.operator.declaring import PREEMPTION, FairShare, quota
from penstock.yamltext import loaded

KEY = "queues.yaml"
CHARACTERS_MAX = 256 * 2**10
"""A quarter of what a ConfigMap can hold."""
QUEUES_MAX = 1_000
RESOURCES_MAX = 64
SHARE = "a mapping such as {nvidia.com/gpu: 8, cpu: 64, memory: 1Ti}"


class QueueFile(msgspec.Struct, frozen=True):
    """What a file declares."""

    queues: tuple[Queue, ...] = ()
    fair_share: FairShare | None = None


class _Entry(QueueSpec, frozen=True, kw_only=True):
    name: str


class _Top(msgspec.Struct, frozen=True):
    queues: tuple[_Entry, ...] = ()
    fair_share: FairShare | None = None


def read_queues(text: str) -> tuple[QueueFile, tuple[str, ...]]:
    """Return what a file declares (usable only without problems), and everything wrong with it."""
    if len(text) > CHARACTERS_MAX:
        return QueueFile(), (f"{KEY} has {len(text):,} characters, expected {CHARACTERS_MAX:,} at most",)
    try:
        raw = loaded(text, aliases=False, doubles=False)
    except ValueError as error:
        return QueueFile(), (f"{KEY} is no YAML: {error}",)
    if not isinstance(raw, Mapping):
        return QueueFile(), (f"{KEY} is {shown(raw)}, expected a mapping with {', '.join(_TOP.fields)}",)
    problems: list[Problem] = Problems()
    top: _Top | None = None
    try:
        top = _TOP.read(Reader("", problems), raw)
    except TooManyProblems:
        problems = problems.and_more()  # type: ignore[attr-defined]
    if problems or top is None:
        return QueueFile(), tuple(f"{one.message} ({one.hint})" if one.hint else one.message for one in problems)
    return QueueFile(tuple(Queue(Metadata(one.name), one) for one in top.queues), top.fair_share), ()


def _share(reader: Reader, field: str, value: Any) -> dict[str, str | int]:
    if not isinstance(value, Mapping) or len(value) > RESOURCES_MAX:
        reader.wrong(field, value, f"{SHARE}, of {RESOURCES_MAX} resources at most")
        return {}
    found: dict[str, str | int] = {}
    for name, amount in value.items():
        text = str(amount) if isinstance(amount, str | int | float) else ""
        if not text or len(text) > QUANTITY_MAX:
            reader.wrong(f"{field}.{str(name)[:QUANTITY_MAX]}", amount, "a quantity such as 8 or 64Gi")
            continue
        found[str(name)] = text
        try:
            quota({str(name)[:QUANTITY_MAX]: text}, reader.path(field))
        except ValueError as error:
            reader.problems.append(Problem("bad_value", reader.path(field), str(error), shown(amount)))
    return found


def _fair_share(reader: Reader, field: str, value: Any) -> FairShare | None:
    if isinstance(value, bool):
        return FairShare(value)
    return _FAIR_SHARE.read(Reader(reader.path(field), reader.problems), value)


def _name(reader: Reader, field: str, value: Any) -> str:
    if not is_plain(value):
        reader.wrong(field, value, "1 to 63 letters, digits, '.', '_' or '-'")
        return ""
    return str(value)


def _whole(reader: Reader, top: _Top) -> None:
    if not top.queues and not reader.problems:
        reader.wrong("queues", list(top.queues), "a list of at least one queue")
    first: dict[str, int] = {}
    for index, one in enumerate(top.queues):
        if one.name and first.setdefault(one.name, index) != index:
            other = f"another name than that of queues[{first[one.name]}]"
            reader.wrong(f"queues[{index}].name", one.name, other)


def _capacity(about: str, at: str) -> Field:
    return Field(_share, struct(), about, at)


_FAIR_SHARE = Section(
    FairShare,
    {
        "enabled": flag("whether the top-level queues share by weight", default=True),
        "halfLife": duration("time after which half of past use is forgotten", at="half_life_ms", example="7d"),
    },
)
_QUEUE = Section(
    _Entry,
    {
        "name": Field(_name, STRING, "its name"),
        "parent": label("queue above it"),
        "weight": integer("its part of what is shared", 1, WEIGHT_MAX),
        "guaranteedCapacity": _capacity("what it can claim back at any time", "guaranteed_capacity"),
        "maxCapacity": _capacity("the most that it may hold", "max_capacity"),
        "lendingLimit": _capacity("how much of its guarantee others may use", "lending_limit"),
        "preemptionPolicy": word("whom its jobs may ask to leave", tuple(PREEMPTION), at="preemption_policy"),
    },
    defaults={"guaranteed_capacity": {}, "max_capacity": {}},
)
_TOP = Section(
    _Top,
    {
        "queues": sections("the queues", _QUEUE, QUEUES_MAX),
        "fairShare": Field(_fair_share, struct(), "how the top-level queues share", "fair_share"),
    },
    _whole,
)
