"""Files of devices: a program opens those of its own devices, and no others, where control groups can keep it so."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import Resources
from penstock.devices import nvidia_files
from penstock.devices.installed import closed_files
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.containment import choose
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import device
from tests.engines.agent.builders import start
from tests.engines.processes.processes import Program
from tests.server.harness import until

PARENT = f"penstock-test-devices-{os.getpid()}"
CONTROLLED = any(os.access(f"/sys/fs/cgroup/{gate}", os.W_OK) for gate in ("devices/devices.deny", "cgroup.procs"))
needs_controller = pytest.mark.skipif(not CONTROLLED, reason="no control groups that close device files here")
REAL = tuple(device(i, vendor="nvidia", uuid=f"GPU-{i}", simulated=False) for i in range(3))


def machine(root: Path, *minors: int) -> Path:
    """Return the root of a machine whose driver tells of devices with these minor numbers, GPU-0 and so on."""
    for index, minor in enumerate(minors):
        told = root / "proc/driver/nvidia/gpus" / f"0000:0{index}:00.0"
        told.mkdir(parents=True)
        (told / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{index}\nBus Type: \t PCIe\nDevice Minor: \t {minor}\n"
        )
        graphics = root / "sys/bus/pci/devices" / told.name / "drm" / f"renderD{128 + index}"
        graphics.mkdir(parents=True)
        (graphics / "dev").write_text(f"226:{128 + index}\n")
    return root


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Path:
    """Where the files of the machine lie that a test is about."""
    monkeypatch.setattr(nvidia_files, "ROOT", tmp_path)
    return tmp_path


def test_what_was_not_given_is_closed_by_its_own_numbers(root):
    machine(root, 2, 0, 1)
    assert closed_files((REAL[0],), REAL) == ("c 195:0", "c 195:1", "c 226:129", "c 226:130")
    assert closed_files(REAL, REAL) == ()
    assert closed_files((), REAL) == ("c 195:0", "c 195:1", "c 195:2", "c 226:128", "c 226:129", "c 226:130")


def test_nobody_is_shut_out_of_what_cannot_be_told_apart(root):
    assert closed_files((), REAL) == ()
    machine(root, 0, 1)
    assert closed_files((REAL[2],), REAL) == ()
    assert closed_files((device(0, uuid="", vendor="nvidia", simulated=False),), REAL) == ()


def test_a_node_without_real_devices_closes_nothing(root):
    machine(root, 0, 1)
    assert closed_files((), [device(0, simulated=True)]) == ()
    assert closed_files((), [device(0, vendor="amd", simulated=False)]) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_file_that_the_driver_does_not_tell_of_is_closed_too(root):
    machine(root, 0)
    (root / "dev").mkdir()
    for name, number in (("nvidia0", 0), ("nvidia7", 7), ("nvidiactl", 255), ("nvidia-uvm", 99)):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(195, number))
    (root / "dev" / "nvidia9").touch()
    assert closed_files((REAL[0],), REAL) == ("c 195:7",)


READ = "for name in zero full null; do head -c 1 /dev/$name > /dev/null 2>&1 && echo $name; done"


@pytest.fixture
def groups() -> Iterator[None]:
    yield
    for folder in [*Path("/sys/fs/cgroup").glob(f"*/{PARENT}"), *Path("/sys/fs/cgroup").glob(PARENT)]:
        folder.rmdir()


@needs_controller
def test_a_box_keeps_its_programs_from_files_that_are_closed_to_it(tmp_path, groups):
    containment = choose(PARENT)
    for closed, said in ((("c 1:5",), "full\nnull\n"), ((), "zero\nfull\nnull\n")):
        box = containment.box(f"n1.{len(closed)}", Resources(), closed=closed)
        program = Program(box, tmp_path / str(len(closed)), ("sh", "-c", READ)).open()
        assert (program.status(), program.output()) == (0, said)
        program.close()
    containment.close()
    assert not [*Path("/sys/fs/cgroup").glob(f"{PARENT}*"), *Path("/sys/fs/cgroup/devices").glob(f"{PARENT}*")]


@needs_controller
def test_a_box_that_is_found_again_still_keeps_and_leaves_nothing(tmp_path, groups):
    containment = choose(PARENT)
    containment.box("n1.x", Resources(), closed=("c 1:5",))
    box = choose(PARENT).box("n1.x", Resources())
    program = Program(box, tmp_path, ("sh", "-c", READ)).open()
    assert (program.status(), program.output()) == (0, "full\nnull\n")
    program.close()
    containment.close()
    assert not [*Path("/sys/fs/cgroup").glob(f"{PARENT}*"), *Path("/sys/fs/cgroup/devices").glob(f"{PARENT}*")]


@needs_controller
def test_a_replica_opens_the_files_of_its_own_devices_only(tmp_path, monkeypatch, groups):
    monkeypatch.setattr(nvidia_files, "MAJOR", 1)  # /dev/zero and /dev/full stand for two devices
    monkeypatch.setattr(nvidia_files, "ROOT", machine(tmp_path / "machine", 5, 7))
    data, ended = DataFolder(tmp_path / "data"), []
    journal, exits = Journal(tmp_path / "journal"), ExitBook(tmp_path / "exits")
    containment = choose(PARENT)
    here = {each.index: each for each in REAL[:2]}
    replicas = Replicas("n1", data, containment, here, journal, exits, lambda key, _: ended.append(key))
    for number, given in enumerate(((), (0,), (1,), (0, 1)), 1):
        key = ReplicaKey(JobId(number), AttemptNumber(1), Rank(0))
        assert replicas.start(start(key, ("sh", "-c", READ), devices=given)) is not None
        until(lambda: replicas.reap() or replicas.poll(0) or key in ended, "it has ended")  # noqa: B023
    said = [data.output(key).read_text().split() for key in ended]
    assert said == [["null"], ["zero", "null"], ["full", "null"], ["zero", "full", "null"]]
    journal.close()
    containment.close()
