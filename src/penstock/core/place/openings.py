"""When and where a job that waits may start, and the last answers to that question."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.model.jobs import Attempt, GangAsk, ReplicaPlace

KEPT_MAX = 4


class Opening(NamedTuple):
    """The earliest start, its places, and what is left beside it on the nodes it takes."""

    start_ms: int
    places: tuple[ReplicaPlace, ...]
    beside: Mapping[int, Sequence[int]]
    """These nodes, by the state that is left there (its number in the cluster's table)."""


class KnownOpening(NamedTuple):
    """An answer, and all that it depended on."""

    version: int
    """Of the cluster."""
    needed: Sequence[tuple[Attempt, GangAsk]]
    """Attempts that have to leave first, in order, and what each gives back."""
    opening: Opening


class KnownOpenings:
    """The last answers, at most `KEPT_MAX`, each by what was to be placed."""

    def __init__(self) -> None:
        self._known: dict[object, KnownOpening] = {}

    def get(self, asked: object, version: int) -> KnownOpening | None:
        """Return the answer for `asked` that was given for this version of the cluster, if it is still kept."""
        found = self._known.get(asked)
        return found if found is not None and found.version == version else None

    def keep(self, asked: object, known: KnownOpening) -> None:
        """Keep an answer, and drop the oldest where there are too many."""
        self._known.pop(asked, None)
        while len(self._known) >= KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._known[asked] = known
