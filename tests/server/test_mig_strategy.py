"""A pool that divides devices ahead of demand: the server orders it, the agent does it, jobs find what they ask for.

The devices are simulated, and so is `nvidia-smi`, which obeys the driver's rules; everything else is real.
"""

import json
from collections.abc import Iterator

import pytest

from penstock.api.nodes import MigInstanceView
from penstock.cli.mig import strategy_of
from penstock.core.model.errors import PenstockError
from penstock.devices.simulated_mig import SimulatedMig
from penstock.engines.local.launch import node_config
from tests.server.harness import Jobs, Server, cluster_file, until

HALVES = ["3g.20gb@0", "3g.20gb@4"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose pool is divided into halves, with two devices on which MIG mode is on."""
    declared = cluster_file(1, mig_divide_after="200ms")
    devices = {"count": 2, "model": "A100", "memory": "40GB", "mig": True, "mig_mode": True}
    declared["nodes"][0]["simulated_devices"] = devices
    declared["pools"] = [{"name": "default", "mig_strategy": "training"}]
    with Server(tmp_path_factory.mktemp("divided") / "data", declared) as made:
        yield made


@pytest.fixture
def jobs(server: Server) -> Iterator[Jobs]:
    made = Jobs(server.client)
    yield made
    made.close()


def lies(server: Server, index: int) -> list[str]:
    """Return what is on a device, as the tool has it."""
    folder = server.data.node("n1")
    smi = SimulatedMig(folder / "mig.json", node_config(folder / "agent.json").spec.devices)
    return [f"{profile}@{at}" for profile, at in smi.lies(index)]


def logged(server: Server) -> list[list[list[str]]]:
    """Return what was on both devices, as the log has it, from first to last."""
    records = server.http("GET", "/api/v1/events?after=0&limit=1000").json()
    events = [one["event"]["instances"] for one in records if one["event"]["type"] == "InstancesChanged"]
    return [[[f"{name}@{at}" for name, at in each["instances"]] for each in event] for event in events]


def test_devices_are_divided_before_anybody_asks_and_a_job_needs_no_step(server: Server, jobs: Jobs):
    until(lambda: lies(server, 0) == lies(server, 1) == HALVES, "both are divided")
    until(lambda: logged(server)[-1] == [HALVES, HALVES], "the log has it")
    before = len(logged(server))
    running = [jobs.submit("sleep 600", devices={"profile": "3g.20gb"}) for _ in range(4)]
    for job in running:
        jobs.state(job, "running")
    assert (len(logged(server)), lies(server, 0), lies(server, 1)) == (before, HALVES, HALVES)
    shown = [(device.mig_mode, device.instances) for device in server.client.nodes()[0].devices]
    assert shown == [(True, [MigInstanceView("3g.20gb", at, held=True) for at in (0, 4)])] * 2


def test_a_job_of_another_profile_is_served_and_the_device_is_divided_again_when_it_has_ended(
    server: Server, jobs: Jobs
):
    until(lambda: lies(server, 0) == lies(server, 1) == HALVES, "both are divided")
    small = jobs.submit("sleep 600", devices={"profile": "1g.5gb"})
    jobs.state(small, "running")
    (index,) = [i for i in (0, 1) if lies(server, i) != HALVES]
    until(lambda: sorted(one.split("@")[0] for one in lies(server, index)) == ["1g.5gb", "3g.20gb"], "a half is left")
    server.client.cancel(small)
    jobs.ended(small)
    until(lambda: lies(server, index) == HALVES, "it is divided again")


def test_a_dry_run_takes_the_strategy_of_the_pool(server: Server):
    assert (strategy_of(server.data, "default"), strategy_of(server.data, "other")) == ("training", "balanced")


def test_whole_devices_and_fractions_are_refused_with_the_reason(server: Server):
    for devices in (1, 2, {"share": 0.5}):
        with pytest.raises(PenstockError, match="1 node has devices with MIG mode on, which give out MIG instances"):
            server.client.submit({"command": "true", "devices": devices})


def test_another_strategy_divides_anew_what_is_idle_and_a_new_server_goes_on(server: Server, jobs: Jobs):
    until(lambda: lies(server, 0) == lies(server, 1) == HALVES, "both are divided")
    job = jobs.submit("sleep 600", devices={"profile": "3g.20gb"})
    jobs.state(job, "running")
    (index,) = [device.index for device in server.client.nodes()[0].devices if device.job == job]
    server.declared["pools"][0]["mig_strategy"] = "inference"
    (server.root / "cluster.yaml").write_text(json.dumps(server.declared))
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    server.start()
    smallest = [f"1g.5gb@{at}" for at in range(7)]
    until(lambda: lies(server, 1 - index) == smallest, "the idle device is divided anew")
    until(lambda: len(lies(server, index)) > 2, "the other is divided beside the job")
    assert "3g.20gb" in [one.split("@")[0] for one in lies(server, index)]
    assert server.client.job(job).state == "running"
