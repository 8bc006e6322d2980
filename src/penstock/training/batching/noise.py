"""The gradient noise scale: how large a batch may be before a further sample in it is worth half.

From the squared norms of gradients over few samples and over many. `E|G_B|^2 = |G|^2 + tr(Sigma) / B`, so two sizes
give both unknowns, without bias: McCandlish et al., 2018, "An Empirical Model of Large-Batch Training", appendix A.1.
The two are averaged over time separately, for a ratio of noisy numbers would be biased.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

DECAY = 0.98
"""Weight of what was known when one more is measured: a mean over the last 50 or so."""
LEAST = 10
"""Measurements before a number is given."""
TOLD_MAX = 100
"""Beyond so many times the batch that it was measured at, the noise hides the gradient: no larger scale is told."""


@dataclass(slots=True)
class NoiseScale:
    """Exponential means of tr(Sigma) (`trace`, in squared gradient x samples) and of |G|^2 (`norm`).

    Both are kept as they add up; divided by `weight` they are free of the bias towards the zero they began at.
    """

    trace: float = 0.0
    norm: float = 0.0
    weight: float = 0.0
    count: int = 0
    batch: int = 1
    """Samples of the larger gradient when it was last measured."""

    def add(self, *, small: int, small_sq: float, big: int, big_sq: float) -> bool:
        """Take in one measurement; return whether it counts: not where a number is not finite.

        Args:
            small, big: samples that the gradients are means over; small < big.
            small_sq, big_sq: their squared norms, `small_sq` as a mean over all small gradients.
        """
        if not 0 < small < big:
            return False
        trace = (small_sq - big_sq) / (1 / small - 1 / big)
        norm = (big * big_sq - small * small_sq) / (big - small)
        if not (math.isfinite(trace) and math.isfinite(norm)):
            return False
        self.trace = DECAY * self.trace + (1 - DECAY) * trace
        self.norm = DECAY * self.norm + (1 - DECAY) * norm
        self.weight = DECAY * self.weight + (1 - DECAY)
        self.count, self.batch = self.count + 1, big
        return True

    @property
    def samples(self) -> float:
        """The noise scale tr(Sigma) / |G|^2 in samples; 0 while it is not known."""
        if self.count < LEAST:
            return 0.0
        trace, norm = max(0.0, self.trace / self.weight), self.norm / self.weight
        floor = (max(0.0, norm) + trace / self.batch) / TOLD_MAX
        return trace / max(norm, floor) if floor > 0 else 0.0

    def gain(self, scale: float, base: int) -> float:
        """Return AdaScale's gain of a batch `scale` times as large as `base` samples: 1 to `scale`; 1 if not known.

        Steps of the small batch that one step of the large one is worth, and the factor of the learning rate:
        `(sigma^2 + mu^2) / (sigma^2 / S + mu^2)`, with sigma^2 the variance at `base` and mu the mean gradient.
        Source: Johnson et al., 2020, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training".
        """
        if self.count < LEAST:
            return min(1.0, scale)
        ratio = self.samples / base
        return (ratio + 1.0) / (ratio / scale + 1.0)

    def state(self) -> dict[str, float]:
        """Return what `load` takes."""
        return {
            "trace": self.trace,
            "norm": self.norm,
            "weight": self.weight,
            "count": float(self.count),
            "batch": float(self.batch),
        }

    def load(self, state: Mapping[str, float]) -> None:
        """Continue from what `state` returned."""
        self.trace, self.norm, self.weight = state["trace"], state["norm"], state["weight"]
        self.count, self.batch = int(state["count"]), int(state["batch"])
