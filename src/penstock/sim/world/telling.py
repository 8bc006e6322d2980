"""Simulated programs that report their progress: some wait for data all the time, and make room for others."""

import random

from msgspec.structs import replace

from penstock.core.messages.reports import ProgressSeen
from penstock.core.model.cluster import ClusterConfig, IdleRule
from penstock.core.model.progress import Gauges
from penstock.sim.world.ground import Machine
from penstock.sim.world.programs import STEP_MS, SimulatedProcess, steps_done

WORLDS_PART = 0.3
"""Part of all worlds in which programs report gauges."""
TOTAL_PART = 0.5
"""Part of their programs that say how many steps they make in all."""
EVERY_MS = 1_500
IDLE_AFTER_MS = 1_000


class Telling:
    """Which programs report which gauges; by the world's seed and the job alone, so that nothing else depends on it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the same with queues in which idle attempts are named, or make room."""
        rng = random.Random(f"{self._seed} idle")
        wanted = IdleRule(IDLE_AFTER_MS, "when_wanted")
        rules = (None, IdleRule(IDLE_AFTER_MS), *(wanted,) * 6)
        queues = tuple(replace(queue, idle=rng.choice(rules)) for queue in config.queues)
        return replace(config, queues=queues)

    def begins(self, node: Machine, process: SimulatedProcess) -> None:
        """Let a started process report gauges until it is gone."""
        rng = random.Random(f"{self._seed} tells {process.key.job_id}")
        chance, total = rng.random(), process.behaviour.steps if rng.random() < TOTAL_PART else 0
        if chance < 0.9:
            gauges = Gauges(step_ms=STEP_MS, total_steps=total, data_wait_milli=1000 if chance < 0.8 else 200)
            node.agenda.after(EVERY_MS, lambda: self._tell(node, process, gauges))

    def _tell(self, node: Machine, process: SimulatedProcess, gauges: Gauges) -> None:
        if node.processes.get(process.key) is not process:
            return
        if node.agent_state is not None and process.frozen_ms is None and not process.suspended_ms:
            done = steps_done(process, node.agenda)
            node.agent_state.on_progress(ProgressSeen(process.key, "progress", done, gauges=gauges))
        node.agenda.after(EVERY_MS, lambda: self._tell(node, process, gauges))


def telling(seed: int) -> Telling | None:
    """Return the reporting programs of a seed's world; None: none report."""
    return Telling(seed) if random.Random(f"{seed} telling").random() < WORLDS_PART else None
