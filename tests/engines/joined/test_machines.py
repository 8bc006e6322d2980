"""Nodes in network namespaces: gangs across machines, cut cables, kills, and servers that move."""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.client.outputs import lines_of
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.processes import procfs
from tests.engines.joined.machines import LONG, SHORT, DistantMachine, Site, require_namespaces
from tests.server.harness import Jobs, until

MEET = """
import os, socket, sys
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as door:
        link, who = door.accept()
    link.sendall(b"welcome")
    print("came", who[0])
else:
    import time
    for _ in range(200):
        try:
            link = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.05)
    print("heard", link.recv(100).decode(), "from", place[0])
"""
COUNT = """
import os, sys, time
print("begins", flush=True)
for step in range(int(sys.argv[1])):
    print("step", step, "x" * 2000, flush=True)
    time.sleep(0.02)
print("ends", flush=True)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    require_namespaces()
    with Site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture
def jobs(site: Site) -> Iterator[Jobs]:
    site.all_ready()
    made = Jobs(site.client)
    yield made
    with contextlib.suppress(Exception):
        made.close()


def counting(jobs: Jobs, steps: int, **fields: object) -> int:
    return jobs.submit([sys.executable, "-c", COUNT, str(steps)], devices=2, **fields)


def counted(steps: int) -> list[str]:
    return ["begins", *(f"step {step} {'x' * 2000}" for step in range(steps)), "ends"]


def place_of(site: Site, jobs: Jobs, job: int) -> DistantMachine:
    (node,) = jobs.client.job(job).nodes
    return next(one for one in site.machines if one.name == node)


def test_a_gang_meets_across_machines(site: Site, jobs: Jobs) -> None:
    job = jobs.submit([sys.executable, "-c", MEET], replicas=2, devices=2)
    assert jobs.ended(job).state == "succeeded", jobs.client.job(job).reason
    one, other = sorted(machine.address for machine in site.machines)
    outputs = [jobs.output(job, rank=rank) for rank in (0, 1)]
    assert outputs in (
        [f"came {one}\n", f"heard welcome from {other}\n"],
        [f"came {other}\n", f"heard welcome from {one}\n"],
    )


def test_a_log_is_followed_to_its_last_line(site: Site, jobs: Jobs) -> None:
    job = counting(jobs, 30)
    assert list(lines_of(jobs.client, job, follow=True)) == counted(30)


def test_where_nodes_are_is_shown(site: Site) -> None:
    shown = {node.name: (node.at, node.address, node.rack) for node in site.client.nodes() if node.name != "n1"}
    assert shown == {one.name: (one.address, one.address, "r9") for one in site.machines}


def test_checkpoints_and_scratch_lie_on_the_machine(site: Site, jobs: Jobs) -> None:
    job = jobs.submit("sh -c 'echo $PENSTOCK_CHECKPOINT_DIR; echo $PENSTOCK_SCRATCH_DIR'", devices=2)
    jobs.ended(job)
    folder = next(m for m in site.machines if [m.name] == jobs.client.job(job).nodes).data.job(JobId(job))
    assert jobs.output(job).split() == [str(folder / "checkpoints"), str(folder / "work")]


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_jobs_and_outputs_outlive_kills_of_agent_and_server(site: Site, jobs: Jobs, kills: int) -> None:
    dice = random.Random()
    while kills > 0:
        job = counting(jobs, 200)
        jobs.state(job, "running")
        machine = place_of(site, jobs, job)
        for victim in dice.sample(["agent", "server", "server", "server"], 4):  # a second guardian takes exits with it
            kills -= 1
            time.sleep(dice.random() / 2)
            if victim == "agent":
                os.kill(machine.pid or 0, signal.SIGKILL)
            else:
                site.kill()
                site.start()
                jobs.client = site.client
        ended = jobs.ended(job)
        lost = [one.detail for one in jobs.client.attempts(job).attempts[:-1]]
        assert ended.state == "succeeded", jobs.client.attempts(job)
        assert all("exit status is not known" in text for text in lost), lost  # docs/adr/0002: the agent's limit
        assert list(lines_of(jobs.client, job, follow=True)) == counted(200)


def test_a_server_that_listens_elsewhere_is_found_again(site: Site, jobs: Jobs) -> None:
    port = int(site.data.agents_port.read_text())
    site.kill()
    site.start(listen_agents=f"{site.network.server}:{port + 1 if port < 65_000 else port - 1}")
    moved = int(site.data.agents_port.read_text())
    assert moved != port
    for machine in site.machines:
        machine.join(None, "--servers", f"{site.network.server}:{moved}")
    site.all_ready()
    jobs.client = site.client
    assert jobs.ended(jobs.submit("true", devices=2)).state == "succeeded"


def test_beyond_its_lease_a_cut_node_has_ended_its_job_before_it_runs_elsewhere(site: Site, jobs: Jobs) -> None:
    site.restart(**SHORT)
    jobs.client = site.client
    job = jobs.submit("sh -c 'echo $$; exec sleep 600'", devices=2, retries=0)
    jobs.state(job, "running")
    cut = place_of(site, jobs, job)
    until(lambda: jobs.client.outputs(job) and jobs.output(job), "it says its number")
    pid = int(jobs.output(job))
    ticks = procfs.start_ticks(pid)
    assert ticks is not None
    cut.plug(into=False)
    try:
        try:
            until(lambda: jobs.client.job(job).nodes not in ([], [cut.name]), "it is placed on the other machine", 60)
        except AssertionError as late:
            raise AssertionError(late, jobs.client.attempts(job), jobs.client.nodes()) from None
        assert not procfs.alive(pid, ticks)
        jobs.state(job, "running")
    finally:
        cut.plug(into=True)
    site.all_ready()
    assert jobs.client.job(job).attempt == 2
    site.restart(**LONG)
    jobs.client = site.client


def test_what_came_stays_when_its_node_is_removed(site: Site, jobs: Jobs) -> None:
    job = counting(jobs, 3)
    jobs.ended(job)
    assert list(lines_of(jobs.client, job, follow=True)) == counted(3)
    machine = next(m for m in site.machines if [m.name] == jobs.client.job(job).nodes)
    key = ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))
    machine.data.output(key).unlink()
    jobs.client.remove_node(machine.name)
    until(lambda: not jobs.client.node(machine.name).connected, "it is let in no more")
    assert list(lines_of(jobs.client, job, follow=False)) == counted(3)
    machine.join(jobs.client.declare_node({"name": machine.name, "rack": "r9"}))
    site.all_ready()
