"""The control daemons of MPS: begun before the first fraction, ended after the last, never two, none left behind."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import DeviceAsk
from penstock.devices.mps import client_variables
from penstock.engines.processes.mps import FAULT_KEPT_MS, QUIT_MAX_MS, START_MAX_MS, MpsDaemons, members
from penstock.testing.builders import GIB, device
from tests.engines.processes.mps_program import MpsProgram, short_folder
from tests.server.harness import until

DEVICES = {i: device(i, uuid=f"GPU-{i}") for i in range(2)}
FIRST, SECOND, THIRD = (ReplicaKey(JobId(i), AttemptNumber(1), Rank(0)) for i in (1, 2, 3))


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return MpsProgram(tmp_path / "bin")


class Node:
    """A node with daemons, whose agent can be killed: another one takes over."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now_ms = folder, 1_000
        self.daemons = MpsDaemons(folder, DEVICES, self.now_ms)
        self._former: list[MpsDaemons] = []

    def agent_dies(self) -> None:
        self._former.append(self.daemons)
        self.daemons = MpsDaemons(self.folder, DEVICES, self.now_ms)

    def close(self) -> None:
        for index in DEVICES:
            for pid in self.running(index):
                os.kill(pid, signal.SIGKILL)
        for daemons in (*self._former, self.daemons):
            daemons.stop_commands()

    def after(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.daemons.turn(self.now_ms)

    def reaches(self, goal, step_ms=1) -> None:
        until(lambda: self.after(step_ms) or goal(self.daemons), "the daemons get there")

    def running(self, index=0):
        """Return the processes of MPS on a device, the daemon and its server."""
        return sorted(one.pid for one in members(self.folder / str(index) / "pipes"))

    def count_daemons(self, index: int) -> int:
        found = 0
        for pid in self.running(index):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                found += b"--serve" in words and os.getsid(pid) == pid
        return found

    def daemon(self, index=0) -> int:
        return int((self.folder / str(index) / "pipes" / "nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def node(program):
    with short_folder() as folder:
        one = Node(folder / "mps")
        yield one
        one.close()


def begin(node, key=FIRST, index=0):
    assert node.daemons.hold(key, index)
    node.reaches(lambda daemons: daemons.ready(index))


def test_a_daemon_begins_before_the_first_fraction_and_ends_after_the_last(node, program):
    begin(node)
    begin(node, SECOND)
    assert (len(node.running()), node.running(1), len(program.started())) == (2, [], 1)
    node.daemons.release(FIRST)
    node.after(1)
    assert node.daemons.ready(0)
    node.daemons.release(SECOND)
    node.reaches(lambda daemons: daemons.idle)
    assert (node.running(), (node.folder / "0" / "pipes").exists()) == ([], False)


def test_each_device_has_a_daemon_of_its_own_that_sees_it_alone(node, program):
    begin(node)
    begin(node, SECOND, 1)
    option = " -multiuser-server" if os.geteuid() == 0 else ""
    assert program.started() == [f"GPU-0 -d{option}", f"GPU-1 -d{option}"]
    assert not set(node.running(0)) & set(node.running(1))


def test_nothing_waits_while_a_daemon_begins(node):
    node.daemons.hold(FIRST, 0)
    began = time.monotonic_ns()
    node.after(1)
    assert time.monotonic_ns() - began < 1e9  # a whole second: the daemon's own start is waited for by nobody
    assert not node.daemons.ready(0)
    node.reaches(lambda daemons: daemons.ready(0))  # what was begun is there, and goes with the test


def test_a_driver_that_knows_no_servers_for_all_users_gets_one_without(node, program):
    program.be_old()
    begin(node)
    assert program.started() == ["GPU-0 -d"]


def test_a_daemon_that_ends_is_a_fault_of_its_device_and_names_what_was_hit(node):
    begin(node)
    begin(node, SECOND, 1)
    os.kill(node.daemon(), signal.SIGKILL)
    node.reaches(lambda daemons: daemons.faults())
    (fault,) = node.daemons.faults()
    assert (fault.index, fault.code) == (0, "mps_daemon")
    assert fault.text == "the MPS daemon of device 0 ended while 1 fraction ran"
    assert node.daemons.problem(0) == fault.text
    assert (node.daemons.release(FIRST), node.daemons.release(SECOND)) == ("the MPS daemon of its device ended", "")


def test_servers_of_an_ended_daemon_are_left_to_their_clients_and_then_go(node):
    begin(node)
    os.kill(node.daemon(), signal.SIGKILL)
    node.reaches(lambda daemons: daemons.faults())
    node.after(FAULT_KEPT_MS)
    assert (len(node.running()), len(node.daemons.faults())) == (1, 1)
    node.daemons.release(FIRST)
    node.reaches(lambda daemons: daemons.idle)
    assert (node.running(), node.daemons.faults()) == ([], ())
    begin(node, SECOND)


def test_a_daemon_that_does_not_start_is_a_fault_until_it_may_be_tried_again(node, program):
    program.fail("no CUDA-capable device is detected")
    node.daemons.hold(FIRST, 0)
    node.reaches(lambda daemons: daemons.problem(0))
    text = "the MPS daemon of device 0 did not start: no CUDA-capable device is detected"
    assert [fault.text for fault in node.daemons.faults()] == [text]
    node.daemons.release(FIRST)
    program.mend()
    node.after(FAULT_KEPT_MS)
    begin(node, SECOND)


def test_without_the_program_no_fraction_starts(node, program, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    node.daemons.hold(FIRST, 0)
    node.after(1)
    assert node.daemons.problem(0) == "nvidia-cuda-mps-control is not installed"


def test_a_path_that_is_too_long_for_sockets_is_named(tmp_path, program):
    node = Node(tmp_path / ("x" * 80))
    node.daemons.hold(FIRST, 0)
    node.after(1)
    assert "is too long a path for the sockets of MPS" in node.daemons.problem(0)


def test_a_command_that_hangs_is_killed_and_so_is_what_it_was_for(node):
    begin(node)
    os.kill(node.daemon(), signal.SIGSTOP)
    node.daemons.release(FIRST)
    node.after(1)
    node.after(QUIT_MAX_MS)
    assert node.running()
    node.reaches(lambda daemons: daemons.idle)
    assert node.running() == []


def test_a_start_that_hangs_is_ended(node, program):
    (program.folder / "nvidia-cuda-mps-control").write_text("#!/bin/sh\nexec sleep 1000\n")
    node.daemons.hold(FIRST, 0)
    node.after(1)
    node.after(START_MAX_MS + 1)
    assert node.daemons.problem(0) == "the MPS daemon of device 0 did not start: no answer"
    node.daemons.release(FIRST)
    node.reaches(lambda daemons: daemons.idle)


def test_a_new_agent_takes_over_a_daemon_whose_fractions_run_on(node, program):
    begin(node)
    pid = node.daemon()
    node.agent_dies()
    node.daemons.hold(FIRST, 0)
    node.after(1)
    assert (node.daemons.ready(0), node.daemon(), len(program.started())) == (True, pid, 1)


def test_a_new_agent_ends_a_daemon_that_nothing_needs(node):
    begin(node)
    node.agent_dies()
    node.reaches(lambda daemons: daemons.idle)
    assert node.running() == []


def test_a_daemon_that_ended_while_no_agent_watched_is_a_fault_for_its_fractions(node):
    begin(node)
    os.kill(node.daemon(), signal.SIGKILL)
    node.agent_dies()
    node.daemons.hold(FIRST, 0)
    node.reaches(lambda daemons: daemons.faults())
    assert [fault.index for fault in node.daemons.faults()] == [0]


def test_an_agent_that_ends_leaves_no_daemon_without_fractions(node):
    begin(node)
    begin(node, SECOND, 1)
    node.daemons.release(SECOND)
    node.daemons.end()
    until(lambda: not node.running(1), "its processes are gone")
    assert len(node.running(0)) == 2


@pytest.mark.parametrize("seed", range(8))
def test_no_crash_leaves_a_daemon_behind_or_makes_two_of_them(node, seed):
    rnd = random.Random(seed)
    held: dict[ReplicaKey, int] = {}
    for number in range(12):
        what = rnd.choice(["hold", "hold", "release", "agent", "daemon", "server", "turns"])
        running = [pid for index in DEVICES for pid in node.running(index)]
        if what == "hold":
            key = ReplicaKey(JobId(number + 1), AttemptNumber(1), Rank(0))
            held[key] = rnd.randrange(2)
            node.daemons.hold(key, held[key])
        elif what == "release" and held:
            key = rnd.choice(sorted(held))
            del held[key]
            node.daemons.release(key)
        elif what == "agent":
            node.agent_dies()
            for key, index in held.items():
                node.daemons.hold(key, index)
        elif what in ("daemon", "server") and running:
            os.kill(rnd.choice(running), signal.SIGKILL)
        for _ in range(rnd.randrange(4)):
            node.after(rnd.choice([1, 1_000]))
            time.sleep(rnd.random() / 100)
        for index in DEVICES:
            assert node.count_daemons(index) <= 1
    for key in held:
        node.daemons.release(key)
    node.reaches(lambda daemons: daemons.idle, step_ms=1_000)  # commands whose daemon was killed hang until then
    assert [node.running(index) for index in DEVICES] == [[], []]


def test_limits_are_those_of_the_fraction():
    third = DeviceAsk(1, share_milli=333, share_memory_bytes=10 * GIB)
    assert client_variables(third, DEVICES[0], Path("/p")) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/p",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
    }
    least = client_variables(DeviceAsk(1, share_milli=1), DEVICES[0], Path("/p"))
    assert least["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1"
    assert least["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=81M"


@pytest.mark.parametrize("fields", [{"vendor": "amd"}, {"simulated": True}, {"capability": (6, 1)}])
def test_other_devices_are_not_for_mps(tmp_path, fields):
    daemons = MpsDaemons(tmp_path / "mps", {0: device(0, **fields)}, 0)
    assert not daemons.hold(FIRST, 0)


def test_a_server_process_of_the_name_that_is_not_ours_is_left_alone(node):
    begin(node)
    other = Node(node.folder.parent / "other")
    begin(other)
    node.daemons.release(FIRST)
    node.reaches(lambda daemons: daemons.idle)
    assert len(other.running()) == 2
    other.close()
