"""Batch sizes that a job accepts, the one that an attempt runs with, and what a program measured with one.

Which learning rate goes with a batch is the program's matter (`penstock.training`), not the scheduler's.
"""

from typing import Literal

import msgspec

ElasticMode = Literal["goodput", "speedup", "off"]
REBALANCE: Literal["rebalance"] = "rebalance"
"""The rule by which a running job changes its size, moves or pauses in a re-allocation of its pool."""
RESTARTS_MAX = 60
"""Of one job in an hour, at most."""


class BatchAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The batch sizes that a job accepts, in samples."""

    smallest: int
    """Of all replicas together: the one that its learning rate was tuned for."""
    largest: int
    """Of all replicas and passes together."""
    per_device_max: int
    """Of one replica in one pass: what fits into its memory."""
    per_device_min: int = 1


class BatchChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The batch that an attempt runs with: replicas x `local` x (`accumulation` + 1) samples an update."""

    local: int
    """Samples of one replica in one pass."""
    accumulation: int = 0
    """Further passes before an update."""


class BatchSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a program measured with one batch, since it chose that batch."""

    local: int
    accumulation: int = 0
    step_us: int = 0
    """Mean time of the last pass of an update: forward, backward, exchange with other ranks, update. Each pass before
    it takes `step_us - sync_us`."""
    sync_us: int = 0
    """The part of it that waited for other ranks."""
    noise: int = 0
    """Gradient noise scale in samples, tr(covariance) / |gradient|^2: at that batch a sample is worth half. 0: unknown.

    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018."""


class StepNoted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times of a job's passes at one placement and local batch, as last noted; see `BatchSeen`."""

    nodes: int
    replicas: int
    local: int
    step_us: int
    sync_us: int = 0
    model: str = ""
    """Model of all its devices; empty: several, or none."""


class KindSteps(msgspec.Struct, frozen=True, omit_defaults=True):
    """What jobs that are one thing run again measured with their batches."""

    kind: str
    steps: tuple[StepNoted, ...] = ()
    """Of each placement and batch; batches that differ by little are one."""
    noise: int = 0
    """Gradient noise scale as their first reports had it; 0: not known."""
    restart_ms: int = 0
    """What a restart costs one of them; 0: not measured."""


class ElasticRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the sizes of a pool's elastic jobs are chosen."""

    mode: ElasticMode = "goodput"
    """By useful samples a second, where a job declares a batch range and reports what that takes, else by speed; by
    speed alone; or not at all: jobs keep the size that they start with, the smallest."""
    rebalance: bool = False
    """Running jobs may shrink, move and pause for others that gain more, not only grow into idle devices."""
    restarts_per_hour: int = 12
    """Of one job, for a change of its size or places that no user and no failure asked for."""


def total_of(batch: BatchChoice, replicas: int) -> int:
    """Return the samples of one update."""
    return replicas * batch.local * (batch.accumulation + 1)
