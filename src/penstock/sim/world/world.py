"""One simulated world: machines, faults and the checks that run after every step of it."""

import random
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.cluster import DEFAULT_POOL, ClusterConfig, NodeSpec, Pool, Queue, Quota, Settings, Tenant
from penstock.core.model.errors import BrokenInvariant, StoreError
from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId, NodeName, QueueName, TenantName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.core.state import invariants
from penstock.core.state.state import State, fold
from penstock.devices.discovery import simulated
from penstock.engines.local import protocol
from penstock.sim.world.claims import Claims, has_claims
from penstock.sim.world.clients import Clients
from penstock.sim.world.clockwork import Agenda
from penstock.sim.world.disk import PowerCut, SimDisk
from penstock.sim.world.faults import plan_faults
from penstock.sim.world.hostile import Hostile, is_hostile
from penstock.sim.world.money import Money, has_money
from penstock.sim.world.network import Network
from penstock.sim.world.node import SimNode
from penstock.sim.world.outcomes import final_violations
from penstock.sim.world.programs import Process, SharedWork
from penstock.sim.world.server import SimServer
from penstock.sim.world.telling import telling

SAFETY_MS = 60_000
LIVENESS_MS = 900_000
CLAIMS_LIVENESS_MS = 4_500_000
"""Where a tenant claims faults: a node that is shut to it is checked once in five minutes, and shut again."""
STEPS_MAX = 200_000
VIOLATIONS_MAX = 5


class Outcome(msgspec.Struct, frozen=True):
    """What one seed came to. `violations` empty means that every promise held."""

    seed: int
    violations: tuple[str, ...]
    probes: dict[str, int]
    records: int
    steps: int
    simulated_ms: int
    jobs: int


TENANT_QUOTAS: tuple[Quota, ...] = ((), (), (("devices", 9_000),), (("devices", 10_000), ("jobs", 5)))
"""Maxima of tenants: loose enough that each job fits below them alone."""


class World:
    """Chosen by a seed. `run` plays the safety phase, heals everything, and waits for all work to drain."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = random.Random(seed)
        self._rng = rng
        self.agenda = Agenda()
        self.disk = SimDisk(random.Random(rng.random()))
        self.network = Network(self.agenda, random.Random(rng.random()))
        self.work = SharedWork()
        self.disk_slowness = 0.0
        self.violations: list[str] = []
        self.probes: Counter[str] = Counter()
        self.tenants = ["t1", "t2", "t3", "t4"][: rng.randint(2, 4)]
        self.config = _config(self.tenants, rng, random.Random(f"{seed} more"), random.Random(f"{seed} quotas"))
        self.config = _with_pool_quotas(self.config, random.Random(f"{seed} pool quotas"))
        self.money = Money(self, random.Random(f"{seed} money")) if has_money(seed) else None
        if self.money is not None:
            self.config = self.money.declare(self.config)
        self.faults_until_ms = SAFETY_MS
        self.claims = Claims(self, random.Random(f"{seed} who claims")) if has_claims(seed) else None
        if self.claims is not None:
            self.config = self.claims.declare(self.config)
        self.hostile = Hostile(self, random.Random(f"{seed} hostile")) if is_hostile(seed) else None
        if self.hostile is not None:
            self.config = self.hostile.declare(self.config)
        self.telling = telling(seed)
        if self.telling is not None:
            self.config = self.telling.declare(self.config)
        self.running: dict[tuple[JobId, int], set[int]] = {}
        """(job, rank) to attempts with a live process: the truth on the machines."""
        self.devices: dict[tuple[str, int], dict[ReplicaKey, int]] = {}
        """Who uses how much of each device (thousandths): the truth on the machines."""
        self.cpus: dict[str, dict[ReplicaKey, int]] = {}
        """Who runs on the CPUs of each node (thousandths): the truth on the machines."""
        self._servers = 0
        self._checked_seq = 0
        self.server: SimServer | None = None
        self._start_server()
        self.nodes: dict[str, SimNode] = {}
        for index in range(rng.randint(1, 5)):
            spec = _node_spec(index, rng)
            self.nodes[spec.name] = SimNode(self, spec, random.Random(rng.random()))
        self.clients = Clients(self, random.Random(rng.random()), random.Random(f"{seed} clients"))
        jobs = rng.randint(10, 25) if rng.random() < 0.8 else rng.randint(25, 60)
        self.agenda.after(3_000, lambda: self.clients.plan_requests(jobs, SAFETY_MS - 5_000))
        if self.claims is not None:
            self.claims.plan_requests(SAFETY_MS - 5_000)
        plan_faults(self, random.Random(rng.random()), SAFETY_MS)
        if self.money is not None:
            self.money.plan_requests(SAFETY_MS - 5_000)
        if self.hostile is not None:
            self.hostile.plan_requests(SAFETY_MS - 5_000)

    def run(self) -> Outcome:
        steps = self._until(lambda: self.agenda.now_ms >= SAFETY_MS)
        self._heal()
        over_ms = SAFETY_MS + (LIVENESS_MS if self.claims is None else CLAIMS_LIVENESS_MS)
        steps += self._until(lambda: self.agenda.now_ms >= over_ms or self._drained())
        if not self.violations:
            self.violations += final_violations(self)
        jobs = sum(len(ids) for ids in self.clients.accepted.values())
        return Outcome(
            self.seed,
            tuple(self.violations[:VIOLATIONS_MAX]),
            dict(self.probes),
            len(self.disk.records),
            steps,
            self.agenda.now_ms,
            jobs,
        )

    def _until(self, done: Callable[[], bool]) -> int:
        steps = 0
        while not self.violations and not done() and steps < STEPS_MAX:
            steps += 1
            try:
                if not self.agenda.step():
                    break
            except BrokenInvariant as error:
                self.violation(error.message)
        return steps

    def _drained(self) -> bool:
        if self.server is None or self.agenda.now_ms < SAFETY_MS + 1_000:
            return False
        answered = len(self.clients.accepted) + len(self.clients.refused) == len(self.clients.asked)
        if self.money is not None and not self.money.settled():
            return False
        return answered and not self.server.controller.state.jobs and not any(n.processes for n in self.nodes.values())

    def _heal(self) -> None:
        """End of the faults: everything that is down comes back, nothing new breaks."""
        self.network.heal()
        self.disk.fail_rate, self.disk.full, self.disk.cut_next = 0.0, False, False
        self.disk_slowness = 0.0
        for node in self.nodes.values():
            node.spawn_fail_rate = node.late_exit_rate = 0.0
        if self.money is not None:
            self.money.rescue()

    # Servers.

    def _start_server(self) -> None:
        if self.server is None:
            self._servers += 1
            try:
                self.server = SimServer(self, self._servers, random.Random(self._rng.random()))
            except (StoreError, PowerCut):
                self.probe("server_could_not_start")
                self.agenda.after(self._rng.randint(200, 2_000), self._start_server)
                return
            self._checked_seq = 0
            if self.money is not None:
                self.money.server_began(self.server)
            for node in getattr(self, "nodes", {}).values():
                node.disconnect()

    def server_died(self, server: SimServer) -> None:
        """The process is gone; another is started after a while."""
        server.kill()
        if self.server is server:
            self.server = None
            self.agenda.after(self._rng.randint(100, 6_000), self._start_server)

    def replace_server(self, for_ms: int) -> None:
        """The server stands still, another takes over, then the first goes on as if nothing had been."""
        old = self.server
        if old is None:
            return
        self.probe("server_paused_and_replaced")
        old.paused = True
        self.server = None
        self._start_server()
        self.agenda.after(for_ms, old.resume)

    def after_commit(self, server: SimServer) -> None:
        """Check every promise on the state after a commit; sometimes keep a snapshot."""
        state = server.controller.state
        if server is self.server and state.seq != self._checked_seq:
            self._checked_seq = state.seq
            for found in invariants.violations(state):
                self.violation(f"{found.promise}: {found.detail}")
            if self.hostile is not None:
                self.hostile.after_commit(state)
            if self._rng.random() < 0.01:
                self.disk.save_snapshot(state.image())
        for damage in self.disk.damage:
            self.violation(damage)

    # Messages.

    def to_server(self, node: SimNode, message: protocol.ToServer) -> None:
        def deliver() -> None:
            if self.server is not None:
                self.server.from_node(node, message)

        self.network.send(node.name, deliver)

    def to_node(self, name: str, message: protocol.ToAgent) -> None:
        self.network.send(name, lambda: self.nodes[name].receive(message))

    # The truth on the machines.

    def process_began(self, node: SimNode, process: Process) -> None:
        """Two attempts of one job at once, or one device for two, is what must never happen."""
        key = process.key
        for (job_id, rank), attempts in self.running.items():
            if job_id == key.job_id and any(a != key.attempt for a in attempts):
                self.violation(f"job {job_id}: attempts {sorted(attempts)} (rank {rank}) and {key.attempt} run at once")
        attempts = self.running.setdefault((key.job_id, key.rank), set())
        if key.attempt in attempts:
            self.violation(f"replica {key} runs twice")
        attempts.add(key.attempt)
        for index in process.devices:
            users = self.devices.setdefault((node.name, index), {})
            users[key] = process.share_milli
            if sum(users.values()) > 1000:
                self.violation(f"device {index} of {node.name} is used beyond its capacity by {sorted(users.items())}")

        if not process.suspended_ms and not process.stop_sent:
            self.runs_on_cpus(node, process)

    def runs_on_cpus(self, node: SimNode, process: Process) -> None:
        """What runs, and was not asked to leave, never uses more CPUs than its node has."""
        users = self.cpus.setdefault(node.name, {})
        users[process.key] = process.cpu_milli
        if sum(users.values()) > node.spec.capacity.cpu_milli:
            self.violation(f"the CPUs of {node.name} are used beyond their number by {sorted(users.items())}")

    def stands_still(self, node: SimNode, process: Process) -> None:
        self.cpus.get(node.name, {}).pop(process.key, None)

    def process_ended(self, node: SimNode, process: Process) -> None:
        key = process.key
        attempts = self.running[key.job_id, key.rank]
        attempts.discard(key.attempt)
        if not attempts:
            del self.running[key.job_id, key.rank]
        for index in process.devices:
            self.devices.get((node.name, index), {}).pop(key, None)
        self.stands_still(node, process)

    def saved_before_leaving(self, process: Process, step: int) -> None:
        """A program that was asked to stop and heeded it has lost nothing."""
        if self.work.step(process.key.job_id) < step and process.key.attempt >= self._newest(process.key.job_id):
            self.violation(f"replica {process.key} left at step {step} without its work")

    def _newest(self, job_id: JobId) -> int:
        job = self.server.controller.state.jobs.get(job_id) if self.server else None
        return job.last_attempt if job else 1 << 30

    # Findings.

    def violation(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self.agenda.now_ms} ms: {text}")

    def probe(self, name: str) -> None:
        """Mark that a rare situation was reached."""
        self.probes[name] += 1

    @property
    def specs(self) -> dict[JobId, JobSpec]:
        """What was submitted, by job, as the log has it."""
        return {r.event.job_id: r.event.spec for r in self.disk.records if isinstance(r.event, JobSubmitted)}

    def folded(self) -> State:
        """Return the state that the log alone gives."""
        return fold(self.disk.records)


def _config(tenants: list[str], rng: random.Random, more: random.Random, quotas: random.Random) -> ClusterConfig:
    """Return a tree in which every policy occurs: limits are loose enough that each job fits below them alone.

    `more` and `quotas` are for what came later, so that a seed goes on meaning the same world.
    """
    return ClusterConfig(
        pools=(
            Pool(
                DEFAULT_POOL,
                placement=rng.choice(("fragmentation", "fragmentation", "best_fit", "worst_fit", "dot_product")),
                backfill=rng.choice(("easy", "easy", "conservative", "none")),
            ),
        ),
        tenants=tuple(Tenant(TenantName(t), max=quotas.choice(TENANT_QUOTAS)) for t in tenants),
        queues=(
            Queue(QueueName("a"), policy=rng.choice(("fifo", "priority")), guaranteed=(("devices", 2_000),)),
            Queue(
                QueueName("b"), policy=rng.choice(("priority", "capacity", "fair_share")), max=(("devices", 12_000),)
            ),
            Queue(
                QueueName("b1"), parent=QueueName("b"), preemption=rng.choice(("never", "reclaim", "lower_priority"))
            ),
            Queue(
                QueueName("c"),
                policy="fair_share",
                weight=rng.randint(1, 3),
                guaranteed=(("devices", 4_000),),
                max=(("devices", 9_000), ("jobs", 6)),
            ),
            Queue(QueueName("d"), policy=rng.choice(("least_attained", "shortest_predicted"))),
        ),
        settings=Settings(
            lease_ttl_ms=6_000,
            lease_margin_ms=3_000,
            heartbeat_ms=1_200,
            min_runtime_before_preemption_ms=rng.choice((0, 0, 2_000)),
            starvation_after_ms=rng.choice((20_000, 3_600_000)),
            starvation_ratio=more.choice((0, 0, 3)),
            predict_run_times=more.random() < 0.5,
            fair_share_half_life_ms=rng.choice((0, 30_000)),
            least_attained_step_device_ms=3_000,
            admission_milli=rng.choice((1_200, 4_000)),
            elastic_growth_period_ms=2_000,
            defrag=rng.random() < 0.3,
            defrag_gain_milli=100,
            suspended_max_ms=more.choice((2_000, 3_600_000)),
        ),
        root_policy=rng.choice(("fifo", "priority", "fair_share", "capacity")),
        candidates=rng.choice(((), (), (), ("fragmentation", "worst_fit"))),
    )


def _with_pool_quotas(config: ClusterConfig, rng: random.Random) -> ClusterConfig:
    """Return the same with some of its quotas bound to the one pool that there is: they mean the same there."""

    def bound(quota: Quota) -> Quota:
        found = [(f"{DEFAULT_POOL}/{name}", amount) for name, amount in quota if rng.random() < 0.3]
        kept = [(name, amount) for name, amount in quota if rng.random() < 0.7]
        return tuple(sorted([*found, *kept]))

    if rng.random() < 0.5:
        return config
    queues = tuple(replace(one, guaranteed=bound(one.guaranteed), max=bound(one.max)) for one in config.queues)
    return replace(config, queues=queues, tenants=tuple(replace(one, max=bound(one.max)) for one in config.tenants))


def _node_spec(index: int, rng: random.Random) -> NodeSpec:
    return NodeSpec(
        name=NodeName(f"n{index}"),
        capacity=Resources(cpu_milli=rng.choice((4_000, 8_000)), memory_bytes=2**33),
        devices=simulated(4, "A100-SIM", 80 * 2**30, mig=True),
        rack=f"r{index // 2}",
        virtual=True,
    )
