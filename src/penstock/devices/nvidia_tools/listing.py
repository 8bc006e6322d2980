"""Lists of nvidia-smi: devices and their parts (`-L`), NVLinks (`nvlink -s`, `nvlink -e`), versions (`--version`)."""

import re

import msgspec

from penstock.devices.nvidia_tools.texts import Lines, integer, old_part, reading, sentence, uuid_of, version_of
from penstock.devices.nvidia_tools.values import MASKED, finder
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, Reading, said, short

_GPU = re.compile(r"GPU (\d{1,4}): (\S.{0,120}?) \(UUID: (GPU-\S{1,80})\)\s*")
_PART = re.compile(r"\s+MIG (\S{1,32})\s+Device\s+(\d{1,3}): \(UUID: (MIG-\S{1,80})\)\s*")
_LINK = re.compile(r"\s+Link (\d{1,3}): (<inactive>|\d{1,4}(?:\.\d{1,6})? GB/s)\s*")
_ERRORS = re.compile(r"\s+Link (\d{1,3}): ([A-Z]\w+(?: \w+){0,5}): (\d{1,20}|N/A|<inactive>)\s*")
_VERSION_LINE = re.compile(r"([A-Za-z][\w -]{1,40}?)\s*: ?(\S.*)")
INACTIVE = "<inactive>"
MISSING = "the list is not consecutive: a device is missing"


def listing(text: str) -> Reading:
    """Return the devices of `-L`; their parts are compute instances, without one an instance is not listed.

    Parts follow their device and are counted from 0: where the count has a hole none of the device's parts is taken.
    """
    lines = Lines(text)
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    parts: list[tuple[int, PartFacts]] = []
    for line in lines.whole:
        if device := _named(line):
            _add_parts(devices, parts, findings)
            devices.append(device)
        elif devices and (match := _PART.fullmatch(line)):
            parts.append((int(match[2]), _part(match[1], match[3])))
        elif finding := sentence(line):
            findings.append(finding)
        elif line.strip():
            lines.refuse(line)
    _add_parts(devices, parts, findings)
    findings += [finder(d)("masked", MASKED) for d in devices if not d.uuid]
    if _holes(devices) and not any(f.code == "lost" for f in findings):
        findings.append(Finding(code="cut", text=MISSING))
    return reading(recognized=bool(devices), devices=devices, findings=[*findings, *lines.unreadable()])


def _named(line: str) -> DeviceFacts | None:
    match = _GPU.fullmatch(line)
    return DeviceFacts(index=integer(match[1]), model=said(match[2]), uuid=uuid_of(match[3])) if match else None


def _part(profile: str, uuid: str) -> PartFacts:
    if old := old_part(uuid):
        return PartFacts(profile=profile, uuid=uuid, instance=old[1], compute_instance=old[2])
    return PartFacts(profile=profile, uuid=uuid_of(uuid))


def _add_parts(devices: list[DeviceFacts], parts: list[tuple[int, PartFacts]], findings: list[Finding]) -> None:
    """Give the last device its parts and empty the list of them."""
    if not parts:
        return
    device = devices[-1]
    if [number for number, _ in parts] == list(range(len(parts))):
        facts = tuple(part for _, part in parts)
        devices[-1] = msgspec.structs.replace(device, partitioned=True, parts=facts)
        if any(not part.uuid for part in facts):
            findings.append(finder(device)("masked", "the uuid of a part is masked or cut"))
    else:
        findings.append(finder(device)("unreadable", "its parts (MIG) are not consecutive"))
    parts.clear()


def _holes(devices: list[DeviceFacts]) -> bool:
    return [device.index for device in devices] != list(range(len(devices)))


def nvlink_status(text: str) -> Reading:
    """Return the devices of `nvlink -s`, and a finding for each on which some links are up and others are not.

    A device with no link up has no partner there (no bridge, no switch), which is no fault.
    """
    return _nvlink(text, errors=False)


def nvlink_errors(text: str) -> Reading:
    """Return the devices of `nvlink -e`, and a finding for each on which a link counted errors."""
    return _nvlink(text, errors=True)


def _nvlink(text: str, *, errors: bool) -> Reading:
    lines = Lines(text)
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    links: list[dict[tuple[int, str], str]] = []
    for line in lines.whole:
        if device := _named(line):
            devices.append(device)
            links.append({})
        elif not line.strip():
            continue
        elif devices and (match := (_ERRORS if errors else _LINK).fullmatch(line)):
            key = (int(match[1]), match[2] if errors else "")
            value = match[3] if errors else match[2]
            if links[-1].setdefault(key, value) != value:
                findings.append(finder(devices[-1])("unreadable", f"link {key[0]} is told twice, differently"))
        elif devices and "not supported" in line.lower():
            findings.append(finder(devices[-1])("not_supported", line))
        elif finding := sentence(line):
            findings.append(finding)
        else:
            lines.refuse(line)
    for device, of in zip(devices, links, strict=True):
        findings += _errors(device, of) if errors else _inactive(device, of)
        if not device.uuid:
            findings.append(finder(device)("masked", MASKED))
    if _holes(devices):
        findings.append(Finding(code="cut", text=MISSING))
    return reading(recognized=bool(devices), devices=devices, findings=[*findings, *lines.unreadable()])


def _inactive(device: DeviceFacts, links: dict[tuple[int, str], str]) -> list[Finding]:
    down = sorted(link for (link, _), value in links.items() if value == INACTIVE)
    if not down or len(down) == len(links):
        return []
    return [finder(device)("link_fault", f"{len(down)} of {len(links)} NVLinks inactive: {_numbers(down)}")]


def _errors(device: DeviceFacts, links: dict[tuple[int, str], str]) -> list[Finding]:
    counted = [(link, what, value) for (link, what), value in links.items() if value.strip("0").isdecimal()]
    if not counted:
        return []
    text = ", ".join(f"link {link}: {what} {value}" for link, what, value in counted)
    return [finder(device)("link_fault", short(text))]


def _numbers(links: list[int]) -> str:
    return ", ".join(str(link) for link in links)


def versions(text: str) -> Reading:
    """Return the driver of `--version`; since 610 it is named KMD, and the old name holds a sentence."""
    lines = Lines(text)
    named: dict[str, str] = {}
    findings: list[Finding] = []
    for line in lines.whole:
        if finding := sentence(line):
            findings.append(finding)
        elif match := _VERSION_LINE.fullmatch(line):
            named.setdefault(match[1].strip().lower(), match[2])
        elif line.strip():
            lines.refuse(line)
    found = [*findings, *lines.unreadable()]
    driver = version_of(named.get("kmd version")) or version_of(named.get("driver version"))
    if not driver and named and not found:
        found.append(Finding(code="unknown_format", text="no version of the driver is named"))
    return reading(recognized=bool(driver), findings=found, driver=driver)
