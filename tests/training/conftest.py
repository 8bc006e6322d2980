"""Builders for the tests of `penstock.training`: clean environments, directories, sessions and replicas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.training import CheckpointDirectory, Place

ROOT = Path(__file__).parents[2]
CONTRACT = ("PENSTOCK_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_")


@pytest.fixture(autouse=True)
def _outside_penstock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may themselves run as a Penstock job; they must not write into its directories.

    Nor may the shell choose other kernels (`OPENBLAS_CORETYPE`) for some programs than for others: last digits differ.
    """
    for name in [name for name in os.environ if name.startswith((*CONTRACT, "OPENBLAS_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def open_directory(folder: Path) -> Callable[..., CheckpointDirectory]:
    """Return a function that opens the test's checkpoint directory as some attempt and rank."""

    def build(attempt: int | None = 1, *, keep: int = 3, rank: int = 0, ranks: int = 1) -> CheckpointDirectory:
        directory = CheckpointDirectory(folder, Place("job-1", attempt, rank, ranks), keep=keep)
        directory.open()
        return directory

    return build


@pytest.fixture
def read_lines() -> Callable[[Path], list[dict[str, Any]]]:
    """Return a function that reads a report file; a missing one has no lines."""
    return _read_lines


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Replica:
    """One replica of a real program, started with the agent's contract."""

    def __init__(self, command: list[str], variables: dict[str, str], report: Path) -> None:
        self._report = report
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in _read_lines(self._report) if line["kind"] == kind]

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.process.communicate()}"
            assert time.monotonic() < deadline_s, "the condition was never met"
            time.sleep(0.005)

    def finish(self, limit_s: float = 120.0) -> tuple[int, str]:
        """Wait for the end; return exit status and output."""
        try:
            output, errors = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            stacks = self._stacks()
            self.process.kill()
            output, errors = self.process.communicate()
            pytest.fail(f"no end within {limit_s:g} s\n{stacks}\n{output}{errors}")
        return self.process.returncode, output + errors

    def _stacks(self) -> str:
        """Return where each thread is, as py-spy sees it."""
        spy = [str(Path(sys.executable).with_name("py-spy")), "dump", "--native", "--pid", str(self.process.pid)]
        found = subprocess.run(spy, capture_output=True, text=True, timeout=60, check=False)
        return found.stdout + found.stderr


@pytest.fixture
def start_replica(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Return a function that starts an example as some attempt and rank; all are gone when the test ends."""
    started: list[Replica] = []

    def start(script: str, *options: str, attempt: int = 1, **variables: str) -> Replica:
        checkpoints = tmp_path / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        report = tmp_path / f"report-a{attempt}-r{variables.get('RANK', '0')}"
        contract = {
            "PENSTOCK_JOB_ID": "job-1",
            "PENSTOCK_ATTEMPT": str(attempt),
            "PENSTOCK_CHECKPOINT_DIR": str(checkpoints),
            "PENSTOCK_REPORT_FILE": str(report),
            **variables,
        }
        runner = "/bin/sh" if script.endswith(".sh") else sys.executable
        started.append(Replica([runner, str(ROOT / "examples" / script), *options], contract, report))
        return started[-1]

    yield start
    for replica in started:
        replica.process.kill()
        replica.process.communicate()
