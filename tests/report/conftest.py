"""A small cluster in simulated time, driven through the real core, so that the logs under test are real ones."""

import heapq
from collections.abc import Callable, Sequence

import msgspec
import pytest

from penstock.core.cycle.planner import plan
from penstock.core.lifecycle import draining, orders, reports, requests
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import Order, StartReplica, StopReplica
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.messages.requests import Submitted
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Tenant
from penstock.core.model.ids import Epoch, Incarnation, JobId, NodeName, Rank, TenantName, UserName
from penstock.core.model.jobs import PRIORITY_CLASSES, Dependency, ExitInfo, GangAsk, JobSpec, Topology
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State

START_MS = 1_760_000_000_000
GIB = 2**30
LAUNCH_MS = 350


class Program(msgspec.Struct, frozen=True):
    """What a job's command does: `work_ms` of steps, saving now and then, leaving `save_ms` after being asked."""

    work_ms: int = 10_000
    step_ms: int = 100
    save_every_ms: int = 0
    save_ms: int = 800
    exit_code: int = 0
    saves_on_stop: bool = True


class World:
    """`submit`, `at` and `run`; the log so far is `records`."""

    def __init__(self, tenants: Sequence[str] = ("vision", "speech", "research")) -> None:
        self.state, self.now_ms = State(), START_MS
        self.records: list[ev.Record] = []
        self.programs: dict[JobId, Program] = {}
        self._done_ms: dict[JobId, int] = {}
        self._saved_ms: dict[JobId, int] = {}
        self._began: dict[ReplicaKey, int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        tx = self.transaction()
        tx.emit(ev.LeaderElected(Epoch(1), "demo"))
        declared = tuple(Tenant(TenantName(t)) for t in tenants)
        tx.emit(ev.ConfigChanged(ClusterConfig(tenants=declared), UserName("server")))
        self.commit(tx)

    def transaction(self) -> Transaction:
        return Transaction(self.state, self.now_ms)

    def commit(self, tx: Transaction) -> None:
        self.records += tx.records
        for record in tx.records:
            if isinstance(record.event, ev.JobRequeued):
                self.after(max(0, record.event.not_before_ms - self.now_ms), self.cycle)
            for node, order in orders.orders_of(record, self.state):
                self._obey(node, order)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def run(self, until_ms: int) -> None:
        """Let everything happen that is due up to `until_ms` after the start, with a cycle after each thing."""
        while self._queue and self._queue[0][0] <= START_MS + until_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
            self.cycle()
        self.now_ms = START_MS + until_ms

    def cycle(self) -> None:
        tx = self.transaction()
        orders.apply_plan(tx, plan(take_snapshot(self.state), self.now_ms))
        self.commit(tx)

    def node(self, name: str, devices: int = 4, life: str = "1") -> None:
        model = "Sim-80"
        made = tuple(Device(i, "sim", model, 80 * GIB, simulated=True, uuid=f"{name}-{i}") for i in range(devices))
        spec = NodeSpec(NodeName(name), Resources(16_000, 64 * GIB), made, virtual=True)
        tx = self.transaction()
        reports.on_hello(tx, spec, Incarnation(f"{name}/{life}"))
        reports.on_report(tx, NodeReport(spec.name, Incarnation(f"{name}/{life}"), 1, True))
        self.commit(tx)

    def lose(self, name: str, silent_ms: int = 0) -> None:
        tx = self.transaction()
        heard_ms = self.now_ms - silent_ms if silent_ms else 0
        reports.lose_node(tx, NodeName(name), "no heartbeat within its lease", heard_ms)
        self.commit(tx)

    def drain(self, name: str, *, on: bool) -> None:
        tx = self.transaction()
        draining.drain(tx, NodeName(name), on=on, by=UserName("ops"), reason="kernel", evict=False)
        self.commit(tx)

    def cancel(self, job_id: int) -> None:
        tx = self.transaction()
        requests.cancel(tx, JobId(job_id), UserName("mia"))
        self.commit(tx)

    def submit(self, name: str, program: Program, *, array: int = 0, user: str = "mia", **spec: object) -> int:
        """Submit one entry; return the id of its first job."""
        tx = self.transaction()
        new = requests.NewJob(job_spec(name, **spec), array)
        answer = requests.submit(tx, requests.Submit((new,), UserName(user)), {})
        assert isinstance(answer, Submitted), answer
        self.programs.update(dict.fromkeys(answer.job_ids, program))
        self.commit(tx)
        return answer.job_ids[0]

    def _obey(self, node: NodeName, order: Order) -> None:
        match order:
            case StartReplica():
                self.after(LAUNCH_MS, lambda: self._start(node, order.key))
            case StopReplica():
                program = self.programs[order.key.job_id]
                self.after(program.save_ms, lambda: self._leave(node, order.key))
            case _:
                raise AssertionError(order)

    def _report(
        self,
        node: NodeName,
        *replicas: ReplicaSeen,
        progress: tuple[ProgressSeen, ...] = (),
    ) -> None:
        tx = self.transaction()
        known = self.state.nodes[node]
        reports.on_report(tx, NodeReport(node, known.incarnation, 2, False, replicas, progress))
        self.commit(tx)

    def _live(self, node: NodeName, key: ReplicaKey) -> bool:
        return reports.current(self.state, node, key) is not None

    def _start(self, node: NodeName, key: ReplicaKey) -> None:
        if not self._live(node, key):
            return
        self._report(node, ReplicaSeen(key, "running", 4242))
        if key.rank != 0:
            return
        program, self._began[key] = self.programs[key.job_id], self.now_ms
        done_ms, saved_ms = self._done_ms.get(key.job_id, 0), self._saved_ms.get(key.job_id, 0)
        if key.attempt > 1 and program.save_every_ms:
            tx = self.transaction()
            steps = (saved_ms // program.step_ms, max(0, done_ms - saved_ms) // program.step_ms)
            tx.emit(ev.JobResumed(key.job_id, key.attempt, *steps))
            self.commit(tx)
        self._done_ms[key.job_id] = saved_ms
        for moment_ms in range(saved_ms, program.work_ms, program.save_every_ms or program.work_ms):
            if moment_ms > saved_ms:
                self.after(moment_ms - saved_ms, lambda at=moment_ms: self._save(node, key, at, "interval"))
        self.after(program.work_ms - saved_ms, lambda: self._finish(key))

    def _save(self, node: NodeName, key: ReplicaKey, done_ms: int, why: str) -> None:
        if self._live(node, key):
            self._saved_ms[key.job_id] = self._done_ms[key.job_id] = done_ms
            step = done_ms // self.programs[key.job_id].step_ms
            self._report(node, progress=(ProgressSeen(key, "checkpoint", step, 2**20, why),))

    def _done_now(self, key: ReplicaKey) -> int:
        """What an attempt has done: it went on from the last save, which does not move while it lives on."""
        zero = ReplicaKey(key.job_id, key.attempt, Rank(0))
        began_ms = self._began.get(zero)
        resumed = next((r for r in reversed(self.records) if _resumed(r, key)), None)
        first = resumed.event.step * self.programs[key.job_id].step_ms if resumed else 0
        return first + (self.now_ms - began_ms if began_ms is not None else 0)

    def _leave(self, node: NodeName, key: ReplicaKey) -> None:
        if not self._live(node, key):
            return
        if key.rank == 0 and self.programs[key.job_id].saves_on_stop:
            self._save(node, key, self._done_now(key), "stop")
        self._report(node, ReplicaSeen(key, "exited", exit=ExitInfo(code=0, stop_sent=True)))

    def _finish(self, key: ReplicaKey) -> None:
        job = self.state.jobs.get(key.job_id)
        if job is None or job.attempt is None or job.attempt.number != key.attempt:
            return
        info = ExitInfo(code=self.programs[key.job_id].exit_code)
        for replica in job.attempt.replicas:
            one = ReplicaKey(key.job_id, key.attempt, replica.rank)
            self._report(replica.place.node, ReplicaSeen(one, "exited", exit=info))

    def note_work(self, name: str) -> None:
        """Remember how far the jobs on a node came, before it is lost."""
        for job_id, _ in self.state.indexes.load(NodeName(name)).replicas:
            attempt = self.state.jobs[job_id].attempt
            assert attempt is not None
            key = ReplicaKey(job_id, attempt.number, Rank(0))
            self._done_ms[job_id] = self._done_now(key)


def _resumed(record: ev.Record, key: ReplicaKey) -> bool:
    event = record.event
    return isinstance(event, ev.JobResumed) and (event.job_id, event.attempt) == (key.job_id, key.attempt)


def job_spec(
    name: str,
    *,
    tenant: str = "vision",
    devices: int = 0,
    replicas: int = 1,
    cpu: int = 1,
    priority: str = "medium",
    after: Sequence[int] = (),
    spread: bool = False,
    retries: int = 0,
) -> JobSpec:
    each = ReplicaAsk(Resources(cpu * 1000, GIB), DeviceAsk(devices) if devices else None)
    topology = Topology("spread") if spread else None
    return JobSpec(
        command=("python", "train.py"),
        ask=GangAsk(replicas, each, topology=topology),
        name=name,
        tenant=TenantName(tenant),
        priority=PRIORITY_CLASSES[priority],
        after=tuple(Dependency(JobId(i), "after_ok") for i in after),
        grace_ms=5_000,
        retries_max=retries,
    )


def story() -> World:
    """A busy two and a half minutes: a preemption, a lost node and its return, a gang, an array, a chain."""
    world = World()
    world.node("node-a")
    world.node("node-b")
    at, submit = world.after, world.submit
    gang = Program(26_000, save_every_ms=8_000, saves_on_stop=False)
    research = {"tenant": "research", "devices": 1}

    def saving(work_ms: int) -> Program:
        return Program(work_ms, save_every_ms=10_000)

    at(500, lambda: submit("pretrain-vit", Program(64_000, save_every_ms=10_000), devices=4, priority="low"))
    at(1_500, lambda: submit("asr-base", saving(33_000), tenant="speech", devices=2))
    at(2_500, lambda: submit("lm-eval", Program(13_000), tenant="research", devices=1, user="noa"))
    at(4_000, lambda: submit("sweep-lr", Program(5_000), array=12, user="noa", **research, priority="low"))
    at(6_000, lambda: submit("tokenize", Program(15_000), tenant="speech", cpu=4, user="ida"))
    at(6_100, lambda: submit("train-tokens", saving(16_000), tenant="speech", devices=2, after=[16], user="ida"))
    at(6_200, lambda: submit("report", Program(5_000), tenant="speech", cpu=2, after=[17], user="ida"))
    at(9_000, lambda: submit("bad-config", Program(3_500, exit_code=1), **research, priority="low", retries=1))
    at(20_000, lambda: submit("urgent-detector", Program(22_000), devices=4, priority="high", user="kim"))
    at(30_000, lambda: submit("gang-llm", gang, tenant="research", replicas=4, devices=2, user="noa"))
    at(34_000, lambda: submit("wrong-dataset", Program(40_000), devices=2, user="kim"))
    at(41_000, lambda: world.cancel(22))
    at(57_000, lambda: world.note_work("node-b"))
    at(57_000, lambda: world.lose("node-b"))
    at(68_000, lambda: world.node("node-b", life="2"))
    at(104_000, lambda: world.drain("node-a", on=True))
    at(116_000, lambda: world.drain("node-a", on=False))
    world.run(200_000)
    return world


@pytest.fixture(scope="session")
def story_log() -> tuple[list[ev.Record], int]:
    world = story()
    return world.records, world.now_ms


@pytest.fixture
def world() -> World:
    world = World()
    world.node("node-a")
    return world


@pytest.fixture
def program() -> type[Program]:
    return Program
