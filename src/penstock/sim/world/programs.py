"""Simulated programs: the behaviour of jobs, given by their command, and the work they have saved."""

import random

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId
from penstock.sim.world.clockwork import Agenda
from penstock.traces.training import FULL_SPEED

STEP_MS = 100


class Behaviour(msgspec.Struct, frozen=True):
    """How a program runs: steps of 100 ms until done, then its exit code."""

    steps: int
    exit_code: int = 0
    saves_every: int = 0
    """Steps between checkpoints; 0 for a program that never saves."""
    heeds_stop: bool = True
    """Saves and leaves soon after the stop signal; else it goes on until it is killed."""

    def command(self) -> tuple[str, ...]:
        return ("sim", str(self.steps), str(self.exit_code), str(self.saves_every), str(int(self.heeds_stop)))

    @classmethod
    def of(cls, command: tuple[str, ...]) -> "Behaviour":
        steps, code, saves, heeds = map(int, command[1:])
        return cls(steps, code, saves, bool(heeds))


def random_behaviour(rng: random.Random) -> Behaviour:
    return Behaviour(
        steps=rng.choice((1, 2, 5, 20, 50, 120, 250)),
        exit_code=0 if rng.random() < 0.8 else rng.choice((1, 3, 77)),
        saves_every=rng.choice((0, 10, 10, 25)),
        heeds_stop=rng.random() < 0.8,
    )


class SimulatedProcess(msgspec.Struct):
    """A live replica: it has done `first_step` + the time since it began."""

    key: ReplicaKey
    behaviour: Behaviour
    devices: tuple[int, ...]
    share_milli: int
    """How much of each device it uses, in thousandths."""
    begun_ms: int
    first_step: int
    stop_sent: bool = False
    frozen_ms: int | None = None
    """Since when it stands still with its node; None while it runs."""
    cpu_milli: int = 0
    suspended_ms: int = 0
    """Since when its agent keeps it frozen; 0 while it may run."""
    speed: int = FULL_SPEED
    """How fast it makes its steps, in millionths of a step in `STEP_MS`."""
    looks: int = 0
    """How often its next moment was planned: only the last plan counts."""


class SharedWork:
    """Checkpoints of all jobs on storage that every node sees, fenced by attempt number."""

    def __init__(self) -> None:
        self._saved: dict[JobId, tuple[int, int]] = {}

    def step(self, job_id: JobId) -> int:
        return self._saved.get(job_id, (0, 0))[1]

    def save(self, key: ReplicaKey, step: int) -> bool:
        """Keep a checkpoint unless a newer attempt has written one; return whether it was kept."""
        attempt, known = self._saved.get(key.job_id, (0, 0))
        if key.attempt < attempt:
            return False
        self._saved[key.job_id] = (key.attempt, max(known, step))
        return True


def steps_done(process: SimulatedProcess, agenda: Agenda) -> int:
    """Return how many steps the process has done by now."""
    until_ms = agenda.now_ms if process.frozen_ms is None else process.frozen_ms
    until_ms = min(until_ms, process.suspended_ms or until_ms)
    made = (until_ms - process.begun_ms) * process.speed // (STEP_MS * FULL_SPEED)
    return min(process.behaviour.steps, process.first_step + made)


def time_of(process: SimulatedProcess, steps: int) -> int:
    """Return how long the process takes for so many steps, in milliseconds."""
    return -(-steps * STEP_MS * FULL_SPEED // process.speed)
