"""The processes that ask providers: real ones, of simulated devices that hang, crash and fall ill."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from penstock import starts
from penstock.core.model.resources import Device
from penstock.devices import process as processes
from penstock.devices.condition import Host
from penstock.devices.reading import Finding, Reading
from penstock.devices.samples import decode
from penstock.devices.watch import DeviceWatch

WAIT_S = 30.0
DEVICES = [Device(i, "simulated", "SIM", 2**30, uuid=f"SIM-{i}", simulated=True) for i in range(3)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "every").write_text("0.1")
    for index in range(3):
        (tmp_path / str(index)).touch()
    return tmp_path


class Watch:
    """A watch that is turned as an agent turns it."""

    def __init__(self, folder: Path) -> None:
        host = Host(lambda pid: False, lambda pid: pid, lambda pid: "ada")
        self.descriptors: set[int] = set()
        self.watch = DeviceWatch(DEVICES, ["--folder", str(folder)], host)

    def until(self, found, what):
        deadline = time.monotonic() + WAIT_S
        while not found(self.watch.condition):
            assert time.monotonic() < deadline, f"waited for: {what}"
            self.watch.turn(int(time.monotonic() * 1000), self.descriptors.add, self.descriptors.remove)
            time.sleep(0.02)

    def faults(self):
        return [(one.index, one.code) for one in self.watch.condition.faults(int(time.monotonic() * 1000))]


@pytest.fixture
def watch(folder):
    made = Watch(folder)
    yield made
    made.watch.end(made.descriptors.remove)
    assert not made.descriptors


def test_readings_of_devices_arrive_and_a_fault_with_them(folder, watch):
    (folder / "1").write_text(json.dumps({"use_milli": 250, "power_mw": 1000}))
    watch.until(lambda c: any(one.use_milli == 250 for one in c.figures()), "a figure")
    (folder / "1").write_text(json.dumps({"findings": [{"code": "row_remap_failed", "text": "failed"}]}))
    watch.until(lambda c: watch.faults() == [(1, "row_remap_failed")], "the fault")
    (folder / "2").unlink()
    watch.until(lambda c: (2, "lost") in watch.faults(), "the device is lost")


def test_a_provider_that_crashes_is_started_again(folder, watch):
    (folder / "crash").touch()
    watch.until(lambda c: any("it ended (70)" in text for text in c.notes()), "it ended")
    (folder / "crash").unlink()
    watch.until(lambda c: not c.notes() and len(c.figures()) == 3, "it answers again")


def test_a_provider_that_hangs_is_ended_with_what_it_runs(folder, monkeypatch):
    lines = []
    monkeypatch.setattr(processes, "INVENTORY_LIMIT_S", 0.5)
    (folder / "hang").write_text("600")
    words = starts.python("penstock.devices.process", "--vendor", "simulated", "--folder", str(folder))
    ended, ending = os.pipe()

    def write(line):
        lines.append(decode(line))
        os.close(ending)

    processes.Supervisor({"simulated": words}, write).run(ended)
    os.close(ended)
    assert [(one.kind, one.reading.findings[0].code) for one in lines] == [("silent", "tool_timeout")]
    assert not _running(folder)


def test_a_process_that_ends_a_moment_after_its_output_is_told_with_its_exit_code():
    lines = []
    ended, ending = os.pipe()

    def write(line):
        lines.append(decode(line))
        os.close(ending)

    words = ["/bin/sh", "-c", "exec >&-; sleep 0.05; exit 70"]
    processes.Supervisor({"simulated": words}, write).run(ended)
    os.close(ended)
    assert "it ended (70)" in lines[0].reading.findings[0].text


class Replaced:
    """A provider whose driver was replaced under its library."""

    vendor, left = "acme", 5

    def inventory(self, sources):
        return Reading()

    def sample(self, sources):
        self.left -= 1
        return Reading(findings=(Finding(code="driver_mismatch", text="library 1, driver 2"),))


@pytest.mark.parametrize(("after_s", "left"), [(0, 4), (600, 0)])
def test_a_process_whose_driver_was_replaced_ends_after_a_while_so_that_another_begins(monkeypatch, after_s, left):
    monkeypatch.setattr(processes, "RELOAD_AFTER_S", after_s)
    provider, lines = Replaced(), []
    processes.provide(provider, None, lines.append, lambda: provider.left > 0)
    assert provider.left == left
    assert decode(lines[-1]).reading.findings[0].code == "driver_mismatch"


def test_all_processes_end_when_the_agent_does(folder):
    words = starts.python("penstock.devices.process", "--folder", str(folder))
    agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert agent.stdout.readline()
    assert len(_running(folder)) == 2
    agent.stdin.close()
    assert agent.wait(WAIT_S) == 0
    agent.stdout.close()
    deadline = time.monotonic() + WAIT_S
    while _running(folder):
        assert time.monotonic() < deadline, "they end"
        time.sleep(0.02)


def _running(folder: Path) -> list[int]:
    """Return the processes with the folder in their command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found
