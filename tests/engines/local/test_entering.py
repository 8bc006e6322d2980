"""Getting into a running job: which process is believed to be it, and which is not."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent.journal import Journal, JournalLine
from penstock.engines.agent.worker import AgentConfig
from penstock.engines.local import entering
from penstock.engines.local.entering import NotEntered, groups, prove
from penstock.engines.processes import procfs
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import ENVIRONMENT_MAX_BYTES, start_ticks
from penstock.testing.builders import node
from tests.engines.agent.builders import KEY

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root enters jobs of other accounts")
NOBODY = 65534
WAITING = "import os, sys, time; print('ready', flush=True); time.sleep(60)"
HUGE = """
import ctypes, mmap, os, sys, time

class Map(ctypes.Structure):
    names = "start_code end_code start_data end_data start_brk brk start_stack arg_start arg_end env_start env_end auxv"
    _fields_ = [(name, ctypes.c_uint64) for name in names.split()]
    _fields_ += [("size", ctypes.c_uint32), ("exe", ctypes.c_uint32)]

libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
length = 64 * 2**20
memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
text = open("/proc/self/stat").read()
told = [0, 0, 0, *text[text.rindex(")") + 2 :].split()]
code, data, arguments = map(int, told[26:28]), map(int, told[45:48]), map(int, told[48:50])
stack, brk = int(told[28]), libc.sbrk(0)
wanted = Map(*code, *data, brk, stack, *arguments, begin, begin + length, 0, 0, 2**32 - 1)
print("refused" if libc.prctl(35, 14, ctypes.byref(wanted), ctypes.sizeof(wanted), 0) else "ready", flush=True)
time.sleep(60)
"""
"""Names memory that it never wrote as its environment."""
SWITCHING = "import os; os.setresuid({}); " + WAITING


class Started:
    """A process that a journal tells of."""

    def __init__(self, data: DataFolder, program: str = WAITING, *, wait: bool = True) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdout=subprocess.PIPE,
            env={"PENSTOCK_JOB_ID": str(KEY.job_id), "LANG": "C.UTF-8"},
        )
        self.pid = self.process.pid
        if wait:
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == b"ready\n"

    def noted(self, *, account: str = "", ticks: int = 0, exited: bool = False) -> "Started":
        folder = self.data.node("n1")
        folder.mkdir(parents=True)
        config = AgentConfig(str(self.data.root), node("n1"), "penstock-x-n1")
        (folder / "agent.json").write_bytes(msgspec.json.encode(config))
        journal = Journal(folder / "journal")
        journal.write(JournalLine(KEY, "spawning", account=account))
        journal.write(JournalLine(KEY, "started", self.pid, ticks or start_ticks(self.pid) or 0))
        if exited:
            journal.write(JournalLine(KEY, "exited", exit=ExitInfo(code=0)))
        journal.close()
        return self

    def prove(self, **more: object) -> entering.ProcessHandle:
        return prove(self.data, KEY, **({"pid": self.pid, "account": ""} | more))

    def refused(self, **more: object) -> str:
        with pytest.raises(NotEntered) as refused:
            self.prove(**more).close()
        return refused.value.message


@pytest.fixture
def start(tmp_path) -> Iterator[object]:
    made: list[Started] = []

    def begin(program: str = WAITING, **fields) -> Started:
        made.append(Started(DataFolder(tmp_path), program, **fields))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()


def test_the_process_that_the_journal_names_is_entered(start):
    held = start().noted().prove()
    assert (held.uid, held.account, held.environment()[b"PENSTOCK_JOB_ID"]) == (os.geteuid(), "", b"1")
    held.close()


def test_another_process_with_its_number_is_not(start):
    program = start()
    assert program.noted(ticks=7).refused() == f"replica 1.1.0 has ended: another process has its number {program.pid}"


def test_what_has_ended_is_not_entered(start):
    program = start()
    program.noted()
    program.process.kill()
    program.process.wait()
    assert program.refused() == "it is not on this machine, or has just ended"


def test_what_is_held_never_becomes_another_process(start):
    program = start()
    held = program.noted().prove()
    program.process.kill()
    program.process.wait()
    with pytest.raises(ProcessLookupError):
        held.environment()
    held.close()


def test_no_more_of_an_environment_is_read_than_a_program_can_be_started_with(start, tmp_path):
    huge = start(HUGE, wait=False)
    if huge.process.stdout.readline() != b"ready\n":
        pytest.skip("this kernel lets no program name its environment")
    held = huge.noted().prove()
    assert len(held.read("environ")) == ENVIRONMENT_MAX_BYTES
    held.close()
    assert len(procfs._read(f"/proc/{huge.pid}/environ")) == ENVIRONMENT_MAX_BYTES


@root_only
def test_root_believes_no_number_that_no_journal_has(start):
    program = start()
    assert program.refused() == f"no agent of {program.data.root} has started replica 1.1.0"
    program.noted(exited=True)
    assert program.refused().startswith("no agent of")


@root_only
def test_root_does_not_enter_a_job_of_another_folder_with_the_same_number(start):
    program = start().noted()
    assert program.refused(pid=program.pid + 1).startswith("no agent of")


@root_only
@pytest.mark.parametrize(
    ("ids", "account", "said"),
    [
        ("0, 0, 0", "nobody", "replica 1.1.0 was started as nobody, and its process is one of user 0 now"),
        ("1, 1, 1", "nobody", "replica 1.1.0 was started as nobody, and its process is one of user 1 now"),
        ("1, 1, 1", "", "replica 1.1.0 was started as user 0, and its process is one of user 1 now"),
        ("65534, 0, 0", "nobody", "has rights of more than one user: [0, 65534]"),
        ("65534, 65534, 0", "nobody", "has rights of more than one user: [0, 65534]"),
        ("0, 0, 0", "nobodi", "the machine has no account 'nobodi', as which replica 1.1.0 was started"),
    ],
)
def test_a_process_is_entered_only_as_what_it_was_started_as(start, ids, account, said):
    program = start(SWITCHING.format(ids)).noted(account=account)
    assert said in program.refused()


@root_only
@pytest.mark.parametrize(("noted", "logged"), [("nobody", ""), ("", "nobody"), ("nobody", "nobody")])
def test_a_process_of_an_account_is_held_with_its_account(start, noted, logged):
    held = start(SWITCHING.format("65534, 65534, 65534")).noted(account=noted).prove(account=logged)
    assert (held.uid, held.account) == (NOBODY, "nobody")
    held.close()


def as_nobody(work) -> str:
    """Return what a function says when `nobody` calls it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, work().encode())
        except NotEntered as error:
            os.write(writing, error.message.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


@root_only
def test_who_is_not_root_enters_only_what_is_theirs(start):
    theirs, roots = start("import os; os.execvp('sleep', ['sleep', '60'])", wait=False), start()
    empty = DataFolder(Path(tempfile.gettempdir()) / "penstock-nothing-here")
    said = as_nobody(lambda: str(prove(empty, KEY, pid=roots.pid, account="").uid))
    assert said == "replica 1.1.0 is a process of user 0"
    roots.noted()
    said = as_nobody(lambda: str(prove(roots.data, KEY, pid=theirs.pid, account="nobody").uid))
    assert said == "replica 1.1.0 is a process of user 0"


def test_only_groups_of_the_box_are_entered():
    text = (
        "9:freezer:/penstock-x-n1/n1.1.1.0\n8:cpu,cpuacct:/penstock-x-n1/n1.1.1.0\n7:memory:/user.slice\n"
        "6:devices:/penstock-x-n1/n1.1.1.0/own\n5:pids:/penstock-x-n1/n1.1.1.00\n4:cpuset:/../penstock-x-n1/n1.1.1.0\n"
        "1:name=systemd:/\n0::/init/penstock-x-n1/n1.1.1.0\n"
    )
    top = Path("/sys/fs/cgroup")
    assert groups(text, "penstock-x-n1/n1.1.1.0") == [
        top / "freezer/penstock-x-n1/n1.1.1.0/cgroup.procs",
        top / "cpu,cpuacct/penstock-x-n1/n1.1.1.0/cgroup.procs",
        top / "devices/penstock-x-n1/n1.1.1.0/own/cgroup.procs",
        top / "init/penstock-x-n1/n1.1.1.0/cgroup.procs",
    ]
    assert groups(text, "") == []
