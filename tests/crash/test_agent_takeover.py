"""Agents killed, stopped and ended while programs run: who takes over, what is told, what is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.api.types import JobView
from penstock.client import Client
from penstock.core.model import events as ev
from penstock.engines.local.launch import agent_pid, stop_agent
from tests.crash.audit import NEVER_STARTED, NOBODY_WATCHED
from tests.crash.cluster import Cluster, kill, lives, until

LEASE_TTL_MS = 4_000
LOCKED = 'exec 9>>"{0}/lock"; flock -n 9 || {{ echo twice >> "{0}/twice"; exit 99; }}; '
WAITING = LOCKED + 'echo $$ >> "{0}/started"; until [ -e "{0}/go" ]; do sleep 0.02; done; {1}'


class Program:
    """A job that waits for `go` and then ends as told; it notes its starts, and whether it ran twice at once."""

    def __init__(self, cluster: Cluster, name: str, ending: str, template: str = WAITING) -> None:
        self.folder = cluster.root.parent / name
        self.folder.mkdir()
        self._cluster = cluster
        request = {"name": name, "command": template.format(self.folder, ending), "grace": "1s"}
        self.id = cluster.ask(lambda c: c.submit(request)).jobs[0].id
        until(self.pids, f"{name} has started")

    def pids(self) -> list[int]:
        """Return the process numbers with which it was started, in order."""
        path = self.folder / "started"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def go(self) -> None:
        (self.folder / "go").touch()

    def outcome(self) -> tuple[int | None, int | None, int]:
        """Wait for its end; return (exit code, signal, attempts)."""
        view = until(self._ended, f"job {self.id} has ended", 40)
        assert view is not None
        assert not (self.folder / "twice").exists()
        return view.exit_code, view.exit_signal, view.attempt

    def _ended(self) -> JobView | None:
        events = [r.event for r in self._cluster.ask(Client.events)]
        if not any(isinstance(e, ev.JobFinished) and e.job_id == self.id for e in events):
            return None
        return self._cluster.ask(lambda c: c.job(self.id))

    def exits(self) -> list[ev.ReplicaExited]:
        records = self._cluster.ask(lambda c: c.job_events(self.id))
        return [r.event for r in records if isinstance(r.event, ev.ReplicaExited)]


def stays(true: Callable[[], bool], seconds: float) -> bool:
    """Return whether `true` held all the time: here the passing of time is what is tested."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not true():
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("victim", ["worker", "guardian"])
def test_programs_outlive_a_killed_agent_process_and_their_exits_stay_exact(cluster: Cluster, victim: str) -> None:
    endings = {"code7": "exit 7", "code137": "exit 137", "killed": "kill -9 $$", "ok": "exit 0"}
    programs = {name: Program(cluster, name, ending) for name, ending in endings.items()}
    guardian, worker = cluster.settled("n1")
    assert kill(worker if victim == "worker" else guardian)
    for program in programs.values():
        program.go()
    told = {name: program.outcome() for name, program in programs.items()}
    assert told == {"code7": (7, None, 1), "code137": (137, None, 1), "killed": (None, 9, 1), "ok": (0, None, 1)}
    assert cluster.settled("n1") != (guardian, worker)


def test_what_a_program_leaves_behind_does_not_hide_its_exit_from_the_next_worker(cluster: Cluster) -> None:
    """The worker dies between the program's exit and the end of the processes that it left."""
    cluster_exit = "for i in $(seq 60); do setsid -f sleep 300; done; exit 5"
    for round_number in range(4):
        program = Program(cluster, f"leaves{round_number}", cluster_exit)
        _, worker = cluster.settled("n1")
        program.go()
        until(lambda p=program: not lives(p.pids()[0]), "the program has ended")
        kill(worker)
        cluster.replaced("n1", worker)
        assert program.outcome() == (5, None, 1)


@pytest.mark.parametrize("order", ["both at once", "worker, later guardian"])
def test_with_nobody_left_to_know_the_exit_a_job_runs_again_and_never_twice_at_once(
    cluster: Cluster, order: str
) -> None:
    program = Program(cluster, "one", "exit 6")
    guardian, worker = cluster.settled("n1")
    kill(worker)
    if order != "both at once":
        guardian, _ = cluster.replaced("n1", worker)
    kill(guardian)
    cluster.replaced("n1", guardian)
    assert lives(program.pids()[0])
    program.go()
    assert program.outcome() == (6, None, 2)
    assert [e.exit.problem for e in program.exits()] == [NOBODY_WATCHED, ""]


def died_at(step: str, folder: Path) -> dict[str, object]:
    """Let a worker die at `step` of one replica's life; return what its heir knows and tells."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.dying", str(folder), step],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("step", "noted"), [("spawned", False), ("noted", True)])
def test_a_gate_whose_agent_dies_never_runs_the_program(tmp_path: Path, step: str, noted: bool) -> None:
    answer = died_at(step, tmp_path)
    assert answer == {"noted": [noted], "told": [[None, None, NEVER_STARTED]], "boxes": []}
    assert not (tmp_path / "ran").exists()


def test_a_worker_that_dies_once_it_has_noted_an_exit_leaves_no_box(tmp_path: Path) -> None:
    assert died_at("ended", tmp_path) == {"noted": [True], "told": [[0, None, ""]], "boxes": []}
    assert (tmp_path / "ran").read_text() == "ran\n"


BEATING = (
    LOCKED
    + 'echo $$ >> "{0}/started"; trap "" TERM; while [ ! -e "{0}/go" ]; do '
    + ('date +%s%3N >> "{0}/beats.$PENSTOCK_ATTEMPT"; sleep 0.02; done; {1}')
)


def test_a_stopped_worker_is_outlived_by_no_program_when_the_server_gives_its_work_away(cluster: Cluster) -> None:
    program = Program(cluster, "one", "exit 8", BEATING)
    _, worker = cluster.settled("n1")
    kill(worker, signal.SIGSTOP)
    try:
        until(lambda: cluster.ask(Client.nodes)[0].state == "lost", "the server counts the node as lost", 15)
        assert cluster.processes("replica") == []
    finally:
        kill(worker, signal.SIGCONT)
    program.go()
    assert program.outcome() == (8, None, 2)
    lost_ms = next(r.time_ms for r in cluster.ask(Client.events) if isinstance(r.event, ev.NodeLost))
    last_beat_ms = int((program.folder / "beats.1").read_text().split()[-1])
    assert last_beat_ms < lost_ms


def test_a_server_that_is_down_for_longer_than_the_lease_ends_no_program(cluster: Cluster) -> None:
    program = Program(cluster, "one", "exit 9")
    cluster.kill_server()
    assert stays(lambda: lives(program.pids()[0]), 1.5 * LEASE_TTL_MS / 1000)
    cluster.start()
    until(lambda: cluster.ready() == 1, "the node is ready again")
    assert stays(lambda: lives(program.pids()[0]), 0.5)
    program.go()
    assert program.outcome() == (9, None, 1)
    assert len(program.pids()) == 1


LEAVING = LOCKED + 'trap "" TERM; setsid -f sleep 300; sleep 300 & echo $$ >> "{0}/started"; {1}'


@pytest.mark.parametrize("worker_too", [False, True], ids=["at rest", "while its worker is being replaced"])
def test_an_agent_that_is_told_to_leave_ends_its_programs_and_leaves_nothing(tmp_path: Path, worker_too: bool) -> None:
    with Cluster(tmp_path / "data", nodes=("n1",), lease_ttl="60s", respawn_agents=False) as cluster:
        Program(cluster, "deaf", "wait; sleep 300", LEAVING)
        _, worker = cluster.settled("n1")
        if worker_too:
            kill(worker)
        stop_agent(cluster.data, "n1")
        until(lambda: agent_pid(cluster.data, "n1") is None, "the agent has left", 15)
        assert cluster.processes("replica") == []
        assert cluster.processes("agent") == []
        assert cluster.boxes() == []


def test_an_idle_agent_without_a_server_does_not_spin(cluster: Cluster) -> None:
    _, worker = cluster.settled("n1")
    cluster.kill_server()
    used = cpu_ticks(worker)
    stays(lambda: True, 1.0)
    assert cpu_ticks(worker) - used <= os.sysconf("SC_CLK_TCK") // 5


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
