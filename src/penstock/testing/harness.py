"""A `World` drives the real decisions without clock, disk or processes.

Every commit of a world is checked against all invariants, so each test is also a test of them.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.core.cycle.planner import Planner
from penstock.core.lifecycle import draining, orders, reports, requests
from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import Addressed, Order
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen, SeenState
from penstock.core.messages.requests import Submitted
from penstock.core.model import events as ev
from penstock.core.model.cluster import (
    ClusterConfig,
    NodeSpec,
    Settings,
)
from penstock.core.model.ids import Incarnation, JobId, NodeName, Rank, UserName
from penstock.core.model.jobs import Attempt, ExitInfo, Job, JobSpec, JobState
from penstock.core.model.plan import Plan
from penstock.core.model.progress import Gauges
from penstock.core.order.extension import OrderPolicy, registry
from penstock.core.place.index import ClusterIndex
from penstock.core.state import invariants
from penstock.core.state.snapshot import Snapshot, take_snapshot
from penstock.core.state.state import State
from penstock.testing.builders import config, job_spec, node

T = TypeVar("T")


class World:
    """A state with its log, moved by the real decisions; `now` (unix ms) moves by `tick` alone, or as you set it.

    Args:
        policies: order policies of your own, which queues name as `ext:NAME`.
        settings: arguments of `builders.config`.
    """

    def __init__(self, *nodes: NodeSpec, policies: Iterable[OrderPolicy] = (), **settings: Any) -> None:
        self.state = State()
        self.now = 1_000_000
        self.records: list[ev.Record] = []
        self.ended: dict[JobId, JobState] = {}
        """Final states of jobs that have left the state; `reasons` has the reasons."""
        self.reasons: dict[JobId, str] = {}
        self.orders: list[Addressed] = []
        self.last_plan: Plan | None = None
        self._sent = 0
        self._policies = registry(policies)
        self.planner = Planner(self._policies)
        self.emit(ev.ConfigChanged(config(**settings), UserName("operator")))
        for spec in nodes:
            self.hello(spec)

    def commit(self, decide: Callable[[Transaction], T]) -> T:
        """Return the result of `decide`; its events are folded, and the state is checked against all invariants."""
        tx = Transaction(self.state, self.now)
        result = decide(tx)
        self.records += tx.records
        for job, record in tx.finished:
            assert isinstance(record.event, ev.JobFinished)
            self.ended[job.id], self.reasons[job.id] = record.event.state, record.event.reason
        self.orders += [order for record in tx.records for order in orders.orders_of(record, self.state)]
        invariants.require(self.state)
        return result

    def emit(self, *events: ev.AnyEvent) -> None:
        def all_of_them(tx: Transaction) -> None:
            for event in events:
                tx.emit(event)

        self.commit(all_of_them)

    # Nodes.

    def hello(self, spec: NodeSpec, incarnation: str = "i1", *, ready: bool = True) -> None:
        """Let a node come, or come back; with `ready` its first report follows."""
        self.commit(lambda tx: reports.on_hello(tx, spec, Incarnation(incarnation)))
        if ready:
            self.report(spec.name)

    def report(self, name: str, *seen: ReplicaSeen, inventory: bool | None = None, **fields: Any) -> list[Order]:
        """Send a report and return the orders of reconciliation; without `seen` it lists all replicas there."""
        self._sent += 1
        node_name = NodeName(name)
        known = self.state.nodes[node_name].incarnation
        complete = not seen if inventory is None else inventory
        listed = self._running_on(node_name) if inventory is None and not seen else seen
        message = NodeReport(node_name, fields.pop("incarnation", known), self._sent, complete, tuple(listed), **fields)
        self.commit(lambda tx: reports.on_report(tx, message))
        return orders.reconcile(self.state, message)

    def _running_on(self, name: NodeName) -> tuple[ReplicaSeen, ...]:
        held = sorted(self.state.indexes.load(name).replicas)
        keys = [ReplicaKey(job_id, self.attempt(job_id).number, rank) for job_id, rank in held]
        return tuple(ReplicaSeen(key, "running") for key in keys if self.replica(key).state == "started")

    def lose(self, name: str) -> None:
        self.commit(lambda tx: reports.lose_node(tx, NodeName(name), "lease ran out"))

    def drain(self, name: str, *, on: bool = True, evict: bool = False) -> bool:
        operator = UserName("op")
        return self.commit(
            lambda tx: draining.drain(tx, NodeName(name), on=on, by=operator, reason="repair", evict=evict)
        )

    # Jobs.

    def submit(self, devices: int = 1, replicas: int = 1, **fields: Any) -> JobId:
        """Submit one job as `builders.job_spec` makes it, and return its number."""
        user = fields.pop("user", "ann")
        answer = self.request(job_spec(devices, replicas, **fields), user=user)
        assert isinstance(answer, Submitted), answer
        return answer.job_ids[0]

    def request(self, *specs: JobSpec, key: str = "", digest: str = "", array: int = 0, user: str = "ann") -> Any:
        """Return the answer to one request: `Submitted` or `Refusal`."""
        jobs = tuple(requests.NewJob(s, array) for s in specs)
        wanted = requests.Submit(jobs, UserName(user), key, digest)
        return self.commit(lambda tx: requests.submit(tx, wanted, self.ended))

    def cancel(self, job_id: int) -> bool:
        return self.commit(lambda tx: requests.cancel(tx, JobId(job_id), UserName("ann")))

    def job(self, job_id: int) -> Job:
        return self.state.jobs[JobId(job_id)]

    def attempt(self, job_id: int) -> Attempt:
        """Return the present attempt of a job; there must be one."""
        attempt = self.job(job_id).attempt
        assert attempt is not None, f"job {job_id} has no attempt"
        return attempt

    def replica(self, key: ReplicaKey) -> Any:
        return self.attempt(key.job_id).replicas[key.rank]

    def phase(self, job_id: int) -> str:
        """Return the job's state, finished ones included."""
        return self.ended.get(JobId(job_id)) or self.job(job_id).state

    def where(self, job_id: int, rank: int = 0) -> str:
        return self.attempt(job_id).replicas[rank].place.node

    def seen(self, job_id: int, rank: int = 0, state: SeenState = "running", **fields: Any) -> ReplicaSeen:
        """Return how the job's node sees a replica."""
        number = fields.pop("attempt", None) or self.job(job_id).last_attempt
        if state == "frozen":
            fields.setdefault("suspension", self.attempt(job_id).suspensions)
        return ReplicaSeen(ReplicaKey(JobId(job_id), number, Rank(rank)), state, **fields)

    def start(self, *job_ids: int) -> None:
        """Report every replica of these jobs as running."""
        for job_id in job_ids:
            for replica in self.attempt(job_id).replicas:
                self.report(replica.place.node, self.seen(job_id, replica.rank), inventory=False)

    def exit_replica(self, job_id: int, rank: int = 0, code: int | None = 0, **exit_fields: Any) -> None:
        info = ExitInfo(code, **exit_fields)
        self.report(self.where(job_id, rank), self.seen(job_id, rank, "exited", exit=info), inventory=False)

    def leave(self, job_id: int) -> None:
        """Let every replica of a job that is being stopped save and leave."""
        for replica in self.attempt(job_id).replicas:
            if replica.holds:
                self.exit_replica(job_id, replica.rank, 0, stop_sent=True)

    def settle(self, job_id: int) -> None:
        self.commit(lambda tx: after_replica_gone(tx, JobId(job_id)))

    # Cycles and time.

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.state)

    def free(self) -> ClusterIndex:
        cluster = ClusterIndex()
        cluster.sync(self.state.indexes.nodes, self.state.indexes.free)
        return cluster

    def plan(self) -> Plan:
        """Plan with indexes kept from earlier cycles, and check that a fresh planner decides the same."""
        snapshot = self.snapshot()
        planned = self.planner.plan(snapshot, self.now)
        assert planned == Planner(self._policies).plan(snapshot, self.now)
        return planned

    def apply(self, proposed: Plan) -> Plan:
        return self.commit(lambda tx: orders.apply_plan(tx, proposed))

    def cycle(self) -> Plan:
        """Plan once and commit it; return the committed plan."""
        self.last_plan = self.apply(self.plan())
        return self.last_plan

    def run(self, *job_ids: int) -> None:
        """Plan once and report the started jobs as running."""
        self.cycle()
        self.start(*job_ids)

    def tick(self, ms: int = 0) -> None:
        self.now += ms
        self.commit(reports.on_time)


def cluster(nodes: int = 2, devices: int = 4, **fields: Any) -> World:
    """Return a world of `nodes` equal ready nodes n0, n1, ... with `devices` each; other fields: nodes', settings."""
    settings = {k: fields.pop(k) for k in list(fields) if k in Settings.__struct_fields__}
    settings |= {k: fields.pop(k) for k in list(fields) if k in ClusterConfig.__struct_fields__ or k == "policies"}
    return World(*(node(f"n{i}", devices, **fields) for i in range(nodes)), **settings)


# Many cycles: started jobs run, jobs that were asked to stop leave.


def follow(w: World) -> None:
    """Report starts as running, and let jobs that were asked to stop save and leave."""
    for job in sorted([*w.state.jobs.values()], key=lambda j: j.id):
        if job.state == "starting":
            w.start(job.id)
        elif job.state == "stopping":
            w.leave(job.id)


def cycles(w: World, count: int, pause_ms: int = 1_000) -> list[tuple[JobId, JobId, str]]:
    """Run cycles, with all orders obeyed at once; return (victim, beneficiary, rule) of every preemption."""
    asked: list[tuple[JobId, JobId, str]] = []
    for _ in range(count):
        planned = w.cycle()
        asked += [(p.victim, p.beneficiary, p.rule) for p in planned.preemptions]
        follow(w)
        w.now += pause_ms
    return asked


def running(w: World) -> set[JobId]:
    """Return the jobs that have an attempt."""
    return {job.id for job in w.state.jobs.values() if job.attempt is not None}


def finish(w: World, job_id: int) -> None:
    """End a job whose replicas have all started."""
    for rank in range(len(w.attempt(job_id).replicas)):
        w.exit_replica(job_id, rank)


def use(w: World, *queue_names: str) -> int:
    """Return whole devices held by jobs of these queues."""
    held = [j.attempt for j in w.state.jobs.values() if j.attempt is not None and j.spec.queue in queue_names]
    return sum(len(r.place.devices) for attempt in held for r in attempt.replicas if r.holds)


def note(w: World, job_id: int, step: int = 1, **gauges: Any) -> None:
    """Report progress of a running job's program."""
    w.emit(ev.ProgressNoted(JobId(job_id), w.attempt(job_id).number, step, Gauges(**gauges)))
