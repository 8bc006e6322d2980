"""Kernel logs as recorded and damaged: which errors close which device, and what only follows from them."""

import random
from pathlib import Path

import pytest

from penstock.devices import xids
from penstock.devices.kernel_log import FOLLOW_S, LINE_MAX, REMEMBERED, KernelLog, read
from penstock.devices.reading import FINDINGS, INPUT_MAX, DeviceFacts, Finding, Reading
from tests.properties import LONG

RECORDINGS = Path(__file__).parent / "recordings"
RECORDED = sorted(
    f"{path.parent.name}/{path.name}"
    for pattern in ("*/dmesg-*", "*/kmsg-*", "*/fabricmanager-log-*")
    for path in RECORDINGS.glob(pattern)
)
KINDS = 10
DAMAGED_PER_RECORDING = 200 if LONG else 20

EXPECTED: dict[str, list[str]] = {
    "nvidia/dmesg-knvlink-1": ["link_fault - -"] * 3,
    "nvidia/dmesg-rminit-1": ["driver_fault - -", "init_failed - 0000:ae:00.0"],
    "nvidia/dmesg-sxid-1": [
        "lost 79 0000:91:00.0",
        "follow_up 20034 0000:06:00.0",
        "follow_up 20034 0000:05:00.0",
        "follow_up 20034 0000:07:00.0",
        "follow_up 20034 0000:07:00.0",
        "follow_up 20034 0000:05:00.0",
    ],
    "nvidia/dmesg-xid-109-2": ["reset_required 109 0000:01:00.0 pid 2075"],
    "nvidia/dmesg-xid-119-1": [
        *["firmware_fault 119 0000:9b:00.0 pid 2024380"] * 3,
        "reset_required - 0000:9b:00.0",
        "firmware_fault 119 0000:9b:00.0 pid 1263500",
        "firmware_fault 119 0000:9b:00.0 pid 1240590",
    ],
    "nvidia/dmesg-xid-119-120-1": [
        "firmware_fault 119 000f:01:00.0 pid 3849",
        "firmware_fault 120 000f:01:00.0 pid 9111",
    ],
    "nvidia/dmesg-xid-119-2": [
        *["firmware_fault 119 0000:61:00.0 pid 1344368"] * 3,
        "firmware_fault 119 0000:61:00.0 pid 1346198",
        "tool_timeout - - pid 1346229",
        "firmware_fault 119 0000:61:00.0 pid 1346198",
    ],
    "nvidia/dmesg-xid-13-2": ["program_fault 13 0000:01:00.0"],
    "nvidia/dmesg-xid-13-43-1": ["program_fault 13 0000:38:00.0", "program_fault 43 0000:38:00.0 pid 2924364"],
    "nvidia/dmesg-xid-13-56-1": ["program_fault 13 0000:03:00.0", "driver_fault 56 0000:03:00.0"],
    "nvidia/dmesg-xid-140-1": ["ecc_uncorrected 140 0000:2a:00.0"],
    "nvidia/dmesg-xid-145-2": ["link_fault 145 0000:5f:00.0"],
    "nvidia/dmesg-xid-149-154-1": [
        "fabric_fault 149 0009:01:00.0",
        "reset_required 154 0009:01:00.0",
        "fabric_fault 149 0008:01:00.0",
        "reset_required 154 0019:01:00.0",
        "fabric_fault 149 0009:01:00.0",
        "fabric_fault 149 0009:01:00.0",
        "fabric_fault 149 0008:01:00.0",
        "reset_required 154 0018:01:00.0",
        "reset_required 154 0008:01:00.0",
    ],
    "nvidia/dmesg-xid-31-2": ["program_fault 31 0000:2b:00.0 pid 1942"],
    "nvidia/dmesg-xid-32-1": ["program_fault 32 0000:01:00.0"],
    "nvidia/dmesg-xid-38-2": ["driver_fault 38 0000:01:00.0 pid 1659"],
    "nvidia/dmesg-xid-43-2": ["program_fault 43 0000:01:00.0"],
    "nvidia/dmesg-xid-48-2": ["ecc_uncorrected 48 0000:8a:00.0", "ecc_uncorrected 48 0000:07:00.0"],
    "nvidia/dmesg-xid-48-63-94-1": [
        "ecc_uncorrected 48 0000:52:00.0",
        "row_remap_pending 63 0000:52:00.0",
        "ecc_contained 94 0000:52:00.0",
    ],
    "nvidia/dmesg-xid-56-1": ["driver_fault 56 0000:06:00.0"] * 2,
    "nvidia/dmesg-xid-56-2": ["driver_fault 56 0000:05:00.0"],
    "nvidia/dmesg-xid-62-2": ["firmware_fault 62 0000:01:00.0 pid 2763", "init_failed - 0000:01:00.0"],
    "nvidia/dmesg-xid-62-31-45-1": [
        "firmware_fault 62 0000:02:00.0 pid 1300",
        "program_fault 31 0000:02:00.0 pid 1300",
        "follow_up 45 0000:02:00.0 pid 12723",
        "follow_up 45 0000:02:00.0 pid 1300",
        "follow_up 45 0000:02:00.0 pid 729",
        "firmware_fault 62 0000:02:00.0 pid 1294",
        "program_fault 32 0000:02:00.0 pid 1294",
        "program_fault 13 0000:02:00.0 pid 4091",
        "program_fault 43 0000:02:00.0 pid 1293",
    ],
    "nvidia/dmesg-xid-63-1": ["row_remap_pending 63 0000:10:1c.0 pid 1896"],
    "nvidia/dmesg-xid-69-1": ["program_fault 69 0000:01:00.0 pid 57910"],
    "nvidia/dmesg-xid-74-2": ["fabric_fault 74 0000:c1:00.0"],
    "nvidia/dmesg-xid-79-2": ["lost 79 0000:06:00.0"],
    "nvidia/dmesg-xid-79-3": ["lost 79 0000:ca:00.0"],
    "nvidia/dmesg-xid-79-arm-2": ["lost 79 0004:01:00.0", "follow_up 119 0004:01:00.0 pid 430"],
    "nvidia/dmesg-xid-containment-1": [
        "ecc_contained 94 0000:01:00.0 pid 7194 instance 5",
        "ecc_contained 94 0000:01:00.0 pid 7062",
        "ecc_uncorrected 95 0000:01:00.0 pid 7062",
    ],
    "nvidia/kmsg-peermem-1": ["driver_fault - -"],
    "nvidia/fabricmanager-log-1": ["link_fault 12028 0000:86:00.0"],
    "gaudi/dmesg-habanalabs-1": [],
}


def recorded(name: str) -> str:
    return (RECORDINGS / f"{name}.txt").read_text(encoding="utf-8")


def brief(finding: Finding) -> str:
    pid = f" pid {finding.pid}" if finding.pid is not None else ""
    instance = f" instance {finding.instance}" if finding.instance is not None else ""
    number = "-" if finding.number is None else finding.number
    return f"{finding.code} {number} {finding.pci or '-'}{pid}{instance}"


def only(line: str) -> Finding:
    (finding,) = read(line + "\n").findings
    return finding


def xid(number: int, text: str, head: str = "", pci: str = "0000:9b:00") -> str:
    return f"{head}NVRM: Xid (PCI:{pci}): {number}, pid='<unknown>', name=<unknown>, {text}\n"


@pytest.mark.parametrize("name", EXPECTED)
def test_findings_of_each_recording(name: str) -> None:
    assert [brief(finding) for finding in read(recorded(name)).findings] == EXPECTED[name]


def test_there_is_an_expectation_for_each_recording() -> None:
    assert [name.removesuffix(".txt") for name in RECORDED] == sorted(EXPECTED)


def test_facts_beside_the_findings() -> None:
    assert read(recorded("nvidia/dmesg-rminit-1")).driver == "550.90.05"
    assert read("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun\n").driver == "535.54.03"
    assert read(recorded("gaudi/dmesg-habanalabs-1")).devices == (
        DeviceFacts(index=0, pci="0000:19:00.0", model="GAUDI2", memory_bytes=96 * 2**30),
    )
    lost = read(recorded("nvidia/dmesg-sxid-1")).findings[0]
    assert lost.uuid == "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"
    assert lost.text == "Xid 79: device has fallen off the bus (restart the node); GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("head", "time_s"),
    [
        ("", None),
        ("kernel: ", None),
        ("[  416.096726] ", 416.096726),
        ("[ 130.456250] [ T1946] ", 130.45625),
        ("[Sun Feb 23 16:24:18 2025] ", 1740327858),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", 1737434504.283302),
        ("kern  :warn  : [  416.5] ", 416.5),
        ("2026-10-04T14:16:55+03:00 node0001 kernel: ", 1791112615),
        ("Nov 22 14:56:44 node0001 kernel: [94555.573310] ", 94555.57331),
        ("Feb 01 14:25:31 archbox kernel: ", None),
        ("4,1227,437812449932,-;", 437812.449932),
        ("4,1227,437812449932,-,caller=T12;", 437812.449932),
        ("<4>[   12.5] ", 12.5),
        ("**Nov 22 14:56:44 node0001 kernel: [94555.5] ", 94555.5),
        ("2025-13-45T04:41:44+00:00 node0001 kernel: ", None),
        ("[Sun Feb 31 16:24:18 2025] ", None),
    ],
)
def test_heads_of_every_kind_of_log(head: str, time_s: float | None) -> None:
    finding = only(f"{head}NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.")

    assert (finding.code, finding.number, finding.pci, finding.time_s) == ("lost", 79, "0000:9b:00.0", time_s)


@pytest.mark.parametrize(
    "head",
    ["12,1227,437812449932,-;", "user  :warn  : [  416.5] ", "<12>", "Feb 01 14:25:31 host program[12]: ", "echo "],
)
def test_only_what_the_kernel_wrote_closes_a_device(head: str) -> None:
    findings = read(f"{head}NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n").findings

    assert all(finding.effect != "close" and not finding.pci for finding in findings)


@pytest.mark.parametrize("number", [8, 11, 13, 25, 31, 32, 39, 43, 44, 45, 60, 68, 69, 80, 82, 86, 88, 103, 130, 139])
def test_errors_of_programs_never_close_a_device(number: int) -> None:
    finding = only(xid(number, "channel 0x00000002"))

    assert (finding.code, finding.effect) == ("program_fault", "none")


@pytest.mark.parametrize(
    ("number", "text", "code"),
    [
        (46, "", "reset_required"),
        (48, "DBE", "ecc_uncorrected"),
        (62, "", "firmware_fault"),
        (63, "Row Remapper: New row marked for remapping, reset gpu to activate.", "row_remap_pending"),
        (63, "Dynamic Page Retirement: New retired page, reload the driver.", "page_retirement_pending"),
        (64, "Row Remapper Error: All reserved rows for bank are remapped", "row_remap_failed"),
        (74, "NVLink: fatal error detected on link 1", "fabric_fault"),
        (79, "GPU has fallen off the bus.", "lost"),
        (94, "Contained: SM (0x1). RST: No, D-RST: Yes", "ecc_uncorrected"),
        (95, "Uncontained", "ecc_uncorrected"),
        (109, "", "reset_required"),
        (119, "Timeout", "firmware_fault"),
        (120, "GSP task exception", "firmware_fault"),
        (136, "", "fabric_fault"),
        (140, "", "ecc_uncorrected"),
        (143, "", "init_failed"),
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01", "fabric_fault"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reset_required"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x9 (A Later Word)", "reset_required"),
        (156, "", "reset_required"),
        (158, "", "reset_required"),
        (171, "", "ecc_uncorrected"),
    ],
)
def test_errors_that_close_a_device(number: int, text: str, code: str) -> None:
    finding = only(xid(number, text))

    assert (finding.code, finding.effect, finding.number) == (code, "close", number)


@pytest.mark.parametrize(
    ("number", "text", "code"),
    [
        (74, "NVLink: link 1 replayed", "link_fault"),
        (92, "High single-bit ECC error rate", "degraded"),
        (94, "Contained: SM (0x1). RST: No, D-RST: No", "ecc_contained"),
        (144, "SAW_MVB Non-fatal XC0 i0 Link 01", "link_fault"),
        (149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 01", "link_fault"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "link_fault"),
        (154, "GPU recovery action changed from 0x0 (None) to", "cut"),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1", "cut"),
        (149, "x" * LINE_MAX + " Fatal", "link_fault"),
        (999, "of a later driver", "driver_fault"),
    ],
)
def test_errors_that_are_only_warned_of(number: int, text: str, code: str) -> None:
    finding = only(xid(number, text))

    assert (finding.code, finding.effect) == (code, "warn")


def test_no_error_is_no_finding() -> None:
    ended = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"

    assert read(xid(154, ended) + xid(106, "test") + "NVRM: GPU0 RPC history (CPU -> GSP):\n").findings == ()


def test_every_number_of_the_table_has_a_known_code() -> None:
    listed = [*xids.XIDS.values(), *xids.RECOVERY_ACTIONS.values(), xids.FATAL_LINK, xids.SWITCH_FAULT, xids.OTHER]

    assert {entry.code for entry in listed} - {""} <= set(FINDINGS)
    assert {entry.action for entry in listed} <= set(xids.ACTIONS)


@pytest.mark.parametrize(
    ("message", "code", "pci"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "link_fault", "0000:05:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 19084, Non-fatal, Link 29 AN1", "fabric_fault", "0000:05:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 28 LTSSM", "fabric_fault", "0000:05:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 22013, Severity 5 Engine", "link_fault", "0000:05:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 23001, Severity 1 Engine", "fabric_fault", "0000:05:00.0"),
        ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "lost", "0000:91:00.0"),
        ("NVRM: API mismatch: the client has the version 550.1", "driver_mismatch", ""),
        ("[ERROR] [tid 1] failed to find the GPU handle", "tool_failed", ""),
        ("NVRM: Xid (PCI:0000:05:00.0): 7", "cut", ""),
        ("NVRM: Xid (PCI:0000:05", "cut", ""),
        ("NVRM: Xid (PCI:0000:05:00): 145, RLW_REMAP Non\0fatal", "cut", ""),
    ],
)
def test_other_messages(message: str, code: str, pci: str) -> None:
    finding = only(message)

    assert (finding.code, finding.pci) == (code, pci)


def test_a_fabric_error_that_is_fatal_closes() -> None:
    text = recorded("nvidia/fabricmanager-log-1").replace("NVSwitch non-fatal", "NVSwitch fatal")

    assert [brief(f) for f in read(text).findings] == ["fabric_fault 12028 0000:86:00.0"]


def test_gaudi_faults_name_the_address_of_the_device() -> None:
    text = recorded("gaudi/dmesg-habanalabs-1") + (
        "[ 9.5] habanalabs hl0: Device heartbeat failed! PCI link is broken\n"
        "[ 9.9] habanalabs hl1: Device heartbeat failed!\n"
        "[ 9.9] habanalabs hl2: Failed to initialize the H/W\n"
    )
    listed = [(f.code, f.index, f.pci, f.time_s) for f in read(text).findings]

    assert listed == [
        ("lost", 0, "0000:19:00.0", 9.5),
        ("firmware_fault", 1, "", 9.9),
        ("init_failed", 2, "", 9.9),
    ]


def test_equal_lines_within_a_moment_are_one_finding_and_later_ones_are_news() -> None:
    text = "".join(xid(13, "exception", f"[{second:.1f}] ") for second in (10, 10.5, 11, 11.5, 60))

    assert [finding.time_s for finding in read(text).findings] == [10, 11.5, 60]


def test_another_device_process_instance_or_link_is_another_finding() -> None:
    lines = [
        "NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, x",
        "NVRM: Xid (PCI:0000:01:00): 13, pid=2, name=a, x",
        "NVRM: Xid (PCI:0000:02:00): 13, pid=1, name=a, x",
        "NVRM: Xid (PCI:0000:01:00 GPU-I:01 GPU-CI:00): 13, pid=1, name=a, x",
        "NVRM: Xid (PCI:0000:01:00): 149, NETIR Fatal XC0 i0 Link 01",
        "NVRM: Xid (PCI:0000:01:00): 149, NETIR Fatal XC0 i0 Link 02",
    ]

    assert len(read("\n".join([*lines, *lines])).findings) == len(lines)


def test_a_lost_device_is_one_finding_however_it_is_told() -> None:
    lines = ["NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", xid(79, "lost", pci="0000:91:00").strip()]

    assert [f.code for f in read("\n".join(lines)).findings] == ["lost"]
    assert [f.code for f in read("\n".join(reversed(lines))).findings] == ["lost"]


def test_what_follows_from_a_cause_is_told_apart_as_long_as_it_is_near() -> None:
    near, far = f"[{100 + FOLLOW_S - 1}] ", f"[{100 + FOLLOW_S + 1}] "
    cause, clean_up = xid(62, "halt", "[100.0] "), "NVRM: Xid (PCI:0000:9b:00): 45, pid=7, name=a, Ch 1\n"

    assert [f.code for f in read(cause + near + clean_up).findings] == ["firmware_fault", "follow_up"]
    assert [f.code for f in read(cause + far + clean_up).findings] == ["firmware_fault", "program_fault"]
    alone = clean_up + clean_up.replace("pid=7", "pid=8")
    assert [f.code for f in read(alone).findings] == ["program_fault", "program_fault"]


def test_an_error_after_a_restart_follows_from_nothing_before() -> None:
    text = xid(79, "lost", "[5000.0] ") + xid(119, "timeout", "[12.0] ")

    assert [f.code for f in read(text).findings] == ["lost", "firmware_fault"]


def test_an_error_of_another_device_follows_from_nothing() -> None:
    text = xid(79, "lost", "[10.0] ") + xid(119, "timeout", "[11.0] ", pci="0000:3b:00")

    assert [f.code for f in read(text).findings] == ["lost", "firmware_fault"]


def test_advice_of_the_driver_is_told_after_a_loss_too() -> None:
    advice = "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
    findings = read(xid(79, "lost", "[10.0] ") + xid(154, advice, "[10.1] ")).findings

    assert [f.code for f in findings] == ["lost", "reset_required"]
    assert "restart the node" in findings[1].text


def test_an_error_of_a_switch_without_a_lost_device_is_a_cause() -> None:
    lines = [line for line in recorded("nvidia/dmesg-sxid-1").splitlines() if "SXid" in line]

    assert {f.code for f in read("\n".join(lines)).findings} == {"fabric_fault"}


def test_lines_without_a_time_are_told_apart_by_when_they_came() -> None:
    log, line = KernelLog(), xid(13, "exception")

    assert [log.take(line, now_s=now) is None for now in (5.0, 5.5, 9.0)] == [False, True, False]


def test_a_stream_gives_what_the_whole_gives() -> None:
    for name in RECORDED:
        text = (RECORDINGS / name).read_text(encoding="utf-8")
        log = KernelLog()
        findings = [finding for line in text.splitlines() if (finding := log.take(line)) is not None]
        assert Reading(devices=log.devices, findings=tuple(findings), driver=log.driver) == read(text)


def test_what_is_remembered_is_bounded() -> None:
    log = KernelLog()
    for n in range(REMEMBERED + 500):
        log.take(f"[{n}.0] NVRM: Xid (PCI:{n:08x}:01:00): 79, pid={n}, name=a, lost")
        log.take(f"[{n}.0] NVRM: Xid (PCI:{n:08x}:02:00): 62, pid={n}, name=a, halt")
        log.take(f"NVRM: GPU at PCI:{n:08x}:01:00: GPU-{n:08x}-0000-0000-0000-000000000000")
        log.take(f"habanalabs hl{n}: Found GAUDI2 device with 96GB DRAM")

    kept = [value for value in vars(log).values() if hasattr(value, "__len__") and not isinstance(value, str)]
    assert sorted(len(value) for value in kept) == [1, *[REMEMBERED] * 5]


def test_what_was_seen_last_is_remembered_longest() -> None:
    log, uuid = KernelLog(), "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"
    named = [f"NVRM: GPU at PCI:{n:08x}:01:00: {uuid}" for n in range(REMEMBERED + 1)]
    for line in [*named[:REMEMBERED], named[0], named[REMEMBERED]]:
        log.take(line)

    uuids = [log.take(f"NVRM: Xid (PCI:{n:08x}:01:00): 79, lost") for n in (0, 1, REMEMBERED)]
    assert [finding and finding.uuid for finding in uuids] == [uuid, "", uuid]


def test_line_ends_of_windows_change_nothing() -> None:
    for name in EXPECTED:
        assert read(recorded(name).replace("\n", "\r\n")) == read(recorded(name))


def test_texts_and_lines_are_bounded() -> None:
    assert [f.code for f in read("x" * (INPUT_MAX + 1)).findings] == ["unreadable"]
    long = only("NVRM: Xid (PCI:0000:9b:00): 79, " + "x" * LINE_MAX)
    assert (long.code, len(long.text)) == ("lost", 200)


def damaged(text: str, rnd: random.Random, kind: int) -> str:
    """Return a text with one kind of damage, of `KINDS`."""
    lines = text.splitlines(keepends=True)
    at = rnd.randrange(len(lines))
    match kind:
        case 0:
            return text[: rnd.randrange(len(text))]
        case 1:
            return text[rnd.randrange(1, len(text)) :]
        case 2:
            rnd.shuffle(lines)
        case 3:
            del lines[at]
        case 4:
            lines.insert(at, lines[rnd.randrange(len(lines))])
        case 5:
            return text.replace("\n", "\r\n")
        case 6:
            cut = rnd.randrange(len(lines[at]))
            lines[at] = lines[at][:cut] + "\0" + lines[at][cut:]
        case 7:
            lines[at] = lines[at].rstrip("\n") + "x" * 100_000 + "\n"
        case 8:
            lines = ["".join([line[: rnd.randrange(len(line))], "\n"]) for line in lines]
        case _:
            return text.replace("Feb", "févr.").replace("Mar", "mars").replace(".", ",")
    return "".join(lines)


@pytest.mark.parametrize("name", RECORDED)
def test_damage_never_blames_another_device_or_error(name: str) -> None:
    text = (RECORDINGS / name).read_text(encoding="utf-8")
    whole = read(text)
    blamed = {(f.pci, f.number) for f in whole.findings} | {("", None)}
    blamed |= {(f.pci, None) for f in whole.findings if f.code == "lost"}  # the driver says it again without a number
    closed = {(f.pci, f.number) for f in whole.findings if f.effect == "close" or f.code == "follow_up"}
    closed |= {(pci, number) for pci, number in blamed if number is None}
    rnd = random.Random(name)
    for at in range(DAMAGED_PER_RECORDING):
        broken = damaged(text, rnd, at % KINDS)
        reading = read(broken)
        assert {(f.pci, f.number) for f in reading.findings} <= blamed, broken
        assert {(f.pci, f.number) for f in reading.findings if f.effect == "close"} <= closed, broken
        assert {(d.index, d.pci) for d in reading.devices} <= {(d.index, d.pci) for d in whole.devices}
        assert {f.uuid for f in reading.findings} <= {f.uuid for f in whole.findings} | {""}


def test_a_line_that_is_cut_anywhere_is_the_same_error_or_none() -> None:
    line = "[430954.533994] NVRM: Xid (PCI:0000:52:00): 119, pid=7194, name=python, Timeout of GSP"
    whole = only(line)
    for end in range(len(line)):
        for finding in read(line[:end]).findings:
            if finding.code != "cut":
                assert (finding.code, finding.number, finding.pci) == (whole.code, whole.number, whole.pci)
                assert finding.pid in (None, whole.pid)
