"""The provider of NVIDIA devices: what it falls back on, what it gives containers, what the kernel's log adds."""

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from penstock.core.model.resources import Device, DeviceLink
from penstock.devices.inventory import from_reading
from penstock.devices.kernel_records import KernelRecords
from penstock.devices.nvidia import Nvidia
from penstock.testing.builders import device
from penstock.testing.devices import Recorded
from tests.devices.nvidia_machines import Clock, codes, library, nvidia, sampled
from tests.devices.nvml_library import loaded

ABSENT = ["nvidia-ml-py is not installed (extra: nvidia)", "nvidia-smi is not installed"]


def record(text: str, seconds: int = 100) -> bytes:
    return f"3,1234,{seconds}000000,-;{text}\n".encode()


def fallen(address: str) -> str:
    return f"NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def kernel() -> Iterator[tuple[KernelRecords, socket.socket]]:
    """Yield a log, and what writes records to it."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.setblocking(False)
    records = KernelRecords(lambda: os.dup(reader.fileno()))
    with reader, writer:
        yield records, writer
    records.close()


def test_a_node_offers_what_the_inventory_lists():
    with loaded(library()) as nvml:
        nvml.gpus[1].group = nvml.gpus[2].group = 1
        found = from_reading("nvidia", nvidia().inventory(Recorded()))
        facts = nvml.gpus[2].facts
        assert found.note == "3 devices, driver 535.183.01"
        assert found.devices[2] == Device(
            2,
            vendor="nvidia",
            model=facts.model,
            memory_bytes=facts.memory_bytes,
            capability=(8, 0),
            links=(DeviceLink(0, "node"), DeviceLink(1, "nvlink")),
            uuid=facts.uuid,
            power_limit_mw=300_000,
        )


def test_a_machine_without_library_and_tool_has_no_devices(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    here = nvidia().inventory(Recorded())
    assert (here.devices, [finding.text for finding in here.findings]) == ((), ABSENT)


def test_a_sample_has_the_names_of_the_inventory(monkeypatch):
    with loaded(library()) as nvml:
        provider = nvidia()
        here = provider.inventory(Recorded())
        nvml.reload()
        nvml.fault = lambda function, device: 999 if function == "nvmlDeviceGetUUID" and device == 1 else 0
        fresh = Nvidia(Clock())
        fresh._listed = here.devices
        sample = sampled(fresh)
        assert [(device.uuid, device.pci) for device in sample.devices] == [(d.uuid, d.pci) for d in here.devices]
        assert [process.uuid for process in sample.processes] == [device.uuid for device in here.devices]


def test_processes_have_the_name_of_their_program():
    with loaded(library("q-x-12.xml")):
        sources = Recorded(files={"/proc/1000/comm": "nvidia-persiste\n"})
        assert [process.name for process in sampled(nvidia(), sources).processes] == ["nvidia-persiste"]


@pytest.mark.parametrize(
    ("files", "present"),
    [
        ({}, False),
        ({"/dev/nvidiactl": ""}, True),
        ({"/proc/driver/nvidia/version": "NVRM"}, True),
        ({"/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n"}, False),
        (
            {
                "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
                "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            },
            True,
        ),
        (
            {
                "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x1002\n",
                "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            },
            False,
        ),
    ],
    ids=["nothing", "device file", "driver", "sound", "card without driver", "card of another vendor"],
)
def test_devices_may_be_here_where_the_driver_or_the_card_is(files, present):
    sources = Recorded(files=files)
    assert (Nvidia().is_present(sources), sources.asked) == (present, [])


def test_a_card_without_a_driver_is_a_finding(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    folder = "/sys/bus/pci/devices/0000:01:00.0"
    files = {f"{folder}/vendor": "0x10de\n", f"{folder}/class": "0x030200\n"}
    assert "no_driver" in codes(nvidia().inventory(Recorded(files=files)))


def test_a_container_gets_its_devices_and_no_others():
    given = (device(0, uuid="GPU-A"), device(1, vendor="amd", uuid="X"), device(3), device(4, simulated=True))
    assert Nvidia().container_flags(given) == ("--gpus", '"device=GPU-A,3"')
    assert Nvidia().container_flags(given[1:2]) == ("--env", "NVIDIA_VISIBLE_DEVICES=void")


def test_the_kernel_tells_xids_where_nvml_does_not(kernel):
    records, writer = kernel
    with loaded(library()) as nvml:
        nvml.absent = {"nvmlEventSetCreate"}
        provider = Nvidia(Clock(), records)
        assert codes(sampled(provider)) == []
        writer.send(record(fallen("0000:02:00")) + b" SUBSYSTEM=pci\n")
        writer.send(record("habanalabs hl0: device heartbeat failed! PCI link is broken"))
        seen = sampled(provider).findings
        assert [(finding.code, finding.pci, finding.number) for finding in seen] == [("lost", "0000:02:00.0", 79)]
        assert codes(sampled(provider)) == []


def test_of_what_the_kernel_wrote_before_only_lost_devices_count(kernel):
    records, writer = kernel
    writer.send(record(fallen("0000:02:00")))
    writer.send(record(fallen("0000:03:00"), 200))
    writer.send(record("NVRM: Xid (PCI:0000:01:00): 48, pid=7, name=python, DBE", 300))
    with loaded(library()) as nvml:
        nvml.absent = {"nvmlEventSetCreate"}
        nvml.gpus[2].seen = False
        seen = sampled(Nvidia(Clock(), records)).findings
        assert [finding.pci for finding in seen if finding.number == 79] == ["0000:03:00.0"]
        assert [finding for finding in seen if finding.number == 48] == []


def test_the_kernel_is_not_read_where_nvml_tells_xids(kernel):
    records, writer = kernel
    with loaded(library()):
        provider = Nvidia(Clock(), records)
        sampled(provider)
        writer.send(record(fallen("0000:02:00")))
        assert codes(sampled(provider)) == []


def test_a_log_that_may_not_be_read_has_no_records():
    def refused() -> int:
        raise PermissionError("Operation not permitted")

    assert KernelRecords(refused).new() == []


def test_records_that_were_overwritten_are_passed_over(monkeypatch):
    answers = iter([BrokenPipeError(), b"6,1,2,-;a\n", BlockingIOError()])

    def read(file: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    assert KernelRecords(lambda: 99).new() == ["6,1,2,-;a"]
