"""Backfill: the earliest start of a job that does not fit now, and the reservation that keeps its capacity until then.

The start of the blocked job is the earliest time at which enough running attempts will have left, by their expected
ends; a later job may use that capacity only if it has ended by then, or beside it. Source: EASY, Lifka 1995;
conservative backfilling, Mu'alem and Feitelson 2001.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from penstock.core.model.jobs import Attempt, GangAsk, Job, ReplicaPlace
from penstock.core.place.gang import GangPlacer
from penstock.core.place.holds import FOREVER_MS, lesser, without
from penstock.core.place.index import ClusterIndex, Mark
from penstock.core.place.openings import KnownOpening, Opening

RELEASES_MAX = 4_096
"""Ends of attempts that a search looks ahead; a job that needs more of them gets no reservation."""


class Release:
    """An attempt that will have left by `end_ms`, and what it gives back then."""

    __slots__ = ("_places", "ask", "end_ms", "job")

    def __init__(
        self, end_ms: int, job: Job, ask: GangAsk, places: tuple[tuple[int, ReplicaPlace], ...] | None = None
    ) -> None:
        """Take the places, each with its rank; None: those that the job's attempt holds."""
        self.end_ms, self.job, self.ask, self._places = end_ms, job, ask, places

    @property
    def places(self) -> tuple[tuple[int, ReplicaPlace], ...]:
        if self._places is None:
            self._places = held_places(self.job)
        return self._places


class Booking(NamedTuple):
    """A reservation made earlier in this cycle: the gang holds its places from `start_ms` until `end_ms`."""

    start_ms: int
    end_ms: int
    ask: GangAsk
    places: tuple[ReplicaPlace, ...]


def held_places(job: Job) -> tuple[tuple[int, ReplicaPlace], ...]:
    """Return the places that the job's attempt still holds, each with its rank."""
    if job.attempt is None:
        return ()
    return tuple([(r.rank, r.place) for r in job.attempt.replicas if r.holds])


def earliest(prepared: GangPlacer, cluster: ClusterIndex, releases: Iterable[Release]) -> Opening | None:
    """Return when and where the gang fits first as `releases` (by end, ascending) leave one after the other.

    More room never hurts, so the number of releases needed is found by doubling and then by bisection. The cluster is
    left unchanged. A former answer holds while the cluster is the same and the same attempts leave first, if perhaps
    at other times: for gangs that are counted, with which more room never hurts indeed. Then as many releases are taken
    as a search takes: whoever yields them sees no difference.
    """
    waiting = iter(releases)
    version = cluster.version
    known = cluster.openings.get(prepared, version)
    if known is not None:
        needed_count = len(known.needed)
        seen = list(islice(waiting, (1 << needed_count.bit_length()) - 1))
        if len(seen) >= needed_count and all(map(_is_of, seen, known.needed)):
            return known.opening._replace(start_ms=seen[needed_count - 1].end_ms)
        waiting = chain(seen, waiting)
    opening, gone = _earliest(prepared, cluster, waiting)
    needed = [(release.job.attempt, release.ask) for release in gone if release.job.attempt is not None]
    if opening is not None and prepared.counted is not None and len(needed) == len(gone):
        cluster.openings.keep(prepared, KnownOpening(version, needed, opening))
    return opening


def _is_of(release: Release, known: tuple[Attempt, GangAsk]) -> bool:
    return release.job.attempt is known[0] and release.ask == known[1]


def _earliest(
    prepared: GangPlacer, cluster: ClusterIndex, waiting: Iterator[Release]
) -> tuple[Opening | None, Sequence[Release]]:
    """Return the same, and the releases that are needed."""
    start = cluster.mark()
    marks = [start]
    gone: list[Release] = []
    step, low = 1, 0
    while len(gone) < RELEASES_MAX:
        for release in _next(waiting, step):
            cluster.put_back(release.ask, release.places)
            gone.append(release)
            marks.append(cluster.mark())
        if len(gone) == low:
            break
        if prepared.fits():
            needed = _fewest(prepared, cluster, gone, marks, low)
            opening = opening_now(prepared, cluster, gone[needed - 1].end_ms)
            assert opening is not None, "it fitted after these releases before"
            cluster.rollback(start)
            return opening, gone[:needed]
        low, step = len(gone), 2 * step
    cluster.rollback(start)
    return None, ()


def _next(waiting: Iterator[Release], count: int) -> Iterator[Release]:
    for _ in range(count):
        found = next(waiting, None)
        if found is None:
            return
        yield found


def _fewest(prepared: GangPlacer, cluster: ClusterIndex, gone: Sequence[Release], marks: list[Mark], low: int) -> int:
    """Return the least number of releases after which the gang fits; it fits after all of `gone`, not after `low`.

    The cluster is left with exactly these given back.
    """
    high = len(gone)
    while high - low > 1:
        middle = (low + high) // 2
        cluster.rollback(marks[middle])
        if prepared.fits():
            high = middle
        else:
            low = middle
            for i in range(middle, high):
                cluster.put_back(gone[i].ask, gone[i].places)
                marks[i + 1] = cluster.mark()
    return high


def opening_now(prepared: GangPlacer, cluster: ClusterIndex, start_ms: int) -> Opening | None:
    """Return where the gang fits in the capacity free now, or None. Its places stay taken."""
    places = prepared.put()
    return None if places is None else opening_at(places, cluster, start_ms)


def opening_at(places: tuple[ReplicaPlace, ...], cluster: ClusterIndex, start_ms: int) -> Opening:
    """Return the opening of a gang whose places are taken."""
    return Opening(start_ms, places, cluster.by_state(cluster.nodes_of(places)))


def earliest_beside(
    prepared: GangPlacer,
    cluster: ClusterIndex,
    releases: Sequence[Release],
    bookings: Sequence[Booking],
    length_ms: int,
    now_ms: int,
) -> Opening | None:
    """Return the earliest start that disturbs none of `bookings`: conservative backfill.

    At each end of an attempt or booking, the gang is tried beside every booking that overlaps its run. It prefers
    places that are not booked for later, as a start does too: so the job will start where it was booked, and every
    cycle until then finds the same bookings.
    """
    start = cluster.mark()
    releases = releases[:RELEASES_MAX]
    moments = sorted({r.end_ms for r in releases} | {b.end_ms for b in bookings if b.end_ms < FOREVER_MS})
    for moment in (now_ms, *(m for m in moments if m > now_ms)):
        for release in releases:
            if release.end_ms <= moment:
                cluster.put_back(release.ask, release.places)
        later = [r for r in releases if r.end_ms > moment]
        until_ms = moment + length_ms if length_ms else FOREVER_MS
        places = _places_beside(prepared, cluster, later, bookings, moment, until_ms)
        if places is not None and any(b.start_ms >= until_ms for b in bookings):
            places = _places_beside(prepared, cluster, later, bookings, moment, FOREVER_MS) or places
        if places is not None:
            opening = _opening_beside(prepared, cluster, bookings, moment, places)
            cluster.rollback(start)
            return opening
        cluster.rollback(start)
    return None


def _places_beside(
    prepared: GangPlacer,
    cluster: ClusterIndex,
    releases: Sequence[Release],
    bookings: Sequence[Booking],
    moment: int,
    until_ms: int,
) -> tuple[ReplicaPlace, ...] | None:
    """Return where the gang may be from `moment` until `until_ms` beside all bookings, or None."""
    met = [b for b in bookings if b.start_ms < until_ms and b.end_ms > moment]
    with cluster.tentatively():
        for state, nodes in _least(cluster, met, [r for r in releases if r.end_ms < until_ms], moment).items():
            cluster.set_states(nodes, state)
        return prepared.put()


def _opening_beside(
    prepared: GangPlacer,
    cluster: ClusterIndex,
    bookings: Sequence[Booking],
    moment: int,
    places: tuple[ReplicaPlace, ...],
) -> Opening:
    """Return the opening with the capacity beside it at its start: later bookings have claims of their own."""
    for booking in bookings:
        if booking.start_ms <= moment < booking.end_ms:
            _take(cluster, booking)
    cluster.take(prepared.gang, places)
    return Opening(moment, places, cluster.by_state(cluster.nodes_of(places)))


def _take(cluster: ClusterIndex, booking: Booking) -> None:
    asks = (booking.ask.each, *(group.each for group in booking.ask.others))
    if all(each.devices is None or each.devices.whole for each in asks):  # the same, many at a time
        cluster.take(booking.ask, booking.places)
        return
    for rank, place in enumerate(booking.places):
        node = cluster.index[place.node]
        cluster.change(node, without(cluster.free_of(node), booking.ask.each_of(rank), place))


def _least(
    cluster: ClusterIndex, bookings: Sequence[Booking], releases: Sequence[Release], moment: int
) -> dict[int, list[int]]:
    """Return the nodes of these bookings, by the state of the least capacity free at any time from `moment` on.

    Bookings that do not overlap may have the same places; so each counts at its own time.
    """
    least: dict[int, int] = {}
    known: dict[tuple[int, int], int] = {}
    table, state_of = cluster.table, cluster.state_of
    nodes = sorted({cluster.index[place.node] for booking in bookings for place in booking.places})
    waiting = sorted(releases, key=lambda r: (-r.end_ms, r.job.id))
    with cluster.tentatively():
        for instant in sorted({moment, *(b.start_ms for b in bookings if b.start_ms > moment)}):
            while waiting and waiting[-1].end_ms <= instant:
                cluster.put_back(waiting[-1].ask, waiting.pop().places)
            with cluster.tentatively():
                for booking in bookings:
                    if booking.start_ms <= instant < booking.end_ms:
                        _take(cluster, booking)
                for node in nodes:
                    state = state_of[node]
                    both = (least.get(node, state), state)
                    if both[0] != state and both not in known:
                        known[both] = table.id_of(lesser(table.frees[both[0]], table.frees[state]))
                    least[node] = known.get(both, state)
    found: dict[int, list[int]] = {}
    for node, state in least.items():
        found.setdefault(state, []).append(node)
    return found
