"""The loop of a replay. Time jumps from moment to moment; at each one everything that happens is folded, then one cycle
is planned and committed, as the control loop does it. Reactions are read from the records, as the dispatcher does.

The same input gives the same events, digit by digit.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.cycle.triggers import PlanClock
from penstock.core.lifecycle import reports, requests
from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.orders import apply_plan
from penstock.core.lifecycle.suspending import on_frozen
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, UserName
from penstock.core.model.jobs import ExitInfo, Job
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.place.holds import FOREVER_MS
from penstock.core.predict.forecast import Forecaster, PastRun
from penstock.core.state.snapshot import Snapshot, take_snapshot
from penstock.core.state.state import State
from penstock.sim.replay import life as on
from penstock.sim.replay.counters import Meter
from penstock.sim.replay.execution_model import FULL_SPEED, Physics, speed_of
from penstock.sim.replay.life import DONE, FAILED, KILLED, SAVED, Life, ReplayStuck, SimulatedRun, born, replicas_of
from penstock.sim.replay.reporting import ReportedRuns
from penstock.sim.replay.sharing import SharedRuns
from penstock.sim.replay.training import CUT_OFF, TrainingRuns
from penstock.traces.model import TraceJob, Work

Knows = Literal["declared", "learned", "true"]
"""The scheduler's source of run times: declarations, run times of similar jobs, or (an oracle) the truth."""
Entry = tuple[int, on.Happening, int, tuple[Any, ...]]
OnPlan = Callable[[Snapshot, Plan, int], None]
OnRecords = Callable[[Sequence[ev.Record]], None]

CYCLES_PER_MOMENT_MAX = 10_000
MOMENTS_PER_TIME_MAX = 1_000
OPERATOR = UserName("operator")


class Simulation:
    """A state that is moved by the real core, and programs and nodes that behave as `Physics` says.

    `knows` None: predicted run times stay as the state, or the job, has them.
    """

    def __init__(
        self,
        state: State,
        physics: Physics,
        *,
        knows: Knows | None = "declared",
        policies: Policies | None = None,
        on_plan: OnPlan | None = None,
        on_records: OnRecords | None = None,
        history: Sequence[PastRun] = (),
        chooser: PlanChooser | None = None,
    ) -> None:
        self.state, self.physics = state, physics
        self.lives: dict[JobId, Life] = {}
        self.meter = Meter(state)
        self.plan_clock, self.cycles = PlanClock(), 0
        self._history, self._knows = history, knows
        self._chooser = chooser or PlanChooser(policies)
        self._on_plan, self._on_records = on_plan, on_records
        self._runs: dict[JobId, SimulatedRun] = {}
        self._agenda: list[Entry] = []
        self._numbered = 0
        self._dark: set[NodeName] = set()
        self._lives_of_nodes: dict[NodeName, int] = {}
        self._decides_ms = 0
        """When the decisions of the cycle that is under way are committed; 0: none is."""
        self._same_time = 0
        self._looks_at_ms = 0
        """The next moment at which time alone calls for a cycle; 0: none is on the agenda."""
        self._forecaster: Forecaster | None = None
        self._training = TrainingRuns(self.lives, self._current, self.push)
        self._sharing = SharedRuns(self.lives, self.meter, self._current, self.push, self._training.go_on)
        self._reported = ReportedRuns(self.lives, self._current, self.push)
        self._of_programs: dict[on.Happening, Callable[..., None]] = {
            on.ENDED: self._ends,
            on.LEFT: self._leaves,
            on.STARTED: self._starts,
            on.MEASURED: self._sharing.measured,
            on.EPOCH: self._training.epoch_ends,
            on.REPORTED: self._training.reported,
            on.NOTED: self._reported.noted,
        }
        self._react: dict[type[ev.Event], Callable[[Transaction, Any], None]] = {
            ev.AttemptAllocated: self._allocated,
            ev.AttemptStopRequested: self._asked_to_leave,
            ev.BatchChosen: self._training.chosen,
            ev.DeviceShared: self._sharing.changed,
            ev.DeviceShareEnded: self._sharing.changed,
            ev.AttemptSuspended: self._suspended,
            ev.AttemptResumed: self._resumed,
            ev.AttemptEnded: self._attempt_ended,
            ev.JobFinished: self._finished,
        }

    # Agenda.

    def push(self, at_ms: int, kind: on.Happening, *about: Any) -> None:
        """Put something on the agenda; entries of one moment come by kind, then in the order they were put there."""
        self._numbered += 1
        heapq.heappush(self._agenda, (at_ms, kind, self._numbered, about))

    def wake(self, at_ms: int) -> None:
        """Have a cycle planned at this time in any case."""
        self.plan_clock.wanted, self._looks_at_ms = True, at_ms
        self.push(at_ms, on.TIME)

    def adopt(self, job: Job, work: Work) -> None:
        """Take over a job that the state has already; its work counts from the start of its attempt."""
        known = Life(job.id, job.submitted_ms, job.spec, job.user, work, work.run_ms, started_ms=job.first_started_ms)
        self.lives[job.id] = known
        self.meter.jobs_active += 1
        attempt = job.attempt
        if attempt is None:
            self.meter.jobs_waiting += 1
            return
        self._hold(job, attempt.allocated_ms)
        if attempt.running_ms:
            self._begin(job, known, attempt.running_ms + attempt.idle_ms, restored=True)
            self._runs[job.id].suspended_ms = attempt.suspended_ms
            if attempt.suspended_ms:
                self.push(attempt.suspended_ms + self.state.config.settings.suspended_max_ms, on.TIME)
        else:
            self.push(attempt.allocated_ms + self.physics.start_ms, on.STARTED, job.id, attempt.number)
        if attempt.stop is not None:
            self._runs[job.id].leaving = True
            self.push(attempt.stop.requested_ms + self._leaving_ms(known), on.LEFT, job.id, attempt.number)

    def run(self, submits: Iterable[TraceJob], until_ms: int | None = None) -> Iterator[int]:
        """Submit these jobs (in order of time) and go on until nothing more can happen; yield each moment (unix ms)."""
        coming = iter(submits)
        job = next(coming, None)
        while True:
            next_ms = self._agenda[0][0] if self._agenda else FOREVER_MS
            if job is not None:
                next_ms = min(next_ms, job.submit_ms)
            elif self._idle():
                return
            if next_ms == FOREVER_MS or (until_ms is not None and next_ms > until_ms):
                return
            now_ms = max(next_ms, self.state.time_ms)
            self._time_moves(now_ms)
            self.meter.advance(now_ms)
            tx = Transaction(self.state, now_ms)
            while self._agenda and self._agenda[0][0] <= now_ms:
                _, kind, _, about = heapq.heappop(self._agenda)
                self._happens(tx, kind, about)
            while job is not None and job.submit_ms <= now_ms:
                self._submit(tx, job)
                job = next(coming, None)
            self._settle(tx)
            if self.plan_clock.due(now_ms) and self._decided(now_ms):
                indexes = self.state.indexes
                if indexes.pending or indexes.elastic or indexes.suspended or self.state.config.moves_models:
                    self._cycle(now_ms)
                else:  # a cycle would decide nothing
                    self.plan_clock.skip()
            elif self.plan_clock.wanted and not self._decides_ms:
                self._looks(self.plan_clock.wake_ms(now_ms))  # jobs gather
            yield now_ms

    def _decided(self, now_ms: int) -> bool:
        """Return whether a cycle's decisions are ready by now; begin one if none is under way."""
        if not self.physics.decide_ms:
            return True
        if not self._decides_ms:
            self._decides_ms = now_ms + self.physics.decide_ms
            self.push(self._decides_ms, on.TIME)
        if now_ms < self._decides_ms:
            return False
        self._decides_ms = 0
        return True

    def _time_moves(self, now_ms: int) -> None:
        """Count moments of one time. Raises: ReplayStuck when there are too many."""
        self._same_time = self._same_time + 1 if now_ms == self.meter.now_ms else 0
        if self._same_time > MOMENTS_PER_TIME_MAX:
            raise ReplayStuck(f"{MOMENTS_PER_TIME_MAX} moments at {now_ms} and still something happens")

    def _idle(self) -> bool:
        """Return whether no job is left, or none of those left can ever start again."""
        if not self.state.jobs:
            return True
        if self._runs or self._dark or self.plan_clock.wanted:
            return False
        return not any(kind not in (on.GONE, on.LOST, on.BACK) for _, kind, _, _ in self._agenda)

    # What happens.

    def _happens(self, tx: Transaction, kind: on.Happening, about: tuple[Any, ...]) -> None:
        happens = self._of_programs.get(kind)
        if happens is not None:
            happens(tx, *about)
        elif kind == on.GONE:
            self._node_gone(tx, *about)
        elif kind == on.LOST:
            if tx.state.nodes[about[0]].state != "lost":
                reports.lose_node(tx, about[0], "no heartbeat within its lease")
        elif kind == on.BACK:
            self._node_back(tx, *about)
        elif kind == on.CANCELLED:
            requests.cancel(tx, about[0], self.lives[about[0]].user)
        elif kind == on.CHANGED:
            for event in about:
                tx.emit(event)
        else:
            indexes = tx.state.indexes
            if indexes.time_limited or indexes.wait_limited or indexes.suspended or indexes.idle:
                reports.on_time(tx)
            if self._looks_at_ms <= tx.now_ms:
                self._looks_at_ms, self.plan_clock.wanted = 0, True

    def _submit(self, tx: Transaction, job: TraceJob) -> None:
        job_id = JobId(tx.state.next_job)
        known = self.lives[job_id] = born(job_id, job)
        self.meter.jobs_waiting += 1
        self.meter.jobs_active += 1
        known.alone_ms = -self.meter.active_ms
        tx.emit(ev.JobSubmitted(job_id, job.spec, job.user))
        if self._knows == "true":
            tx.emit(ev.RunTimesPredicted(((job_id, max(1, job.work.run_ms), max(1, job.work.run_ms)),)))
        elif self._knows is None and job.predicted is not None:
            tx.emit(ev.RunTimesPredicted(((job_id, *job.predicted),)))
        if job.spec.max_wait_ms:
            self.push(tx.now_ms + job.spec.max_wait_ms, on.TIME)
        seen = job.seen
        if job.work.ends == "cancelled" and seen is not None and not seen.started_ms:
            self.push(max(seen.ended_ms, tx.now_ms), on.CANCELLED, job_id)

    def _settle(self, tx: Transaction) -> None:
        """Let programs and nodes react to decisions, emit predicted run times, and note triggers of the next cycle."""
        at, records = 0, tx.records
        while at < len(records):
            react = self._react.get(type(records[at].event))
            if react is not None:
                react(tx, records[at].event)
            at += 1
        learns = self._knows == "declared" and self.state.config.settings.predict_run_times
        if learns or self._knows == "learned":
            if self._forecaster is None:
                self._forecaster = Forecaster(self.state.jobs.values(), self._history, watched=False)
            else:
                self._forecaster.observe(records)
            times = self._forecaster.told(self.state, tx.now_ms)
            if times:
                tx.emit(ev.RunTimesPredicted(times))
        self.plan_clock.observe(records, self.state)
        if self._on_records is not None and records:
            self._on_records(records)

    def _cycle(self, now_ms: int) -> None:
        clock = self.plan_clock
        for _ in range(CYCLES_PER_MOMENT_MAX):
            clock.begin()
            self.cycles += 1
            snapshot = take_snapshot(self.state)
            proposed = self._chooser.plan(snapshot, now_ms)
            tx = Transaction(self.state, now_ms)
            plan = apply_plan(tx, proposed, fresh=True)
            clock.committed(plan, now_ms, now_ms, self.state)
            self.meter.strategies.planned(plan, now_ms)
            if self._on_plan is not None:
                self._on_plan(snapshot, plan, now_ms)
            self._settle(tx)
            if self.physics.decide_ms or not clock.due(now_ms):
                break
        else:
            raise ReplayStuck(f"{CYCLES_PER_MOMENT_MAX} cycles at {now_ms} and still something to decide")
        self._looks(clock.wake_ms(now_ms + self.physics.decide_ms))

    def _looks(self, look_ms: int) -> None:
        if look_ms and (not self._looks_at_ms or look_ms < self._looks_at_ms):
            self._looks_at_ms = look_ms
            self.push(look_ms, on.TIME)

    # Jobs.

    def _allocated(self, tx: Transaction, event: ev.AttemptAllocated) -> None:
        known = self.lives[event.job_id]
        known.attempts += 1
        known.started_ms = known.started_ms or tx.now_ms
        known.state = "running"
        self.meter.jobs_waiting -= 1
        self._hold(tx.state.jobs[event.job_id], tx.now_ms)
        if self.physics.start_ms:
            self.push(tx.now_ms + self.physics.start_ms, on.STARTED, event.job_id, event.attempt)
        else:
            self._starts(tx, event.job_id, event.attempt)

    def _hold(self, job: Job, since_ms: int) -> None:
        assert job.attempt is not None
        run = self._runs[job.id] = SimulatedRun(
            job.attempt.number, since_ms, job.ask.device_milli, held_since_ms=since_ms
        )
        self.meter.busy_milli += run.device_milli

    def _current(self, job_id: JobId, number: AttemptNumber) -> SimulatedRun | None:
        """Return the run of this attempt, unless it has ended: at this very moment, too."""
        run, job = self._runs.get(job_id), self.state.jobs.get(job_id)
        ended = job is None or job.attempt is None or job.attempt.number != number
        return run if run is not None and run.number == number and not ended else None

    def _starts(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        run = self._current(job_id, number)
        if run is None or run.leaving or run.halted:
            return
        ranks = [one.rank for one in replicas_of(tx.state.jobs[job_id]) if one.state == "allocated"]
        tx.emit_alike([ev.ReplicaStarted(job_id, number, rank) for rank in ranks])
        self._begin(tx.state.jobs[job_id], self.lives[job_id], tx.now_ms, restored=number == 1)
        for runs in (self._sharing, self._training, self._reported):
            runs.begins(tx, job_id, run)

    def _begin(self, job: Job, known: Life, now_ms: int, *, restored: bool) -> None:
        """Begin the work; put its end and its time limit on the agenda."""
        run = self._runs[job.id]
        run.began_ms = now_ms if restored else now_ms + self.physics.restore_ms
        run.speed = speed_of(known.work, job, self.state.nodes, known.work.run_ms - known.left_ms)
        fails = known.work.fails_after_ms
        left_ms = fails[known.own_failures] if known.own_failures < len(fails) else known.left_ms
        ends_ms = run.began_ms - (-left_ms * FULL_SPEED // run.speed)
        limit_ms = job.spec.time_limit_ms
        if limit_ms and ends_ms - now_ms > limit_ms:
            self.push(now_ms + limit_ms, on.TIME)
        run.ends_ms = ends_ms
        self.push(ends_ms, on.ENDED, job.id, run.number)

    def _ends(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        run = self._current(job_id, number)
        if run is None or run.halted or run.suspended_ms or tx.now_ms < run.ends_ms:
            return
        known = self.lives[job_id]
        early = known.own_failures < len(known.work.fails_after_ms)
        if known.work.ends == "cancelled" and not early:
            requests.cancel(tx, job_id, known.user)
            return
        failed = early or known.work.ends == "failed"
        run.stopped_ms, run.by_itself = 0, True  # it went on after it was asked to leave
        run.stop(
            known,
            tx.now_ms,
            cut_off=failed,
            most_ms=known.work.fails_after_ms[known.own_failures] if early else None,
        )
        known.own_failures += early
        self._exit(tx, job_id, number, FAILED if failed else DONE)

    def _exit(self, tx: Transaction, job_id: JobId, number: AttemptNumber, how: ExitInfo) -> None:
        gone = [r for r in replicas_of(tx.state.jobs[job_id]) if r.holds and r.place.node not in self._dark]
        tx.emit_alike([ev.ReplicaExited(job_id, number, replica.rank, how) for replica in gone])
        after_replica_gone(tx, job_id)

    def _asked_to_leave(self, tx: Transaction, event: ev.AttemptStopRequested) -> None:
        run, known = self._current(event.job_id, event.attempt), self.lives[event.job_id]
        if run is None or run.leaving:
            return
        run.leaving = True
        if event.reason == "suspended":
            self.push(tx.now_ms, on.LEFT, event.job_id, event.attempt)
            return
        if not run.halted:
            run.stop(known, tx.now_ms, cut_off=event.reason in CUT_OFF)
        known.preemptions += event.reason == "preempted"
        wait_ms = min(event.grace_ms, self._leaving_ms(known)) if run.began_ms else 0
        self.push(tx.now_ms + wait_ms, on.LEFT, event.job_id, event.attempt)

    def _leaving_ms(self, known: Life) -> int:
        return self.physics.save_ms if known.work.saves else self.physics.stop_ms

    def _leaves(self, tx: Transaction, job_id: JobId, number: AttemptNumber) -> None:
        run = self._current(job_id, number)
        if run is None:
            return
        job = tx.state.jobs[job_id]
        stop = job.attempt.stop if job.attempt is not None else None
        if stop is not None and stop.reason == "suspended":
            run.leaving = False
            for replica in replicas_of(job):
                if replica.holds and replica.place.node not in self._dark:
                    suspension = job.attempt.suspensions if job.attempt is not None else 0
                    on_frozen(tx, tx.state.jobs[job_id], replica.rank, suspension)
        else:
            self._training.leaves(tx, job_id, run, stop)
            self._exit(tx, job_id, number, SAVED if self.lives[job_id].work.saves else KILLED)

    def _suspended(self, tx: Transaction, event: ev.AttemptSuspended) -> None:
        self._runs[event.job_id].suspended_ms = tx.now_ms
        self.push(tx.now_ms + tx.state.config.settings.suspended_max_ms, on.TIME)

    def _resumed(self, tx: Transaction, event: ev.AttemptResumed) -> None:
        """Work goes on; its end and its time limit move by the time suspended."""
        run, job = self._runs[event.job_id], tx.state.jobs[event.job_id]
        idle_ms = tx.now_ms - run.suspended_ms
        run.began_ms, run.ends_ms, run.suspended_ms = run.began_ms + idle_ms, run.ends_ms + idle_ms, 0
        self.push(run.ends_ms, on.ENDED, event.job_id, run.number)
        self._training.thawed(job, run, idle_ms)
        if job.spec.time_limit_ms and job.attempt is not None:
            self.push(tx.now_ms + job.spec.time_limit_ms - job.attempt.worked_ms(tx.now_ms), on.TIME)

    def _attempt_ended(self, tx: Transaction, event: ev.AttemptEnded) -> None:
        run, known = self._runs.pop(event.job_id), self.lives[event.job_id]
        known.held_device_ms += run.held_ms + run.device_milli * (tx.now_ms - run.held_since_ms) // 1000
        known.losses += event.outcome == "lost"
        known.take(run)
        self._training.ended(event.job_id)
        self.meter.busy_milli -= run.device_milli
        if event.job_id in tx.state.jobs:
            known.state = "waiting"
            self.meter.jobs_waiting += 1

    def _finished(self, tx: Transaction, event: ev.JobFinished) -> None:
        known = self.lives[event.job_id]
        self.meter.jobs_active -= 1
        self.meter.jobs_waiting -= known.state == "waiting"
        known.ended_ms, known.state = tx.now_ms, event.state
        known.alone_ms += self.meter.active_ms

    # Nodes.

    def _node_gone(self, tx: Transaction, name: NodeName, back_ms: int, known_ms: int) -> None:
        """The node is gone until `back_ms` (0: for good); detected at `known_ms` (0: after the delay in `Physics`)."""
        if name in self._dark or tx.state.nodes[name].state == "lost":
            return
        self._dark.add(name)
        for job_id in sorted({job_id for job_id, _ in tx.state.indexes.load(name).replicas}):
            run = self._runs[job_id]
            if not run.halted:
                run.stop(self.lives[job_id], tx.now_ms, cut_off=True)
            run.halted = True
        noticed_ms = known_ms or tx.now_ms + self.physics.noticed_ms
        self.push(noticed_ms, on.LOST, name)
        if back_ms:
            self.push(max(back_ms, noticed_ms), on.BACK, name)

    def _node_back(self, tx: Transaction, name: NodeName) -> None:
        self._dark.discard(name)
        life = self._lives_of_nodes[name] = self._lives_of_nodes.get(name, 1) + 1
        tx.emit(ev.NodeRegistered(tx.state.nodes[name].spec, Incarnation(f"i{life}")))
        tx.emit(ev.NodeReady(name))
