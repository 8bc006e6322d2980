"""What a vendor's tool says of a machine's devices: facts of each, processes on them, and findings.

Parsers of tools' outputs give a `Reading`. They take facts only from rows that they have read whole: what is cut,
masked or in a form that they do not know is a finding, never a device with wrong facts, and never an exception. A fact
that the tool does not tell (`N/A`, `-`, `[Not Supported]`, an absurd number) is None, or empty.
"""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from penstock.core.model.resources import LinkKind

Effect = Literal["none", "warn", "close"]
"""What follows for the device: nothing, a warning to people, or that it is given to nobody until it was checked."""

FINDINGS: dict[str, Effect] = {
    # of the output, not of a device
    "unreadable": "warn",
    "cut": "warn",
    "unknown_format": "warn",
    "no_devices": "none",
    "not_supported": "none",
    # of the driver or the tool
    "no_driver": "warn",
    "driver_mismatch": "warn",
    "tool_failed": "warn",
    "tool_timeout": "warn",
    "no_permission": "warn",
    # of a device
    "masked": "warn",
    "duplicate": "warn",
    "parts_unknown": "warn",
    "lost": "close",
    "init_failed": "close",
    "reset_required": "close",
    "ecc_uncorrected": "close",
    "ecc_contained": "warn",
    "row_remap_pending": "close",
    "row_remap_failed": "close",
    "pages_retired": "warn",
    "page_retirement_pending": "close",
    "inforom_corrupted": "warn",
    "hardware_fault": "close",
    "firmware_fault": "close",
    "link_fault": "warn",
    "fabric_fault": "close",
    "too_hot": "warn",
    "throttled": "warn",
    "degraded": "warn",
    "unhealthy": "close",
    "mig_pending": "warn",
    "driver_fault": "warn",
    "program_fault": "none",
    "follow_up": "none",
}
"""Every code of a finding, with its effect."""


class PartFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A hardware partition of a device (an instance of MIG, a compute partition)."""

    profile: str = ""
    """As the vendor names it: `1g.10gb`, `CPX`."""
    uuid: str = ""
    index: int | None = None
    """As the tool counts, where it counts parts as if they were devices."""
    instance: int | None = None
    """Its id on the device (the GPU instance)."""
    compute_instance: int | None = None
    start: int | None = None
    size: int | None = None
    """Where it lies: memory slices [start, start + size)."""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None


class DeviceFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One device as a tool shows it; None and empty: not reported."""

    index: int | None = None
    """As the tool counts."""
    uuid: str = ""
    pci: str = ""
    """As the kernel writes it: `0000:9b:00.0` (`pci_address`)."""
    model: str = ""
    serial: str = ""
    card: int | None = None
    chip: int | None = None
    """The tool's numbers of the card and of the chip on it, where devices are chips (Ascend: NPU and chip)."""
    numa_node: int | None = None
    minor: int | None = None
    """Of its device file."""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    use_milli: int | None = None
    """Part of the time that it computed, thousandths."""
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    clock_mhz: int | None = None
    energy_mj: int | None = None
    """Used since the driver was loaded."""
    capability: tuple[int, int] | None = None
    """Compute capability as (major, minor)."""
    files: tuple[str, ...] = ()
    """Device files by which a program uses it, and no other device: `/dev/nvidia0`."""
    throttled: tuple[str, ...] = ()
    """Why its clocks are held down at present: `power`, `heat`, `hardware`, as far as the vendor says."""
    link_errors: int | None = None
    """Of its links to other devices, since the driver was loaded."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Errors since the driver was loaded."""
    partitioned: bool | None = None
    """Whether it is divided into parts by hardware (MIG on)."""
    parts: tuple[PartFacts, ...] = ()


class LinkFacts(msgspec.Struct, frozen=True):
    """How two devices reach each other, by their indexes."""

    device: int
    peer: int
    kind: LinkKind


class ProcessFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A process that has a device open, which is named by what the tool tells of it."""

    pid: int
    index: int | None = None
    uuid: str = ""
    pci: str = ""
    instance: int | None = None
    """Of the part of the device."""
    name: str = ""
    user: str = ""
    memory_bytes: int | None = None


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that is wrong, of a device (by index, uuid or pci), or of the output as a whole."""

    code: str
    """One of `FINDINGS`."""
    text: str
    """For people: what was said, short."""
    index: int | None = None
    uuid: str = ""
    pci: str = ""
    number: int | None = None
    """The vendor's number of the error, such as an Xid."""
    pid: int | None = None
    """The process that had the device when it happened."""
    instance: int | None = None
    """The part of the device that suffers (the GPU instance of MIG)."""
    time_s: float | None = None
    """When, where the output says so: unix time, or seconds since the boot for a kernel log with such a clock."""

    @property
    def effect(self) -> Effect:
        return FINDINGS[self.code]


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole of one output, in its order."""

    devices: tuple[DeviceFacts, ...] = ()
    links: tuple[LinkFacts, ...] = ()
    processes: tuple[ProcessFacts, ...] = ()
    findings: tuple[Finding, ...] = ()
    driver: str = ""
    """Version of the driver."""


INPUT_MAX = 4 * 2**20
"""Characters of an output that is read at all."""
TEXT_MAX = 200
_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_NUMBER = re.compile(r"\s*(-?\d+(?:[.,]\d+)?)\s*([A-Za-z%°/]*)\s*")
_ABSENT = frozenset(
    {"", "-", "--", "n/a", "na", "none", "unknown", "not supported", "not available", "err!", "???", "?"}
)
_BYTES = {"b": 1, "kb": 10**3, "kib": 2**10, "mb": 10**6, "mib": 2**20, "gb": 10**9, "gib": 2**30, "tib": 2**40}
NUMBER_MAX = 2**53


def pci_address(text: str) -> str:
    """Return a PCI address as the kernel writes it; '' for what is none.

    `00000000:9B:00.0`, `0000:9b:00` and `9B:00.0` are all `0000:9b:00.0`.
    """
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return ""
    domain = int(found[1] or "0", 16)
    return f"{domain:04x}:{found[2]}:{found[3]}.{found[4] or 0}".lower()


def said(text: str | None) -> str:
    """Return a value as printed, '' for the many ways to say that there is none."""
    stripped = (text or "").strip()
    return "" if stripped.strip("[]<>").strip().lower() in _ABSENT else stripped


def number(text: str | None) -> float | None:
    """Return the number that a value begins with, None for what is none; `83 %`, `629W` and `1,5` are numbers."""
    found = _NUMBER.fullmatch(said(text))
    value = float(found[1].replace(",", ".")) if found else None
    return value if value is not None and abs(value) <= NUMBER_MAX else None


def whole(text: str | None, scale: int = 1) -> int | None:
    """Return a number that is not negative times `scale`, rounded; None for any other."""
    value = number(text)
    return round(value * scale) if value is not None and value >= 0 and value * scale <= NUMBER_MAX else None


def size_bytes(text: str | None, unit: str = "mib") -> int | None:
    """Return the bytes of a size such as `19818MiB`; `unit` where it names none."""
    found = _NUMBER.fullmatch(said(text))
    if found is None:
        return None
    each = _BYTES.get((found[2] or unit).lower())
    value = float(found[1].replace(",", "."))
    return round(value * each) if each is not None and 0 <= value * each <= NUMBER_MAX else None


def short(text: str) -> str:
    """Return a text of a tool for a finding: printable, on one line, at most `TEXT_MAX` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= TEXT_MAX else f"{line[: TEXT_MAX - 1]}…"


def without_duplicates(devices: Iterable[DeviceFacts]) -> tuple[tuple[DeviceFacts, ...], tuple[Finding, ...]]:
    """Return devices that no other shares an index, uuid or address with, and findings for the rest.

    Of two that claim to be the same neither can be trusted.
    """
    listed = list(devices)
    twice: set[int] = set()
    for read in ("index", "uuid", "pci"):
        first: dict[object, int] = {}
        for at, device in enumerate(listed):
            value = getattr(device, read)
            if value in ("", None):
                continue
            if value in first:
                twice |= {first[value], at}
            first.setdefault(value, at)
    kept = tuple(device for at, device in enumerate(listed) if at not in twice)
    text = "another device of the output has the same index, uuid or address"
    found = tuple(
        Finding(code="duplicate", text=text, index=listed[at].index, uuid=listed[at].uuid, pci=listed[at].pci)
        for at in sorted(twice)
    )
    return kept, found
