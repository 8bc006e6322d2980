"""Real process trees: whatever a program does, nothing of it is left, and its limits hold."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.model.resources import Resources
from penstock.engines.local import containment, procfs
from penstock.engines.local.containment import SessionContainment, choose, kill_inside
from tests.engine.builders import KEY
from tests.engine.processes import Program, escaped, escaping
from tests.server.harness import until

PARENT = f"penstock-test-{os.getpid()}"
STRONG = choose(PARENT)
needs_groups = pytest.mark.skipif(STRONG.kind.startswith("sessions"), reason="no writable control groups here")
KINDS = [pytest.param(STRONG, marks=[needs_groups, pytest.mark.root], id="groups"), SessionContainment()]


@pytest.fixture(scope="module", autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    for folder in Path("/sys/fs/cgroup").glob(f"*/{PARENT}"):
        folder.rmdir()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that runs a command in a box; everything is gone when the test ends."""
    programs: list[Program] = []

    def begin(kind, *command: str, limits: Resources = Resources()) -> Program:  # noqa: B008 - frozen
        program = Program(kind.box(f"n1.{KEY}", limits), tmp_path, command)
        programs.append(program)
        if isinstance(kind, SessionContainment):
            program.box = kind.box(f"n1.{KEY}", limits, program.pid)
        program.open()
        until(lambda: not command[0].startswith("sleep") or program.box.pids(), "the program is in its box")
        return program

    yield begin
    for program in programs:
        program.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
@pytest.mark.parametrize("leader", ["stays", "leaves"])
def test_nobody_gets_away(run, kind, leader, tmp_path):
    program = run(kind, *escaping(tmp_path, leader.removesuffix("s")))
    away = escaped(tmp_path)
    ticks = procfs.start_ticks(away)
    assert procfs.session_of(away) != program.pid
    assert away in program.box.pids()
    until(lambda: kill_inside(program.box), "the box is empty")
    assert not procfs.alive(away, ticks)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_a_box_names_its_processes_and_no_others(run, kind):
    program = run(kind, "sleep", "60")
    assert program.box.pids() == [program.pid]
    assert os.getpid() not in program.box.pids()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_killing_goes_on_until_nobody_is_left(run, kind):
    script = "trap '' TERM; for i in 1 2 3 4 5 6; do sleep 60 & done; wait"
    program = run(kind, "sh", "-c", script)
    until(lambda: len(program.box.pids()) == 7, "all children live")
    assert not kill_inside(program.box)
    until(lambda: kill_inside(program.box), "the box is empty")
    assert program.status() == -9


@needs_groups
@pytest.mark.root
def test_a_box_is_found_again_after_a_restart_of_the_agent(run):
    program = run(STRONG, "sleep", "60", limits=Resources(cpu_milli=500))
    again = choose(PARENT).box(f"n1.{KEY}", Resources())
    assert again.pids() == [program.pid]


@needs_groups
@pytest.mark.root
def test_a_program_over_its_memory_is_killed_and_it_is_said_why(run):
    code = "x = bytearray(1)\nwhile True: x += bytes(1 << 20)"
    program = run(STRONG, sys.executable, "-S", "-c", code, limits=Resources(memory_bytes=48 << 20))
    assert program.status() == -9
    assert program.box.note() == "out of host memory: the limit is 48 MiB"


@needs_groups
@pytest.mark.root
def test_a_program_within_its_memory_gets_no_note(run):
    program = run(STRONG, "true", limits=Resources(memory_bytes=48 << 20))
    assert (program.status(), program.box.note()) == (0, "")


@pytest.mark.root
@pytest.mark.skipif(STRONG.kind != "cgroup v1", reason="version 1 of control groups only")
@pytest.mark.parametrize(("cpu_milli", "quota", "shares"), [(1_500, 150_000, 1_536), (5, 1_000, 5)])
def test_the_cpu_quota_is_what_was_asked_for(run, cpu_milli, quota, shares):
    run(STRONG, "true", limits=Resources(cpu_milli=cpu_milli)).status()
    folder = next(Path("/sys/fs/cgroup").glob(f"cpu*/{PARENT}/n1.{KEY}"))
    assert int((folder / "cpu.cfs_quota_us").read_text()) == quota
    assert int((folder / "cpu.shares").read_text()) == shares


@needs_groups
@pytest.mark.root
def test_an_empty_box_leaves_no_group_behind(run):
    program = run(STRONG, "true", limits=Resources(1_000, 48 << 20))
    program.status()
    program.box.remove()
    assert list(Path("/sys/fs/cgroup").glob(f"*/{PARENT}/*/cgroup.procs")) == []


def test_without_control_groups_sessions_are_used_and_it_is_said(monkeypatch):
    monkeypatch.setattr(containment, "_version_1", lambda parent: None)
    monkeypatch.setattr(containment, "_version_2", lambda parent: None)
    chosen = choose("anything")
    assert chosen.kind == "sessions (no writable control groups: limits are not enforced)"
    assert (chosen.box("b", Resources()).gates, chosen.box("b", Resources()).note()) == ((), "")


def test_a_process_with_an_old_number_is_not_taken_for_a_new_one():
    ticks = procfs.start_ticks(os.getpid())
    assert procfs.alive(os.getpid(), ticks)
    assert not procfs.alive(os.getpid(), ticks + 1)
    assert procfs.start_ticks(2**22 + 1) is None
