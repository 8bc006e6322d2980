"""Measures gradients of a PyTorch model as they are made: for the noise scale, and for the wait for other ranks.

An update has `ranks x passes` gradients over few samples and one over all of them. Squared norms of the former are
taken in hooks of the parameters, before gradients are added up or exchanged; that of the latter after the backward
pass, before anybody clips it. With a single gradient an update, two that follow each other stand for two of one point
(Qiao et al., 2021, "Pollux", section 4.1). Hooks are there during measured updates only, so that others cost nothing.
Imported only by programs that use PyTorch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

from penstock.training.errors import BadArgument
from penstock.training.torch import collective_device

if TYPE_CHECKING:
    from penstock.training.batching.batch import Batch


class _Before(NamedTuple):
    """The gradients of an update, by what they are multiplied, and their squared norm without that."""

    local: int
    unit: float
    gradients: list[torch.Tensor]
    squared: torch.Tensor


class GradientWatch:
    """See `Batch.watch`, which makes one.

    The loss of a pass is expected to be divided by the passes (as `Round.weight` does). Gradients that are not finite
    are passed over. A sharded model (FSDP, DTensor) is refused: no rank has a whole gradient there.
    """

    def __init__(
        self, batch: Batch, model: Any, optimizer: Any, scaler: Any, every: int, *, averaged_by_library: bool
    ) -> None:
        if every < 1:
            raise BadArgument(f"every is {every}; expected at least 1")
        wrapped = averaged_by_library or isinstance(model, DistributedDataParallel)
        if batch.ranks > 1 and not wrapped:
            raise BadArgument(
                f"model is a {type(model).__name__}; expected DistributedDataParallel for {batch.ranks} ranks"
            )
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if any(hasattr(parameter, "placements") for parameter in self._parameters):
            raise BadArgument("model is sharded (DTensor); expected whole gradients on each rank")
        self._batch, self._scaler, self._every = batch, scaler, every
        self._hooks: list[Any] = []
        self._queued = False
        self._pass: list[torch.Tensor] = []
        self._passes: list[torch.Tensor] = []
        self._whole: torch.Tensor | None = None
        self._before: _Before | None = None
        self._pair: torch.Tensor | None = None
        self._exchange: tuple[float, Any] = (0.0, None)
        self._wait: Any = 0.0
        self.seconds = 0.0
        """What measuring has taken of the program's time, the exchange of one number included."""
        self._ends = optimizer.register_step_pre_hook(lambda *_: self._update_ends())
        self.arm()

    def close(self) -> None:
        """Measure nothing any more."""
        self._ends.remove()
        self._clear()
        self._before = None

    def arm(self, update: int | None = None) -> None:
        """Begin or end measuring, by the number of the update that comes next."""
        self._clear()
        place = (self._batch.updates if update is None else update) % self._every
        if place == 0 or (place == 1 and self._before is not None):
            self._hooks = [parameter.register_hook(self._gradient) for parameter in self._parameters]
        else:
            self._before = None

    @property
    def _single(self) -> bool:
        """Whether an update has a single gradient."""
        return self._batch.ranks == 1 and self._batch.accumulation == 0

    def _clear(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._pass, self._passes, self._whole = [], [], [], None
        self._queued, self._pair = False, None

    def _gradient(self, gradient: torch.Tensor) -> None:
        """Called for each parameter in each backward pass, with the gradient of this pass alone."""
        begun_s = time.perf_counter()
        if not self._queued:
            self._queued = True
            _after_backward(self._computed)
        if not self._single or not self._pass:
            self._pass.append(_norm(gradient.detach()))
        self.seconds += time.perf_counter() - begun_s

    def _computed(self) -> None:
        """Called when the gradients of a pass are computed; DDP's own callback, which waits for them, comes next."""
        event = None
        if self._pass and self._pass[0].is_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._exchange = (time.perf_counter(), event)
        _after_backward(self._exchanged)

    def _exchanged(self) -> None:
        """Called when the gradients of a pass are in `grad`, averaged over the ranks if this pass does that."""
        begun_s = time.perf_counter()
        since_s, event = self._exchange
        if event is not None:
            now = torch.cuda.Event(enable_timing=True)
            now.record()
            self._wait = (event, now)
        else:
            self._wait = begun_s - since_s
        self._queued = False
        gradients = [p.grad.detach() for p in self._parameters if p.grad is not None]
        self._whole = _squared([_norm(gradient) for gradient in gradients])
        self._passes.append(self._whole if self._single else _squared(self._pass))
        self._pass = []
        if self._single and not any(gradient.is_sparse for gradient in gradients):
            self._differ(gradients, self._whole)
        self.seconds += time.perf_counter() - begun_s

    def _update_ends(self) -> None:
        """Called before the optimizer's step."""
        begun_s = time.perf_counter()
        if self._hooks and self._passes and self._whole is not None:
            self._take(self._passes, self._whole)
        self.arm(self._batch.updates + 1)
        self.seconds += time.perf_counter() - begun_s

    def _take(self, passes: list[torch.Tensor], whole: torch.Tensor) -> None:
        batch, count = self._batch, len(passes)
        if self._single:
            if self._pair is not None and count == 1:
                small_sq, big_sq = self._pair.tolist()
                batch.noise.add(small=batch.local, small_sq=small_sq, big=2 * batch.local, big_sq=big_sq)
            return
        if count * batch.ranks == 1:
            return  # it was to add up more
        self._before = None
        pair = torch.stack([torch.stack(passes).mean() * count * count, whole])
        if batch.ranks > 1:
            pair = pair.to(collective_device())
            distributed.all_reduce(pair)
            pair /= batch.ranks
        unit = self._unit() ** 2
        small_sq, big_sq = (float(number) / unit for number in pair.tolist())
        batch.noise.add(small=batch.local, small_sq=small_sq, big=batch.local * count * batch.ranks, big_sq=big_sq)
        if batch.ranks > 1:
            wait = self._wait  # `tolist` has waited for what the events are of
            batch.exchanged(wait[0].elapsed_time(wait[1]) / 1000 if isinstance(wait, tuple) else wait)

    def _differ(self, gradients: list[torch.Tensor], squared: torch.Tensor) -> None:
        """Keep a copy of the gradients, or compare them with those of the update before."""
        unit, local = self._unit(), self._batch.local
        before, self._before = self._before, None
        if before is None or (before.local, len(before.gradients)) != (local, len(gradients)):
            self._before = _Before(local, unit, [gradient.clone() for gradient in gradients], squared / unit**2)
            return
        both = torch.stack([_dot(one, other) for one, other in zip(before.gradients, gradients, strict=True)]).double()
        mean_sq = (before.squared + squared / unit**2) / 2
        self._pair = torch.stack([mean_sq, mean_sq / 2 + both.sum() / (2 * unit * before.unit)])

    def _unit(self) -> float:
        """By what the gradients of this update are multiplied."""
        return 1.0 if self._scaler is None else float(self._scaler.get_scale())


def _norm(gradient: torch.Tensor) -> torch.Tensor:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    half = values.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(values, dtype=torch.float32 if half else None)


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    half = one.dtype in (torch.float16, torch.bfloat16)
    flat = [(gradient.float() if half else gradient).reshape(-1) for gradient in (one, other)]
    return torch.dot(flat[0], flat[1])


def _squared(norms: list[torch.Tensor]) -> torch.Tensor:
    """Return the squared norm of what these norms are parts of."""
    if not norms:
        return torch.full((), float("nan"))
    return torch.stack(norms).double().square().sum()


def _after_backward(call: Any) -> None:
    """Call this when the backward pass under way is through; of several, in order."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
