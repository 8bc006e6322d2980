"""Device models and the jobs that suit them: what a pool does about that, and what is known of the speeds.

Nothing here decides; `core/elastic/model_rates.py` makes one table of a job from all that is known.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal

import msgspec

from penstock.core.model.batching import KindSteps
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobSpec

MOVES_MAX = 60
"""In an hour: a job that moves every minute does little else."""
_DIGITS = re.compile(r"[0-9]+")


class ModelRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a pool with several device models gives each job the model that suits it."""

    match: bool = False
    """Jobs that start get models by throughput per cost, those that start together by comparative advantage."""
    move: bool = False
    """Running jobs that can save move to another model where that pays; only with `match`."""
    moves_per_hour: int = 4
    """How often in an hour one job may move for that; 0: never."""

    @property
    def moves(self) -> bool:
        """Whether running jobs may move at all."""
        return self.match and self.move and self.moves_per_hour > 0

    @property
    def pause_ms(self) -> int:
        """How long a job runs before it may move: this alone keeps it within its moves of an hour."""
        return -(-3_600_000 // self.moves_per_hour) if self.moves_per_hour else 0


Unit = Literal["samples", "steps"]


class RunSpeed(msgspec.Struct, frozen=True, array_like=True):
    """How fast one run was."""

    job_id: JobId
    rate: int
    """Samples a second of one replica (thousandths), or steps in a thousand seconds."""


class ModelSpeed(msgspec.Struct, frozen=True):
    """Speeds of runs of one kind on one device model, the last noted at the end."""

    model: str
    runs: tuple[RunSpeed, ...]

    @property
    def rate(self) -> int:
        """The middle one, the lower of two: a run that was disturbed says little."""
        ordered = sorted(run.rate for run in self.runs)
        return ordered[(len(ordered) - 1) // 2]


class KindSpeeds(msgspec.Struct, frozen=True):
    """Speeds of jobs that are one thing run again, by device model."""

    kind: str
    unit: Unit
    models: tuple[ModelSpeed, ...]

    def on(self, model: str) -> ModelSpeed | None:
        return next((one for one in self.models if one.model == model), None)


Usual = tuple[tuple[str, int], ...]
"""Models with their usual speed (thousandths of one of them), as all kinds of jobs together have shown."""


class KnownSpeeds(msgspec.Struct, frozen=True):
    """All that programs have reported of their speeds on device models."""

    kinds: Mapping[str, KindSpeeds] = {}
    usual: Usual = ()

    def of(self, spec: JobSpec, user: str) -> tuple[KindSpeeds, ...]:
        """Return what jobs like this one have reported, its own reports among them; the most alike first."""
        kinds = kinds_of(spec, user) if self.kinds else ()
        return tuple(found for kind in kinds if (found := self.kinds.get(kind)) is not None)


class KnownSteps(msgspec.Struct, frozen=True):
    """All that programs have measured with their batches."""

    kinds: Mapping[str, KindSteps] = {}

    def of(self, spec: JobSpec, user: str) -> KindSteps | None:
        """Return what jobs like this one have measured, itself among them: the most alike that measured anything."""
        kinds = kinds_of(spec, user) if self.kinds else ()
        return next((found for kind in kinds if (found := self.kinds.get(kind)) is not None), None)


def stem_of(name: str) -> str:
    """Return the name without its numbers: `train-7` and `train-12` are one thing run twice."""
    return _DIGITS.sub("#", name)


def kinds_of(spec: JobSpec, user: str) -> tuple[str, str]:
    """Return what jobs have in common that are one thing run again, as digests: narrow, and wide.

    Narrow: owner, name, command and width, as members of an array and runs of a schedule have. Wide: owner, name
    without its numbers, and width: a number may well be a batch size.
    """
    owner = (spec.tenant, user, str(spec.ask.each.device_count))
    return _digest((*owner, spec.name, *spec.command)), _digest((*owner, stem_of(spec.name)))


def _digest(words: tuple[str, ...]) -> str:
    return blake2b("\0".join(words).encode(errors="replace"), digest_size=8).hexdigest()
