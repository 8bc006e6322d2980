"""Control groups of version 2: device files closed, by an interpreter of instructions and for real; killing."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.resources import Resources
from penstock.engines.processes import device_filter
from penstock.engines.processes.cgroup_v2 import CgroupV2
from penstock.engines.processes.device_program import (
    AND,
    CLOSED_MAX,
    EXIT,
    JUMP_UNEQUAL,
    LOAD_WORD,
    MOVE,
    device_program,
)
from tests.engines.processes.processes import Program
from tests.properties import examples
from tests.server.harness import until

TREES = [
    path for path in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")) if (path / "cgroup.controllers").exists()
]
needs_tree = pytest.mark.skipif(
    not TREES or not os.access(TREES[0] / "cgroup.procs", os.W_OK), reason="no tree of version 2 that can be written"
)
BLOCK, CHARACTER, MKNOD, READ, WRITE = 1, 2, 1, 2, 4


def allowed(program: bytes, kind: int, major: int, minor: int, access: int = READ) -> bool:
    """Run a program as the kernel does, on an access to a device file."""
    context = struct.pack("=III", access << 16 | kind, major, minor)
    registers, at = {1: 0}, 0
    while True:
        code, both, offset, number = struct.unpack_from("=BBhi", program, 8 * at)
        destination, source, at = both & 15, both >> 4, at + 1
        match code:
            case _ if code == LOAD_WORD:
                (registers[destination],) = struct.unpack_from("=I", context, registers[source] + offset)
            case _ if code == AND:
                registers[destination] &= number
            case _ if code == MOVE:
                registers[destination] = number
            case _ if code == JUMP_UNEQUAL:
                at += 0 if registers[destination] == number else offset
            case _ if code == EXIT:
                return registers[0] == 1
            case _:
                raise AssertionError(code)


def test_what_is_closed_is_refused_whatever_the_access_and_all_else_is_open():
    program = device_program(["c 195:0", "b 8:*"])
    assert [allowed(program, CHARACTER, 195, minor) for minor in (0, 1)] == [False, True]
    assert [allowed(program, CHARACTER, 195, 0, access) for access in (MKNOD, READ | WRITE)] == [False, False]
    assert [allowed(program, kind, 8, 77) for kind in (BLOCK, CHARACTER)] == [False, True]
    assert allowed(device_program([]), CHARACTER, 1, 5)


SMALL = st.integers(0, 3)


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from("bc"), SMALL, SMALL | st.just("*")), max_size=6), st.integers(1, 2), SMALL, SMALL
)
def test_the_program_refuses_exactly_what_is_listed(files, kind, major, minor):
    program = device_program([f"{letter} {high}:{low}" for letter, high, low in files])
    listed = any(("bc".index(f[0]) + 1, f[1]) == (kind, major) and f[2] in ("*", minor) for f in files)
    assert allowed(program, kind, major, minor) is not listed


@pytest.mark.parametrize("file", ["c 195", "a 1:2", "c -1:2", "c 1:x", "", "c 1:"])
def test_what_is_no_device_file_is_named(file):
    with pytest.raises(ValueError, match="expected such as 'c 195:0'"):
        device_program([file])


def test_a_program_has_a_bound():
    with pytest.raises(ValueError, match="1001 device files are to be closed, one program takes 1000"):
        device_program([f"c 1:{n}" for n in range(CLOSED_MAX + 1)])


@pytest.fixture
def groups() -> Iterator[CgroupV2]:
    base = TREES[0] / f"penstock-test-filter-{os.getpid()}"
    base.mkdir()
    yield CgroupV2(base)
    base.rmdir()


OPEN = "for name in zero full null; do head -c 1 /dev/$name > /dev/null 2>&1 && echo $name; done"


@needs_tree
@pytest.mark.root
def test_the_kernel_keeps_programs_from_files_that_are_closed_to_them_also_in_groups_below(tmp_path, groups):
    script = f'{OPEN}; mkdir "$0/below"; echo $$ > "$0/below/cgroup.procs"; {OPEN}'
    for closed, said in ((("c 1:5", "c 1:7"), "null\n" * 2), ((), "zero\nfull\nnull\n" * 2)):
        box = groups.box(f"n1.{len(closed)}", Resources(), closed=closed)
        program = Program(box, tmp_path / str(len(closed)), ("sh", "-c", script, str(Path(box.gates[0]).parent))).open()
        assert (program.status(), program.output()) == (0, said)
        program.close()
    assert groups.kind == "cgroup v2"


@needs_tree
@pytest.mark.root
def test_a_box_that_is_found_again_still_keeps_its_files_closed(tmp_path, groups):
    groups.box("n1.x", Resources(), closed=("c 1:5",))
    program = Program(CgroupV2(TREES[0] / f"penstock-test-filter-{os.getpid()}").box("n1.x", Resources()), tmp_path, ("sh", "-c", OPEN)).open()  # fmt: skip # noqa: E501
    assert (program.status(), program.output()) == (0, "full\nnull\n")
    program.close()


@needs_tree
@pytest.mark.root
def test_a_group_is_killed_at_once_with_what_it_has_frozen(tmp_path, groups):
    box = groups.box("n1.k", Resources())
    program = Program(box, tmp_path, ("sh", "-c", "trap '' TERM; sleep 60 & sleep 60")).open()
    try:
        until(lambda: len(box.pids()) == 3, "all live")
        assert box.freeze()
        until(box.frozen, "it is frozen")
        box.kill()
        until(lambda: not set(box.pids()) - {program.pid}, "all are gone", 5)
    finally:
        program.close()
    assert program.status() == -9


@needs_tree
@pytest.mark.root
def test_the_largest_program_is_taken_by_the_kernel(groups):
    groups.box("n1.x", Resources(), closed=[f"c 250:{n}" for n in range(CLOSED_MAX)]).remove()
    assert groups.kind == "cgroup v2"


def test_where_files_cannot_be_closed_the_containment_says_so_and_nothing_fails(tmp_path, monkeypatch, caplog):
    containment = CgroupV2(tmp_path, missing=["memory"])
    containment.box("a", Resources(), closed=("c 1:5",))  # a plain folder takes no program
    containment.box("b", Resources(), closed=("c 1:5",))
    assert containment.kind.startswith("cgroup v2 (memory is weighed; device files stay open: ")
    assert len(caplog.records) == 1
    monkeypatch.setattr(device_filter, "_CALL", {})
    containment.box("c", Resources(), closed=("c 1:5",))
    assert containment.kind.endswith(f"device files stay open: not known how on {os.uname().machine})")
