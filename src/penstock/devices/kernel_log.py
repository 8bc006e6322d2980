"""Errors of devices in a kernel log: Xid and SXid of NVIDIA, starts that fail, hung tools, Intel Gaudi.

`KernelLog` takes line after line with bounded memory; `read` takes a whole log. Lines may come from dmesg in any of its
forms, from syslog, from `/dev/kmsg` and from the log of NVIDIA's fabric manager. Only what the kernel wrote counts: a
line under another name, or a record that a program put into `/dev/kmsg`, closes no device.

A cause is distinguished from its consequences: channels removed after an error (Xid 45), errors of a device that has
fallen off the bus, and errors of NVSwitches after it, are `follow_up`. Lines that say the same of the same device and
process within a moment are one finding.
"""

import re
from collections import OrderedDict
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.devices import xids
from penstock.devices.reading import INPUT_MAX, DeviceFacts, Finding, Reading, pci_address, short

MOMENT_S = 1.0
"""Equal lines that are no further apart are one finding."""
FOLLOW_S = 60.0
"""How long after a cause an error may follow from it."""
LINE_MAX = 2048
"""Characters of a line that are looked at."""
REMEMBERED = 4096
"""Findings, devices and causes that are remembered at most, each."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Clock = Literal["none", "boot", "unix", "year", "arrival"]


class Time(NamedTuple):
    """When a line was written, by one of the clocks of a log; times of different clocks are never compared."""

    clock: Clock
    seconds: float

    @property
    def told(self) -> float | None:
        """As `Finding.time_s` has it."""
        return self.seconds if self.clock in ("boot", "unix") else None

    def since(self, other: "Time") -> float | None:
        """Return the seconds since `other`; None where the clocks differ; 0 where a line has no time."""
        if "none" in (self.clock, other.clock):
            return 0.0
        return self.seconds - other.seconds if self.clock == other.clock else None


class _Error(NamedTuple):
    """What a line says, before it is known whether it is news."""

    finding: Finding
    same: Hashable = ""
    """Beside device, number and process: what makes two lines say the same; '' for details of any line before."""


class KernelLog:
    """Findings of a kernel log that is read line after line."""

    def __init__(self) -> None:
        self.driver = ""
        """Version of NVIDIA's kernel module, once it was told."""
        self._seen: OrderedDict[Hashable, Time] = OrderedDict()
        self._causes: OrderedDict[str, Time] = OrderedDict()
        self._lost: OrderedDict[str, Time] = OrderedDict()
        self._last_lost: dict[Clock, Time] = {}
        self._uuids: OrderedDict[str, str] = OrderedDict()
        self._gaudi: OrderedDict[int, DeviceFacts] = OrderedDict()

    @property
    def devices(self) -> tuple[DeviceFacts, ...]:
        """Devices whose driver said that it has added them (Intel Gaudi), by index."""
        return tuple(facts for _, facts in sorted(self._gaudi.items()) if facts.pci)

    def take(self, line: str, now_s: float | None = None) -> Finding | None:
        """Return what is new in a line, if anything.

        Args:
            line: with or without its end; what is beyond `LINE_MAX` characters is not looked at.
            now_s: when it came (seconds of any steady clock), for lines without a time: else they are taken for equal
                ones of the same moment.
        """
        line = line[:LINE_MAX].partition("\n")[0].rstrip("\r")
        head = _head(line) if _MARK.search(line) else None
        if head is None:
            return None
        when, message = head
        if when.clock == "none" and now_s is not None:
            when = Time("arrival", now_s)
        self._learn(message)
        error = _error(message)
        return self._news(error, when) if error is not None else None

    def _learn(self, message: str) -> None:
        """Keep facts of devices that later lines name by their address only."""
        if match := _UUID.fullmatch(message):
            _remember(self._uuids, pci_address(match[1]), match[2])
        elif match := _DRIVER.match(message):
            self.driver = match[1]
        elif match := _GAUDI.fullmatch(message):
            index = int(match[1])
            facts = self._gaudi.get(index, DeviceFacts(index=index))
            if found := _GAUDI_MODEL.fullmatch(match[2]):
                facts = replace(facts, model=found[1], memory_bytes=int(found[2]) * 2**30)
            elif found := _GAUDI_ADDED.fullmatch(match[2]):
                facts = replace(facts, pci=pci_address(found[1]))
            _remember(self._gaudi, index, facts)

    def _news(self, error: _Error, when: Time) -> Finding | None:
        finding = error.finding
        if self._follows(finding, when):
            finding = replace(finding, code="follow_up", text=short(f"after an earlier error: {finding.text}"))
        elif finding.code == "lost":
            _remember(self._lost, finding.pci, when)
            self._last_lost[when.clock] = when
        elif finding.number is not None and finding.number != xids.CLEAN_UP:
            _remember(self._causes, finding.pci, when)
        what = finding.number if finding.number is not None and finding.code != "lost" else finding.code
        rough = (finding.pci, what, finding.instance, finding.pid)
        before = self._seen.get((*rough, error.same))
        if before is not None and _within(before, when, MOMENT_S):
            return None
        _remember(self._seen, (*rough, error.same), when)
        _remember(self._seen, (*rough, ""), when)
        gaudi = self._gaudi.get(finding.index) if finding.index is not None else None
        pci = gaudi.pci if gaudi is not None else finding.pci
        return replace(finding, time_s=when.told, pci=pci, uuid=self._uuids.get(pci, ""))

    def _follows(self, finding: Finding, when: Time) -> bool:
        """Whether an error is the consequence of one that was seen."""
        if finding.number is None or finding.code == "lost" or finding.number == xids.RECOVERY:
            return False
        if finding.number >= xids.SWITCH_FIRST:
            return any(_within(lost, when, FOLLOW_S) for lost in self._last_lost.values())
        if (lost := self._lost.get(finding.pci)) is not None and _within(lost, when, FOLLOW_S):
            return True
        cause = self._causes.get(finding.pci)
        return finding.number == xids.CLEAN_UP and cause is not None and _within(cause, when, FOLLOW_S)


def read(text: str) -> Reading:
    """Return the findings of a whole log, oldest line first, and the devices and driver that it names."""
    if len(text) > INPUT_MAX:
        return Reading(findings=(Finding(code="unreadable", text=f"more than {INPUT_MAX:,} characters"),))
    log = KernelLog()
    findings = tuple(finding for line in text.split("\n") if (finding := log.take(line)) is not None)
    return Reading(devices=log.devices, findings=findings, driver=log.driver)


def _remember(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)


def _within(before: Time, when: Time, seconds: float) -> bool:
    """Whether `when` is at most `seconds` after; lines of a moment may be out of order, another boot's are not near."""
    since = when.since(before)
    return since is not None and -MOMENT_S <= since <= seconds


# The head of a line: what stands before the kernel's own words.

_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_DAY = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_SPACE = re.compile(r"[\s*]+")
_RECORD = re.compile(r"([0-9]{1,5}),[0-9]{1,20},([0-9]{1,17}),[^;\n]{0,64};")
_LEVEL = re.compile(r"<([0-9]{1,3})>")
_DECODED = re.compile(r"([a-z0-9]{2,9})\s*:([a-z]{3,7})\s*:\s")
_SECONDS = re.compile(r"\[ *([0-9]{1,12}\.[0-9]{1,9})\]")
_THREAD = re.compile(r"\[ *[TC][0-9]{1,9}\]")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?(?=\s)")
_CTIME = re.compile(
    rf"\[[A-Z][a-z]{{2}} (?P<month>[A-Z][a-z]{{2}}) +(?P<day>[0-9]{{1,2}}) {_DAY} (?P<year>[0-9]{{4}})\]"
)
_FABRIC = re.compile(rf"\[(?P<month>[A-Z][a-z]{{2}}) +(?P<day>[0-9]{{1,2}}) (?P<year>[0-9]{{4}}) {_DAY}\]")
_SYSLOG = re.compile(rf"(?P<month>[A-Z][a-z]{{2}}) +(?P<day>[0-9]{{1,2}}) {_DAY}(?=\s)")
_TAG = re.compile(r"(?:[\w.:-]{1,255} )?kernel:(?=\s)")
_NO_TIME = Time("none", 0.0)
_LEAP_YEAR = 2024
"""For lines without a year: their times are only compared with each other."""


def _head(line: str) -> tuple[Time, str] | None:
    """Return when a line was written, and what follows its head; None for a line that the kernel did not write."""
    at, when = 0, _NO_TIME
    for _ in range(8):
        if found := _SPACE.match(line, at):
            at = found.end()
        step = _step(line, at)
        if step is None:
            break
        at, new = step
        if new is None:
            return None
        if new.clock == "boot" or when.clock == "none":
            when = new
    return when, line[at:].rstrip(" *")


def _step(line: str, at: int) -> tuple[int, Time | None] | None:
    """Return the end and the time of one part of a head; no time at all for a record that a program wrote."""
    if found := _RECORD.match(line, at):
        kernel = int(found[1]) >> 3 == 0
        return found.end(), Time("boot", int(found[2]) / 1e6) if kernel else None
    if found := _LEVEL.match(line, at):
        return found.end(), _NO_TIME if int(found[1]) >> 3 == 0 else None
    if found := _DECODED.match(line, at):
        return found.end(), _NO_TIME if found[1] == "kern" else None
    if found := _SECONDS.match(line, at):
        return found.end(), Time("boot", float(found[1]))
    if found := _ISO.match(line, at):
        return found.end(), _iso(found[0])
    for pattern in (_CTIME, _FABRIC, _SYSLOG):
        if found := pattern.match(line, at):
            return found.end(), _calendar(found.groupdict())
    if found := _THREAD.match(line, at) or _TAG.match(line, at):
        return found.end(), _NO_TIME
    return None


def _iso(text: str) -> Time:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return _NO_TIME
    return Time("unix", (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp())


def _calendar(parts: dict[str, str]) -> Time:
    """Return the time of a stamp without a zone, which is taken for UTC."""
    numbers = (int(parts.get("year") or _LEAP_YEAR), _MONTHS.find(parts["month"]) // 3 + 1)
    try:
        when = datetime(
            *numbers, int(parts["day"]), int(parts["hour"]), int(parts["minute"]), int(parts["second"]), tzinfo=UTC
        )
    except ValueError:
        return _NO_TIME
    return Time("unix" if parts.get("year") else "year", when.timestamp())


# What the kernel said.

_MARK = re.compile(
    r"NVRM|Xid \(|nvidia-peermem|habanalabs|accel|INFO: task|\] \[(?:ERROR|CRITICAL)\]|^\[(?:ERROR|CRITICAL)\]"
)
"""In each line that is worth a closer look."""
_ADDRESS = r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:([0-9]{{1,4}}))?(?: GPU-CI:[0-9]{{1,4}})?\): ([0-9]{{1,4}}),(.*)"
)
_PROCESS = re.compile(r" *pid=(?:([0-9]{1,10})|'?<unknown>'?),(?: *name=([^,]{1,64}),)?(.*)")
_FATAL = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)
_LINK = re.compile(r"\blink ([0-9]{1,3})\b", re.IGNORECASE)
_RESET = re.compile(r"\bRST: Yes\b")
_RETIRED = re.compile(r"\bpage retirement\b|\bretired page\b|\bpage retired\b", re.IGNORECASE)
_RECOVERY = re.compile(r"recovery action changed from 0x[0-9a-fA-F]{1,4} \([^)]*\) to 0x([0-9a-fA-F]{1,4}) \([^)]+\)")
_SXID = re.compile(rf"nvidia-nvswitch[0-9]{{1,3}}: SXid \((?:PCI:)?{_ADDRESS}\): ([0-9]{{1,6}}), (.*)")
_DETAIL = re.compile(r"(?:Severity [0-9]|Data \{)")
_SWITCH = re.compile(
    rf"\[(?:ERROR|CRITICAL)\] (?:\[tid [0-9]+\] )?detected NVSwitch (non-fatal|fatal) error ([0-9]{{1,6}}) .*"
    rf"NVSwitch pci bus id {_ADDRESS}(?= )(?:.* port ([0-9]{{1,3}})\b)?.*",
    re.IGNORECASE,
)
_UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (GPU-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})")
_DRIVER = re.compile(
    r"NVRM: loading NVIDIA UNIX (?:\w{1,20} ){0,2}Kernel Module(?: for \w{1,20})? +([0-9]{3}(?:\.[0-9]{1,3}){1,2})\s"
)
_GAUDI = re.compile(r"(?:habanalabs|accel) (?:hl|accel)([0-9]{1,4}): (.*)")
_GAUDI_MODEL = re.compile(r"Found (\w{1,32}) device with ([0-9]{1,5})GB DRAM")
_GAUDI_ADDED = re.compile(rf"Successfully added device {_ADDRESS} to habanalabs driver")
_GAUDI_HEART = re.compile(r"device heartbeat failed!?(?: PCI link is (\w+))?", re.IGNORECASE)
_GAUDI_START = re.compile(r"failed to (?:initiali[sz]e|init) (?:the )?(?:H/W|hw|hardware)\b.*", re.IGNORECASE)
_HUNG = re.compile(r"INFO: task (nvidia-smi|amd-smi|rocm-smi|npu-smi|hl-smi):([0-9]{1,10}) blocked for more than .*")
_OTHERS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(rf"NVRM: GPU {_ADDRESS}: GPU has fallen off the bus\.?"), "lost", "device has fallen off the bus"),
    (
        re.compile(rf"NVRM: GPU {_ADDRESS}: (?:RmInitAdapter|rm_init_adapter) failed.*"),
        "init_failed",
        "the driver cannot start the device",
    ),
    (
        re.compile(rf"NVRM: Rate limiting GSP RPC error prints for GPU at (?:PCI:)?{_ADDRESS} .*"),
        "reset_required",
        "the GPU System Processor does not answer again and again (reset the device)",
    ),
    (re.compile(r"NVRM: knvlink\w*: ?().*[Ff]ailed.*"), "link_fault", "NVLink did not come up"),
    (re.compile(r"NVRM: RmFetchGspRmImages: ?().*"), "driver_fault", "the firmware of the driver is missing"),
    (re.compile(r"NVRM: API mismatch: ?().*"), "driver_mismatch", "kernel module and libraries differ in version"),
    (re.compile(r"nvidia-peermem \w+:[0-9]+ ERROR().*"), "driver_fault", "error of direct access between devices"),
    (re.compile(r"\[(?:ERROR|CRITICAL)\] ().*"), "tool_failed", "error of the fabric manager"),
)
_BROKEN = re.compile(r"\bS?Xid \(")


def _error(message: str) -> _Error | None:
    """Return the error that a message of the kernel tells, if any."""
    if not message.replace("\t", " ").isprintable():  # the kernel writes none such: a word of it may be lost
        return _broken(message)
    if match := _XID.fullmatch(message):
        return _xid(match)
    if match := _SXID.fullmatch(message):
        number, said = int(match[2]), match[3]
        link = _LINK.search(said)
        same = "" if _DETAIL.match(said) else f"link {link[1] if link else ''}"
        fatal = _fatal(said)
        fatal = number in xids.SWITCH_FATAL if fatal is None else fatal
        return _switch(number, match[1], fatal=fatal, said=said, same=same)
    if match := _SWITCH.fullmatch(message):
        said = message.split("] ")[-1]
        return _switch(int(match[2]), match[3], fatal=match[1].lower() == "fatal", said=said, same=f"link {match[4]}")
    if match := _GAUDI.fullmatch(message):
        return _gaudi(int(match[1]), match[2])
    if match := _HUNG.fullmatch(message):
        text = f"{match[1]} ({match[2]}) hangs in the driver: {message.removeprefix('INFO: task ')}"
        return _Error(Finding(code="tool_timeout", text=short(text), pid=int(match[2])))
    return _other(message)


def _xid(match: re.Match[str]) -> _Error | None:
    number, rest = int(match[3]), match[4]
    process = _PROCESS.fullmatch(rest)
    pid, name, said = (process[1], process[2], process[3]) if process else (None, None, rest)
    xid = _meaning(number, said)
    if not xid.code:
        return None
    by = f" by {name} ({pid})" if name and pid else f" by process {pid}" if pid else ""
    link = _LINK.search(said) if number in xids.LINK_XIDS else None
    finding = Finding(
        code=xid.code,
        text=short(f"Xid {number}{by}: {xids.text_of(xid)}; {said}".rstrip("; ")),
        pci=pci_address(match[1]),
        number=number,
        pid=int(pid) if pid else None,
        instance=int(match[2]) if match[2] else None,
    )
    return _Error(finding, same=link[1] if link else xid.meaning)


def _meaning(number: int, said: str) -> xids.Xid:
    """Return what a number means, by the text of its line where that decides."""
    xid = xids.XIDS.get(number, xids.OTHER)
    if number in xids.LINK_XIDS:
        return xids.FATAL_LINK if _fatal(said) else xid
    if number == xids.CONTAINED and _RESET.search(said):
        return xids.XIDS[95]
    if number == xids.REMAPPED and _RETIRED.search(said):
        return xid._replace(code="page_retirement_pending", meaning="memory pages wait to be retired")
    if number == xids.RECOVERY:
        match = _RECOVERY.search(said)
        if match is None:
            return xid._replace(code="cut", meaning="recovery action that could not be read")
        return xids.RECOVERY_ACTIONS.get(int(match[1], 16), xid)
    return xid


def _fatal(said: str) -> bool | None:
    """Whether a line says that its error is fatal; None where it does not say."""
    match = _FATAL.search(said)
    return None if match is None else not match[1]


def _switch(number: int, address: str, *, fatal: bool, said: str, same: str) -> _Error:
    xid = xids.SWITCH_FAULT if fatal or number == xids.SWITCH_RESET_ALL else xids.SWITCH_WARNING
    text = short(f"SXid {number}: {xids.text_of(xid)}; {said}")
    return _Error(Finding(code=xid.code, text=text, pci=pci_address(address), number=number), same=same)


def _gaudi(index: int, said: str) -> _Error | None:
    if heart := _GAUDI_HEART.fullmatch(said):
        code = "lost" if heart[1] == "broken" else "firmware_fault"
        return _Error(Finding(code=code, text=short(said), index=index), same=index)
    if _GAUDI_START.fullmatch(said):
        return _Error(Finding(code="init_failed", text=short(said), index=index), same=index)
    return None


def _other(message: str) -> _Error | None:
    for pattern, code, meaning in _OTHERS:
        if match := pattern.fullmatch(message):
            text = short(f"{meaning}; {message.removeprefix('NVRM: ')}")
            return _Error(Finding(code=code, text=text, pci=pci_address(match[1])), same=meaning)
    return _broken(message)


def _broken(message: str) -> _Error | None:
    if not _BROKEN.search(message):
        return None
    code = "cut" if message.startswith(("NVRM: Xid", "nvidia-nvswitch")) else "unknown_format"
    return _Error(Finding(code=code, text=short(f"an error that could not be read: {message}")))
