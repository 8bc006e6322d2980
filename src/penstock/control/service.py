"""The live driver of the control loop: one thread that commits, one that plans.

A long cycle never holds up a commit: the planner works on a snapshot, and its plan comes back as one more request.
Where several servers share a log, the thread that commits follows the leader until this server leads.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.figures import FigureBook
from penstock.control.inbox import SERVER, Inbox, InboxFull, Item, OnReply
from penstock.control.metrics import MemoryMetrics
from penstock.control.standby import Standby
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.messages.reports import NodeFigures, NodeReport
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.core.model.events import Record
from penstock.core.model.ids import Incarnation, NodeName
from penstock.core.order.extension import Policies
from penstock.core.order.turns import Submitter
from penstock.core.state.snapshot import Snapshot
from penstock.ports import Clock, Engine, EventStore, Metrics, NodeSession, Seat

log = logging.getLogger(__name__)

TICK_MS = 250

Deliver = Callable[[list[tuple[OnReply, msg.Reply]]], None]
OnRecords = Callable[[tuple[Record, ...]], None]
OnFault = Callable[[BaseException], None]


def deliver_here(pairs: list[tuple[OnReply, msg.Reply]]) -> None:
    """Give replies on the control thread itself."""
    for on_reply, reply in pairs:
        on_reply(reply)


class ControlService:
    """Runs a controller until `stop`. `ask` may be called from any thread; so may what an engine calls, `EngineEvents`.

    Args:
        deliver: gives replies to requests; `deliver_reports`: replies to agents, on a loop that nothing else delays.
    """

    def __init__(
        self,
        controller: Controller,
        store: EventStore,
        engine: Engine,
        clock: Clock,
        *,
        deliver: Deliver = deliver_here,
        deliver_reports: Deliver | None = None,
        on_records: OnRecords | None = None,
        on_fault: OnFault,
        policies: Policies | None = None,
        seat: Seat | None = None,
        on_lead: Callable[[], None] = lambda: None,
        metrics: Metrics | None = None,
    ) -> None:
        self.controller = controller
        self.policies = policies
        self._seat, self._on_lead = seat, on_lead
        self._metrics = metrics if metrics is not None else MemoryMetrics()
        self._store, self._engine, self._clock = store, engine, clock
        self.clock = clock
        self._deliver, self._on_records, self._on_fault = deliver, on_records, on_fault
        self._deliver_reports = deliver_reports or deliver
        self.figures = FigureBook()
        """What devices report at present, and replicas use."""
        self._inbox = Inbox()
        self._to_plan: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self._cycles, self._planning = 0, False
        self._saver: threading.Thread | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._commit_loop,), name="penstock-control"),
            threading.Thread(target=self._guarded, args=(self._plan_loop,), name="penstock-planner", daemon=True),
        ]

    @property
    def leader(self) -> str:
        """Address of the leader, as far as known; '' where there is only one server, or this one leads."""
        return "" if self._seat is None or self.controller.leads else self._seat.leader()

    @property
    def shares_log(self) -> bool:
        """Whether another server may take the lead while this one runs."""
        return self._seat is not None

    @property
    def at_rest(self) -> bool:
        """Whether no cycle is being planned, or due: earlier requests change nothing more. Any thread."""
        begun = self._cycles
        at_rest = not self._planning and not self.controller.plan_clock.due(self._clock.monotonic_ms())
        return at_rest and begun == self._cycles  # else a cycle began between the two checks

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Answer all queued requests, save a snapshot, and end."""
        self._inbox.end()
        self._threads[0].join()
        self._to_plan.put(None)
        if self._saver is not None:
            self._saver.join()

    def ask(self, request: msg.Request, on_reply: OnReply | None = None, caller: Submitter = SERVER) -> None:
        """Queue a request; `on_reply` is called after its commit is on disk.

        Raises: InboxFull when too many requests wait; TooManyWaiting when too many of the caller's do.
        """
        self._inbox.put(request, on_reply, caller)

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        """Register a node, then welcome its session."""

        def welcome(reply: msg.Reply) -> None:
            if isinstance(reply, msg.Welcome):
                session.welcome(reply.epoch, reply.lease_ms, reply.heartbeat_ms)
            else:
                session.close()

        self._ask_for_node(msg.Hello(spec, incarnation), welcome, session)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        """Commit a node's report, then acknowledge it."""

        def taken(reply: msg.Reply) -> None:
            if isinstance(reply, msg.ReportTaken):
                session.taken(reply.seq, reply.orders, accepted=reply.accepted)

        if report.figures is not None:
            self.figures.take(report.node, self.controller.state.nodes, report.figures, self._clock.unix_ms())
            measured = tuple(
                use for use in report.figures.replicas if use.measured is not None and use.measured.measured_ms
            )
            host = report.figures.host
            report = replace(report, figures=NodeFigures(replicas=measured, host=host) if measured or host else None)
        self._ask_for_node(report, taken, session)

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        """Prolong the leases of nodes of which nothing else is new."""
        with contextlib.suppress(InboxFull):  # the next one counts as well
            self.ask(msg.Alive(tuple(nodes)))

    def _ask_for_node(self, request: msg.Hello | NodeReport, on_reply: OnReply, session: NodeSession) -> None:
        try:
            self.ask(request, on_reply)
        except InboxFull:
            session.close()  # it says hello again

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # noqa: BLE001 - the top of the loop: a broken invariant stops the process
            level = logging.WARNING if isinstance(error, StaleEpoch) else logging.CRITICAL
            log.log(level, "control loop stopped", extra={"error": repr(error)})
            self._on_fault(error)

    def _commit_loop(self) -> None:
        if self._seat is not None:
            if not self.controller.leads:
                if not self._stand_by(Standby(self.controller, self._seat, self._clock)):
                    return
                self._on_lead()
            self._seat.hold(self.controller.epoch, self._on_fault)
        next_tick_ms = self._clock.monotonic_ms() + TICK_MS
        while True:
            wait_ms = max(1, self._wake_ms(next_tick_ms) - self._clock.monotonic_ms())
            group, ending = self._inbox.collect(wait_ms / 1000)
            if self._clock.monotonic_ms() >= next_tick_ms:
                reports = sum(isinstance(request, msg.FROM_NODES) for request, _ in group)
                group.insert(reports, (msg.TimePassed(), None))  # before the requests: their cost ends no lease
                next_tick_ms = self._clock.monotonic_ms() + TICK_MS
            if group:
                self._run(group)
            self._offer_cycle()
            if ending:
                self._save_snapshot()
                return
            if self.controller.snapshot_due():
                self._save_snapshot()

    def _stand_by(self, standby: Standby) -> bool:
        """Follow the leader; return True once this server leads, False when it is stopped before."""
        while True:
            group, ending = self._inbox.collect(max(1, standby.wait_ms()) / 1000)
            self._give(group, [standby.answer(request) for request, _ in group])
            if ending:
                return False
            records = standby.look()
            if records and self._on_records is not None:
                self._on_records(records)
            if self.controller.leads and not self.controller.behind:
                return True

    def _run(self, group: Sequence[Item]) -> None:
        was_behind = self.controller.behind
        begun_s = time.perf_counter()
        handled = self.controller.handle([request for request, _ in group])
        self._metrics.observe("control_commit_s", time.perf_counter() - begun_s)
        self._metrics.count("control_requests", len(group))
        self._metrics.count("control_events", len(handled.records))
        if self.controller.behind != was_behind:
            log.warning(
                "the log is there again" if was_behind else "the log is away: nothing is decided until it is back"
            )
        if handled.orders:
            self._engine.send(handled.orders)
        if handled.records and self._on_records is not None:
            self._on_records(handled.records)
        self._give(group, handled.replies)
        if any(isinstance(request, msg.CommitPlan) for request, _ in group):
            self._planning = False  # last: at rest, what a plan starts has been ordered

    def _give(self, group: Sequence[Item], replies: Sequence[msg.Reply]) -> None:
        to_agents: list[tuple[OnReply, msg.Reply]] = []
        to_callers: list[tuple[OnReply, msg.Reply]] = []
        for (request, on_reply), reply in zip(group, replies, strict=True):
            if on_reply is not None:
                (to_agents if isinstance(request, msg.FROM_NODES) else to_callers).append((on_reply, reply))
        for pairs, deliver in ((to_agents, self._deliver_reports), (to_callers, self._deliver)):
            if pairs:
                deliver(pairs)

    def _wake_ms(self, next_tick_ms: int) -> int:
        """Return until when the loop waits for requests: the next tick, or the end of the time for gathering jobs."""
        clock = self.controller.plan_clock
        if not clock.wanted or self._planning:
            return next_tick_ms
        return min(next_tick_ms, clock.wake_ms(self._clock.monotonic_ms()))

    def _offer_cycle(self) -> None:
        if not self._planning and self.controller.plan_clock.due(self._clock.monotonic_ms()):
            self._cycles += 1
            self._planning = True
            self._to_plan.put(self.controller.snapshot())

    def _plan_loop(self) -> None:
        planner = PlanChooser(self.policies)
        while (snapshot := self._to_plan.get()) is not None:
            begun_s = time.perf_counter()
            decided = planner.plan(snapshot, self._clock.unix_ms())
            self._metrics.observe("control_cycle_s", time.perf_counter() - begun_s)
            self._inbox.put(msg.CommitPlan(decided), None)

    def _save_snapshot(self) -> None:
        if self.controller.behind or (self._saver is not None and self._saver.is_alive()):
            return
        image = self.controller.state.image()
        self.controller.snapshot_taken()

        def save() -> None:
            try:
                self._store.save_snapshot(image)
            except StoreError as error:
                log.warning("snapshot not kept", extra={"error": error.message})

        self._saver = threading.Thread(target=save, name="penstock-snapshot")
        self._saver.start()
