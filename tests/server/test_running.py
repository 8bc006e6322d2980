"""Jobs from end to end: gangs meet, nothing stays behind, the important one gets its room and nobody loses work."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from penstock.core.model.errors import PenstockError
from penstock.core.model.events import CheckpointSaved, ReplicaExited
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes import procfs
from penstock.engines.processes.containment import choose
from tests.server.harness import ROOT, Server, started_for, until

RENDEZVOUS = r"""
import os, socket
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(where) as server:
        link, _ = server.accept()
        print("heard", link.recv(99).decode(), flush=True)
        link.sendall(b"all here")
else:
    while True:
        try:
            link = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            pass
    link.sendall(("rank %d on node %s" % (rank, os.environ["NODE_RANK"])).encode())
    print(link.recv(99).decode(), flush=True)
"""
STRONG = choose(f"penstock-probe-{os.getpid()}")
STRONG.close()
needs_groups = pytest.mark.skipif(STRONG.kind.startswith("sessions"), reason="no writable control groups here")
COUNTER = str(ROOT / "examples" / "shell_counter.sh")


def stops(jobs, job_id: int) -> list[str]:
    return [e.event.reason for e in jobs.client.job_events(job_id) if type(e.event).__name__ == "AttemptStopRequested"]


def test_the_members_of_a_gang_on_two_nodes_find_each_other(jobs):
    job = jobs.submit(["python3", "-c", RENDEZVOUS], replicas=2, devices=4)
    shown = jobs.ended(job)
    assert (shown.state, sorted(shown.nodes)) == ("succeeded", ["n1", "n2"])
    assert jobs.output(job, rank=0) == "heard rank 1 on node 1\n"
    assert jobs.output(job, rank=1) == "all here\n"


def test_two_gangs_at_once_get_different_ports(jobs):
    made = [jobs.submit("echo $MASTER_PORT; sleep 60", replicas=2, devices=1) for _ in range(2)]
    for job in made:
        jobs.state(job, "running")
        jobs.said(job, "\n")
    assert jobs.output(made[0]) != jobs.output(made[1])


def test_named_ports_are_in_the_environment_and_shown_with_their_host(jobs):
    said = 'echo "$PENSTOCK_PORT_HTTP $PENSTOCK_PORT_METRICS"; sleep 60'
    job = jobs.submit(said, replicas=2, devices=1, ports=["http", "metrics"])
    jobs.state(job, "running")
    for replica in jobs.client.job(job).replica_list:
        jobs.said(job, "\n", rank=replica.rank)
        ports = [f"127.0.0.1:{port}" for port in jobs.output(job, rank=replica.rank).split()]
        assert ports == [replica.ports["http"], replica.ports["metrics"]]


def test_one_failed_member_ends_the_whole_gang(jobs):
    job = jobs.submit('test "$RANK" = 1 && exit 3; sleep 60', replicas=3, devices=1, grace="100ms")
    shown = jobs.ended(job)
    assert (shown.state, shown.reason) == ("failed", "replica 1: exit 3")


def test_devices_are_told_by_number_and_never_twice(jobs):
    made = [jobs.submit("echo $PENSTOCK_DEVICES on $PENSTOCK_NODES; sleep 60", devices=2) for _ in range(4)]
    for job in made:
        jobs.said(job, "on")
    assert len({jobs.output(job) for job in made}) == 4


def test_a_job_that_forks_and_leaves_leaves_nothing_behind(server, jobs):
    job = jobs.submit("(setsid sleep 300 &) ; (trap '' TERM HUP; sleep 300) & echo forked")
    assert jobs.ended(job).state == "succeeded"
    mark = f"PENSTOCK_JOB_ID={job}".encode()
    left = [p for p in started_for(server.root) if mark in Path(f"/proc/{p}/environ").read_bytes().split(b"\0")]
    assert left == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_a_job_over_its_memory_is_ended_and_told_why(jobs):
    code = "x = bytearray()\nwhile True: x += bytes(1 << 20)"
    shown = jobs.ended(jobs.submit(["python3", "-S", "-c", code], memory="64MiB"))
    assert (shown.state, shown.exit_signal) == ("failed", 9)
    assert shown.reason == "signal 9 (out of memory: limit 64 MiB, killed by the kernel (1 process))"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
@pytest.mark.parametrize(
    ("after", "state", "code"), [("", "failed", 137), ("; exit 3", "failed", 3), ("; true", "succeeded", 0)]
)
def test_a_program_over_its_memory_within_a_shell_is_seen_too(jobs, after, state, code):
    program = "python3 -S -c 'while True: globals().setdefault(\"x\", []).append(bytes([1]) * (1 << 20))'"
    job = jobs.submit(program + (after or "; exit $?"), memory="64MiB")
    shown = jobs.ended(job)
    why = "out of memory: limit 64 MiB, killed by the kernel (1 process)"
    assert (shown.state, shown.exit_code) == (state, code)
    assert shown.reason == ("" if state == "succeeded" else f"exit {code} ({why})")
    (ended,) = (e.event.exit for e in jobs.client.job_events(job) if isinstance(e.event, ReplicaExited))
    assert (ended.note, ended.observed) == (why, True)


def test_a_failed_job_is_tried_again_as_often_as_it_asked(jobs):
    job = jobs.submit('echo try $PENSTOCK_ATTEMPT; test "$PENSTOCK_ATTEMPT" = 2', retries=1)
    shown = jobs.ended(job)
    assert (shown.state, shown.attempt) == ("succeeded", 2)
    assert (jobs.output(job, 1), jobs.output(job, 2)) == ("try 1\n", "try 2\n")


def test_a_job_over_its_time_is_stopped(jobs):
    job = jobs.submit("sleep 60", time_limit="300ms", grace="100ms")
    assert jobs.ended(job).reason == "time limit of 0 s reached"
    assert stops(jobs, job) == ["time_limit"]


def test_a_cancelled_job_is_asked_to_save_and_ends(jobs):
    job = jobs.submit("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    jobs.said(job, "ready")
    jobs.client.cancel(job)
    assert jobs.ended(job).state == "cancelled"
    assert "saved" in jobs.output(job)


def test_cancelling_again_or_too_late_changes_nothing(jobs):
    job = jobs.submit()
    jobs.ended(job)
    before = len(jobs.client.job_events(job))
    jobs.client.cancel(job)
    jobs.client.cancel(job)
    assert (jobs.client.job(job).state, len(jobs.client.job_events(job))) == ("succeeded", before)


def test_an_important_job_makes_a_lesser_one_save_and_go_on_later(jobs):
    for _ in range(2):
        low = jobs.submit([COUNTER, "40", "0.05"], devices=4, priority="low")
        jobs.said(low, "counting from 0")
    high = jobs.submit("sleep 0.2", devices=4, priority="high")
    assert jobs.ended(high).state == "succeeded"
    shown = [jobs.ended(job) for job in (low - 1, low)]
    (victim,) = [job for job in shown if job.preemptions]
    assert (victim.state, victim.attempt) == ("succeeded", 2)
    saved = jobs.output(victim.id, 1).splitlines()[-1].removeprefix("stopped at ")
    assert jobs.output(victim.id, 2).splitlines() == [f"counting from {saved} to 40", "counted to 40"]


COUNTS = "trap 'echo saved; exit 0' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"


def suspended_for(jobs) -> tuple[int, int]:
    """Return a counting job that is suspended, and the urgent one that has its CPUs."""
    made = [jobs.submit(COUNTS, cpus=32, priority="low", on_preempt="suspend") for _ in range(2)]
    for job in made:
        jobs.said(job, "5\n")
    high = jobs.submit("sleep 60", cpus=32, priority="high")
    jobs.state(high, "running")
    (low,) = [job for job in made if jobs.client.job(job).state == "suspended"]
    jobs.client.cancel(next(job for job in made if job != low))
    return low, high


def worker_pid(server: Server, node: str) -> int | None:
    guardian = agent_pid(server.data, node)
    found = (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())
    return next((pid for pid in found if procfs.parent_of(pid) == guardian), None)


@needs_groups
@pytest.mark.root
def test_an_important_job_gets_the_cpus_of_one_that_stands_still_meanwhile(jobs):
    low, high = suspended_for(jobs)
    before = jobs.output(low)
    assert "it resumes with 32 CPUs on" in jobs.client.explain(low).text
    time.sleep(0.3)
    assert jobs.output(low) == before
    jobs.client.cancel(high)
    jobs.state(low, "running")
    until(lambda: len(jobs.output(low)) > len(before), "it counts on")
    counted = jobs.output(low).splitlines()
    assert counted == [str(i + 1) for i in range(len(counted))]
    assert jobs.client.job(low).attempt == 1


@needs_groups
@pytest.mark.root
def test_a_suspended_job_that_is_cancelled_saves_first(jobs):
    low, _ = suspended_for(jobs)
    jobs.client.cancel(low)
    assert jobs.ended(low).state == "cancelled"
    assert jobs.output(low).splitlines()[-1] == "saved"


@needs_groups
@pytest.mark.root
def test_what_is_suspended_stays_so_when_the_agent_s_worker_dies(server, jobs):
    low, high = suspended_for(jobs)
    before = jobs.output(low)
    (node,) = jobs.client.job(low).nodes
    os.kill(worker_pid(server, node), signal.SIGKILL)
    until(lambda: worker_pid(server, node), "there is a new worker")
    time.sleep(2.5)  # more than a heartbeat
    assert (jobs.client.job(low).state, jobs.output(low)) == ("suspended", before)
    jobs.client.cancel(high)
    jobs.state(low, "running")
    until(lambda: len(jobs.output(low)) > len(before), "it counts on")
    assert jobs.client.job(low).attempt == 1


def test_a_job_that_may_not_be_preempted_is_not(jobs):
    made = [jobs.submit("sleep 60", devices=4, priority="low", preemptible=False) for _ in range(2)]
    for job in made:
        jobs.state(job, "running")
    high = jobs.submit(devices=4, priority="high")
    until(lambda: jobs.client.explain(high).code == "no_fit", "the cycle has seen it")
    assert [stops(jobs, job) for job in made] == [[], []]


def test_a_checkpoint_on_request_is_made_and_shown(jobs):
    script = (
        'trap \'echo "{\\"kind\\":\\"checkpoint\\",\\"step\\":7}" >> $PENSTOCK_REPORT_FILE\' USR1; '
        "echo ready; while :; do sleep 0.01; done"
    )
    job = jobs.submit(script, checkpoint={"request_signal": "SIGUSR1"}, grace="100ms")
    jobs.said(job, "ready")
    jobs.state(job, "running")
    jobs.client.checkpoint(job)
    until(lambda: jobs.client.job(job).checkpoint_step == 7, "the checkpoint is logged")


TRAINS = """
import time
from penstock import training
with training.session() as run:
    run.resume(None)
    for step in run.steps(100_000, capture=lambda: {"step": run.step}):
        print("step", flush=True)
        time.sleep(0.02)
"""


def test_a_training_is_asked_to_save_without_a_declaration(jobs):
    job = jobs.submit([sys.executable, "-c", TRAINS], env={"PYTHONPATH": str(ROOT / "src")})
    jobs.said(job, "step")

    def saved() -> list[str]:
        with contextlib.suppress(PenstockError):  # refused until the agent has read the report
            jobs.client.checkpoint(job)
        return [e.event.why for e in jobs.client.job_events(job) if isinstance(e.event, CheckpointSaved)]

    assert set(until(saved, "the checkpoint is logged")) == {"request"}
    jobs.client.cancel(job)


def test_a_drained_node_gets_no_work_and_is_opened_again(jobs):
    jobs.client.drain("n1", reason="repair")
    try:
        shown = next(n for n in jobs.client.nodes() if n.name == "n1")
        assert (shown.draining, shown.drain_reason) == (True, "repair")
        assert jobs.ended(jobs.submit("true", devices=4)).nodes == ["n2"]
    finally:
        jobs.client.drain("n1", on=False)
    assert not any(n.draining for n in jobs.client.nodes())


def test_draining_with_eviction_moves_running_work(jobs):
    job = jobs.submit("echo ready; sleep 60", devices=1)
    jobs.said(job, "ready")
    (name,) = jobs.client.job(job).nodes
    jobs.client.drain(name, evict=True)
    try:
        jobs.said(job, "ready", attempt=2)
        assert jobs.state(job, "running").nodes != [name]
    finally:
        jobs.client.drain(name, on=False)


def test_a_job_is_never_missing_while_it_ends(jobs):
    made = [jobs.submit("true", array=20) for _ in range(3)]
    ids = [first + index for first in made for index in range(20)]
    while {jobs.client.job(job).state for job in ids} != {"succeeded"}:
        listed = [job.id for job in jobs.client.jobs(finished="true", limit=1000).jobs]
        assert set(ids) <= set(listed)
        assert len(set(listed)) == len(listed)


def test_whatever_a_program_reports_its_node_lives_on(server, jobs):
    job = jobs.submit('printf \'{"kind":"\\377"}\\n{"kind":"checkpoint","step":3}\\n\' > "$PENSTOCK_REPORT_FILE"')
    shown = jobs.ended(job)
    logs = [(server.data.node(name) / "agent.log").read_text() for name in ("n1", "n2")]
    assert (shown.checkpoint_step or shown.step, shown.attempt) == (3, 1)
    assert not [text for text in logs if "worker failed" in text]
