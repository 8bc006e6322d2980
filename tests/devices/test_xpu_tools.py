"""Intel GPUs as the recorded outputs of xpu-smi show them."""

import pytest

from penstock.devices import xpu_tools
from tests.devices.tool_outputs import MIB, codes, read, text_of, told

MAX_1550 = "Intel(R) Data Center GPU Max 1550"
MAX_1100 = "Intel(R) Data Center GPU Max 1100"
B580 = {"index": 0, "pci": "0000:03:00.0", "memory_bytes": 12216 * MIB}


def uuid(end: str) -> str:
    return f"00000000-0000-0000-{end}"


DISCOVERY_2 = [
    {"index": 0, "minor": 0, "pci": "0000:18:00.0", "model": MAX_1550, "uuid": uuid("926a-83c28645e226")},
    {"index": 1, "minor": 1, "pci": "0000:42:00.0", "model": MAX_1550, "uuid": uuid("41ba-014c9029529c")},
    {"index": 2, "minor": 2, "pci": "0000:6c:00.0", "model": MAX_1550, "uuid": uuid("ef03-1b4749c20cb0")},
    {"index": 3, "minor": 3, "pci": "0001:18:00.0", "model": MAX_1550, "uuid": uuid("a9e9-a41ad019b491")},
    {"index": 4, "minor": 4, "pci": "0001:42:00.0", "model": MAX_1550, "uuid": uuid("1198-22ef5c1e3288")},
    {"index": 5, "minor": 5, "pci": "0001:6c:00.0", "model": MAX_1550, "uuid": uuid("cec2-eaa8508708c5")},
]


def test_the_table_gives_device_and_process():
    reading = read("intel-xpu/xpu-smi-plain-1.txt")
    moment = {"memory_used_bytes": 239 * MIB, "temperature_c": 25, "use_milli": 0}
    power = {"power_mw": 66_000, "power_limit_mw": 380_000}
    assert [told(d) for d in reading.devices] == [{**B580, "model": "Intel(R) Arc(TM) B580", **moment, **power}]
    process = {"pid": 2874292, "index": 0, "name": "xpu-smi", "memory_bytes": 206 * MIB}
    assert [told(p) for p in reading.processes] == [process]
    assert (reading.driver, reading.findings) == ("9FF4708BCC22C0EE6FD801A", ())


def test_discovery_gives_addresses_and_uuids_over_several_pci_domains():
    reading = read("intel-xpu/xpu-smi-discovery-2.txt")
    assert ([told(d) for d in reading.devices], reading.findings) == (DISCOVERY_2, ())


def test_discovery_of_one_device_gives_its_memory():
    reading = read("intel-xpu/xpu-smi-discovery-1.txt")
    name = {"model": "Intel(R) Arc(TM) B580 Graphics", "serial": "undhxzh"}
    assert [told(d) for d in reading.devices] == [{**B580, **name, "uuid": "00000000-0000-0003-0000-0000e20b8086"}]
    assert (reading.driver, reading.findings) == ("9FF4708BCC22C0EE6FD801A", ())


@pytest.mark.parametrize(("name", "code"), [("Device State", "unhealthy"), ("GFX Firmware Status", "firmware_fault")])
def test_a_state_other_than_normal_closes_the_device(name, code):
    text = text_of("intel-xpu/xpu-smi-discovery-1.txt").replace(f"{name}: normal", f"{name}: wedged")
    (finding,) = xpu_tools.parse_discovery(text).findings
    assert (finding.code, finding.index, finding.pci, finding.effect) == (code, 0, "0000:03:00.0", "close")


def test_a_list_in_json_gives_its_devices():
    reading = read("intel-xpu/xpu-smi-discovery-list-1.json")
    assert [told(d) for d in reading.devices] == [
        {
            "index": 0,
            "minor": 1,
            "pci": "0000:29:00.0",
            "model": MAX_1100,
            "uuid": "00000000-0000-0029-0000-002f0bda8086",
        },
        {
            "index": 1,
            "minor": 2,
            "pci": "0000:9a:00.0",
            "model": MAX_1100,
            "uuid": "00000000-0000-009a-0000-002f0bda8086",
        },
    ]
    assert reading.findings == ()


def test_an_object_with_a_comma_too_many_is_read_and_named():
    reading = read("intel-xpu/xpu-smi-discovery-device-1.json")
    facts = {"index": 0, "minor": 1, "model": MAX_1100, "serial": "unvgxkf", "memory_bytes": 51522830336}
    assert [told(d) for d in reading.devices] == [{**facts, "uuid": "00000000-0000-0029-0000-002f0bda8086"}]
    assert (reading.driver, codes(reading)) == ("I915_23.10.72_PSB_231129.76", ["unreadable"])


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"device_list": [' * 5000, "[1, 2]", '{"device_list": 7}', "NaN", '"a"']
)
def test_json_of_another_shape_is_a_finding(text):
    reading = xpu_tools.parse_json(text)
    assert (reading.devices, reading.findings == ()) == ((), False)


def test_a_name_twice_in_one_object_is_a_finding():
    text = text_of("intel-xpu/xpu-smi-discovery-list-1.json").replace('"uuid"', '"device_id": 7, "uuid"', 1)
    reading = xpu_tools.parse_json(text)
    assert (reading.devices, codes(reading)) == ((), ["unreadable"])


def test_samples_give_the_latest_of_each_device():
    reading = read("intel-xpu/xpu-smi-dump-1.csv")
    powers = (280210, 287580, 277820, 281840, 280400, 285540)
    expected = [{"index": index, "power_mw": power, "clock_mhz": 1600} for index, power in enumerate(powers)]
    assert ([told(d) for d in reading.devices], reading.findings) == (expected, ())


def test_samples_give_memory_where_they_have_it():
    reading = read("intel-xpu/xpu-smi-dump-2.csv")
    moment = {"use_milli": 0, "clock_mhz": 0, "memory_used_bytes": round(28.02 * MIB)}
    assert [told(d) for d in reading.devices] == [
        {"index": 0, "power_mw": 106_600, **moment},
        {"index": 1, "power_mw": 105_250, **moment},
    ]
    assert reading.findings == ()


def test_versions_show_no_devices():
    (finding,) = read("intel-xpu/xpu-smi-version-1.txt").findings
    text = "versions only: Version 1.2.39.20240906, Level Zero Version 1.20.2"
    assert (finding.code, finding.text, finding.effect) == ("no_devices", text, "none")
