"""What NVML lists becomes devices; a machine without it has none, and says why."""

import sys
from types import SimpleNamespace

import pytest

from penstock.core.model.resources import Device, DeviceLink
from penstock.devices.nvidia import Nvidia
from penstock.ports import Discovery


class Broken(Exception):
    """What NVML raises."""


def nvml(count: int, *, nvlinks: bool = True) -> SimpleNamespace:
    """Return a library that lists `count` devices, joined by NVLink or else by one PCIe switch."""

    def joined(one: int, other: int, caps: int) -> int:
        if not nvlinks:
            raise Broken("not supported")
        return 0

    return SimpleNamespace(
        NVMLError=Broken,
        NVML_TOPOLOGY_HOSTBRIDGE=30,
        NVML_TOPOLOGY_NODE=40,
        NVML_P2P_CAPS_INDEX_NVLINK=2,
        NVML_P2P_STATUS_OK=0,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA H100",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=80 * 2**30),
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetNumaNodeId=lambda handle: handle,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetTopologyCommonAncestor=lambda one, other: 20,
        nvmlDeviceGetP2PStatus=joined,
    )


@pytest.mark.parametrize(("nvlinks", "kind"), [(True, "nvlink"), (False, "pcie")])
def test_devices_are_listed_with_the_closest_link_to_each_other(monkeypatch, nvlinks, kind):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(2, nvlinks=nvlinks))
    facts = {"vendor": "nvidia", "model": "NVIDIA H100", "memory_bytes": 80 * 2**30, "capability": (9, 0)}
    assert Nvidia().discover() == Discovery(
        (
            Device(0, **facts, numa_node=0, links=(DeviceLink(1, kind),), uuid="GPU-0"),
            Device(1, **facts, numa_node=1, links=(DeviceLink(0, kind),), uuid="GPU-1"),
        ),
        "2 devices",
    )


def test_a_missing_library_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvidia().discover() == Discovery((), "nvidia-ml-py is not installed (extra: nvidia)")


@pytest.mark.parametrize(
    ("what", "note"), [("nvmlInit", "NVML did not start: no driver"), ("nvmlDeviceGetName", "NVML could not list")]
)
def test_a_driver_that_does_not_answer_is_no_error(monkeypatch, what, note):
    library = nvml(1)

    def fail(*_: object) -> None:
        raise Broken("no driver")

    setattr(library, what, fail)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = Nvidia().discover()
    assert found.devices == ()
    assert found.note.startswith(note)
