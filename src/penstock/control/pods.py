"""Jobs for gangs of pods: the Kubernetes engine's way to the control loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.inbox import SERVER, InboxFull, OnReply
from penstock.control.service import ControlService
from penstock.core.config.diff import digest
from penstock.core.explain import Explainer, Question, question_of
from penstock.core.explain.why import why_stopped
from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.messages.requests import NewJob, Refusal, Submit, Submitted
from penstock.core.model.access import Scope
from penstock.core.model.actions import JobChange
from penstock.core.model.cluster import CHECKED_BY, ClusterConfig, NodeSpec
from penstock.core.model.errors import Problem
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import Incarnation, JobId, NodeName, TenantName, UserName
from penstock.core.model.jobs import Job
from penstock.core.model.quantities import format_duration
from penstock.core.order.extension import Policies
from penstock.core.order.ranks import always_lost
from penstock.core.order.turns import Submitter, TooManyWaiting
from penstock.core.status.uses import pool_uses, queue_uses
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.credentials import Access
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.gangs.gang import GANG_JOB_LABEL, Refused, Terms
from penstock.engines.kubernetes.onnode import POD
from penstock.engines.kubernetes.operator.queuemap import Where
from penstock.engines.kubernetes.server import LiveJob, LivePlace, Noted, Outlook, Phase, Seen
from penstock.engines.kubernetes.shadow.engine import ShadowEngine
from penstock.ports import Clock, NodeSession

KUBERNETES = UserName("kubernetes")
"""Submits the jobs of pods; who made a pod, the API server does not say."""
EVERYWHERE = Scope(KUBERNETES, "admin", level="write")
REASONS = {"never_fits": "Unschedulable", "over_maximum": "QuotaExceeded", "over_power_limit": "QuotaExceeded"}
"""Reasons of conditions, by the code of the problem: autoscalers act on the first one, and are right to."""
SEEN_MAX = 20_000
BUSY_S = 1.0
"""What a busy server would not take is said again after this long."""


async def follow_cluster(
    access: Access,
    service: ControlService,
    started: Callable[[KubernetesEngine | ShadowEngine], None],
    queue_config: str = "",
    *,
    shadow: bool = False,
) -> None:
    """Run the engine of a cluster on this loop until cancelled.

    Args:
        started: gets the engine, which takes orders from then on.
        queue_config: ConfigMap of the server's namespace that declares queues; empty: none.
        shadow: other schedulers decide: nothing is ever written, and no queues are read.
    """
    queues = Where(access.namespace, queue_config) if queue_config else None
    jobs = PodJobs(service)
    async with Client(access, read_only=shadow, leads=jobs.leads) as client:
        engine = ShadowEngine(client, jobs) if shadow else KubernetesEngine(client, jobs, queues=queues)
        started(engine)
        await engine.run()


class Service(Protocol):
    """What of the control service is needed here; the simulator has one of its own."""

    controller: Controller
    clock: Clock
    policies: Policies | None

    @property
    def shares_log(self) -> bool: ...

    def ask(self, request: msg.Request, on_reply: OnReply | None = None, caller: Submitter = SERVER) -> None: ...

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None: ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None: ...

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None: ...


class PodJobs:
    """The server as the Kubernetes engine sees it. Its answers come on the loop that it is made on."""

    def __init__(self, service: Service) -> None:
        self._service, self._loop = service, asyncio.get_running_loop()
        self._clock = service.clock
        self._explainer = Explainer(service.policies)
        self._protections: dict[JobId, str] = {}
        """What a busy server has yet to hear, by job."""
        self._seen: dict[JobId, tuple[Job, Seen]] = {}
        """What was said of jobs that have not changed since."""
        self._explaining = ThreadPoolExecutor(1, thread_name_prefix="penstock-outlook")
        self._confirmed: asyncio.Event | None = None
        """Is set by the next answer that this server leads; None: nobody waits for it."""
        self._confirming = False

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        self._service.on_hello(spec, incarnation, session)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        self._service.on_report(report, session)

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        self._service.on_alive(nodes)

    def knows_tenant(self, name: str) -> bool:
        return TenantName(name) in self._service.controller.state.config.tenant_by_name

    def submit(self, job: NewJob, on_reply: Callable[[JobId | Refused], None]) -> None:
        self._submit(Submit((job,), KUBERNETES), on_reply)

    def note_waiting(self, job: NewJob, on_reply: Callable[[JobId | Refused], None]) -> None:
        self._submit(Submit((job,), KUBERNETES, seen=True), on_reply)

    def note_start(
        self,
        job_id: JobId,
        scheduler: str,
        nodes: Sequence[NodeName],
        names: Sequence[str],
        on_reply: Callable[[Noted | Refused], None],
    ) -> None:
        def told(reply: msg.Reply) -> None:
            match reply:
                case msg.StartNoted():
                    on_reply(Noted(reply.attempt, reply.devices))
                case Refusal():
                    problem = reply.problems[0]
                    on_reply(Refused("Refused", problem.message, again=problem.code == "not_waiting"))
                case _:
                    on_reply(_BUSY)

        request = msg.SeenStart(job_id, scheduler, tuple(nodes), tuple(names))
        self._ask(request, told, Submitter(KUBERNETES, ""), lambda: on_reply(_BUSY))

    def _submit(self, request: Submit, on_reply: Callable[[JobId | Refused], None]) -> None:
        def told(reply: msg.Reply) -> None:
            match reply:
                case Submitted():
                    on_reply(reply.job_ids[0])
                case Refusal():
                    reasons = {REASONS.get(problem.code, "Refused") for problem in reply.problems}
                    reason = reasons.pop() if len(reasons) == 1 else "Refused"
                    texts = [": ".join(filter(None, (problem.message, problem.hint))) for problem in reply.problems]
                    on_reply(Refused(reason, "; ".join(texts)))
                case _:
                    on_reply(_BUSY)

        request = msgspec.structs.replace(request, jobs=tuple(map(self._named, request.jobs)))
        tenant = request.jobs[0].spec.tenant
        self._ask(request, told, Submitter(KUBERNETES, tenant), lambda: on_reply(_BUSY))

    def _named(self, job: NewJob) -> NewJob:
        """Return a job with the cluster's defaults in place of what it does not name."""
        config, spec = self._service.controller.state.config, job.spec
        if "tenant" in job.unnamed:
            spec = msgspec.structs.replace(spec, tenant=default_tenant(config, EVERYWHERE) or spec.tenant)
        if "queue" in job.unnamed:
            spec = msgspec.structs.replace(spec, queue=default_queue(config, KUBERNETES) or spec.queue)
        return msgspec.structs.replace(job, spec=spec) if job.unnamed else job

    def hold(self, job_id: JobId, on_reply: Callable[[str], None], *, held: bool) -> None:
        self._change(msg.ChangeJobs("hold" if held else "release", (job_id,), KUBERNETES, administrator=True), on_reply)

    def requeue(self, job_id: JobId, on_reply: Callable[[str], None]) -> None:
        self._change(msg.ChangeJobs("requeue_hold", (job_id,), KUBERNETES, administrator=True), on_reply)

    def protect(self, job_id: JobId, why: str) -> None:
        waits = job_id in self._protections
        self._protections[job_id] = why
        if not waits:
            self._protect(job_id)

    def _protect(self, job_id: JobId) -> None:
        """Say the newest that is known of a job's protection: what is said again never replaces something newer."""

        def busy() -> None:
            self._protections.setdefault(job_id, why)
            self._loop.call_later(BUSY_S, self._protect, job_id)

        why = self._protections.pop(job_id)
        self._ask(msg.Protect(job_id, why), lambda _: None, Submitter(KUBERNETES, ""), busy)

    def edit(self, job_id: JobId, ask: GangAsk, on_reply: Callable[[str], None]) -> None:
        change = JobChange(ask=ask)
        self._change(msg.ChangeJobs("edit", (job_id,), KUBERNETES, change, administrator=True), on_reply)

    def _change(self, request: msg.ChangeJobs, on_reply: Callable[[str], None]) -> None:
        """Change one job, and say why it did not."""

        def told(reply: msg.Reply) -> None:
            unchanged = reply.unchanged if isinstance(reply, msg.JobsChanged) else ((0, "busy"),)
            on_reply(unchanged[0][1] if unchanged else "")

        self._ask(request, told, Submitter(KUBERNETES, ""), lambda: on_reply("busy"))

    def identity(self) -> str:
        return self._service.controller.state.identity.cluster

    def term(self) -> str:
        return f"{self.identity()}.{self._service.controller.epoch}"

    async def leads(self) -> None:
        """Return once it is certain that this server led after the call; never where another one leads by then."""
        if self._service.shares_log:
            confirmed = self._confirmed = self._confirmed or asyncio.Event()
            if not self._confirming:
                self._confirm()
            await confirmed.wait()

    def _confirm(self) -> None:
        """Ask the log for all who wait by now: those who come later need a later answer."""
        confirmed, self._confirmed = self._confirmed, None
        self._confirming = confirmed is not None
        if confirmed is None:
            return

        def told(reply: msg.Reply) -> None:
            if isinstance(reply, msg.Done):
                confirmed.set()
                self._confirm()
            else:
                busy()

        def busy() -> None:
            self._loop.call_later(BUSY_S, self._ask, msg.ConfirmLead(), told, SERVER, busy)

        self._ask(msg.ConfirmLead(), told, SERVER, busy)

    def live(self) -> Iterable[LiveJob]:
        for job in tuple(self._service.controller.state.jobs.values()):
            gang = dict(job.spec.labels).get(GANG_JOB_LABEL, "")
            if not gang:
                continue
            ask, attempt = job.placed, job.attempt
            places = [
                LivePlace(
                    ReplicaKey(job.id, attempt.number, replica.rank),
                    replica.place.node,
                    replica.place.devices,
                    replica.state == "started",
                    attempt.names[replica.rank] if attempt.names else "",
                )
                for replica in (attempt.replicas if attempt is not None else ())
                if attempt is not None and replica.holds
            ]
            asks = tuple(ask.each_of(rank) for rank in range(max(ask.replica_total, job.spec.ask.replicas_max)))
            terms = Terms(job.spec.queue, job.spec.priority, job.spec.preemptible, adopted=True)
            held = job.hold is not None or (attempt is not None and attempt.requeue_hold)
            yield LiveJob(job.id, gang, asks, tuple(places), held, terms, job.spec.ask, job.protected)

    def seen(self, job_id: JobId) -> Seen | None:
        job = self._service.controller.state.jobs.get(job_id)
        if job is None:
            self._seen.pop(job_id, None)
            return None
        known = self._seen.get(job_id)
        if known is None or known[0] is not job:
            if len(self._seen) > SEEN_MAX:
                self._seen.clear()
            known = self._seen[job_id] = job, _seen(job)
        return known[1]

    def ended(self, job_id: JobId, on_reply: Callable[[Seen | None], None]) -> None:
        def read() -> Seen | None:
            found = self._service.controller.finished_job(job_id)
            if found is None or found.state not in ("succeeded", "failed", "cancelled"):
                return None
            text = found.exit.text().removeprefix(POD) if found.exit is not None else ""
            return Seen(found.state, found.attempts, text=text or found.reason)

        work = self._loop.run_in_executor(self._explaining, read)
        work.add_done_callback(lambda done: None if done.cancelled() else on_reply(done.result()))

    def config(self) -> ClusterConfig:
        return self._service.controller.state.config

    def declare(
        self, config: ClusterConfig, base: ClusterConfig, on_reply: Callable[[tuple[Problem, ...]], None]
    ) -> None:
        def told(reply: msg.Reply) -> None:
            busy = Problem("busy", "", "the server is busy")
            on_reply(() if isinstance(reply, msg.Done) else getattr(reply, "problems", (busy,)))

        request = msg.Configure(config, KUBERNETES, digest(base))
        busy = (Problem("busy", "", "the server is busy"),)
        self._ask(request, told, Submitter(KUBERNETES, ""), lambda: on_reply(busy))

    def queue_uses(self) -> Mapping[str, tuple[int, int, dict[str, str]]]:
        return queue_uses(self._service.controller.state)

    def pool_uses(self) -> Mapping[str, tuple[int, int]]:
        return pool_uses(self._service.controller.state)

    def closed_nodes(self) -> Mapping[NodeName, str]:
        nodes = self._service.controller.state.nodes
        return {
            name: node.drain_reason for name, node in nodes.items() if node.draining and node.closed_by == CHECKED_BY
        }

    def stop_text(self, job_id: JobId) -> str:
        state = self._service.controller.state
        job = state.jobs.get(job_id)
        stop = job.attempt.stop if job is not None and job.attempt is not None else None
        if stop is None:
            return ""
        text = f"penstock stops job {job_id}: {why_stopped(stop)}"
        other = state.jobs.get(stop.beneficiary) if stop.beneficiary is not None else None
        return text + (
            f" ({dict(other.spec.labels).get(GANG_JOB_LABEL, other.spec.name)})" if other is not None else ""
        )

    def rooms(self) -> Mapping[JobId, tuple[NodeName, ...]]:
        state = self._service.controller.state
        found: dict[JobId, tuple[NodeName, ...]] = {}
        for job_id in set(state.indexes.stopping.values()):
            job = state.jobs.get(job_id) if job_id is not None else None
            if job is not None and job.state == "waiting":
                found[job.id] = tuple(place.node for place in job.room)
        return found

    def outlooks(self, job_ids: Sequence[JobId], on_reply: Callable[[dict[JobId, Outlook]], None]) -> None:
        controller = self._service.controller
        now_ms = self._clock.unix_ms()
        jobs = [job for job_id in job_ids if (job := controller.state.jobs.get(job_id)) is not None]
        questions = [question_of(controller.state, job, now_ms) for job in jobs if job.state == "waiting"]
        work = self._loop.run_in_executor(self._explaining, self._explained, questions)
        work.add_done_callback(lambda done: None if done.cancelled() else on_reply(done.result()))

    def _explained(self, questions: Sequence[Question]) -> dict[JobId, Outlook]:
        found = {}
        for question in questions:
            told = self._explainer.explain(question)
            text = told.text
            others = {"disruption_budget", "preempt_never" if always_lost(question.job) else ""}
            text += "".join(f"; {one.text}" for one in told.constraints[1:] if one.code in others)
            exit_info = question.job.last_exit
            if told.code == "backing_off" and exit_info is not None and exit_info.problem:
                text += f"; {exit_info.problem.removeprefix(POD)}"
            if told.start_by_ms:
                text += f"; starts within {format_duration(told.start_by_ms - question.now_ms)} at the latest"
            found[question.job.id] = Outlook(told.code, text)
        return found

    def cancel(self, job_id: JobId, reason: str) -> None:
        self._ask(msg.Cancel(job_id, KUBERNETES, reason), lambda _: None, Submitter(KUBERNETES, ""), lambda: None)

    def gang_name(self, job_id: JobId) -> str:
        job = self._service.controller.state.jobs.get(job_id)
        return dict(job.spec.labels).get(GANG_JOB_LABEL, "") if job is not None else ""

    def _ask(
        self,
        request: msg.Request,
        told: Callable[[msg.Reply], None],
        caller: Submitter,
        busy: Callable[[], None],
    ) -> None:
        try:
            self._service.ask(request, lambda reply: self._soon(lambda: told(reply)), caller)
        except (InboxFull, TooManyWaiting):
            self._soon(busy)

    def _soon(self, action: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)


def _seen(job: Job) -> Seen:
    text = job.last_exit.text().removeprefix(POD) if job.last_exit is not None else ""
    attempt = job.attempt
    if attempt is None:
        return Seen("waiting", job.last_attempt, text=text)
    holding = [replica for replica in attempt.replicas if replica.holds]
    phase: Phase = "stopping" if attempt.leaving else "running" if attempt.running_ms else "starting"
    return Seen(phase, attempt.number, len(holding), len(holding) if phase == "running" else 0, text)


_BUSY = Refused("Busy", "the server is busy", again=True)
