"""Copy-on-write containers, cheap to give out while they go on changing: only the parts that change are copied.

A plain dict would be copied whole for each snapshot. At 10,000 nodes and 80,000 running jobs that costs more than the
rest of a small cycle, most of it in the garbage collector, which looks at every entry of each new dict.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import TypeVar

from penstock.core.model.ids import JobId, NodeName

V = TypeVar("V")
Moment = tuple[int, JobId]
"""Of a job (unix ms)."""

SHARDS = 512
_CHUNK_BITS = 6
_CHUNK = 1 << _CHUNK_BITS
_AFTER: Moment = (1 << 63, JobId(0))
"""Later than any moment."""


class _Values(ValuesView[V]):
    """Without a look-up of each."""

    __slots__ = ()
    _mapping: "ByJob[V]"

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(shard.values() for shard in self._mapping.shards)


class ByJob(Mapping[JobId, V]):
    """Values by job id. Iteration goes shard by shard, in no order."""

    __slots__ = ("_owned", "_shards")

    def __init__(self, shards: list[dict[JobId, V]] | None = None) -> None:
        self._shards: list[dict[JobId, V]] = [{} for _ in range(SHARDS)] if shards is None else shards
        self._owned: set[int] = set()
        """Shards that no cut shares."""

    def __getitem__(self, key: JobId) -> V:
        return self._shards[key % SHARDS][key]

    def __iter__(self) -> Iterator[JobId]:
        return chain.from_iterable(self._shards)

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def shards(self) -> list[dict[JobId, V]]:
        return self._shards

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def cut(self) -> "ByJob[V]":
        """Return the present values, as a mapping that never changes.

        Any thread: shards are taken before they are disowned, so at most a change in progress is seen.
        """
        found = ByJob(list(self._shards))
        self._owned.clear()
        return found

    def set(self, key: JobId, value: V) -> None:
        """Add a value, or replace it."""
        self._own(key)[key] = value

    def remove(self, key: JobId) -> None:
        """Raises KeyError where there is none."""
        del self._own(key)[key]

    def _own(self, key: JobId) -> dict[JobId, V]:
        at = key % SHARDS
        if at not in self._owned:
            self._owned.add(at)  # first: another thread may take a cut between these lines
            self._shards[at] = dict(self._shards[at])
        return self._shards[at]


class ByNode(Mapping[NodeName, V]):
    """A value for each node, in the order in which these were given."""

    __slots__ = ("_at", "_chunks", "_owned")

    def __init__(self, values: Iterable[tuple[NodeName, V]] = ()) -> None:
        known = dict(values)
        self._at: dict[NodeName, int] = {name: i for i, name in enumerate(known)}
        held = list(known.values())
        self._chunks: list[list[V]] = [held[i : i + _CHUNK] for i in range(0, len(held), _CHUNK)]
        self._owned = set(range(len(self._chunks)))
        """Chunks that no cut shares."""

    def __getitem__(self, name: NodeName) -> V:
        at = self._at[name]
        return self._chunks[at >> _CHUNK_BITS][at & _CHUNK - 1]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def cut(self) -> "ByNode[V]":
        """Return the present values, as a mapping that never changes."""
        found: ByNode[V] = ByNode.__new__(ByNode)
        found._at, found._chunks, found._owned = self._at, list(self._chunks), set()
        self._owned.clear()
        return found

    def with_last(self, name: NodeName, value: V) -> "ByNode[V]":
        """Return the values with that of one more node behind them."""
        found, at = self.cut(), len(self._at)
        found._at = {**self._at, name: at}
        if at & _CHUNK - 1:
            found._chunks[-1] = [*found._chunks[-1], value]
        else:
            found._chunks.append([value])
        found._owned.add(len(found._chunks) - 1)
        return found

    def set(self, name: NodeName, value: V) -> None:
        """Replace the value of a node. Raises KeyError for an unknown node."""
        at = self._at[name]
        chunk = at >> _CHUNK_BITS
        if chunk not in self._owned:
            self._owned.add(chunk)
            self._chunks[chunk] = list(self._chunks[chunk])
        self._chunks[chunk][at & _CHUNK - 1] = value


class Moments(Iterable[Moment]):
    """Moments of jobs, ascending, in pieces that are replaced and never changed."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Iterable[tuple[Moment, ...]] = ()) -> None:
        self._pieces = list(pieces)

    def __iter__(self) -> Iterator[Moment]:
        return chain.from_iterable(self._pieces)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return NotImplemented
        return self._pieces == other._pieces or list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def cut(self) -> "Moments":
        """Return the present moments, which never change. Any thread."""
        return Moments(self._pieces)

    def add(self, moment: Moment) -> None:
        at = self._place(moment)
        if at < 0:
            self._pieces.insert(0, (moment,))
            return
        piece = self._pieces[at]
        cut = len(piece) if moment > piece[-1] else bisect_left(piece, moment)
        if len(piece) < _CHUNK:
            self._pieces[at] = (*piece[:cut], moment, *piece[cut:])
        else:
            self._pieces[at : at + 1] = [part for part in (piece[:cut], (moment, *piece[cut:])) if part]

    def remove(self, moment: Moment) -> None:
        """Raises KeyError where there is no such moment."""
        at = self._place(moment)
        piece = self._pieces[at] if at >= 0 else ()
        cut = bisect_left(piece, moment)
        if cut == len(piece) or piece[cut] != moment:
            raise KeyError(moment)
        rest = piece[:cut] + piece[cut + 1 :]
        if at and len(self._pieces[at - 1]) + len(rest) <= _CHUNK // 2:
            self._pieces[at - 1 : at + 1] = [self._pieces[at - 1] + rest]
        elif rest:
            self._pieces[at] = rest
        else:
            del self._pieces[at]

    def _place(self, moment: Moment) -> int:
        """Return the number of the piece that holds the moment, or would; -1: it comes before all of them."""
        return bisect_left(self._pieces, (moment, _AFTER)) - 1
