"""What happens to devices reaches the core: strangers on them, faults, drivers that hang. They are simulated."""

import getpass
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Jobs, Server, cluster_file, until

DEVICES = 4


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one node of four simulated devices, each with a file that says how it is."""
    declared = cluster_file(1, DEVICES, device_open_after="1s")
    with Server(tmp_path_factory.mktemp("watched") / "data", declared) as server:
        folder = folder_of(server)
        folder.mkdir()
        (folder / "every").write_text("0.1")
        for index in range(DEVICES):
            (folder / str(index)).touch()
        yield server


@pytest.fixture
def jobs(watched: Server) -> Iterator[Jobs]:
    made = Jobs(watched.client)
    yield made
    made.close()


def folder_of(server: Server) -> Path:
    return server.data.node("n1") / "devices"


def stranger(file: Path) -> subprocess.Popen:
    """Start a program outside of Penstock that has the file of a device open."""
    with file.open() as opened:
        return subprocess.Popen(["sleep", "600"], stdin=opened)


def takers(server: Server) -> list[dict]:
    """Return who holds devices beside jobs, as the last event of the log says."""
    records = server.http("GET", "/api/v1/events?after=0&limit=1000").json()
    loads = [one["event"]["load"] for one in records if one["event"]["type"] == "OthersLoadChanged"]
    return loads[-1].get("users", []) if loads else []


def test_a_device_that_a_stranger_uses_is_given_out_when_it_is_free_again(watched: Server, jobs: Jobs):
    taker = stranger(folder_of(watched) / "2")
    try:
        until(lambda: [(user["index"], user["pid"]) for user in takers(watched)] == [(2, taker.pid)], "it is seen")
        three = jobs.submit("sleep 600", devices={"count": 3})
        jobs.state(three, "running")
        assert 2 not in [device.index for device in watched.client.nodes()[0].devices if device.job == three]
        fourth = jobs.submit("true", devices={"count": 1})
        assert watched.client.job(fourth).state == "waiting"
    finally:
        taker.kill()
        taker.wait()
    jobs.ended(fourth)


def test_a_stranger_on_a_device_of_a_job_is_shown_and_costs_the_job_nothing(watched: Server, jobs: Jobs):
    job = jobs.submit("sleep 600", devices={"count": DEVICES})
    jobs.state(job, "running")
    taker = stranger(folder_of(watched) / "1")
    try:
        shown = until(lambda: watched.client.device("n1", 1).device.reason, "the stranger is shown")
        assert shown.startswith(f"also used by sleep ({getpass.getuser()}, ")
        assert f"process {taker.pid})" in shown
        assert watched.client.job(job).state == "running"
    finally:
        taker.kill()
        taker.wait()
    until(lambda: not watched.client.device("n1", 1).device.reason, "it is gone")


def test_programs_of_jobs_are_no_strangers(watched: Server, jobs: Jobs):
    folder = folder_of(watched)
    until(lambda: not takers(watched), "nobody holds a device")
    for _ in range(3):
        opened = jobs.submit(f"exec 5<{folder}/0; sh -c 'sleep 0.3 & sleep 0.5'", devices={"count": 1})
        jobs.ended(opened)
    assert takers(watched) == []


def test_figures_of_devices_are_shown_and_those_of_others_jobs_are_not(watched: Server, jobs: Jobs):
    say(watched, 3, use_milli=420, power_mw=250_000, temperature_c=61, throttled=["power"])
    until(lambda: watched.client.device("n1", 3).device.use_milli == 420, "its figures arrive")
    row = watched.client.devices(node="n1", sort="-power").devices[0]
    assert (row.index, row.power_mw, row.temperature_c, row.throttled) == (3, 250_000, 61, ["power"])
    assert watched.client.device("n1", 3).power_mw[-1] == 250_000
    assert watched.client.devices(totals_by="state").totals == {"free": DEVICES}
    say(watched, 3)


def test_a_driver_that_crashes_costs_its_news_and_nothing_else(watched: Server, jobs: Jobs):
    crash = folder_of(watched) / "crash"
    crash.touch()
    until(lambda: any("it ended" in note for note in watched.client.devices().notes.get("n1", [])), "it is noted")
    assert jobs.ended(jobs.submit("true", devices={"count": DEVICES})).state == "succeeded"
    crash.unlink()
    until(lambda: not watched.client.devices().notes, "it answers again")


def ill(server: Server, index: int, code: str, text: str) -> None:
    """Let a device report a finding from now on."""
    say(server, index, findings=[{"code": code, "text": text}])


def test_a_device_that_fails_is_closed_and_its_job_goes_on_elsewhere_from_its_checkpoint(watched: Server, jobs: Jobs):
    save = """echo '{"kind": "checkpoint", "step": 7}' >> $PENSTOCK_REPORT_FILE"""
    job = jobs.submit(f"{save}; sleep 600", devices={"count": 2}, retries=0)
    jobs.state(job, "running")
    held = [device.index for device in watched.client.node("n1").devices if device.job == job]
    until(lambda: watched.client.job(job).checkpoint_step == 7, "its checkpoint is noted")
    ill(watched, held[0], "row_remap_failed", "row remapping failed")
    try:
        until(lambda: watched.client.job(job).attempt == 2, "it begins again")
        jobs.state(job, "running")
        assert watched.client.device("n1", held[0]).device.state == "closed"
        assert watched.client.device("n1", held[0]).device.reason == "row remapping failed"
        assert held[0] not in [device.index for device in watched.client.node("n1").devices if device.job == job]
        assert f"device {held[0]} of n1 failed: row remapping failed" in repr(watched.client.events())
    finally:
        say(watched, held[0])
    until(lambda: watched.client.device("n1", held[0]).device.state != "closed", "it is opened again")


def test_a_program_that_dies_of_its_device_before_the_fault_is_read_costs_its_job_no_retry(watched: Server, jobs: Jobs):
    folder = folder_of(watched)
    finding = json.dumps({"findings": [{"code": "lost", "text": "Xid 79", "number": 79, "time_s": 5.0}]})
    fail = f"[ $PENSTOCK_ATTEMPT = 1 ] || exit 0; echo '{finding}' > {folder}/$PENSTOCK_DEVICES; exit 7"
    job = jobs.submit(fail, devices={"count": 1}, retries=0)
    try:
        ended = jobs.ended(job)
        assert (ended.state, ended.attempt) == ("succeeded", 2)
    finally:
        for index in range(DEVICES):
            say(watched, index)
    until(lambda: watched.client.devices(totals_by="state").totals == {"free": DEVICES}, "it is opened again")


def test_a_program_that_fails_on_devices_that_are_well_fails(watched: Server, jobs: Jobs):
    ended = jobs.ended(jobs.submit("exit 7", devices={"count": 1}, retries=0))
    assert (ended.state, ended.attempt) == ("failed", 1)


def test_a_device_that_disappears_is_closed_and_the_others_are_not(watched: Server, jobs: Jobs):
    (folder_of(watched) / "1").unlink()
    try:
        until(lambda: watched.client.device("n1", 1).device.state == "closed", "it is closed")
        assert watched.client.devices(totals_by="state").totals == {"closed": 1, "free": DEVICES - 1}
    finally:
        (folder_of(watched) / "1").touch()
    until(lambda: watched.client.device("n1", 1).device.state == "free", "it is opened again")


def exits(server: Server, job: int) -> list[dict]:
    records = server.http("GET", "/api/v1/events?after=0&limit=1000").json()
    return [
        one["event"]["exit"] for one in records
        if one["event"]["type"] == "ReplicaExited" and one["event"]["job_id"] == job
    ]  # fmt: skip


def test_the_log_keeps_what_a_replica_used_of_its_devices(watched: Server, jobs: Jobs):
    """Each of its two devices computes half of the time, at 250 W."""
    for index in range(DEVICES):
        say(watched, index, use_milli=500, power_mw=250_000)
    job = jobs.submit(f"exec 5<{folder_of(watched)}/0; sleep 8", devices={"count": 2})
    live = until(lambda: watched.client.job(job).energy_mj, "it is shown while the job runs")
    view = jobs.ended(job)
    assert view.energy_mj > live
    assert (view.power_mean_mw, view.busy_milli) == (250_000, 500)
    (found,) = (one["measured"] for one in exits(watched, job))
    assert (found["energy_mj"], 4_000 <= found["powered_ms"] <= 2 * 8_100) == (view.energy_mj, True)
    assert found["energy_mj"] == 250 * found["powered_ms"]
    assert found["busy_ms"] == found["measured_ms"] // 2
    assert found["devices_touched"] == 2
    (row,) = [row for row in watched.client.usage("job").rows if row.job == job]
    assert (row.energy_mj, row.powered_milli_ms) == (view.energy_mj, 1000 * found["powered_ms"])
    for index in range(DEVICES):
        say(watched, index)


def test_the_limit_of_power_of_a_pool_is_set_on_its_devices_and_taken_back(watched: Server):
    def limits() -> set[int | None]:
        return {row.power_limit_mw for row in watched.client.devices(node="n1").devices}

    for index in range(DEVICES):
        say(watched, index, power_mw=380_000, power_limit_mw=400_000)
    watched.client.configure({"set": ["pools.default.device_power_limit=300"]})
    until(lambda: limits() == {300_000}, "each of them keeps to it")
    assert watched.client.device("n1", 0).device.power_mw == 300_000
    watched.client.configure({"set": ["pools.default.device_power_limit="]})
    until(lambda: limits() == {400_000}, "each of them has its own limit again")
    for index in range(DEVICES):
        say(watched, index)


def say(server: Server, index: int, **said: object) -> None:
    (folder_of(server) / str(index)).write_text(json.dumps(said), encoding="utf-8")
