"""The past allocations, packed, and timelines of them: rows of bars, or of how much was held where there are too many.

Ended allocations are packed in thousands, with the span that they cover: a window unpacks what overlaps it, one pack at
a time. A year of a busy cluster takes some MB; beyond a bound the oldest are dropped, and `since_ms` says so.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from penstock.core.ledger.allocations import Allocation

PACK = 4_096
PACKS_MAX = 128
"""More than half a million allocations: 10 to 15 MB."""
BARS_MAX = 5_000
COLLECTED_MAX = 50_000
"""Of more allocations only those of the page are remembered: a busy cluster has half a million."""
BUCKETS = 120
"""Parts of the window for which density is given."""
By = Literal["node", "tenant", "user", "job"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Allocation]).decode


class Pack(msgspec.Struct, frozen=True):
    """Ended allocations, the earliest end first."""

    from_ms: int
    until_ms: int
    body: bytes

    def unpacked(self) -> list[Allocation]:
        return _decode(zlib.decompress(self.body))


class PastImage(msgspec.Struct, frozen=True):
    """The whole of `PastAllocations`."""

    since_ms: int
    packs: tuple[Pack, ...]
    recent: tuple[Allocation, ...]


class PastAllocations:
    """Ended allocations in the order of their ends. For one thread; what `between` yields from stays as it is."""

    def __init__(self, image: PastImage | None = None) -> None:
        image = image or PastImage(0, (), ())
        self.since_ms = image.since_ms
        """Allocations that ended before may be missing (unix ms); 0: none are."""
        self._packs: tuple[Pack, ...] = image.packs
        self._recent: list[Allocation] = list(image.recent)

    def image(self) -> PastImage:
        return PastImage(self.since_ms, self._packs, tuple(self._recent))

    def add(self, ended: Iterable[Allocation]) -> None:
        self._recent += ended
        while len(self._recent) >= PACK:
            packed, self._recent = self._recent[:PACK], self._recent[PACK:]
            from_ms, until_ms = min(one.start_ms for one in packed), max(one.end_ms for one in packed)
            self._packs = (*self._packs, Pack(from_ms, until_ms, zlib.compress(_encode(packed), 1)))
        if len(self._packs) > PACKS_MAX:
            self.since_ms = max(self.since_ms, *(pack.until_ms for pack in self._packs[:-PACKS_MAX]))
            self._packs = self._packs[-PACKS_MAX:]

    def between(
        self, from_ms: int, until_ms: int, still_open: Iterable[Allocation] = ()
    ) -> Callable[[], Iterator[Allocation]]:
        """Return what yields all that overlaps [from_ms, until_ms), as of now, each time it is called.

        Args:
            still_open: what has not ended, to be yielded too.
        """
        packs = [pack for pack in self._packs if pack.from_ms < until_ms and pack.until_ms > from_ms]
        others = [*self._recent, *still_open]

        def found() -> Iterator[Allocation]:
            for several in chain((pack.unpacked() for pack in packs), [others]):
                for one in several:
                    if one.start_ms < until_ms and (one.end_ms > from_ms or not one.end_ms):
                        yield one

        return found


class Question(NamedTuple):
    """A window [from_ms, until_ms) of time, what makes a row, and which allocations; empty: all."""

    from_ms: int
    until_ms: int
    by: By = "node"
    node: str = ""
    tenant: str = ""
    user: str = ""
    job: int = 0
    rows: int = 200
    after: str = ""
    """Rows that follow this one."""


class Row(msgspec.Struct):
    """One row: its bars, or how much was held in each part of the window where there are too many bars."""

    key: str
    bars: int
    density: list[float]
    """Devices held on average, in equal parts of the window; empty where bars are given."""


class Timeline(NamedTuple):
    rows: list[Row]
    bars: list[Allocation]
    """Of those rows, in order of rows, then of starts; empty where they were merged."""
    merged: bool
    total: int
    """Bars of these rows."""
    following: str
    """The last row of the page, where more follow; else empty."""


def timeline_of(
    source: Callable[[], Iterator[Allocation]],
    asked: Question,
    sees: Callable[[str], bool],
    nodes: Iterable[str] = (),
    *,
    now_ms: int,
) -> Timeline:
    """Return one page of rows, in the order of their keys, with what they held.

    Args:
        source: yields the allocations that overlap the window; called twice where they are more than `COLLECTED_MAX`.
        sees: whether the caller sees a tenant; the others' bars are on rows of nodes alone, without names.
        nodes: rows of these nodes are there even if nothing was held.
    """
    chosen = _chooser(asked, sees)
    counts: dict[str, int] = {}
    key_of = keys_by(asked.by)
    collected: list[Allocation] | None = []
    if asked.by == "node" and not (asked.tenant or asked.user or asked.job):
        counts = {name: 0 for name in nodes if asked.node in ("", name)}
    for one in filter(chosen, source()):
        key = key_of(one)
        counts[key] = counts.get(key, 0) + 1
        if collected is not None:
            collected.append(one)
            if len(collected) > COLLECTED_MAX:
                collected = None
    order = _job_order if asked.by == "job" else str
    keys = sorted(counts, key=order)
    if asked.after:
        keys = [key for key in keys if order(key) > order(asked.after)]
    page = keys[: asked.rows]
    following = page[-1] if len(keys) > len(page) else ""
    total = sum(counts[key] for key in page)
    rows = {key: Row(key, counts[key], []) for key in page}
    again = collected if collected is not None else filter(chosen, source())
    mine = (one for one in again if key_of(one) in rows)
    if total > BARS_MAX:
        _merge(rows, mine, asked, now_ms)
        return Timeline(list(rows.values()), [], True, total, following)
    place = {key: number for number, key in enumerate(page)}
    bars = sorted(mine, key=lambda one: (place[key_of(one)], one.start_ms, one.job_id, one.attempt))
    return Timeline(list(rows.values()), bars, False, total, following)


def keys_by(by: By) -> Callable[[Allocation], str]:
    """Return what says the row of an allocation."""
    return (lambda one: str(one.job_id)) if by == "job" else attrgetter(by)


def _job_order(key: str) -> str:
    return key.zfill(20)


def _chooser(asked: Question, sees: Callable[[str], bool]) -> Callable[[Allocation], bool]:
    """Return whether an allocation is to be shown: one that the caller does not see only as held, so no filter on
    what it is may let it through."""
    named = bool(asked.tenant or asked.user or asked.job) or asked.by != "node"
    known: dict[str, bool] = {}

    def chosen(one: Allocation) -> bool:
        if asked.node and one.node != asked.node:
            return False
        if not named:
            return True
        seen = known.get(one.tenant)
        if seen is None:
            seen = known[one.tenant] = sees(one.tenant)
        return (
            seen
            and asked.tenant in ("", one.tenant)
            and asked.user in ("", one.user)
            and (not asked.job or one.job_id == asked.job)
        )

    return chosen


def _merge(rows: dict[str, Row], held: Iterable[Allocation], asked: Question, now_ms: int) -> None:
    """Work out the density of each row; the cost of an allocation does not depend on its length."""
    span_ms = max(1, asked.until_ms - asked.from_ms)
    parts = {key: [0] * BUCKETS for key in rows}
    """Device-milliseconds, in thousandths and times `BUCKETS`, of buckets that an allocation covers in part."""
    whole = {key: [0] * (BUCKETS + 1) for key in rows}
    """Thousandths of devices that begin and end to cover whole buckets."""
    key_of = keys_by(asked.by)
    for one in held:
        key = key_of(one)
        if one.start_ms >= (one.end_ms or now_ms):
            continue
        start = (max(one.start_ms, asked.from_ms) - asked.from_ms) * BUCKETS
        end = (min(one.end_ms or now_ms, asked.until_ms) - asked.from_ms) * BUCKETS
        first, last = start // span_ms, end // span_ms
        if first == last:
            parts[key][first] += one.device_milli * (end - start)
            continue
        parts[key][first] += one.device_milli * ((first + 1) * span_ms - start)
        whole[key][first + 1] += one.device_milli
        whole[key][last] -= one.device_milli
        if last < BUCKETS:
            parts[key][last] += one.device_milli * (end - last * span_ms)
    for key, row in rows.items():
        level = 0
        for bucket in range(BUCKETS):
            level += whole[key][bucket]
            row.density.append(round((level + parts[key][bucket] / span_ms) / 1000, 3))
