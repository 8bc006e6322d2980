"""The examples as real processes: stopped, killed, resumed, and at the end the same bits."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.needs import need_later

need_later("sklearn", "the examples train on scikit-learn's digits")

Start = Callable[..., Any]
STEPS = ("--steps", "150", "--hidden", "16")
SLOW = (*STEPS, "--step-ms", "5")


def digest_of(output: str) -> str:
    found = re.search(r"final digest: ([0-9a-f]{64})", output)
    assert found, output
    return found[1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The final digest of a run that nobody stops, outside Penstock."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(root / "examples" / "digits_numpy.py"), *STEPS],
        env={"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path_factory.mktemp("undisturbed"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return digest_of(done.stdout)


def test_a_preemption_loses_no_step_and_no_bit(start_replica: Start, undisturbed: str, tmp_path: Path) -> None:
    first = start_replica("digits_numpy.py", *SLOW)
    first.wait_until(lambda: first.lines("progress"))
    first.process.send_signal(signal.SIGTERM)
    assert first.finish()[0] == 143
    saved = first.lines("checkpoint")[-1]
    assert (saved["why"], saved["step"]) == ("preemption", first.lines("progress")[-1]["step"])

    second = start_replica("digits_numpy.py", *STEPS, attempt=2)
    status, output = second.finish()
    assert (status, digest_of(output)) == (0, undisturbed)
    assert second.lines("resumed")[0]["step"] == saved["step"]
    assert second.lines("done")[0]["step"] == 150
    assert json.loads((tmp_path / "result.json").read_text())["digest"] == undisturbed


def test_kills_at_random_moments_lose_only_what_was_not_saved(start_replica: Start, undisturbed: str) -> None:
    rng = random.Random(4)
    saved_step = 0
    for attempt in (1, 2):
        wanted = saved_step + rng.randint(15, 40)
        replica = start_replica("digits_numpy.py", *SLOW, "--interval-s", "0.05", attempt=attempt)
        replica.wait_until(lambda r=replica, w=wanted: any(c["step"] >= w for c in r.lines("checkpoint")))
        replica.process.kill()
        assert replica.finish()[0] == -signal.SIGKILL
        # At least what was reported; one more may have been published in the instant before the kill.
        assert all(line["step"] >= saved_step for line in replica.lines("resumed"))
        saved_step = replica.lines("checkpoint")[-1]["step"]
    last = start_replica("digits_numpy.py", *STEPS, attempt=3)
    status, output = last.finish()
    assert (status, digest_of(output)) == (0, undisturbed)
    assert last.lines("resumed")[0]["step"] >= saved_step > 0


def test_a_program_without_the_library_keeps_its_count(start_replica: Start, tmp_path: Path) -> None:
    counter = tmp_path / "checkpoints" / "counter"
    first = start_replica("shell_counter.sh", "1000000", "0.001")
    first.wait_until(counter.exists)
    first.process.send_signal(signal.SIGTERM)
    status, output = first.finish()
    count = int(counter.read_text())
    assert (status, count >= 10) == (143, True)
    assert f"stopped at {count}" in output

    status, output = start_replica("shell_counter.sh", str(count + 2), "0.001", attempt=2).finish()
    assert (status, output.splitlines()) == (
        0,
        [f"counting from {count} to {count + 2}", f"counted to {count + 2}"],
    )
