"""What every engine promises, shown on a real agent: it starts, watches, stops, tells, and leaves nothing behind."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.core.messages.orders import ChangeBatch, SaveReplica, StopReplica
from penstock.core.messages.reports import SHUT_DOWN, ProgressSeen
from penstock.core.model.batching import BatchChoice
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.node_faults import Fault, fault_of
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.agent.journal import ExitBook
from penstock.engines.agent.state_machine import LEASE_OVER
from penstock.engines.local.launch import agent_pid, node_config, start_agent
from penstock.engines.processes import procfs
from penstock.testing.builders import node
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.processes.processes import HEADLESS, escaped, escaping
from tests.engines.processes.test_containment import needs_groups
from tests.server.harness import started_for, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """A server with one agent, for tests that leave it as it was."""
    yield from _running(tmp_path_factory.mktemp("node"))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[FakeServer]:
    """A server with an agent that the test may harm."""
    yield from _running(tmp_path / "node")


def _running(root: Path, **fields) -> Iterator[FakeServer]:
    made = FakeServer(root, **fields)
    try:
        made.agent()
        made.ready()
        yield made
    finally:
        made.close()


def test_a_started_program_is_reported_with_its_process(server):
    key = server.start("sleep", "60")
    pid = server.seen(key, "running").pid
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the gate becomes the program")
    server.order(StopReplica(key, 0))
    assert server.ended(key).signal in (signal.SIGTERM, signal.SIGKILL)


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"refused": "there is no secret KEY any more"}, "there is no secret KEY any more"),
        pytest.param(
            {"account": "nobodi"},
            "the machine has no account 'nobodi': did you mean 'nobody'?",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as other accounts"),
        ),
    ],
)
def test_what_is_the_jobs_own_fault_ends_it_and_speaks_against_no_node(server, fields, note):
    ended = server.ended(server.start("true", **fields))
    assert ended == ExitInfo(126, note=note)
    assert fault_of(ended) is None


def test_an_exit_says_how_much_processor_time_the_replica_used(server):
    used = server.used(server.start("sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"))
    assert used is None or 10 <= used.cpu_ms <= 60_000  # None: without control groups it is not known at the end


def test_what_a_program_prints_is_never_the_nodes_own_word(server):
    ended = server.ended(server.start("sh", "-c", "echo 'RuntimeError: NVRM: Xid 79'; exit 1"))
    assert ended == ExitInfo(1, last_error="RuntimeError: NVRM: Xid 79")
    assert fault_of(ended) == Fault("RuntimeError: NVRM: Xid 79", own=False)


@needs_groups
@pytest.mark.root
def test_what_the_node_saw_by_itself_is_told_as_that(server):
    code = "print('RuntimeError: Xid 79', flush=True)\nx = bytearray(1)\nwhile True: x += bytes(1 << 20)"
    limited = ReplicaAsk(Resources(memory_bytes=48 << 20))
    ended = server.ended(server.start(sys.executable, "-S", "-c", code, ask=limited))
    why = "out of memory: limit 48 MiB, killed by the kernel (1 process)"
    assert ended == ExitInfo(signal=9, note=why, observed=True)


@needs_groups
@pytest.mark.root
def test_the_last_error_of_a_program_is_told_beside_what_the_kernel_did_to_a_child_of_it(server):
    eats = "x = bytearray(1)\nwhile True: x += bytes(1 << 20)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {eats!r}])\n{{}}['x']"
    limited = ReplicaAsk(Resources(memory_bytes=64 << 20))
    ended = server.ended(server.start(sys.executable, "-S", "-c", code, ask=limited))
    assert (ended.code, ended.last_error, ended.observed) == (1, "KeyError: 'x'", True)
    assert ended.text() == "exit 1 (KeyError: 'x'; out of memory: limit 64 MiB, killed by the kernel (1 process))"


@pytest.mark.parametrize("code", [0, 3, 126, 255])
def test_the_exit_code_is_told_exactly(server, code):
    assert server.ended(server.start("sh", "-c", f"exit {code}")) == ExitInfo(code)


def test_the_signal_is_told_exactly(server):
    assert server.ended(server.start("sh", "-c", "kill -SEGV $$")) == ExitInfo(signal=int(signal.SIGSEGV))


def test_a_program_that_heeds_the_stop_may_save_and_leave(server):
    key = server.start("sh", "-c", "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    server.said(key, "ready")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key) == ExitInfo(7, stop_sent=True)
    server.said(key, "saved")


def test_a_program_that_does_not_heed_it_is_killed_after_its_grace(server):
    key = server.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    server.said(key, "ready")
    server.order(StopReplica(key, 100))
    assert server.ended(key) == ExitInfo(signal=9, stop_sent=True)


def test_a_program_that_has_lost_its_first_thread_is_asked_to_stop_too(server):
    key = server.start(sys.executable, "-S", "-c", HEADLESS)
    pid = server.seen(key, "running").pid
    until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z", "the program looks dead")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key).signal == signal.SIGTERM


def test_the_stop_signal_is_the_one_declared(server):
    key = server.start(
        "sh", "-c", "trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done", checkpoint=CheckpointSpec("SIGINT")
    )
    server.said(key, "ready")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key).code == 5


def test_a_program_asked_to_save_goes_on(server):
    script = "trap 'echo saving' USR1; trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    key = server.start("sh", "-c", script, checkpoint=CheckpointSpec(request_signal="SIGUSR1"))
    server.said(key, "ready")
    server.order(SaveReplica(key))
    server.said(key, "saving")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key) == ExitInfo(0, stop_sent=True)


def test_a_program_is_told_of_another_batch_while_it_runs(server):
    wait = 'until [ -e "$PENSTOCK_BATCH_FILE" ]; do sleep 0.01; done'
    script = f'echo "began with $PENSTOCK_BATCH"; {wait}; echo "told $(cat "$PENSTOCK_BATCH_FILE")"'
    key = server.start("sh", "-c", script, batch=BatchChoice(32, 1))
    server.said(key, "began with 32,1")
    server.order(ChangeBatch(key, BatchChoice(64)))
    server.said(key, "told 64,0")
    server.ended(key)
    server.order(ChangeBatch(key, BatchChoice(8)))
    server.seen(server.start("sleep", "60"), "running")
    assert server.data.batch(key).read_text() == "64,0\n"


SLOW_TO_SAVE = """
import signal, sys, time
def stop(*_):
    time.sleep(1.0)
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, lambda *_: print("saving", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def around(tmp_path):
    """Return a command that runs a program, slow to save, within a shell that knows nothing of signals."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW_TO_SAVE)
    return "sh", "-c", f"{sys.executable} -S {script}; true"


def test_a_program_within_a_shell_has_its_grace_though_the_shell_falls_at_once(server, around):
    key = server.start(*around)
    server.said(key, "ready")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key) == ExitInfo(signal=int(signal.SIGTERM), stop_sent=True)
    server.said(key, "saved")


def test_what_a_fallen_shell_has_left_is_killed_after_the_grace(server):
    key = server.start("sh", "-c", "sh -c \"trap '' TERM; echo ready; while :; do sleep 0.01; done\"; true")
    server.said(key, "ready")
    server.order(StopReplica(key, 200))
    assert server.ended(key) == ExitInfo(signal=int(signal.SIGTERM), stop_sent=True)


def _worker(server):
    guardian = agent_pid(server.data, "n1")
    return int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])


def test_the_grace_within_a_shell_outlasts_the_agents_worker(own_server, around):
    key = own_server.start(*around)
    own_server.said(key, "ready")
    worker = _worker(own_server)
    own_server.order(StopReplica(key, 30_000))
    own_server.seen(key, "stopping")
    os.kill(worker, signal.SIGKILL)
    assert own_server.ended(key).signal == signal.SIGTERM
    own_server.said(key, "saved")


def test_a_program_within_a_shell_is_asked_to_save(server, around):
    key = server.start(*around, checkpoint=CheckpointSpec(request_signal="SIGUSR1"))
    server.said(key, "ready")
    server.order(SaveReplica(key))
    server.said(key, "saving")
    server.order(StopReplica(key, 0))
    server.ended(key)


def test_a_replica_that_ended_with_its_agent_was_shut_down_though_nobody_heard_of_it(own_server):
    key = own_server.start("sleep", "60")
    own_server.seen(key, "running")
    own_server.stop_agent()
    own_server.reports.clear()
    own_server.agent()
    assert own_server.ended(key) == ExitInfo(signal=15, problem=SHUT_DOWN)


def test_a_replica_that_was_asked_to_stop_was_asked_also_when_its_agent_starts_again(own_server):
    key = own_server.start("sleep", "60")
    own_server.seen(key, "running")
    own_server.order(StopReplica(key, 30_000))
    own_server.ended(key)
    own_server.stop_agent()
    own_server.reports.clear()
    own_server.agent()
    assert own_server.ended(key) == ExitInfo(signal=15, stop_sent=True)


def test_a_program_that_says_so_by_itself_is_asked_to_save(server):
    say = 'echo \'{"kind":"listens","signal":"SIGUSR1"}\' >> $PENSTOCK_REPORT_FILE'
    script = f"trap 'echo saving' USR1; {say}; while :; do sleep 0.01; done"
    key = server.start("sh", "-c", script)
    until(lambda: server.progress(key), "it says so")
    assert server.progress(key) == [ProgressSeen(key, "listens", 0, why="SIGUSR1")]
    server.order(SaveReplica(key))
    server.said(key, "saving")
    server.order(StopReplica(key, 0))
    server.ended(key)


def test_reports_of_a_program_are_passed_on(server):
    script = 'echo \'{"kind":"resumed","step":2}\n{"kind":"checkpoint","step":5,"bytes":9,"why":"asked"}\''
    key = server.start("sh", "-c", script + ' > "$PENSTOCK_REPORT_FILE"')
    server.ended(key)
    assert server.progress(key) == [
        ProgressSeen(key, "resumed", 2),
        ProgressSeen(key, "checkpoint", 5, 9, "asked"),
    ]


def test_a_program_that_declared_its_work_done_is_done_whatever_its_exit(server):
    key = server.start("sh", "-c", 'echo \'{"kind":"done"}\' > "$PENSTOCK_REPORT_FILE"; exit 9')
    assert server.ended(key) == ExitInfo(9, done=True)


def test_children_that_outlive_their_program_are_ended_before_its_exit_is_told(server, tmp_path):
    key = server.start(*escaping(tmp_path, "stay"))
    away = escaped(tmp_path)
    os.kill(server.seen(key, "running").pid, signal.SIGKILL)
    assert server.ended(key).signal == 9
    assert not Path(f"/proc/{away}").exists()


def test_an_exit_is_told_until_it_is_acknowledged_and_then_forgotten(server):
    key = server.start("sh", "-c", 'echo "{}" > "$PENSTOCK_REPORT_FILE"')
    server.ended(key)
    server.next_inventory(lambda r: any(s.key == key for s in r.replicas))
    server.acknowledge(key)
    assert server.data.report(key).read_text() == "{}\n", "kept as long as the output"


def test_a_start_for_a_former_life_of_the_node_is_not_carried_out(server):
    key = server.start("true", incarnation="another")
    after = server.start("true")
    server.ended(after)
    assert not server.data.output(key).exists()


def test_what_cannot_be_started_is_told_as_the_nodes_problem(server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        key = server.start("true", world_size=2, master_port=port)
        assert server.ended(key).problem == f"rendezvous port {port} of n1 is in use"
    blocked = server.start("true")
    server.ended(blocked)
    bad = server.data.output(msgspec.structs.replace(blocked, attempt=2))
    bad.mkdir()
    key = server.start("true", key=msgspec.structs.replace(blocked, attempt=2))
    assert server.ended(key).problem.startswith("could not be started on n1: ")
    parent = node_config(server.data.node("n1") / "agent.json").box_parent
    groups = Path("/sys/fs/cgroup")
    assert [g for g in (groups, *groups.glob("*/")) if (g / parent / f"n1.{key}").exists()] == []


def test_only_ends_that_may_be_a_replicas_own_are_noted(own_server):
    script = "(sh -c 'exit 44' &); sleep 0.2; (setsid sh -c 'exit 33' &); sleep 60"
    own_server.start("sh", "-c", script)
    book = ExitBook(own_server.data.node("n1") / "exits")
    until(lambda: book.refresh() or (33, None) in book.exits.values(), "the guardian notes who led a session")
    assert (44, None) not in book.exits.values()


def test_there_is_one_agent_a_node(own_server):
    pid = agent_pid(own_server.data, "n1")
    start_agent(own_server.data, node("n1"))
    assert agent_pid(own_server.data, "n1") == pid


def test_an_agent_that_is_asked_to_leave_ends_everything_first(own_server):
    key = own_server.start("sh", "-c", "trap '' TERM; echo ready; sleep 60")
    own_server.said(key, "ready")
    own_server.stop_agent()
    left = [pid for pid in started_for(own_server.data.root) if pid != os.getpid()]
    assert left == []
    assert own_server.ended(key).problem == "its node was shut down"


def test_without_acknowledges_everything_ends_with_the_lease(tmp_path):
    for server in _running(tmp_path / "node", lease_ms=800):
        key = server.start("sleep", "60")
        server.seen(key, "running")
        server.answering = False
        assert server.ended(key) == ExitInfo(signal=9, problem=LEASE_OVER)


def test_what_is_ordered_while_no_guardian_lives_is_started_by_the_next_worker(own_server):
    guardian, worker = agent_pid(own_server.data, "n1"), _worker(own_server)
    assert guardian
    os.kill(worker, signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    until(lambda: procfs.parent_of(worker) != guardian, "the guardian is gone")
    key = own_server.start("sh", "-c", "sleep 2; exit 3")
    before = len(own_server.hellos)
    os.kill(worker, signal.SIGCONT)
    until(lambda: len(own_server.hellos) > before, "the next worker has come")
    own_server.start("sh", "-c", "sleep 2; exit 3", key=key)  # as the server does where a node has not what it should
    own_server.seen(key, "running")
    os.kill(worker, signal.SIGKILL)  # by now the guardian: a program of its own would end unseen
    assert own_server.ended(key) == ExitInfo(code=3)
