"""What surviving ranks still hold is saved, and only what is still the state of the last border."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import training
from penstock.training import CheckpointDirectory, Place
from penstock.training.ranks import rescue as rescue_module
from penstock.training.ranks.rescue import Rescue, Watch
from penstock.training.reports import Reporter
from tests.training.needs import need_later

torch = need_later("torch")
ours = need_later("penstock.training.torch")

Open = Callable[..., CheckpointDirectory]
Start = Callable[..., Any]


def trained(kind: str, **options: Any) -> tuple[Any, Callable[[], None]]:
    """Return (capture of a large model and its optimizer, one step of training)."""
    torch.manual_seed(0)
    model = torch.nn.Linear(400, 400)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(4, 400)).square().mean().backward()
        optimizer.step()

    step()
    return lambda: ours.capture(model=model, optimizer=optimizer), step


OPTIMIZERS = [("SGD", {"momentum": 0.9}), ("AdamW", {"foreach": True}), ("AdamW", {"fused": True}), ("Adagrad", {})]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=str)
def test_after_a_step_of_any_optimizer_nothing_is_saved(
    kind: str, options: dict[str, Any], open_directory: Open
) -> None:
    state, step = trained(kind, **options)
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    for number in range(1, 6):
        rescue.border(number, state)
        step()
        assert not rescue.save(), "the state is that of the next border by now"
    assert directory.steps() == []


def test_before_it_is_known_that_changes_show_nothing_is_saved(open_directory: Open) -> None:
    state, _ = trained("SGD")
    rescue = Rescue(open_directory(), Reporter(None))
    rescue.border(7, state)
    assert not rescue.save()


def test_a_backward_pass_leaves_it_valid(open_directory: Open) -> None:
    state, _ = trained("AdamW")
    rescue = Rescue(open_directory(), Reporter(None))
    rescue.border(6, state)
    rescue.border(7, state)
    expected = {name: value.clone() for name, value in state()["model"].items()}
    assert rescue.save()
    found = open_directory().read(7).state["model"]
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_small_values_are_those_of_the_border_though_they_change_in_place(open_directory: Open) -> None:
    directory, small = open_directory(), torch.zeros(3)
    rescue = Rescue(directory, Reporter(None))
    rescue.border(6, lambda: {"small": small, "count": 1})
    rescue.border(7, lambda: {"small": small, "count": 1})
    small += 1
    assert rescue.save()
    assert torch.equal(directory.read(7).state["small"], torch.zeros(3))


def test_a_state_that_changed_is_not_saved(open_directory: Open) -> None:
    state, step = trained("SGD")
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    rescue.border(7, state)
    step()
    assert not rescue.save()
    assert directory.steps() == []


def test_a_state_that_changes_while_it_is_saved_is_not_published(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, step = trained("SGD")
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    rescue.border(6, state)
    rescue.border(7, state)
    real = CheckpointDirectory.publish

    def publish(*arguments: Any, **options: Any) -> Any:
        step()
        return real(*arguments, **options)

    monkeypatch.setattr(CheckpointDirectory, "publish", publish)
    assert not rescue.save()
    assert directory.steps() == []


def test_writes_that_leave_no_trace_switch_it_off(open_directory: Open) -> None:
    weights = torch.nn.Parameter(torch.zeros(100_000))
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    rescue.border(1, lambda: {"weights": weights})
    weights.data += 1
    rescue.border(2, lambda: {"weights": weights})
    assert not rescue.save()


def test_large_values_that_nobody_can_watch_switch_it_off(open_directory: Open) -> None:
    rescue = Rescue(open_directory(), Reporter(None))
    rescue.border(1, lambda: {"weights": np.zeros(100_000)})
    assert not rescue.save()


def test_only_the_first_of_several_ranks_saves(folder: Path) -> None:
    state, _ = trained("SGD")
    rescues = []
    for rank in (0, 1, 2):
        directory = CheckpointDirectory(folder, Place("job-1", 1, rank, 3))
        directory.open()
        rescues.append(Rescue(directory, Reporter(None)))
        rescues[-1].border(4, state)
        rescues[-1].border(5, state)
    (folder / ".rescue-step-000000005-a1").mkdir()
    assert [rescue.save() for rescue in rescues] == [False] * 3
    (folder / ".rescue-step-000000005-a1").rmdir()
    assert [rescue.save() for rescue in rescues] == [True] * 3, "the others find it published"


def test_what_costs_too_much_is_given_up(open_directory: Open) -> None:
    times = iter([float(second) for second in range(100)])
    rescue = Rescue(open_directory(), Reporter(None), clock_s=lambda: next(times))
    for step in range(1, 8):
        rescue.border(step, lambda: {"a": 1})
    assert not rescue.save()


def test_an_error_in_one_of_several_ranks_saves_the_last_border(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder.mkdir()
    state, step = trained("SGD")
    Rescue(CheckpointDirectory(folder, Place(None, None, 0, 2)), Reporter(None)).border(1, state)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "PENSTOCK_CHECKPOINT_DIR": str(folder)}.items():
        monkeypatch.setenv(name, value)

    def train() -> None:
        with training.session() as run:
            for number in run.steps(9, capture=state):
                if number == 4:
                    raise RuntimeError("Connection closed by peer")
                step()

    with pytest.raises(RuntimeError, match="closed by peer"):
        train()
    assert CheckpointDirectory(folder).steps() == [4]


class Stuck:
    """A device that answers only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.free, self.asked = threading.Event(), 0
        real = getattr(ours.TensorContent, method)

        def answer(content: Any) -> Any:
            self.asked += 1
            self.free.wait(20)
            return real(content)

        monkeypatch.setattr(ours.TensorContent, method, answer)
        monkeypatch.setattr(rescue_module, "DEVICE_WAIT_S", 0.05)


@pytest.mark.parametrize("method", ["sample", "view"])
def test_a_device_that_never_answers_is_given_up(
    method: str, open_directory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    for step in (4, 5):
        rescue.border(step, lambda: {"weights": torch.zeros(100_000)})
    rescue._shadow.read_limit_s = 0.05
    stuck = Stuck(monkeypatch, method)
    assert not rescue.save()
    assert "did not hand over the state in 0.1 s" in caplog.records[-1].error
    stuck.free.set()
    assert stuck.asked == 1
    assert (directory.steps(), list(directory.folder.glob(".rescue-*"))) == ([], [])


def test_a_device_that_was_lost_hides_no_error(open_directory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    rescue = Rescue(open_directory(), Reporter(None))
    for step in (4, 5):
        rescue.border(step, lambda: {"weights": torch.zeros(100_000)})
    monkeypatch.setattr(ours.TensorContent, "sample", lambda _: 1 / 0)
    assert not rescue.save()


def test_a_watch_does_not_wait_for_a_main_thread_that_is_stuck_at_a_border(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescue_module, "DEVICE_WAIT_S", 0.05)
    rescue = Rescue(open_directory(), Reporter(None))
    ends = os.pipe()
    left: list[bool] = []
    watch = Watch(rescue, ends, signal.SIGTERM, 0.01, lambda: left.append(True))
    with rescue.lock:
        os.write(ends[1], bytes([signal.SIGTERM]))
        watch._thread.join(20)
        assert not watch._thread.is_alive()
    os.close(ends[1])
    assert left == []


STUCK = """
import os, sys, time, torch
from penstock import training
weights = torch.zeros(100_000)
with training.session() as run:
    for step in run.steps(9, capture=lambda: {"weights": weights}):
        if step == 3:
            print("stuck", flush=True)
            torch.ones(1).share_memory_()
            time.sleep(600) if sys.argv[1:] else os.read(os.pipe()[0], 1)
        weights += 1
"""


def test_a_rank_that_is_stuck_is_saved_from_beside_and_leaves(start_replica: Start, tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    replica = start_replica(str(script), WORLD_SIZE="2", RANK="0", PENSTOCK_GRACE_S="3")
    assert replica.process.stdout.readline() == "stuck\n"
    replica.process.send_signal(signal.SIGTERM)
    assert replica.finish()[0] == 143
    found = CheckpointDirectory(tmp_path / "checkpoints").read(3)
    assert torch.equal(found.state["weights"], torch.full((100_000,), 3.0))
    assert [line["why"] for line in replica.lines("checkpoint")] == ["rescue"]


@pytest.mark.parametrize("other", [dict, lambda: {"weights": torch.zeros(3)}], ids=["nothing", "less"])
def test_a_rank_that_holds_something_else_saves_nothing(other: Any, folder: Path) -> None:
    rescues = []
    for rank, state in ((0, lambda: {"weights": torch.zeros(100_000)}), (1, other)):
        directory = CheckpointDirectory(folder, Place("job-1", 1, rank, 2))
        rescues.append(Rescue(directory, Reporter(None)))
        for step in (4, 5):
            rescues[-1].border(step, state)
    assert not rescues[1].save()
    assert rescues[0].save()


def test_what_goes_wrong_in_a_rescue_hides_no_error(open_directory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    rescue = Rescue(open_directory(), Reporter(None))
    for step in (4, 5):
        rescue.border(step, lambda: {"weights": torch.zeros(100_000)})

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: device lost")

    monkeypatch.setattr(CheckpointDirectory, "publish", broken)
    assert not rescue.save()


def test_a_state_that_cannot_be_captured_on_this_rank_is_no_error(open_directory: Open) -> None:
    rescue = Rescue(open_directory(), Reporter(None))
    rescue.border(4, lambda: {}["not here"])
    assert not rescue.save()


@pytest.mark.parametrize("every", [1, 3, 200])
def test_rare_writes_that_leave_no_trace_are_noticed(every: int, open_directory: Open) -> None:
    weights = torch.nn.Parameter(torch.zeros(100_000))
    directory = open_directory()
    rescue = Rescue(directory, Reporter(None))
    for step in range(1, 401):
        rescue.border(step, lambda: {"weights": weights})
        if step % every == 0:
            weights.data += 1
            assert not rescue.save()
    assert directory.steps() == []
