"""Output of `nvidia-smi mig`: the facts, and the sentences that stand in place of them."""

import re
from typing import Literal

import msgspec

from penstock.devices.reading import INPUT_MAX, Finding, short

FINDINGS_MAX = 100
"""Of one output."""
LINES_MAX = 20_000
LINE_MAX = 1000
"""Characters of a line of a table."""
N = r"([0-9]{1,4})"
NAME = r"MIG ((?:[0-9]{1,2}c\.)?[0-9]{1,2}g\.[0-9]{1,4}gb(?:[+-][a-z.]{1,16})*)"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of GPU instance that a device can make (`-lgip`)."""

    gpu: int
    """Index of the device."""
    profile: int
    """Its id, which another model or driver may use for another kind."""
    name: str
    """`1g.10gb+me`."""
    free: int
    """How many more could be made now."""
    total: int
    memory_bytes: int | None
    multiprocessors: int | None


class ComputeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of compute instance that a GPU instance can make (`-lcip`)."""

    gpu: int
    instance: int
    profile: int
    """Its id: another numbering than that of GPU instances."""
    name: str
    default: bool
    """Whether `-C` makes this one."""
    free: int
    total: int
    multiprocessors: int | None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where instances of a profile may lie (`-lgipp`): `size` slices of memory from one of `starts` on."""

    gpu: int
    profile: int
    starts: tuple[int, ...]
    size: int


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance (`-lgi`), or a compute instance in one (`-lci`), which alone is a device to programs."""

    gpu: int
    instance: int
    compute_instance: int | None = None
    profile: int
    name: str
    start: int
    size: int
    """Slices [start, start + size): of memory, of a compute instance: those of its GPU instance."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that was made or destroyed."""

    done: Literal["created", "destroyed"]
    gpu: int
    instance: int
    compute_instance: int | None = None
    profile: int | None = None
    """None for one that was destroyed."""
    name: str = ""


Reason = Literal["no_room", "in_use", "not_found", "not_supported", "no_permission", "invalid", "other"]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was not made. The driver's own words are the finding beside it."""

    reason: Reason
    gpu: int | None = None
    instance: int | None = None
    compute_instance: int | None = None
    profile: int | None = None


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """The MIG mode of a device after it was asked to change."""

    pci: str
    wanted: bool | None
    """Whether MIG is to be on; None where the answer does not say."""
    effective: bool
    """False: it waits for a reset or a restart. "All done." says nothing about it."""


class MigReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The whole of one output, in its order."""

    profiles: tuple[Profile, ...] = ()
    compute_profiles: tuple[ComputeProfile, ...] = ()
    placements: tuple[Placement, ...] = ()
    instances: tuple[Instance, ...] = ()
    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    modes: tuple[Mode, ...] = ()
    findings: tuple[Finding, ...] = ()


REASONS: dict[str, Reason] = {
    "insufficient resources": "no_room",
    "in use by another client": "in_use",
    "not found": "not_found",
    "not supported": "not_supported",
    "insufficient permissions": "no_permission",
    "invalid argument": "invalid",
}
EMPTY = re.compile(r"No (?:GPU|compute) instances found: Not Found\.?")
"""No instance: what is asked for is not there, and nothing is wrong."""
_NO_MIG = re.compile(r"No MIG-(?:enabled|supported|capable) devices found\.?")
_FAILED = re.compile(r"Failed to (?:create|destroy|display|get|list)[\w -]{1,60}: (\S.{0,80})")


def sentence(line: str) -> Finding | None:
    """Return the finding of a sentence that is known."""
    if _NO_MIG.fullmatch(line):
        return Finding(code="not_supported", text=short(line))
    if match := _FAILED.fullmatch(line):
        return refused(line, REASONS.get(match[1].rstrip(".").lower(), "other"))
    if line == "No devices were found":
        return Finding(code="no_devices", text=line)
    if "couldn't communicate with the NVIDIA driver" in line:
        return Finding(code="no_driver", text=short(line))
    return None


def refused(line: str, reason: Reason, gpu: int | None = None) -> Finding:
    """Return the finding of something that the driver did not do, in its own words."""
    code = reason if reason in ("no_permission", "not_supported") else "tool_failed"
    return Finding(code=code, text=short(line), index=gpu)


def unread(line: str) -> Finding:
    """Return the finding of a line that says nothing that is known."""
    return Finding(code="unknown_format", text=short(f"a line that could not be read: {line}"))


class Notes:
    """Findings of one output, at most `FINDINGS_MAX`."""

    def __init__(self) -> None:
        self._listed: list[Finding] = []

    @property
    def all(self) -> tuple[Finding, ...]:
        return tuple(self._listed)

    def add(self, finding: Finding) -> None:
        if len(self._listed) < FINDINGS_MAX:
            self._listed.append(finding)


def lines_of(text: str, notes: Notes) -> list[str]:
    """Return the lines that say something.

    The tool ends each line: a last one without an end is cut, and its last number may be.
    """
    if len(text) > INPUT_MAX:
        notes.add(Finding(code="unreadable", text=f"more than {INPUT_MAX:,} characters"))
        return []
    if not text.strip():
        notes.add(Finding(code="unreadable", text="the output is empty"))
        return []
    if text.count("\n") > LINES_MAX:
        notes.add(Finding(code="unreadable", text=f"more than {LINES_MAX:,} lines"))
        return []
    *lines, last = text.split("\n")
    if last.strip():
        notes.add(Finding(code="cut", text=short(f"the last line has no end: {last[:LINE_MAX]}")))
    return [stripped for line in lines if (stripped := line.strip())]
