"""The controller: decides requests in groups, commits them, folds them, and derives the orders.

One thread calls it. It holds no truth of its own: everything but the leases is a fold of the log, and after a failed
commit the fold is made anew from the log, by the same code as at a start. While another controller leads it only
follows: it folds the leader's commits.
"""

import contextlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import assert_never

import msgspec

from penstock import __version__
from penstock.control import messages as msg
from penstock.control import single
from penstock.control.cron import CronTimes
from penstock.control.dividing import Divisions
from penstock.control.finished_jobs import finished_row, past_run
from penstock.control.hangs import Inspections
from penstock.control.host_loads import HostLoads
from penstock.control.leases import Leases, NodeChecks
from penstock.control.progress import Pulses
from penstock.control.report_filter import heard
from penstock.control.uses import Uses
from penstock.core.config.diff import digest
from penstock.core.cycle.triggers import PlanClock
from penstock.core.lifecycle import (
    acting,
    money,
    observing,
    orders,
    reports,
    requests,
    schedules,
    secrets,
    tokens,
)
from penstock.core.lifecycle.declaring import declared
from penstock.core.lifecycle.notifications import decide as decide_notification
from penstock.core.lifecycle.size import BOUNDS, over_size, size_of
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.access import NotificationRequest, SecretRequest, TokenRequest
from penstock.core.messages.money import MoneyRequest
from penstock.core.messages.orders import Addressed
from penstock.core.messages.reports import NodeReport
from penstock.core.messages.requests import Refusal
from penstock.core.messages.schedules import ScheduleRequest
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem, StaleEpoch, StoreError
from penstock.core.model.ids import Epoch, JobId, UserName
from penstock.core.model.jobs import Job, JobState
from penstock.core.model.plan import Plan
from penstock.core.model.words import counted
from penstock.core.predict.forecast import Forecaster
from penstock.core.state import invariants
from penstock.core.state.identity import begun_by, identity_of
from penstock.core.state.snapshot import Snapshot, take_snapshot
from penstock.core.state.state import State
from penstock.engines.processes.accounts import may_switch
from penstock.ports import Clock, EventStore, FinishedJob

SNAPSHOT_EVERY_RECORDS = 50_000
FOLLOW_MAX = 10_000
"""Records folded in one step while another controller leads."""
HISTORY_JOBS = 10_000
"""Finished jobs whose run times are looked up at a start, the latest."""
LEADERSHIP_CHECK_SHARE = 4
"""Leadership is confirmed at least this often within the margin between the node's and the server's lease."""


class Handled(msgspec.Struct, frozen=True):
    """The outcome of one group: replies in the order of the requests, orders, and committed records."""

    replies: tuple[msg.Reply, ...]
    orders: tuple[Addressed, ...]
    records: tuple[ev.Record, ...]


class Controller:
    """Call `open` once, then `handle` with groups of requests; plan on `snapshot()` when `plan_clock` says so."""

    def __init__(
        self, store: EventStore, clock: Clock, *, name: str, check_invariants: bool = False, shadow: bool = False
    ) -> None:
        self._store, self._clock, self._name = store, clock, name
        self._check = check_invariants
        self.shadow = shadow
        """It only watches: what it plans is shown, and never committed."""
        self.state, self.bounds = State(), BOUNDS
        self.epoch = Epoch(0)
        self.plan_clock = PlanClock()
        self.reached: dict[JobId, int] = {}
        """Steps that running programs reported since their last event; volatile."""
        self.ending: Sequence[tuple[Job, ev.Record]] = ()
        """Jobs that have left the state before their end is on disk: readers find them here."""
        self._forecaster: Forecaster | None = None
        self.leases, self._pulses = Leases(), Pulses()
        self._inspections = Inspections(self._pulses)
        self._uses, self._host_loads = Uses(), HostLoads()
        self._checks, self._divisions, self._times = NodeChecks(), Divisions(), CronTimes()
        self._confirmed_ms = self._snapshot_seq = 0
        self.behind = False
        """A commit failed, and the log could not be read since: the state may hold uncommitted events."""
        self.refused: tuple[int, str] | None = None
        """When the log last took nothing (monotonic), and why; None once it has taken something."""
        self.took_over_ms = 0
        """When it took over from another leader (monotonic); 0: it did not."""
        self._durable_seq = 0
        self._found: list[ev.Record] = []
        """Records of commits that seemed to fail: in the log, and not yet delivered."""

    @property
    def last_plan(self) -> Plan | None:
        return self.plan_clock.last_plan

    @property
    def leads(self) -> bool:
        """Whether this controller has begun a term."""
        return self.epoch > 0

    @property
    def durable_seq(self) -> int:
        """The last record that is known to be on disk."""
        return self._durable_seq

    def follow(self) -> tuple[ev.Record, ...]:
        """Fold and return the records that another controller has committed since the last call; the first folds all.

        Raises: StoreError when the log cannot be read.
        """
        if not self._durable_seq:
            self._load()
        records = tuple(islice(self._store.tail(self.state.seq), FOLLOW_MAX))
        for record in records:
            self.state.apply(record)
        self._durable_seq = self.state.seq
        return records

    def open(self, config: ClusterConfig | None = None) -> tuple[ev.Record, ...]:
        """Begin a term: fence older controllers, fold the log, grant every known node a fresh lease.

        Returns: the records added to the log.
        Raises: StoreError when the log cannot be read or written; InvalidInput when `config` lacks names of live jobs.
        """
        epoch = self._store.acquire_epoch()
        self.leases = Leases()  # leases of a former try may be over by now
        if self._durable_seq and not self.leads:
            while self.follow():
                pass
            self.took_over_ms = self._clock.monotonic_ms()
            self._begin(self.state)
        else:
            self._load()
        self._check_shadow()
        self.epoch = epoch
        tx = Transaction(self.state, self._clock.unix_ms())
        tx.emit(ev.LeaderElected(self.epoch, self._name, __version__, self._identity(tx.now_ms), self.shadow))
        if config is not None and config != self.state.config:
            problems = requests.config_problems(self.state, config, tx.now_ms)
            if problems:
                raise InvalidInput(
                    f"the cluster file cannot be taken over: {counted(len(problems), 'problem')}", problems=problems
                )
        if self.shadow:
            observing.require_defaults(self.state.config if config is None else config)
        declared(tx, self.state.config if config is None else config, UserName("server"))
        try:
            self._commit(tx)
        except StoreError:
            self.behind = True
            raise
        return tuple(tx.records)

    def _check_shadow(self) -> None:
        """Raises: InvalidInput where a log of decisions would get what others decide, or the other way round."""
        known = self.state.identity
        if known.cluster and known.shadow != self.shadow:
            what = "a shadow, which decides nothing" if known.shadow else "a server that decides"
            hint = (
                "start with --shadow, or with another --data" if known.shadow else "use another --data for the shadow"
            )
            raise InvalidInput(f"the log is that of {what}", hint=hint)

    def _identity(self, now_ms: int) -> str:
        """Return the cluster's identity: that of the log as it began, which may be now."""
        if self.state.identity.cluster:
            return self.state.identity.cluster
        first = next(iter(self._store.tail(0)), None)
        return begun_by(self._name, now_ms) if first is None else identity_of(first)

    def _load(self) -> None:
        """Fold the log; nothing changes when it cannot be read."""
        image, tail = self._store.load()
        state = State.from_image(image) if image else State()
        snapshot_seq = state.seq
        found = []
        for record in tail:
            state.apply(record)
            if record.seq > self._durable_seq > 0:
                found.append(record)
        self._snapshot_seq = snapshot_seq
        self._found += found
        self._begin(state)

    def _begin(self, state: State) -> None:
        """Go on from a state that matches the log."""
        self.state, self._durable_seq, self.behind = state, state.seq, False
        self._forecaster = None
        self._pulses.learn(self.state, self._clock.monotonic_ms())
        self.plan_clock = PlanClock()
        self.leases.reset(self.state.nodes, self._lease_ends_ms(), self._clock.monotonic_ms())

    def handle(self, group: Sequence[msg.Request]) -> Handled:
        """Decide and commit a group; the replies may be given once this returns.

        When the commit fails, every reply is `RequestFailed`; the state matches the log, or `behind` is set, and the
        log is read before the next decision. A commit that seemed to fail may be in the log all the same.

        Raises: StaleEpoch when another controller has taken over; BrokenInvariant.
        """
        if self.behind:
            try:
                self._load()
            except StoreError as error:
                return self._failed(group, error)
        tx = Transaction(self.state, self._clock.unix_ms(), self.reached)
        self.ending = tx.finished
        replies: list[msg.Reply] = []
        try:
            replies += [single.refused(self.state, request) or self._decide(tx, request) for request in group]
            self._forecast(tx)
            self._commit(tx)
        except StaleEpoch:
            raise
        except StoreError as error:
            return self._failed(group, error)
        self.ending = ()
        self.plan_clock.observe(tx.records, self.state)
        replies = [self._after_commit(q, r) for q, r in zip(group, replies, strict=True)]
        for record in tx.records:
            if isinstance(record.event, ev.AttemptEnded):
                self.reached.pop(record.event.job_id, None)
        self._pulses.forget(job.id for job, _ in tx.finished)
        fresh = [order for record in tx.records for order in orders.orders_of(record, self.state)]
        for request, reply in zip(group, replies, strict=True):
            if isinstance(request, msg.AskCheckpoint) and isinstance(reply, msg.Done):
                fresh += orders.save_orders(self.state, request.job_id)
            elif isinstance(request, msg.ChangeJobs) and isinstance(reply, msg.JobsChanged):
                asked = reply.changed if request.action == "save" else ()
                fresh += [order for job_id in asked for order in orders.save_orders(self.state, job_id)]
            elif isinstance(request, msg.TimePassed):
                now_ms = self._clock.monotonic_ms()
                fresh += self._inspections.orders(self.state, now_ms, unix_ms=self._clock.unix_ms())
                fresh += self._checks.due(orders.check_orders(self.state, self._clock.unix_ms()), now_ms)
                fresh += self._divisions.orders(self.state, now_ms)
        found, self._found = self._found, []
        return Handled(tuple(replies), tuple(fresh), (*found, *tx.records))

    def _failed(self, group: Sequence[msg.Request], error: StoreError) -> Handled:
        """Fold the log anew, if it can be read, and return the answers to a group that failed as a whole."""
        self.behind, self.refused = True, (self._clock.monotonic_ms(), error.message)
        self.plan_clock.begin()
        with contextlib.suppress(StoreError):
            self._load()
        self.ending = ()
        found, self._found = self._found, []
        failed = msg.RequestFailed(error.code, error.message, error.hint)
        return Handled((failed,) * len(group), (), tuple(found))

    def _forecast(self, tx: Transaction) -> None:
        """Emit the expected run times of jobs that the group or the passing of time has changed.

        After a failed commit the forecaster is dropped with the state: both are made anew from the log.
        """
        if not self.state.config.settings.predict_run_times:
            self._forecaster = None
            return
        if self._forecaster is None:
            history = reversed(self._store.finished_jobs(HISTORY_JOBS))
            self._forecaster = Forecaster(self.state.jobs.values(), map(past_run, history))
        else:
            self._forecaster.observe(tx.records)
        times = self._forecaster.told(self.state, self._clock.unix_ms())
        if times:
            tx.emit(ev.RunTimesPredicted(times))

    def _commit(self, tx: Transaction) -> None:
        now_ms = self._clock.monotonic_ms()
        settings = self.state.config.settings
        due = now_ms - self._confirmed_ms >= settings.lease_margin_ms // LEADERSHIP_CHECK_SHARE
        if tx.records or due:
            if self._check:
                invariants.require(self.state)
            finished = [finished_row(job, record) for job, record in tx.finished]
            self._store.append(tx.records, finished, self.epoch)
            self._confirmed_ms, self._durable_seq = now_ms, self.state.seq
            self.refused = None if tx.records else self.refused

    def _decide(self, tx: Transaction, request: msg.Request) -> msg.Reply:
        match request:
            case requests.Submit():
                return requests.submit(tx, request, self._outcomes(request), self.bounds)
            case msg.SeenStart():
                return observing.note_start(tx, request)
            case msg.Cancel():
                return msg.Done(requests.cancel(tx, request.job_id, request.by, request.reason))
            case msg.ChangeJobs():
                return self._change_jobs(tx, request)
            case msg.Protect():
                return single.protected(tx, request)
            case msg.AskCheckpoint():
                problem = requests.may_ask_checkpoint(self.state, request.job_id)
                return Refusal("conflict", (problem,)) if problem else msg.Done()
            case msg.Drain() | msg.NoteNodeLeaves() | msg.RemoveNodes():
                return msg.Done(single.drained(tx, request))
            case msg.ChangeDevice():
                return single.device_changed(tx, request)
            case msg.Configure():
                return self._configure(tx, request)
            case msg.Hello():
                return self._hello(tx, request)
            case NodeReport():
                return self._report(tx, request)
            case msg.Alive():
                self.leases.prolong(request.nodes, self._lease_ends_ms(), self._clock.monotonic_ms())
            case msg.ConfirmLead():
                self._confirmed_ms = -self.state.config.settings.lease_margin_ms  # it is due, then
            case msg.TimePassed():
                self._time_passed(tx)
            case msg.CommitPlan():
                return msg.PlanCommitted(request.plan if self.shadow else orders.apply_plan(tx, request.plan))
            case msg.TakeImage():
                return msg.ImageTaken(self.state.image())
            case msg.NoteCapacity() | msg.NoteQuotas() | msg.NoteAccess() | msg.NoteEstimates():
                return single.noted(tx, request)
            case _:
                if isinstance(request, MoneyRequest):
                    return money.decide(tx, request)
                if isinstance(request, SecretRequest):
                    return secrets.decide(tx, request)
                if isinstance(request, NotificationRequest):
                    return decide_notification(tx, request)
                if isinstance(request, ScheduleRequest):
                    return schedules.decide(tx, request, self._times, switches=may_switch())
                if not isinstance(request, TokenRequest):
                    assert_never(request)
                return tokens.decide(tx, request)
        return msg.Done()

    def _change_jobs(self, tx: Transaction, request: msg.ChangeJobs) -> msg.Reply:
        action, by, change, administrator = request.action, request.by, request.change, request.administrator
        changed, unchanged = [], []
        for job_id in request.job_ids:
            why = acting.act(tx, job_id, action, by, change, administrator=administrator)
            if why is None:
                changed.append(job_id)
            else:
                unchanged.append((job_id, why))
        return msg.JobsChanged(tuple(changed), tuple(unchanged))

    def _configure(self, tx: Transaction, request: msg.Configure) -> msg.Reply:
        refused = requests.config_problems(self.state, request.config, tx.now_ms)
        if request.base not in ("", digest(self.state.config)):
            text = "the configuration has changed since this was planned"
            refused.append(Problem("changed_since", "base", text, request.base, "plan it again"))
        if refused:
            return Refusal("conflict", tuple(refused))
        declared(tx, request.config, request.by)
        return msg.Done()

    def _outcomes(self, request: requests.Submit) -> Mapping[JobId, JobState]:
        """Look up the outcomes of dependencies that have left the state."""
        if over_size(size_of(request.jobs), self.bounds) is not None:
            return {}  # it is refused for that
        wanted = {job_id for job_id in requests.jobs_named(request) if job_id not in self.state.jobs}
        return self._store.outcomes(sorted(wanted)) if wanted else {}

    def finished_job(self, job_id: JobId) -> FinishedJob | None:
        """Return a job that has ended, once that is on disk. Any thread."""
        found = self._store.finished_jobs(1, JobId(job_id + 1))
        return found[0] if found and found[0].id == job_id else None

    def _lease_ends_ms(self) -> int:
        """Return the end of a lease that begins now (monotonic)."""
        return self._clock.monotonic_ms() + self.state.config.settings.lease_ttl_ms

    def _hello(self, tx: Transaction, request: msg.Hello) -> msg.Reply:
        now_ms = self._clock.monotonic_ms()
        silent_ms = self.leases.silent_ms(request.spec.name, now_ms)
        reports.on_hello(tx, request.spec, request.incarnation, tx.now_ms - silent_ms if silent_ms is not None else 0)
        settings = self.state.config.settings
        self.leases.begin(request.spec.name, request.incarnation, settings.lease_ttl_ms, now_ms)
        return msg.Welcome(self.epoch, settings.lease_ttl_ms - settings.lease_margin_ms, settings.heartbeat_ms)

    def _report(self, tx: Transaction, report: NodeReport) -> msg.Reply:
        lease, node = self.leases.of(report), self.state.nodes.get(report.node)
        if lease is None or node is None or node.state == "lost":
            return msg.ReportTaken(report.seq, (), accepted=False)
        if report.seq <= lease.last_seq:
            return msg.ReportTaken(report.seq, ())
        lease.last_seq = report.seq
        report = heard(self.state, report, self._clock.unix_ms())
        lease.heard_ms = self._clock.monotonic_ms()
        lease.deadline_ms = max(self._lease_ends_ms(), lease.heard_ms + lease.ttl_ms)
        for seen in report.progress:
            if seen.kind == "progress":
                self.reached[seen.key.job_id] = seen.step
        self._pulses.note(self.state, report, self._clock.monotonic_ms())
        self._inspections.note(report)
        self._uses.note(tx, report, self._clock.monotonic_ms())
        reports.on_report(tx, report)
        self._host_loads.note(tx, report, self._clock.monotonic_ms())
        return msg.ReportTaken(report.seq, ())

    def _after_commit(self, request: msg.Request, reply: msg.Reply) -> msg.Reply:
        if isinstance(request, NodeReport) and isinstance(reply, msg.ReportTaken) and reply.accepted:
            return msg.ReportTaken(reply.seq, tuple(orders.reconcile(self.state, request)))
        if isinstance(reply, msg.PlanCommitted):
            self.plan_clock.committed(reply.plan, self._clock.monotonic_ms(), self._clock.unix_ms(), self.state)
        return reply

    def _time_passed(self, tx: Transaction) -> None:
        now_ms = self._clock.monotonic_ms()
        for name, lease in self.leases.expire(now_ms):
            node = self.state.nodes.get(name)
            if node is not None and node.state != "lost" and node.incarnation == lease.incarnation:
                heard_ms = tx.now_ms - (now_ms - lease.heard_ms)
                reports.lose_node(tx, name, "no heartbeat within its lease", heard_ms)
        reports.on_time(tx)
        schedules.fire_due(tx, self._times, switches=may_switch())
        self._pulses.tell(tx, now_ms)
        self._uses.tell(tx, now_ms, self.reached)
        self._inspections.conclude(tx, now_ms)
        self.plan_clock.time_passes(self._clock.unix_ms())

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the next cycle, and note that the cycle has begun."""
        self.plan_clock.begin()
        return take_snapshot(self.state)

    def snapshot_due(self) -> bool:
        """Return whether the log has grown enough since the last stored snapshot for a new one."""
        return not self.behind and self.state.seq - self._snapshot_seq >= SNAPSHOT_EVERY_RECORDS

    def snapshot_taken(self) -> None:
        self._snapshot_seq = self.state.seq
