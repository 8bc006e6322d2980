"""The plain table in all its widths: expected facts were written down from the recordings."""

import pytest

from penstock.devices.nvidia_tools.plain import plain
from tests.devices.nvidia_tools.recorded import codes, identity, mib, parts, pids, read, text

A30 = ["01", "22", "41", "61", "81", "a1", "c1", "e1"]
A30_USED = [0, 16096, 14992, 23025, 0, 0, 0, 0]
PRO = "NVIDIA RTX PRO 6000 Blac..."
SUPER = "NVIDIA GeForce RTX 2080 ..."
# driver, devices (index, address, model, memory in total and used in MiB), findings
TABLES = {
    "1": ("590.48.01", [(0, "0000:00:09.0", "NVIDIA H100 80GB HBM3", 81559, 19818)], []),
    "2": ("610.62", [(0, "0000:0c:00.0", SUPER, 8192, 797)], []),
    "3": ("610.57.04", [(0, "0000:0c:00.0", SUPER, 8192, 815)], []),
    "4": ("595.80", [(0, "0000:01:00.0", "NVIDIA L40S", 46068, 1235)], []),
    "5": ("550.90.12", [(0, "0000:01:00.0", "NVIDIA A100 80GB PCIe", 81920, 437)], ["cut", "unreadable"]),
    "6": (
        "460.32.03",
        [(n, f"000{n + 1}:00:00.0", "Tesla V100-SXM2...", 32510, 0) for n in range(8)],
        ["inforom_corrupted"],
    ),
    "7": ("535.86.10", [(0, "0000:00:1e.0", "Tesla T4", 15109, 0)], []),
    "8": (
        "590.48.01",
        [(n, f"00{domain}:01:00.0", "NVIDIA GB200", 189471, 0) for n, domain in enumerate(("08", "09", "18", "19"))],
        ["unreadable"],
    ),
    "9": (
        "535.129.03",
        [(n, f"00{domain}:01:00.0", "GH200 120GB", 97871, 37) for n, domain in enumerate(("09", "19", "29", "39"))],
        [],
    ),
    "err-1": (
        "",
        [(4, "0000:8c:00.0", "NVIDIA A100-SXM...", 81920, 0), (5, "0000:91:00.0", "", 81920, 0)],
        ["unhealthy", "cut", "cut"],
    ),
    "err-2": (
        "525.85.12",
        [
            (n, f"0000:{bus}:00.0", "" if n == 3 else "NVIDIA A30", 24576, used)
            for n, (bus, used) in enumerate(zip(A30, A30_USED, strict=True))
        ],
        ["unhealthy", "cut"],
    ),
    "hami-1": ("550.54.15", [(0, "0000:3e:00.0", "Tesla V100-PCIE-32GB", 10240, 0)], ["masked"]),
    "hami-2": ("610.43.02", [(0, "0000:05:00.0", PRO, 8000, 0)], ["cut"]),
    "jetson-1": ("540.4.0", [(0, "", "Orin (nvgpu)", None, None)], ["cut"]),
    "lost-1": (
        "610.57.04",
        [
            (0, "0000:16:00.0", PRO, 97887, 88450),
            (2, "0000:ac:00.0", PRO, 97887, 88450),
            (3, "0000:ca:00.0", PRO, 97887, 10),
        ],
        ["lost"],
    ),
    "mig-1": ("590.48.01", [(0, "0000:00:09.0", "NVIDIA H100 80GB HBM3", 81559, 59)], []),
    "mig-2": ("590.48.01", [(0, "0000:83:00.0", "NVIDIA H200", 143771, 55)], []),
    "mig-3": ("590.48.01", [(0, "0000:83:00.0", "NVIDIA H200", 143771, 16959)], []),
    "mig-4": ("590.48.01", [(0, "0000:00:09.0", "NVIDIA H100 80GB HBM3", 81559, 11125)], []),
    "mig-5": ("535.183.01", [(0, "0000:0b:00.0", "NVIDIA A30", 24576, 50)], []),
    "mig-6": ("560.35.03", [(0, "0001:00:00.0", "NVIDIA H100 NVL", 95830, 64)], []),
    "vgpu-1": ("535.129.03", [(0, "0000:00:06.0", "GRID A100X-8C", 8192, 1)], ["cut"]),
    "vgpu-2": ("510.47.03", [(0, "0000:02:01.0", "GRID A100-4C", 4096, 0)], []),
    "vgpu-mig-1": ("510.73.08", [(0, "0000:02:00.0", "GRID A100-2-10C", None, None)], ["cut"]),
}
H200 = [(2, 0, 71424), (2, 1, 71424), (3, 0, 33280), (9, 0, 16384), (10, 0, 16384)]
H100 = [(2, 0, 40448), (3, 0, 20096), (9, 0, 9984), (10, 0, 9984)]
PARTS = {
    "mig-1": H100,
    "mig-2": H200,
    "mig-3": H200,
    "mig-4": H100,
    "mig-5": [(2, 0, 11968), (3, 0, 5952), (4, 0, 5952)],
    "mig-6": [(1, 0, 47488), (5, 0, 22144), (13, 0, 11008)],
    "vgpu-mig-1": [(0, 0, 9195)],
}
PROCESSES = {
    "1": [11327, 11328, 11345],
    "3": [1720, 4556, 28511, 28512],
    "4": [20037, 20038],
    "lost-1": [6194, 6193],
    "mig-3": [12249, 12250, 12267],
    "mig-4": [21180, 21181, 21198],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_tells_its_devices_whatever_its_width(name):
    driver, devices, findings = TABLES[name]
    reading = read(f"plain-{name}.txt")
    assert reading.driver == driver
    assert [identity(device) for device in reading.devices] == devices
    assert codes(reading) == findings
    assert [parts(device) for device in reading.devices] == [PARTS.get(name, [])] * len(devices)
    if name != "2":
        assert pids(reading) == PROCESSES.get(name, [])


def test_a_table_tells_samples_and_nothing_for_those_it_has_not():
    (h100,) = read("plain-1.txt").devices
    assert (h100.use_milli, h100.temperature_c, h100.power_mw, h100.power_limit_mw) == (1000, 59, 629000, 700000)
    assert (h100.ecc_uncorrected, h100.partitioned) == (0, False)
    (virtual,) = read("plain-vgpu-1.txt").devices
    assert (virtual.temperature_c, virtual.power_mw, virtual.power_limit_mw) == (None, None, None)
    divided = read("plain-mig-3.txt")
    assert divided.devices[0].partitioned
    assert {p.instance for p in divided.processes} == {2}
    windows = read("plain-2.txt").processes
    assert len(windows) == 19
    assert {p.memory_bytes for p in windows} == {None}
    assert windows[1].name == "...em32\\ApplicationFrameHost.exe"
    assert [mib(p.memory_bytes) for p in read("plain-4.txt").processes] == [538, 681]


@pytest.mark.parametrize(
    ("name", "code", "index", "pci", "effect"),
    [
        ("lost-1", "lost", 1, "0000:34:00.0", "close"),
        ("6", "inforom_corrupted", None, "0008:00:00.0", "warn"),
        ("err-1", "unhealthy", 5, "0000:91:00.0", "close"),
        ("err-2", "unhealthy", 3, "0000:61:00.0", "close"),
    ],
)
def test_what_is_wrong_names_the_device(name, code, index, pci, effect):
    finding = read(f"plain-{name}.txt").findings[0]
    assert (finding.code, finding.index, finding.pci, finding.effect) == (code, index, pci, effect)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("|                    0 |", "|                    2 |", "ecc_uncorrected"),
        ("629W", "ERR!", "tool_failed"),
        ("100%", "ERR!", "unhealthy"),
        ("             Disabled |", "            Disabled* |", "mig_pending"),
        ("19818MiB", "1981MiB", "unreadable"),
        ("19818MiB /  81559MiB", "81559MiB /  19818MiB", "unreadable"),
        ("00000000:00:09.0 Off", "00000000:00:0x.0 Off", "unreadable"),
        ("|   0  NVIDIA", "|   O  NVIDIA", "unreadable"),
        ("|   19818MiB /  81559MiB |", "|           59C / 629W   |", "unreadable"),
        ("| Processes:", "| Prozesse: ", "unreadable"),
    ],
)
def test_a_row_that_is_ill_or_not_whole_is_a_finding(old, new, code):
    whole = text("plain-1.txt")
    assert old in whole
    assert code in codes(plain(whole.replace(old, new, 1)))


def test_a_device_without_one_of_its_rows_is_not_told():
    rows = text("plain-err-2.txt").splitlines(keepends=True)
    first = next(at for at, row in enumerate(rows) if row.startswith("|   4  NVIDIA A30"))
    for dropped in range(3):
        reading = plain("".join(rows[: first + dropped] + rows[first + dropped + 1 :]))
        assert [device.index for device in reading.devices] == [0, 1, 2, 3, 5, 6, 7]
        assert "unreadable" in codes(reading)


def test_a_table_without_a_border_between_two_devices_has_both():
    rows = text("plain-err-2.txt").splitlines(keepends=True)
    first = next(at for at, row in enumerate(rows) if row.startswith("|   4  NVIDIA A30"))
    assert len(plain("".join(rows[: first - 1] + rows[first:])).devices) == 8


def test_drivers_before_mig_take_two_rows_for_a_device():
    old = [row for row in text("plain-7.txt").splitlines(keepends=True) if not row.startswith("|            ")]
    assert len(old) == len(text("plain-7.txt").splitlines()) - 2
    assert [identity(device) for device in plain("".join(old)).devices] == TABLES["7"][1]


def test_a_heading_that_is_cut_tells_not_how_many_rows_a_device_has():
    rows = text("plain-err-2.txt").splitlines(keepends=True)
    heading = next(at for at, row in enumerate(rows) if row.startswith("| Fan"))
    cut = plain("".join(rows[:heading] + rows[heading + 2 :]))
    assert [device.index for device in cut.devices] == list(range(8))
    only_first = [row for row in rows if not row.startswith(("| N/A", "|ERR!", "|       "))]
    assert plain("".join(only_first[: heading + 1] + only_first[heading + 2 :])).devices == ()
