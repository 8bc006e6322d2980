"""Room for demand that is expected, in some worlds: a past in which it has paid, and what plans may keep of the pool.

The world begins with that past: a snapshot before the first record. Its hour ends long after the faults.
"""

import random
from typing import Any

from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.model.cluster import DEFAULT_POOL, ClusterConfig
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import GangAsk, Job
from penstock.core.model.plan import Plan
from penstock.core.state.demand import DemandImage, Tier, Told
from penstock.core.state.image import Image
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.state import State
from penstock.sim.world.clients import Clients
from penstock.sim.world.clockwork import UNIX_BEGIN_MS
from penstock.sim.world.ground import Ground
from penstock.sim.world.programs import Behaviour

HOUR_MS = 3_600_000
URGENT = 900
URGENT_JOBS = (0, 3)
QUEUES = ("b", "b1", "d")
"""Those without a guarantee: their jobs are held back."""


def expects(seed: int) -> bool:
    """Return whether something is expected in a seed's world: of few, and of none that has found a bug before."""
    return seed % 32 == 11


class Expecting:
    """What is expected; `rng` has no other use, so a seed otherwise keeps its meaning."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self.devices = rng.randint(1, 4)

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the same with room that is kept as soon as anybody waits."""
        waiting, below = self._rng.choice((0, 1, 3)), self._rng.choice((0, 0, 300))
        settings = replace(config.settings, predictive_share_milli=500, predictive_waiting_min=waiting)
        return replace(config, settings=replace(settings, immediate_utilisation_milli=below))

    def past(self) -> Image:
        """Return a state that knows of demand alone: so many devices in each hour, which waited for an hour."""
        told = Told([self.devices] * 3, self.devices, kept=True)
        count = 20 * self.devices
        tier = Tier(
            DEFAULT_POOL, URGENT, hours=[self.devices] * 20, marks=[1] * 20, now=told, next=told, told=20, right=20,
            told_ever=20, covered=count, without_devices=count, without_wait_ms=count * HOUR_MS,
        )  # fmt: skip
        return replace(State().image(), demand=DemandImage(UNIX_BEGIN_MS // HOUR_MS, (tier,)))

    def plan_requests(self, clients: Clients, over_ms: int) -> None:
        """Spread urgent jobs over a time: fewer than are expected, as many, or more."""
        for number in range(self._rng.randint(*URGENT_JOBS)):
            entry: dict[str, Any] = {
                "name": f"urgent-{number}", "command": list(Behaviour(steps=20).command()), "tenant": "t1",
                "queue": "d", "priority": URGENT, "devices": self._rng.choice((1, 2)),
                "cpus": 0, "grace": 1, "retries": 0,
            }  # fmt: skip
            parsed, problems = parse_request([entry])
            assert not problems, problems
            key = f"urgent-{number}"
            clients.asked[key] = parsed
            at_ms = self._rng.randint(3_000, over_ms)
            self._world.agenda.after(at_ms, lambda key=key: clients.submit(key))  # type: ignore[misc]

    def planned(self, state: State, snapshot: Snapshot, plan: Plan) -> None:
        """Check the room that a plan keeps: no more than is expected, or its share; jobs that are bound leave it."""
        settings = state.config.settings
        total = free_milli = 0
        for name, free in state.indexes.free.items():
            if state.nodes[name].spec.pool == DEFAULT_POOL and not free.closed:
                total += len(free.devices)
                free_milli += sum(free.devices)
        kept = sum(one.devices for one in plan.kept)
        self._world.probes["room_kept"] += kept > 0
        if kept > total * settings.predictive_share_milli // 1000:
            self._world.violation(f"{kept} of {total} devices are kept, which is more than may be")
        if kept and not plan.strategy.startswith(("predictive", "preemptive")):
            self._world.violation(f"room is kept by a cycle that is {plan.strategy}")
        for one in plan.kept:
            if one.demand not in snapshot.expected or not 0 < one.devices <= one.demand.left <= one.demand.devices:
                self._world.violation(f"{one.devices} devices are kept, expected are {one.demand}")
            taken, left = self._taken(snapshot, plan, one.demand.priority), free_milli // 1000
            if taken and left - taken < one.devices:
                self._world.violation(f"of {left} free devices {taken} are given out though {one.devices} are kept")

    def _taken(self, snapshot: Snapshot, plan: Plan, priority: int) -> int:
        """Return the whole devices that a plan gives to jobs which have to leave the room."""
        waiting: dict[JobId, Job] = {job.id: job for _, _, jobs in snapshot.classes for job in jobs}
        found = 0
        for start in plan.starts:
            job = waiting[start.job_id]
            if self._is_bound(job, snapshot, plan.now_ms, priority):
                found += _devices(job.spec.ask if job.spec.ask.elastic and not start.choice else start.ask)
        return found

    def _is_bound(self, job: Job, snapshot: Snapshot, now_ms: int, priority: int) -> bool:
        settings, spec = snapshot.config.settings, job.spec
        starves = now_ms - job.submitted_ms >= settings.starvation_after_ms
        urgent = spec.priority >= min(priority, settings.critical_priority)
        return spec.ask.pool == DEFAULT_POOL and spec.queue in QUEUES and not (starves or urgent or job.room_made)


def _devices(ask: GangAsk) -> int:
    """Return the whole devices of a gang at its smallest size."""
    asks = [ask.each] * ask.replicas + [group.each for group in ask.others for _ in range(group.replicas)]
    return sum(each.devices.count for each in asks if each.devices is not None and each.devices.whole)
