"""Suspended attempts in a cycle: who gets the CPUs back that it had.

One that nobody of a higher priority waits beside goes before all who wait: it holds its memory already. The others
take what is left once everybody was looked at. What is kept for others is never touched.
"""

from penstock.core.board import Board
from penstock.core.model.cluster import Node
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.place.shadow import FOREVER_MS
from penstock.core.plan import Resume


class Resumption:
    """Gives CPUs of one cycle to suspended attempts; `resumes` are those that go on."""

    def __init__(self, board: Board) -> None:
        self._board, self._snapshot = board, board.snapshot
        running = self._snapshot.running
        jobs = (running[job_id] for job_id in self._snapshot.suspended)
        self._left = sorted(
            (job for job in jobs if job.attempt is not None and job.attempt.stop is None),
            key=lambda job: (-job.spec.priority, job.id),
        )
        self.resumes: list[Resume] = []

    def before_lower_priority(self) -> None:
        """Resume attempts beside which nobody of a higher priority waits."""
        if not self._left:
            return
        highest = self._highest_waiting()
        for job in list(self._left):
            if job.spec.priority >= highest.get(job.placed.pool, job.spec.priority):
                self._resume(job)

    def whoever_fits(self) -> None:
        """Resume attempts whose CPUs nobody took."""
        for job in list(self._left):
            self._resume(job)

    def _highest_waiting(self) -> dict[PoolName, int]:
        highest: dict[PoolName, int] = {}
        for _, key, jobs in self._snapshot.classes:
            ready = (j for j in jobs if j.not_before_ms <= self._board.now_ms and j.id not in self._board.handled)
            if next(ready, None) is not None:
                pool = key.ask.pool
                highest[pool] = max(key.priority, highest.get(pool, key.priority))
        return highest

    def _resume(self, job: Job) -> None:
        board, attempt = self._board, job.attempt
        assert attempt is not None
        held = [(r.rank, r.place) for r in attempt.replicas if r.holds]
        gang = job.placed.only_cpus()
        branch = board.tree.branches.get(job.spec.queue)
        if branch is None or not all(map(self._takes_work, (place for _, place in held))):
            return
        part = board.tree.part(branch, job.spec.tenant)
        demand = list(board.tree.demand_of(gang, (), {}))
        demand[3] = 0  # it counts as a running job all the time
        needed: dict[NodeName, int] = {}
        for rank, place in held:
            needed[place.node] = needed.get(place.node, 0) + gang.each_of(rank).host.cpu_milli
        free = {name: board.cluster.free_of(board.cluster.index[name]) for name in needed}
        if any(free[name].closed or free[name].cpu_milli < milli for name, milli in needed.items()):
            return
        if board.tree.block(part, tuple(demand)) is not None:
            return
        for rank, place in held:
            single, bare = GangAsk(1, gang.each_of(rank)), (ReplicaPlace(place.node, place.incarnation),)
            board.cluster.take(single, bare)
            board.shadows.taken(single, bare, FOREVER_MS)
        board.tree.charge(part, tuple(demand))
        self._left.remove(job)
        self.resumes.append(Resume(job.id, attempt.number))

    def _takes_work(self, place: ReplicaPlace) -> bool:
        node: Node | None = self._snapshot.nodes.get(place.node)
        return node is not None and node.incarnation == place.incarnation and place.node in self._board.cluster.index
