"""Where no control group limits the memory of a box its processes are weighed: all, and what they share once."""

import os
import sys
from pathlib import Path

import pytest

from penstock.core.model.resources import Resources
from penstock.engines.processes import memory, procfs, sessions
from penstock.engines.processes.cgroup_v1 import CgroupV1
from penstock.engines.processes.memory import MemoryGroups, groups_of_slurm
from penstock.engines.processes.sessions import SessionContainment
from tests.engines.processes.processes import PARENT, SESSIONS
from tests.server.harness import until

MIB = 2**20
HOLDS = "import os, sys, time; x = b'x' * (int(sys.argv[1]) << 20); {then}; open('held', 'w').close(); time.sleep(60)"
AWAY = "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); y = b'y' * (64 << 20)"


def holding(run, tmp_path: Path, mib: int, limit_mib: int, then: str = "pass", kind=SESSIONS):
    """Return a program that holds so much in a box with this limit."""
    code = f"import os; os.chdir({str(tmp_path)!r}); " + HOLDS.format(then=then)
    program = run(kind, sys.executable, "-S", "-c", code, str(mib), limits=Resources(memory_bytes=limit_mib * MIB))
    until((tmp_path / "held").exists, "it holds its memory")
    return program


def test_a_box_above_its_limit_says_so_with_numbers(run, tmp_path):
    program = holding(run, tmp_path, 64, 48)
    said = program.box.exceeded()
    assert said.startswith("out of memory: limit 48 MiB, ")
    assert said.endswith(" MiB held, ended by the node's agent")


@pytest.mark.parametrize("limit_mib", [128, 0])
def test_a_box_within_its_limit_or_without_one_says_nothing(run, tmp_path, limit_mib):
    assert holding(run, tmp_path, 64, limit_mib).box.exceeded() == ""


def test_what_processes_share_counts_once(run, tmp_path):
    program = holding(run, tmp_path, 64, 128, then="[os.fork() for _ in range(2)]")
    until(lambda: len(program.box.pids()) == 4, "all four live")
    assert procfs.resident_bytes(program.box.pids()) > 4 * 64 * MIB
    assert program.box.exceeded() == ""
    assert 64 * MIB < procfs.proportional_bytes(program.box.pids()) < 128 * MIB


def test_what_left_its_parent_is_weighed_too(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "FORMER_LOOK_S", 0.0)
    program = run(SESSIONS, "sh", "-c", f'{sys.executable} -S -c "{_away(tmp_path)}"; exec sleep 60', limits=_mib(48))
    until((tmp_path / "held").exists, "it holds its memory")
    assert procfs.resident_bytes(procfs.tree(procfs.Process(program.pid, procfs.start_ticks(program.pid)))) < 48 * MIB
    assert program.box.exceeded().startswith("out of memory: limit 48 MiB")


def _away(tmp_path: Path) -> str:
    return f"import os, time; os.chdir('{tmp_path}'); {AWAY}; open('held', 'w').close(); time.sleep(60)"


def _mib(number: int) -> Resources:
    return Resources(memory_bytes=number * MIB)


def test_a_weighing_that_takes_long_is_made_more_seldom(monkeypatch):
    weighed: list[int] = []
    clock = iter([0.0, 1.0, 1.5, 21.0, 22.0])
    monkeypatch.setattr(memory.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(memory.procfs, "resident_bytes", lambda pids: 100)
    monkeypatch.setattr(memory.procfs, "proportional_bytes", lambda pids: weighed.append(1) or 100)
    scale = memory.Scale(Resources(memory_bytes=50))
    assert [bool(scale.exceeded(lambda: [1])) for _ in range(3)] == [True, False, True]
    assert len(weighed) == 2


def test_a_job_of_many_processes_is_looked_at_more_seldom(monkeypatch):
    looked: list[int] = []
    clock = iter([0.0, 1.0, 1.5, 21.0, 22.0])
    monkeypatch.setattr(memory.time, "monotonic", lambda: next(clock))
    scale = memory.Scale(Resources(memory_bytes=50))
    assert [scale.exceeded(lambda: looked.append(1) or []) for _ in range(3)] == ["", "", ""]
    assert len(looked) == 2


def test_a_box_whose_tree_of_memory_is_missing_is_weighed(run, tmp_path):
    (tmp_path / "freezer").mkdir()
    box = CgroupV1({"freezer": tmp_path / "freezer"}).box("b", _mib(1))
    held = tmp_path / "freezer" / "b" / "cgroup.procs"
    held.write_text(f"{holding(run, tmp_path, 64, 0).pid}\n")
    assert box.exceeded().startswith("out of memory: limit 1 MiB")


def test_only_groups_that_slurm_made_are_divided(monkeypatch, tmp_path):
    (tmp_path / "slurm_n1/uid_0/job_7/step_batch/task_0").mkdir(parents=True)
    (tmp_path / "slurm_n1/uid_0/job_7/step_batch/task_0/memory.use_hierarchy").write_text("1\n")
    monkeypatch.setattr(memory, "MEMORY_TREE", tmp_path)
    paths = {
        "4:memory:/slurm_n1/uid_0/job_7/step_batch/task_0\n": True,
        "4:memory:/user.slice\n": False,
        "4:memory:/slurm_n1/uid_0/job_8\n": False,
        "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n": False,
    }
    for text, divided in paths.items():
        monkeypatch.setattr(memory, "read", lambda path, text=text: text if "cgroup" in path.name else _read(path))
        assert (groups_of_slurm() is not None) == divided, text


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.root
def test_in_a_group_below_slurms_the_kernel_holds_a_box_to_its_memory(run, tmp_path):
    parent = Path("/sys/fs/cgroup/memory") / f"penstock-test-below-{os.getpid()}"
    if not parent.parent.is_dir():
        pytest.skip("no memory tree of version 1 here")
    parent.mkdir(exist_ok=True)
    kind = SessionContainment(PARENT, MemoryGroups(parent))
    program = run(kind, sys.executable, "-S", "-c", "x = b'x' * (64 << 20)", limits=_mib(32))
    assert program.status() == -9
    assert program.box.note() == "out of memory: limit 32 MiB, killed by the kernel (1 process)"
    assert program.box.exceeded() == ""
    program.box.remove()
    assert list(parent.glob("penstock-*")) == []
    parent.rmdir()
