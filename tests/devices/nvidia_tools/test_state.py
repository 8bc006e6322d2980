"""The whole state of devices (`-q -x` and `-q`): expected facts were written down from the recordings."""

import re

import pytest

from penstock.devices.nvidia_tools.text_log import text_log
from penstock.devices.nvidia_tools.xml_log import xml_log
from tests.devices.nvidia_tools.recorded import codes, identity, parts, pids, read, text

# driver, address, model, memory in total and used (MiB), use (thousandths), temperature, power (mW), clock (MHz)
XML = {
    1: ("535.54.03", "0000:01:00.0", "NVIDIA A100-SXM4-80GB", 81920, 50, None, 27, 67030, 1275),
    2: ("515.105.01", "0000:00:1e.0", "NVIDIA A10G", 23028, 22, 0, 17, 25580, 210),
    3: ("", "0000:01:00.0", "GeForce GTX 1070 Ti", 4096, 42, 0, 39, None, 135),
    4: ("418.43", "0000:43:00.0", "Graphics Device", 5912, 0, 0, 40, 8930, 300),
    5: ("525.125.06", "0000:17:00.0", "Quadro P2000", 5120, 1, 0, 34, 4610, 139),
    6: ("418.43", "0000:43:00.0", "Quadro P400", 1998, 0, 0, 33, None, 139),
    7: ("570.124.04", "0000:2d:00.0", "NVIDIA GeForce RTX 3060", 12288, 116, 0, 42, 11630, 210),
    8: ("536.40", "0000:04:00.0", "NVIDIA GeForce RTX 3080", 10240, 1128, 0, 31, 22780, 210),
    9: ("595.58.03", "0000:0c:00.0", "NVIDIA GeForce RTX 3080", 10240, 9184, 650, 27, 142330, 1950),
    10: ("525.147.05", "0000:00:10.0", "NVIDIA GeForce RTX 3090", 24576, 1, 0, 37, 27230, 0),
    11: ("595.84", "0000:06:00.0", "NVIDIA RTX 4000 SFF Ada Generation", 20475, 3534, 0, 38, 8440, 210),
    12: ("515.105.01", "0000:00:1e.0", "Tesla T4", 15360, 1032, 0, 40, 26780, 585),
    13: ("510.47.03", "0000:00:04.0", "NVIDIA A100-SXM4-40GB", 40960, 38, None, 36, 66920, 1410),
    14: ("516.59", "0000:0a:00.0", "NVIDIA GeForce RTX 2080", 8192, 862, 20, 29, 14500, 193),
    15: ("515.65.01", "0000:01:00.0", "NVIDIA GeForce RTX 3060 Laptop GPU", 6144, 5, 0, 45, 8700, 210),
    16: ("535.86.05", "0000:84:00.0", "NVIDIA GeForce RTX 4090", 24564, 2, 0, 40, 26840, 210),
    17: ("510.47.03", "0000:00:04.0", "Tesla P100-PCIE-16GB", 16384, 0, 0, 38, 26160, 405),
}
XML_PROCESSES = {2: 1, 8: 5, 11: 4, 12: 2, 14: 26, 15: 1}


@pytest.mark.parametrize("number", XML)
def test_the_xml_tells_each_device_and_what_it_does(number):
    driver, pci, model, total, used, use, temperature, power, clock = XML[number]
    reading = read(f"q-x-{number}.xml")
    (device,) = reading.devices
    assert reading.driver == driver
    assert identity(device) == (None, pci, model, total, used)
    assert device.uuid.startswith("GPU-")
    assert (device.use_milli, device.temperature_c, device.power_mw, device.clock_mhz) == (
        use,
        temperature,
        power,
        clock,
    )
    assert len(reading.processes) == XML_PROCESSES.get(number, 0)
    assert codes(reading) == (["cut"] if number == 1 else [])


def test_the_xml_tells_the_parts_apart_from_the_device():
    (four,) = read("q-x-1.xml").devices
    (two,) = read("q-x-13.xml").devices
    assert four.partitioned
    assert parts(four) == [(n, 0, 19968) for n in (3, 4, 5, 6)]
    assert two.partitioned
    assert parts(two) == [(1, 0, 19968), (2, 0, 19968)]


def test_the_xml_tells_processes_and_what_it_does_not_know_of_them():
    reading = read("q-x-12.xml")
    assert [(p.pid, p.name, p.memory_bytes) for p in reading.processes] == [
        (675, "/usr/lib/xorg/Xorg", 22 * 2**20),
        (5762, "python", 1005 * 2**20),
    ]
    assert {p.uuid for p in reading.processes} == {"GPU-d37e67a5-91dd-3774-a5cb-99096249601a"}
    windows = read("q-x-14.xml")
    assert pids(windows)[:3] == [7724, 10808, 11556]
    assert windows.processes[1].name == ""
    assert all(p.memory_bytes is None for p in windows.processes)


def test_errors_of_the_whole_life_of_a_device_are_not_those_of_now():
    (device,) = read("q-x-17.xml").devices
    assert (device.ecc_corrected, device.ecc_uncorrected, device.serial) == (0, 0, "0308626217269")


ILL = [
    ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", "row_remap_pending"),
    ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", "row_remap_failed"),
    ("<dram_uncorrectable>0<", "<dram_uncorrectable>3<", "ecc_uncorrected"),
    ("<gpu_temp>17 C<", "<gpu_temp>GPU is lost<", "lost"),
    ("<product_name>NVIDIA A10G<", "<product_name>Unknown Error<", "unhealthy"),
    ("<power_draw>25.58 W<", "<power_draw>Unknown Error<", "tool_failed"),
    ("<gpu_util>0 %<", "<gpu_util>[GPU requires reset]<", "reset_required"),
    ("reason_hw_thermal_slowdown>Not Active<", "reason_hw_thermal_slowdown>Active<", "too_hot"),
    ("reason_hw_power_brake_slowdown>Not Active<", "reason_hw_power_brake_slowdown>Active<", "throttled"),
    ("reason_sw_power_cap>Not Active<", "reason_sw_power_cap>Active<", None),
]


@pytest.mark.parametrize(("good", "bad", "code"), ILL)
def test_each_sign_of_illness_is_a_finding_of_its_device(good, bad, code):
    healthy = text("q-x-2.xml")
    assert good in healthy
    reading = xml_log(healthy.replace(good, bad, 1))
    assert codes(reading) == ([code] if code else [])
    assert all(finding.uuid == reading.devices[0].uuid != "" for finding in reading.findings)


@pytest.mark.parametrize(
    ("element", "code"),
    [
        ("<gpu_recovery_action>None</gpu_recovery_action>", None),
        ("<gpu_recovery_action>GPU Reset</gpu_recovery_action>", "reset_required"),
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", "fabric_fault"),
        ("<gpu_recovery_action>Sing</gpu_recovery_action>", "unknown_format"),
        ("<fabric><state>Completed</state><status>Success</status></fabric>", None),
        ("<fabric><state>In Progress</state><status>N/A</status></fabric>", "fabric_fault"),
        ("<fabric><state>Completed</state><status>Failure</status></fabric>", "fabric_fault"),
        ("<mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>", "mig_pending"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "reset_required"),
        ("<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>", "page_retirement_pending"),
        ("<ecc_errors><unrepairable_memory>Yes</unrepairable_memory></ecc_errors>", "hardware_fault"),
        ("<uuid>GPU-</uuid>", "masked"),
    ],
)
def test_what_newer_drivers_tell_of_health_is_read(element, code):
    log = f'<nvidia_smi_log><gpu id="00000000:09:00.0">{element}</gpu></nvidia_smi_log>\n'
    assert codes(xml_log(log)) == ([code] if code else [])


def test_memory_that_does_not_add_up_is_not_told():
    reading = xml_log(text("q-x-2.xml").replace("<total>23028 MiB<", "<total>32768 MiB<", 1))
    (device,) = reading.devices
    assert (device.memory_bytes, device.memory_used_bytes, codes(reading)) == (None, None, ["unreadable"])


def test_used_memory_of_a_device_that_needs_a_reset_is_not_free_memory():
    log = text("q-x-2.xml").replace("<gpu_util>0 %<", "<gpu_util>[GPU requires reset]<", 1)
    assert xml_log(log).devices[0].memory_used_bytes is None


# what -q tells: driver, devices, findings
TEXT = {
    "q-1": ("590.48.01", [("0000:00:09.0", "NVIDIA H100 80GB HBM3", 81559, 19818)], ["masked"]),
    "q-2": ("610.57.04", [("0000:0c:00.0", "NVIDIA GeForce RTX 2080 SUPER", 8192, 211)], ["masked"]),
    "q-3": ("610.62", [("0000:0c:00.0", "NVIDIA GeForce RTX 2080 SUPER", 8192, 797)], ["masked"]),
    "q-4": ("590.48.01", [("0000:83:00.0", "NVIDIA H200", 143771, 0)], ["masked"]),
    "q-5": (
        "460.32.03",
        [(f"000{domain}:00:00.0", "A100-SXM4-40GB", 40536, 0) for domain in "1234bcde"],
        [],
    ),
    "q-ecc-1": ("550.90.07", [("0000:52:00.0", "", None, None)], ["unhealthy", "row_remap_pending", "cut"]),
    "q-ecc-2": (
        "510.73.08",
        [("0000:10:1c.0", "NVIDIA A100-SXM4-80GB", None, None)],
        ["unreadable", "row_remap_pending", "cut"],
    ),
    "q-mig-1": ("590.48.01", [("0000:83:00.0", "NVIDIA H200", 143771, 16959)], ["masked"]),
}


@pytest.mark.parametrize("name", TEXT)
def test_the_text_tells_each_device_and_what_is_wrong(name):
    driver, devices, findings = TEXT[name]
    reading = read(f"{name}.txt")
    assert reading.driver == driver
    assert [identity(device)[1:] for device in reading.devices] == devices
    assert codes(reading) == findings


def test_the_text_tells_parts_processes_and_samples():
    reading = read("q-mig-1.txt")
    (device,) = reading.devices
    assert parts(device) == [(2, 0, 71424), (2, 1, 71424), (3, 0, 33280), (9, 0, 16384), (10, 0, 16384)]
    assert [(p.pid, p.instance, p.name) for p in reading.processes] == [
        (12249, 2, "/data/tools/memhog"),
        (12250, 2, "/data/tools/memhog"),
        (12267, 2, "./gpu_burn"),
    ]
    assert (device.temperature_c, device.power_mw, device.power_limit_mw, device.clock_mhz) == (
        36,
        292140,
        700000,
        1980,
    )
    assert (device.use_milli, device.partitioned, device.ecc_uncorrected) == (None, True, 0)


def test_the_text_of_a_section_tells_its_errors():
    assert read("q-ecc-2.txt").devices[0].ecc_corrected == 177
    assert len(read("q-3.txt").processes) == 19
    assert read("q-2.txt").devices[0].power_limit_mw == 250000


def test_the_text_without_a_heading_leaves_memory_open_rather_than_wrong():
    whole = text("q-1.txt")
    mixed = text_log(whole.replace("    BAR1 Memory Usage\n", ""))
    assert (mixed.devices, codes(mixed)) == ((), ["unreadable"])
    (device,) = text_log(whole.replace("    FB Memory Usage\n", "")).devices
    assert device.memory_bytes is None


def test_two_devices_in_one_block_of_text_make_no_mixture():
    reading = text_log(text("q-5.txt").replace("GPU 00000002:00:00.0\n", ""))
    assert [device.pci for device in reading.devices] == [f"000{domain}:00:00.0" for domain in "34bcde"]
    assert codes(reading) == ["unreadable", "cut"]


def test_the_text_without_a_device_says_why():
    head = text("q-1.txt").split("GPU 0000")[0]
    assert codes(text_log(head)) == ["cut"]
    assert codes(text_log(head.replace(": 1\n", ": 0\n"))) == ["no_devices"]
    assert codes(text_log(head.split("Attached")[0])) == ["unknown_format"]


def test_the_text_with_headings_exchanged_tells_no_memory():
    whole = text("q-1.txt")
    exchanged = whole.replace(" FB Mem", " XX Mem").replace("BAR1 Mem", "FB Mem").replace(" XX Mem", " BAR1 Mem")
    (device,) = text_log(exchanged).devices
    assert (device.model, device.memory_bytes) == ("NVIDIA H100 80GB HBM3", None)
    (part,) = text_log(re.sub(r"(?m)^ +Free +: 61263 MiB\n", "", whole)).devices
    assert part.memory_bytes is None


def test_sentences_around_the_xml_are_findings_and_cost_no_device():
    lost = text("error-lost-3.txt")
    warning = "WARNING: infoROM is corrupted at gpu 0000:00:1E.0\n"
    reading = xml_log(f"{lost}{text('q-x-2.xml')}{warning}")
    assert [(f.code, f.pci) for f in reading.findings] == [
        ("lost", "0000:91:00.0"),
        ("inforom_corrupted", "0000:00:1e.0"),
    ]
    assert [device.pci for device in reading.devices] == ["0000:00:1e.0"]
