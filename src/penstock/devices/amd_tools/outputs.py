"""What all outputs of AMD's tools share: whole lines, JSON, what tools say of errors, and the end of a reading."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, ProcessFacts, Reading, short

TEXT_MAX_CHARACTERS = 4 * 2**20
LINE_MAX_CHARACTERS = 8192
DEPTH_MAX = 12
FINDINGS_MAX = 64
DIGITS_MAX = 5
"""Of an index."""

_OMITTED = re.compile(r"\s*(\.\.\.|\[output truncated\])\s*")
_ERRORS = (
    ("no_permission", r"permission denied|render group|requires (root|sudo)|insufficient permission"),
    ("no_driver", r"driver not (initialized|loaded)|amdgpu not found|modprobe amdgpu|/sys/module/amdgpu"),
    ("no_devices", r"no (amd )?gpus?\b.{0,20}(found|detected)|unable to detect any gpu"),
    ("not_supported", r"not supported"),
    ("tool_failed", r"error code: ?-?\d+|\berror\b|can ?not find a device|amdsmi_status|traceback|command not found"),
)
_ERROR_NUMBER = re.compile(r"error code: ?(-?\d{1,6})\b", re.IGNORECASE)
_ERROR_GPU = re.compile(r"GPU\[(\d{1,5})\]")
_ERROR_FORMS = [(code, re.compile(form, re.IGNORECASE)) for code, form in _ERRORS]


_JSON = re.compile(r"^[ \t]*[\[{][ \t\r]*(?:[\"\[{\]}].*)?$", re.MULTILINE)


class NotRead(Exception):
    """Says why an output as a whole was not read."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.finding = Finding(code=code, text=text)


def check_size(text: str) -> None:
    """Raise NotRead for an output without text or with too much of it."""
    if len(text) > TEXT_MAX_CHARACTERS:
        raise NotRead("unreadable", f"the output has {len(text)} characters, more than {TEXT_MAX_CHARACTERS}")
    if not text.strip():
        raise NotRead("unreadable", "the output is empty")


def whole_lines(text: str) -> tuple[list[str], list[Finding]]:
    """Return the lines that are whole, others as '', with findings for those.

    Tools end each line: a last one without an end was cut. Raises NotRead as `check_size`.
    """
    check_size(text)
    findings = []
    lines = text.removeprefix("\ufeff").split("\n")
    if lines.pop():
        findings.append(Finding(code="cut", text="the last line has no end"))
    unreadable = omitted = 0
    for at, line in enumerate(lines):
        line = line.removesuffix("\r").expandtabs(4)
        if len(line) > LINE_MAX_CHARACTERS or not line.isprintable():
            unreadable += 1
            line = ""
        elif _OMITTED.fullmatch(line):
            omitted += 1
            line = ""
        lines[at] = line.rstrip()
    if unreadable:
        findings.append(Finding(code="unreadable", text=f"lines too long or with characters of no text: {unreadable}"))
    if omitted:
        findings.append(Finding(code="cut", text="the output says that lines were left out"))
    return lines, findings


def is_json(text: str) -> bool:
    """Return whether an output is JSON, perhaps behind warnings."""
    return _JSON.search(text.removeprefix("\ufeff")) is not None


def read_json(text: str) -> Any:
    """Return a value of JSON, lines before it (warnings) skipped; raises NotRead.

    A key that stands twice with different values makes it unreadable: neither can be trusted.
    """
    check_size(text)
    begin = _JSON.search(text.removeprefix("\ufeff"))
    if begin is None:
        raise NotRead("unreadable", "the output has no JSON")
    try:
        return json.loads(text.removeprefix("\ufeff")[begin.start() :], object_pairs_hook=_without_conflicts)
    except json.JSONDecodeError as error:
        raise NotRead("unreadable", f"no valid JSON: line {error.lineno}: {short(error.msg)}") from None
    except (ValueError, RecursionError) as error:
        raise NotRead("unreadable", f"no valid JSON: {short(str(error))}") from None


def _without_conflicts(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs) and any(values[name] != value for name, value in pairs):
        raise ValueError("a key stands twice with different values")
    return values


def errors_said(lines: Iterable[str]) -> list[Finding]:
    """Return what tools say of errors in lines that hold no facts."""
    findings = []
    for line in lines:
        code = next((code for code, form in _ERROR_FORMS if form.search(line)), None)
        if code is None or " = " in line:  # a legend
            continue
        number, gpu = _ERROR_NUMBER.search(line), _ERROR_GPU.search(line)
        findings.append(
            Finding(
                code=code,
                text=short(line),
                number=int(number[1]) if number else None,
                index=int(gpu[1]) if gpu else None,
            )
        )
    return findings


def index_of(text: str) -> int | None:
    """Return an index of a device."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None


def reading(
    *,
    devices: Iterable[DeviceFacts] = (),
    links: Sequence[LinkFacts] = (),
    processes: Sequence[ProcessFacts] = (),
    findings: Sequence[Finding] = (),
    driver: str = "",
) -> Reading:
    """Return a reading in the order of the indexes; one that tells nothing says so by a finding."""
    ordered = tuple(sorted(devices, key=lambda each: (each.index is None, each.index or 0, each.pci, each.uuid)))
    listed = list(dict.fromkeys(findings))
    if len(listed) > FINDINGS_MAX:
        more = f"further findings: {len(listed) - FINDINGS_MAX}"
        listed = [*sorted(listed, key=lambda each: each.effect)[:FINDINGS_MAX], Finding(code="unreadable", text=more)]
    if not ordered and not links and not processes and not listed and not driver:
        listed.append(Finding(code="unknown_format", text="nothing that is known stands in the output"))
    return Reading(
        devices=ordered, links=tuple(links), processes=tuple(processes), findings=tuple(listed), driver=driver
    )
