"""The contract between an engine and the control loop, as tests that the engine's author runs.

    class TestMyEngine(EngineConformance):
        def bench(self, server):
            return MyBench(server)

pytest collects the class; nothing else of pytest is needed. Each test is the server of one node: it sends orders and
checks the reports. `core.lifecycle` relies on all of it: an attempt starts once, however often its start is sent; an
exit is reported until it is acknowledged; no process outlives its lease.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

from penstock.core.messages.orders import (
    Acknowledge,
    CheckNode,
    FreezeReplica,
    Order,
    StartReplica,
    StopReplica,
    ThawReplica,
)
from penstock.core.messages.reports import NodeCheck, NodeReport, ReplicaKey, ReplicaSeen, SeenState
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import AttemptNumber, Epoch, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.ports import Engine, NodeSession

T = TypeVar("T")
LEASE_MS, HEARTBEAT_MS = 20_000, 100
SHORT_LEASE_MS = 2_000
PATIENCE_MS = 30_000
"""Of the engine's time: how long a test waits for a report."""
STEP_MS = 20
MOMENT_MS = 1_000
"""How long a test watches for a report that must not come."""

ProgramName = Literal["ends", "fails", "runs", "ignores stop"]
PROGRAMS: Mapping[ProgramName, tuple[str, ...]] = {
    "ends": ("sh", "-c", "exit 0"),
    "fails": ("sh", "-c", "exit 3"),
    "runs": ("sleep", "600"),
    "ignores stop": ("sh", "-c", "trap '' TERM; while true; do sleep 1; done"),
}
"""Commands for an engine that runs processes: one that ends well, one with exit code 3, one that runs until it is asked
to stop, one that ignores the stop signal."""


class Bench(Protocol):
    """A started engine with one node that reports to `server`, and a way to let its time pass."""

    @property
    def engine(self) -> Engine: ...

    def pass_time(self, ms: int) -> None:
        """Let `ms` of the engine's time pass."""
        ...

    def close(self) -> None:
        """End the engine, and all programs that it has started."""
        ...


class SuiteServer:
    """The `EngineEvents` of a conformance test: records what it gets, answers as `answer` says."""

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.hellos: list[tuple[NodeSpec, Incarnation]] = []
        self.reports: list[NodeReport] = []
        self.answer: Literal["take", "nothing", "hang up", "not accepted", "refuse"] = "take"
        """Answer to the next hello or report. `hang up` and `not accepted` count for one answer, then it is `take`."""

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        self.hellos.append((spec, incarnation))
        if self.answer == "refuse":
            session.refuse("the suite refuses it")
        elif self.answer != "nothing":
            session.welcome(Epoch(1), self.lease_ms, HEARTBEAT_MS)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        self.reports.append(report)
        if self.answer == "hang up":
            self.answer = "take"
            session.close()
        elif self.answer != "nothing":
            accepted, self.answer = self.answer != "not accepted", "take"
            session.taken(report.seq, (), accepted=accepted)

    def seen(self, key: ReplicaKey, since: int = 0) -> list[ReplicaSeen]:
        """Return how a replica was reported, in order."""
        return [seen for report in self.reports[since:] for seen in report.replicas if seen.key == key]


class EngineConformance:
    """Subclass it as `Test...` and define how your engine starts."""

    server: SuiteServer
    on: Bench

    def bench(self, server: SuiteServer) -> Bench:
        """Return your engine with one node, which says hello to `server`."""
        raise NotImplementedError

    def command(self, program: ProgramName) -> tuple[str, ...]:
        """Return the command of a program; override it for an engine without a shell."""
        return PROGRAMS[program]

    def setup_method(self) -> None:
        self.begin(LEASE_MS)

    def begin(self, lease_ms: int) -> None:
        """Start the engine, and wait for its node's first report."""
        self.server = SuiteServer(lease_ms)
        self.on = self.bench(self.server)
        try:
            self.until(lambda: self.server.reports, "the node has reported")
        except BaseException:
            self.on.close()
            raise

    def teardown_method(self) -> None:
        self.on.close()

    # Helpers of the tests.

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Return the first true value of `condition`, while time passes."""
        for _ in range(PATIENCE_MS // STEP_MS):
            if value := condition():
                return value
            self.on.pass_time(STEP_MS)
        raise AssertionError(f"waited {PATIENCE_MS / 1000:g} s of the engine's time until {what}")

    def send(self, *orders: Order) -> None:
        self.on.engine.send([(self.server.hellos[-1][0].name, order) for order in orders])

    def start_order(self, job: int, program: ProgramName = "runs", *, incarnation: str = "") -> StartReplica:
        return StartReplica(
            ReplicaKey(JobId(job), AttemptNumber(1), Rank(0)),
            Incarnation(incarnation) or self.server.hellos[-1][1],
            self.command(program),
            ReplicaAsk(Resources(cpu_milli=100)),
            devices=(),
            env=(),
            world_size=1,
            local_rank=0,
            local_world_size=1,
            node_rank=0,
            node_names=(self.server.hellos[-1][0].name,),
            master_address="127.0.0.1",
            master_port=0,
        )

    def start(self, job: int, program: ProgramName = "runs", state: SeenState = "running") -> ReplicaKey:
        """Start a program and return its key once it was reported in a state."""
        order = self.start_order(job, program)
        self.send(order)
        self.reported(order.key, state)
        return order.key

    def reported(self, key: ReplicaKey, state: SeenState, since: int = 0) -> ReplicaSeen:
        """Return the first report of a replica in a state."""

        def first() -> ReplicaSeen | None:
            return next((seen for seen in self.server.seen(key, since) if seen.state == state), None)

        seen = self.until(first, f"replica {key} is reported as {state}")
        assert seen is not None
        return seen

    def exit_of(self, key: ReplicaKey) -> ExitInfo:
        seen = self.reported(key, "exited")
        assert seen.exit is not None, "an exit is reported with how it came"
        return seen.exit

    def next_inventory(self) -> NodeReport:
        """Return the first full report that was made from now on."""
        self.on.pass_time(STEP_MS)
        since = len(self.server.reports)
        report = self.until(
            lambda: next((report for report in self.server.reports[since:] if report.inventory), None), "all is listed"
        )
        assert report is not None
        return report

    def never(self, condition: Callable[[], object], what: str) -> None:
        for _ in range(MOMENT_MS // STEP_MS):
            self.on.pass_time(STEP_MS)
            assert not condition(), what

    # Nodes and their reports.

    def test_a_node_introduces_itself_and_then_lists_what_runs_there(self) -> None:
        spec, incarnation = self.server.hellos[0]
        first = self.server.reports[0]
        assert (first.node, first.incarnation) == (spec.name, incarnation)
        assert first.inventory, "the first report lists everything"
        assert first.replicas == ()

    def test_reports_are_numbered_upwards_and_come_at_least_at_each_heartbeat(self) -> None:
        self.on.pass_time(20 * HEARTBEAT_MS)
        numbers = [report.seq for report in self.server.reports]
        assert numbers == sorted(set(numbers)), "each report has a higher number than the one before"
        assert len(numbers) >= 5, "a node reports although nothing happens there"

    def test_a_node_whose_connection_ends_comes_back_as_the_same(self) -> None:
        key = self.start(1)
        self.server.answer = "hang up"
        self.until(lambda: len(self.server.hellos) > 1, "it says hello again")
        assert self.server.hellos[1][1] == self.server.hellos[0][1], "it has lost no process: the same incarnation"
        assert key in [seen.key for seen in self.next_inventory().replicas]

    def test_a_node_that_is_not_known_any_more_says_hello_again(self) -> None:
        self.server.answer = "not accepted"
        self.until(lambda: len(self.server.hellos) > 1, "it says hello again")

    def test_a_node_that_is_refused_reports_nothing(self) -> None:
        self.server.answer = "hang up"
        self.until(lambda: self.server.answer == "take", "its connection ends")
        self.server.answer = "refuse"
        count = len(self.server.hellos)
        reports = len(self.server.reports)
        self.until(lambda: len(self.server.hellos) > count, "it tries again")
        self.never(lambda: len(self.server.reports) > reports, "a refused node does not report")

    def test_an_order_for_a_node_that_is_not_there_is_dropped(self) -> None:
        order = self.start_order(1)
        self.on.engine.send([(NodeName("nowhere"), order)])
        self.never(lambda: self.server.seen(order.key), "it was for another node")

    # Starts and exits.

    def test_a_program_runs_and_ends_with_its_exit_code(self) -> None:
        assert self.exit_of(self.start(1, "ends", "exited")).code == 0
        assert self.exit_of(self.start(2, "fails", "exited")).code == 3

    def test_an_exit_is_reported_until_it_is_acknowledged_and_then_no_more(self) -> None:
        key = self.start(1, "ends", "exited")
        for _ in range(2):
            assert [seen.state for seen in self.next_inventory().replicas if seen.key == key] == ["exited"]
        self.send(Acknowledge(key))
        self.until(lambda: key not in [seen.key for seen in self.next_inventory().replicas], "it is forgotten")

    def test_a_start_that_comes_twice_starts_once(self) -> None:
        order = self.start_order(1)
        self.send(order, order)
        pids = {self.reported(order.key, "running").pid}
        self.send(order)
        self.on.pass_time(MOMENT_MS)
        assert {seen.pid for seen in self.server.seen(order.key) if seen.state == "running"} == pids

    def test_what_has_ended_is_not_started_again_by_a_late_order(self) -> None:
        key = self.start(1, "ends", "exited")
        since = len(self.server.reports)
        self.send(self.start_order(1, "ends"))
        self.never(lambda: {s.state for s in self.server.seen(key, since)} - {"exited"}, "an attempt runs once")

    def test_a_start_for_another_life_of_the_node_is_not_obeyed(self) -> None:
        order = self.start_order(1, incarnation="another")
        self.send(order)
        self.never(lambda: self.server.seen(order.key), "it was for processes that are gone")

    # Stops.

    def test_a_program_is_asked_to_stop_and_its_exit_says_so(self) -> None:
        key = self.start(1)
        self.send(StopReplica(key, grace_ms=10_000))
        assert self.exit_of(key).stop_sent

    def test_a_program_that_ignores_its_stop_is_killed_after_its_grace(self) -> None:
        key = self.start(1, "ignores stop")
        self.on.pass_time(MOMENT_MS)
        self.send(StopReplica(key, grace_ms=500))
        assert self.exit_of(key).stop_sent

    def test_a_stop_without_grace_ends_at_once(self) -> None:
        key = self.start(1, "ignores stop")
        self.send(StopReplica(key, grace_ms=0))
        assert self.exit_of(key).signal == 9

    def test_a_stop_that_overtakes_its_start_is_answered_and_nothing_starts(self) -> None:
        order = self.start_order(1)
        self.send(StopReplica(order.key, grace_ms=1_000))
        self.exit_of(order.key)
        self.send(order)
        self.never(lambda: {s.state for s in self.server.seen(order.key)} - {"exited"}, "it was stopped before")

    def test_a_program_is_frozen_and_thawed_or_the_node_says_why_not(self) -> None:
        key = self.start(1)
        since = len(self.server.reports)
        self.send(FreezeReplica(key, number=1))
        answers = self.until(
            lambda: [s for s in self.server.seen(key, since) if s.state == "frozen" or s.refused], "it is answered"
        )
        assert answers[0].refused or answers[0].suspension == 1, "the report names the suspension"
        since = len(self.server.reports)
        self.send(ThawReplica(key))
        self.reported(key, "running", since)

    def test_a_node_that_is_asked_to_check_itself_says_what_it_found(self) -> None:
        self.send(CheckNode())
        checks: Sequence[NodeCheck | None] = self.until(
            lambda: [report.check for report in self.server.reports if report.check], "it has checked itself"
        )
        assert checks[0] is not None

    # The lease.

    def test_no_program_outlives_its_lease_and_its_exit_names_the_cause(self) -> None:
        self.on.close()
        self.begin(SHORT_LEASE_MS)
        key = self.start(1)
        self.server.answer = "nothing"
        self.on.pass_time(SHORT_LEASE_MS + MOMENT_MS)
        self.server.answer = "take"
        assert self.exit_of(key).problem, "the exit says that the program did not end by itself"
