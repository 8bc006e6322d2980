"""One scheduling cycle: who starts where, who makes room, and why the rest waits."""

from collections.abc import Iterator
from itertools import dropwhile, islice

from penstock.core.cycle.grow import Growth
from penstock.core.cycle.resume import Resumption
from penstock.core.cycle.strategy import Strategy
from penstock.core.cycle.waves import start_waves
from penstock.core.cycle.workspace import Board, Placed
from penstock.core.model.ids import ClassId, JobId, PoolName
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.model.plan import Plan, QuotaBlock, Verdict, WaitCode
from penstock.core.order.ranks import expected_ms
from penstock.core.order.shares import Charge
from penstock.core.order.tree import Branch
from penstock.core.order.walk import Cursor
from penstock.core.place.gang import Prepared
from penstock.core.place.shadow import Claim
from penstock.core.preempt.preemptor import Room

Alike = tuple[Branch, Prepared, int, bool, int]
"""Where a job waits, its only shape, its priority, whether it may be preempted, and how many claims bind it."""
Moment = tuple[int, int, int, int]
"""Numbers that together name a point of the cycle: while none of them changes, the same job finds the same."""
TOGETHER_GAP_MS = 600_000
"""Jobs of one class that were submitted this shortly one after the other wait together: a sweep, or retries."""


class Cycle:
    """The walk over the waiting jobs: it chooses; the board places and counts."""

    def __init__(self, board: Board, strategy: Strategy) -> None:
        self._board, self._snapshot, self._now_ms = board, board.snapshot, board.now_ms
        self._cluster, self._tree, self._order = board.cluster, board.tree, board.order
        self._shadows, self._ahead, self._settings = board.shadows, board.ahead, board.settings
        self._strategy = strategy
        tries_max = strategy.victim_sets_tried_max(self._settings.victim_sets_tried_max)
        self._room = Room(board.cluster, board.shadows, board.tree, board.snapshot, board.now_ms, tries_max)
        self._ahead.promised = self._room.chosen
        self._resumption = Resumption(board)
        self._admitted: dict[str, int] = {}
        self._verdicts: dict[ClassId, Verdict] = {}
        self._decided = 0
        """Jobs for which the walk changed what others find."""
        self._failed: dict[Alike, tuple[Moment, WaitCode, JobId | None]] = {}
        """What became of the last of jobs that are alike, and when, where that was nothing."""

    def run(self) -> Plan:
        self._keep_windows()
        for job in sorted(self._snapshot.beneficiaries, key=lambda j: (not j.room_made, -j.spec.priority, j.id)):
            self._keep_room(job)
        self._look_after_starving()
        if self._board.handled:
            self._order.set_back(())  # what has been started or is kept counts in the order of queues
        if not self._resumption.left:
            start_waves(self._board)
        while (cursor := self._order.peek()) is not None:
            if cursor.job.id in self._board.handled:
                self._order.skip(cursor)
            elif self._consider(cursor):
                self._decided += 1
            else:
                self._order.drop(cursor)
        for class_id, job in self._order.backing_off:
            self._verdicts.setdefault(class_id, Verdict("backing_off", job.id))
        self._resumption.whoever_fits(self._room.chosen)
        growth = Growth(self._cluster, self._tree, self._snapshot, self._now_ms)
        if self._board.elastic or self._snapshot.elastic:
            busy = self._ahead.busy | {job.spec.ask.pool for job in self._snapshot.beneficiaries}
            growth.grow(self._board.starts, self._board.elastic, busy, self._making_room(), self._room.chosen)
        return Plan(
            self._snapshot.seq,
            tuple(self._board.starts),
            (*self._room.preemptions, *self._resumption.preemptions, *growth.preemptions),
            self._verdicts,
            self._room.held,
            tuple(self._ahead.reserved),
            now_ms=self._now_ms,
            strategy=f"{self._strategy.name}: {self._strategy.why}",
            pause_ms=self._strategy.batching_window_ms,
            again_ms=self._again_ms(growth),
            resumes=tuple(self._resumption.resumes),
            problems=tuple(f"policy {name}: {text}" for name, text in sorted(self._order.broken.items())),
        )

    def _making_room(self) -> set[PoolName]:
        """Return pools in which others leave for somebody: what is free there was counted for their coming back."""
        started = {start.job_id for start in self._board.starts}
        waiting = [job for job in self._snapshot.beneficiaries if job.id not in started]
        leaving = (self._snapshot.running[p.victim] for p in self._room.preemptions)
        return {job.spec.ask.pool for job in (*waiting, *leaving)}

    def _again_ms(self, growth: Growth) -> int:
        """Return when time alone may change what was decided."""
        if self._board.full and any(v.code == "cycle_full" for v in self._verdicts.values()):
            return self._now_ms
        moments = [self._room.again_ms, growth.again_ms]
        if self._verdicts:
            starving_ms = self._settings.starvation_after_ms
            waiting = (jobs[0] for class_id, _, jobs in self._snapshot.classes if class_id in self._verdicts)
            moments += [job.submitted_ms + starving_ms for job in waiting]
            moments += [job.not_before_ms for _, job in self._order.backing_off]
            for kept in self._snapshot.config.reservations:
                moments += [kept.start_ms, kept.end_ms]
        if self._ahead.reserved:  # who should have ended and has not moves the reservation
            moments += islice(dropwhile(lambda ms: ms <= self._now_ms, (ms for ms, _ in self._snapshot.ends)), 1)
        return min((moment for moment in moments if moment > self._now_ms), default=0)

    # Before the walk.

    def _keep_windows(self) -> None:
        """Keep the nodes of reservations: now for their tenant alone, before that from jobs that would run into it."""
        for kept in self._snapshot.config.reservations:
            if kept.end_ms <= self._now_ms:
                continue
            for name in kept.nodes:
                node = self._cluster.index.get(name)
                if node is None:
                    continue
                theirs = self._cluster.free_of(node)._replace(kept_for=kept.tenant)
                if kept.start_ms <= self._now_ms:
                    self._cluster.change(node, theirs)
                else:
                    self._shadows.claim(node, Claim(kept.start_ms, theirs, None))

    def _keep_room(self, job: Job) -> None:
        """Start a beneficiary if it fits by now, else keep what is free and what its victims still hold."""
        key = self._key_of(job)
        found = self._board.place(job.class_id, key) if self._board.may_start(job, key) else None
        if found is not None:
            self._board.begin(job, found, self._board.end_ms(key))
        else:
            self._hold_leaving(job, key, self._board.shapes(job.class_id, key)[0])

    def _hold_leaving(self, job: Job, key: RequestClass, prepared: Prepared) -> bool:
        victims = self._room.hold_leaving(job, prepared, self._tree.demand(key))
        return victims is not None and self._waits_for_room(job, victims)

    def _waits_for_room(self, job: Job, victims: tuple[JobId, ...]) -> bool:
        self._board.handled.add(job.id)
        self._verdicts.setdefault(job.class_id, Verdict("making_room", job.id, victims=victims))
        return True

    def _make_room(self, cursor: Cursor, prepared: Prepared, block: QuotaBlock | None = None) -> bool:
        below = None if block is None else block.queue
        victims = self._room.make(cursor, self._order.demand(cursor), prepared, below)
        return victims is not None and self._waits_for_room(cursor.job, victims)

    def _key_of(self, job: Job) -> RequestClass:
        return next(key for class_id, key, _ in self._snapshot.classes if class_id == job.class_id)

    def _look_after_starving(self) -> None:
        """Start the job of each pool that starves most, or keep room for it alone.

        One that has waited over the bound by itself comes first, the oldest of them; then the oldest of those that
        have waited over it together, in proportion to how long they are expected to run.
        """
        most: dict[PoolName, tuple[tuple[int, int, int], Job, ClassId, RequestClass]] = {}
        alone = not self._settings.starvation_ratio
        since_ms = self._now_ms - self._settings.starvation_after_ms
        for class_id, key, jobs in self._snapshot.classes:
            if alone and jobs[0].submitted_ms > since_ms:
                continue  # it is the oldest of them
            ready = (j for j in jobs if j.not_before_ms <= self._now_ms and j.id not in self._board.handled)
            pool = key.ask.pool
            for rank, job in self._starving(ready, len(jobs)):
                if (pool not in most or (*rank, job.id) < most[pool][0]) and self._board.may_start(job, key):
                    most[pool] = ((*rank, job.id), job, class_id, key)
        for pool in sorted(most):
            _, job, class_id, key = most[pool]
            if not self._board.may_start(job, key):
                continue  # the one of another pool took what the queue had left
            found = self._board.place(class_id, key)
            if found is not None:
                self._board.begin(job, found, self._board.end_ms(key))
            elif self._board.over is None:
                self._ahead.keep_for_starving(job, key, self._board.shapes(class_id, key)[0])

    def _starving(self, ready: Iterator[Job], count: int) -> Iterator[tuple[tuple[int, int], Job]]:
        """Yield how urgently room is to be kept for jobs of one class: the lowest is the most urgent."""
        first = next(ready, None)
        if first is None:
            return
        if self._now_ms - first.submitted_ms >= self._settings.starvation_after_ms:
            yield (0, first.submitted_ms), first
        expected = expected_ms(first)
        enough = self._settings.starvation_ratio * expected
        if not enough or count * (self._now_ms - first.submitted_ms) < enough:
            return
        for job, together in self._bursts(first, ready):
            if together >= enough:
                yield (1, -together // expected), job

    def _bursts(self, first: Job, others: Iterator[Job]) -> Iterator[tuple[Job, int]]:
        """Yield the first of jobs that were submitted shortly one after the other, and how long they waited in sum."""
        last, together = first, self._now_ms - first.submitted_ms
        for job in others:
            if job.submitted_ms - last.submitted_ms > TOGETHER_GAP_MS:
                yield first, together
                first, together = job, 0
            together += self._now_ms - job.submitted_ms
            last = job
        yield first, together

    # One by one.

    def _consider(self, cursor: Cursor) -> bool:
        """Decide about one job; return False when no other job of its class needs a look."""
        job, key = cursor.job, cursor.key
        self._resumption.before(key.ask.pool, key.priority, self._room.chosen)
        if self._board.full:
            self._verdicts[cursor.class_id] = Verdict("cycle_full", job.id)
            return False
        first = self._ahead.bars(key.ask.pool)
        if first is not None and first != job.id:
            self._verdicts.setdefault(cursor.class_id, Verdict("kept_back", job.id, first))
            return False
        alike = self._alike(cursor)
        failed = self._failed.get(alike) if alike is not None else None
        if failed is not None and failed[0] == self._moment():
            self._waits(cursor, failed[1], failed[2])
            return False
        block = self._order.block(cursor)
        if block is not None:
            return self._over_quota(cursor, block)
        refused = self._not_admitted(key, job)
        if refused is not None:
            self._verdicts[cursor.class_id] = refused
            return False
        end_ms = self._board.end_ms(key)
        found = self._place_beside(cursor, end_ms)
        if found is not None:
            return self._start(cursor, found, end_ms)
        if self._board.over is not None:
            self._verdicts[cursor.class_id] = Verdict("quota", job.id, quota=self._board.over)
            return False
        prepared = self._board.shapes(cursor.class_id, key)[0]
        if self._hold_leaving(job, key, prepared) or self._make_room(cursor, prepared):
            self._order.skip(cursor, charged=True)
            return True
        kept = bool(self._shadows) and self._board.fits_lifted(cursor.class_id, key, 0)
        blocker = self._shadows.blocker() if kept else None
        code: WaitCode = "kept_back" if kept else "no_fit"
        self._waits(cursor, code, blocker)
        if not self._ahead.blocked(job, key, prepared):
            alike = self._alike(cursor)
            if alike is not None:
                self._failed[alike] = (self._moment(), code, blocker)
            return False
        self._order.skip(cursor)
        return True

    def _waits(self, cursor: Cursor, code: WaitCode, blocker: JobId | None) -> None:
        """Note why the jobs of a class wait, unless one of them waits for something better."""
        known = self._verdicts.get(cursor.class_id)
        if known is None or known.code == "making_room":
            self._verdicts[cursor.class_id] = Verdict(code, cursor.job.id, blocker)

    def _alike(self, cursor: Cursor) -> Alike | None:
        """Return what alone decides that a job waits, however long it is; None where more may matter.

        Who may ask others to leave, or whom others leave for, is looked at by itself; so is who has to be admitted.
        """
        key = cursor.key
        only = self._board.only_shape(cursor.class_id, key)
        if only is None or self._snapshot.stopping or self._room.may_ask(cursor):
            return None
        rule = self._tree.rules.get(key.queue)
        if rule is not None and rule.policy == "least_attained":
            return None
        horizon = self._shadows.horizon(self._board.end_ms(key))
        return cursor.leaf, only, key.priority, key.preemptible, horizon

    def _moment(self) -> Moment:
        return self._decided, self._cluster.version, self._shadows.revision, self._ahead.revision

    def _start(self, cursor: Cursor, found: Placed, end_ms: int) -> bool:
        """Start what was placed; the class goes on."""
        job = cursor.job
        choice, ask, places = found
        demand = self._order.demand(cursor)
        if self._board.counts_places(cursor.key, choice):
            demand = self._tree.demand_of(ask, places, self._snapshot.nodes)
        self._board.note_start(job, ask, places, choice)
        self._ahead.started(job, ask, places, end_ms)
        self._order.started(cursor, demand)
        return True

    def _over_quota(self, cursor: Cursor, block: QuotaBlock) -> bool:
        prepared = self._board.shapes(cursor.class_id, cursor.key)[0]
        if self._make_room(cursor, prepared, block):
            self._order.skip(cursor, charged=True)
            return True
        self._verdicts[cursor.class_id] = Verdict("quota", cursor.job.id, quota=block)
        return False

    def _not_admitted(self, key: RequestClass, job: Job) -> Verdict | None:
        pool = self._board.pools.get(key.ask.pool)
        if pool is not None and pool.reserve_milli and not key.preemptible:
            total = self._board.totals.get(pool.name, Charge()).device_milli
            left = self._cluster.free_milli.get(pool.name, 0) - key.ask.device_milli
            if key.ask.device_milli and left < total * pool.reserve_milli // 1000:
                return Verdict("reserve", job.id)
        rule = self._tree.rules.get(key.queue)
        if rule is not None and rule.policy == "least_attained" and not job.last_attempt:
            total = self._board.totals.get(key.ask.pool, Charge()).device_milli
            admitted = self._admitted_milli(key.queue)
            if admitted + key.ask.device_milli > total * self._settings.admission_milli // 1000 and admitted:
                return Verdict("admission", job.id)
        return None

    def _admitted_milli(self, queue: str) -> int:
        """Return the devices of all jobs of the queue that have been started once: they take turns."""
        known = self._admitted.get(queue)
        if known is None:
            known = 0
            for _, key, jobs in self._snapshot.classes:
                if key.queue == queue:
                    known += sum(key.ask.device_milli for j in jobs if j.last_attempt)
            self._admitted[queue] = known
        branch = next(b for name, b in self._tree.branches.items() if name == queue)
        return known + branch.used[0]

    # Placing.

    def _place_beside(self, cursor: Cursor, end_ms: int) -> Placed | None:
        """Place a job so that it delays none that comes before it; what blocks gets its reservation only now."""
        pool = cursor.key.ask.pool
        if self._ahead.waiting(pool):
            if not self._fits_beside(cursor, end_ms):
                return None
            self._ahead.reserve(pool)
        found = self._board.place(cursor.class_id, cursor.key)
        if found is not None:
            self._shadows.taken(found[1], found[2], end_ms)
        elif self._shadows.may_help(end_ms):
            found = self._board.place_lifted(cursor.class_id, cursor.key, end_ms)
        return found

    def _fits_beside(self, cursor: Cursor, end_ms: int) -> bool:
        """Return whether the job fits beside what is kept so far."""
        mark = self._cluster.mark()
        fits = self._board.place(cursor.class_id, cursor.key) is not None
        self._cluster.rollback(mark)
        return fits or (self._shadows.may_help(end_ms) and self._board.fits_lifted(cursor.class_id, cursor.key, end_ms))
