"""Jobs of a Slurm cluster: the Slurm engine's way to the control loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.inbox import SERVER, InboxFull, OnReply
from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.messages.requests import NewJob, Refusal, Submit, Submitted
from penstock.core.model.access import Scope
from penstock.core.model.actions import JobChange
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import Incarnation, JobId, NodeName, UserName
from penstock.core.order.turns import Submitter, TooManyWaiting
from penstock.core.state.state import State
from penstock.engines.slurm.commands import SlurmCommands
from penstock.engines.slurm.newjobs import JOB_LABEL, SCHEDULER
from penstock.engines.slurm.reading import Begun, SlurmReader
from penstock.engines.slurm.server import LiveJob, LivePlace, Noted, Refused
from penstock.engines.slurm.shadow.engine import SlurmShadow
from penstock.ports import NodeSession

SLURM = UserName("slurm")
"""Holds, releases and ends jobs as Slurm does."""
EVERYWHERE = Scope(SLURM, "admin", level="write")
_BUSY = Refused("the server is busy", again=True)


async def follow_slurm(
    begun: Begun, service: "Service", started: Callable[[SlurmShadow], None], refresh_s: float
) -> None:
    """Run the engine on this loop until cancelled.

    Args:
        begun: what was read before the server began; what had ended by then is in the log.
        started: gets the engine, which takes orders from then on.
        refresh_s: time between two questions for all jobs (s).
    """
    reader = SlurmReader(SlurmCommands(), gpus_tracked=begun.config.gpus_tracked)
    engine = SlurmShadow(SlurmJobs(service), reader, begun.config, refresh_s=refresh_s, begun=begun.queue)
    started(engine)
    await engine.run()


class Service(Protocol):
    """What of the control service is needed here."""

    @property
    def controller(self) -> Controller: ...

    def ask(self, request: msg.Request, on_reply: OnReply | None = None, caller: Submitter = SERVER) -> None: ...

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None: ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None: ...

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None: ...


def named(job: NewJob, config: ClusterConfig, user: UserName) -> NewJob:
    """Return a job with the cluster's defaults in place of what it does not name."""
    spec = job.spec
    if "tenant" in job.unnamed:
        spec = msgspec.structs.replace(spec, tenant=default_tenant(config, EVERYWHERE) or spec.tenant)
    if "queue" in job.unnamed:
        spec = msgspec.structs.replace(spec, queue=default_queue(config, user) or spec.queue)
    return msgspec.structs.replace(job, spec=spec) if job.unnamed else job


def live_jobs(state: State) -> Iterable[LiveJob]:
    """Yield the jobs of Slurm that have not ended."""
    for job in tuple(state.jobs.values()):
        label = dict(job.spec.labels).get(JOB_LABEL, "")
        if not label:
            continue
        attempt = job.attempt
        places = tuple(
            LivePlace(ReplicaKey(job.id, attempt.number, replica.rank), replica.place.node, attempt.names[replica.rank])
            for replica in (attempt.replicas if attempt is not None else ())
            if attempt is not None and replica.holds
        )
        ran_before_ms = job.waiting_since_ms if attempt is None and job.last_attempt else 0
        yield LiveJob(job.id, label, job.user, job.spec.ask, places, job.hold is not None, ran_before_ms)


class SlurmJobs:
    """The server as the Slurm engine sees it. Its answers come on the loop that it is made on."""

    def __init__(self, service: Service) -> None:
        self._service, self._loop = service, asyncio.get_running_loop()

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        self._service.on_hello(spec, incarnation, session)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        self._service.on_report(report, session)

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        self._service.on_alive(nodes)

    def config(self) -> ClusterConfig:
        return self._service.controller.state.config

    def closed(self) -> Mapping[NodeName, str]:
        nodes = self._service.controller.state.nodes
        return {name: node.drain_reason for name, node in nodes.items() if node.draining and node.closed_by == SLURM}

    def close(self, node: NodeName, why: str) -> None:
        self._ask(msg.Drain(node, bool(why), SLURM, why), lambda _: None, lambda: None)

    def live(self) -> Iterable[LiveJob]:
        return live_jobs(self._service.controller.state)

    def is_live(self, job_id: JobId) -> bool:
        return job_id in self._service.controller.state.jobs

    def note_waiting(self, job: NewJob, user: UserName, on_reply: Callable[[JobId | Refused], None]) -> None:
        def told(reply: msg.Reply) -> None:
            match reply:
                case Submitted():
                    on_reply(reply.job_ids[0])
                case Refusal():
                    on_reply(Refused("; ".join(problem.message for problem in reply.problems)))
                case _:
                    on_reply(_BUSY)

        request = Submit((named(job, self.config(), user),), user, seen=True)
        self._ask(request, told, lambda: on_reply(_BUSY))

    def note_start(
        self,
        job_id: JobId,
        nodes: Sequence[NodeName],
        names: Sequence[str],
        on_reply: Callable[[Noted | Refused], None],
    ) -> None:
        def told(reply: msg.Reply) -> None:
            match reply:
                case msg.StartNoted():
                    on_reply(Noted(reply.attempt))
                case Refusal():
                    problem = reply.problems[0]
                    on_reply(Refused(problem.message, again=problem.code == "not_waiting"))
                case _:
                    on_reply(_BUSY)

        request = msg.SeenStart(job_id, SCHEDULER, tuple(nodes), tuple(names))
        self._ask(request, told, lambda: on_reply(_BUSY))

    def edit(self, job_id: JobId, ask: GangAsk, on_reply: Callable[[str], None]) -> None:
        change = JobChange(ask=ask)
        self._change(msg.ChangeJobs("edit", (job_id,), SLURM, change, administrator=True), on_reply)

    def hold(self, job_id: JobId, on_reply: Callable[[str], None], *, held: bool) -> None:
        self._change(msg.ChangeJobs("hold" if held else "release", (job_id,), SLURM, administrator=True), on_reply)

    def _change(self, request: msg.ChangeJobs, on_reply: Callable[[str], None]) -> None:
        """Change one job, and say why it did not."""

        def told(reply: msg.Reply) -> None:
            unchanged = reply.unchanged if isinstance(reply, msg.JobsChanged) else ((0, "busy"),)
            on_reply(unchanged[0][1] if unchanged else "")

        self._ask(request, told, lambda: on_reply("busy"))

    def cancel(self, job_id: JobId, reason: str, on_reply: Callable[[bool], None]) -> None:
        def told(reply: msg.Reply) -> None:
            on_reply(isinstance(reply, msg.Done))

        self._ask(msg.Cancel(job_id, SLURM, reason), told, lambda: on_reply(False))

    def _ask(self, request: msg.Request, told: Callable[[msg.Reply], None], busy: Callable[[], None]) -> None:
        try:
            self._service.ask(request, lambda reply: self._soon(lambda: told(reply)), Submitter(SLURM, ""))
        except (InboxFull, TooManyWaiting):
            self._soon(busy)

    def _soon(self, action: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)
