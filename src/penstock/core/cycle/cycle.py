"""One scheduling cycle: which jobs start where, which victims leave, and why the other jobs wait."""

from itertools import dropwhile, islice
from typing import NamedTuple

from penstock.core.cycle.batches import batch_changes, with_batches
from penstock.core.cycle.bulk import start_in_bulk
from penstock.core.cycle.match import ModelMatch, match_models
from penstock.core.cycle.resizing import Resizing
from penstock.core.cycle.resume import Resumer
from penstock.core.cycle.strategy import Strategy
from penstock.core.cycle.windows import keep_windows
from penstock.core.cycle.workspace import Placed, Workspace
from penstock.core.model.expected import ExpectedDemand
from penstock.core.model.ids import ClassId, JobId, PoolName, QueueName
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.model.plan import Plan, QuotaExceeded, Verdict, WaitCode
from penstock.core.order.admission import admitted_waiting_milli, over_admission, over_reserve, takes_turns
from penstock.core.order.queues import QueueNode
from penstock.core.order.starvation import Backlog, starvation_bound_ms
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.order.walk import ClassCursor
from penstock.core.place.candidates import CandidateHeap
from penstock.core.place.gang import Counted, GangPlacer
from penstock.core.preempt.preemptor import Preemptor
from penstock.core.preempt.rights import lowest_within_guarantee
from penstock.core.preempt.rooms import may_enter

Alike = tuple[QueueNode, GangPlacer, int, bool, int]
"""Where a job counts, its only shape, its priority, whether it may be preempted, and how many claims bind it."""
AlikeButSize = tuple[QueueNode, CandidateHeap, int, int]
"""The same for gangs that are counted, with one replica in place of the shape."""
Moment = tuple[int, int, int, int]
"""Numbers that together name a point of the cycle: while none of them changes, alike jobs have the same outcome."""


class _Shortage(NamedTuple):
    """Room that was too small for a gang that is counted: larger ones wait for the same reason."""

    moment: Moment
    room: int
    """Replicas for which there is room."""
    unkept: int
    """Replicas for which there would be room if none were kept."""


class Cycle:
    """The walk over the waiting jobs: it chooses; the workspace places and counts."""

    def __init__(self, workspace: Workspace, strategy: Strategy) -> None:
        self._workspace, self._order, self._reservations = workspace, workspace.order, workspace.reservations
        self._snapshot, self._now_ms, self._cluster, self._tree, self._holds = workspace.context
        self._settings, self._strategy = workspace.settings, strategy
        tries_max = strategy.victim_sets_tried_max(self._settings.victim_sets_tried_max)
        self._preemptor = Preemptor(workspace.context, tries_max)
        self._reservations.promised = self._preemptor.chosen
        self._resumer, self._kept_room = Resumer(workspace), workspace.kept_room
        self._admitted: dict[QueueName, int] = {}
        self._verdicts: dict[ClassId, Verdict] = {}
        self._backlog: Backlog | None = None
        """None: not counted yet."""
        self._decided = 0
        """Jobs for which the walk changed the workspace."""
        self._failed: dict[Alike, tuple[Moment, WaitCode, JobId | None]] = {}
        """The last failure of jobs that are alike: when, its code and its blocker."""
        self._shortages: dict[AlikeButSize, _Shortage] = {}
        self._resizing = Resizing(workspace)

    def run(self) -> Plan:
        # 1. Keep the nodes of reserved windows for their tenants, and nodes that go from jobs that have to stay.
        keep_windows(self._snapshot, self._now_ms, self._cluster, self._holds)
        # 2. Start beneficiaries of preemptions, or hold for them what their victims have not released yet.
        self._keep_rooms()
        # 3. Start the job of each pool that has starved longest, or keep room for it alone.
        self._look_after_starving()
        if self._workspace.handled:
            self._order.set_back(())  # starts and holds so far count in the order of queues
        # 4. Give guarantees back.
        self._give_guarantees_back()
        # 5. Start many jobs at once while there is room for far more than one.
        if not self._resumer.left:
            start_in_bulk(self._workspace)
        # 6. Walk the rest in the order of the queues: place, make room, reserve, or give a reason to wait.
        self._walk()
        # 7. Give suspended attempts the CPUs that are left.
        self._resumer.resume_rest(self._preemptor.chosen)
        # 8. Give jobs the device models that suit them, where their pool has several.
        matched = match_models(self._workspace, self._preemptor.chosen)
        # 9. Choose the sizes of elastic jobs.
        self._resizing.run(self._preemptor, matched.moving)
        # 10. Put the plan together.
        return self._assemble(matched)

    def _walk(self) -> None:
        while (cursor := self._order.peek()) is not None:
            if cursor.job.id in self._workspace.handled:
                self._order.skip(cursor)
            elif self._shortages and self._waits_too(cursor):
                self._order.drop(cursor)
            elif self._consider(cursor):
                self._decided += 1
            else:
                self._order.drop(cursor)
        for class_id, job in self._order.backing_off:
            self._verdicts.setdefault(class_id, Verdict("backing_off", job.id))

    def _give_guarantees_back(self) -> None:
        """Let jobs that stay within a guarantee start, or make room for them, before all others.

        Otherwise jobs of a borrower that come first could take the places that it lent from each other, for ever.
        Source: Kueue, where requests within the nominal quota come before those that borrow.
        """
        branches = self._tree.branches.values() if self._tree.promises else ()
        if not any(at.heap and at.used[i] < amount for at in branches for i, amount in at.promised):
            return
        put_off: list[tuple[ClassCursor, int]] = []

        def claims_nothing(cursor: ClassCursor) -> bool:
            if self._claims(cursor):
                return False
            put_off.append((cursor, cursor.at))
            if any(at.promised for at in cursor.leaf.path()):
                self._order.drop(cursor)
            else:
                self._order.leave_queue()
            return True

        if not self._resumer.left:
            start_in_bulk(self._workspace, claims_nothing)
        while (cursor := self._order.peek()) is not None:
            if cursor.job.id in self._workspace.handled:
                self._order.skip(cursor)
            elif claims_nothing(cursor):
                continue
            elif self._consider(cursor, claim=True):
                self._decided += 1
            else:
                put_off.append((cursor, cursor.at))
                self._order.drop(cursor)
        self._order.set_back(put_off)

    def _claims(self, cursor: ClassCursor) -> bool:
        """Return whether the job stays within a guarantee, and its queue takes it back by reclaim."""
        if self._tree.rules[cursor.key.queue].preemption == "never":
            return False
        return lowest_within_guarantee(cursor.leaf, self._order.demand(cursor)) is not None

    def _assemble(self, matched: ModelMatch) -> Plan:
        resizing = self._resizing
        for job, victims in resizing.put_off:
            self._verdicts.setdefault(job.class_id, Verdict("making_room", job.id, victims=victims))
        orders = (*self._preemptor.preemptions, *self._resumer.preemptions, *matched.preemptions, *resizing.preemptions)
        return Plan(
            self._snapshot.seq,
            with_batches(resizing.starts, self._workspace.batched, resizing.sizing),
            orders,
            self._verdicts,
            {**self._preemptor.held, **matched.rooms, **resizing.held},
            tuple(self._reservations.reserved),
            now_ms=self._now_ms,
            strategy=self._kept_room.told(f"{self._strategy.name}: {self._strategy.why}"),
            pause_ms=self._strategy.batching_window_ms,
            again_ms=self._again_ms(matched),
            resumes=tuple(self._resumer.resumes),
            batches=batch_changes(self._snapshot, resizing.sizing, {order.victim for order in orders}),
            kept=self._kept_room.kept,
            problems=tuple(f"policy {name}: {text}" for name, text in sorted(self._order.broken.items())),
        )

    def _again_ms(self, matched: ModelMatch) -> int:
        """Return when time alone may change the decisions."""
        if self._workspace.full and any(v.code == "cycle_full" for v in self._verdicts.values()):
            return self._now_ms
        moments = [self._preemptor.again_ms, self._resizing.again_ms, matched.again_ms, self._kept_room.ends_ms]
        if self._verdicts:
            moments += [job.not_before_ms for _, job in self._order.backing_off]
            moments += [ms for kept in self._snapshot.config.reservations for ms in (kept.start_ms, kept.end_ms)]
        if self._reservations.reserved:  # an overdue attempt moves the reservation
            moments += islice(dropwhile(lambda ms: ms <= self._now_ms, (ms for ms, _ in self._snapshot.ends)), 1)
        first_ms = min((ms for ms in moments if ms > self._now_ms), default=0)
        for class_id, _, jobs in self._snapshot.classes if self._verdicts else ():
            if first_ms and jobs[0].submitted_ms + self._settings.starvation_after_ms >= first_ms:
                continue  # no bound is shorter
            if class_id in self._verdicts and self._now_ms < (starves_ms := self._starves_ms(jobs[0])):
                first_ms = min(first_ms or starves_ms, starves_ms)
        return first_ms

    # Before the walk.

    def _keep_rooms(self) -> None:
        """Start beneficiaries, or hold for them what is being freed: each in its own room before any elsewhere."""
        beneficiaries = sorted(self._snapshot.beneficiaries, key=lambda j: (-j.spec.priority, j.id))
        classes = {class_id: key for class_id, key, _ in self._snapshot.classes} if beneficiaries else {}
        entered = {job.id for job in beneficiaries if self._enter_room(job, classes[job.class_id])}
        apart = [(job, classes[job.class_id]) for job in beneficiaries if job.id not in entered]
        kept = self._preemptor.keep_rounds()
        for job, key in apart:
            if job.room and job.id not in kept:
                self._preemptor.keep_room(job, key, self._workspace.shapes(key)[0])
        self._preemptor.keep_rooms_of_movers()
        for job, key in apart:
            if job.id in kept:
                self._waits_for_room(job, kept[job.id])
            else:
                self._keep_room(job, key)

    def _enter_room(self, job: Job, key: RequestClass) -> bool:
        """Start a beneficiary where it was planned, if all these places are free."""
        if not job.room or not may_enter(job, self._snapshot) or not self._workspace.may_start(job, key):
            return False
        found = self._workspace.place_in_time(key, job.room)
        if found is not None:
            self._workspace.begin(job, found, self._workspace.end_ms(key))
        return found is not None

    def _keep_room(self, job: Job, key: RequestClass) -> None:
        """Start a beneficiary if it fits beside the rooms of others, else hold what its victims have not left yet."""
        free = not self._preemptor.waits_for_room(job) and self._workspace.may_start(job, key)
        found = self._workspace.place_in_time(key) if free else None
        if found is not None:
            self._workspace.begin(job, found, self._workspace.end_ms(key))
            self._preemptor.held.pop(job.id, None)
        else:
            self._hold_leaving(job, key, self._workspace.shapes(key)[0])

    def _hold_leaving(self, job: Job, key: RequestClass, placer: GangPlacer) -> bool:
        victims = self._preemptor.hold_leaving(job, key, placer)
        return victims is not None and self._waits_for_room(job, victims)

    def _waits_for_room(self, job: Job, victims: tuple[JobId, ...]) -> bool:
        self._workspace.handled.add(job.id)
        self._verdicts.setdefault(job.class_id, Verdict("making_room", job.id, victims=victims))
        return True

    def _make_room(self, cursor: ClassCursor, placer: GangPlacer, block: QuotaExceeded | None = None) -> bool:
        below = None if block is None else block.queue
        victims = self._preemptor.make(cursor, self._order.demand(cursor), placer, below)
        return victims is not None and self._waits_for_room(cursor.job, victims)

    def _look_after_starving(self) -> None:
        """Start the job of each pool that has starved longest, or keep room for it alone."""
        most: dict[PoolName, tuple[tuple[int, JobId], Job, RequestClass]] = {}
        least_ms = self._now_ms - self._settings.starvation_after_ms
        for _, key, jobs in self._snapshot.classes:
            if jobs[0].submitted_ms > least_ms:
                continue  # it is the oldest of them
            ready = (j for j in jobs if j.not_before_ms <= self._now_ms and j.id not in self._workspace.handled)
            job = next(ready, None)
            if job is None:
                continue
            pool, since_ms = key.ask.pool, self._starves_ms(job)
            first = pool not in most or (since_ms, job.id) < most[pool][0]
            if since_ms <= self._now_ms and first and self._workspace.may_start(job, key):
                most[pool] = (since_ms, job.id), job, key
        for pool in sorted(most):
            _, job, key = most[pool]
            if not self._workspace.may_start(job, key):
                continue  # the job of another pool took the rest of the queue's quota
            found = self._workspace.place_in_time(key)
            if found is not None:
                self._workspace.begin(job, found, self._workspace.end_ms(key))
            elif self._workspace.over is None:
                self._reservations.keep_for_starving(job, key, self._workspace.shapes(key)[0])

    def _starves_ms(self, job: Job) -> int:
        """Return the time from which the job starves, at the present backlog (unix ms)."""
        if self._backlog is None:
            self._backlog = Backlog(self._snapshot.waiting, self._workspace.totals)
        beside_milli = self._backlog.beside_milli(job.spec.ask)
        return job.submitted_ms + starvation_bound_ms(job, self._settings, beside_milli)

    # One by one.

    def _consider(self, cursor: ClassCursor, *, claim: bool = False) -> bool:
        """Decide about one job; return False when no other job of its class needs a look.

        Args:
            claim: it goes first by its queue's guarantee alone; where that does not help it waits for its turn.
        """
        job, key = cursor.job, cursor.key
        if not claim:
            self._resumer.before(key.ask.pool, key.priority, self._preemptor.chosen)
        if self._workspace.full:
            self._verdicts[cursor.class_id] = Verdict("cycle_full", job.id)
            return False
        first = self._reservations.bars(key.ask.pool)
        if first is not None and first != job.id:
            self._verdicts.setdefault(cursor.class_id, Verdict("kept_back", job.id, first))
            return False
        placer, revision = self._workspace.shapes(key)[0], self._holds.revision
        alike = self._alike(cursor) if placer.counted is None else None  # `_waits_too` is for those that are counted
        failed = self._failed.get(alike) if alike is not None else None
        if failed is not None and failed[0] == self._moment():
            self._waits(cursor, failed[1], failed[2])
            return False
        exceeded = self._order.exceeded(cursor)
        if exceeded is not None:
            return self._over_quota(cursor, exceeded)
        refused = self._not_admitted(key, job)
        if refused is not None:
            self._verdicts[cursor.class_id] = refused
            return False
        end_ms = self._workspace.end_ms(key)
        demand = self._cut_by(key, end_ms) if self._kept_room and not claim else None
        if demand is not None:
            self._verdicts[cursor.class_id] = Verdict("expected_demand", job.id, expected=demand)
            return False
        found = self._place_beside(cursor, end_ms)
        if found is not None:
            return self._start(cursor, found, end_ms)
        if (over := self._workspace.over) is not None:
            self._verdicts[cursor.class_id] = Verdict(over.code, job.id, quota=over)
            return False
        if self._hold_leaving(job, key, placer) or self._make_room(cursor, placer):
            self._order.skip(cursor, charged=True)
            return True
        if claim:
            return False
        self._resizing.waits(job, key)
        kept = bool(self._holds) and self._workspace.fits_unkept(key)
        blocker = self._holds.blocker() if kept else None
        code: WaitCode = "kept_back" if kept else "no_fit"
        self._waits(cursor, code, blocker)
        if not self._reservations.blocked(job, key, placer):
            if alike is None or revision != self._holds.revision:
                alike = self._alike(cursor)  # another number of claims may bind it
            if alike is not None:
                self._note_failed(cursor, alike, code, blocker)
            return False
        self._order.skip(cursor)
        return True

    def _waits(self, cursor: ClassCursor, code: WaitCode, blocker: JobId | None) -> None:
        """Note why the jobs of a class wait, unless a reason other than `making_room` is known."""
        known = self._verdicts.get(cursor.class_id)
        if known is None or known.code == "making_room":
            self._verdicts[cursor.class_id] = Verdict(code, cursor.job.id, blocker)

    def _note_failed(self, cursor: ClassCursor, alike: Alike, code: WaitCode, blocker: JobId | None) -> None:
        """Note why a job waits, for others to which the same applies."""
        key = cursor.key
        counted = self._workspace.counted(key)
        if counted is None:
            self._failed[alike] = (self._moment(), code, blocker)
        elif not self._resumer.left and self._reservations.bars(key.ask.pool) is None:
            rooms = [self._workspace.room(counted, end_ms) for end_ms in (self._workspace.end_ms(key), 0)]
            self._shortages[self._alike_but_size(cursor, counted)] = _Shortage(self._moment(), *rooms)

    def _alike_but_size(self, cursor: ClassCursor, counted: Counted) -> AlikeButSize:
        key = cursor.key
        return cursor.leaf, counted.single, key.priority, self._holds.horizon(self._workspace.end_ms(key))

    def _waits_too(self, cursor: ClassCursor) -> bool:
        """Return whether the job waits for the same reason as one that differs in size alone, and note that."""
        counted = self._workspace.counted(cursor.key)
        known = self._shortages.get(self._alike_but_size(cursor, counted)) if counted is not None else None
        if counted is None or known is None or counted.replicas <= known.room or known.moment != self._moment():
            return False
        if self._order.exceeded(cursor) is not None:
            return False
        kept = counted.replicas <= known.unkept
        self._waits(cursor, "kept_back" if kept else "no_fit", self._holds.blocker() if kept else None)
        return True

    def _alike(self, cursor: ClassCursor) -> Alike | None:
        """Return the key that alone decides whether a job waits, for any length; None where more may matter.

        None for a job that may preempt, a beneficiary, and a job that takes turns: those are decided one by one.
        """
        key = cursor.key
        only = self._workspace.only_shape(key)
        if only is None or self._snapshot.stopping or self._preemptor.may_ask(cursor):
            return None
        rule = self._tree.rules.get(key.queue)
        if rule is not None and rule.policy == "least_attained":
            return None
        horizon = self._holds.horizon(self._workspace.end_ms(key))
        return cursor.leaf, only, key.priority, key.preemptible, horizon

    def _moment(self) -> Moment:
        return self._decided, self._cluster.version, self._holds.revision, self._reservations.revision

    def _start(self, cursor: ClassCursor, found: Placed, end_ms: int) -> bool:
        """Start the placed job; the next of its class is considered."""
        job = cursor.job
        choice, ask, places = found
        demand = self._order.demand(cursor)
        if self._workspace.counts_places(cursor.key, choice):
            demand = self._tree.demand_of(ask, places, self._snapshot.nodes)
        self._workspace.note_start(job, ask, places, choice)
        self._reservations.started(job, ask, places, end_ms)
        self._order.started(cursor, demand)
        return True

    def _over_quota(self, cursor: ClassCursor, block: QuotaExceeded) -> bool:
        placer = self._workspace.shapes(cursor.key)[0]
        if self._make_room(cursor, placer, block):
            self._order.skip(cursor, charged=True)
            return True
        self._verdicts[cursor.class_id] = Verdict(block.code, cursor.job.id, quota=block)
        return False

    def _not_admitted(self, key: RequestClass, job: Job) -> Verdict | None:
        pool = self._workspace.pools.get(key.ask.pool)
        turns = takes_turns(self._settings, self._tree.rules.get(key.queue), job)
        if not turns and (pool is None or not pool.reserve_milli):
            return None  # most classes
        total_milli = self._workspace.totals.get(key.ask.pool, UsedAmounts()).device_milli
        free_milli = self._cluster.free_milli.get(key.ask.pool, 0)
        if over_reserve(pool, key.ask.device_milli, free_milli, total_milli, preemptible=key.preemptible):
            return Verdict("reserve", job.id)
        if turns:
            admitted = self._waiting_milli(key.queue) + self._tree.branches[key.queue].used[0]
            if over_admission(self._settings, key.ask.device_milli, admitted, total_milli):
                return Verdict("admission", job.id)
        return None

    def _cut_by(self, key: RequestClass, end_ms: int) -> ExpectedDemand | None:
        """Return the demand into whose room a job of the class would cut if it started now."""
        bound = self._kept_room.before(key, end_ms)
        if not bound:
            return None
        with self._cluster.tentatively():
            return self._kept_room.cut(bound) if self._workspace.place(key) is not None else None

    def _waiting_milli(self, queue: QueueName) -> int:
        if queue not in self._admitted:
            self._admitted[queue] = admitted_waiting_milli(queue, self._snapshot.classes)
        return self._admitted[queue]

    # Placing.

    def _place_beside(self, cursor: ClassCursor, end_ms: int) -> Placed | None:
        """Place a job so that it delays no earlier job; blocked jobs get their reservations only now."""
        counted = self._workspace.counted(cursor.key)
        if counted is not None and self._workspace.short(counted, end_ms):
            return None
        pool = cursor.key.ask.pool
        if self._reservations.waiting(pool):
            if not self._fits_beside(cursor, end_ms):
                return None
            self._reservations.reserve(pool)
        return self._workspace.place_in_time(cursor.key)

    def _fits_beside(self, cursor: ClassCursor, end_ms: int) -> bool:
        """Return whether the job fits beside the capacity kept so far."""
        fits = self._workspace.fits(cursor.key)
        return fits or (self._holds.may_help(end_ms) and self._workspace.fits_lifted(cursor.key, end_ms))
