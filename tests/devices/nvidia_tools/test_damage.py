"""What a damaged recording may still say: facts of the whole one or a finding, never another device, no exception.

Each recording is damaged in each way with seeded chance; more often in the long profile.
"""

import random
import re
from collections.abc import Callable

import pytest

from penstock.devices.reading import FINDINGS, DeviceFacts, Reading
from tests.devices.nvidia_tools.recorded import names, parser, text
from tests.properties import LONG

ROUNDS = 20 if LONG else 1
LARGE, ROUNDS_LARGE = 30_000, 8 if LONG else 1
Damage = Callable[[str, random.Random], str]


def cut_anywhere(whole: str, chance: random.Random) -> str:
    return whole[: chance.randrange(len(whole))]


def cut_at_a_line(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    return "".join(lines[: chance.randrange(len(lines))])


def head_cut(whole: str, chance: random.Random) -> str:
    return whole[chance.randrange(len(whole)) :]


def lines_dropped(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 3))):
        if lines:
            del lines[chance.randrange(len(lines))]
    return "".join(lines)


def line_doubled(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return "".join([*lines[: at + 1], *lines[at:]])


def lines_swapped(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    one = chance.randrange(len(lines))
    other = min(len(lines) - 1, one + chance.choice((1, 1, 2, 5)))
    lines[one], lines[other] = lines[other], lines[one]
    return "".join(lines)


def shuffled(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    chance.shuffle(lines)
    return "".join(lines)


def nul_inside(whole: str, chance: random.Random) -> str:
    at = chance.randrange(len(whole))
    return f"{whole[:at]}\0{whole[at:]}"


def long_line(whole: str, chance: random.Random) -> str:
    lines = whole.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    filler = chance.choice(("x", " ", "| ", ", ", "0", ": ")) * 50_000
    lines[at] = f"{lines[at].rstrip()}{filler}\n"
    return "".join(lines)


_VALUE = re.compile(r"(?<![\w.:-])\d+(?= ?(?:MiB|MHz|%|W|C)\b)|(?<=>)\d+(?=<)|(?<=[:,] )\d+(?=,|$)", re.MULTILINE)


def zeros(whole: str, chance: random.Random) -> str:
    return _VALUE.sub(lambda match: "0".rjust(len(match[0])) if chance.random() < 0.9 else match[0], whole)


def nothing_told(whole: str, chance: random.Random) -> str:
    return _VALUE.sub(lambda match: "N/A" if chance.random() < 0.9 else match[0], whole)


def translated(whole: str, chance: random.Random) -> str:
    for old, new in (
        ("Unable to determine the device handle for", "Gerätezugriff nicht möglich auf"),
        ("Unknown Error", "Unbekannter Fehler"),
        ("No devices were found", "Keine Geräte"),
        ("mismatch", "stimmen nicht überein"),
        ("Enabled", "Aktiviert"),
        ("N/A", "k.A."),
    ):
        whole = whole.replace(old, new)
    return whole


DAMAGES: tuple[Damage, ...] = (
    cut_anywhere,
    cut_at_a_line,
    head_cut,
    lines_dropped,
    line_doubled,
    lines_swapped,
    shuffled,
    nul_inside,
    long_line,
    zeros,
    nothing_told,
    translated,
)
FRAMED = ("nvidia-smi-q-", "nvidia-smi-plain-")
"""Outputs whose frame tells that a device is missing; the others have a row for each device and end anywhere."""


HEADLESS = ("nvidia-smi-query-mig-1.csv",)
"""Rows without a heading that begin with a name: what is cut off its front cannot be seen."""


def identity(device: DeviceFacts) -> tuple[object, ...]:
    return device.index, device.uuid, device.pci, device.model, device.serial, device.minor, device.memory_bytes


def within(device: DeviceFacts, whole: DeviceFacts) -> bool:
    """Return whether a device tells nothing of what it is that the whole one does not."""
    pairs = zip(identity(device), identity(whole), strict=True)
    memory = {(part.profile, part.uuid, part.instance, part.compute_instance) for part in whole.parts}
    own = {(part.profile, part.uuid, part.instance, part.compute_instance) for part in device.parts}
    return all(one in ("", None) or one == other for one, other in pairs) and own <= memory


def damaged(name: str, damage: Damage) -> list[str]:
    whole = text(name)
    rounds = ROUNDS if len(whole) < LARGE else ROUNDS_LARGE
    return [damage(whole, random.Random(f"{name} {damage.__name__} {n}")) for n in range(rounds)]


def check(name: str, damage: Damage, variant: str, whole: Reading) -> None:
    reading = parser(name)(variant)
    assert all(finding.code in FINDINGS and len(finding.text) <= 200 for finding in reading.findings)
    for device in reading.devices:
        if damage in (zeros, nothing_told):
            same = [other for other in whole.devices if {device.uuid, device.pci} & {other.uuid, other.pci} - {""}]
            assert all(device.model in ("", other.model) for other in same)
            assert all(device.memory_bytes in (None, other.memory_bytes) for other in same)
        else:
            assert any(within(device, other) for other in whole.devices), (variant, device)
    missing = len(whole.devices) - len(reading.devices)
    if name.startswith(FRAMED) and missing > 0:
        assert reading.findings, variant
    known = {process.pid for process in whole.processes}
    assert damage in (zeros, nothing_told) or {process.pid for process in reading.processes} <= known


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_output_tells_no_other_device(damage):
    for name in names():
        whole = parser(name)(text(name))
        if damage is head_cut and name in HEADLESS:
            continue
        for variant in damaged(name, damage):
            check(name, damage, variant, whole)


def crlf(whole: str) -> str:
    return whole.replace("\n", "\r\n")


def decimal_comma(whole: str) -> str:
    return re.sub(r"(?<![\d.])(\d+)\.(\d\d)(?![\d.])", r"\1,\2", whole)


def future_fields(whole: str) -> str:
    """Put a field that nobody knows behind fields of the XML and the text, and a column into a CSV."""
    whole = re.sub(r"(</(?:uuid|total|pid|gpu_temp|current_mig)>)", r"\1<flux><now>7 T</now></flux>", whole)
    return re.sub(r"(?m)^( +)(Serial Number|Total|Index|Product Name)( +:.*\n)", r"\1\2\3\1Flux\3", whole)


@pytest.mark.parametrize("change", [crlf, decimal_comma, future_fields])
def test_a_harmless_change_of_an_output_changes_nothing(change):
    for name in names():
        if change is decimal_comma and ("topo" in name or "version" in name):
            continue
        changed, whole = parser(name)(change(text(name))), parser(name)(text(name))
        assert [identity(device) for device in changed.devices] == [identity(device) for device in whole.devices], name
        assert changed == whole or change is not crlf, name
        assert [f.code for f in changed.findings] == [f.code for f in whole.findings], name


def test_a_column_of_the_future_changes_no_device():
    for name in (name for name in names() if "query-gpu" in name or "apps" in name):
        whole = text(name)
        first, *rows = whole.splitlines()
        added = "\n".join([f"flux [T], {first}", *(f"7 T, {row}" for row in rows)]) + "\n"
        assert parser(name)(added) == parser(name)(whole)
