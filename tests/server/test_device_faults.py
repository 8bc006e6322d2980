"""Faults of devices under load, at random: jobs are recovered, no ill device is given out, the others are untouched.

A few in CI; 200 with PENSTOCK_SLOW=1. The devices are simulated, everything else is real: agents, processes, the log.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.model import events as ev
from tests.properties import LONG
from tests.server.harness import Jobs, Server, cluster_file, until

FAULTS, DEVICES, SEED = (200 if LONG else 10), 6, 20
QUIET_S = 0.3
Undo = Callable[[], None]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Server]:
    soon = {"device_open_after": "300ms", "node_strikes_window": "1s", "backoff_max": "1s"}
    declared = cluster_file(1, DEVICES, **soon)
    with Server(tmp_path / "data", declared) as server:
        folder = server.data.node("n1") / "devices"
        folder.mkdir()
        (folder / "every").write_text("0.05")
        for index in range(DEVICES):
            (folder / str(index)).touch()
        until(lambda: server.client.devices(measured=True).devices, "the devices are watched")
        yield server


def gone(folder: Path, index: int) -> Undo:
    (folder / str(index)).unlink()
    return (folder / str(index)).touch


def state(folder: Path, index: int) -> Undo:
    return _says(folder, index, code="row_remap_failed", text="row remapping failed")


def xid(folder: Path, index: int) -> Undo:
    return _says(folder, index, code="lost", text="Xid 79: fallen off the bus", number=79, time_s=time.time())


def _says(folder: Path, index: int, **finding: object) -> Undo:
    (folder / str(index)).write_text(json.dumps({"findings": [finding]}))
    return lambda: (folder / str(index)).write_text("") and None


def hang(folder: Path, index: int) -> Undo:
    (folder / "hang").write_text("1")
    return (folder / "hang").unlink


def crash(folder: Path, index: int) -> Undo:
    (folder / "crash").touch()
    return (folder / "crash").unlink


def wrong(folder: Path, index: int) -> Undo:
    (folder / str(index)).write_text('{"use_milli": "often", ')
    return lambda: (folder / str(index)).write_text("") and None


CLOSING, HARMLESS = (gone, state, xid), (hang, crash, wrong)


def test_faults_under_load_cost_no_job_and_no_other_device(watched: Server):
    chance = random.Random(SEED)
    folder, client, jobs = watched.data.node("n1") / "devices", watched.client, Jobs(watched.client)
    work = [jobs.submit("sleep 1.5", devices={"count": 1 + number % 3}, retries=0) for number in range(4 * DEVICES)]
    struck: list[int] = []
    for number in range(FAULTS):
        index, fault = chance.randrange(DEVICES), chance.choice(CLOSING + HARMLESS)
        undo = fault(folder, index)
        if fault in CLOSING:
            struck.append(index)
            until(lambda at=index: client.device("n1", at).device.state == "closed", f"{fault.__name__} closes {index}")
        else:
            time.sleep(QUIET_S)
        undo()
        if fault in CLOSING:
            until(lambda at=index: client.device("n1", at).device.state != "closed", f"device {index} is opened")
        if number % 4 == 3:
            work.append(jobs.submit("sleep 1", devices={"count": 1 + number % DEVICES}, retries=0))
    ended = [jobs.ended(job) for job in work]
    assert [job.state for job in ended if job.state != "succeeded"] == []
    closed = closures_of(watched)
    assert sorted(closed) == sorted(struck)


def closures_of(server: Server) -> list[int]:
    """Return the devices that were closed, as often; fails where one was given out while it was closed."""
    closed: set[int] = set()
    found: list[int] = []
    after = 0
    while records := server.client.events(after=after):
        for record in records:
            event, after = record.event, record.seq
            match event:
                case ev.DeviceClosed():
                    closed.add(event.index)
                    found.append(event.index)
                case ev.DeviceOpened():
                    closed.discard(event.index)
                case ev.AttemptAllocated():
                    given = {index for place in event.places for index in place.devices}
                    assert not given & closed, f"{record}: {sorted(closed)} are closed"
                case _:
                    pass
    return found
