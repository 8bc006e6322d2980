"""Places for chosen sizes: unchanged jobs stay, changed ones get few nodes, and no node is shared by two spread jobs.

Two jobs that both communicate across nodes slow each other down on a shared network card, so a node carries at most
one of them. Source: interference avoidance, Qiao et al., Pollux, OSDI 2021, section 4.2.
"""

from collections.abc import Iterable, Mapping

from penstock.core.elastic.worth import ElasticJob, Places, Worth


class RoundCapacity:
    """Free capacity of each node while a round is being placed."""

    def __init__(self, room: Mapping[str, int], worths: Mapping[int, Worth]) -> None:
        self._free = dict(room)
        self._worths = worths
        self._spread: dict[str, int] = {}
        """The job spread over several nodes that is on a node."""
        self._places: dict[int, Places] = {}

    def place(self, sizes: Mapping[int, int], *, guarded: bool) -> dict[int, Places]:
        """Return places for as much of `sizes` as fits, largest first; a job without room for its minimum waits.

        A `guarded` round never gives away a running job's places before that job has its new ones, so no job loses its
        minimum; otherwise the largest job chooses first among all places that are not kept.
        """
        changed = []
        for number, worth in self._worths.items():
            job = worth.job
            if sizes[number] == job.size:
                self._take(job, job.held)
            else:
                changed.append(job)
                if guarded:
                    self._take(job, job.held)
        # Shrinking jobs come first in a guarded round: the others grow into the places that they leave.
        changed.sort(key=lambda j: (guarded and sizes[j.id] > j.size, -sizes[j.id] * j.devices_each, j.id))
        for job in changed:
            if guarded:
                self._leave(job)
            self._put(job, sizes[job.id])
        return self._places

    def _put(self, job: ElasticJob, size: int) -> None:
        """Place the job at `size` or the next size below with room; without room for growth it stays where it is."""
        if size > job.size >= job.minimum:
            found = self._first_of(job, range(size, job.size, -1))
            if found is None and all(self._free.get(node, 0) >= count * job.devices_each for node, count in job.held):
                found = job.held
            size = job.size
        else:
            found = None
        if found is None:
            found = self._first_of(job, range(size, min(job.minimum, size) - 1, -1))
        self._take(job, found or ())

    def _first_of(self, job: ElasticJob, sizes: Iterable[int]) -> Places | None:
        return next((found for found in (self._find(job, size) for size in sizes) if found is not None), None)

    def _find(self, job: ElasticJob, size: int) -> Places | None:
        """Return the tightest node with room for `size`, or else the fewest nodes; None when there is no room."""
        each = job.devices_each
        if size <= 0:
            return ()
        held = dict(job.held)
        rooms = {node: free // each for node, free in self._free.items() if free >= each}
        single = [node for node, count in rooms.items() if count >= size]
        if single:
            best = min(single, key=lambda n: (self._free[n], n not in held, n))
            return ((best, size),)
        taken: dict[str, int] = {}
        left = size
        for node in sorted((n for n in rooms if n not in self._spread), key=lambda n: (-rooms[n], n not in held, n)):
            if rooms[node] >= left:
                enough = [n for n in rooms if n not in self._spread and n not in taken and rooms[n] >= left]
                taken[min(enough, key=lambda n: (self._free[n], n not in held, n))] = left
                return tuple(sorted(taken.items()))
            taken[node], left = rooms[node], left - rooms[node]
        return None

    def _take(self, job: ElasticJob, places: Places) -> None:
        self._places[job.id] = places
        for node, count in places:
            self._free[node] -= count * job.devices_each
            if len(places) > 1:
                self._spread[node] = job.id

    def _leave(self, job: ElasticJob) -> None:
        for node, count in self._places.pop(job.id, ()):
            self._free[node] += count * job.devices_each
            if self._spread.get(node) == job.id:
                del self._spread[node]
