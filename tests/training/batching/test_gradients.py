"""Gradients as they are made give the noise scale that the data has; two ranks measure, change and resume as one."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.training import BadArgument, Batch, read_environment
from tests.training.needs import need_later
from tests.training.ranks.rendezvous import free_port

torch = need_later("torch")
Start = Callable[..., Any]
FEATURES = 20


def batch_of(order: str, ranks: int = 1) -> Batch:
    return Batch(read_environment({"PENSTOCK_BATCH": order, "WORLD_SIZE": str(ranks)}), 8)


def rows(count: int, draw: Any) -> tuple[Any, Any]:
    inputs = torch.randn(count, FEATURES, generator=draw)
    targets = inputs.sum(dim=1, keepdim=True) * 0.3 + 2 * torch.randn(count, 1, generator=draw)
    return inputs, targets


def loss_of(model: Any, data: tuple[Any, Any]) -> Any:
    return torch.nn.functional.mse_loss(model(data[0]), data[1])


def linear() -> Any:
    model = torch.nn.Linear(FEATURES, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model


def true_noise() -> float:
    """Return tr(Sigma) / |G|^2 of the gradients of single rows, at the weights of `linear`."""
    inputs, targets = rows(400_000, torch.Generator().manual_seed(0))
    gradients = -2 * targets * inputs
    return float(gradients.var(dim=0).sum() / gradients.mean(dim=0).square().sum())


def train(
    batch: Batch, updates: int, *, scaler: Any = None, clip: float = 0.0, every: int = 1, spoil: int = -1
) -> tuple[Any, Any]:
    """Make updates at a learning rate of 0: the noise scale stays what it is. Return watch and optimizer."""
    model, draw = linear(), torch.Generator().manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = batch.watch(model, optimizer, scaler=scaler, every=every)
    for update in range(updates):
        optimizer.zero_grad()
        batch.begun()
        for _ in range(batch.accumulation + 1):
            loss = loss_of(model, rows(batch.local, draw)) / (batch.accumulation + 1)
            loss = loss * float("inf") if update == spoil else loss
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        batch.done()
    return watch, optimizer


@pytest.mark.parametrize("order", ["16,3", "64,0"], ids=["of passes that are added up", "of updates in a row"])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_noise_scale_is_that_of_the_data(order: str, scaled: bool) -> None:
    batch = batch_of(order)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=50) if scaled else None
    train(batch, 600, scaler=scaler, clip=0.01)
    assert batch.noise.samples == pytest.approx(true_noise(), rel=0.2)
    if scaled:
        plain = batch_of(order)
        train(plain, 600)
        assert batch.noise.samples == pytest.approx(plain.noise.samples, rel=1e-3)


@pytest.mark.parametrize("order", ["16,3", "64,0"])
def test_gradients_that_are_not_finite_do_not_count(order: str) -> None:
    batch = batch_of(order)
    train(batch, 40, spoil=7, scaler=torch.amp.GradScaler("cpu", init_scale=8.0))
    assert batch.noise.samples > 0
    assert batch.noise.count == (19 if order == "64,0" else 38)


def test_only_every_eighth_update_has_hooks() -> None:
    batch = batch_of("16,1")
    watch, _ = train(batch, 80, every=8)
    assert batch.noise.count == 10
    assert not watch._hooks or batch.updates % 8 == 0


def test_what_is_closed_leaves_nothing_behind() -> None:
    batch = batch_of("16,1")
    watch, optimizer = train(batch, 8)
    watch.close()
    assert not optimizer._optimizer_step_pre_hooks
    assert not any(parameter._backward_hooks for parameter in watch._parameters)


def test_models_whose_gradients_are_nowhere_whole_are_refused() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BadArgument, match="model is a Linear; expected DistributedDataParallel for 2 ranks"):
        batch_of("8,0", ranks=2).watch(model, optimizer)
    with pytest.raises(BadArgument, match="every is 0; expected at least 1"):
        batch_of("8,0").watch(model, optimizer, every=0)
    model.weight.placements = ()  # as a DTensor has
    with pytest.raises(BadArgument, match="model is sharded"):
        batch_of("8,0").watch(model, optimizer)


SMALL = ("--updates", "500", "--hidden", "8", "--batch", "16", "--rate", "0.02")


def start(begin: Start, ranks: int, *options: str, attempt: int, **variables: str) -> list[Any]:
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **variables}
    return [
        begin("elastic_batch.py", *SMALL, *options, attempt=attempt, RANK=str(rank), **shared) for rank in range(ranks)
    ]


def ended(replicas: list[Any]) -> str:
    """Return the output of rank 0 once all have ended well."""
    done = [replica.finish(120) for replica in replicas]
    assert [status for status, _ in done] == [0] * len(replicas), done
    return str(done[0][1])


def number(output: str, name: str) -> float:
    found = re.search(rf"final {name}: ([0-9.e-]+)", output)
    assert found, output
    return float(found[1])


def digest(output: str) -> str:
    found = re.search(r"final digest: (\w+)", output)
    assert found, output
    return found[1]


@pytest.fixture
def emptied(folder: Path) -> Callable[[], object]:
    """Return a function that takes the checkpoints away, for a training that begins anew."""
    counts = iter(range(9))
    return lambda: folder.rename(folder.with_name(f"before-{next(counts)}"))


def test_two_ranks_measure_and_resume_bit_for_bit(start_replica: Start, emptied: Callable[[], object]) -> None:
    order = {"PENSTOCK_BATCH": "16,1"}
    whole = start(start_replica, 2, attempt=1, **order)
    undisturbed = ended(whole)
    last = whole[0].lines("progress")[-1]
    assert (last["local_batch"], last["accumulation"]) == (16, 1)
    assert last["noise_scale"] > 0
    assert 0 < last["sync_s"] <= last["step_s"]
    emptied()
    first = start(start_replica, 2, "--row-ms", "1", attempt=2, **order)
    first[0].wait_until(lambda: any(line["step"] > 60 for line in first[0].lines("progress")))
    first[1].process.send_signal(signal.SIGTERM)
    assert [replica.finish()[0] for replica in first] == [143, 143]
    resumed = ended(start(start_replica, 2, attempt=3, **order))
    assert digest(resumed) == digest(undisturbed)


def test_ranks_change_their_batch_at_one_step_and_learn_as_well(
    start_replica: Start, emptied: Callable[[], object], tmp_path: Path
) -> None:
    still = number(ended(start(start_replica, 2, attempt=1, PENSTOCK_BATCH="8,0")), "loss")
    emptied()
    file = tmp_path / "batch"
    ranks = start(start_replica, 2, "--row-ms", "0.2", attempt=2, PENSTOCK_BATCH="8,0", PENSTOCK_BATCH_FILE=str(file))
    ranks[0].wait_until(lambda: any(line["step"] > 150 for line in ranks[0].lines("progress")))
    (tmp_path / "new").write_text("16,1\n")
    (tmp_path / "new").rename(file)
    output = ended(ranks)
    assert [replica.lines("progress")[-1]["local_batch"] for replica in ranks] == [16, 16]
    assert 150 * 16 + 1 < number(output, "rows") < 500 * 64
    assert number(output, "loss") == pytest.approx(still, abs=0.15)
