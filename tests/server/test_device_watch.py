"""What happens to devices reaches the core: strangers on them, faults, drivers that hang. They are simulated."""

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
    with Server(tmp_path_factory.mktemp("watched") / "data", cluster_file(1, DEVICES)) as server:
        folder = folder_of(server)
        folder.mkdir()
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
        assert watched.client.job(fourth).state == "queued"
    finally:
        taker.kill()
        taker.wait()
    jobs.ended(fourth)


def test_programs_of_jobs_are_no_strangers(watched: Server, jobs: Jobs):
    folder = folder_of(watched)
    until(lambda: not takers(watched), "nobody holds a device")
    for _ in range(3):
        opened = jobs.submit(f"exec 5<{folder}/0; sh -c 'sleep 1.2 & sleep 1.4'", devices={"count": 1})
        jobs.ended(opened)
    assert takers(watched) == []


def say(server: Server, index: int, **said: object) -> None:
    (folder_of(server) / str(index)).write_text(json.dumps(said), encoding="utf-8")
