"""Gaudi devices as the recorded outputs of hl-smi show them."""

import pytest

from penstock.devices import gaudi_tools
from penstock.devices.reading import Finding
from tests.devices.tool_outputs import MIB, codes, read, text_of, told

GAUDI_1 = {"model": "HL-205", "memory_bytes": 32768 * MIB, "memory_used_bytes": 512 * MIB}
GAUDI_3 = {"model": "HL-325L", "memory_bytes": 131072 * MIB, "memory_used_bytes": 672 * MIB}
GAUDI_2 = {"model": "HL-225", "memory_bytes": 98304 * MIB, "memory_used_bytes": 768 * MIB}
SERIALS = {
    "probe": (
        ("P64X00-16-07-11", 102, 29, 14),
        ("P64W98-10-03-11", 103, 32, 15),
        ("P64W98-05-02-04", 103, 30, 14),
        ("P64X00-08-05-09", 103, 35, 15),
        ("P64X78-02-07-10", 96, 31, 12),
        ("P64W99-02-08-05", 105, 33, 15),
        ("P64X00-12-04-07", 100, 31, 13),
        ("P64W99-13-05-03", 103, 34, 14),
    ),
    "query": (
        ("P64W99-13-05-03", 103, 36, 15),
        ("P64W99-02-08-05", 105, 34, 15),
        ("P64X78-02-07-10", 96, 33, 12),
        ("P64X00-12-04-07", 100, 32, 13),
        ("P64W98-10-03-11", 103, 34, 15),
        ("P64X00-16-07-11", 102, 30, 14),
        ("P64W98-05-02-04", 103, 31, 14),
        ("P64X00-08-05-09", 103, 38, 14),
    ),
}


def aip(bus: str, index: int, watts: int, limit: int, celsius: int, percent: int, **more: object) -> dict[str, object]:
    facts = {"index": index, "pci": f"0000:{bus}:00.0", "temperature_c": celsius, "use_milli": percent * 10}
    return {**facts, "power_mw": watts * 1000, "power_limit_mw": limit * 1000, **more}


TABLES = {
    1: (
        "1.18.0-ee698fb",
        [
            aip("b3", 0, 104, 350, 33, 15, **GAUDI_1, ecc_uncorrected=0),
            aip("b4", 1, 102, 350, 30, 14, **GAUDI_1, ecc_uncorrected=0),
            aip("cd", 2, 104, 350, 37, 15, **GAUDI_1, ecc_uncorrected=0),
            aip("cc", 3, 103, 350, 30, 15, **GAUDI_1, ecc_uncorrected=0),
            aip("19", 4, 96, 350, 33, 12, **GAUDI_1, ecc_uncorrected=0),
            aip("1a", 5, 105, 350, 33, 15, **GAUDI_1, ecc_uncorrected=0),
            aip("34", 6, 103, 350, 36, 15, **GAUDI_1, ecc_uncorrected=0),
            aip("33", 7, 100, 350, 32, 13, **GAUDI_1, ecc_uncorrected=0),
        ],
    ),
    2: (
        "1.17.1-78932ae",
        [
            aip("4d", 0, 95, 600, 31, 0, **GAUDI_2, ecc_uncorrected=0),
            aip("b4", 1, 85, 600, 28, 0, **GAUDI_2, ecc_uncorrected=0),
        ],
    ),
    3: (
        "1.22.1-97ec1a4",
        [
            aip("33", 0, 88, 600, 22, 0, **GAUDI_2),
            aip("9a", 1, 83, 600, 22, 0, **GAUDI_2),
            aip("34", 2, 94, 600, 25, 0, **GAUDI_2),
            aip("4d", 3, 80, 600, 24, 0, **GAUDI_2),
            aip("4e", 4, 73, 600, 22, 0, **GAUDI_2),
            aip("9b", 5, 87, 600, 25, 0, **GAUDI_2),
            aip("b3", 6, 91, 600, 24, 0, **GAUDI_2),
            aip("b4", 7, 90, 600, 21, 0, **GAUDI_2),
        ],
    ),
    4: (
        "1.20.1-366eb9c",
        [
            aip("e9", 0, 228, 900, 36, 0, **GAUDI_3),
            aip("c1", 1, 226, 900, 37, 0, **GAUDI_3),
            aip("b7", 2, 225, 900, 36, 0, **GAUDI_3),
            aip("ad", 3, 228, 900, 40, 0, **GAUDI_3),
            aip("a3", 4, 228, 900, 36, 0, **GAUDI_3),
            aip("df", 5, 229, 900, 39, 0, **GAUDI_3),
            aip("d5", 6, 231, 900, 36, 0, **GAUDI_3),
            aip("cb", 7, 227, 900, 38, 0, **GAUDI_3),
        ],
    ),
}


@pytest.mark.parametrize("number", TABLES)
def test_the_table_gives_its_devices_and_no_finding(number):
    driver, devices = TABLES[number]
    reading = read(f"gaudi/hl-smi-plain-{number}.txt")
    assert (reading.driver, [told(device) for device in reading.devices]) == (driver, devices)
    assert reading.findings == ()


def test_a_row_of_a_device_without_a_process_is_no_process():
    assert [told(process) for process in read("gaudi/hl-smi-plain-1.txt").processes] == [
        {"pid": 10, "index": 0, "name": "python name", "memory_bytes": 1024 * MIB},
        {"pid": 20, "index": 6, "name": "custom process", "memory_bytes": 2040 * MIB},
    ]
    assert read("gaudi/hl-smi-plain-2.txt").processes == read("gaudi/hl-smi-plain-3.txt").processes == ()


def test_a_process_with_bars_in_its_name_is_seen():
    text = text_of("gaudi/hl-smi-plain-1.txt").replace("python name", "a|b   | c  ")
    processes = gaudi_tools.parse_table(text).processes
    assert [(process.pid, process.name) for process in processes] == [(10, "a  b  c"), (20, "custom process")]


def test_a_device_that_only_the_processes_name_was_cut_from_the_table():
    lines = text_of("gaudi/hl-smi-plain-2.txt").splitlines(keepends=True)
    reading = gaudi_tools.parse_table("".join(lines[:7] + lines[10:]))
    assert ([device.index for device in reading.devices], codes(reading)) == ([1], ["cut"])


def test_a_process_on_an_unknown_device_is_seen_and_named():
    text = text_of("gaudi/hl-smi-plain-1.txt").replace("|   6        20 ", "|   N/A      20 ")
    reading = gaudi_tools.parse_table(text)
    assert [(process.pid, process.index) for process in reading.processes] == [(10, 0), (20, None)]
    assert reading.findings == (Finding(code="masked", text="not told: device of process 20"),)


def test_uncorrected_memory_errors_close_a_device():
    text = text_of("gaudi/hl-smi-plain-2.txt").replace("                   0  |", "                   3  |", 1)
    (finding,) = gaudi_tools.parse_table(text).findings
    assert (finding.code, finding.index, finding.effect) == ("ecc_uncorrected", 0, "close")


@pytest.mark.parametrize("kind", SERIALS)
def test_rows_of_commas_give_devices_by_uuid(kind):
    reading = read(f"gaudi/hl-smi-{kind}-1.csv")
    expected = [
        {
            **GAUDI_1,
            "uuid": f"00P1-HL2000A1-14-{serial}",
            "power_mw": watts * 1000,
            "temperature_c": celsius,
            "use_milli": percent * 10,
        }
        for serial, watts, celsius, percent in SERIALS[kind]
    ]
    assert ([told(device) for device in reading.devices], reading.findings) == (expected, ())


def test_rows_that_name_no_device_say_so():
    reading = read("gaudi/hl-smi-discover-1.csv")
    device = {"model": "HL-205", "memory_bytes": 32768 * MIB}
    finding = Finding(code="masked", text="not told: index, uuid and address of 8 devices")
    assert ([told(device) for device in reading.devices], reading.findings) == ([device] * 8, (finding,))


def test_a_row_that_stands_twice_is_no_device():
    lines = text_of("gaudi/hl-smi-query-1.csv").splitlines(keepends=True)
    reading = gaudi_tools.parse_rows("".join([*lines, lines[3]]))
    assert (len(reading.devices), codes(reading)) == (7, ["duplicate"])
