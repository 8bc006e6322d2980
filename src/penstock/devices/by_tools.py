"""What the providers that ask a vendor's tools have in common: questions, answers joined, device files.

Parsers are imported where they are used: an agent loads these modules for variables and files alone.

Outputs name the same device by different numbers. They are joined by uuid or else by PCI address; an index counts only
where it is known to be counted alike. What names a device that the inventory does not have is left out.
"""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices import printed
from penstock.devices.provider import TOOL_LIMIT_S, Machine, Output, Sources
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading, short, whole

OF_OUTPUT = frozenset({"cut", "unreadable", "unknown_format", "duplicate", "parts_unknown"})
"""Findings after which an output may have had more devices, where they name none."""
NUMA_NODE = "/sys/bus/pci/devices/{pci}/numa_node"

FOLDERS = {
    "amd-smi": "/opt/rocm/bin",
    "rocm-smi": "/opt/rocm/bin",
    "npu-smi": "/usr/local/sbin",
    "neuron-ls": "/opt/aws/neuron/bin",
}
"""Where vendors' packages install tools outside of the usual path of services."""

_LAST_NUMBER = re.compile(r"(\d+)$")

Number = tuple[int, int]
"""(major, minor) of a device file."""


class Question(NamedTuple):
    """A command of a vendor's tool, and what reads its output."""

    command: tuple[str, ...]
    parse: Callable[[str], Reading]


def ask(sources: Sources, question: Question) -> Reading:
    """Return what a tool says; that it is missing, hangs or fails is a finding."""
    words = " ".join(question.command)
    tool, *arguments = question.command
    output = sources.run(*question.command)
    if output.missing and tool in FOLDERS:
        output = sources.run(f"{FOLDERS[tool]}/{tool}", *arguments)
    if output.missing:
        return Reading(findings=(_absent(question),))
    if output.timed_out:
        text = f"'{words}' gave no answer within {TOOL_LIMIT_S:g} s"
        return Reading(findings=(Finding(code="tool_timeout", text=text),))
    if output.text.strip() or output.passed:
        reading = question.parse(output.text)
        failed = [] if output.passed or reading.findings else [_failed(words, output)]
        return with_findings(reading, failed)
    said = question.parse(output.error_text).findings if output.error_text.strip() else ()
    known = tuple(finding for finding in said if finding.code not in OF_OUTPUT)
    return Reading(findings=known or (_failed(words, output),))


def _failed(words: str, output: Output) -> Finding:
    """Return a finding for a tool that ended with an error that no parser knows."""
    code = printed.complaint(output.error_text.splitlines()).code
    code = "tool_failed" if code in OF_OUTPUT else code
    return Finding(code=code, text=short(f"'{words}' ended with {output.code}: {output.error_text}"))


def _absent(question: Question) -> Finding:
    return Finding(code="tool_failed", text=f"'{question.command[0]}' is not installed")


def is_whole(reading: Reading) -> bool:
    """Return whether a reading has devices and nothing says that there could be more."""
    doubts = (f for f in reading.findings if f.code in OF_OUTPUT and f.index is None and not f.uuid and not f.pci)
    return bool(reading.devices) and next(doubts, None) is None


def first_of(sources: Sources, questions: Iterable[Question]) -> Reading:
    """Return the first answer that is whole, else the one with the most devices; with the findings of all asked.

    That a tool is missing is no finding where another one has answered.
    """
    best = Reading()
    findings: list[Finding] = []
    missing: list[Finding] = []
    for question in questions:
        reading = ask(sources, question)
        if reading.findings == (_absent(question),):
            missing += reading.findings
            continue
        findings += reading.findings
        if is_whole(reading):
            best = reading
            break
        best = max(best, reading, key=lambda each: (len(each.devices), len(each.processes), len(each.findings)))
    return with_findings(replace(best, findings=()), findings, () if best.devices else missing)


def with_findings(reading: Reading, *more: Iterable[Finding]) -> Reading:
    """Return a reading with further findings, each once."""
    every = (*reading.findings, *(finding for several in more for finding in several))
    return replace(reading, findings=tuple(dict.fromkeys(every)))


def named_as(reading: Reading, known: Sequence[DeviceFacts], *, counted_alike: bool = False) -> Reading:
    """Return a reading with the names that `known` devices have; what is of no such device is left out.

    Args:
        counted_alike: whether its indexes are those of `known`, where it names devices by nothing else.
    Findings keep their text whichever device they are of: one of an unknown device names none.
    """
    owners: dict[int, DeviceFacts] = {}
    devices = []
    for device in reading.devices:
        match = _match(device, known, counted_alike=counted_alike)
        if match is None:
            continue
        if device.index is not None:
            owners[device.index] = match
        devices.append(replace(device, index=match.index, uuid=match.uuid or device.uuid, pci=match.pci or device.pci))
    processes = []
    for process in reading.processes:
        match = _of(process, owners, known, counted_alike=counted_alike)
        if match is not None:
            processes.append(replace(process, index=match.index, uuid=match.uuid, pci=match.pci))
    findings = []
    for finding in reading.findings:
        match = _of(finding, owners, known, counted_alike=counted_alike)
        named = (match.index, match.uuid, match.pci) if match is not None else (None, "", "")
        findings.append(replace(finding, index=named[0], uuid=named[1], pci=named[2]))
    return Reading(devices=tuple(devices), processes=tuple(processes), findings=tuple(findings), driver=reading.driver)


def _match(
    named: DeviceFacts | ProcessFacts | Finding, known: Sequence[DeviceFacts], *, counted_alike: bool
) -> DeviceFacts | None:
    """Return the one known device with these names, None where there is none or they contradict each other."""
    if named.uuid or named.pci:
        matches = [each for each in known if _alike(named.uuid, each.uuid, named.pci, each.pci)]
    elif counted_alike and named.index is not None:
        matches = [each for each in known if each.index == named.index]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None


def _alike(uuid: str, its_uuid: str, pci: str, its_pci: str) -> bool:
    """Return whether names are of one device: one of them is the same, and none is another."""
    told = [(mine, its) for mine, its in ((uuid, its_uuid), (pci, its_pci)) if mine and its]
    return bool(told) and all(mine == its for mine, its in told)


def _of(
    named: ProcessFacts | Finding, owners: dict[int, DeviceFacts], known: Sequence[DeviceFacts], *, counted_alike: bool
) -> DeviceFacts | None:
    if named.uuid or named.pci:
        return _match(named, known, counted_alike=counted_alike)
    return owners.get(-1 if named.index is None else named.index) or _match(named, known, counted_alike=counted_alike)


def joined(inventory: Reading, more: Reading, *, counted_alike: bool = False) -> Reading:
    """Return an inventory with what another reading knows more of the same devices; what it has stays."""
    named = named_as(more, inventory.devices, counted_alike=counted_alike)
    devices = list(inventory.devices)
    for other in more.devices:
        device = _match(other, inventory.devices, counted_alike=counted_alike)
        if device is not None:
            at = inventory.devices.index(device)
            devices[at] = replace(devices[at], **_news(devices[at], other))
    return Reading(
        devices=tuple(devices),
        links=inventory.links,
        processes=tuple(dict.fromkeys((*inventory.processes, *named.processes))),
        findings=tuple(dict.fromkeys((*inventory.findings, *named.findings))),
        driver=inventory.driver or more.driver,
    )


def _news(device: DeviceFacts, other: DeviceFacts) -> dict[str, object]:
    values = ((name, getattr(device, name), getattr(other, name)) for name in DeviceFacts.__struct_fields__)
    return {name: its for name, mine, its in values if mine in (None, "", ()) and its not in (None, "", ())}


def by_address(reading: Reading) -> Reading:
    """Return a reading that names devices by their addresses alone: its indexes are not those of the inventory."""
    known = [replace(device, index=None) for device in reading.devices if device.pci]
    return named_as(reading, known)


def with_numa(sources: Sources, reading: Reading) -> Reading:
    """Return a reading with the NUMA nodes that the kernel knows of devices with an address."""
    devices = []
    for device in reading.devices:
        if device.pci and device.numa_node is None:
            device = replace(device, numa_node=whole(sources.read(NUMA_NODE.format(pci=device.pci))))
        devices.append(device)
    return replace(reading, devices=tuple(devices))


def with_words(reading: Reading) -> Reading:
    """Return an inventory whose devices have their indexes for uuids, for variables that take indexes alone.

    A node counts its devices anew, over all vendors and without those that it cannot offer; the uuid stays.
    """
    devices = tuple(replace(each, uuid="" if each.index is None else str(each.index)) for each in reading.devices)
    return replace(reading, devices=devices)


def in_order(reading: Reading) -> Reading:
    """Return a reading with its devices by index."""
    ordered = sorted(reading.devices, key=lambda device: (device.index is None, device.index or 0, device.pci))
    return replace(reading, devices=tuple(ordered))


def numbered(paths: Iterable[str]) -> list[str]:
    """Return paths that end in numbers, by these numbers; none where they do not count from 0 without a gap."""
    by_number = {int(found[1]): path for path in paths if (found := _LAST_NUMBER.search(path))}
    return [by_number[number] for number in sorted(by_number)] if sorted(by_number) == [*range(len(by_number))] else []


class ByTools:
    """The part of a provider that is alike for all vendors.

    Args:
        root: where the files of this machine are, for `closed_files` and `container_flags`.
    """

    vendor = ""
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    """Patterns of files that are there where such devices or their driver are."""
    open_means_use = False
    """Whether a process that has a file of a device open uses this device: then they are looked for."""
    shared: tuple[str, ...] = ()
    """Device files that every program opens that uses any device; they are never closed."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._machine = Machine(root)
        self._errors: dict[str, int] = {}

    def is_present(self, sources: Sources) -> bool:
        return any(sources.glob(pattern) for pattern in self.signs)

    def counted(self, reading: Reading) -> Reading:
        """Return a reading in which memory errors are news where their count has grown since the last one.

        Drivers count from their start: what stood there before is a warning.
        """
        findings = [each for each in reading.findings if each.code != "ecc_uncorrected" or each.number is not None]
        for device in reading.devices:
            count, name = device.ecc_uncorrected, device.pci or device.uuid or str(device.index)
            if count is None:
                continue
            news = count - self._errors.get(name, count)
            self._errors[name] = count
            text = f"uncorrectable memory errors: {count}"
            named = Finding(code="degraded", text=text, index=device.index, uuid=device.uuid, pci=device.pci)
            if news > 0:
                text = f"uncorrectable memory errors: {news} more, {count} in all"
                findings.append(replace(named, code="ecc_uncorrected", text=text, time_s=time.time()))
            elif count:
                findings.append(named)
        return replace(reading, findings=tuple(findings))

    def own_files(self, sources: Sources) -> list[tuple[str, ...]]:
        """Return the files of each device, in the order of the inventory's indexes; none where that is not sure."""
        return [(path,) for path in numbered(path for pattern in self.files for path in sources.glob(pattern))]

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return the files of the devices that were not given; none where it is not sure which are whose.

        It is sure where devices and files have the same numbers, from 0 without a gap.
        """
        ours = sorted((device for device in here if self._real(device)), key=lambda device: device.index)
        places = {device.index: _number(device, at) for at, device in enumerate(ours)}
        files = [frozenset(self._numbers(paths)) for paths in self.own_files(self._machine)]
        wanted = {device.index for device in given if self._real(device)}
        if sorted(places.values()) != [*range(len(files))] or not all(files) or not wanted <= set(places):
            return ()
        own = {number for index in wanted for number in files[places[index]]}
        return denied({number for its in files for number in its} - own)

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return `--device` for the files of `given`, () if they are unknown.

        Source: docker run reference, --device.
        """
        paths = self.paths_of(given)
        return tuple(f"--device={path}" for path in (*paths, *self._there(self.shared))) if paths else ()

    def words_of(self, given: Iterable[Device]) -> str:
        """Return how a variable lists the given devices of this vendor."""
        return ",".join(device.uuid or str(device.index) for device in given if self._real(device))

    def paths_of(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return the files of `given` devices; () where those of one are unknown."""
        files = self.own_files(self._machine)
        indexes = [_number(device, device.index) for device in given if self._real(device)]
        if any(index >= len(files) for index in indexes):
            return ()
        return tuple(path for index in indexes for path in files[index])

    def _real(self, device: Device) -> bool:
        return device.vendor == self.vendor and not device.simulated

    def _there(self, paths: Iterable[str]) -> Iterator[str]:
        return (path for path in paths if self._machine.glob(path))

    def _numbers(self, paths: Iterable[str]) -> Iterator[Number]:
        for path in paths:
            with contextlib.suppress(OSError):
                about = (self._root / path.lstrip("/")).stat()
                if stat.S_ISCHR(about.st_mode):
                    yield os.major(about.st_rdev), os.minor(about.st_rdev)


def _number(device: Device, else_number: int) -> int:
    """Return the number of a device in its vendor's count, where its uuid tells it (`with_words`)."""
    return int(device.uuid) if device.uuid.isdecimal() and device.uuid.isascii() else else_number


def denied(numbers: Iterable[Number]) -> tuple[str, ...]:
    """Return device files as control groups take them."""
    return tuple(f"c {major}:{minor}" for major, minor in sorted(numbers))
