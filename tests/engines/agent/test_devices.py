"""What the agent measures of replicas outlives its worker."""

import json
import selectors
import time
from pathlib import Path

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.resources import Resources
from penstock.engines.agent.devices import NodeDevices
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas, Running
from penstock.engines.agent.worker import boot_ms
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.sessions import SessionContainment
from penstock.testing.builders import device, node

KEY = ReplicaKey(1, 1, 0)


def worker_of(folder: Path) -> NodeDevices:
    """Return what a worker measures by, while a replica runs that holds the whole device."""
    spec = node("n1", (device(0, vendor="simulated", simulated=True, uuid="SIM-0"),))
    containment = SessionContainment("test")
    devices, journal, exits = {0: spec.devices[0]}, Journal(folder / "journal"), ExitBook(folder / "exits")
    replicas = Replicas("n1", DataFolder(folder), containment, devices, journal, exits, lambda *_: None)
    running = Running(KEY, containment.box(str(KEY), Resources()), 0, 0, CheckpointSpec(), ours=True)
    running.devices, running.share_milli = (0,), 1000
    replicas.running[KEY] = running
    return NodeDevices(spec, folder, replicas, selectors.DefaultSelector())


def test_a_next_worker_goes_on_from_what_the_former_one_measured(tmp_path):
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "0").write_text(json.dumps({"use_milli": 1000, "power_mw": 5000}), encoding="utf-8")
    former = worker_of(tmp_path)
    deadline, found = time.monotonic() + 20, None
    while (found is None or not found.energy_mj) and time.monotonic() < deadline:
        former.turn(boot_ms(), connected=True)
        found = former.measured_so_far(KEY)
        time.sleep(0.02)
    former.end()
    assert found.energy_mj > 0
    assert worker_of(tmp_path).measured(KEY) == found


def test_a_file_that_is_damaged_costs_what_was_measured_and_no_more(tmp_path):
    (tmp_path / "measured").write_bytes(b'[[{"job_id')
    assert worker_of(tmp_path).measured(KEY) is None
