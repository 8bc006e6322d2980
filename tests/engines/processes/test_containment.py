"""Real process trees: whatever a program does, nothing of it is left, and its limits hold."""

import contextlib
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest

from penstock.core.model.resources import Resources
from penstock.engines.processes import containment, procfs, sessions
from penstock.engines.processes.boxes import kill_inside
from penstock.engines.processes.containment import CgroupV1, CgroupV2, choose
from penstock.engines.processes.sessions import SessionContainment
from tests.engines.agent.builders import KEY
from tests.engines.processes.processes import HEADLESS, PARENT, SESSIONS, escaped, escaping
from tests.engines.processes.strong import KINDS, STRONG, needs_groups
from tests.server.harness import until


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


def test_another_cluster_on_the_machine_with_a_node_and_a_job_of_these_names_is_left_alone(run):
    program = run(SESSIONS, "sleep", "60")
    other = SessionContainment("penstock-other-n1").box(f"n1.{KEY}", Resources())
    assert (other.pids(), program.box.pids()) == ([], [program.pid])


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
def test_a_group_that_goes_while_it_is_thawed_needs_no_thawing(monkeypatch):
    box = STRONG.box("goes", Resources())

    def written_too_late(path: Path, text: str, **_: object) -> None:
        with path.open("w", encoding="ascii") as file:
            path.parent.rmdir()  # by whoever else ends it
            file.write(text)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_text", written_too_late)
            box.thaw()
    finally:
        box.remove()
    assert box.pids() == []


COUNTS = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.01; done"


@needs_groups
@pytest.mark.root
def test_what_is_frozen_stands_still_and_goes_on_from_there(run, tmp_path):
    program = run(STRONG, "sh", "-c", f"cd {tmp_path}; ({COUNTS}) & ({COUNTS.replace('count', 'other')}) & wait")
    until(lambda: (tmp_path / "other").exists() and (tmp_path / "count").exists(), "both count")
    assert program.box.freeze()
    until(program.box.frozen, "it is frozen")
    before = (tmp_path / "count").read_text()
    time.sleep(0.2)
    assert (tmp_path / "count").read_text() == before
    program.box.thaw()
    assert not program.box.frozen()
    until(lambda: int((tmp_path / "count").read_text()) > int(before), "it counts on")


def test_a_group_that_stays_freezing_is_written_again(tmp_path):
    box = CgroupV1({"freezer": tmp_path}).box("b", Resources())
    state = tmp_path / "b" / "freezer.state"
    state.write_text("FREEZING\n")
    assert (box.frozen(), state.read_text()) == (False, "FROZEN")
    state.write_text("THAWED\n")
    assert (box.frozen(), state.read_text()) == (False, "THAWED\n")


@needs_groups
@pytest.mark.root
def test_what_is_frozen_can_be_killed(run):
    program = run(STRONG, "sh", "-c", "trap '' TERM; sleep 60 & sleep 60")
    until(lambda: len(program.box.pids()) == 3, "all children live")
    program.box.freeze()
    until(program.box.frozen, "it is frozen")
    until(lambda: kill_inside(program.box), "the box is empty")
    assert program.status() == -9


def test_sessions_refuse_to_freeze(run):
    program = run(SESSIONS, "sleep", "60")
    assert not program.box.freeze()
    assert not program.box.frozen()


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_who_has_lost_the_first_thread_is_still_inside(run, kind):
    program = run(kind, sys.executable, "-S", "-c", HEADLESS)
    away = int(until(program.output, "a child notes its number"))
    ticks = procfs.start_ticks(away)
    both = [program.pid, away]
    until(lambda: all(Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z" for pid in both), "both look dead")
    assert (sorted(program.box.pids()), program.lives(), procfs.alive(away, ticks)) == (sorted(both), True, True)
    until(lambda: kill_inside(program.box), "the box is empty")
    assert not procfs.alive(away, ticks)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_who_clears_the_environment_is_still_inside(run, kind):
    program = run(kind, "sh", "-c", "env -i sleep 60 & echo $!; wait")
    child = int(until(program.output, "the child's number is noted"))
    until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "the child has no environment")
    assert sorted(program.box.pids()) == sorted([program.pid, child])


@needs_groups
@pytest.mark.root
def test_who_moves_to_a_group_below_is_still_inside(run):
    script = 'for gate; do d="${gate%/*}/below"; mkdir "$d"; echo $$ > "$d/cgroup.procs"; done; echo moved; sleep 60'
    box = STRONG.box(f"n1.{KEY}", Resources())
    program = run(STRONG, "sh", "-c", script, "sh", *box.gates)
    until(lambda: program.output() == "moved\n", "the program has moved")
    assert program.pid in program.box.pids()
    program.close()
    assert not any(Path(gate).exists() for gate in box.gates)


def test_a_group_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path):
    box = CgroupV2(tmp_path).box("b", Resources())
    assert box.pids() == []
    (tmp_path / "b" / "cgroup.procs").mkdir()
    with pytest.raises(IsADirectoryError):
        box.pids()


@pytest.mark.parametrize(("events", "empty"), [("populated 1\nfrozen 0\n", False), ("populated 0\nfrozen 0\n", True)])
def test_a_group_is_empty_when_the_kernel_says_so_and_not_when_it_lists_nobody(tmp_path, events, empty):
    box = CgroupV2(tmp_path).box("b", Resources())
    (tmp_path / "b" / "cgroup.procs").write_text("")
    (tmp_path / "b" / "cgroup.events").write_text(events)
    assert kill_inside(box) is empty


class Looks:
    """Looks at processes as a test wants them; each is used once."""

    def __init__(self, monkeypatch, *looks: list[procfs.Living]) -> None:
        self._looks = iter(looks)
        monkeypatch.setattr(procfs, "living", lambda: next(self._looks))
        monkeypatch.setattr(sessions, "LOOK_KEPT_S", -1.0)
        self.box = SessionContainment(PARENT).box("n1.k", Resources())

    def empty(self) -> list[bool]:
        """Return, look by look, whether the box was certainly empty."""
        found = []
        with contextlib.suppress(StopIteration):
            while True:
                found.append(not self.box.pids() and self.box.empty())
        return found


INSIDE = procfs.Living(pid=2**22 + 5, ticks=3, parent=1, session=7, mark=f"{PARENT}/n1.k", unclear=False)
ENDING = msgspec.structs.replace(INSIDE, mark="", unclear=True)
BECOMING = msgspec.structs.replace(ENDING, pid=9)
STRANGER = msgspec.structs.replace(BECOMING, parent=2)


def test_a_session_is_empty_after_two_looks_that_show_nobody(monkeypatch):
    assert Looks(monkeypatch, [], [INSIDE], [], []).empty() == [False, False, False, True]


def test_an_orphan_that_is_becoming_another_program_may_be_one_of_ours(monkeypatch):
    assert Looks(monkeypatch, [], [BECOMING], [], [STRANGER]).empty() == [False, False, False, True]


@pytest.mark.parametrize(("seconds", "empty"), [(0.0, [False, True]), (1e9, [False, False])])
def test_who_stays_unclear_holds_nobody_up_for_ever(monkeypatch, seconds, empty):
    monkeypatch.setattr(sessions, "DOUBT_MAX_S", seconds)
    assert Looks(monkeypatch, [BECOMING], [BECOMING]).empty() == empty


def test_who_was_inside_is_inside_until_the_end_though_its_environment_goes_first(monkeypatch):
    assert Looks(monkeypatch, [INSIDE], [ENDING], [], []).empty() == [False, False, False, True]


def test_who_was_inside_another_box_raises_no_doubt_at_its_end(monkeypatch):
    looks = Looks(monkeypatch, [INSIDE], [ENDING])
    looks.box = SessionContainment(PARENT).box("n1.other", Resources())
    assert looks.empty() == [False, True]


def test_a_later_process_with_the_leaders_number_is_a_stranger(monkeypatch):
    looks = Looks(monkeypatch, [INSIDE, msgspec.structs.replace(INSIDE, pid=9, session=os.getpid(), mark="")])
    looks.box.lead(procfs.Process(os.getpid(), 1))
    assert looks.box.pids() == [INSIDE.pid]


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
    assert program.box.note() == "out of memory: limit 48 MiB, killed by the kernel (1 process)"


@needs_groups
@pytest.mark.root
def test_processes_killed_out_of_memory_are_counted_though_their_parent_goes_on(run):
    code = "x = bytearray(1)\nwhile True: x += bytes(1 << 20)"
    script = f"for i in 1 2; do {sys.executable} -S -c '{code}'; done; true"
    program = run(STRONG, "sh", "-c", script, limits=Resources(memory_bytes=48 << 20))
    assert program.status() in (0, -9)  # version 2 ends the whole group at once
    assert program.box.note().startswith("out of memory: limit 48 MiB, killed by the kernel (2 processes)")


@pytest.mark.parametrize(
    ("counted", "limit", "note"),
    [
        ("oom 3\noom_kill 2\n", 48 << 20, "limit 48 MiB, killed by the kernel (2 processes)"),
        ("oom 3\noom_kill 3\noom_group_kill 1\n", 48 << 20, "limit 48 MiB, killed by the kernel (2 processes)"),
        ("oom 3\noom_kill 1\noom_group_kill 1\n", 48 << 20, "limit 48 MiB, killed by the kernel (1 process)"),
        ("oom 0\noom_kill 1\n", 48 << 20, "none left for jobs on the node, killed by the kernel (1 process)"),
        ("oom 0\noom_kill 1\n", 0, "none left for jobs on the node, killed by the kernel (1 process)"),
        ("oom 3\noom_kill 0\n", 48 << 20, ""),
        ("", 48 << 20, ""),
    ],
)
def test_the_groups_limit_is_blamed_only_where_it_was_reached(tmp_path, counted, limit, note):
    box = CgroupV2(tmp_path).box("n1", Resources(memory_bytes=limit))
    (tmp_path / "n1" / "memory.events").write_text(counted)
    assert box.note() == (f"out of memory: {note}" if note else "")


@pytest.mark.parametrize(("failures", "where"), [("7", "limit 48 MiB"), ("0", "none left for jobs on the node")])
def test_version_1_tells_by_its_failures_whose_memory_was_used_up(tmp_path, failures, where):
    trees = {name: tmp_path / name for name in ("freezer", "memory")}
    for folder in trees.values():
        folder.mkdir()
    box = CgroupV1(trees).box("n1", Resources(memory_bytes=48 << 20))
    (tmp_path / "memory" / "n1" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "memory" / "n1" / "memory.failcnt").write_text(f"{failures}\n")
    assert box.note() == f"out of memory: {where}, killed by the kernel (1 process)"


@needs_groups
@pytest.mark.root
def test_a_program_within_its_memory_gets_no_note(run):
    program = run(STRONG, "true", limits=Resources(memory_bytes=48 << 20))
    assert (program.status(), program.box.note()) == (0, "")


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
    assert chosen.kind == "sessions (no writable control groups: memory is weighed, limits of CPUs are not enforced)"
    assert (chosen.box("b", Resources()).gates, chosen.box("b", Resources()).note()) == ((), "")


def test_a_process_with_an_old_number_is_not_taken_for_a_new_one():
    ticks = procfs.start_ticks(os.getpid())
    assert procfs.alive(os.getpid(), ticks)
    assert not procfs.alive(os.getpid(), ticks + 1)
    assert procfs.start_ticks(2**22 + 1) is None
