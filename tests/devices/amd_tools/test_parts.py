"""Compute partitions are parts of their device, whatever the tool counts; rows that contradict each other are none."""

import json

import pytest

from penstock.devices.amd_tools import amd_smi, amd_smi_tables, kfd, rocm_smi, topology
from penstock.devices.amd_tools.joining import join
from penstock.devices.reading import DeviceFacts, LinkFacts, PartFacts, ProcessFacts, Reading
from tests.devices.amd_tools.builders import MIB
from tests.devices.amd_tools.recordings import text_of


def listed(*entries: dict[str, object]) -> str:
    """Return `amd-smi list --json` of GPUs that are counted from 0."""
    return json.dumps([{"gpu": at, **entry} for at, entry in enumerate(entries)])


def cards(*entries: dict[str, object]) -> str:
    return json.dumps({f"card{at}": entry for at, entry in enumerate(entries)})


def codes(reading: Reading) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.index) for finding in reading.findings]


FOUR = [{"bdf": f"0000:05:00.{n}", "partition_id": n} for n in range(4)]
OTHER = [{"bdf": f"0000:26:00.{n}", "partition_id": n} for n in range(4)]
PARTS = tuple(PartFacts(index=n, instance=n) for n in range(4))


def test_rows_of_one_device_are_its_parts():
    read = amd_smi.read(listed(*FOUR, *OTHER))
    assert [(d.index, d.pci, d.partitioned, len(d.parts)) for d in read.devices] == [
        (0, "0000:05:00.0", True, 4),
        (4, "0000:26:00.0", True, 4),
    ]
    assert read.devices[0].parts == PARTS
    assert read.findings == ()


def test_parts_of_a_card_are_known_by_their_nodes():
    whole = {"PCI Bus": "0000:01:00.0", "VRAM Total Memory (B)": "137438953472", "Unique ID": "0x1f"}
    read = rocm_smi.read(cards(*({**whole, "Node ID": str(4 + n), "GPU use (%)": str(20 * n)} for n in range(3))))
    assert read.devices == (
        DeviceFacts(
            index=0,
            uuid="0x000000000000001f",
            pci="0000:01:00.0",
            memory_bytes=128 * 2**30,
            use_milli=200,
            partitioned=True,
            parts=tuple(PartFacts(index=n) for n in range(3)),
        ),
    )


@pytest.mark.parametrize(
    "entries",
    [
        [{"bdf": "0000:05:00.0"}, {"bdf": "0000:05:00.0"}],
        [{"bdf": "0000:05:00.0", "partition_id": 1}, {"bdf": "0000:05:00.1", "partition_id": 1}],
        [{"bdf": f"0000:05:00.{n % 8}", "partition_id": n} for n in range(9)],
        [{**FOUR[0], "vram": {"size": "1 GB"}}, {**FOUR[1], "vram": {"size": "2 GB"}}],
        [{**FOUR[0], "partition": {"compute_partition": "SPX"}}, FOUR[1]],
        [{**each, "partition": {"compute_partition": mode}} for each, mode in zip(FOUR, ("CPX", "DPX"), strict=False)],
        [{"bdf": f"0000:05:00.{n}", "node_id": 4} for n in range(2)],
    ],
    ids=[
        "no sign of parts",
        "the same part",
        "more than a device has",
        "other memory",
        "not divided",
        "two modes",
        "one node",
    ],
)
def test_rows_at_one_address_that_are_no_parts_are_no_device(entries):
    read = amd_smi.read(listed(*entries))
    assert read.devices == ()
    assert codes(read) == [("duplicate", 0)]


def test_parts_without_the_first_are_no_device():
    read = amd_smi.read(listed(*FOUR[1:], {"bdf": "0000:26:00.0"}))
    assert [device.pci for device in read.devices] == ["0000:26:00.0"]
    assert codes(read) == [("cut", 0)]


def test_two_devices_with_one_uuid_are_none():
    uuid = "02939881-f3fb-8ca5-9fac-a64785cc9492"
    read = amd_smi.read(listed({"bdf": "0000:05:00.0", "uuid": uuid}, {"bdf": "0000:26:00.0", "uuid": uuid}))
    assert read.devices == ()
    assert codes(read) == [("duplicate", 0), ("duplicate", 1)]


def test_kernel_nodes_of_one_device_are_its_parts():
    nodes = {n: text_of(f"kfd-node-properties-{name}.txt") for n, name in ((0, 3), (2, 1), (3, 2))}
    near = "type 2\nnode_from 2\nnode_to 0\n"
    read = kfd.read(nodes, [near, text_of("kfd-io-link-2.txt")], {2: "size_in_bytes 5\n"})
    assert read == Reading(
        devices=(
            DeviceFacts(
                index=0,
                uuid="0xe3aa140f9a5f9e31",
                pci="0000:05:00.0",
                model="Instinct MI300X",
                numa_node=0,
                minor=128,
                partitioned=True,
                parts=(PartFacts(index=0), PartFacts(index=1)),
            ),
        )
    )


def test_kernel_nodes_have_their_memory_and_links():
    one = text_of("kfd-node-properties-4.txt")
    other = one.replace("location_id 25344", "location_id 33536").replace("unique_id 18", "unique_id 17")
    nodes = {0: text_of("kfd-node-properties-3.txt"), 1: "cpu_cores_count 96\nsimd_count 0\n", 2: one, 3: other}
    far = "type 2\nnode_from 3\nnode_to 1\n"
    linked = "type 11\nnode_from 3\nnode_to 2\n"
    read = kfd.read(nodes, [text_of("kfd-io-link-1.txt"), far, linked], {2: "heap_type 1\nsize_in_bytes 68702699520\n"})
    assert [(d.index, d.pci, d.numa_node, d.memory_bytes) for d in read.devices] == [
        (0, "0000:63:00.0", 0, 68702699520),
        (1, "0000:83:00.0", 1, None),
    ]
    assert read.links == (LinkFacts(0, 1, "nvlink"),)
    assert read.findings == ()


def test_a_kernel_node_that_is_not_whole_keeps_its_index():
    node = text_of("kfd-node-properties-4.txt")
    read = kfd.read({2: node.replace("location_id 25344\n", ""), 3: node})
    assert [device.index for device in read.devices] == [1]
    assert codes(read) == [("cut", None)]


def inventory(devices: int = 8, parts: int = 4) -> Reading:
    """Return devices that are each counted as so many parts."""
    entries = [{"bdf": f"0000:{5 + d:02x}:00.{n}", "partition_id": n} for d in range(devices) for n in range(parts)]
    return amd_smi.read(listed(*entries))


def test_figures_of_parts_come_to_their_device():
    rows = amd_smi_tables.read_monitor(text_of("amd-smi-monitor-ptv-cpx-1.txt"), as_counted=True)
    assert len(rows.devices) == 32
    read = join(inventory(), rows)
    assert [(d.index, d.power_mw, d.temperature_c) for d in read.devices[:3]] == [
        (0, 248_000, 55),
        (4, 221_000, 50),
        (8, 239_000, 53),
    ]
    assert {(d.memory_bytes, len(d.parts), d.partitioned) for d in read.devices} == {(196300 * MIB, 4, True)}
    assert len(read.devices) == 8
    assert read.findings == ()


def test_use_of_a_device_is_the_mean_of_its_parts():
    metric = json.dumps([{"gpu": n, "usage": {"gfx_activity": f"{10 * n} %"}} for n in range(4)])
    assert join(inventory(1), amd_smi.read(metric, as_counted=True)).devices[0].use_milli == 150


def test_processes_and_links_name_devices():
    shown = [{"gpu": 5, "process_list": [{"process_info": {"name": "train", "pid": 7}}]}]
    ways = json.dumps([{"gpu": one, "links": [{"gpu": g, "link_type": "XGMI"} for g in range(8)]} for one in range(8)])
    links = topology.read(ways, as_counted=True)
    assert len(links.links) == 28
    read = join(inventory(2), amd_smi.read(json.dumps(shown), as_counted=True), links)
    assert read.processes == (ProcessFacts(pid=7, index=4, instance=1, name="train"),)
    assert read.links == (LinkFacts(0, 4, "nvlink"),)


def test_facts_of_another_device_are_not_joined():
    first = amd_smi.read(listed({"bdf": "0000:05:00.0"}))
    other = amd_smi.read(json.dumps([{"gpu": 0, "bus": {"bdf": "0000:26:00.0"}, "numa": {"node": 1}}]))
    read = join(first, other)
    assert read.devices == first.devices
    assert codes(read) == [("duplicate", 0)]


def test_what_is_known_more_is_joined():
    static = amd_smi.read(text_of("amd-smi-static-1.txt"))
    read = join(amd_smi.read(text_of("amd-smi-list-2.txt")), static, amd_smi.read(text_of("amd-smi-metric-1.txt")))
    assert read.devices[0] == DeviceFacts(
        index=0,
        uuid="02939881-f3fb-8ca5-9fac-a64785cc9492",
        pci="0000:05:00.0",
        model="MI300X-O",
        serial="0xaf76a53c5b8e66c6",
        use_milli=1000,
        power_mw=234_000,
        clock_mhz=2102,
    )
    assert [device.index for device in read.devices] == [0, 1, 2]


@pytest.mark.parametrize(("rows", "devices"), [(8, 8), (9, 0)])
def test_more_rows_with_an_index_alone_than_a_machine_has_devices_may_be_parts(rows, devices):
    table = "GPU  POWER\n" + "".join(f"  {index}    9 W\n" for index in range(rows))
    read = amd_smi_tables.read_monitor(table)
    assert len(read.devices) == devices
    assert codes(read) == ([] if devices else [("parts_unknown", None)])
    assert len(amd_smi_tables.read_monitor(table, as_counted=True).devices) == rows
