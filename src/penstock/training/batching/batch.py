"""`run.batch`: what this rank does of an update, how the learning rate follows, and what is measured of it.

A batch changes between two updates only, for all ranks at once; row number k of a `SampleOrder` stays the same row.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstock.training.batches import Round, SampleOrder
from penstock.training.batching.noise import NoiseScale
from penstock.training.batching.orders import OrderFile, Share
from penstock.training.batching.pace import Clocked
from penstock.training.environment import Environment
from penstock.training.errors import BadArgument

if TYPE_CHECKING:
    from penstock.training.batching.gradients import GradientWatch

Rule = Literal["linear", "square_root", "adascale"]
MEASURED_EVERY = 8

_log = logging.getLogger("penstock.training")


class Batch:
    """The batch of a session; see `Session.batch`.

    `samples`, `updates` and `scaled_steps` count what has been done since the training began, and belong into
    checkpoints: `capture(model=..., batch=run.batch)`.

    Args:
        base: samples of the update that the learning rate is for; None: not known.
        clock_s: monotonic seconds.
    Raises: BadArgument.
    """

    def __init__(
        self, environment: Environment, base: int | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        if base is not None and base < 1:
            raise BadArgument(f"batch is {base}; expected at least 1 sample")
        self.base = base
        self.rank, self.ranks = environment.rank, environment.world_size
        self.samples = 0
        self.updates = 0
        self.scaled_steps = 0.0
        """Updates of the base batch that all updates together are worth, by AdaScale."""
        self.noise = NoiseScale()
        self._ordered = environment.batch is not None
        self._share = environment.batch or (None if base is None else Share(-(-base // self.ranks)))
        self._orders = OrderFile(environment.batch_file if environment.rank == 0 else None)
        self._pending: Share | None = None
        self._fixed = False
        self._under_way = False
        self._clock = Clocked()
        self._clock_s = clock_s
        self._begun_s: float | None = None
        self._waited_s = 0.0
        self._watch: GradientWatch | None = None

    @property
    def known(self) -> bool:
        """Whether there is a batch: one was ordered, or `session(batch=...)` says which."""
        return self._share is not None

    @property
    def share(self) -> Share:
        """What this rank does of an update. Raises: BadArgument where no batch is known."""
        if self._share is None:
            raise BadArgument("no batch was ordered; expected training.session(batch=...), the samples of one update")
        return self._share

    @property
    def local(self) -> int:
        """Samples of this rank in one pass."""
        return self.share.local

    @property
    def accumulation(self) -> int:
        """Further passes of this rank before an update: their gradients add up."""
        return self.share.accumulation

    @property
    def total(self) -> int:
        """Samples of all ranks in one update."""
        return self.share.samples * self.ranks

    def learning_rate_factor(self, rule: Rule) -> float:
        """Return by what the learning rate of the base batch is to be multiplied now; the same on all ranks.

        Args:
            rule: "linear": total / base (Goyal et al., 2017; with SGD). "square_root": its root (Krizhevsky, 2014; with
                Adam and its like, Malladi et al., 2022). "adascale": the gain measured, 1 to total / base (Johnson et
                al., 2020; with SGD), which needs `watch`, and is 1 until the noise is known. With a batch smaller
                than the base all are below 1.
        Raises: BadArgument for another rule, or where the base is not known.
        """
        if rule not in get_args(Rule):
            raise BadArgument(f"rule is {rule!r}; expected one of {', '.join(get_args(Rule))}")
        if self.base is None:
            raise BadArgument("the batch of the learning rate is not known; expected training.session(batch=...)")
        scale = self.total / self.base
        if rule == "adascale":
            return self.noise.gain(scale, self.base)
        return scale if rule == "linear" else float(scale**0.5)

    def rounds(self, order: SampleOrder) -> Sequence[Round]:
        """Return the passes of this rank in the update under way, over the next `total` rows of `order`."""
        return order.rounds(self.samples, self.total, rank=self.rank, ranks=self.ranks, rows_max=self.local)

    def updates_left(self, *, samples: int | None = None, scaled_steps: float | None = None) -> int:
        """Return how many updates it takes until so many of one or the other are done, at this batch."""
        if samples is not None:
            return max(0, -((self.samples - samples) // self.total))
        return max(0, math.ceil(((scaled_steps or 0.0) - self.scaled_steps) / self._worth() - 1e-9))

    def watch(
        self,
        model: Any,
        optimizer: Any,
        *,
        scaler: Any = None,
        every: int = MEASURED_EVERY,
        averaged_by_library: bool = False,
    ) -> GradientWatch:
        """Measure the gradient noise scale, and how long ranks wait for each other, in each `every`th update.

        See `gradients.GradientWatch`, which is returned and whose `close` ends it. Call it on all ranks.

        Args:
            model: a PyTorch module; with several ranks, in DistributedDataParallel.
            optimizer: the one whose step ends an update.
            scaler: the GradScaler, where the loss is scaled.
            averaged_by_library: a training library has wrapped `model` for several ranks elsewhere.
        Raises: BadArgument.
        """
        from penstock.training.batching.gradients import GradientWatch

        if self._watch is not None:
            self._watch.close()
        self._watch = GradientWatch(self, model, optimizer, scaler, every, averaged_by_library=averaged_by_library)
        return self._watch

    def fix(self) -> None:
        """Keep the batch for this attempt: a training library has been given it and cannot change it."""
        self._fixed = True

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved; within a step, as it is at its end."""
        ahead = int(self._under_way)
        return {
            "samples": self.samples + ahead * self.total,
            "updates": self.updates + ahead,
            "scaled_steps": self.scaled_steps + ahead * self._worth(),
            "ranks": self.ranks,
            "local": 0 if self._share is None else self.local,
            "accumulation": 0 if self._share is None else self.accumulation,
            "noise": self.noise.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`. The batch is the one ordered; where none is, that of the state at its ranks."""
        self.samples, self.updates = int(state["samples"]), int(state["updates"])
        self.scaled_steps = float(state["scaled_steps"])
        self.noise.load(state["noise"])
        if not self._ordered and state["ranks"] == self.ranks and state["local"]:
            self._share = Share(int(state["local"]), int(state["accumulation"]))
        self._clock.clear()
        if self._watch is not None:
            self._watch.arm()

    # What a session calls.

    def begun(self) -> None:
        """Say that an update begins."""
        self._under_way = self.known

    def done(self) -> None:
        """Count the update that was under way."""
        if self.known:
            self.samples += self.total
            self.updates += 1
            self.scaled_steps += self._worth()
        self._under_way = False

    def ordered(self, *, alone: bool) -> bool:
        """Return whether another batch is ordered of all ranks.

        Args:
            alone: nobody tells other ranks; then only a single rank may change.
        """
        if self._fixed or self._share is None or (alone and self.ranks > 1):
            return False
        self._pending = self._orders.newest() or self._pending
        return self._pending is not None and self._pending != self._share

    def change(self, agreed: Callable[[Sequence[int]], Sequence[int]] | None) -> None:
        """Take the batch that rank 0 was ordered. Collective with `agreed`, which returns rank 0's numbers."""
        share = self._pending or self.share
        if agreed is not None:
            local, accumulation = agreed((share.local, share.accumulation))
            share = Share(local, accumulation)
        self._share, self._pending = share, None
        self._clock.clear()
        _log.info("batch changed", extra={"local": self.local, "accumulation": self.accumulation, "total": self.total})

    def border(self, waited_s: float) -> None:
        """Take in the time of the update that has ended, if any.

        Args:
            waited_s: how long this process has waited for other ranks since it began.
        """
        now_s = self._clock_s()
        if self.known and self._begun_s is not None:
            self._clock.add(now_s - self._begun_s, waited_s - self._waited_s)
        self._begun_s, self._waited_s = now_s, waited_s

    def exchanged(self, seconds: float) -> None:
        """Take in how long a backward pass waited for the exchange of gradients."""
        self._clock.exchanged(seconds)

    def numbers(self) -> dict[str, float]:
        """Return the fields of a report line; none before they are known."""
        pace = None if self._share is None else self._clock.pace(self.accumulation + 1)
        if pace is None:
            return {}
        found: dict[str, float] = {
            "local_batch": self.local,
            "accumulation": self.accumulation,
            "step_s": round(pace.step_s, 6),
            "sync_s": round(pace.sync_s, 6),
        }
        noise = self.noise.samples
        return {**found, "noise_scale": round(noise, 1)} if noise > 0 else found

    def _worth(self) -> float:
        return self.noise.gain(self.total / self.base, self.base) if self.base else 1.0
