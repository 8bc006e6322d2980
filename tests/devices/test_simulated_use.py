"""The use of a simulated device is that of the programs that have its file open."""

import json

import pytest

from penstock.devices.provider import Machine
from penstock.devices.simulated_files import SimulatedFiles

EACH = {"use_each_milli": 400, "memory_each_bytes": 100, "use_milli": 100, "slowdown_milli": 1500}


@pytest.mark.parametrize(("programs", "use_milli"), [(0, 100), (1, 500), (2, 900), (3, 1000)])
def test_each_program_adds_its_use_and_its_memory(tmp_path, monkeypatch, programs, use_milli):
    file = tmp_path / "0"
    file.write_text(json.dumps(EACH))
    proc = tmp_path / "proc"
    for pid in range(10, 10 + programs):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "fd" / "3").symlink_to(file)
    monkeypatch.setattr("penstock.devices.simulated_files.PROC", proc)
    reading = SimulatedFiles(tmp_path).sample(Machine())
    (device,) = reading.devices
    assert (device.use_milli, device.memory_used_bytes) == (use_milli, 100 * programs)
    assert [(one.pid, one.index, one.memory_bytes) for one in reading.processes] == [
        (pid, 0, 100) for pid in range(10, 10 + programs)
    ]
