"""Decisions of a node's agent, without processes, sockets or clocks.

Theory. For each replica the agent keeps one entry: starting, running, stopping or exited. An entry is made by the
first order about its key and is forgotten only when the server has acknowledged the exit. Orders are taken only from
the newest epoch and session, in ascending order of number; so an order that is late, doubled or out of turn cannot
start anything twice, and the server derives a lost one again from the next full report.

The lease: every report carries a number, and an acknowledged one lets processes live until a fixed time after it
was *sent*. The server counts from when it was received, and longer; so the processes here have ended before the
server may start them elsewhere.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.core.messages.orders import (
    Acknowledge,
    ChangeBatch,
    CheckNode,
    DivideDevice,
    FreezeReplica,
    InspectReplica,
    LimitPower,
    Order,
    SaveReplica,
    StartReplica,
    StopReplica,
    ThawReplica,
)
from penstock.core.messages.reports import (
    SHUT_DOWN,
    NodeCheck,
    NodeFigures,
    NodeReport,
    ProgressSeen,
    ReplicaInspected,
    ReplicaKey,
    ReplicaSeen,
    SeenState,
)
from penstock.core.model.ids import Epoch, Incarnation, NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import DeviceFault, DeviceInstances, OthersLoad
from penstock.engines.agent.protocol import AgentReport, ServerOrders, ServerTaken, ServerWelcome

PROGRESS_KEPT_MAX = 10_000
SENT_KEPT_MAX = 1_000
SILENT_HEARTBEATS = 3
"""After this many heartbeats without an answer the session counts as broken."""
WELCOME_MS = 2_000  # more than between two answers: a server that begins has many nodes to welcome
LEASE_OVER = "its node lost touch with the server and ended it"


class DeviceNews(NamedTuple):
    """The condition of a node's devices: what decides about them."""

    faults: tuple[DeviceFault, ...]
    others: OthersLoad


class Spawn(msgspec.Struct, frozen=True):
    """Start this replica; answer with `on_started` or `on_gone`."""

    order: StartReplica


class AskToStop(msgspec.Struct, frozen=True):
    """Send the program its stop signal."""

    key: ReplicaKey


class AskToSave(msgspec.Struct, frozen=True):
    """Send the program its save-and-carry-on signal."""

    key: ReplicaKey


class Freeze(msgspec.Struct, frozen=True):
    """Take all processor time from the replica; answer with `on_frozen` or `on_refused`."""

    key: ReplicaKey


class Thaw(msgspec.Struct, frozen=True):
    """Resume a frozen replica."""

    key: ReplicaKey


class KillAll(msgspec.Struct, frozen=True):
    """Kill all processes of the replica; answer with `on_gone` once none is left."""

    key: ReplicaKey


class Forget(msgspec.Struct, frozen=True):
    """The exit is in the server's log: drop what was kept for it."""

    key: ReplicaKey


class Inspect(msgspec.Struct, frozen=True):
    """Look at what the program does; answer with `on_inspected`."""

    key: ReplicaKey
    native: bool


AsOrdered = ChangeBatch | CheckNode | DivideDevice | LimitPower
"""Orders that are carried out as they are: `on_checked` and `on_instances` have the results."""
Action = AsOrdered | Spawn | AskToStop | AskToSave | Freeze | Thaw | KillAll | Forget | Inspect


class ReplicaEntry(msgspec.Struct):
    """One replica as the agent knows it."""

    key: ReplicaKey
    state: SeenState
    pid: int = 0
    stop_sent: bool = False
    kill_at_ms: int | None = None
    kill_sent: bool = False
    problem: str = ""
    suspension: int = 0  # number of the last one ordered
    refused: str = ""
    """Why it could not be frozen, until that was reported."""
    exit: ExitInfo | None = None


def ended(entry: ReplicaEntry, info: ExitInfo) -> ExitInfo:
    """Return the exit of a replica, with who ended it: the server by its order, or the node, with the reason."""
    stop_sent = info.stop_sent or (entry.stop_sent and not entry.problem)
    return msgspec.structs.replace(info, stop_sent=stop_sent, problem=entry.problem or info.problem)


class AgentState:
    """One node's agent. Times are monotonic milliseconds of the node.

    Args:
        entries: what a former worker of this incarnation left.
        lease_until_ms: the lease it had.
        first_report: higher than any report number of this incarnation so far.
    """

    def __init__(
        self,
        node: NodeName,
        incarnation: Incarnation,
        entries: Iterable[ReplicaEntry] = (),
        *,
        lease_until_ms: int | None = None,
        first_report: int = 0,
    ) -> None:
        self.node, self.incarnation = node, incarnation
        self.entries: dict[ReplicaKey, ReplicaEntry] = {e.key: e for e in entries}
        self.heartbeat_ms = 1_000
        self.lease_ms = 10_000
        self.lease_until_ms = lease_until_ms
        """Until when processes may live; None before the first acknowledged report."""
        self._epoch, self._session, self._taken_seq = Epoch(0), 0, 0
        self._report_seq, self._next_heartbeat_ms = first_report, 0
        self._sent: dict[int, int] = {}
        self._changed: set[ReplicaKey] = set()
        self._progress: list[tuple[int, ProgressSeen]] = []
        self._inspected: list[ReplicaInspected] = []
        self._check: NodeCheck | None = None
        self._devices: DeviceNews | None = None
        self._devices_changed, self.disk_problem = False, ""  # the problem: as every report says it
        self._instances: tuple[DeviceInstances, ...] | None = None
        self._figures: NodeFigures | None = None
        self.power_limit_mw: int | None = None  # as an inventory says it
        self.leaving = False
        """The agent is shutting down: nothing starts here any more."""
        self._heard_ms: int | None = None
        self.must_say_hello = False
        """The server does not know this session (any more), or says nothing: introduce yourself again."""

    # From the server.

    def on_welcome(self, welcome: ServerWelcome, now_ms: int) -> None:
        """Begin a session: former ones are over, a full report is due."""
        if (welcome.epoch, welcome.session) <= (self._epoch, self._session):
            return
        self._heard_ms = now_ms
        self._epoch, self._session, self._taken_seq = welcome.epoch, welcome.session, 0
        self.lease_ms, self.heartbeat_ms = welcome.lease_ms, welcome.heartbeat_ms
        if self.lease_until_ms is not None:  # a shorter lease holds at once: the server counts by it from here on
            self.lease_until_ms = min(self.lease_until_ms, now_ms + self.lease_ms)
        self.must_say_hello = False
        self._next_heartbeat_ms = now_ms

    def on_connected(self, now_ms: int) -> None:
        """Take note of a new connection: a server that does not welcome the node in time counts as silent."""
        self._heard_ms, self.must_say_hello = now_ms + WELCOME_MS, False

    def on_orders(self, message: ServerOrders, now_ms: int) -> list[Action]:
        """Take orders unless they are of a former epoch or session, or out of turn."""
        if not self._current(message.epoch, message.session) or message.seq <= self._taken_seq:
            return []
        self._taken_seq = message.seq
        return [action for order in message.orders for action in self._take(order, now_ms)]

    def on_taken(self, message: ServerTaken, now_ms: int) -> None:
        """Extend the lease from when that report was sent; drop progress that it carried."""
        if not self._current(message.epoch, message.session):
            return
        self._heard_ms = now_ms
        if not message.accepted:
            self.must_say_hello = True
            return
        sent_ms = self._sent.pop(message.report_seq, None)
        if sent_ms is not None:
            self.lease_until_ms = max(self.lease_until_ms or 0, sent_ms + self.lease_ms)
        self._progress = [(seq, p) for seq, p in self._progress if seq != message.report_seq]

    def _current(self, epoch: Epoch, session: int) -> bool:
        return epoch == self._epoch and session == self._session

    def _take(self, order: Order, now_ms: int) -> list[Action]:
        if isinstance(order, AsOrdered):
            return [] if self.leaving and isinstance(order, DivideDevice) else [order]
        entry = self.entries.get(order.key)
        if isinstance(order, Acknowledge):
            if entry is not None and entry.state == "exited":
                del self.entries[order.key]
                self._changed.discard(order.key)
                return [Forget(order.key)]
            return []
        if isinstance(order, SaveReplica):
            return [AskToSave(order.key)] if entry is not None and entry.state == "running" else []
        if isinstance(order, InspectReplica):
            return [Inspect(order.key, order.native)] if entry is not None and entry.state == "running" else []
        if isinstance(order, StopReplica):
            return self._stop(order, entry, now_ms)
        if isinstance(order, FreezeReplica):
            return self._freeze(order, entry) if entry is not None else []
        if isinstance(order, ThawReplica):
            return self._thaw(entry) if entry is not None else []
        if self.leaving and entry is None:
            info = ExitInfo(problem=SHUT_DOWN)
            self.entries[order.key] = ReplicaEntry(order.key, "exited", exit=info)
            self._changed.add(order.key)
            return []
        leased = self.lease_until_ms is not None and not self.lease_over(now_ms)
        if entry is not None or order.incarnation != self.incarnation or not leased:
            return []
        self.entries[order.key] = ReplicaEntry(order.key, "starting")
        return [Spawn(order)]

    def _stop(self, order: StopReplica, entry: ReplicaEntry | None, now_ms: int) -> list[Action]:
        self._changed.add(order.key)
        if entry is None:
            info = ExitInfo(stop_sent=True, problem="stopped before it started")
            self.entries[order.key] = ReplicaEntry(order.key, "exited", exit=info)
            return []
        if entry.state == "exited":
            return []
        kill_at_ms = now_ms + order.grace_ms
        entry.kill_at_ms = min(entry.kill_at_ms, kill_at_ms) if entry.kill_at_ms is not None else kill_at_ms
        first = entry.state != "stopping"
        entry.state = "stopping"
        if order.grace_ms == 0:
            return self._kill(entry)
        if first:
            entry.stop_sent = True
            return [AskToStop(order.key)]
        return []

    def _freeze(self, order: FreezeReplica, entry: ReplicaEntry) -> list[Action]:
        """Freeze a replica; say again that it is frozen where it is."""
        if entry.state not in ("running", "frozen"):
            return []
        entry.suspension = order.number
        if entry.state == "running":
            return [Freeze(entry.key)]
        self._changed.add(entry.key)
        return []

    def _thaw(self, entry: ReplicaEntry) -> list[Action]:
        """Resume a replica, also one that is about to be frozen."""
        if entry.state not in ("running", "frozen"):
            return []
        entry.state = "running"
        self._changed.add(entry.key)
        return [Thaw(entry.key)]

    def _kill(self, entry: ReplicaEntry) -> list[Action]:
        entry.stop_sent = entry.kill_sent = True
        return [KillAll(entry.key)]

    # From the processes.

    def on_started(self, key: ReplicaKey, pid: int) -> None:
        entry = self.entries[key]
        entry.pid = pid
        if entry.state == "starting":
            entry.state = "running"
        self._changed.add(key)

    def on_frozen(self, key: ReplicaKey) -> None:
        """Take note that no process of the replica runs any more."""
        entry = self.entries.get(key)
        if entry is not None and entry.state == "running":
            entry.state = "frozen"
            self._changed.add(key)

    def on_refused(self, key: ReplicaKey, why: str) -> None:
        """Tell, once, that the replica cannot be frozen: it runs on."""
        entry = self.entries.get(key)
        if entry is not None and entry.state == "running":
            entry.refused = why
            self._changed.add(key)

    def on_gone(self, key: ReplicaKey, info: ExitInfo) -> None:
        """Take note that a replica ended and that no process of it is left."""
        entry = self.entries.get(key)
        if entry is None or entry.state == "exited":
            return
        entry.exit = ended(entry, info)
        entry.state, entry.refused = "exited", ""
        self._changed.add(key)

    def on_progress(self, seen: ProgressSeen) -> None:
        """Keep what a program reported until a report with it was acknowledged; the oldest go when too many."""
        self._progress.append((0, seen))
        del self._progress[:-PROGRESS_KEPT_MAX]

    def on_checked(self, check: NodeCheck) -> None:
        """Report the result of the check once: the server asks again if it is lost."""
        self._check = check

    def on_inspected(self, seen: ReplicaInspected) -> None:
        """Report the inspection of a replica once: the server asks again if it is lost."""
        self._inspected.append(seen)

    def on_devices(self, news: DeviceNews) -> None:
        """Report the condition of the devices at once when it has changed, and with each inventory."""
        self._devices_changed |= news != self._devices
        self._devices = news

    def on_instances(self, instances: tuple[DeviceInstances, ...] | None) -> None:
        """Report the MIG instances of the devices at once when they have changed, and with each inventory."""
        self._devices_changed |= instances != self._instances
        self._instances = instances

    def on_figures(self, figures: NodeFigures) -> None:
        """Send figures with the next report; they are not worth one of their own."""
        self._figures = figures

    # From time.

    def lease_over(self, now_ms: int) -> bool:
        return self.lease_until_ms is not None and now_ms >= self.lease_until_ms

    def pause_lease(self, passed_ms: int) -> None:
        """Stop the lease's clock for a while in which surely no server lived that could start anything."""
        if self.lease_until_ms is not None:
            self.lease_until_ms += passed_ms

    def on_time(self, now_ms: int) -> list[Action]:
        """Return what is due: kills after their grace, and the end of everything once the lease is over."""
        if self._heard_ms is not None and now_ms - self._heard_ms > SILENT_HEARTBEATS * self.heartbeat_ms:
            self.must_say_hello, self._heard_ms = True, now_ms
        actions: list[Action] = []
        over = self.lease_over(now_ms)
        for entry in self.entries.values():
            if entry.state == "exited":
                continue
            if over and not entry.problem:
                entry.problem = LEASE_OVER
                actions += self._kill(entry)
            elif entry.kill_at_ms is not None and now_ms >= entry.kill_at_ms and not entry.kill_sent:
                actions += self._kill(entry)
        return actions

    def living(self) -> list[ReplicaEntry]:
        """Return entries of replicas that have processes, or may have."""
        return [e for e in self.entries.values() if e.state != "exited"]

    # To the server.

    def next_report(self, now_ms: int) -> AgentReport | None:
        """Return the report that is due now, or None: what changed at once, everything at each heartbeat."""
        if not self._session:
            return None
        full = now_ms >= self._next_heartbeat_ms
        fresh = any(seq == 0 for seq, _ in self._progress)
        others = self._check is not None or self._devices_changed or self._inspected
        if not (full or self._changed or fresh or others):
            return None
        if full:
            self._next_heartbeat_ms = now_ms + self.heartbeat_ms
        keys = list(self.entries) if full else sorted(self._changed)
        self._changed.clear()
        self._report_seq += 1
        self._sent[self._report_seq] = now_ms
        while len(self._sent) > SENT_KEPT_MAX:
            del self._sent[next(iter(self._sent))]
        told = [p for seq, p in self._progress if full or seq == 0]
        self._progress = [(seq or self._report_seq, p) for seq, p in self._progress]
        if full:
            self._progress = [(self._report_seq, p) for _, p in self._progress]
        ends = any(k in self.entries and self.entries[k].state == "exited" for k in keys)
        news = self._devices if full or self._devices_changed or ends else None  # what an exit may be due to
        report = NodeReport(
            node=self.node,
            incarnation=self.incarnation,
            seq=self._report_seq,
            inventory=full,
            replicas=tuple(self._seen(self.entries[k]) for k in keys if k in self.entries),
            progress=tuple(told),
            inspected=tuple(self._inspected),
            check=self._check,
            others=news.others if news is not None else None,
            faults=news.faults if news is not None else None,
            instances=self._instances if full or self._devices_changed else None,
            figures=self._figures,
            power_limit_mw=self.power_limit_mw if full else None,
            disk_problem=self.disk_problem,
            leaving=self.leaving,
        )
        self._inspected.clear()
        self._check = self._figures = None
        self._devices_changed = False
        return AgentReport(self._epoch, self._session, report)

    def report_all(self) -> None:
        """Make the next report an inventory, due at once."""
        self._next_heartbeat_ms = 0

    def _seen(self, entry: ReplicaEntry) -> ReplicaSeen:
        refused, entry.refused = entry.refused, ""
        suspension = entry.suspension if entry.state == "frozen" else 0
        return ReplicaSeen(entry.key, entry.state, entry.pid, entry.exit, suspension, refused)

    def due_ms(self, *, connected: bool) -> int | None:
        """Return when `on_time` or, while connected, `next_report` has something to do; None when nothing is due.

        Only what will then be done counts: a time that has passed without effect would make the caller spin.
        """
        living = self.living()
        due = [e.kill_at_ms for e in living if e.kill_at_ms is not None and not e.kill_sent]
        if connected and self._session:
            due.append(self._next_heartbeat_ms)
        if self.lease_until_ms is not None and any(not e.problem for e in living):
            due.append(self.lease_until_ms)
        return min(due, default=None)
