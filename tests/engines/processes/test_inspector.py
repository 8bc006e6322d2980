"""What is seen of real processes that make no step."""

import os
import signal
import subprocess
import sys
import time

import pytest

from penstock.core.health.stacks import activity
from penstock.core.messages.reports import NodeCheck, ReplicaKey
from penstock.core.model.hangs import Sight
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes import inspector as looks
from penstock.engines.processes import selfcheck
from penstock.engines.processes.inspector import Inspector, program_of
from penstock.engines.processes.paths import DataFolder
from tests.engines.processes.processes import SESSIONS

KEY = ReplicaKey(1, 1, 2)
SLEEPS = "import time\ndef blocked():\n    print('up', flush=True)\n    time.sleep(600)\nblocked()"
SPINS = "print('up', flush=True)\nwhile True: pass"


@pytest.fixture
def program():
    started = []

    def start(text, *before):
        process = subprocess.Popen([*before, sys.executable, "-c", text], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"up\n"
        while text == SLEEPS and looks.state_of(process.pid) != "S":
            time.sleep(0.001)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def look(pids, *, native=False, killed=""):
    inspector = Inspector()
    inspector.look(KEY, pids, native=native, killed=killed)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for seen in inspector.seen():
            return seen.sight
        time.sleep(0.02)
    raise AssertionError("nothing was seen")


def test_a_blocked_program_is_idle_where_it_is(program):
    sight = look([program(SLEEPS).pid])
    assert (sight.rank, sight.state, sight.changed, sight.problem) == (2, "S", False, "")
    assert sight.cpu_milli < 100
    assert sight.stack[0].function == "blocked"
    assert activity(sight) == "blocked"


def test_a_spinning_program_computes(program):
    assert activity(look([program(SPINS).pid])) == "computes"


def test_a_suspended_program_is_read_and_stays_suspended(program):
    process = program(SLEEPS)
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    sight = look([process.pid])
    assert (sight.state, sight.stack[0].function, activity(sight)) == ("T", "blocked", "stopped")
    assert look([process.pid]).state == "T"


def test_a_suspended_child_is_noticed(program):
    parent, child = program(SLEEPS), program(SLEEPS)
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert look([parent.pid, child.pid]).child_stopped


def test_what_the_kernel_killed_is_passed_on(program):
    assert look([program(SLEEPS).pid], killed="out of memory").killed == "out of memory"


def test_a_program_that_has_ended_is_gone(program):
    process = program(SLEEPS)
    process.kill()
    process.wait()
    assert activity(look([process.pid])) == "gone"


def test_of_another_process_that_has_its_number_nothing_is_told(program):
    first = looks._First(looks._Order(KEY, [program(SLEEPS).pid], native=True))
    assert first.second().stack
    first._began -= 1
    assert first.second() == Sight(KEY.rank, state="X")


def test_stacks_are_read_up_to_a_bound(program, monkeypatch):
    pid = program(SLEEPS).pid
    assert looks.stack_of(pid)[1] == ""
    monkeypatch.setattr(looks, "SAID_MAX_BYTES", 100)
    assert looks.stack_of(pid) == ((), looks.TOO_MUCH)


def test_a_tool_that_does_not_answer_is_ended(program):
    assert looks._py_spy(program(SLEEPS).pid, 0.0)[1] == "py-spy: no answer within 0 s"


def test_what_is_not_python_is_not_known():
    process = subprocess.Popen(["sleep", "600"])
    try:
        sight = look([process.pid])
    finally:
        process.kill()
        process.wait()
    assert activity(sight) == "unknown"
    assert sight.problem.startswith("py-spy: ")


def test_of_a_shell_and_its_program_the_program_is_looked_at(program):
    shell = subprocess.Popen(["sh", "-c", "sleep 600; true"])
    try:
        inner = program(SLEEPS)
        assert program_of([shell.pid, inner.pid]) == inner.pid
    finally:
        shell.kill()
        shell.wait()


def checked(command, folder):
    inspector = Inspector()
    inspector.check(command, folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for seen in inspector.seen():
            return seen
        time.sleep(0.02)
    raise AssertionError("no answer")


def test_this_machine_passes_our_own_check(tmp_path):
    assert checked("", tmp_path) == NodeCheck(True, "exit 0")


def test_a_check_of_ones_own_says_what_is_wrong(tmp_path):
    assert checked("echo too hot >&2; exit 3", tmp_path) == NodeCheck(False, "too hot")


def test_a_disk_that_cannot_be_written_is_found(tmp_path):
    assert selfcheck.disk(tmp_path / "missing").startswith("disk: ")


def test_an_agent_that_takes_exits_takes_none_of_the_checks(tmp_path):
    """The worker reaps at every SIGCHLD: a check's exit must not be lost to it, or a bad node would be opened."""
    replicas = Replicas(
        "n1", DataFolder(tmp_path), SESSIONS, {}, Journal(tmp_path / "j"), ExitBook(tmp_path / "e"), print
    )
    inspector, answers = Inspector(), []
    for _ in range(30):
        inspector.check("exit 3", tmp_path)
    deadline = time.monotonic() + 60
    while len(answers) < 30 and time.monotonic() < deadline:
        replicas.reap()
        answers += inspector.seen()
    assert answers == [NodeCheck(False, "exit 3")] * 30
