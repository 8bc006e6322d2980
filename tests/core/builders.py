"""Builders for small clusters, and a `World` that drives the real decisions without clock, disk or processes.

Every commit of a world is checked against all invariants, so each test is also a test of them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.cycle.planner import Planner, plan
from penstock.core.lifecycle import draining, orders, reports, requests
from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import Addressed
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.messages.requests import Submitted
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Queue, Settings
from penstock.core.model.jobs import ExitInfo, GangAsk, Job, JobSpec, ReplicaPlace, Topology
from penstock.core.model.plan import Plan
from penstock.core.model.resources import Device, DeviceAsk, DeviceLink, ReplicaAsk, Resources
from penstock.core.place.index import FreeCluster
from penstock.core.state import invariants
from penstock.core.state.snapshot import Snapshot, take_snapshot
from penstock.core.state.state import State

GIB = 2**30
T = TypeVar("T")


def device(index: int, **fields: Any) -> Device:
    given = {"vendor": "nvidia", "model": "A100", "memory_bytes": 80 * GIB, "capability": (8, 0)} | fields
    return Device(index, **given)


def linked(index: int, kind: str, *peers: int, **fields: Any) -> Device:
    return device(index, links=tuple(DeviceLink(p, kind) for p in peers if p != index), **fields)


def node(name: str = "a", devices: int | tuple[Device, ...] = 4, *, cpus: int = 16, **fields: Any) -> NodeSpec:
    found = tuple(device(i) for i in range(devices)) if isinstance(devices, int) else devices
    return NodeSpec(name, Resources(cpus * 1000, fields.pop("memory_gib", 64) * GIB), found, **fields)


def ask(devices: int = 1, replicas: int = 1, *, cpus: int = 1, memory_gib: int = 0, **fields: Any) -> GangAsk:
    """Return an ask; fields of the gang are taken by name, all others are of its devices."""
    gang = {k: fields.pop(k) for k in ("pool", "labels_wanted", "labels_shunned") if k in fields}
    scope, required = fields.pop("topology", None), fields.pop("required", True)
    each = ReplicaAsk(Resources(cpus * 1000, memory_gib * GIB), DeviceAsk(devices, **fields) if devices else None)
    return GangAsk(replicas, each, topology=Topology(scope, required) if scope else None, **gang)


JOB_FIELDS = frozenset(JobSpec.__struct_fields__) - {"command", "ask"}


def job_spec(devices: int = 1, replicas: int = 1, **fields: Any) -> JobSpec:
    """Return a job; fields of the job are taken by name, all others go to `ask`."""
    own = {k: fields.pop(k) for k in list(fields) if k in JOB_FIELDS}
    given = fields.pop("gang", None)
    return JobSpec(("true",), given or ask(devices, replicas, **fields), **own)


def queues(*names: str, **fields: Any) -> tuple[Queue, ...]:
    return tuple(Queue(name, **fields) for name in names)


def config(**fields: Any) -> ClusterConfig:
    """Return a configuration; everything that is not one of its fields is a setting."""
    own = {k: fields.pop(k) for k in list(fields) if k in ClusterConfig.__struct_fields__}
    return ClusterConfig(settings=Settings(**fields), **own)


def chips(*places: ReplicaPlace) -> list[tuple[str, tuple[int, ...]]]:
    return [(p.node, p.devices) for p in places]


class World:
    """A state with its log, moved by the real decisions; `now` moves only when told to."""

    def __init__(self, *nodes: NodeSpec, **settings: Any) -> None:
        self.state = State()
        self.now = 1_000_000
        self.records: list[ev.Record] = []
        self.ended: dict[int, str] = {}
        self.reasons: dict[int, str] = {}
        self.orders: list[Addressed] = []
        self.last_plan: Plan | None = None
        self._sent = 0
        self.planner = Planner()
        self.emit(ev.ConfigChanged(config(**settings), "operator"))
        for spec in nodes:
            self.hello(spec)

    def commit(self, decide: Callable[[Transaction], T]) -> T:
        tx = Transaction(self.state, self.now)
        result = decide(tx)
        self.records += tx.records
        for job, record in tx.finished:
            assert isinstance(record.event, ev.JobFinished)
            self.ended[job.id], self.reasons[job.id] = record.event.state, record.event.reason
        self.orders += [found for record in tx.records for found in orders.orders_of(record, self.state)]
        invariants.require(self.state)
        return result

    def emit(self, *events: ev.AnyEvent) -> None:
        self.commit(lambda tx: [tx.emit(event) for event in events])

    def hello(self, spec: NodeSpec, incarnation: str = "i1", *, ready: bool = True) -> None:
        self.commit(lambda tx: reports.on_hello(tx, spec, incarnation))
        if ready:
            self.report(spec.name)

    def report(self, name: str, *seen: ReplicaSeen, inventory: bool | None = None, **fields: Any) -> list:
        """Send a report and return what reconciliation answers; without `seen` it lists all that is there."""
        self._sent += 1
        known = self.state.nodes[name].incarnation
        complete = not seen if inventory is None else inventory
        listed = self._running_on(name) if inventory is None and not seen else seen
        message = NodeReport(name, fields.pop("incarnation", known), self._sent, complete, listed, **fields)
        self.commit(lambda tx: reports.on_report(tx, message))
        return orders.reconcile(self.state, message)

    def _running_on(self, name: str) -> tuple[ReplicaSeen, ...]:
        keys = [ReplicaKey(j, self.job(j).attempt.number, r) for j, r in self._load(name)]
        return tuple(ReplicaSeen(k, "running") for k in keys if self.replica(k).state == "started")

    def _load(self, name: str) -> list[tuple[int, int]]:
        return sorted(self.state.derived.load(name).replicas)

    def replica(self, key: ReplicaKey) -> Any:
        return self.job(key.job_id).attempt.replicas[key.rank]

    def submit(self, devices: int = 1, replicas: int = 1, **fields: Any) -> int:
        user = fields.pop("user", "ann")
        answer = self.request(job_spec(devices, replicas, **fields), user=user)
        assert isinstance(answer, Submitted), answer
        return answer.job_ids[0]

    def request(self, *specs: JobSpec, key: str = "", digest: str = "", array: int = 0, user: str = "ann") -> Any:
        jobs = tuple(requests.NewJob(s, array) for s in specs)
        wanted = requests.Submit(jobs, user, key, digest)
        return self.commit(lambda tx: requests.submit(tx, wanted, self.ended))

    def job(self, job_id: int) -> Job:
        return self.state.jobs[job_id]

    def phase(self, job_id: int) -> str:
        """Return the job's state, finished ones included."""
        return self.ended.get(job_id) or self.state.jobs[job_id].state

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.state)

    def free(self) -> FreeCluster:
        cluster = FreeCluster()
        cluster.sync(self.state.derived.nodes, self.state.derived.free)
        return cluster

    def plan(self) -> Plan:
        """Plan with indexes kept from earlier cycles, and check that a fresh planner decides the same."""
        snapshot = self.snapshot()
        found = self.planner.plan(snapshot, self.now)
        assert found == plan(snapshot, self.now)
        return found

    def apply(self, proposed: Plan) -> Plan:
        return self.commit(lambda tx: orders.apply_plan(tx, proposed))

    def cycle(self) -> Plan:
        self.last_plan = self.apply(self.plan())
        return self.last_plan

    def seen(self, job_id: int, rank: int = 0, state: str = "running", **fields: Any) -> ReplicaSeen:
        number = fields.pop("attempt", None) or self.job(job_id).last_attempt
        if state == "frozen":
            fields.setdefault("suspension", self.job(job_id).attempt.suspensions)
        return ReplicaSeen(ReplicaKey(job_id, number, rank), state, **fields)

    def where(self, job_id: int, rank: int = 0) -> str:
        return self.job(job_id).attempt.replicas[rank].place.node

    def start(self, *job_ids: int) -> None:
        """Report every replica of these jobs as running."""
        for job_id in job_ids:
            for replica in self.job(job_id).attempt.replicas:
                self.report(replica.place.node, self.seen(job_id, replica.rank), inventory=False)

    def run(self, *job_ids: int) -> None:
        """Plan once and report what was started as running."""
        self.cycle()
        self.start(*job_ids)

    def exit_replica(self, job_id: int, rank: int = 0, code: int | None = 0, **exit_fields: Any) -> None:
        info = ExitInfo(code, **exit_fields)
        self.report(self.where(job_id, rank), self.seen(job_id, rank, "exited", exit=info), inventory=False)

    def leave(self, job_id: int) -> None:
        """Let every replica of a job that is being stopped save and leave."""
        for replica in self.job(job_id).attempt.replicas:
            if replica.holds:
                self.exit_replica(job_id, replica.rank, 0, stop_sent=True)

    def lose(self, name: str) -> None:
        self.commit(lambda tx: reports.lose_node(tx, name, "lease ran out"))

    def cancel(self, job_id: int) -> bool:
        return self.commit(lambda tx: requests.cancel(tx, job_id, "ann"))

    def drain(self, name: str, *, on: bool = True, evict: bool = False) -> bool:
        return self.commit(lambda tx: draining.drain(tx, name, on=on, by="op", reason="repair", evict=evict))

    def tick(self, ms: int = 0) -> None:
        self.now += ms
        self.commit(reports.on_time)

    def settle(self, job_id: int) -> None:
        self.commit(lambda tx: after_replica_gone(tx, job_id))


def cluster(nodes: int = 2, devices: int = 4, **fields: Any) -> World:
    """Return a world of `nodes` equal ready nodes n0, n1, ... with `devices` each."""
    settings = {k: fields.pop(k) for k in list(fields) if k in Settings.__struct_fields__}
    settings |= {k: fields.pop(k) for k in list(fields) if k in ClusterConfig.__struct_fields__}
    return World(*(node(f"n{i}", devices, **fields) for i in range(nodes)), **settings)
