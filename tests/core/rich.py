"""Random histories with everything at once: mixed nodes, a queue tree with quotas, every kind of request.

A world checks all invariants at each commit, and at each plan that a planner with a past decides as a fresh one.
"""

import random

from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, NodeSpec, Pool, Queue, Reservation, Settings, Tenant
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import ExitInfo, GangAsk, GroupAsk, JobSpec, Topology
from penstock.core.model.matching import ModelRule
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import GIB, device, linked, node
from penstock.testing.harness import World

MINUTE = 60_000
TENANTS = ("default", "t")
LEAVES = ("a1", "a2", "b", "c", "las")
FATES = (ExitInfo(0), ExitInfo(0), ExitInfo(1), ExitInfo(problem="gone"))
DONE, SAVED = ExitInfo(0), ExitInfo(0, stop_sent=True)


def boards() -> list[NodeSpec]:
    """Return nodes of several kinds: linked pairs, a chain, MIG, another model, a failed device, none at all."""
    pairs = tuple(linked(2 * i + j, "nvlink", 2 * i + 1 - j, numa_node=i) for i in range(2) for j in (0, 1))
    chain = tuple(linked(i, "pcie", *(p for p in (i - 1, i + 1) if 0 <= p < 4)) for i in range(4))
    mig = tuple(device(i, model="A100", memory_bytes=40 * GIB, mig=True) for i in range(2))
    new = tuple(device(i, model="H100", capability=(9, 0), healthy=i > 0) for i in range(3))
    return [
        node("n0", pairs, rack="x", switch="s"),
        node("n1", chain, rack="x", switch="s"),
        node("n2", mig, rack="y", labels=(("disk", "ssd"),)),
        node("n3", new, rack="y", cpus=6),
        node("n4", 0, cpus=8),
        node("n5", 2, pool="q"),
    ]


def configs(rnd: random.Random) -> ClusterConfig:
    """Return one of many configurations of the same queues."""
    one_of = rnd.choice
    more = random.Random()
    more.setstate(rnd.getstate())  # for what came later: a seed goes on meaning the same
    limit = one_of([(), (("devices", one_of([2_000, 4_000, 6_000])),), (("devices:H100", 1_000), ("jobs", 3))])
    queues = (
        Queue("a", policy=one_of(["fair_share", "capacity", "fifo"]), guaranteed=(("devices", 4_000),), max=limit),
        Queue("a1", "a", policy=one_of(["priority", "fair_share"]), guaranteed=one_of([(), (("devices", 2_000),)])),
        Queue("a2", "a", policy="shortest_predicted", max=one_of([(), (("cpus", 4_000),)]), preemption="reclaim"),
        Queue("b", guaranteed=(("devices", 3_000),), lend=one_of([None, (("devices", 1_000),)]), weight=2),
        Queue("c", policy="fifo", preemption="never"),
        Queue("las", policy="least_attained"),
    )
    kept = Reservation("r", "t", 1_000_000 + one_of([0, 10, 40]) * MINUTE, 1_000_000 + 60 * MINUTE, ("n0",))
    pools = (
        Pool(
            "default",
            placement=one_of(["fragmentation", "best_fit", "worst_fit", "dot_product", "first_fit", "random"]),
            backfill=one_of(["easy", "conservative", "none"]),
            reserve_milli=one_of([0, 0, 200]),
            speeds=(("H100", 2_000, 1_500), ("A100", 1_000, 1_000)),
        ),
        Pool("q", virtualization=more.choice(["any", "any", "any", "none", "mig"])),
    )
    bound = more.choice([(), (("default/devices", 3_000), ("q/jobs", 2)), (("q/devices", 1_000),)])
    promised = more.choice([(), (("q/devices", 1_000),)])
    matched = more.choice([ModelRule(), ModelRule(match=True), ModelRule(match=True, move=True, moves_per_hour=60)])
    pools = (replace(pools[0], models=matched), pools[1])
    queues = (
        replace(queues[0], max=tuple(sorted((*limit, *bound)))),
        *queues[1:3],
        replace(queues[3], guaranteed=(("devices", 3_000), *promised)),
        *queues[4:],
    )
    return ClusterConfig(
        pools=pools,
        tenants=tuple(Tenant(t) for t in TENANTS),
        queues=queues,
        root_policy=one_of(["priority", "capacity", "fair_share"]),
        reservations=one_of([(), (kept,)]),
        settings=Settings(
            starvation_after_ms=one_of([5, 30]) * MINUTE,
            fair_share_half_life_ms=one_of([0, 10 * MINUTE]),
            backoff_first_ms=100,
            infrastructure_retries_max=2,
            victim_sets_tried_max=one_of([4, 64]),
            starts_per_cycle_max=one_of([3, 100]),
            allow_waiting_for_nodes=True,
            least_attained_step_device_ms=5 * MINUTE,
        ),
    )


def asks(rnd: random.Random) -> GangAsk:
    host = Resources(1_000 * rnd.randint(0, 2), GIB * rnd.randint(0, 4))
    wanted = rnd.choice(
        [
            None,
            DeviceAsk(1),
            DeviceAsk(1),
            DeviceAsk(2),
            DeviceAsk(2, link=rnd.choice(["nvlink", "pcie", "numa"])),
            DeviceAsk(3),
            DeviceAsk(1, models=("H100", "A100")),
            DeviceAsk(1, models=("H100",)),
            DeviceAsk(1, share_milli=rnd.choice([300, 500])),
            DeviceAsk(1, share_milli=250, share_memory_bytes=rnd.choice([10, 30]) * GIB),
            DeviceAsk(1, profile=rnd.choice(["1g.5gb", "2g.10gb", "3g.20gb"])),
        ]
    )
    each = ReplicaAsk(host, wanted)
    scope = rnd.choice([None, None, None, "node", "switch", "rack", "spread"])
    ask = GangAsk(
        rnd.choice([1, 1, 2, 3]),
        each,
        pool=rnd.choice(["default"] * 5 + ["q"]),
        topology=Topology(scope, rnd.random() < 0.5) if scope else None,
        labels_wanted=(("disk", "ssd"),) if rnd.random() < 0.1 else (),
        placement=rnd.choice(["", "", "", "worst_fit", "random"]),
    )
    kind = rnd.random()
    if kind < 0.15:
        return replace(ask, others=(GroupAsk(1, ReplicaAsk(host, rnd.choice([None, DeviceAsk(1)]))),))
    if kind < 0.3:
        return replace(ask, replicas_max=ask.replicas + rnd.randint(1, 3))
    return ask


def jobs(rnd: random.Random) -> JobSpec:
    return JobSpec(
        ("true",),
        asks(rnd),
        queue=rnd.choice(LEAVES),
        tenant=rnd.choice(TENANTS),
        priority=rnd.choice([100, 500, 500, 900]),
        preemptible=rnd.random() < 0.8,
        estimated_duration_ms=rnd.choice([0, 2, 10, 30]) * MINUTE,
        retries_max=1,
        alternatives=(asks(rnd),) if rnd.random() < 0.2 else (),
    )


class Rich:
    """A world and the operations on it, all drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rnd = random.Random(seed)
        specs = boards()
        self.w = World(*self.rnd.sample(specs, len(specs)))
        self.w.emit(ConfigChanged(configs(self.rnd), "op"))
        self.stale = self.w.plan()

    def step(self) -> None:
        self.w.now += self.rnd.choice([0, 1_000, MINUTE, 5 * MINUTE])
        getattr(self, self.rnd.choice(STEPS))()

    def submit(self) -> None:
        self.w.request(*[jobs(self.rnd)] * self.rnd.choice([1, 1, 4]))

    def cycle(self) -> None:
        if self.rnd.random() < 0.3:
            self.stale = self.w.plan()
        assert self.w.cycle().dropped == 0, "a plan that is not stale holds whole"

    def apply_stale(self) -> None:
        self.w.apply(self.stale)

    def _holding(self) -> list[tuple[int, int]]:
        active = sorted(self.w.state.indexes.active)
        return [(j, r.rank) for j in active for r in self.w.job(j).attempt.replicas if r.holds]

    def start(self) -> None:
        for job_id, rank in self._holding():
            if self.rnd.random() < 0.7:
                self.w.report(self.w.where(job_id, rank), self.w.seen(job_id, rank), inventory=False)

    def leave(self) -> None:
        """Let most of what was asked to stop save and leave."""
        for job_id, rank in self._holding():
            if self.w.state.jobs[job_id].state == "stopping" and self.rnd.random() < 0.7:
                self._exit(job_id, rank, SAVED)

    def finish(self) -> None:
        for job_id, rank in self._holding():
            if self.rnd.random() < 0.3 and job_id in self.w.state.jobs and self.w.job(job_id).attempt:
                self._exit(job_id, rank, self.rnd.choice(FATES))

    def _exit(self, job_id: int, rank: int, how: ExitInfo) -> None:
        seen = self.w.seen(job_id, rank, "exited", exit=how)
        self.w.report(self.w.where(job_id, rank), seen, inventory=False)

    def cancel(self) -> None:
        if self.w.state.jobs:
            self.w.cancel(self.rnd.choice(sorted(self.w.state.jobs)))

    def drain(self) -> None:
        self.w.drain(self._node(), on=self.rnd.random() < 0.3, evict=self.rnd.random() < 0.5)

    def lose(self) -> None:
        name = self._node()
        if self.w.state.nodes[name].state != "lost":
            self.w.lose(name)

    def rebirth(self) -> None:
        """A node comes back as it was, or with other devices."""
        name = self._node()
        known, other = self.w.state.nodes[name].spec, replace(self.rnd.choice(boards()), name=name)
        self.w.hello(self.rnd.choice([known, known, other]), f"i{self.rnd.randint(0, 99)}")

    def newcomer(self) -> None:
        name = f"m{self.rnd.randint(0, 2)}"
        self.w.hello(replace(self.rnd.choice(boards()), name=name), f"i{self.rnd.randint(0, 99)}")

    def configure(self) -> None:
        self.w.emit(ConfigChanged(configs(self.rnd), "op"))

    def tick(self) -> None:
        self.w.tick()

    def _node(self) -> str:
        return self.rnd.choice(sorted(self.w.state.nodes))


STEPS = ("submit",) * 6 + ("cycle",) * 6 + ("start",) * 4 + ("leave", "finish") * 3
STEPS += ("apply_stale", "cancel", "drain", "lose", "rebirth", "rebirth", "newcomer", "configure", "tick")


def history(seed: int, length: int) -> Rich:
    found = Rich(seed)
    for _ in range(length):
        found.step()
    return found
