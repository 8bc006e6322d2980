"""Machines of all vendors but NVIDIA, made of recorded outputs, each with its provider and what its inventory has.

Where no output of a command is recorded (module ids of Gaudi, files of the kernel), it is written as documented.
"""

from typing import NamedTuple

from penstock.devices.amd import Amd
from penstock.devices.cambricon import Cambricon
from penstock.devices.gaudi import QUERY, Gaudi
from penstock.devices.huawei import Huawei
from penstock.devices.intel import DUMP, Intel
from penstock.devices.mthreads import MooreThreads
from penstock.devices.neuron import Neuron
from penstock.devices.provider import DeviceProvider, Output
from penstock.devices.reading import DeviceFacts
from penstock.devices.tpu import Tpu
from penstock.testing.devices import Recorded
from tests.devices.tool_outputs import MIB, text_of

GIB = 2**30
NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"


class Recording(NamedTuple):
    """A machine, who reads it, and the devices of its inventory; what is not said of them is not compared."""

    provider: DeviceProvider
    sources: Recorded
    expected: list[DeviceFacts]


def _numa(addresses: list[str], node: int = 1) -> dict[str, str]:
    return {f"{PCI}/{address}/numa_node": f"{node}\n" for address in addresses}


def _mapping(cards: list[int]) -> str:
    """Return what `npu-smi info -m` prints of cards with a chip each."""
    heading = (
        "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
    )
    rows = (f"\t{card:<31}0                              {at:<31}Ascend 910B\n" for at, card in enumerate(cards))
    return heading + "".join(rows)


def huawei() -> Recording:
    addresses = [f"0000:{bus}:00.0" for bus in ("c1", "c2", "81", "82", "01", "02", "41", "42")]
    outputs = {
        ("npu-smi", "info"): text_of("huawei/npu-smi-info-10.txt"),
        ("npu-smi", "info", "-m"): text_of("huawei/npu-smi-info-m-1.txt"),
        ("npu-smi", "info", "-t", "topo"): text_of("huawei/npu-smi-info-t-topo-1.txt"),
    }
    expected = [
        DeviceFacts(index=at, pci=pci, model="910B3", memory_bytes=65536 * MIB, numa_node=1)
        for at, pci in enumerate(addresses)
    ]
    files = {"/dev/davinci_manager": "", **{f"/dev/davinci{n}": "" for n in range(8)}, **_numa(addresses)}
    return Recording(Huawei(), Recorded(outputs, files), expected)


def huawei_container() -> Recording:
    """Cards 12 to 15 of a machine, which programs in the container name by 0 to 3."""
    outputs = {
        ("npu-smi", "info"): text_of("huawei/npu-smi-info-3.txt"),
        ("npu-smi", "info", "-m"): _mapping([12, 13, 14, 15]),
    }
    buses = ("d9", "98", "b9", "c9")
    expected = [
        DeviceFacts(index=at, card=12 + at, pci=f"0000:{bus}:00.0", model="910B2C", memory_bytes=65536 * MIB)
        for at, bus in enumerate(buses)
    ]
    return Recording(Huawei(), Recorded(outputs), expected)


def huawei_chips() -> Recording:
    """Eight cards of two chips each; the table numbers them, and `-m` is not known there."""
    outputs = {
        ("npu-smi", "info"): text_of("huawei/npu-smi-info-4.txt"),
        ("npu-smi", "info", "-m"): Output("", "", 255),
    }
    expected = [DeviceFacts(index=at, card=at // 2, chip=at % 2, memory_bytes=65536 * MIB) for at in range(16)]
    return Recording(Huawei(), Recorded(outputs), expected)


def huawei_without_table() -> Recording:
    """The table is refused; of one card the board and the use were recorded."""
    about = ("-i", "0")
    outputs = {
        ("npu-smi", "info"): Output(text_of("huawei/npu-smi-error-1.txt"), "", 1),
        ("npu-smi", "info", "-l"): text_of("huawei/npu-smi-info-l-1.txt"),
        ("npu-smi", "info", "-m"): text_of("huawei/npu-smi-info-m-1.txt"),
        ("npu-smi", "info", "-t", "board", *about): text_of("huawei/npu-smi-info-t-board-1.txt"),
        ("npu-smi", "info", "-t", "usages", *about): text_of("huawei/npu-smi-info-t-usages-1.txt"),
    }
    memory = 31129 * MIB
    expected = [DeviceFacts(index=0, card=0, chip=0, pci="0000:61:00.0", model="910A", memory_bytes=memory)]
    return Recording(Huawei(), Recorded(outputs), expected)


MODULES = {"b3": 5, "b4": 4, "cd": 7, "cc": 6, "19": 2, "1a": 3, "34": 0, "33": 1}
"""Module ids by bus, as the vendor's documentation has them for hl-smi's 0 to 7."""


def gaudi() -> Recording:
    heading = "index, module_id, bus_id, uuid, serial, name, memory.total [MiB], driver_version\n"
    rows = (
        f"{at}, {module}, 0000:{bus}:00.0, 00P1-HL2000A1-14-{at}, AN0{at}, HL-205, 32768 MiB, 1.18.0-ee698fb\n"
        for at, (bus, module) in enumerate(MODULES.items())
    )
    outputs = {("hl-smi",): text_of("gaudi/hl-smi-plain-1.txt"), QUERY: heading + "".join(rows)}
    files = {"/sys/module/habanalabs/version": ""}
    for at, bus in enumerate(MODULES):
        files[f"/sys/class/accel/accel{at}/device/pci_addr"] = f"0000:{bus}:00.0\n"
        files[f"/sys/class/accel/accel{at}/device/status"] = "malfunction\n" if at == 3 else "operational\n"
    buses = list(MODULES)
    expected = [
        DeviceFacts(
            index=module,
            pci=f"0000:{bus}:00.0",
            model="HL-205",
            serial=f"AN0{buses.index(bus)}",
            memory_bytes=32768 * MIB,
            files=(f"/dev/accel/accel{buses.index(bus)}",),
        )
        for bus, module in sorted(MODULES.items(), key=lambda each: each[1])
    ]
    return Recording(Gaudi(), Recorded(outputs, files), expected)


def intel() -> Recording:
    one = text_of("intel-xpu/xpu-smi-discovery-device-1.json")
    outputs = {
        ("xpu-smi", "discovery", "-j"): text_of("intel-xpu/xpu-smi-discovery-list-1.json"),
        ("xpu-smi", "discovery", "-d", "0", "-j"): one,
        ("xpu-smi", "discovery", "-d", "1", "-j"): one.replace('"device_id": 0', '"device_id": 1').replace(
            "0029", "009a"
        ),
        DUMP: text_of("intel-xpu/xpu-smi-dump-2.csv"),
    }
    files = {f"{PCI}/0000:29:00.0/drm/renderD128/dev": "226:128\n", "/usr/bin/xpu-smi": ""}
    model = "Intel(R) Data Center GPU Max 1100"
    expected = [
        DeviceFacts(index=0, pci="0000:29:00.0", model=model, files=("/dev/dri/renderD128",), memory_bytes=51522830336),
        DeviceFacts(index=1, pci="0000:9a:00.0", model=model, memory_bytes=51522830336),
    ]
    return Recording(Intel(), Recorded(outputs, files), expected)


def _chips(count: int, device: str) -> dict[str, str]:
    found = {f"{PCI}/0000:00:0{at}.0/vendor": "0x1ae0\n" for at in range(count)}
    return found | {f"{PCI}/0000:00:0{at}.0/device": f"{device}\n" for at in range(count)}


def tpu() -> Recording:
    """Four chips of v6e, and a network card that is Google's too."""
    network = {f"{PCI}/0000:00:09.0/vendor": "0x1ae0\n", f"{PCI}/0000:00:09.0/device": "0x0042\n"}
    files = {f"/dev/vfio/{n}": "" for n in range(4)} | {"/dev/vfio/vfio": ""} | _chips(4, "0x006f") | network
    expected = [
        DeviceFacts(index=at, model="TPU v6e", memory_bytes=32 * GIB, files=(f"/dev/vfio/{at}",)) for at in range(4)
    ]
    return Recording(Tpu(), Recorded({("tpu-info",): text_of("tpu/tpu-info-1.txt")}, files), expected)


def tpu_idle() -> Recording:
    """Four chips of v4 on a machine without tpu-info."""
    files = {f"/dev/accel{n}": "" for n in range(4)} | _chips(4, "0x005e")
    expected = [
        DeviceFacts(index=at, model="TPU v4", memory_bytes=32 * GIB, files=(f"/dev/accel{at}",)) for at in range(4)
    ]
    return Recording(Tpu(), Recorded({}, files), expected)


def neuron() -> Recording:
    """Sixteen devices; the JSON is cut, the table is whole."""
    outputs = {
        ("neuron-ls", "--json-output"): text_of("neuron/neuron-ls-json-1.json"),
        ("neuron-ls",): text_of("neuron/neuron-ls-1.txt"),
    }
    files = {"/dev/neuron0": "", f"{PCI}/0000:cc:00.0/device": "0x7364\n"}
    expected = [
        DeviceFacts(index=at, uuid=f"{4 * at}-{4 * at + 3}", memory_bytes=96 * GIB, model="" if at else "Trainium2")
        for at in range(16)
    ]
    return Recording(Neuron(), Recorded(outputs, files), expected)


def cambricon() -> Recording:
    expected = [
        DeviceFacts(index=0, pci="0000:39:00.0", model="MLU370-X8", memory_bytes=23374 * MIB, numa_node=1),
        DeviceFacts(index=1, pci="0000:3d:00.0", model="MLU370-X8", memory_bytes=23374 * MIB),
    ]
    files = {"/dev/cambricon_ctl": "", **_numa(["0000:39:00.0"])}
    return Recording(Cambricon(), Recorded({("cnmon",): text_of("cambricon/cnmon-2.txt")}, files), expected)


def mthreads() -> Recording:
    outputs = {("mthreads-gmi",): text_of("mthreads/mthreads-gmi-1.txt")}
    expected = [DeviceFacts(index=0, pci="0000:04:00.0", model="MTT S80", memory_bytes=16384 * MIB)]
    return Recording(MooreThreads(), Recorded(outputs, {"/dev/mtgpu.0": ""}), expected)


UNIQUE = 1801979520617338022
"""In the recorded properties of an MI210."""
AMD_UUIDS = [f"GPU-{UNIQUE + at:016x}" for at in range(2)]
AMD_BUSES = ("63", "64")


def kfd_files() -> dict[str, str]:
    """Return KFD's topology: two processors, and two MI210 that XGMI joins; the second made from the first's file."""
    properties, processor = text_of("amd/kfd-node-properties-4.txt"), text_of("amd/kfd-node-properties-3.txt")
    other = properties.replace("location_id 25344", f"location_id {0x6400}").replace("minor 128", "minor 129")
    files = {f"{NODES}/{at}/properties": processor for at in range(2)}
    files |= {f"{NODES}/2/properties": properties, f"{NODES}/3/properties": other.replace(f"{UNIQUE}", f"{UNIQUE + 1}")}
    files |= {f"{NODES}/{node}/gpu_id": f"{node}000\n" for node in (2, 3)}
    files |= {f"{NODES}/{node}/mem_banks/0/properties": f"size_in_bytes {64 * GIB}\n" for node in (2, 3)}
    files[f"{NODES}/2/io_links/0/properties"] = text_of("amd/kfd-io-link-1.txt")
    files[f"{NODES}/2/io_links/1/properties"] = text_of("amd/kfd-io-link-2.txt")
    files[f"{NODES}/3/io_links/0/properties"] = text_of("amd/kfd-io-link-1.txt").replace("from 2", "from 3")
    return files


def amd_figures() -> dict[str, str]:
    """Return files of the first device, as the kernel's documentation describes them, and a process that uses it."""
    folder = f"{PCI}/0000:63:00.0"
    monitor = f"{folder}/hwmon/hwmon3"
    return {
        f"{folder}/gpu_busy_percent": "37\n",
        f"{folder}/mem_info_vram_used": f"{3 * GIB}\n",
        f"{folder}/ras/umc_err_count": "ue: 2\nce: 5\n",
        f"{monitor}/temp1_input": "41000\n",
        f"{monitor}/temp2_input": "46000\n",
        f"{monitor}/power1_average": "189000000\n",
        f"{monitor}/power1_cap": "300000000\n",
        f"{monitor}/freq1_input": "1700000000\n",
        "/sys/class/kfd/kfd/proc/4711/vram_2000": f"{2 * GIB}\n",
        "/sys/class/kfd/kfd/proc/4711/vram_3000": "0\n",
    }


def amd_smi_static() -> str:
    """Return a recorded `amd-smi static --json`, of the second device of `kfd_files`, which the tool counts as 0."""
    text = text_of("amd/amd-smi-static-1.json").replace("0000:83:00.0", "0000:64:00.0")
    return text.replace("0x6F1F0A2B3C4D5E6F", f"0x{UNIQUE + 1:X}")


def amd() -> Recording:
    outputs = {("amd-smi", "static", "--json"): amd_smi_static()}
    files = {"/dev/kfd": "", **kfd_files(), **amd_figures()}
    expected = [
        DeviceFacts(
            index=at,
            uuid=uuid,
            pci=f"0000:{bus}:00.0",
            model="Instinct MI210",
            memory_bytes=64 * GIB,
            numa_node=0,
            files=(f"/dev/dri/renderD{128 + at}",),
        )
        for at, (uuid, bus) in enumerate(zip(AMD_UUIDS, AMD_BUSES, strict=True))
    ]
    return Recording(Amd(), Recorded(outputs, files), expected)


def amd_by_rocm_smi() -> Recording:
    """A machine of ROCm 5.7, whose KFD topology is hidden."""
    outputs = {("rocm-smi", "-a", "--json"): text_of("amd/rocm-smi-a-1.json")}
    buses = ("1e", "22", "3f", "43", "46", "49")
    expected = [DeviceFacts(index=at, pci=f"0000:{bus}:00.0", memory_bytes=34342961152) for at, bus in enumerate(buses)]
    return Recording(Amd(), Recorded(outputs, {"/dev/kfd": ""}), expected)


RECORDINGS = (
    huawei,
    huawei_container,
    huawei_chips,
    huawei_without_table,
    gaudi,
    intel,
    tpu,
    tpu_idle,
    neuron,
    cambricon,
    mthreads,
    amd,
    amd_by_rocm_smi,
)
