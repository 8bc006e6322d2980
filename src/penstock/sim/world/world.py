"""One simulated world: machines, faults and the checks that run after every step of it."""

import random
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import DEFAULT_POOL, ClusterConfig, NodeSpec, Pool, Queue, Quota, Settings, Tenant
from penstock.core.model.errors import BrokenInvariant, StoreError
from penstock.core.model.ids import NodeName, QueueName, TenantName
from penstock.core.model.plan import Plan
from penstock.core.model.resources import Resources
from penstock.core.state import invariants
from penstock.core.state.snapshot import Snapshot
from penstock.devices.simulated import simulated
from penstock.engines.agent import protocol
from penstock.sim.world.auditor import money_violations
from penstock.sim.world.claims import Claims, has_claims
from penstock.sim.world.clients import Clients
from penstock.sim.world.disk import PowerCut
from penstock.sim.world.expecting import Expecting, expects
from penstock.sim.world.faults import fills_disks, plan_faults, plan_full_disks
from penstock.sim.world.ground import LEASE_TTL_MS, VIOLATIONS_MAX, Ground, Machine, Server
from penstock.sim.world.hardware import hardware_of
from penstock.sim.world.hostile import Hostile, is_hostile
from penstock.sim.world.mixed import Mixed, is_mixed
from penstock.sim.world.money import Money, has_money
from penstock.sim.world.node import Parts, SimNode
from penstock.sim.world.outcomes import final_violations
from penstock.sim.world.server import SimServer
from penstock.sim.world.telling import telling
from penstock.sim.world.training import Trainers, trains

SAFETY_MS = 60_000
LIVENESS_MS = 900_000
LONG_LIVENESS_MS = 4_500_000
"""Where a tenant claims faults (a node that is shut to it is checked once in five minutes, and shut again), where room
is kept (until the hour is over), and where a job may have grown to a size that is slow (its restarts are bounded)."""
REQUESTS_MS = SAFETY_MS - 5_000
STEPS_MAX = 200_000


class WorldOutcome(msgspec.Struct, frozen=True):
    """Result of one seed. `violations` empty means that every promise held."""

    seed: int
    violations: tuple[str, ...]
    probes: dict[str, int]
    records: int
    steps: int
    simulated_ms: int
    jobs: int


TENANT_QUOTAS: tuple[Quota, ...] = ((), (), (("devices", 9_000),), (("devices", 10_000), ("jobs", 5)))
"""Maxima of tenants: loose enough that each job fits below them alone."""


class World(Ground):
    """Chosen by a seed. `run` plays the safety phase, heals everything, and waits for all work to drain."""

    def __init__(self, seed: int) -> None:
        rng = self._rng = random.Random(seed)
        super().__init__(seed, rng)
        self.config = _config(self.tenants, rng, random.Random(f"{seed} more"), random.Random(f"{seed} quotas"))
        self.config = _with_pool_quotas(self.config, random.Random(f"{seed} pool quotas"))
        self.money = Money(self, random.Random(f"{seed} money")) if has_money(seed) else None
        self.claims = Claims(self, random.Random(f"{seed} who claims"), SAFETY_MS) if has_claims(seed) else None
        self.hostile = Hostile(self, random.Random(f"{seed} hostile")) if is_hostile(seed) else None
        self.telling, self.hardware = telling(seed), hardware_of(self)
        self.trainers = Trainers(self, random.Random(f"{seed} trainers")) if trains(seed) else None
        self.mixed = Mixed(self, random.Random(f"{seed} mixed")) if is_mixed(seed) else None
        self.expecting = Expecting(self, random.Random(f"{seed} expecting")) if expects(seed) else None
        parts_declared = (self.money, self.claims, self.hostile, self.telling, self.hardware, self.trainers, self.mixed)
        for part in (*parts_declared, self.expecting):
            if part is not None:
                self.config = part.declare(self.config)
        if self.expecting is not None:
            self.past = self.expecting.past()
            self.disk.save_snapshot(self.past)
        self._servers = 0
        self._checked_seq = 0
        self.server: SimServer | None = None
        self.nodes: dict[str, SimNode] = {}
        self._start_server()
        parts = Parts(self.claims, self.telling, self.hardware, self.trainers, self.mixed)
        for index in range(rng.randint(1, 5)):
            spec = _node_spec(index, rng)
            self.nodes[spec.name] = SimNode(self, spec, random.Random(rng.random()), parts)
        pools = [part for part in (self.trainers, self.mixed) if part is not None]
        for spec in (spec for part in pools for spec in part.node_specs()):
            self.nodes[spec.name] = SimNode(self, spec, random.Random(f"{seed} {spec.name}"), parts)
        self.clients = Clients(self, random.Random(rng.random()), random.Random(f"{seed} clients"))
        jobs = rng.randint(10, 25) if rng.random() < 0.8 else rng.randint(25, 60)
        self.agenda.after(3_000, lambda: self.clients.plan_requests(jobs, REQUESTS_MS))
        if self.claims is not None:
            self.claims.plan_requests(self.clients, REQUESTS_MS)
        plan_faults(self, random.Random(rng.random()), SAFETY_MS)
        if fills_disks(seed):
            plan_full_disks(self, random.Random(f"{seed} full disks"), SAFETY_MS)
        if self.hardware is not None:
            self.hardware.plan(REQUESTS_MS)
        for requester in (*pools, self.expecting):
            if requester is not None:
                requester.plan_requests(self.clients, REQUESTS_MS)
        if self.money is not None:
            self.money.plan_requests(REQUESTS_MS)
        if self.hostile is not None:
            self.hostile.plan_requests(self.clients, REQUESTS_MS, with_money=self.money is not None)

    def run(self) -> WorldOutcome:
        steps = self._until(lambda: self.agenda.now_ms >= SAFETY_MS)
        self._heal()
        soon = self.claims is None and self.expecting is None and self.trainers is None
        over_ms = SAFETY_MS + (LIVENESS_MS if soon else LONG_LIVENESS_MS)
        steps += self._until(lambda: self.agenda.now_ms >= over_ms or self._drained())
        if not self.violations:
            self.violations += final_violations(self, self.clients)
            if self.server is not None:
                self.violations += self._violations_of_parts()
        jobs = sum(len(ids) for ids in self.clients.accepted.values())
        return WorldOutcome(
            self.seed,
            tuple(self.violations[:VIOLATIONS_MAX]),
            dict(self.probes),
            len(self.disk.records),
            steps,
            self.agenda.now_ms,
            jobs,
        )

    def _violations_of_parts(self) -> Iterator[str]:
        if self.money is not None:
            yield from money_violations(self, self.money)
        for part in (self.claims, self.hostile, self.hardware, self.trainers, self.mixed):
            if part is not None:
                yield from part.violations(self.disk.records)

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
            node.disk_full = False
        if self.money is not None:
            self.money.rescue()

    # Servers.

    def _start_server(self) -> None:
        if self.server is None:
            self._servers += 1
            try:
                self.server = SimServer(self, self._servers, random.Random(self._rng.random()), self.hostile)
            except (StoreError, PowerCut):
                self.probe("server_could_not_start")
                self.agenda.after(self._rng.randint(200, 2_000), self._start_server)
                return
            self._checked_seq = 0
            if self.money is not None:
                self.money.server_began(self.server)
            for node in self.nodes.values():
                node.disconnect()

    def server_died(self, server: Server) -> None:
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

    def after_commit(self, server: Server) -> None:
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

    def planned(self, server: Server, snapshot: Snapshot, plan: Plan) -> None:
        """Check what a cycle decided on the present state."""
        if self.expecting is not None:
            self.expecting.planned(server.controller.state, snapshot, plan)

    # Messages.

    def to_server(self, node: Machine, message: protocol.ToServer) -> None:
        def deliver() -> None:
            if self.server is not None:
                self.server.from_node(node, message)

        self.network.send(node.name, deliver)

    def to_node(self, name: str, message: protocol.ToAgent) -> None:
        self.network.send(name, lambda: self.nodes[name].receive(message))


def _config(tenants: list[str], rng: random.Random, more: random.Random, quotas: random.Random) -> ClusterConfig:
    """Return a tree in which every policy occurs: limits are loose enough that each job fits below them alone.

    `more` and `quotas` draw features added later, so that a seed keeps meaning the same world.
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
            lease_ttl_ms=LEASE_TTL_MS,
            lease_margin_ms=3_000,
            heartbeat_ms=1_200,
            min_runtime_before_preemption_ms=rng.choice((0, 0, 2_000)),
            starvation_after_ms=rng.choice((20_000, 3_600_000)),
            starvation_ratio=more.choice((0, 0, 3)),
            predict_run_times=more.random() < 0.5,
            fair_share_half_life_ms=rng.choice((0, 30_000)),
            least_attained_step_device_ms=3_000,
            admission_milli=rng.choice((1_200, 0)),
            elastic_growth_period_ms=2_000,
            defrag=rng.random() < 0.3,
            defrag_gain_milli=100,
            suspended_max_ms=more.choice((2_000, 3_600_000)),
            least_attained_turn_milli=more.choice((0, 0, 1_000)),
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
