"""Each vendor's provider on recorded machines: healthy and ill ones, tools that are missing, hang, or are refused."""

import os
import random
import socket
from collections.abc import Iterator

import pytest

from penstock.devices import process
from penstock.devices.amd import Amd
from penstock.devices.gaudi import Gaudi
from penstock.devices.intel import Intel
from penstock.devices.kernel_records import KernelRecords
from penstock.devices.neuron import Neuron
from penstock.devices.process import provide
from penstock.devices.provider import DeviceProvider, Output
from penstock.devices.reading import LinkFacts, ProcessFacts
from penstock.devices.samples import decode
from penstock.devices.tpu import Tpu
from penstock.devices.vendors import PROVIDERS
from penstock.testing.devices import Recorded, check_facts, check_provider
from tests.devices import vendor_machines
from tests.devices.tool_damage import DAMAGES
from tests.devices.tool_outputs import MIB, codes, text_of, told
from tests.devices.vendor_machines import AMD_UUIDS, GIB, MODULES, NODES, PCI, RECORDINGS

MACHINES = pytest.mark.parametrize("make", RECORDINGS, ids=[make.__name__ for make in RECORDINGS])
REFUSED = ("Permission denied\n", "Zugriff verweigert\n", "权限不够\n")
"""What a tool prints of a right that is missing, in three languages."""


@MACHINES
def test_each_provider_reads_its_machines_and_damaged_ones(make):
    machine = make()
    check_provider(machine.provider, machine.sources, machine.expected, damaged=30)


def everywhere(sources: Recorded, output: Output) -> Recorded:
    """Return a machine on which every tool answers the same."""
    return Recorded(dict.fromkeys(sources.outputs, output), sources.files)


def by_files(make: object) -> bool:
    """Tell whether a machine's devices are known without a tool."""
    return make in (vendor_machines.amd, vendor_machines.tpu, vendor_machines.tpu_idle)


@MACHINES
@pytest.mark.parametrize("output", [Output(timed_out=True), Output(missing=True), Output("", "", 3), Output("", "", 0)])
def test_a_tool_that_says_nothing_is_a_finding(make, output):
    machine = make()
    sources = everywhere(machine.sources, output)
    for read in (machine.provider.inventory, machine.provider.sample):
        reading = read(sources)
        files_alone = make is vendor_machines.amd and read == machine.provider.sample
        assert reading.findings or files_alone, read
        assert bool(reading.devices) == by_files(make)


@MACHINES
@pytest.mark.parametrize("text", REFUSED)
def test_a_right_that_is_missing_is_a_finding_in_every_language(make, text):
    machine = make()
    reading = machine.provider.inventory(everywhere(machine.sources, Output("", text, 1)))
    assert bool(reading.devices) == by_files(make)
    if machine.sources.outputs:
        assert any(finding.code in ("no_permission", "unknown_format", "tool_failed") for finding in reading.findings)
        assert "no_permission" in codes(reading) or text is not REFUSED[0]


def kinds(provider: DeviceProvider, sources: Recorded, samples: int) -> list[str]:
    """Return which lines the process of a provider writes in the time of some samples."""
    lines: list[bytes] = []
    left = iter([True] * samples + [False])
    provide(provider, sources, lines.append, lambda: next(left))
    return [decode(line).kind for line in lines]


@MACHINES
def test_samples_name_devices_as_inventories_do(make, monkeypatch):
    monkeypatch.setattr(process, "holders", lambda devices: ())
    machine = make()
    assert kinds(machine.provider, machine.sources, 2) == ["inventory", "sample", "sample"]


def test_a_device_that_no_inventory_had_brings_a_new_one(monkeypatch):
    machine = vendor_machines.mthreads()
    text = machine.sources.outputs["mthreads-gmi",]
    other = Output(text.text.replace(":04:00.0", ":05:00.0"), code=0)
    answers = iter([text, text, *[other] * 9])
    monkeypatch.setattr(machine.sources, "run", lambda *command, **_: next(answers))
    assert kinds(machine.provider, machine.sources, 3) == ["inventory", "sample", "sample", "inventory", "sample"]


def test_a_tool_that_hangs_is_named():
    machine = vendor_machines.mthreads()
    reading = machine.provider.sample(everywhere(machine.sources, Output(timed_out=True)))
    assert [(finding.code, finding.text) for finding in reading.findings] == [
        ("tool_timeout", "'mthreads-gmi' gave no answer within 20 s")
    ]


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.vendor)
def test_a_machine_without_anything_has_no_vendor(provider):
    nothing = Recorded()
    assert not provider.is_present(nothing)
    assert nothing.asked == []
    for reading in (provider.inventory(nothing), provider.sample(nothing)):
        assert (reading.devices, reading.processes) == ((), ())
        assert reading.findings


PRESENT = [vendor_machines.huawei, vendor_machines.gaudi, vendor_machines.intel, vendor_machines.tpu]
PRESENT += [vendor_machines.tpu_idle, vendor_machines.neuron, vendor_machines.cambricon, vendor_machines.mthreads]
PRESENT += [vendor_machines.amd]


@pytest.mark.parametrize("make", PRESENT, ids=[make.__name__ for make in PRESENT])
def test_a_vendor_is_present_by_files_of_its_driver_and_no_other_is(make):
    machine = make()
    assert machine.provider.is_present(machine.sources)
    assert machine.sources.asked == []
    present = [provider.vendor for provider in PROVIDERS if provider.is_present(machine.sources)]
    assert present == [machine.provider.vendor]


@pytest.mark.parametrize(("kind", "there"), [("0x030000", False), ("0x038000", True)], ids=["screen", "no screen"])
def test_an_intel_gpu_with_a_screen_is_no_accelerator(kind, there):
    driver = "/sys/bus/pci/drivers/xe/0000:03:00.0"
    assert Intel().is_present(Recorded({}, {f"{driver}/class": f"{kind}\n"})) == there


# Huawei


def test_ascend_links_and_what_changes():
    machine = vendor_machines.huawei()
    here = machine.provider.inventory(machine.sources)
    assert len(here.links) == 28
    assert {link.kind for link in here.links} == {"nvlink"}
    sample = machine.provider.sample(machine.sources)
    assert [(device.pci, device.power_mw) for device in sample.devices[:2]] == [
        ("0000:c1:00.0", 101_800),
        ("0000:c2:00.0", 92_000),
    ]
    assert {device.index for device in sample.devices} == {None}
    assert machine.sources.asked[-1] == ("npu-smi", "info")


def test_ascend_processes_name_the_chip_by_the_logic_id_or_the_address():
    machine = vendor_machines.huawei_container()
    here, sample = machine.provider.inventory(machine.sources), machine.provider.sample(machine.sources)
    assert [(each.pid, each.index) for each in here.processes] == [(78617, 0), (79095, 1), (79096, 2), (79097, 3)]
    assert [(each.pid, each.index, each.pci) for each in sample.processes][:1] == [(78617, None, "0000:d9:00.0")]


def test_an_ill_chip_is_named_by_its_logic_id():
    machine = vendor_machines.huawei_container()
    table = text_of("huawei/npu-smi-info-3.txt").replace(
        "| 13    910B2C              | OK            |", "| 13    910B2C              | Alarm         |"
    )
    machine.sources.outputs["npu-smi", "info"] = Output(table, code=0)
    (finding,) = (each for each in machine.provider.inventory(machine.sources).findings if each.code != "tool_failed")
    assert (finding.code, finding.index, finding.pci) == ("hardware_fault", 1, "0000:98:00.0")


# Gaudi


def test_gaudi_devices_are_named_by_module_ids_in_all_that_is_read():
    machine = vendor_machines.gaudi()
    here, sample = machine.provider.inventory(machine.sources), machine.provider.sample(machine.sources)
    assert [(each.pid, each.index) for each in here.processes] == [(10, MODULES["b3"]), (20, MODULES["34"])]
    assert [(each.pid, each.pci) for each in sample.processes] == [(10, "0000:b3:00.0"), (20, "0000:34:00.0")]
    for reading in (here, sample):
        (ill,) = reading.findings
        assert (ill.code, ill.pci) == ("hardware_fault", "0000:cc:00.0")
    assert here.findings[0].index == MODULES["cc"]


@pytest.fixture
def kernel() -> Iterator[tuple[KernelRecords, socket.socket]]:
    """Yield a kernel log, and the socket by which records are written into it."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader.setblocking(False)
    records = KernelRecords(lambda: os.dup(reader.fileno()))
    with reader, writer:
        yield records, writer
    records.close()


def test_what_gaudis_driver_writes_is_news_of_the_device_with_that_file(kernel):
    records, writer = kernel
    machine, provider = vendor_machines.gaudi(), Gaudi(records=records)
    writer.send(b"3,1,5000000,-;habanalabs 0000:cd:00.0: nothing\n")
    writer.send(b"3,2,6000000,-;accel accel1: Device heartbeat failed!\n")
    writer.send(b"3,3,7000000,-;NVRM: Xid (PCI:0000:cd:00): 79, GPU has fallen off the bus.\n")
    before = provider.sample(machine.sources).findings
    writer.send(b"3,4,90000000,-;accel accel2: Device heartbeat failed! PCI link is broken\n")
    writer.send(b"3,5,91000000,-;accel accel9: Device heartbeat failed!\n")
    news = [finding for finding in provider.sample(machine.sources).findings if finding not in before]
    assert [(f.code, f.index, f.pci, f.time_s) for f in news] == [("lost", None, "0000:cd:00.0", 90.0)]
    assert provider.sample(machine.sources).findings == before


def test_memory_errors_are_news_when_their_count_grows():
    machine = vendor_machines.gaudi()
    output = machine.sources.outputs["hl-smi",]

    def counted(errors: int) -> list[tuple[str, str, str]]:
        rows = output.text.replace(
            "| 0000:b4:00.0     N/A |                   0  |", f"| 0000:b4:00.0     N/A | {errors:>19}  |"
        )
        machine.sources.outputs["hl-smi",] = Output(rows, code=0)
        findings = machine.provider.sample(machine.sources).findings
        return [(f.code, f.pci, f.text) for f in findings if "memory" in f.text]

    at = "0000:b4:00.0"
    assert counted(3) == [("degraded", at, "uncorrectable memory errors: 3")]
    assert counted(5) == [("ecc_uncorrected", at, "uncorrectable memory errors: 2 more, 5 in all")]
    assert counted(5) == [("degraded", at, "uncorrectable memory errors: 5")]
    assert counted(0) == []
    assert counted(1) == [("ecc_uncorrected", at, "uncorrectable memory errors: 1 more, 1 in all")]


def test_gaudi_devices_whose_modules_are_not_known_are_left_out():
    machine = vendor_machines.gaudi()
    del machine.sources.outputs[vendor_machines.QUERY]
    reading = machine.provider.inventory(machine.sources)
    assert reading.devices == ()
    assert "8 devices without a module id: HABANA_VISIBLE_MODULES cannot name them" in [
        f.text for f in reading.findings
    ]


def test_gaudi_modules_are_taken_from_the_kernel_where_it_tells_them():
    machine = vendor_machines.gaudi()
    del machine.sources.outputs[vendor_machines.QUERY]
    for at, module in enumerate(MODULES.values()):
        machine.sources.files[f"/sys/class/accel/accel{at}/device/module_id"] = f"{module}\n"
    assert [device.pci for device in Gaudi().inventory(machine.sources).devices] == [
        device.pci for device in machine.expected
    ]


# Intel


def test_intel_figures_come_from_one_sample():
    machine = vendor_machines.intel()
    sample = machine.provider.sample(machine.sources)
    assert [told(device) for device in sample.devices] == [
        {"index": 0, "use_milli": 0, "power_mw": 106_600, "clock_mhz": 0, "memory_used_bytes": 29381100},
        {"index": 1, "use_milli": 0, "power_mw": 105_250, "clock_mhz": 0, "memory_used_bytes": 29381100},
    ]
    assert len(machine.sources.asked) == 1


def test_an_intel_table_has_processes_where_no_sample_can_be_had():
    sources = Recorded({("xpu-smi",): text_of("intel-xpu/xpu-smi-plain-1.txt")})
    assert Intel().sample(sources).processes == (
        ProcessFacts(pid=2874292, index=0, name="xpu-smi", memory_bytes=206 * MIB),
    )


def test_intel_gpus_of_two_stacks_are_left_out():
    reading = Intel().inventory(Recorded({("xpu-smi", "discovery"): text_of("intel-xpu/xpu-smi-discovery-2.txt")}))
    assert reading.devices == ()
    assert "parts_unknown" in codes(reading)


# Google


def test_tpu_use_and_processes_come_from_the_tool():
    machine = vendor_machines.tpu()
    sample = machine.provider.sample(machine.sources)
    assert [(device.index, device.use_milli, device.memory_bytes) for device in sample.devices] == [
        (at, 1000, None) for at in range(4)
    ]
    assert [(process.pid, process.index) for process in sample.processes] == [(1469584, at) for at in range(4)]


@pytest.mark.parametrize("lost", ["/dev/vfio/1", "/dev/vfio/3", f"{PCI}/0000:00:01.0/device"])
def test_tpu_chips_that_cannot_be_matched_with_files_are_none(lost):
    machine = vendor_machines.tpu()
    del machine.sources.files[lost]
    reading = machine.provider.inventory(machine.sources)
    assert reading.devices == ()
    assert {"masked", "no_devices"} & set(codes(reading))


def test_files_of_vfio_are_of_tpus_only_where_a_tpu_is_on_the_bus():
    """A device of another vendor with a TPU's number, a network card of Google's, and a machine with no such device."""
    for vendor, number in (("0x10de", "0x006f"), ("0x1ae0", "0x0042"), ("0x8086", "0x1592")):
        folder = f"{PCI}/0000:00:04.0"
        sources = Recorded(
            {}, {"/dev/vfio/0": "", f"{folder}/vendor": f"{vendor}\n", f"{folder}/device": f"{number}\n"}
        )
        assert not Tpu().is_present(sources)
        assert Tpu().inventory(sources).devices == ()


def test_tpu_models_that_share_an_id_are_told_apart_by_their_subsystem():
    files = {"/dev/accel0": "", f"{PCI}/0000:00:04.0/vendor": "0x1ae0\n", f"{PCI}/0000:00:04.0/device": "0x0027\n"}
    older = Recorded({}, files | {f"{PCI}/0000:00:04.0/subsystem_device": "0x004f\n"})
    assert [(d.model, d.memory_bytes) for d in Tpu().inventory(older).devices] == [("TPU v3", 32 * GIB)]
    assert [(d.model, d.memory_bytes) for d in Tpu().inventory(Recorded({}, files)).devices] == [("TPU", None)]


# AWS


def test_neuron_links_and_processes():
    sources = Recorded({("neuron-ls",): text_of("neuron/neuron-ls-all-procs-1.txt")})
    reading = Neuron().inventory(sources)
    assert (len(reading.devices), len(reading.links), len(reading.processes)) == (16, 32, 32)
    assert reading.processes[:1] == Neuron().sample(sources).processes[:1]
    assert reading.findings == ()


def test_neuron_devices_without_cores_are_left_out():
    text = text_of("neuron/neuron-ls-all-procs-1.txt").replace("| 1      | 4      |", "| 1      | N/A    |")
    reading = Neuron().inventory(Recorded({("neuron-ls",): text}))
    assert {process.index for process in reading.processes} == {0, *range(2, 16)}
    assert [device.index for device in reading.devices] == [0, *range(2, 16)]
    assert all(1 not in (link.device, link.peer) for link in reading.links)
    assert "masked" in codes(reading)


# AMD


def test_amd_devices_by_the_kernel_with_the_driver_and_links():
    machine = vendor_machines.amd()
    reading = machine.provider.inventory(machine.sources)
    assert (reading.driver, reading.links, reading.findings) == ("6.19.14", (LinkFacts(0, 1, "nvlink"),), ())
    assert [device.power_limit_mw for device in reading.devices] == [None, None]


def test_an_amd_sample_reads_files_alone():
    machine = vendor_machines.amd()
    sample = machine.provider.sample(machine.sources)
    assert told(sample.devices[0]) == {
        "index": 0,
        "uuid": AMD_UUIDS[0],
        "pci": "0000:63:00.0",
        "memory_used_bytes": 3 * GIB,
        "use_milli": 370,
        "temperature_c": 46,
        "power_mw": 189_000,
        "power_limit_mw": 300_000,
        "clock_mhz": 1700,
        "ecc_corrected": 5,
        "ecc_uncorrected": 2,
    }
    assert told(sample.devices[1]) == {"index": 1, "uuid": AMD_UUIDS[1], "pci": "0000:64:00.0"}
    assert [told(process) for process in sample.processes] == [
        {"pid": 4711, "index": 0, "uuid": AMD_UUIDS[0], "pci": "0000:63:00.0", "memory_bytes": 2 * GIB}
    ]
    assert [(finding.code, finding.index) for finding in sample.findings] == [("degraded", 0)]
    assert machine.sources.asked == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("gpu_busy_percent", "101\n"), ("gpu_busy_percent", "-5\n"), ("hwmon/hwmon3/temp2_input", "900000\n")],
)
def test_absurd_figures_are_none(name, text):
    machine = vendor_machines.amd()
    machine.sources.files[f"{PCI}/0000:63:00.0/{name}"] = text
    device = machine.provider.sample(machine.sources).devices[0]
    assert None in (device.use_milli, device.temperature_c)


def amd_without_figures() -> Recorded:
    machine = vendor_machines.amd()
    files = {path: text for path, text in machine.sources.files.items() if "0000:63" not in path and "vram" not in path}
    return Recorded(machine.sources.outputs, files)


def test_amd_figures_come_from_amd_smi_by_address_where_the_kernel_tells_none():
    sources = amd_without_figures()
    sources.outputs["amd-smi", "list", "--json"] = Output(
        '[{"gpu": 0, "bdf": "0000:64:00.0"}, {"gpu": 1, "bdf": "0000:63:00.0"}]\n', code=0
    )
    sources.outputs["amd-smi", "metric", "--json"] = Output(text_of("amd/amd-smi-metric-power-1.json"), code=0)
    sources.outputs["amd-smi", "process", "--json"] = Output(text_of("amd/amd-smi-process-1.json"), code=0)
    sample = Amd().sample(sources)
    assert {device.index: device.power_mw for device in sample.devices} == {1: 10_000, 0: None}
    assert [process.uuid for process in sample.processes] == [AMD_UUIDS[1]] * 4 + [AMD_UUIDS[0]] * 4


def test_amd_figures_come_from_rocm_smi_else():
    sources = amd_without_figures()
    text = text_of("amd/rocm-smi-a-1.json").replace("0000:1E:00.0", "0000:64:00.0")
    sources.outputs["rocm-smi", "-a", "--json"] = Output(text, code=0)
    sample = Amd().sample(sources)
    assert [(device.index, device.power_mw) for device in sample.devices] == [(1, 39_000)]


def test_amd_devices_that_are_divided_are_left_out():
    machine = vendor_machines.amd()
    parts = [text_of(f"amd/kfd-node-properties-{number}.txt") for number in (1, 2)]
    for at, text in enumerate(parts):
        machine.sources.files[f"{NODES}/{4 + at}/properties"] = text
    reading = machine.provider.inventory(machine.sources)
    assert [device.uuid for device in reading.devices] == AMD_UUIDS
    assert "parts_unknown" in codes(reading)
    assert "parts_unknown" in codes(machine.provider.sample(machine.sources))


def test_amd_links_come_from_the_tool_where_the_kernel_shows_no_devices():
    listing = '[{"gpu": 0, "bus": {"bdf": "0000:63:00.0"}}, {"gpu": 1, "bus": {"bdf": "0000:64:00.0"}}]\n'
    topology = text_of("amd/amd-smi-topology-old-1.json")
    commands = {("amd-smi", "static", "--json"): listing, ("amd-smi", "topology", "--json"): topology}
    reading = Amd().inventory(Recorded(commands))
    assert [device.pci for device in reading.devices] == ["0000:63:00.0", "0000:64:00.0"]
    assert reading.links == (LinkFacts(0, 1, "pcie"),)


# How variables name devices


@pytest.mark.parametrize("make", [*PRESENT, vendor_machines.huawei_container])
def test_every_device_has_the_word_by_which_the_variable_of_its_vendor_lists_it(make):
    machine = make()
    words = [device.uuid for device in machine.provider.inventory(machine.sources).devices]
    if machine.provider.vendor == "amd":
        assert words == AMD_UUIDS
    elif machine.provider.vendor == "aws":
        assert words == [f"{4 * at}-{4 * at + 3}" for at in range(16)]
    else:
        assert words == [str(at) for at in range(len(machine.expected))]


def test_ascend_chips_whose_logic_ids_are_not_known_are_left_out():
    machine = vendor_machines.huawei_container()
    del machine.sources.outputs["npu-smi", "info", "-m"]
    reading = machine.provider.inventory(machine.sources)
    assert reading.devices == reading.processes == ()
    assert "4 chips whose logic ids are not known: ASCEND_RT_VISIBLE_DEVICES cannot name them" in [
        finding.text for finding in reading.findings
    ]


@MACHINES
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_an_output_that_is_damaged_gives_no_wrong_device(make, damage):
    """Of each output: lost, doubled and moved lines, other locales, zeros, values that are not told, ill characters."""
    machine = make()
    here = machine.provider.inventory(machine.sources)
    for command, output in machine.sources.outputs.items():
        if output.text:
            text = damage(output.text, random.Random(f"{make.__name__} {damage.__name__} {command}"))
            damaged = Recorded(machine.sources.outputs | {command: Output(text, code=0)}, machine.sources.files)
            for reading in (machine.provider.inventory(damaged), machine.provider.sample(damaged)):
                check_facts(reading, here)
                assert reading.devices or reading.findings
