"""Two fast paths to the decisions of the walk, where jobs need only capacity: one job alone, and many at once.

Jobs that need more (a reserve, turns, another shape, growth) are left to the walk; `needs_only_capacity` is the one
place that says so. Measured on 10,000 nodes: a cycle with one waiting job takes 32 us instead of 166 us, and 20,000
waiting jobs are planned in 0.65 s instead of 4.9 s of CPU time.
"""

from collections.abc import Callable, Collection, Sequence

from penstock.core.cycle.strategy import Strategy
from penstock.core.cycle.workspace import Placed, Shapes, Workspace, start_of
from penstock.core.model.cluster import ClusterConfig, Pool, Queue
from penstock.core.model.ids import ClassId, QueueName
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.model.plan import Plan, Start
from penstock.core.order.extension import EXTENSION_PREFIX
from penstock.core.order.walk import ClassCursor
from penstock.core.state.snapshot import Snapshot

WAVE_MAX = 16_384
WAVE_MIN = 64
"""Fewer jobs than this are looked at one by one."""

Wave = list[tuple[ClassCursor, int, Job]]
"""Jobs in order, each with its class and its position there."""

PassedOver = Callable[[ClassCursor], bool]


def _nobody(cursor: ClassCursor) -> bool:
    return False


class SingleJobPlanner:
    """Plans cycles in which one job waits, under one configuration without limits."""

    def __init__(self, config: ClusterConfig, queues: Collection[QueueName]) -> None:
        """`queues` are the queues of the tree: without any whose parent is missing."""
        self._queues = queues
        self._pools = {pool.name: pool for pool in config.pools}
        self._rules = {queue.name: queue for queue in config.queues}
        self._placement = {pool.name: pool.placement for pool in config.pools}
        limited = any(q.max or q.lend is not None or q.policy == "least_attained" for q in config.queues)
        limited = limited or bool(config.power_limits) or any(tenant.max for tenant in config.tenants)
        policies = (config.root_policy, *(queue.policy for queue in config.queues))
        foreign = any(name.startswith(EXTENSION_PREFIX) for name in policies)
        reserved = config.reservations or any(pool.reserve_milli for pool in config.pools)
        self._may = config.settings.starts_per_cycle_max > 0 and not (limited or foreign or reserved)
        """Whether a job that waits alone needs only capacity."""

    def plan(self, snapshot: Snapshot, now_ms: int, shapes: Shapes, strategy: Strategy) -> Plan | None:
        """Return the plan of the cycle, or None (and nothing taken) when a whole cycle has to be planned."""
        start = self._start(snapshot, now_ms, shapes) if self._may else None
        if start is None:
            return None
        return Plan(
            snapshot.seq,
            (start,),
            preemptions=(),
            verdicts={},
            held={},
            now_ms=now_ms,
            strategy=f"{strategy.name}: {strategy.why}",
            pause_ms=strategy.batching_window_ms,
        )

    def _start(self, snapshot: Snapshot, now_ms: int, shapes: Shapes) -> Start | None:
        others = snapshot.beneficiaries or snapshot.elastic or snapshot.suspended or snapshot.leaving
        if others or len(snapshot.classes) != 1 or len(snapshot.classes[0][2]) != 1:
            return None
        _, key, (job,) = snapshot.classes[0]
        if job.not_before_ms > now_ms or key.queue not in self._queues:
            return None
        pool = self._pools.get(key.ask.pool)
        if not needs_only_capacity(key, pool, self._rules.get(key.queue)) or (pool is not None and pool.models.match):
            return None
        placer = shapes(key)[0]
        places = placer.put()
        if places is None:
            return None
        return start_of(job, (0, placer.gang.sized(placer.gang.replicas), places), self._placement, now_ms)


def start_in_bulk(workspace: Workspace, passed_over: PassedOver = _nobody) -> None:
    """Start jobs in whole waves: the next jobs in order, as many as surely fit.

    They are placed sorted by class, which costs little each and keeps alike jobs together. If one does not fit after
    all, the wave is undone. The same jobs start as one by one; places may differ, as they do with any strategy.

    Args:
        passed_over: takes a class out of the order, and says so, where it is not to start yet.
    """
    if workspace.order.waiting < WAVE_MIN:
        return
    size = WAVE_MAX
    while size >= WAVE_MIN and not workspace.holds:
        wave = _next_wave(workspace, size, passed_over)
        if len(wave) < WAVE_MIN:
            _undo(workspace, wave)
            return
        placed = _place(workspace, wave)
        if placed is None:
            _undo(workspace, wave)
            size //= 4
            continue
        for (cursor, _, job), (choice, ask, places) in zip(wave, placed, strict=True):
            workspace.note_start(job, ask, places, choice)
            if cursor.key.length_ms:
                workspace.reservations.started(job, ask, places, workspace.end_ms(cursor.key))


def _next_wave(workspace: Workspace, size: int, passed_over: PassedOver) -> Wave:
    room = min(size, workspace.settings.starts_per_cycle_max - len(workspace.starts))
    budget = {pool: milli // 2 for pool, milli in workspace.cluster.free_milli.items()}
    slots: dict[ClassId, int] = {}
    wave: Wave = []
    order, exceeded = workspace.order, workspace.tree.exceeded
    while len(wave) < room and (cursor := order.peek()) is not None:
        job = cursor.job
        if job.id in workspace.handled:
            order.skip(cursor)
            continue
        if passed_over(cursor):
            continue
        pool = cursor.key.ask.pool
        left = budget.get(pool, 0) - cursor.milli
        if cursor.plain is None:
            queue = workspace.tree.rules.get(cursor.key.queue)
            only_capacity = needs_only_capacity(cursor.key, workspace.pools.get(pool), queue)
            held_back = workspace.kept_room.concerns(cursor.key)
            cursor.plain = only_capacity and not workspace.tree.needs_places and not held_back
        if left < 0 or not cursor.plain or exceeded(cursor.leaf, order.demand(cursor)) is not None:
            break
        if not cursor.milli and not _one_less(workspace, cursor, slots, room):
            break
        budget[pool] = left
        wave.append((cursor, cursor.at, job))
        order.started(cursor)
    return wave


def _one_less(workspace: Workspace, cursor: ClassCursor, slots: dict[ClassId, int], most: int) -> bool:
    """Take one of the slots for jobs without devices of one class, half of what nodes hold; False: none is left.

    Free devices say nothing of how many such jobs fit.
    """
    left = slots.get(cursor.class_id)
    if left is None:
        placer = workspace.shapes(cursor.key)[0]
        cluster, view, replicas = placer.cluster, placer.view, placer.gang.replica_total
        found = 0
        for state in cluster.fitting_states(cluster.view(view.need, 1)):
            found += cluster.count(state) * view.capacity(cluster.table, state, most)
        left = found // replicas // 2
    slots[cursor.class_id] = left - 1
    return left > 0


def needs_only_capacity(key: RequestClass, pool: Pool | None, queue: Queue | None) -> bool:
    """Return whether jobs of the class need capacity and quota alone: no reserve, no turns, no growth, one shape."""
    if pool is None or (pool.reserve_milli and not key.preemptible):
        return False
    return not key.ask.elastic and not key.alternatives and (queue is None or queue.policy != "least_attained")


def _place(workspace: Workspace, wave: Wave) -> list[Placed] | None:
    mark = workspace.cluster.mark()
    by_class: dict[ClassId, list[int]] = {}
    for position, (cursor, _, _) in enumerate(wave):
        by_class.setdefault(cursor.class_id, []).append(position)
    placed: list[Placed | None] = [None] * len(wave)
    for positions in by_class.values():
        cursor = wave[positions[0]][0]
        found = workspace.place_alike(cursor.key, len(positions))
        if found is None:
            workspace.cluster.rollback(mark)
            return None
        for position, one in zip(positions, found, strict=True):
            placed[position] = one
    return [found for found in placed if found is not None]


def _undo(workspace: Workspace, wave: Sequence[tuple[ClassCursor, int, Job]]) -> None:
    back: dict[int, tuple[ClassCursor, int]] = {}
    for cursor, at, _ in wave:
        workspace.tree.charge(cursor.leaf, workspace.order.demand(cursor), -1)
        back.setdefault(id(cursor), (cursor, at))
    if wave:
        workspace.order.set_back(back.values())
