"""The services of the server that routes use, in one object."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable

import msgspec
from starlette.responses import Response

from penstock.control import messages as msg
from penstock.control.inbox import SERVER, InboxFull, OnReply
from penstock.control.joining import Joining
from penstock.control.metrics import MemoryMetrics
from penstock.control.service import ControlService
from penstock.core.lifecycle.requests import Submit
from penstock.core.lifecycle.size import RECORD_BYTES, weight_of
from penstock.core.lifecycle.thresholds import SharedAmount
from penstock.core.messages.access import SetNotification, SetSecret
from penstock.core.messages.requests import ChangeJobs
from penstock.core.messages.schedules import ActOnSchedule, SetSchedule
from penstock.core.model.events import Record
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import JobSpec
from penstock.core.order.turns import TooManyWaiting
from penstock.core.state.state import State
from penstock.engines.joined.outputs import ArrivingOutputs
from penstock.ports import Clock, EventReader
from penstock.security.vault import Vault
from penstock.server.http.accesslog import AccessLog
from penstock.server.http.auth import LocalTokens
from penstock.server.http.kept import KeptAnswers, RepeatedRequests, max_stale_ms
from penstock.server.http.limits import Limits, RateGate
from penstock.server.http.pools import Pools
from penstock.server.http.responses import ApiError
from penstock.server.http.sessions import LoginCodes, Sessions
from penstock.server.http.turns import CLUSTER, calling, overloaded
from penstock.server.routes.outputs import Outputs
from penstock.server.services.standing import StandingQuestions
from penstock.server.views.reads import Reads
from penstock.store.folder_snapshots import FolderSnapshots

log = logging.getLogger(__name__)

ORDERS = (Submit, msg.Cancel, ChangeJobs, msg.AskCheckpoint, msg.Drain, SetSchedule, ActOnSchedule)
"""Requests that a server which only watches refuses: nothing would come of them."""
SHADOW_HINT = "ask the scheduler of the cluster, or start a server without --shadow on another data folder"
LOOKED_MS = 2_000
"""Longest time of an answer begun while the server was a standby."""
DOCUMENT_MS = 600_000
KEPT_SHARE = 8
PAST_MAX, PAST_MAX_BYTES = 128, 96 * 2**20
BODIES_MAX_BYTES = 256 * 2**20
"""Of all bodies being received or read; a caller may have at most as much as it leaves free."""
REFUSED_MS = 60_000
"""Agents repeat what the log did not take; where nothing is left to be written, nothing says that it would be."""


class Backend:
    """The running server as the routes see it. Lives on the event loop."""

    def __init__(
        self,
        service: ControlService,
        reader: EventReader,
        clock: Clock,
        tokens: LocalTokens,
        outputs: Outputs,
        connected: Callable[[], set[NodeName]],
        name: str,
        limits: Limits | None = None,
        vault: Vault | None = None,
        metrics: MemoryMetrics | None = None,
        sessions: Sessions | None = None,
        snapshots: FolderSnapshots | None = None,
    ) -> None:
        self.service, self.clock, self.tokens = service, clock, tokens
        self.log = reader
        """The whole log, without regard to scopes: for the server's own services. Routes use `reads`."""
        self.reads = Reads(service, reader, lambda: max(self.durable_seq, service.controller.durable_seq))
        self.outputs, self.connected, self.name = outputs, connected, name
        self.vault = vault
        self.snapshots = snapshots
        """Of submitters' folders; None where the nodes do not unpack any."""
        self.arriving: ArrivingOutputs | None = None
        """Outputs of nodes of other machines; None where there can be none."""
        self.joining: Joining | None = None
        """Nodes of other machines; None where none can join, and while another server leads."""
        if snapshots is not None:
            snapshots.held = self.snapshots_held
        self.gate = RateGate(limits or Limits(), clock)
        self.pools, self.kept = Pools(), KeptAnswers(clock, share=KEPT_SHARE)
        self.past = KeptAnswers(clock, most=PAST_MAX, most_bytes=PAST_MAX_BYTES)
        """Of what sums up the past: apart, as they take long and are asked for later again."""
        self.standing = StandingQuestions()
        self.bodies = SharedAmount(BODIES_MAX_BYTES)
        self.documents = KeptAnswers(clock, DOCUMENT_MS)
        """Of invoices, which never change."""
        self.repeats = RepeatedRequests(clock)
        self.metrics = metrics if metrics is not None else MemoryMetrics()
        self.access = AccessLog(clock, self.metrics)
        self.sessions, self.login_codes = sessions or Sessions(), LoginCodes(clock)
        self.durable_seq = 0
        self.said_elsewhere: Callable[[JobId], str] = lambda _: ""
        """What the scheduler that a shadow watches says of a job that waits. Any thread."""
        self.not_kept: Callable[[JobSpec], tuple[str, str] | None] = lambda _: None
        """The field of a job that the server's engine cannot keep, and why; None where it keeps all. Any thread."""
        self.other_agents: Callable[[], dict[NodeName, str]] = dict
        """What agents run that are refused for their version, by their nodes."""
        self.why_full: Callable[[], str] = lambda: ""
        """Why the disk of the data folder takes no more, or ''. Cheap."""
        self._changed = asyncio.Event()
        self.closing = asyncio.Event()
        self.on_commit: list[Callable[[tuple[Record, ...]], None]] = []
        """Called with durable records, on the event loop."""

    @property
    def state(self) -> State:
        return self.service.controller.state

    def log_problem(self) -> str:
        """Return why the log takes nothing, or soon will not; '' where it does. Cheap; any thread."""
        refused = self.service.controller.refused
        if refused is not None and self.clock.monotonic_ms() - refused[0] < REFUSED_MS:
            return f"the log cannot be written: {refused[1]}"
        full = self.why_full()
        return f"the log cannot be written for long: {full}" if full else ""

    def snapshots_held(self) -> Counter[str]:
        """Return the snapshots of live jobs and of schedules, and how many need each. Any thread."""
        specs = [job.spec for job in list(self.state.jobs.values())]
        specs += [new.spec for one in list(self.state.schedules.by_key.values()) for new in one.jobs]
        return Counter(spec.snapshot for spec in specs if spec.snapshot)

    @property
    def may_lag(self) -> bool:
        """Whether something not found here may exist: this is a standby, or was within `LOOKED_MS`."""
        controller = self.service.controller
        since_ms = self.clock.monotonic_ms() - controller.took_over_ms
        return not controller.leads or (controller.took_over_ms > 0 and since_ms < LOOKED_MS)

    async def shared(self, question: Hashable, work_out: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer to a question about the present: worked out now, or for a caller who accepts a stale one,
        that of all who ask the same.

        Args:
            question: with the caller's sight, where the answer depends on it.
        """
        if not max_stale_ms.get():
            return await work_out()
        version = self.state.seq, self.durable_seq, self.service.controller.durable_seq
        return await self.kept.of(question, work_out, version)

    @property
    def role(self) -> str:
        """`leader`, or `standby` for a server beside another that leads."""
        return "leader" if self.service.controller.leads else "standby"

    async def ask(self, request: msg.Request) -> msg.Reply:
        """Return the reply once its commit is on disk.

        Raises: ApiError when the server is overloaded, or the commit failed.
        """
        if self.service.controller.shadow and isinstance(request, ORDERS):
            raise ApiError("conflict", "this server only watches what other schedulers decide", hint=SHADOW_HINT)
        self._count(request)
        begun_s = time.perf_counter()
        future: asyncio.Future[msg.Reply] = asyncio.get_running_loop().create_future()

        def settle(reply: msg.Reply) -> None:
            if not future.done():
                future.set_result(reply)

        try:
            self.service.ask(request, settle, calling.get())
        except InboxFull as error:
            raise ApiError(error.code, error.message, hint=error.hint) from error
        except TooManyWaiting as error:
            raise overloaded(error) from error
        reply = await future
        if isinstance(request, Submit):
            self.metrics.observe("submit_s", time.perf_counter() - begun_s)
        if isinstance(reply, msg.RequestFailed):
            raise ApiError(reply.code, reply.message, hint=reply.hint, leader=reply.leader)
        return reply

    def _count(self, request: msg.Request) -> None:
        """Count what a caller's request adds to the log. Raises: ApiError when that is more than their tenant may."""
        caller = calling.get()
        if caller.tenant in (SERVER.tenant, CLUSTER):
            return
        if isinstance(request, Submit):
            if len(self.state.config.tenants) > 1:  # then `jobs_per_request` bounds the sum, too
                self.gate.jobs(caller.tenant, sum(new.count for new in request.jobs))
            self.gate.log(caller.tenant, max(RECORD_BYTES, request.log_bytes))
        elif isinstance(request, ChangeJobs):
            size = RECORD_BYTES + len(msgspec.msgpack.encode(request.change))
            self.gate.log(caller.tenant, size * len(request.job_ids))
        elif isinstance(request, SetSecret):
            self.gate.log(caller.tenant, RECORD_BYTES + len(request.secret.sealed))
        elif isinstance(request, SetNotification):
            self.gate.log(caller.tenant, RECORD_BYTES + len(request.subscription.to.sealed))
        elif isinstance(request, SetSchedule):
            self.gate.log(caller.tenant, RECORD_BYTES + len(msgspec.msgpack.encode(request.schedule)))
        elif isinstance(request, ActOnSchedule) and request.action == "run":
            one = self.state.schedules.by_key.get((request.owner, request.name))
            if one is not None and len(self.state.config.tenants) > 1:
                self.gate.jobs(caller.tenant, sum(new.count for new in one.jobs))
            self.gate.log(caller.tenant, max(RECORD_BYTES, weight_of(one.jobs).log_bytes if one is not None else 0))
        else:
            self.gate.log(caller.tenant, RECORD_BYTES)

    def committed(self, records: tuple[Record, ...]) -> None:
        """Note durable records and wake the followers of the log (on the event loop)."""
        if records:
            self.durable_seq = records[-1].seq
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for note in self.on_commit:
            note(records)

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return when something was committed, or after the timeout, or at once when the server ends."""
        if self.closing.is_set():
            return  # the wake-up of the end was before
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return


def deliver_on(loop: asyncio.AbstractEventLoop) -> Callable[[list[tuple[OnReply, msg.Reply]]], None]:
    """Return a `Deliver` that gives a group of replies on `loop` with one wake-up."""

    def give(pairs: list[tuple[OnReply, msg.Reply]]) -> None:
        for on_reply, reply in pairs:
            try:
                on_reply(reply)
            except Exception as error:  # the others of the group would wait for ever
                log.error("a reply could not be given", exc_info=error)

    def deliver(pairs: list[tuple[OnReply, msg.Reply]]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(give, pairs)

    return deliver
