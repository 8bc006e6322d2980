"""The Trainers of Hugging Face and Lightning: stopped in the middle and resumed, they end with the same weights."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.needs import need

ROOT = Path(__file__).parents[2]
NEEDS = {"huggingface": ("transformers", "accelerate"), "lightning": ("lightning",)}


@pytest.fixture(scope="module", params=sorted(NEEDS))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Run the trainings of one library once; return what each left."""
    for name in ("torch", *NEEDS[request.param]):
        if importlib.util.find_spec(name) is None:
            need(name)
    folder = tmp_path_factory.mktemp(request.param)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("library_trainings.py")), request.param, str(folder)],
        env={**variables, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return found


def events(run: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [line for line in run["report"] if line["kind"] == kind]


def test_a_stop_saves_the_step_under_way_and_leaves_with_143(runs: dict[str, dict[str, Any]]) -> None:
    stopped = runs["stopped"]
    saved = events(stopped, "checkpoint")
    assert (stopped["status"], stopped["digest"]) == (143, "")
    assert [one["why"] for one in saved] == ["preemption"]
    assert 3 <= saved[0]["step"] < 14
    assert saved[0]["step"] == events(stopped, "progress")[-1]["step"]
    assert events(stopped, "done") == []


def test_a_resumed_training_ends_with_the_same_weights(runs: dict[str, dict[str, Any]]) -> None:
    resumed = runs["resumed"]
    assert events(resumed, "resumed")[0]["step"] == events(runs["stopped"], "checkpoint")[0]["step"]
    assert (resumed["status"], resumed["digest"]) == (0, runs["undisturbed"]["digest"])
    assert [line["step"] for line in events(resumed, "done")] == [14]


def test_what_the_library_saves_by_itself_is_published(runs: dict[str, dict[str, Any]]) -> None:
    own = [line for line in events(runs["resumed"], "checkpoint") if line["why"] == "library"]
    assert own[-1]["step"] == 14


def test_progress_is_reported_with_loss_total_and_rate(runs: dict[str, dict[str, Any]]) -> None:
    last = events(runs["undisturbed"], "progress")[-1]
    assert (last["step"], last["total"]) == (14, 14)
    assert 0 < last["loss"] < 100
    assert any(line.get("samples_per_s", 0) > 0 for line in events(runs["undisturbed"], "progress"))


def test_starting_over_beside_checkpoints_is_refused(runs: dict[str, dict[str, Any]]) -> None:
    assert (runs["careless"]["status"], runs["careless"]["error"].split(":")[0]) == (1, "ResumeNotCalled")


def test_a_batch_that_was_ordered_is_measured(runs: dict[str, dict[str, Any]]) -> None:
    assert (runs["measured"]["status"], runs["measured"]["error"]) == (0, "")
    last = events(runs["measured"], "progress")[-1]
    assert (last["step"], last["local_batch"], last["accumulation"]) == (100, 4, 1)
    assert last["noise_scale"] > 0
    assert 0 < last["step_s"] < 1
