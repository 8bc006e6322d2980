"""The state of a cluster, and its fold over the log.

`State` is the only mutable thing in the core: a container of frozen values that `apply` moves one event forward.
The derived parts (loads of nodes, pending classes, dependants) are caches over jobs and nodes;
`invariants.py` recomputes each of them and compares.
"""

from collections.abc import Sequence
from typing import assert_never, cast

from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import AttemptNumber, ClassId, Epoch, JobId, NodeName, Rank
from penstock.core.model.jobs import Attempt, ExitInfo, Job, JobSpec
from penstock.core.model.measured import total
from penstock.core.model.pairing import PART
from penstock.core.order.queues import QueueTree
from penstock.core.order.ranks import request_class
from penstock.core.place.workload_mix import Requests
from penstock.core.state import replicas, suspension, tables, users
from penstock.core.state.accounts import Accounts
from penstock.core.state.demand import Demand
from penstock.core.state.expected_end import noted, saved
from penstock.core.state.idempotency import Remembered, remember
from penstock.core.state.identity import Identity
from penstock.core.state.image import Image as Image
from penstock.core.state.indexes import Indexes
from penstock.core.state.kind_steps import StepsByKind
from penstock.core.state.live_jobs import LiveJobs
from penstock.core.state.model_speeds import ModelSpeeds
from penstock.core.state.nodes import NodeChange, changed, registered, removed
from penstock.core.state.past_runs import PastRuns
from penstock.core.state.powers import Powers
from penstock.core.state.quota_notes import QuotaNotes
from penstock.core.state.replicas import parted
from penstock.core.state.schedules import Schedules
from penstock.core.state.secrets import Secrets
from penstock.core.state.subscriptions import Subscriptions
from penstock.core.state.tokens import Tokens
from penstock.core.state.turns import pass_turn
from penstock.core.state.usage import whole_total

HoldsChange = ev.ReplicaFrozen | ev.AttemptSuspended | ev.AttemptResumed | ev.DeviceShared | ev.DeviceShareEnded
Kinds = NodeChange | MoneyEvent | HoldsChange | ev.ScheduleEvent | users.Change


class State:
    """A fold over the log. Mutated only by `apply`; everything it holds is frozen."""

    def __init__(self) -> None:
        self.seq, self.time_ms, self.epoch = 0, 0, Epoch(0)
        self.next_job, self.next_port = 1, 0
        self.config, self.config_seq = ClusterConfig(), 0
        self.nodes: dict[NodeName, Node] = {}
        self.jobs, self.idempotency = LiveJobs(), Remembered()
        self.finished_ok, self.finished_bad = 0, 0
        self.money, self.tokens, self.secrets = Accounts(), Tokens(), Secrets()
        self.quota_notes, self.identity = QuotaNotes(), Identity()
        self.subscriptions, self.schedules, self.demand = Subscriptions(), Schedules(), Demand()
        self.config_since_empty = True
        """No attempt was allocated under an older configuration: every maximum must hold."""
        self.indexes = Indexes()

    def image(self) -> Image:
        """Return a self-contained copy for a snapshot."""
        return Image(
            seq=self.seq,
            time_ms=self.time_ms,
            epoch=self.epoch,
            next_job=self.next_job,
            next_port=self.next_port,
            config=self.config,
            nodes=list(self.nodes.values()),
            jobs=list(self.jobs.values()),
            idempotency=dict(self.idempotency),
            finished_ok=self.finished_ok,
            finished_bad=self.finished_bad,
            past_use=self.indexes.past(),
            requests=self.indexes.requests.memory(),
            money=self.money.image(),
            tokens=tuple(self.tokens.by_hash.values()),
            secrets=tuple(self.secrets.by_holder.values()),
            quota_notes=self.quota_notes.image(),
            subscriptions=tuple(self.subscriptions.by_key.values()),
            schedules=tuple(self.schedules.by_key.values()),
            unmet_by_run=True,
            identity=self.identity,
            powers=self.indexes.powers.image(),
            past_runs=self.indexes.past_runs.image(),
            model_speeds=self.indexes.model_speeds.image(),
            steps=self.indexes.steps.image(),
            demand=self.demand.image(),
        )

    @classmethod
    def from_image(cls, image: Image) -> "State":
        state = cls()
        state.seq, state.time_ms, state.epoch = image.seq, image.time_ms, image.epoch
        state.next_job, state.next_port, state.config = image.next_job, image.next_port, image.config
        state.identity, state.subscriptions = image.identity, Subscriptions(image.subscriptions)
        state.nodes = {node.spec.name: node for node in image.nodes}
        state.idempotency, state.demand = Remembered(image.idempotency), Demand(image.demand)
        state.finished_ok, state.finished_bad = image.finished_ok, image.finished_bad
        state.money, state.quota_notes = Accounts(image.money), QuotaNotes(image.quota_notes)
        state.tokens, state.secrets = Tokens(image.tokens), Secrets(image.secrets)
        state.config_since_empty, state.config_seq = False, image.seq
        state._take_jobs(image)
        state.schedules, state.indexes.steps = Schedules(image.schedules, state.jobs.values()), StepsByKind(image.steps)
        state.indexes.requests, state.indexes.powers = Requests(*image.requests), Powers(image.powers)
        state.indexes.past_runs, state.indexes.model_speeds = PastRuns(image.past_runs), ModelSpeeds(image.model_speeds)
        state.indexes.rebuild(state.jobs, image.nodes, image.past_use, image.config)
        return state

    def _take_jobs(self, image: Image) -> None:
        """Take over the jobs of an image, members of an array with one spec."""
        live = {job.id for job in image.jobs}
        specs: dict[JobId, JobSpec] = {}
        known: dict[int, tuple[JobId, ...]] = {}
        for job in image.jobs:
            spec = specs.setdefault(job.array_id, job.spec) if job.array_id is not None else job.spec
            spec = spec if spec == job.spec else job.spec
            if (unmet := job.unmet) and not image.unmet_by_run:
                if id(spec) not in known:
                    known[id(spec)] = self.indexes.dependants.unmet(spec.after, live)
                unmet = known[id(spec)]
            class_id = self.indexes.intern(request_class(job, self.config))
            same = spec is job.spec and unmet == job.unmet and class_id == job.class_id
            self.jobs[job.id] = job if same else replace(job, spec=spec, unmet=unmet, class_id=class_id)

    def apply(self, record: ev.Record) -> None:
        """Move the state over one record.

        Raises: BrokenInvariant when the record does not follow the last one, or a lifecycle forbids it.
        """
        self._follow(record)
        self.demand.observe(record, self.jobs, self.nodes, self.indexes.pending, self.config)
        self._dispatch(record.event, record)

    def apply_alike(self, records: Sequence[ev.Record]) -> None:
        """Do what `apply` does for each, at the cost of little more than one.

        Args:
            records: replicas of one attempt, each once, that all start or all exit at one time.
        Raises: BrokenInvariant, and the state is of no use then.
        """
        for record in records:
            self._follow(record)
        events, time_ms = [record.event for record in records], records[0].time_ms
        if isinstance(events[0], ev.ReplicaStarted):
            self._replicas_started(cast(list[ev.ReplicaStarted], events), time_ms)
        else:
            self._replicas_exited(cast(list[ev.ReplicaExited], events), time_ms)

    def _follow(self, record: ev.Record) -> None:
        if record.seq != self.seq + 1:
            raise BrokenInvariant(f"record {record.seq} does not follow {self.seq}")
        self.seq = self.indexes.seq = record.seq
        self.time_ms = max(self.time_ms, record.time_ms)

    def _dispatch(self, event: ev.AnyEvent, record: ev.Record) -> None:
        match event:
            case ev.JobSubmitted():
                self._job_submitted(event, record)
            case ev.AttemptAllocated():
                self._attempt_allocated(event, record)
            case ev.ReplicaStarted():
                self._replicas_started((event,), record.time_ms)
            case ev.ReplicaExited():
                self._replicas_exited((event,), record.time_ms)
            case ev.AttemptEnded():
                self._attempt_ended(event, record)
            case ev.JobFinished():
                self._job_finished(event)
            case ev.JobRequeued():
                self._job_requeued(event, record)
            case ev.AttemptStopRequested():
                self._stop_requested(event, record)
            case ev.JobResumed() | ev.UseNoted() | ev.BatchChosen():
                job = self.jobs[event.job_id]
                self.jobs[job.id] = after = noted(job, event, record.time_ms)
                self.indexes.job_predicted(job, after)
            case ev.CheckpointSaved() | ev.ProgressNoted() | ev.HangFound() | ev.IdleNoted() | ev.SaveSignalNoted():
                (job, _), at_ms = self.attempt_of(event.job_id, event.attempt), record.time_ms
                after = saved(job, event, at_ms) if isinstance(event, ev.CheckpointSaved) else noted(job, event, at_ms)
                self.jobs[job.id] = after
                self.indexes.job_predicted(job, after)
                if isinstance(event, ev.ProgressNoted):
                    self.indexes.model_speeds.add(after)
                    self.indexes.steps.add(after)
            case ev.StartsEstimated() | ev.CapacityRequested() | ev.AccessNoted():
                pass
            case ev.RunTimesPredicted():
                self._run_times_predicted(event)
            case ev.JobCancelRequested():
                self._put(replace(self.jobs[event.job_id], cancel_requested=True))
            case ev.NodeRegistered():
                self._put_node(registered(self.nodes.get(event.spec.name), event, record.time_ms))
            case ev.NodeLost():
                self._node_lost(event, record)
            case ev.NodeRemoved():
                removed(self.nodes, self.indexes, event)
            case ev.TokenIssued() | ev.TokenRevoked():
                self.tokens.apply(event)
            case ev.SecretSet() | ev.SecretRemoved():
                self.secrets.apply(event)
            case ev.NotificationSet() | ev.NotificationRemoved():
                self.subscriptions.apply(event)
            case ev.QuotaNoted():
                self.quota_notes.apply(event, record.time_ms)
            case ev.LeaderElected():
                self.epoch, self.identity = event.epoch, self.identity.after(event, record.time_ms)
            case ev.ConfigChanged():
                self._config_changed(event, record)
            case _:
                self._dispatch_kinds(event, record)

    def _dispatch_kinds(self, event: Kinds, record: ev.Record) -> None:
        if isinstance(event, NodeChange):
            self._put_node(changed(self.nodes[event.node], event, record.time_ms))
        elif isinstance(event, users.Change):
            users.fold(event, record, self.jobs, self.indexes, self.config)
        elif isinstance(event, MoneyEvent):
            self.money.apply(event, record.seq, record.time_ms)
        elif isinstance(event, HoldsChange):
            self._holds_changed(event, record)
        elif isinstance(event, ev.ScheduleEvent):
            self.schedules.apply(event, record.time_ms)
        else:
            assert_never(event)

    def _config_changed(self, event: ev.ConfigChanged, record: ev.Record) -> None:
        self.config, self.config_seq = event.config, record.seq
        if event.config.billing.tariff.prices:
            self.money.priced_ms = self.money.priced_ms or record.time_ms
        self.config_since_empty = not self.indexes.active
        self.indexes.classify_anew(self.jobs, event.config)

    def _put(self, job: Job) -> None:
        """Keep the newer value of a job that stays where it is."""
        self.jobs[job.id] = job
        self.indexes.job_changed(job)

    def queue_tree(self) -> QueueTree:
        """Return the queues with their present use; valid until the next call."""
        powers = self.indexes.powers.expected(self.config, self.indexes.nodes)
        return self._tree(0).load(self.indexes.usage, whole_total(self.indexes.free), self.time_ms, powers)

    def empty_tree(self) -> QueueTree:
        """Return the queues as if nothing was used, to see what could ever start. Never loaded with use.

        For the control loop alone: a reader beside it makes a tree of its own.
        """
        return self._tree(1).weigh(self.indexes.powers.expected(self.config, self.indexes.nodes))

    def _tree(self, which: int) -> QueueTree:
        """Return a tree of the present configuration to be loaded: its structure is made once."""
        if self.indexes.trees_config is not self.config:
            self.indexes.trees = (QueueTree(self.config), QueueTree(self.config))
            self.indexes.trees_config = self.config
        return self.indexes.trees[which]

    def _job_submitted(self, event: ev.JobSubmitted, record: ev.Record) -> None:
        if event.job_id != self.next_job:
            raise BrokenInvariant(f"job id {event.job_id} given out, expected {self.next_job}")
        self.next_job += 1
        spec, unmet = event.spec, self.indexes.dependants.unmet(event.spec.after, self.jobs)
        before = self.jobs.get(JobId(event.job_id - 1)) if event.array_index else None
        if before is not None and before.array_id == event.array_id and before.spec == spec:
            spec = before.spec  # one of each for all members of an array, wherever the event comes from
            unmet = before.unmet if before.unmet == unmet else unmet
        job = Job(
            id=event.job_id,
            spec=spec,
            user=event.user,
            submitted_ms=record.time_ms,
            submit_seq=record.seq,
            class_id=ClassId(-1),
            waiting_since_ms=record.time_ms,
            unmet=unmet,
            array_id=event.array_id,
            array_index=event.array_index,
            waits_turn=self.indexes.arrays.submitted(event),
            account=event.account,
            delegated=event.delegated,
            scheduled=event.scheduled,
        )
        job = replace(job, class_id=self.indexes.intern(request_class(job, self.config)))
        self.jobs[job.id] = job
        self.indexes.requests.seen(event.spec.ask)
        self.indexes.job_waits(job, self.jobs)
        self.schedules.job_submitted(job)
        if event.idempotency_key:
            remember(self.idempotency, event, record.time_ms)

    def _run_times_predicted(self, event: ev.RunTimesPredicted) -> None:
        for job_id, expected_ms, most_ms in event.times:
            old = self.jobs[job_id]
            job = replace(old, predicted_ms=expected_ms, predicted_most_ms=most_ms)
            if old.attempt is None:  # an attempt keeps the class it was started in
                job = replace(job, class_id=self.indexes.intern(request_class(job, self.config)))
            self.jobs[job_id] = job
            self.indexes.job_predicted(old, job)

    def _attempt_allocated(self, event: ev.AttemptAllocated, record: ev.Record) -> None:
        job = self.jobs[event.job_id]
        if event.attempt != job.last_attempt + 1:
            raise BrokenInvariant(f"job {job.id}: attempt {event.attempt} after {job.last_attempt}")
        new = replace(job, state=tables.job_step(job.state, "allocated"), room_made=False, room=(), goes_on=False)
        if event.scheduler:
            self.config_since_empty = False  # others do not know of our maxima
        self.indexes.job_left_queue(job)
        job = replace(new, attempt=replicas.begun(event, record.time_ms, self.nodes), last_attempt=event.attempt)
        if job.progress.saved_on is not None:  # its class named the storage that it waited for
            job = replace(job, class_id=self.indexes.intern(request_class(job, self.config)))
        self.jobs[job.id] = job
        self.next_port += 1
        self.indexes.attempt_begins(job, record.time_ms, self.config.settings.fair_share_half_life_ms)

    def attempt_of(self, job_id: JobId, number: AttemptNumber) -> tuple[Job, Attempt]:
        """Return the job and its current attempt. Raises: BrokenInvariant: fencing belongs before the log."""
        job = self.jobs.get(job_id)
        if job is None or job.attempt is None or job.attempt.number != number:
            raise BrokenInvariant(f"job {job_id}: attempt {number} is not current")
        return job, job.attempt

    def _replicas_started(self, events: Sequence[ev.ReplicaStarted], time_ms: int) -> None:
        job, attempt = self.attempt_of(events[0].job_id, events[0].attempt)
        self._put(replicas.started(job, attempt, [event.rank for event in events], time_ms))

    def _replicas_exited(self, events: Sequence[ev.ReplicaExited], time_ms: int) -> None:
        job, attempt = self.attempt_of(events[0].job_id, events[0].attempt)
        self._end_replicas(job, attempt, [(event.rank, event.exit) for event in events], "exited", time_ms)

    def _end_replicas(
        self, job: Job, attempt: Attempt, exits: list[tuple[Rank, ExitInfo]], how: str, time_ms: int
    ) -> None:
        after = replicas.ended(attempt, exits, how, time_ms)
        gone = [attempt.replicas[rank] for rank, _ in exits]
        self.indexes.release(job, gone, time_ms, self.config.settings.fair_share_half_life_ms)
        measured = total(job.measured, *(info.measured for _, info in exits))
        for (_, info), replica in zip(exits, gone, strict=True):
            self.indexes.powers.add(self.nodes.get(replica.place.node), replica.place.devices, info.measured)
            self.indexes.past_runs.add(replica.place.node, info)
        self._put(replace(job, attempt=replace(attempt, replicas=after), measured=measured))

    def _stop_requested(self, event: ev.AttemptStopRequested, record: ev.Record) -> None:
        job, attempt = self.attempt_of(event.job_id, event.attempt)
        self._put(replicas.stop_asked(job, attempt, event, seq=record.seq, time_ms=record.time_ms))
        whom = event.beneficiary
        if event.rule == PART and whom is not None:
            self._put(parted(self.jobs[job.id], whom, record.time_ms))
            if whom in self.jobs:
                self._put(parted(self.jobs[whom], job.id, record.time_ms))
        self.indexes.stopping[job.id] = event.beneficiary
        for other, room in replicas.rooms_made(event, self.jobs):
            self._put(replace(other, room_made=True, room=room))
            self.indexes.beneficiaries.add(other.id)

    def _holds_changed(self, event: HoldsChange, record: ev.Record) -> None:
        """Fold that an attempt holds more or less at its places from now on."""
        job, attempt = self.attempt_of(event.job_id, event.attempt)
        if isinstance(event, ev.ReplicaFrozen):
            self._put(suspension.frozen(job, attempt, event.rank))
            return
        if isinstance(event, ev.DeviceShared | ev.DeviceShareEnded):
            changed = replicas.shared(job, attempt, event, record.time_ms)
        elif isinstance(event, ev.AttemptSuspended):
            changed = suspension.suspended(job, attempt, record.time_ms)
            self.indexes.stopping.pop(job.id, None)
        else:
            changed = suspension.resumed(job, attempt, record.time_ms)
        self.jobs[job.id] = changed
        self.indexes.attempt_holds(job, changed, record.time_ms, self.config.settings.fair_share_half_life_ms)

    def _attempt_ended(self, event: ev.AttemptEnded, record: ev.Record) -> None:
        job, attempt = self.attempt_of(event.job_id, event.attempt)
        over = replicas.over(job, attempt, event, record.time_ms)
        self.indexes.attempt_ends(job, record.time_ms, self.config.settings.fair_share_half_life_ms)
        self.jobs[job.id] = over

    def _job_requeued(self, event: ev.JobRequeued, record: ev.Record) -> None:
        job = self.jobs[event.job_id]
        infrastructure, resized = event.reason in ("lost", "hung"), event.reason in ("resized", "moved")
        job = replace(
            job,
            state=tables.job_step(job.state, "requeued"),
            waiting_since_ms=record.time_ms,
            not_before_ms=event.not_before_ms,
            retries_used=job.retries_used + event.counts_as_retry,
            infrastructure_failures=job.infrastructure_failures + infrastructure,
            room_made=resized,
            room=job.room if resized else (),
            goes_on=resized,
        )
        job = replace(job, class_id=self.indexes.intern(request_class(job, self.config)))
        self.jobs[job.id] = job
        self.indexes.job_waits(job, self.jobs)
        if resized:
            self.indexes.beneficiaries.add(job.id)

    def _job_finished(self, event: ev.JobFinished) -> None:
        job = self.jobs[event.job_id]
        if job.attempt is not None:
            raise BrokenInvariant(f"job {job.id} finished while an attempt holds places")
        tables.job_step(job.state, event.state)
        if job.state == "waiting":
            self.indexes.job_left_queue(job)
        self.finished_ok += event.state == "succeeded"
        self.finished_bad += event.state != "succeeded"
        del self.jobs[job.id]
        self.schedules.job_over(job)
        dependants, known = self.indexes.dependants, dict[int, tuple[JobId, ...]]()
        for dependant in dependants.ended(job.id, self.jobs):
            waiting = self.jobs[dependant]
            unmet = dependants.unmet_now(waiting, self.jobs, known)
            if unmet is waiting.unmet:
                continue
            waiting = replace(waiting, unmet=unmet)
            if not waiting.unmet:  # the configuration may have changed since it was submitted
                waiting = replace(waiting, class_id=self.indexes.intern(request_class(waiting, self.config)))
                if waiting.ready:
                    self.indexes.becomes_ready(waiting)
            self.jobs[dependant] = waiting
        pass_turn(job, self.jobs, self.indexes, self.config)
        self.indexes.forget_classes(self.jobs)

    def _put_node(self, node: Node) -> None:
        self.nodes[node.spec.name] = node
        self.indexes.node_changed(node, self.jobs)

    def _node_lost(self, event: ev.NodeLost, record: ev.Record) -> None:
        node = self.nodes[event.node]
        self._put_node(replace(node, state=tables.node_step(node.state, "lost"), lost_ms=record.time_ms))
        info = ExitInfo(problem=f"node {event.node} was lost: {event.reason}")
        for job_id, rank in sorted(self.indexes.load(event.node).replicas):
            job = self.jobs[job_id]
            assert job.attempt is not None, "it holds the node"
            self._end_replicas(job, job.attempt, [(rank, info)], "node_lost", record.time_ms)


def fold(records: list[ev.Record], state: State | None = None) -> State:
    """Return the state after `records`, starting from `state` (which is moved) or from nothing."""
    state = state or State()
    for record in records:
        state.apply(record)
    return state
