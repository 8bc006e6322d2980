"""Programs in boxes; control groups that tests of this folder made are gone when they end.

A worker makes groups when it collects.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.model.resources import Resources
from tests.engines.agent.builders import KEY
from tests.engines.processes.processes import Program
from tests.server.harness import until


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that runs a command in a box; everything is gone when the test ends."""
    programs: list[Program] = []

    def begin(kind, *command: str, limits: Resources = Resources(), **terms) -> Program:  # noqa: B008
        program = Program(kind.box(f"n1.{KEY}", limits, **terms), tmp_path, command)
        programs.append(program)
        program.open()
        until(lambda: not command[0].startswith("sleep") or program.box.pids(), "the program is in its box")
        return program

    yield begin
    for program in programs:
        program.close()


def pytest_sessionfinish() -> None:
    for pattern in ("*/penstock-test*-{}/shared", "*/penstock-test*-{}", "penstock-test*-{}"):
        for folder in Path("/sys/fs/cgroup").glob(pattern.format(os.getpid())):
            folder.rmdir()
