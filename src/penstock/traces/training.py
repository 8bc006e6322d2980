"""Programs that train as their application was measured: what they do at any size, placement and batch.

This is the truth of a replay. A scheduler sees of it only what a live program would report.
Formulas: Qiao et al., Pollux, OSDI 2021, sections 2 and 3.
"""

from bisect import bisect_right
from itertools import accumulate

import msgspec

from penstock.core.model.batching import BatchChoice, total_of
from penstock.traces.profiles import Placement, TraceProfile, consolidated

NOISE_MAX = 10**9
"""Largest gradient noise scale that is reported (samples)."""
LADDER_STEPS = 24
"""Batches tried for the best one."""
FULL_SPEED = 1_000_000
"""Speed of the reference, in millionths."""


class Pace(msgspec.Struct, frozen=True):
    """What a program does in one epoch at one placement and batch."""

    step_us: int
    """The last pass of an update: forward, backward, exchange and update."""
    sync_us: int
    """The part of it that waits for other replicas; passes before it do without."""
    further: int
    noise: int
    """Gradient noise scale (samples), McCandlish et al. 2018: at this batch a sample is half as effective."""
    speed: int
    """Training progress against that of the reference in the same epoch, in millionths."""

    @property
    def update_us(self) -> int:
        """From one update to the next."""
        return self.step_us + (self.step_us - self.sync_us) * self.further


class Training:
    """A training program. Its work counts in milliseconds of a reference: a size on whole nodes, and a batch."""

    def __init__(self, profile: TraceProfile, replicas: int, batch: int, *, fixed: bool = False) -> None:
        """Take the reference's size and global batch.

        Args:
            fixed: it is trained at this batch alone; otherwise a scheduler may choose, and its own batch is at least
                the smallest one of each device.
        Raises: ValueError where the reference was not measured.
        """
        step_s = profile.step_s(replicas, batch)
        if step_s is None:
            raise ValueError(f"{replicas} replicas at batch {batch} were not measured for {profile.name}")
        self.profile, self.replicas, self.batch, self.fixed = profile, replicas, batch, fixed
        efforts = profile.efforts(batch)
        self.ends_ms = [round(1000 * step_s * steps) for steps in accumulate(efforts)]
        """Work up to the end of each epoch, ascending."""
        self._rates = [profile.gain(batch, epoch) / step_s for epoch in range(len(efforts))]
        self._known: dict[tuple[Placement, BatchChoice, int], Pace] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and self._given() == other._given()

    def __hash__(self) -> int:
        return hash(self._given())

    def _given(self) -> tuple[TraceProfile, int, int, bool]:
        return self.profile, self.replicas, self.batch, self.fixed

    @property
    def run_ms(self) -> int:
        """All of its work."""
        return self.ends_ms[-1]

    def epoch(self, done_ms: int) -> int:
        """Return the epoch, from 0, that follows once this work is done."""
        return min(bisect_right(self.ends_ms, done_ms), len(self.ends_ms) - 1)

    def own_batch(self, replicas: int) -> BatchChoice:
        """Return the batch that it takes where nobody chooses one for it."""
        batch = self.batch if self.fixed else max(self.batch, self.profile.local_batches[0] * replicas)
        return self.profile.split(replicas, min(batch, self.profile.batches[1]))

    def pace(self, placement: Placement, batch: BatchChoice, epoch: int) -> Pace:
        """Return what it does in an epoch with these replicas on each node."""
        key = (placement, batch, epoch)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._pace(placement, batch, epoch)
        return found

    def _pace(self, placement: Placement, chosen: BatchChoice, epoch: int) -> Pace:
        profile, further = self.profile, chosen.accumulation
        low, high = profile.batches
        batch = min(max(total_of(chosen, sum(placement)), low), high)
        step, sync = profile.step_times(placement, chosen.local)
        sync = min(sync, step)
        rate = profile.gain(batch, epoch) / (step + (step - sync) * further)
        sqr, var = profile.noise(batch, epoch)
        noise = min(NOISE_MAX, round(low * var / sqr)) if sqr > 0 else NOISE_MAX
        speed = max(1, round(FULL_SPEED * rate / self._rates[epoch]))
        return Pace(max(1, round(1e6 * step)), round(1e6 * sync), further, max(1, noise), speed)

    def alone_ms(self, replicas: int) -> int:
        """Return how long it takes undisturbed on so many devices of whole nodes, at the best batch for each epoch."""
        low, _ = self.profile.local_batches
        if not self.fixed:
            replicas = min(replicas, max(1, self.profile.batches[1] // low))
        choices = [self.own_batch(replicas)]
        if not self.fixed:
            smallest, largest = max(self.profile.batches[0], low * replicas), self.profile.batches[1]
            growth = (largest / smallest) ** (1 / LADDER_STEPS)
            choices += [
                self.profile.split(replicas, round(smallest * growth**rung)) for rung in range(LADDER_STEPS + 1)
            ]
        placement, total, before = consolidated(replicas), 0, 0
        for epoch, end_ms in enumerate(self.ends_ms):
            best = max(self.pace(placement, batch, epoch).speed for batch in choices)
            total += (end_ms - before) * FULL_SPEED // best
            before = end_ms
        return total
