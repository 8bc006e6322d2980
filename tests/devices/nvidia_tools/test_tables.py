"""CSV and monitors, which serve as samples: expected facts were written down from the recordings."""

import pytest

from penstock.devices.nvidia_tools.csv_tables import AccountedProcess, accounted_apps, compute_apps, query_gpu
from penstock.devices.nvidia_tools.csv_tables import retired_pages as read_retired_pages
from penstock.devices.nvidia_tools.monitors import dmon, pmon
from tests.devices.nvidia_tools.recorded import MIB, MIG_COLUMNS, codes, identity, mib, read, text

SUPER = "NVIDIA GeForce RTX 2080 SUPER"
# driver, index, address, model, memory in total and used (MiB), use (thousandths), temperature, power (mW), clock (MHz)
QUERIES = {
    1: ("590.48.01", 0, "0000:00:09.0", "NVIDIA H100 80GB HBM3", 81559, 59, None, 42, 70720, 345),
    2: ("590.48.01", 0, "0000:83:00.0", "NVIDIA H200", 143771, 32362, 1000, 52, 626260, 1980),
    3: ("591.86", 0, "0000:0c:00.0", SUPER, 8192, 1296, 70, 45, 97430, 2055),
    4: ("610.62", 0, "0000:0c:00.0", SUPER, 8192, 1366, 70, 44, 97990, 2040),
    5: ("595.80", 0, "0000:01:00.0", "NVIDIA L40S", 46068, 1235, 90, 54, 112380, 2520),
    6: ("610.57.04", 0, "0000:0c:00.0", SUPER, 8192, 815, 80, 38, 98140, 2070),
    8: ("", 0, "", "", None, 80620, 1000, 74, None, None),
}
ROW = "0, GPU-ad466f2f-575d-d949-35e0-9a7d912d974e, 00000000:01:00.0, 100 MiB, 20 MiB, 80 MiB, 7 %, 40\n"
HEADING = (
    "index, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], "
    "temperature.gpu\n"
)


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_tells_the_sample_of_a_device(number):
    driver, *facts, use, temperature, power, clock = QUERIES[number]
    reading = read(f"query-gpu-{number}.csv")
    (device,) = reading.devices
    assert reading.driver == driver
    assert identity(device) == tuple(facts)
    assert (device.use_milli, device.temperature_c, device.power_mw, device.clock_mhz) == (
        use,
        temperature,
        power,
        clock,
    )
    assert codes(reading) == ([] if number == 8 else ["masked"])


def test_a_query_tells_errors_and_mig_where_they_are_asked_for():
    (h100,) = read("query-gpu-1.csv").devices
    (geforce,) = read("query-gpu-3.csv").devices
    assert (h100.ecc_uncorrected, h100.partitioned, h100.power_limit_mw) == (0, True, 700000)
    assert (geforce.ecc_uncorrected, geforce.partitioned, geforce.power_limit_mw) == (None, None, 250000)


def test_a_query_without_units_takes_them_from_its_heading():
    reading = read("query-gpu-7.csv")
    assert len(reading.devices) == 16
    assert not reading.findings
    busy = reading.devices[1]
    assert busy.uuid == "GPU-3410aa41-502b-5cf1-d8c4-58dc1c22fbc9"
    assert (mib(busy.memory_used_bytes), busy.memory_bytes) == (11149, None)
    assert (busy.use_milli, busy.temperature_c, busy.power_mw) == (980, 62, 383550)


def test_a_device_that_needs_a_reset_has_no_free_memory():
    reading = read("query-gpu-reset-1.csv")
    assert [identity(device) for device in reading.devices] == [(0, "", "", None, None)]
    assert [(finding.code, finding.effect, finding.index) for finding in reading.findings] == [
        ("reset_required", "close", 0)
    ]


def test_a_query_without_a_heading_is_read_by_the_columns_that_were_asked_for():
    reading = read("query-mig-1.csv")
    assert [(device.model, device.pci, device.partitioned) for device in reading.devices] == [
        ("NVIDIA A100-PCIE-40GB", "0000:04:00.0", True),
        ("NVIDIA A2", "0000:08:00.0", None),
    ]
    assert codes(query_gpu(text("query-mig-1.csv"))) == ["unreadable"]
    assert codes(query_gpu(text("query-mig-1.csv"), columns=MIG_COLUMNS[:3])) == ["unreadable"]
    assert not query_gpu(text("query-mig-1.csv"), columns=MIG_COLUMNS[::-1]).devices


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (ROW, None),
        (ROW.replace("100 MiB", "[N/A]"), None),
        (ROW.replace("40", "[Unknown Error]"), "tool_failed"),
        (ROW.replace("7 %", "[Unknown Error]"), "unhealthy"),
        (ROW.replace("7 %", "[GPU is lost]"), "lost"),
        (ROW.replace("20 MiB", "[Insufficient Permissions]"), "no_permission"),
        (ROW.replace("d974e", "d97"), "masked"),
        (ROW.replace("80 MiB", "8 MiB").replace("100 MiB", "10000 MiB"), "unreadable"),
        (ROW.replace(", 40", ""), "unreadable"),
        (ROW.replace("40", "40, 41"), "unreadable"),
        (ROW.replace("7 %", "GPU-7"), "unreadable"),
        (ROW.removesuffix("\n"), "cut"),
        (ROW + ROW, "duplicate"),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n", "lost"),
        ("Das Gerät antwortet nicht\n", "unreadable"),
    ],
)
def test_a_row_that_is_ill_or_not_whole_is_a_finding(row, code):
    assert codes(query_gpu(HEADING + row))[:1] == ([code] if code else [])


def test_a_row_that_names_no_device_is_none():
    row = "[N/A], [N/A], [N/A], 100 MiB, 20 MiB, 80 MiB, 7 %, 40\n"
    reading = query_gpu(HEADING + row)
    assert (reading.devices, codes(reading)) == ((), ["masked"])


def test_columns_that_are_not_known_are_passed_over():
    reading = query_gpu(HEADING.replace("\n", ", flux [T]\n") + ROW.replace("\n", ", 12 T\n"))
    assert codes(reading) == []
    assert mib(reading.devices[0].memory_bytes) == 100


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, [(12249, 2194), (12250, 1170), (12267, 13526)]),
        (3, [(11327, 2566), (11328, 1542), (11345, 15690)]),
        (4, []),
        (5, [(1, 8032)]),
    ],
)
def test_processes_of_a_query_have_their_memory(number, expected):
    reading = read(f"compute-apps-{number}.csv")
    assert [(process.pid, mib(process.memory_bytes)) for process in reading.processes] == expected
    assert codes(reading) == (["masked"] if number in (1, 3) else [])


def test_processes_under_windows_have_no_memory():
    reading = read("compute-apps-2.csv")
    assert len(reading.processes) == 12
    assert {process.memory_bytes for process in reading.processes} == {None}
    assert {process.pci for process in reading.processes} == {"0000:0c:00.0"}
    assert reading.processes[2].name == "C:\\Windows\\System32\\dwm.exe"


def test_the_name_of_a_process_may_hold_commas():
    row = "GPU-ad466f2f-575d-d949-35e0-9a7d912d974e, 7, train, with, commas, 8 MiB\n"
    reading = compute_apps("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + row)
    assert [(p.pid, p.name, mib(p.memory_bytes)) for p in reading.processes] == [(7, "train, with, commas", 8)]


def test_accounted_processes_have_ended_and_hold_no_device():
    counted, reading = accounted_apps(text("accounted-apps-1.csv"))
    assert [(each.pid, each.use_milli, each.time_ms) for each in counted] == [
        (15727, 710, 5270),
        (17439, 650, 5096),
        (18679, 990, 153712),
        (20037, 20, 0),
        (20038, 40, 0),
    ]
    assert counted[3] == AccountedProcess(
        pid=20037, pci="0000:01:00.0", use_milli=20, memory_max_bytes=538 * MIB, time_ms=0
    )
    assert reading.processes == ()
    assert codes(reading) == ["masked"]


def test_rows_without_an_address_are_no_retired_pages():
    assert codes(read("retired-pages-1.csv")) == ["masked"]
    ill = text("retired-pages-1.csv").replace("[N/A], [N/A], Double", "0x00000000000a1b2c, 2026/07/01 01:02:03, Double")
    reading = read_retired_pages(ill)
    assert codes(reading) == ["masked", "pages_retired"]
    assert reading.findings[1].pci == "0000:00:09.0"


def test_the_monitor_of_devices_tells_the_last_sample():
    (busy,) = read("dmon-1.txt").devices
    assert (busy.index, busy.power_mw, busy.temperature_c, busy.use_milli, busy.clock_mhz) == (
        0,
        630000,
        54,
        1000,
        1980,
    )
    (divided,) = read("dmon-mig-1.txt").devices
    assert (divided.power_mw, divided.temperature_c, divided.use_milli) == (439000, 56, None)
    assert not read("dmon-1.txt").findings


def test_the_monitor_of_processes_tells_each_once():
    reading = read("pmon-1.txt")
    assert [(p.pid, p.index, p.name) for p in reading.processes] == [
        (12249, 0, "memhog"),
        (12250, 0, "memhog"),
        (12267, 0, "gpu_burn"),
    ]
    assert not reading.findings
    idle = "".join(text("pmon-1.txt").splitlines(keepends=True)[:2])
    nobody = pmon(idle + "    0          -     -      -      -      -      -      -      -    -              \n")
    assert (nobody.processes, nobody.findings) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "findings"),
    [
        ("# gpu    pwr", "# gpu    flux", []),
        ("# Idx      W ", "# Idx     kW ", ["unreadable"]),
        ("# gpu", "# card", ["unreadable"]),
        ("    0    630     53     41    100", "    0    630     53     41", ["unreadable"]),
        ("    0    630     53     41    100", "    0    630     53     41   busy", ["unreadable"]),
    ],
)
def test_a_monitor_with_other_units_or_rows_that_are_not_whole_is_a_finding(old, new, findings):
    changed = text("dmon-1.txt").replace(old, new, 1)
    assert changed != text("dmon-1.txt")
    assert codes(dmon(changed)) == findings
