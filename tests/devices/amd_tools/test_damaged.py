"""No damage to an output makes a parser fail, or show a device, a link or a process that is not there."""

import random

import msgspec
import pytest

from penstock.devices.amd_tools.outputs import TEXT_MAX_CHARACTERS
from penstock.devices.reading import FINDINGS, Reading
from tests.devices.amd_tools.damage import DAMAGES, crlf, line_moved, lines_shuffled, some_zeros, zeros
from tests.devices.amd_tools.recordings import NAMES, parser_of, text_of
from tests.properties import LONG

VARIANTS = 60 if LONG else 2
DISORDER = (line_moved, lines_shuffled, zeros, some_zeros)
"""After these a device may look like another one, if a finding says that something is wrong."""
SAME = ("uuid", "pci", "model", "serial", "memory_bytes", "minor")


def wrong(whole: Reading, damaged: Reading) -> list[str]:
    """Return what a reading of a damaged output shows that the whole output does not."""
    by_index = {device.index: device for device in whole.devices}
    links = {(link.device, link.peer): link.kind for link in whole.links}
    processes = {(process.pid, process.index) for process in whole.processes}
    found = [f"device {d.index}" for d in damaged.devices if d.index not in by_index]
    for device in damaged.devices:
        real = by_index.get(device.index, device)
        for name in SAME:
            value = getattr(device, name)
            if value not in ("", None) and value != getattr(real, name):
                found.append(f"{name} of device {device.index}: {value}")
        if {part.index for part in device.parts} - {part.index for part in real.parts}:
            found.append(f"parts of device {device.index}")
    found += [f"link {link}" for link in damaged.links if links.get((link.device, link.peer), link.kind) != link.kind]
    found += [f"process {p.pid} on {p.index}" for p in damaged.processes if (p.pid, p.index) not in processes]
    return found


def as_counted(name: str) -> Reading:
    """Return what stands in a recording, with rows that are not taken for devices because there are too many."""
    parse, text = parser_of(name), text_of(name)
    whole = parse(text)
    if not {finding.code for finding in whole.findings} & {"parts_unknown", "duplicate"}:
        return whole
    return msgspec.structs.replace(whole, devices=parse(text, as_counted=True).devices)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_damage_gives_a_finding_and_never_another_device(damage):
    for name in NAMES:
        parse, text = parser_of(name), text_of(name)
        whole = as_counted(name)
        for seed in range(VARIANTS):
            variant = damage(text, random.Random(f"{damage.__name__} {name} {seed}"))
            read = parse(variant)
            assert all(finding.code in FINDINGS for finding in read.findings)
            excused = damage in DISORDER and set(read.findings) - set(whole.findings)
            assert excused or not wrong(whole, read), f"{name}, seed {seed}"


@pytest.mark.parametrize("name", NAMES)
def test_line_ends_of_windows_change_nothing(name):
    parse, text = parser_of(name), text_of(name)
    assert parse(crlf(text, random.Random(0))) == parse(text)


PARSERS = {parser_of(name): name for name in NAMES}


@pytest.mark.parametrize(("parse", "name"), PARSERS.items(), ids=PARSERS.values())
def test_no_text_is_beyond_a_parser(parse, name):
    deep = "[" * 100_000
    many = text_of(name) * (1 + TEXT_MAX_CHARACTERS // len(text_of(name)))
    quoted = 'device,"\n' + "x,x\n" * 50_000
    numbers = '[{"gpu": ' + "9" * 5_000 + "}]\n"
    for text in (
        "",
        " \n\n",
        "\0",
        "\ufeff",
        deep,
        many,
        numbers,
        '{"card0": NaN}\n',
        "GPU: " + "9" * 40 + "\n",
        quoted,
    ):
        read = parse(text)
        assert not read.devices
        assert read.findings
