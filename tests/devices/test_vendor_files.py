"""Which device files of each vendor are closed to a program, and what gives a container its devices."""

import os
from pathlib import Path

import pytest

from penstock.core.model.resources import Device
from penstock.devices.amd import Amd
from penstock.devices.cambricon import Cambricon
from penstock.devices.gaudi import Gaudi
from penstock.devices.huawei import Huawei
from penstock.devices.intel import Intel
from penstock.devices.mthreads import MooreThreads
from penstock.devices.neuron import Neuron
from penstock.devices.provider import DeviceProvider
from penstock.devices.tpu import Tpu
from tests.devices.vendor_machines import AMD_UUIDS, kfd_files

FILES = ("null", "zero", "full", "random")
"""Device files that are on every machine, and stand in for those of accelerators."""


def number(at: int) -> str:
    about = os.stat(f"/dev/{FILES[at]}").st_rdev
    return f"c {os.major(about)}:{os.minor(about)}"


def closed(*places: int) -> tuple[str, ...]:
    return tuple(sorted((number(at) for at in places), key=lambda each: int(each.split(":")[1])))


def device(vendor: str, index: int, **more: object) -> Device:
    return Device(index, vendor, "X", 2**30, **more)


def with_files(root: Path, paths: list[str]) -> Path:
    for at, path in enumerate(paths):
        there = root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(f"/dev/{FILES[at]}")
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        there = root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)


NUMBERED = {
    Huawei: "/dev/davinci",
    Tpu: "/dev/accel",
    Neuron: "/dev/neuron",
    Cambricon: "/dev/cambricon_dev",
}


@pytest.mark.parametrize("kind", NUMBERED, ids=lambda kind: kind.__name__)
def test_the_files_of_devices_that_were_not_given_are_closed(kind, tmp_path):
    root = with_files(tmp_path, [f"{NUMBERED[kind]}{at}" for at in range(3)])
    provider: DeviceProvider = kind(root)
    here = [device("nvidia", 0), *(device(provider.vendor, 1 + at) for at in range(3))]
    assert provider.closed_files([here[0], here[2]], here) == closed(0, 2)
    assert provider.closed_files([], here) == closed(0, 1, 2)
    assert provider.closed_files(here, here) == ()
    assert provider.closed_files([], [device("nvidia", 0)]) == ()


@pytest.mark.parametrize("kind", NUMBERED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("places", [(0, 1), (0, 1, 3), (1, 2, 3)])
def test_nothing_is_closed_where_it_is_not_sure_whose_a_file_is(kind, places, tmp_path):
    provider: DeviceProvider = kind(with_files(tmp_path, [f"{NUMBERED[kind]}{at}" for at in places]))
    here = [device(provider.vendor, at) for at in range(3)]
    assert provider.closed_files(here[:1], here) == ()
    assert provider.container_flags([device(provider.vendor, 3)]) == ()


def test_a_device_that_the_node_does_not_have_closes_nothing(tmp_path):
    provider = Huawei(with_files(tmp_path, ["/dev/davinci0", "/dev/davinci1"]))
    here = [device("huawei", at) for at in range(2)]
    assert provider.closed_files([device("huawei", 5)], here) == ()


def test_simulated_devices_have_no_files(tmp_path):
    provider = Huawei(with_files(tmp_path, ["/dev/davinci0"]))
    here = [device("huawei", 0, simulated=True)]
    assert provider.closed_files([], here) == ()
    assert provider.container_flags(here) == ()


def test_a_file_that_is_no_device_leaves_all_open(tmp_path):
    root = with_files(tmp_path, ["/dev/davinci0"])
    (root / "dev/davinci1").write_text("")
    here = [device("huawei", at) for at in range(2)]
    assert Huawei(root).closed_files(here[:1], here) == ()
    assert Huawei(root).closed_files(here[1:], here) == ()


def amd_root(root: Path) -> Path:
    write(root, kfd_files() | {"/dev/kfd": ""})
    write(root, {"/sys/bus/pci/devices/0000:64:00.0/drm/card1/dev": "226:1\n"})
    write(root, {"/sys/bus/pci/devices/0000:64:00.0/drm/renderD129/dev": "226:129\n"})
    return root


def test_amd_devices_are_known_by_their_uuids_whatever_their_order(tmp_path):
    provider = Amd(amd_root(tmp_path))
    here = [device("amd", 7, uuid=AMD_UUIDS[1]), device("amd", 8, uuid=AMD_UUIDS[0])]
    assert provider.closed_files(here[1:], here) == ("c 226:1", "c 226:129")
    assert provider.closed_files(here[:1], here) == ("c 226:128",)
    assert provider.closed_files([], here) == ("c 226:1", "c 226:128", "c 226:129")
    assert provider.closed_files([device("amd", 7)], here) == ()
    assert provider.closed_files([], [device("nvidia", 0)]) == ()


def test_amd_devices_without_ids_close_nothing(tmp_path):
    write(tmp_path, {path: text.replace("unique_id 1", "unique_id 0 1") for path, text in kfd_files().items()})
    here = [device("amd", 0), device("amd", 1)]
    assert Amd(tmp_path).closed_files(here[:1], here) == ()
    assert Amd(tmp_path).closed_files([], here) == ()


def test_amd_containers_get_kfd_and_the_render_nodes(tmp_path):
    provider = Amd(amd_root(tmp_path))
    kfd = "--device=/dev/kfd"
    assert provider.container_flags([device("amd", 0, uuid=AMD_UUIDS[1])]) == ("--device=/dev/dri/renderD129", kfd)
    assert provider.container_flags([device("amd", 1)]) == ("--device=/dev/dri/renderD129", kfd)
    assert provider.container_flags([]) == ()


def test_gaudi_files_are_found_by_module_ids(tmp_path):
    root = with_files(tmp_path, ["/dev/accel/accel0", "/dev/accel/accel1"])
    for at, module in enumerate((1, 0)):
        folder = f"/sys/class/accel/accel{at}/device"
        write(root, {f"{folder}/pci_addr": f"0000:b{at}:00.0\n", f"{folder}/module_id": f"{module}\n"})
    here = [device("habana", at) for at in range(2)]
    assert Gaudi(root).closed_files(here[:1], here) == closed(0)
    assert Gaudi(root).closed_files(here[1:], here) == closed(1)


def test_gaudi_files_stay_open_where_the_kernel_tells_no_module_ids(tmp_path):
    root = with_files(tmp_path, ["/dev/accel/accel0"])
    write(root, {"/sys/class/accel/accel0/device/pci_addr": "0000:b3:00.0\n"})
    assert Gaudi(root).closed_files([], [device("habana", 0)]) == ()


def test_ascend_containers_get_chips_manager_and_driver(tmp_path):
    root = with_files(tmp_path, ["/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager"])
    (root / "usr/local/dcmi").mkdir(parents=True)
    assert Huawei(root).container_flags([device("huawei", 1)]) == (
        "--device=/dev/davinci1",
        "--device=/dev/davinci_manager",
        "-v=/usr/local/dcmi:/usr/local/dcmi:ro",
    )


@pytest.mark.parametrize(
    ("provider", "flags"),
    [
        (Gaudi(), ("--runtime=habana", "--env=HABANA_VISIBLE_MODULES=4,7")),
        (MooreThreads(), ("--runtime=mthreads", "--env=MTHREADS_VISIBLE_DEVICES=4,7")),
        (Intel(), ("--device=/dev/dri", "--env=ZE_AFFINITY_MASK=4,7")),
    ],
    ids=["gaudi", "mthreads", "intel"],
)
def test_containers_of_vendors_with_a_runtime_or_a_mask(provider, flags):
    given = [device(provider.vendor, 4), device("nvidia", 5), device(provider.vendor, 7)]
    assert provider.container_flags(given) == flags
    assert provider.container_flags(given[1:2]) == ()


def test_files_of_intel_gpus_stay_open_as_the_mask_counts_those_that_open():
    assert Intel().closed_files([], [device("intel", 0)]) == ()


def test_devices_keep_their_files_when_a_node_counts_them_anew(tmp_path):
    """Of three chips a node offers them in another order, behind a device of another vendor."""
    provider = Huawei(with_files(tmp_path, [f"/dev/davinci{at}" for at in range(3)]))
    here = [device("nvidia", 0), *(device("huawei", 1 + at, uuid=str((2, 0, 1)[at])) for at in range(3))]
    assert provider.closed_files([here[1]], here) == closed(0, 1)
    assert provider.container_flags([here[1]]) == ("--device=/dev/davinci2",)


def test_nothing_is_closed_where_a_node_offers_fewer_devices_than_have_files(tmp_path):
    provider = Huawei(with_files(tmp_path, [f"/dev/davinci{at}" for at in range(3)]))
    here = [device("huawei", at, uuid=str(at)) for at in range(2)]
    assert provider.closed_files(here[:1], here) == ()


def test_words_of_container_runtimes_are_those_of_the_inventory():
    given = [device("habana", 3, uuid="6")]
    assert Gaudi().container_flags(given) == ("--runtime=habana", "--env=HABANA_VISIBLE_MODULES=6")
