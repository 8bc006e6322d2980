"""Neuron devices as the recorded outputs of neuron-ls show them."""

import pytest

from penstock.devices import neuron_tools
from penstock.devices.reading import LinkFacts
from tests.devices.tool_outputs import codes, read, text_of, told

GIB = 2**30
TRN2 = ("cc:00", "b5:00", "b6:00", "cb:00", "6f:00", "58:00", "59:00", "6e:00")
TRN2 += ("9b:00", "84:00", "85:00", "9a:00", "f8:00", "e1:00", "e2:00", "f7:00")
TRN1 = ("10:1c", "10:1d", "a0:1c", "a0:1d", "20:1b", "20:1c", "90:1b", "90:1c")
TRN1 += ("20:1d", "20:1e", "90:1d", "90:1e", "10:1e", "10:1b", "a0:1e", "a0:1b")


def devices(addresses: tuple[str, ...], gib: int, cores: int = 2) -> list[dict[str, object]]:
    return [
        {
            "index": index,
            "uuid": f"{index * cores}-{index * cores + cores - 1}",
            "pci": f"0000:{address}.0",
            "memory_bytes": gib * GIB,
        }
        for index, address in enumerate(addresses)
    ]


def torus() -> set[LinkFacts]:
    """Return the links of four rows and four columns, each closed to a ring."""
    pairs = [(n, n // 4 * 4 + (n + 1) % 4) for n in range(16)] + [(n, (n + 4) % 16) for n in range(16)]
    return {LinkFacts(min(pair), max(pair), "nvlink") for pair in pairs}


NUMA_1 = (0, 1, 2, 3, 12, 13, 14, 15)
EXPECTED = {
    "1": [{**d, "numa_node": int(d["index"] in NUMA_1)} for d in devices(TRN2, 96, 4)],
    "2": devices(TRN1, 32),
    "3": devices(("00:1e",), 32),
    "4": devices(("00:1e",), 32),
    "5": devices(("00:1f",), 8, 4),
    "6": devices(("00:1e",), 32),
    "all-procs-1": devices(TRN2, 96, 4),
    "wide-1": devices(TRN2, 96, 4),
    "topology-1": devices(TRN2, 96, 4),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_table_of_each_generation_gives_its_devices(name):
    reading = read(f"neuron/neuron-ls-{name}.txt")
    assert ([told(device) for device in reading.devices], reading.findings) == (EXPECTED[name], ())
    assert set(reading.links) == (torus() if len(EXPECTED[name]) == 16 else set())
    assert len(set(reading.links)) == len(reading.links)


def test_a_row_without_a_device_is_a_process_of_the_one_above():
    processes = [(p.pid, p.index) for p in read("neuron/neuron-ls-all-procs-1.txt").processes]
    assert processes == [(pid, index) for index in range(16) for pid in (268911, 269192)]
    assert [(p.pid, p.index) for p in read("neuron/neuron-ls-wide-1.txt").processes] == [(268911, n) for n in range(16)]


def test_a_link_that_one_device_alone_names_is_none():
    text = text_of("neuron/neuron-ls-1.txt").replace("| 13, 0, 5, 2   |", "| 13, 5, 2      |")
    links = set(neuron_tools.parse_table(text).links)
    assert torus() - links == {LinkFacts(0, 1, "nvlink")}


def test_a_row_of_neither_device_nor_process_is_a_finding():
    text = text_of("neuron/neuron-ls-all-procs-1.txt").replace("269192", "      ", 1)
    reading = neuron_tools.parse_table(text)
    assert (len(reading.devices), len(reading.processes), codes(reading)) == (16, 31, ["unknown_format"])


def test_whole_objects_of_a_cut_list_are_read_and_the_cut_is_named():
    reading = read("neuron/neuron-ls-json-1.json")
    assert [told(device) for device in reading.devices] == [
        {"index": 0, "uuid": "0-3", "pci": "0000:cc:00.0", "numa_node": 1, "memory_bytes": 103079215104},
        {"index": 15, "uuid": "60-63", "pci": "0000:f7:00.0", "numa_node": 1, "memory_bytes": 103079215104},
    ]
    assert [(p.pid, p.index) for p in reading.processes] == [(113985, 0), (113985, 15)]
    assert codes(reading) == ["unreadable"]


@pytest.mark.parametrize(
    ("cores", "uuid"),
    [("0-3 ", "0-3"), ("3-0 ", ""), ("0-99", ""), ("0,2 ", ""), ("N/A ", ""), ("7   ", "7")],
)
def test_cores_that_are_no_range_name_no_device(cores, uuid):
    text = text_of("neuron/neuron-ls-1.txt").replace("| 0-3      |", f"| {cores}     |")
    assert neuron_tools.parse_table(text).devices[0].uuid == uuid


@pytest.mark.parametrize(
    ("ids", "uuid"),
    [("[0, 1]", "0-1"), ("[5]", "5"), ("[0, 2]", ""), ("[]", ""), ('["0"]', ""), ("7", ""), ("[-1, 0]", "")],
)
def test_core_ids_of_json_are_numbers_that_follow_each_other(ids, uuid):
    text = f'[{{"neuron_device": 0, "bdf": "cc:00.0", "memory_size": 1, "neuroncore_ids": {ids}}}]'
    assert [device.uuid for device in neuron_tools.parse_json(text).devices] == [uuid]


@pytest.mark.parametrize("name", ["instance", "utilization"])
def test_a_part_of_a_monitor_report_is_a_finding(name):
    reading = read(f"neuron/neuron-monitor-{name}-1.json")
    assert (reading.devices, codes(reading)) == ((), ["unreadable"])
