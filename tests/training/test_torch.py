"""PyTorch: state_dicts come back bit for bit, and two ranks stop and resume as one."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from penstock.training import BadArgument, CheckpointDirectory, random_state, restore_random_state
from tests.training.needs import need, need_later
from tests.training.ranks.rendezvous import free_port

torch = need_later("torch")
ours = need_later("penstock.training.torch")

Start = Callable[..., Any]
STEPS = ("--steps", "120", "--hidden", "16")


def build() -> tuple[Any, Any]:
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: Any, optimizer: Any) -> Any:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    return model.weight.detach().clone()


def test_model_optimizer_and_generators_come_back_bit_for_bit(
    open_directory: Callable[..., CheckpointDirectory],
) -> None:
    model, optimizer = build()
    train(model, optimizer)
    own = torch.Generator().manual_seed(3)
    state = {**ours.capture(model=model, optimizer=optimizer), "random": random_state(own=own)}
    directory = open_directory()
    directory.write(1, state)
    expected = train(model, optimizer), torch.rand(3, generator=own)

    found = directory.read(1).state
    model, optimizer = build()
    ours.restore(found, model=model, optimizer=optimizer)
    restore_random_state(found["random"], own=own)
    assert torch.equal(train(model, optimizer), expected[0])
    assert torch.equal(torch.rand(3, generator=own), expected[1])


def test_small_tensors_share_a_file(open_directory: Callable[..., CheckpointDirectory]) -> None:
    manifest = open_directory().write(1, ours.capture(model=build()[0]))
    assert [blob.name for blob in manifest.blobs] == ["pack-0000.safetensors", "tree.json"]


def test_a_missing_name_is_named() -> None:
    with pytest.raises(BadArgument, match=r"no 'optimizer'; it has \['model'\]"):
        ours.restore({"model": {}}, optimizer=build()[1])


def test_agreement_needs_a_positive_period() -> None:
    with pytest.raises(BadArgument, match="every is 0"):
        ours.RankConsensus(every=0)


def start_two(start: Start, *options: str, attempt: int) -> list[Any]:
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start("digits_ddp.py", *STEPS, *options, attempt=attempt, RANK=rank, **shared) for rank in ("0", "1")]


def digest_of(output: str) -> str:
    found = re.search(r"final digest: ([0-9a-f]{64})", output)
    assert found, output
    return found[1]


def test_two_ranks_stop_at_one_step_and_resume_bit_for_bit(start_replica: Start, folder: Any) -> None:
    need("sklearn", "the example trains on scikit-learn's digits")
    undisturbed = [one.finish() for one in start_two(start_replica, attempt=1)]
    assert [status for status, _ in undisturbed] == [0, 0]
    folder.rename(folder.with_name("undisturbed"))

    ranks = start_two(start_replica, "--step-ms", "10", attempt=2)
    ranks[0].wait_until(lambda: ranks[0].lines("progress"))
    ranks[1].process.send_signal(signal.SIGTERM)  # one rank only: the other must learn of it
    assert [one.finish()[0] for one in ranks] == [143, 143]
    assert ranks[0].lines("progress")[-1]["step"] == ranks[1].lines("progress")[-1]["step"]
    saved = ranks[0].lines("checkpoint")[-1]
    assert (saved["why"], saved["step"]) == ("preemption", ranks[0].lines("progress")[-1]["step"])

    resumed = start_two(start_replica, attempt=3)
    ended = [one.finish() for one in resumed]
    assert [one.lines("resumed")[0]["step"] for one in resumed] == [saved["step"]] * 2
    assert digest_of(ended[0][1]) == digest_of(undisturbed[0][1])
