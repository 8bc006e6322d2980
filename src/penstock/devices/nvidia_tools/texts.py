"""What the outputs of nvidia-smi have in common: lines that are whole, sentences of the tool, names of devices.

A line is taken only when it is whole: it ends with a newline, holds no control characters and is not absurdly long.
"""

import re
from collections.abc import Iterable

from penstock.devices.reading import (
    DeviceFacts,
    Finding,
    LinkFacts,
    ProcessFacts,
    Reading,
    pci_address,
    said,
    short,
    without_duplicates,
)

TEXT_BYTES_MAX = 4 * 2**20
LINES_MAX = 200_000
"""Lines of an output; the longest, the XML of 16 devices with all their clocks, has fewer than 50,000."""
LINE_MAX = 512
"""Characters of a line of a table; the widest that the tool writes have fewer than half of it."""
FINDINGS_MAX = 256
INDEX_MAX = 1024
DIGITS_MAX = 15
NO_BREAK = "\u00a0"
"""The blank of web pages, from which people copy outputs."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,8}m")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OLD_PART_UUID = re.compile(r"MIG-(GPU-[0-9a-fA-F-]{36})/(\d{1,3})/(\d{1,3})")
_ZERO = re.compile(r"[0-]+")
_SERIAL = re.compile(r"[0-9A-Za-z-]{4,40}")
_VERSION = re.compile(r"\s*(\d{2,4}(?:\.\d{1,4}){1,3})(?![\w.])")
_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU\s{0,3}(?:(?P<index>\d{1,4}):\s{1,3})?"
    r"(?P<pci>[0-9a-fA-F:.]{7,16}?)(?::\s|:?$)",
    re.IGNORECASE,
)
_AT_GPU = re.compile(r"\bat gpu\s{1,3}([0-9a-fA-F:.]{7,16})", re.IGNORECASE)
_SENTENCES = (
    ("version mismatch", "driver_mismatch"),
    ("nvml library version:", "driver_mismatch"),
    ("insufficient permission", "no_permission"),
    ("blocked by the operating system", "no_permission"),
    ("couldn't communicate with the nvidia driver", "no_driver"),
    ("driver not loaded", "no_driver"),
    ("driver is not loaded", "no_driver"),
    ("no devices were found", "no_devices"),
    ("inforom is corrupted", "inforom_corrupted"),
    ("is missing its value", "not_supported"),
    ("is not recognized", "not_supported"),
    ("invalid combination of input arguments", "not_supported"),
    ("failed to initialize nvml", "tool_failed"),
    ("nvidia-smi has failed", "tool_failed"),
    ("command not found", "tool_failed"),
    ("failed to properly shut down nvml", "tool_failed"),
    ("unable to ", "tool_failed"),
    ("warning:", "tool_failed"),
    ("error:", "tool_failed"),
)
"""What a sentence holds (lower case), and the code of its finding; the first that fits."""


class Lines:
    """The whole lines of an output, without terminal escapes; the others are counted, and `findings` tells of them."""

    def __init__(self, text: str, *, longest: int = LINE_MAX) -> None:
        self.whole: list[str] = []
        self.findings: list[Finding] = []
        self._refused, self._first = 0, ""
        if too_large := refused(text):
            self.findings.append(too_large)
            return
        for raw in text.splitlines(keepends=True) if _plain_breaks(text) else _split(text):
            line = raw.rstrip("\r\n")
            if raw[-1:] not in ("\r", "\n"):
                self.findings.append(Finding(code="cut", text=short(f"the last line does not end: {line[:LINE_MAX]}")))
                break
            line = _ESCAPES.sub("", line) if "\x1b" in line else line
            line = line.replace(NO_BREAK, " ")
            if len(line) > longest or not line.replace("\t", " ").isprintable():
                self.refuse(line)
            else:
                self.whole.append(line)

    def refuse(self, line: str) -> None:
        """Note a line that is not of the format; all of them make one finding."""
        self._first = self._first if self._refused else short(line[:LINE_MAX])
        self._refused += 1

    def unreadable(self) -> list[Finding]:
        """Return the findings of the lines: cut, too large, and those that were refused."""
        if not self._refused:
            return self.findings
        lines = "a line is" if self._refused == 1 else f"{self._refused} lines are"
        text = f"{lines} not of the format, the first: {self._first}"
        return [*self.findings, Finding(code="unreadable", text=short(text))]


def refused(text: str) -> Finding | None:
    """Return the finding of a text that is too large to be read, None for one that is not."""
    if len(text) > TEXT_BYTES_MAX:
        return Finding(code="unreadable", text=f"{len(text)} characters, at most {TEXT_BYTES_MAX} are read")
    if (lines := text.count("\n")) > LINES_MAX:
        return Finding(code="unreadable", text=f"{lines} lines, at most {LINES_MAX} are read")
    return None


def _plain_breaks(text: str) -> bool:
    """Return whether a text holds none of the other characters at which `splitlines` parts lines."""
    return not any(c in text for c in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")


def _split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def sentence(line: str) -> Finding | None:
    """Return the finding of a sentence that the tool writes before, behind or in place of its output."""
    if handle := _HANDLE.search(line):
        index = handle["index"]
        return Finding(
            code="lost",
            text=short(line),
            index=int(index) if index is not None else None,
            pci=address_of(handle["pci"]),
        )
    lower = line.lower()
    for part, code in _SENTENCES:
        if part in lower:
            at = _AT_GPU.search(line)
            return Finding(code=code, text=short(line), pci=address_of(at[1]) if at else "")
    if "hami-core" in lower:
        text = "HAMi sets limits here: the memory may be a limit, not the device's own"
        return Finding(code="masked", text=text)
    return None


def sentences(lines: Iterable[str]) -> list[Finding]:
    """Return the findings of all lines that are sentences of the tool."""
    return [finding for line in lines if (finding := sentence(line))]


def version_of(text: str | None) -> str:
    """Return the version that a value begins with: `610.57.04 [Deprecated; ...]` is `610.57.04`."""
    match = _VERSION.match(text or "")
    return match[1] if match else ""


def uuid_of(text: str | None) -> str:
    """Return the uuid of a device or a part of it, '' for one that is masked, cut or missing."""
    value = said(text)
    return value if _UUID.fullmatch(value) and not _ZERO.fullmatch(value[4:]) else ""


def old_part(text: str) -> tuple[str, int, int] | None:
    """Return device, instance and compute instance of a uuid of drivers before 470: `MIG-GPU-.../1/0`."""
    match = _OLD_PART_UUID.fullmatch(text)
    return (match[1], int(match[2]), int(match[3])) if match and uuid_of(match[1]) else None


def address_of(text: str | None) -> str:
    """Return the PCI address of a device, '' for what is none; address 0 is a bridge of the host, never a device."""
    address = pci_address(said(text))
    return "" if address == "0000:00:00.0" else address


def serial_of(text: str | None) -> str:
    """Return a serial number, '' for one that is masked by zeros and for what is none."""
    value = said(text)
    return value if _SERIAL.fullmatch(value) and not _ZERO.fullmatch(value) else ""


def integer(text: str | None, most: int = INDEX_MAX) -> int | None:
    """Return a number written in digits alone, None for any other and for one beyond `most`."""
    value = (text or "").strip()
    if not value.isascii() or not value.isdecimal() or len(value) > DIGITS_MAX:
        return None
    return int(value) if int(value) <= most else None


def reading(
    *,
    recognized: bool,
    devices: Iterable[DeviceFacts] = (),
    links: Iterable[LinkFacts] = (),
    processes: Iterable[ProcessFacts] = (),
    findings: Iterable[Finding] = (),
    driver: str = "",
) -> Reading:
    """Return a reading without devices that claim to be the same, and each finding once.

    An output of which nothing was `recognized` and nothing said has a finding too.
    """
    kept, twice = without_duplicates(devices)
    unique = list(dict.fromkeys([*findings, *twice]))
    if not recognized and not unique:
        unique = [Finding(code="unknown_format", text="no heading and no sentence that the tool is known to write")]
    if len(unique) > FINDINGS_MAX:
        more = len(unique) - FINDINGS_MAX
        unique = [*unique[:FINDINGS_MAX], Finding(code="cut", text=f"{more} more findings are left out")]
    return Reading(
        devices=kept,
        links=tuple(links),
        processes=tuple(dict.fromkeys(processes)),
        findings=tuple(unique),
        driver=driver,
    )
