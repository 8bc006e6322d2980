"""Damaged outputs give findings, or the facts of the rows that are whole: never a wrong device, never an exception."""

import random

import pytest

from penstock.devices.reading import ProcessFacts, Reading
from tests.devices.tool_damage import (
    DAMAGES,
    carriage_returns,
    cut_at_byte,
    cut_at_line,
    line_dropped,
    line_moved,
    more_columns,
)
from tests.devices.tool_outputs import PARSERS, codes, read, text_of, told
from tests.properties import LONG

LINE_LOSSES = (cut_at_line, line_dropped, line_moved)
"""Damages that may leave whole rows alone, and a table that ends well: nothing can be seen to be missing."""
OTHER_VENDORS = "lspci"
"""Names an output with lines of other vendors' devices: one that lost its vendor's name is such a line."""
WORDS = ("plain", "smi-info-", "cnmon", "neuron-ls", "query")
TABLES = [name for name in PARSERS if any(word in name for word in WORDS) and "-t-" not in name and "json" not in name]
VARIANTS = 60 if LONG else 3
LATEST = ("use_milli", "power_mw", "clock_mhz", "temperature_c", "memory_used_bytes")
"""Facts of one moment: where outputs have several samples, a shorter one has an earlier moment."""
SAMPLES = ("dump", "details")


def agrees(process: ProcessFacts, other: ProcessFacts) -> bool:
    """Tell whether two are one process; a device, or memory, that is not told agrees with any."""
    device = process.index is None or process.index == other.index
    return process.pid == other.pid and device and process.memory_bytes in (None, 0, other.memory_bytes)


def wrong(name: str, whole: Reading, reading: Reading) -> list[str]:
    """Return the facts of a damaged output that the whole one does not have.

    A process is compared by what the core uses: pid, device and memory.
    """
    past = LATEST if any(word in name for word in SAMPLES) else ()
    devices = [told(device) for device in whole.devices]
    found = []
    for device in reading.devices:
        facts = {fact: value for fact, value in told(device).items() if fact not in past}
        found += [] if any(facts.items() <= other.items() for other in devices) else [str(facts)]
    for process in reading.processes:
        found += [] if any(agrees(process, other) for other in whole.processes) else [str(told(process))]
    return found + [str(link) for link in reading.links if link not in whole.links]


@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_output_gives_no_wrong_device(name):
    whole, text, parse = read(name), text_of(name), PARSERS[name]
    for damage in DAMAGES:
        for number in range(VARIANTS):
            variant = damage(text, random.Random(f"{name} {damage.__name__} {number}"))
            reading = parse(variant)
            assert not wrong(name, whole, reading), (damage.__name__, number, codes(reading))
            fewer = len(reading.devices) < len(whole.devices) and OTHER_VENDORS not in name
            between = damage in LINE_LOSSES or (damage is cut_at_byte and variant.endswith("\n"))
            assert reading.findings or not fewer or between, (damage.__name__, number)


@pytest.mark.parametrize("name", PARSERS)
def test_ends_of_lines_do_not_matter(name):
    assert PARSERS[name](carriage_returns(text_of(name))) == read(name)


@pytest.mark.parametrize("name", TABLES)
def test_a_column_more_changes_nothing(name):
    whole, text = read(name), more_columns(text_of(name))
    reading = PARSERS[name](text)
    assert (reading.devices, reading.processes) == (whole.devices, whole.processes)


@pytest.mark.parametrize("parse", dict.fromkeys(PARSERS.values(), ""))
def test_what_is_too_long_or_empty_or_something_else_is_a_finding(parse):
    long, empty, other = parse("x\n" * (2 * 2**20 + 1)), parse(" \n"), parse("command not found\n")
    assert [codes(reading)[:1] for reading in (long, empty, other)] == [
        ["unreadable"],
        ["unreadable"],
        codes(other)[:1],
    ]
    assert other.findings
    assert not other.devices
