"""NVIDIA devices through nvidia-smi and the driver's files, where NVML cannot be used: recorded outputs, and damage."""

import re
import sys

import pytest

from penstock.devices.nvidia import Nvidia
from penstock.devices.nvidia_smi import APPS, CAPABILITY, COLUMNS, LIST, LOG, TOPOLOGY, NvidiaSmi, joined, query
from penstock.devices.provider import Output
from penstock.devices.reading import DeviceFacts, LinkFacts, PartFacts
from penstock.testing.devices import Recorded, check_provider
from tests.devices.nvidia_machines import Clock, codes, nvidia, recorded, sampled
from tests.devices.nvidia_tools.recorded import text

MIB = 2**20
P100, T4 = "GPU-d3da8716-eaab-75db-efc1-60e88e1cd55e", "GPU-d37e67a5-91dd-3774-a5cb-99096249601a"
FOLDER = "/proc/driver/nvidia/gpus"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  510.47.03  Mon Jan 24 22:58:54 UTC 2022\n"
EXPECTED = (
    DeviceFacts(index=0, uuid=P100, pci="0000:00:04.0", model="Tesla P100-PCIE-16GB", memory_bytes=16384 * MIB),
    DeviceFacts(index=1, uuid=T4, pci="0000:00:1e.0", model="Tesla T4", memory_bytes=15360 * MIB, numa_node=1),
)


@pytest.fixture(autouse=True)
def without_nvml(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def log(*names: str) -> str:
    """Return the logs of machines with a device each as the log of one machine with all of them."""
    texts = [text(name) for name in names]
    found = [re.search(r"<gpu id=.*</gpu>", each, re.DOTALL) for each in texts]
    devices = [re.sub(r"<minor_number>\d+<", f"<minor_number>{at}<", each[0]) for at, each in enumerate(found) if each]
    head = re.sub(r"(?<=<attached_gpus>)\d+", str(len(names)), texts[0].partition("<gpu id=")[0])
    return f"{head}{''.join(devices)}</nvidia_smi_log>\n"


def csv(columns: tuple[str, ...], *rows: dict[str, str]) -> str:
    lines = [", ".join(columns), *(", ".join(row.get(column, "[N/A]") for column in columns) for row in rows)]
    return "\n".join([*lines, ""])


def rows() -> tuple[dict[str, str], ...]:
    shared = {"power.draw": "30.50 W", "enforced.power.limit": "250.00 W", "clocks.current.sm": "1189 MHz"}
    shared |= {"clocks_throttle_reasons.sw_power_cap": "Active", "ecc.errors.uncorrected.volatile.total": "2"}
    first = {"uuid": P100, "pci.bus_id": "00000000:00:04.0", "memory.total": "16384 MiB", "memory.used": "100 MiB"}
    other = {"uuid": T4, "pci.bus_id": "00000000:00:1E.0", "memory.total": "15360 MiB", "memory.used": "200 MiB"}
    return (first | shared | {"compute_cap": "6.0"}, other | {"compute_cap": "7.5", "utilization.gpu": "55 %"})


def information(uuid: str, minor: int, model: str) -> str:
    return f"Model: \t\t {model}\nIRQ:   \t\t 30\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"


def machine(**files: str) -> Recorded:
    """Return a machine with two recorded devices, joined by NVLink, and a process on the second."""
    apps = f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{T4}, 4321, python, 190 MiB\n"
    listed = f"GPU 0: Tesla P100-PCIE-16GB (UUID: {P100})\nGPU 1: Tesla T4 (UUID: {T4})\n"
    outputs = {
        LOG: log("q-x-17.xml", "q-x-12.xml"),
        LIST: listed,
        TOPOLOGY: text("topo-m-1.txt"),
        query(CAPABILITY): csv(CAPABILITY, *rows()),
        query(COLUMNS): csv(COLUMNS, *rows()),
        APPS: apps,
    }
    kernel = {
        "/proc/driver/nvidia/version": VERSION,
        f"{FOLDER}/0000:00:04.0/information": information(P100, 0, "Tesla P100-PCIE-16GB"),
        f"{FOLDER}/0000:00:1e.0/information": information(T4, 1, "Tesla T4"),
        "/sys/bus/pci/devices/0000:00:1e.0/numa_node": "1\n",
        "/sys/bus/pci/devices/0000:00:1e.0/drm/renderD129/dev": "226:129\n",
    }
    return Recorded(outputs, kernel | files)


def without(sources: Recorded, *commands: tuple[str, ...]) -> Recorded:
    return Recorded({c: o for c, o in sources.outputs.items() if c not in commands}, sources.files)


def test_the_provider_passes_its_checks_on_recordings_and_damage():
    check_provider(nvidia(), machine(), EXPECTED, damaged=100)


def test_outputs_are_joined_by_the_names_of_devices():
    here = nvidia().inventory(machine())
    assert [device.capability for device in here.devices] == [(6, 0), (7, 5)]
    assert [device.files for device in here.devices] == [("/dev/nvidia0",), ("/dev/nvidia1", "/dev/dri/renderD129")]
    assert here.links == (LinkFacts(0, 1, "nvlink"),)
    assert (here.driver, codes(here)) == ("510.47.03", ["not_supported"])


def test_errors_that_were_counted_before_close_no_device():
    counted = log("q-x-1.xml").replace("<dram_uncorrectable>0<", "<dram_uncorrectable>3<", 1)
    here = nvidia().inventory(Recorded({LOG: counted}))
    assert (here.devices[0].ecc_uncorrected, codes(here)) == (3, ["not_supported"])


def test_links_follow_the_devices_when_the_tool_counts_otherwise():
    devices = recorded("q-x-17.xml").devices + recorded("q-x-12.xml").devices + recorded("q-x-1.xml").devices
    listed = [f"GPU {at}: {device.model} (UUID: {device.uuid})\n" for at, device in enumerate(reversed(devices))]
    matrix = (
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV2\tSYS\t0-3\t0\nGPU1\tNV2\t X \tPHB\t4-7\t1\nGPU2\tSYS\tPHB\t X \t4-7\t1\n"
    )
    outputs = {LOG: log("q-x-17.xml", "q-x-12.xml", "q-x-1.xml"), LIST: "".join(listed), TOPOLOGY: matrix}
    here = nvidia().inventory(Recorded(outputs))
    assert [(device.uuid, device.numa_node) for device in here.devices] == [
        (device.uuid, numa) for device, numa in zip(devices, (1, 1, 0), strict=True)
    ]
    assert set(here.links) == {LinkFacts(1, 2, "nvlink"), LinkFacts(0, 2, "node"), LinkFacts(0, 1, "pcie")}


def test_a_log_that_is_cut_leaves_devices_to_the_list():
    sources = machine()
    cut = sources.outputs[LOG].text
    sources.outputs[LOG] = Output(cut[: cut.rindex("<uuid>")], code=0)
    here = nvidia().inventory(sources)
    assert [(device.uuid, device.memory_bytes) for device in here.devices] == [(P100, 16384 * MIB), (T4, None)]
    assert "cut" in codes(here)


def test_parts_have_profile_and_uuid_of_the_list():
    device = recorded("q-x-13.xml").devices[0]
    lines = [f"  MIG 1g.5gb      Device  {n}: (UUID: MIG-0000000{n}-1111-2222-3333-444444444444)" for n in range(2)]
    listed = "\n".join([f"GPU 0: {device.model} (UUID: {device.uuid})", *lines, ""])
    here = nvidia().inventory(Recorded({LOG: text("q-x-13.xml"), LIST: listed}))
    assert [(part.profile, part.uuid[:12], part.instance) for part in here.devices[0].parts] == [
        ("1g.5gb", "MIG-00000000", device.parts[0].instance),
        ("1g.5gb", "MIG-00000001", device.parts[1].instance),
    ]
    short = Recorded({LOG: text("q-x-13.xml"), LIST: listed.replace(lines[1], "")})
    assert [part.uuid for part in nvidia().inventory(short).devices[0].parts] == ["", ""]


def test_the_drivers_files_name_devices_where_there_is_no_tool():
    here = nvidia().inventory(Recorded(files=machine().files))
    assert [(device.uuid, device.minor, device.memory_bytes) for device in here.devices] == [
        (P100, 0, None),
        (T4, 1, None),
    ]
    assert (here.driver, codes(here)) == ("510.47.03", ["not_supported"] * 2)
    sample = sampled(nvidia(), Recorded(files=machine().files))
    assert [(device.uuid, device.pci) for device in sample.devices] == [(P100, "0000:00:04.0"), (T4, "0000:00:1e.0")]


def test_a_sample_by_the_tool_has_its_figures():
    sample = sampled(nvidia(), machine())
    first, other = sample.devices
    assert (first.uuid, first.memory_used_bytes, first.power_mw, first.power_limit_mw) == (
        P100,
        100 * MIB,
        30500,
        250000,
    )
    assert (first.clock_mhz, first.throttled, first.use_milli, other.use_milli) == (1189, ("power",), None, 550)
    assert [(each.pid, each.uuid, each.memory_bytes) for each in sample.processes] == [(4321, T4, 190 * MIB)]
    assert codes(sample) == ["not_supported", "degraded"]  # errors of before are no news


def test_columns_that_a_driver_does_not_know_are_left_out():
    known = tuple(column for column in COLUMNS if column not in ("gpu_recovery_action", "fabric.state"))
    refusal = 'Field "{}" is not a valid field to query.\n\n'
    first = tuple(column for column in COLUMNS if column != "gpu_recovery_action")
    sources = machine()
    sources.outputs |= {
        query(COLUMNS): Output(refusal.format("gpu_recovery_action"), code=2),
        query(first): Output(refusal.format("fabric.state"), code=2),
        query(known): Output(csv(known, *rows()), code=0),
    }
    provider = nvidia()
    assert [device.uuid for device in sampled(provider, sources).devices] == [P100, T4]
    sources.asked.clear()
    sampled(provider, sources)
    assert sources.asked == [query(known), APPS]


def test_columns_are_those_of_a_recorded_driver():
    heading = {column.partition(" ")[0] for column in text("query-gpu-2.csv").splitlines()[0].split(", ")}
    asked = {column.replace("_throttle_", "_event_") for column in (*COLUMNS, *CAPABILITY)}
    assert asked <= heading


def test_the_tool_takes_a_small_part_of_the_time():
    clock = Clock()

    class Slow(Recorded):
        def run(self, *command, limit_s=0.0):
            clock.now += 0.5
            return super().run(*command)

    sources = Slow(machine().outputs)
    tool = NvidiaSmi(clock)
    first = tool.sample(sources)
    runs = len(sources.asked)
    clock.now += 18.5
    assert (tool.sample(sources), len(sources.asked)) == (first, runs)
    clock.now += 0.6
    tool.sample(sources)
    assert len(sources.asked) == 2 * runs


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (Output(timed_out=True), "tool_timeout"),
        (Output("", "", 255), "tool_failed"),
        (Output(error_text="[Errno 13] Permission denied: 'nvidia-smi'"), "tool_failed"),
        (Output(text("error-driver-1.txt"), "", 9), "no_driver"),
        (Output("", text("error-driver-1.txt"), 9), "no_driver"),
        (Output(text("error-mismatch-1.txt"), "", 18), "driver_mismatch"),
        (Output(text("error-lost-1.txt"), "", 6), "lost"),
    ],
    ids=["hangs", "nothing", "may not run", "no driver", "no driver (error)", "mismatch", "lost"],
)
def test_a_tool_that_fails_says_why(output, code):
    sources = Recorded({LOG: output, query(COLUMNS): output})
    here, sample = nvidia().inventory(sources), sampled(nvidia(), sources)
    assert (here.devices, code in codes(here)) == ((), True)
    assert (sample.devices, code in codes(sample)) == ((), True)


def test_rows_that_contradict_each_other_join_nothing():
    first, other = DeviceFacts(uuid=P100, pci="0000:00:04.0"), DeviceFacts(uuid=T4, pci="0000:00:1e.0")
    both = DeviceFacts(uuid=P100, pci="0000:00:1e.0", model="odd")
    assert joined([first, other], [both, DeviceFacts(model="unnamed")]) == [first, other]
    assert joined([first], [DeviceFacts(uuid=P100, pci="0000:00:05.0", minor=3)]) == [first]
    part = PartFacts(instance=1, compute_instance=0)
    old = DeviceFacts(uuid=P100, parts=(part,))
    assert joined([old], [DeviceFacts(uuid=P100, parts=(PartFacts(instance=2, uuid="MIG-2"),))]) == [old]


def test_a_container_with_no_tool_and_no_files_has_no_devices():
    assert Nvidia(Clock()).inventory(Recorded()).devices == ()
