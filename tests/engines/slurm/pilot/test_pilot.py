"""A pilot on a real Slurm: nodes come as the queue needs them, go when they are not, and take nothing with them."""

import sys
from collections.abc import Iterator

import pytest

from tests.engines.conformance.jobsuite import EXAMPLES, left, paths
from tests.engines.slurm import cluster as clusters
from tests.engines.slurm.cluster import SlurmCluster
from tests.engines.slurm.pilot.flying import Flying, find, flying
from tests.engines.slurm.pilot.killing import agents_of, kill, stepds
from tests.server.harness import until


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with find(clusters.shared()) as made:
        yield made


@pytest.fixture(scope="module")
def server(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flying]:
    with flying(slurm, tmp_path_factory.mktemp("pilot")) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_before(slurm: SlurmCluster, server: Flying) -> None:
    """Each test begins without allocations, and leaves no program."""
    for job in server.client.jobs().jobs:
        server.client.cancel(job.id)
    slurm.empty()
    until(lambda: not server.ready() and not server.allocations(), "no nodes", 60)


def training(server: Flying, steps: int = 300, **more: object) -> int:
    env = {"PYTHON": sys.executable, "EXAMPLES": str(EXAMPLES), "SHARED": str(server.root), **paths()}
    command = f'exec "$PYTHON" "$EXAMPLES/digits_numpy.py" --steps {steps} --hidden 16 --step-ms 20'
    return server.run(command, env=env, grace="10s", **more)


def listed(server: Flying) -> list[str]:
    return sorted(node.name for node in server.client.nodes())


def test_a_gang_runs_over_two_allocations(server):
    job = server.run("echo $RANK of $WORLD_SIZE", cpus=4, replicas=2, topology="spread")
    view = server.wait_state(job, "succeeded")
    assert len({name.rsplit("-", 1)[0] for name in view.nodes}) == 2
    nodes = {node.name: node for node in server.client.nodes()}
    assert {nodes[name].cpu_milli for name in view.nodes} == {4_000}
    assert {(nodes[name].engine, nodes[name].not_promised[0].name) for name in view.nodes} == {
        ("slurm", "memory of a job")
    }


def test_an_allocation_that_ends_moves_its_jobs_with_no_step_lost(server, slurm):
    job = training(server)
    until(lambda: server.client.job(job).step >= 30, "the training is under way", 60)
    (number,) = server.allocations()
    slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=2")
    view = server.wait_state(job, "succeeded")
    first, *others = server.client.attempts(job).attempts
    assert (first.outcome, [(one.resumed_step, one.lost_steps) for one in others]) == (
        "drained",
        [(first.saved_step, 0)],
    )
    assert not view.nodes[0].startswith(f"slurm-{number}-")
    assert not left(server.root)


@pytest.mark.slow
def test_a_job_that_would_not_end_in_time_waits_for_another_allocation(server, slurm):
    server.run("sleep 30")
    server.wait_ready(1)
    (number,) = server.allocations()
    slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=6")
    until(lambda: server.client.node(f"slurm-{number}-0").leaves_ms, "its end is known", 30)
    job = server.run("echo there", time_limit="7m", preemptible=False)
    view = server.wait_state(job, "succeeded")
    assert not view.nodes[0].startswith(f"slurm-{number}-")


def test_a_cancelled_allocation_is_lost_at_once_and_its_job_goes_on_elsewhere(server, slurm):
    job = training(server)
    until(lambda: server.client.job(job).step >= 30, "the training is under way", 60)
    (number,) = server.allocations()
    slurm.run("scancel", number)
    until(lambda: server.client.job(job).attempt == 2, "another attempt", 60)
    until(lambda: number not in {name.split("-")[1] for name in listed(server)}, "its node is listed no more", 30)
    view = server.wait_state(job, "succeeded")
    assert {name.split("-")[1] for name in listed(server)} == {view.nodes[0].split("-")[1]}
    assert server.client.attempts(job).attempts[0].nodes == [f"slurm-{number}-0"]
    assert not left(server.root)


def test_a_waiting_job_hears_of_the_pilot(server, slurm):
    blocker = slurm.submit("sleep 300", "-N4", "-c4", "--mem=3000", "-t", "10")
    slurm.wait(blocker, "RUNNING")
    job = server.run("true", cpus=4)
    until(lambda: "PENDING" in server.allocations().values(), "an ask", 30)
    said = until(lambda: server.client.explain(job).elsewhere, "words of the pilot", 30)
    assert said.startswith("pilot: waits for 1 Slurm node")
    never = server.run("true", cpus=400)
    said = until(lambda: server.client.explain(never).elsewhere, "words of the pilot", 30)
    assert said == "pilot: the 4 nodes that it may have at the most cannot hold it: 4 nodes have too few CPUs"
    server.client.cancel(never)
    server.client.cancel(job)
    until(lambda: not server.allocations(), "the ask is cancelled", 30)


def test_a_server_that_comes_back_finds_its_allocations(server):
    job = training(server, steps=600)
    until(lambda: server.client.job(job).step >= 30, "the training is under way", 60)
    before = server.allocations()
    server.hang_up()
    server.process.kill()
    server.process.wait()
    server.start()
    server.wait_state(job, "succeeded")
    assert server.client.job(job).attempt == 1
    assert server.allocations() == before


def test_an_agent_that_dies_takes_its_jobs_along(server):
    job = server.run("sleep 300 & setsid sleep 300 & exec sleep 300", env={"SHARED": str(server.root)}, grace="1s")
    until(lambda: len(left(server.root)) >= 3, "its programs", 60)
    kill(agents_of(server.slurm))
    until(lambda: server.client.job(job).attempt == 2, "another attempt", 60)
    server.client.cancel(job)
    server.wait_state(job, "cancelled")
    until(lambda: not left(server.root), "nothing is left", 30)


@pytest.mark.slow
def test_a_step_of_slurm_that_dies_ends_its_agent(server):
    job = server.run("exec sleep 300", env={"SHARED": str(server.root)}, grace="1s")
    server.wait_state(job, "running")
    kill(stepds(server.slurm))
    until(lambda: server.client.job(job).attempt == 2, "another attempt", 60)
    server.client.cancel(job)
    server.wait_state(job, "cancelled")
    until(lambda: not left(server.root), "nothing is left", 30)


def test_allocations_that_come_to_nothing_are_asked_for_ever_more_seldom(server, slurm, tmp_path):
    with flying(slurm, tmp_path, python="/nowhere/python", backoff_s=20) as broken:
        job = broken.run("true")

        def said_so() -> str:
            said = broken.client.explain(job).elsewhere
            return said if "ended before" in said else ""

        said = until(said_so, "the problem", 60)
        assert "the last ask failed: Slurm job " in said
        assert str(tmp_path / "pilot") in said
        assert "; asked again at " in said
        asked = [r for r in broken.client.all_events() if type(r.event).__name__ == "CapacityRequested"]
        assert len(asked) == 1
