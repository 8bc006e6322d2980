"""Ascend devices as the recorded outputs of npu-smi, hccn_tool and lspci show them."""

import pytest

from penstock.devices import huawei_details, huawei_tools
from penstock.devices.reading import Finding, LinkFacts
from tests.devices.tool_outputs import MIB, codes, read, text_of, told

ONE_CHIP = {"chip": 0, "use_milli": 0}


def npu(index: int, pci: str, model: str, mib: tuple[int, int], c: int, power_mw: int | None, **more: int):
    """Return the facts of an idle device; `mib`: used and total memory."""
    facts = {"index": index, "pci": pci, "model": model, "card": index, "temperature_c": c, **ONE_CHIP}
    memory = {"memory_used_bytes": mib[0] * MIB, "memory_bytes": mib[1] * MIB}
    return {**facts, **memory, **({"power_mw": power_mw} if power_mw is not None else {}), **more}


CARD = 65536
INFO = {
    "1": ("25.5.2", [npu(5, "0000:41:00.0", "910B4", (2922, 32768), 39, 89900)]),
    "2": ("25.5.1", [npu(2, "0000:52:00.0", "910B2C", (3406, CARD), 31, 87800)]),
    "3": (
        "23.0.3",
        [
            npu(12, "0000:d9:00.0", "910B2C", (52675, CARD), 53, 91300),
            npu(13, "0000:98:00.0", "910B2C", (52665, CARD), 55, 100700),
            npu(14, "0000:b9:00.0", "910B2C", (52667, CARD), 55, 92800),
            npu(15, "0000:c9:00.0", "910B2C", (52665, CARD), 55, 92900),
        ],
    ),
    "4": (
        "24.1.rc3.7",
        [
            npu(0, "0000:9d:00.0", "Ascend910", (3412, CARD), 36, 178900, card=0),
            npu(1, "0000:9f:00.0", "Ascend910", (3189, CARD), 36, None, card=0, chip=1),
            npu(2, "0000:99:00.0", "Ascend910", (3413, CARD), 36, 186100, card=1),
            npu(3, "0000:9b:00.0", "Ascend910", (3185, CARD), 36, None, card=1, chip=1),
            npu(4, "0000:95:00.0", "Ascend910", (3412, CARD), 36, 176300, card=2),
            npu(5, "0000:97:00.0", "Ascend910", (3186, CARD), 37, None, card=2, chip=1),
            npu(6, "0000:91:00.0", "Ascend910", (3412, CARD), 36, 177900, card=3),
            npu(7, "0000:93:00.0", "Ascend910", (3185, CARD), 36, None, card=3, chip=1),
            npu(8, "0000:8d:00.0", "Ascend910", (3402, CARD), 37, 180900, card=4),
            npu(9, "0000:8f:00.0", "Ascend910", (3198, CARD), 36, None, card=4, chip=1),
            npu(10, "0000:89:00.0", "Ascend910", (3398, CARD), 37, 189100, card=5),
            npu(11, "0000:8b:00.0", "Ascend910", (3201, CARD), 36, None, card=5, chip=1),
            npu(12, "0000:85:00.0", "Ascend910", (3400, CARD), 38, 183000, card=6),
            npu(13, "0000:87:00.0", "Ascend910", (3200, CARD), 37, None, card=6, chip=1),
            npu(14, "0000:81:00.0", "Ascend910", (3413, CARD), 37, 186200, card=7),
            npu(15, "0000:83:00.0", "Ascend910", (3188, CARD), 37, None, card=7, chip=1),
        ],
    ),
    "5": (
        "25.5.1",
        [
            npu(0, "0000:81:00.0", "310P3", (1848, 21525), 37, None, card=4),
            npu(1, "0000:85:00.0", "310P3", (1849, 21525), 40, None, card=5),
        ],
    ),
    "6": ("22.0.3", [npu(0, "0000:81:00.0", "910A", (861, 21534), 43, None, card=4)]),
    "7": ("22.0.4", [npu(0, "0000:86:00.0", "310P3", (1807, 21527), 47, None, card=2144)]),
    "8": ("22.0.2", [npu(0, "0000:86:00.0", "310P3", (4060, 21534), 53, 16300)]),
    "9": ("22.0.2", [npu(0, "0000:86:00.0", "310P3", (994, 21534), 42, 16200)]),
    "10": (
        "24.1.rc1.b030",
        [
            npu(0, "0000:c1:00.0", "910B3", (3318, CARD), 43, 101800),
            npu(1, "0000:c2:00.0", "910B3", (3314, CARD), 39, 92000),
            npu(2, "0000:81:00.0", "910B3", (3314, CARD), 40, 102000),
            npu(3, "0000:82:00.0", "910B3", (3314, CARD), 40, 99800),
            npu(4, "0000:01:00.0", "910B3", (3314, CARD), 45, 98600),
            npu(5, "0000:02:00.0", "910B3", (3314, CARD), 44, 99700),
            npu(6, "0000:41:00.0", "910B3", (3314, CARD), 45, 103800),
            npu(7, "0000:42:00.0", "910B3", (3315, CARD), 44, 98200),
        ],
    ),
}


@pytest.mark.parametrize("number", INFO)
def test_the_table_gives_its_devices_and_no_finding(number):
    driver, devices = INFO[number]
    reading = read(f"huawei/npu-smi-info-{number}.txt")
    assert (reading.driver, [told(device) for device in reading.devices]) == (driver, devices)
    assert reading.findings == ()


def test_processes_are_given_to_the_devices_of_their_cards():
    reading = read("huawei/npu-smi-info-3.txt")
    assert [(p.pid, p.index, p.name, p.memory_bytes) for p in reading.processes] == [
        (78617, 12, "python", 49385 * MIB),
        (79095, 13, "python", 49379 * MIB),
        (79096, 14, "python", 49379 * MIB),
        (79097, 15, "python", 49379 * MIB),
    ]


def test_a_library_that_rewrites_the_table_is_named():
    reading = read("huawei/npu-smi-info-hami-1.txt")
    facts = npu(0, "0000:81:00.0", "310P3", (0, 8192), 38, None, card=32768)
    assert ([told(device) for device in reading.devices], codes(reading)) == ([facts], ["masked"])


def test_memory_of_a_device_is_its_hbm_where_it_has_some():
    text = text_of("huawei/npu-smi-info-1.txt").replace("0    / 0          2922", "1200 / 15137      2922")
    assert [device.memory_bytes for device in huawei_tools.parse_info(text).devices] == [32768 * MIB]


def test_a_number_beside_the_chip_of_unknown_meaning_is_no_index():
    text = text_of("huawei/npu-smi-info-5.txt").replace("Chip    Device", "Chip    Future")
    reading = huawei_tools.parse_info(text)
    assert [(device.index, device.card) for device in reading.devices] == [(None, 4), (None, 5)]
    assert codes(reading) == ["masked", "masked"]


@pytest.mark.parametrize(
    ("health", "code"),
    [("Warning", "degraded"), ("Alarm", "hardware_fault"), ("Critical", "hardware_fault"), ("正常", "degraded")],
)
def test_health_other_than_ok_is_a_finding_of_the_device(health, code):
    text = text_of("huawei/npu-smi-info-5.txt").replace("OK      ", health.ljust(8), 1)
    reading = huawei_tools.parse_info(text)
    finding = Finding(code=code, text=f"health: {health}", index=0, pci="0000:81:00.0")
    assert (len(reading.devices), reading.findings) == (2, (finding,))


@pytest.mark.parametrize(
    ("number", "code"),
    [(-8005, "no_driver"), (-8002, "no_permission"), (-8006, "tool_timeout"), (-8008, "tool_failed")],
)
def test_an_error_is_a_finding_by_its_number(number, code):
    text = text_of("huawei/npu-smi-error-1.txt").replace("-8005", str(number))
    (finding,) = huawei_tools.parse_info(text).findings
    assert (finding.code, finding.number) == (code, number)


def test_a_card_that_only_the_processes_name_was_cut_from_the_table():
    lines = text_of("huawei/npu-smi-info-3.txt").splitlines(keepends=True)
    reading = huawei_tools.parse_info("".join(lines[:6] + lines[9:]))
    assert ([device.index for device in reading.devices], codes(reading)) == ([13, 14, 15], ["cut"])


def test_a_list_names_the_cards_it_shows_and_that_it_was_cut():
    reading = read("huawei/npu-smi-info-l-1.txt")
    cards = [{"index": 0, "card": 0, "chip": 0}, {"index": 1, "card": 1, "chip": 0}]
    finding = Finding(code="cut", text="2 of 8 NPUs are listed")
    assert ([told(device) for device in reading.devices], reading.findings) == (cards, (finding,))


def test_the_mapping_gives_chips_with_logic_ids_and_no_controllers():
    whole, cut = read("huawei/npu-smi-info-m-1.txt"), read("huawei/npu-smi-info-m-2.txt")
    assert [told(d) for d in whole.devices] == [{"index": i, "card": i, "chip": 0, "model": "910A"} for i in range(8)]
    assert [told(d) for d in cut.devices] == [{"index": 0, "card": 0, "chip": 0, "model": "910B3"}]
    assert whole.findings == cut.findings == ()


def test_a_gap_in_the_logic_ids_is_a_finding():
    lines = text_of("huawei/npu-smi-info-m-1.txt").splitlines(keepends=True)
    reading = huawei_tools.parse_mapping("".join(lines[:3] + lines[4:]))
    assert ([device.index for device in reading.devices], codes(reading)) == ([0, 1, 3, 4, 5, 6, 7], ["cut"])


def test_the_topology_gives_each_link_once():
    reading = read("huawei/npu-smi-info-t-topo-1.txt")
    pairs = tuple(LinkFacts(one, other, "nvlink") for one in range(8) for other in range(one + 1, 8))
    assert ([device.index for device in reading.devices], reading.links) == (list(range(8)), pairs)
    assert reading.findings == ()


def test_a_link_that_two_rows_name_differently_is_none():
    text = text_of("huawei/npu-smi-info-t-topo-1.txt").replace("X          HCCS", "X          SYS ", 1)
    reading = huawei_tools.parse_topology(text)
    assert (len(reading.links), codes(reading)) == (27, ["unknown_format"])
    assert not any((link.device, link.peer) == (0, 1) for link in reading.links)


def test_lspci_gives_addresses_and_models():
    addresses = ("3d", "3e", "60", "61", "b1", "b2", "da", "db")
    reading = read("huawei/lspci-910a-1.txt")
    assert [told(d) for d in reading.devices] == [{"pci": f"0000:{bus}:00.0", "model": "910A"} for bus in addresses]
    assert reading.findings == ()


DETAILS = {
    "npu-smi-info-t-board-1.txt": ("", {"card": 0, "chip": 0, "pci": "0000:61:00.0", "model": "910A"}),
    "npu-smi-info-t-board-2.txt": ("23.0.5", {"card": 0, "pci": "0000:61:00.0"}),
    "npu-smi-info-t-memory-1.txt": ("", {"memory_bytes": 65536 * MIB}),
    "npu-smi-info-t-usages-1.txt": (
        "",
        {"index": 0, "card": 0, "chip": 0, "memory_bytes": 31129 * MIB, "use_milli": 0},
    ),
    "npu-smi-details-1.csv": ("", {"index": 0, "power_mw": 156600, "clock_mhz": 1000, "temperature_c": 60}),
}


@pytest.mark.parametrize("name", DETAILS)
def test_outputs_about_one_device_give_its_facts(name):
    reading = read(f"huawei/{name}")
    assert (reading.driver, [told(d) for d in reading.devices], reading.findings) == (*_one(DETAILS[name]), ())


def _one(expected: tuple[str, dict[str, object]]) -> tuple[str, list[dict[str, object]]]:
    return expected[0], [expected[1]]


def test_firmware_that_does_not_fit_the_driver_is_a_finding():
    text = text_of("huawei/npu-smi-info-t-board-2.txt").replace(": OK", ": NOK")
    assert codes(huawei_details.parse_board(text)) == ["driver_mismatch"]


def test_memory_without_the_size_of_its_hbm_is_not_that_of_its_ddr():
    lines = text_of("huawei/npu-smi-info-t-usages-1.txt").splitlines(keepends=True)
    reading = huawei_details.parse_usages("".join(line for line in lines if "HBM Capacity" not in line))
    assert ([device.memory_bytes for device in reading.devices], codes(reading)) == ([None], ["masked"])


def test_a_line_behind_the_last_chip_leaves_no_chip():
    lines = text_of("huawei/npu-smi-info-t-usages-1.txt").splitlines(keepends=True)
    reading = huawei_details.parse_usages("".join(lines[:7] + lines[8:] + lines[7:8]))
    assert (reading.devices, codes(reading)) == ((), ["cut"])


def test_processes_of_one_device():
    reading = read("huawei/npu-smi-info-t-proc-mem-1.txt")
    expected = {"pid": 207795, "name": "VLLMEngineCor", "memory_bytes": 55436 * MIB}
    assert ([told(process) for process in reading.processes], reading.findings) == ([expected], ())


def test_links_that_came_up_again_and_networks_that_fail_are_findings():
    assert read("huawei/hccn-tool-link-stat-1.txt").findings == (
        Finding(code="link_fault", text="the link is up; it came up 2 times", index=0),
    )
    assert read("huawei/hccn-tool-net-health-1.txt").findings == (
        Finding(code="link_fault", text="network: Socket failed"),
    )


def test_a_link_that_came_up_once_and_a_healthy_network_are_none():
    came_up = "[devid 3]    Tue Aug  1 14:43:40 2022    LINK UP\n"
    link = f"[devid 3]link up count       : 1\n[devid 3]link change records :\n{came_up}"
    assert huawei_details.parse_link(link).findings == ()
    assert huawei_details.parse_network("net health status: Success\n").findings == ()


def test_an_optical_module_beyond_its_thresholds_is_a_finding_for_each_value():
    reading = read("huawei/hccn-tool-optical-1.txt")
    assert {finding.code for finding in reading.findings} == {"link_fault"}
    assert [finding.text for finding in reading.findings] == [
        "optical module: not present",
        "Tx Power0 4.4035 mW is above 3.5481 mW",
        "Rx Power1 0.0054 mW is below 0.1445 mW",
        "Rx Los Flag 0xff",
        "Rx LoL Flag 0xff",
    ]
