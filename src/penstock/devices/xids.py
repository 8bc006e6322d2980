"""NVIDIA's numbers of errors (Xid, and SXid of switches): what each means for a device, and what to do.

Source: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, table of 2025-10: the immediate action) and the lists
of SXids in the Fabric Manager User Guide; for numbers that the catalogue calls unused, the older list. Where they leave
it to the text of the line (NVLink, recovery actions), `kernel_log` reads the text.
"""

from typing import Literal, NamedTuple

Action = Literal[
    "nothing", "restart_program", "drain_and_reset", "reset_device", "restart_node", "check_links", "check_power",
    "update_driver", "ask_vendor",
]  # fmt: skip

ACTIONS: dict[Action, str] = {
    "nothing": "nothing to do",
    "restart_program": "restart the program",
    "drain_and_reset": "let programs end, then reset the device",
    "reset_device": "reset the device",
    "restart_node": "restart the node",
    "check_links": "check the NVLinks",
    "check_power": "check the power cables of the board",
    "update_driver": "update driver and firmware",
    "ask_vendor": "ask the vendor if it comes again",
}


class Xid(NamedTuple):
    """What a number means: the code of its finding (`reading.FINDINGS` has the effect) and the first thing to do."""

    code: str
    """'' for what is no error."""
    meaning: str
    action: Action


def _engines(names: dict[str, tuple[int, ...]]) -> dict[int, Xid]:
    """Return errors of engines that a program meets: it is restarted, the device goes on."""
    return {
        number: Xid("program_fault", f"exception of a {name} engine", "restart_program")
        for name, numbers in names.items()
        for number in numbers
    }


XIDS: dict[int, Xid] = {
    8: Xid("program_fault", "work did not end in time", "restart_program"),
    11: Xid("program_fault", "corrupt command stream", "restart_program"),
    13: Xid("program_fault", "exception in a kernel of the program", "restart_program"),
    25: Xid("program_fault", "illegal command stream", "restart_program"),
    31: Xid("program_fault", "access to an invalid address of the device", "restart_program"),
    32: Xid("program_fault", "corrupt command stream", "restart_program"),
    37: Xid("driver_fault", "firmware met an unknown method", "nothing"),
    38: Xid("driver_fault", "firmware watchdog", "nothing"),
    43: Xid("program_fault", "program stopped by an error of its own", "nothing"),
    44: Xid("program_fault", "fault during a context switch", "nothing"),
    45: Xid("program_fault", "channels of a program removed", "nothing"),
    46: Xid("reset_required", "device stopped processing", "reset_device"),
    48: Xid("ecc_uncorrected", "uncorrectable memory error", "drain_and_reset"),
    54: Xid("throttled", "auxiliary power is not connected", "check_power"),
    56: Xid("driver_fault", "display error", "nothing"),
    57: Xid("hardware_fault", "link to the memory failed", "ask_vendor"),
    58: Xid("hardware_fault", "memory error", "ask_vendor"),
    60: Xid("program_fault", "exception of the security engine", "restart_program"),
    61: Xid("firmware_fault", "micro-controller stopped at a breakpoint", "reset_device"),
    62: Xid("firmware_fault", "micro-controller halted", "reset_device"),
    63: Xid("row_remap_pending", "memory rows wait to be replaced", "drain_and_reset"),
    64: Xid("row_remap_failed", "memory rows could not be replaced", "reset_device"),
    66: Xid("driver_fault", "illegal access by the driver", "nothing"),
    67: Xid("driver_fault", "illegal access by the driver", "nothing"),
    69: Xid("program_fault", "class error of the program", "restart_program"),
    74: Xid("link_fault", "NVLink error", "check_links"),
    78: Xid("driver_fault", "virtual GPU did not start", "update_driver"),
    79: Xid("lost", "device has fallen off the bus", "restart_node"),
    80: Xid("program_fault", "corrupt data sent to the device", "restart_program"),
    92: Xid("degraded", "many corrected memory errors", "ask_vendor"),
    93: Xid("degraded", "InfoROM is written too often", "ask_vendor"),
    94: Xid("ecc_contained", "uncorrectable memory error, contained to a program", "restart_program"),
    95: Xid("ecc_uncorrected", "uncorrectable memory error, not contained", "reset_device"),
    106: Xid("", "test message", "nothing"),
    107: Xid("", "test message", "nothing"),
    108: Xid("link_fault", "address not translated over NVLink", "nothing"),
    109: Xid("reset_required", "context switch did not end in time", "reset_device"),
    110: Xid("hardware_fault", "security fault", "reset_device"),
    119: Xid("firmware_fault", "GPU System Processor does not answer", "reset_device"),
    120: Xid("firmware_fault", "error of the GPU System Processor", "reset_device"),
    121: Xid("link_fault", "corrected errors of the link to the CPU", "nothing"),
    125: Xid("inforom_corrupted", "error of the InfoROM's file system", "ask_vendor"),
    136: Xid("fabric_fault", "NVLink could not be trained", "reset_device"),
    137: Xid("link_fault", "access over NVLink refused", "nothing"),
    140: Xid("ecc_uncorrected", "uncorrectable memory error", "reset_device"),
    141: Xid("driver_fault", "error of CUDA's fast path", "nothing"),
    142: Xid("driver_fault", "exception of a video engine", "ask_vendor"),
    143: Xid("init_failed", "device could not be initialised", "reset_device"),
    **{n: Xid("link_fault", "NVLink error", "nothing") for n in range(144, 151)},
    151: Xid("reset_required", "keys of confidential computing not renewed", "restart_node"),
    152: Xid("driver_fault", "error of the deep learning accelerator", "nothing"),
    153: Xid("driver_fault", "deep learning accelerator does not answer", "nothing"),
    154: Xid("reset_required", "recovery action", "reset_device"),
    155: Xid("fabric_fault", "NVLink error of the driver", "reset_device"),
    156: Xid("reset_required", "part of the device was retired", "reset_device"),
    157: Xid("degraded", "part of the device could not be retired", "ask_vendor"),
    158: Xid("reset_required", "fatal timeout", "reset_device"),
    159: Xid("hardware_fault", "error on the bus to the CPU", "reset_device"),
    160: Xid("degraded", "channels retired", "nothing"),
    161: Xid("degraded", "channels could not be retired", "nothing"),
    162: Xid("", "power smoothing on again", "nothing"),
    163: Xid("", "power smoothing off", "nothing"),
    164: Xid("degraded", "power smoothing is near the end of its life", "ask_vendor"),
    165: Xid("degraded", "power smoothing is at the end of its life", "ask_vendor"),
    166: Xid("link_fault", "encrypted traffic on a link that is not set up for it", "ask_vendor"),
    167: Xid("hardware_fault", "fatal timeout of PCIe", "ask_vendor"),
    168: Xid("degraded", "part of the memory is not usable", "ask_vendor"),
    169: Xid("firmware_fault", "security processor halted", "ask_vendor"),
    170: Xid("link_fault", "NVLink interrupt in confidential mode", "ask_vendor"),
    171: Xid("ecc_uncorrected", "uncorrectable error of the memory", "drain_and_reset"),
    172: Xid("ecc_uncorrected", "uncorrectable error of a cache", "drain_and_reset"),
    **_engines(
        {
            "copy": (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
            "video decoder": (68, 83, 84, 88, 89, 96, 97, 98),
            "video encoder": (47, 65, 73),
            "image": (82, *range(99, 106)),
            "optical flow": (86, 139),
        }
    ),
}
OTHER = Xid("driver_fault", "an error that this version does not know", "ask_vendor")
"""For a number that is not in the table: unused by drivers since Ampere, or newer."""

LINK_XIDS = frozenset({74, *range(144, 151)})
"""Their line says whether the error is fatal."""
FATAL_LINK = Xid("fabric_fault", "fatal NVLink error", "reset_device")

CLEAN_UP = 45
LOST = 79
CONTAINED = 94
REMAPPED = 63
RECOVERY = 154

RECOVERY_ACTIONS: dict[int, Xid] = {
    0: Xid("", "no recovery action is asked for any more", "nothing"),
    1: Xid("reset_required", "the driver asks for a reset", "reset_device"),
    2: Xid("reset_required", "the driver asks for a restart", "restart_node"),
    3: Xid("link_fault", "the driver asks to end traffic between devices", "restart_program"),
    4: Xid("reset_required", "the driver asks for a reset when programs have ended", "drain_and_reset"),
}
"""By the number that Xid 154 changes to; one that is not here: reset."""

SWITCH_FATAL = frozenset(
    {
        10003, 11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12020, 12022, 12024, 12025, 12026, 12027, 12030,
        12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061,
        19063, 19064, 19066, 19067, 19069, 19070, 20034, 22003, 22011, 22012, 24004, 24005, 24006, 24007,
        *range(23001, 23018),
    }
)  # fmt: skip
"""SXids after which links or the whole switch must be reset, for lines that do not say so."""
SWITCH_RESET_ALL = 19084
"""It says that it is not fatal, and asks for a reset of all devices and switches all the same."""
SWITCH_FIRST = 10000
"""Numbers from here on are of switches."""
SWITCH_FAULT = Xid("fabric_fault", "fatal NVSwitch error", "reset_device")
SWITCH_WARNING = Xid("link_fault", "NVSwitch error", "nothing")


def text_of(xid: Xid) -> str:
    """Return what a number means and what to do, for people."""
    return f"{xid.meaning} ({ACTIONS[xid.action]})"
