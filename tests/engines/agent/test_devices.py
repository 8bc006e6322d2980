"""What the agent measures of replicas outlives its worker; what it says of its machine."""

import json
import os
import selectors
import time
from pathlib import Path

from penstock.core.messages.reports import HostFigures, ReplicaKey
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.resources import Resources
from penstock.engines.agent.devices import HOST_EVERY_MS, NodeDevices
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas, Running
from penstock.engines.agent.worker import boot_ms
from penstock.engines.processes import procfs
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


COUNTERS = [
    procfs.MachineCounters(1_000, 4_000, 400, None),
    procfs.MachineCounters(1_250, 5_000, 500, 10_000),
    procfs.MachineCounters(1_250, 5_000, 500, 60_000),
]


def host_figures(tmp_path, monkeypatch, times, **fields):
    counters = iter(COUNTERS)
    monkeypatch.setattr(procfs, "machine_counters", lambda cpus: next(counters))
    containment, journal, exits = SessionContainment("test"), Journal(tmp_path / "j"), ExitBook(tmp_path / "e")
    replicas = Replicas("n1", DataFolder(tmp_path), containment, {}, journal, exits, lambda *_: None)
    devices = NodeDevices(node("n1", 0, **fields), tmp_path, replicas, selectors.DefaultSelector())
    found = [devices.figures(at_ms) for at_ms in times]
    return [figures.host if figures is not None else None for figures in found]


def test_the_machine_is_measured_between_two_readings(tmp_path, monkeypatch):
    begin_ms, every_ms = 1_000, HOST_EVERY_MS
    times = (begin_ms, begin_ms + every_ms - 6_000, begin_ms + every_ms, begin_ms + 2 * every_ms)
    assert host_figures(tmp_path, monkeypatch, times) == [
        None,
        None,
        HostFigures(250, 500, None),
        HostFigures(None, 500, 50_000 * 8 * 1000 // every_ms),
    ]


def test_a_node_that_shares_its_machine_says_nothing_of_it(tmp_path, monkeypatch):
    assert host_figures(tmp_path, monkeypatch, (1_000, 100_000), virtual=True) == [None, None]


def test_counters_of_the_machine_grow_with_the_work_of_its_processors():
    cpus, before = os.sched_getaffinity(0), procfs.machine_counters(os.sched_getaffinity(0))
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    now = procfs.machine_counters(cpus)
    assert 0 <= before.busy_ticks < now.busy_ticks <= now.all_ticks
    assert now.busy_ticks - before.busy_ticks <= now.all_ticks - before.all_ticks
    assert 0 <= now.memory_milli <= 1000
    assert procfs.machine_counters(()).all_ticks == 0
