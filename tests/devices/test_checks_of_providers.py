"""`check_provider` passes a provider that keeps the rules, and says which rule another breaks."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock.devices.provider import Output
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, ProcessFacts, Reading
from penstock.testing.devices import Recorded, check_inventory, check_provider, with_damage

LIST = ("acme-smi", "-l")
TEXT = "0 ACME-A 40\n1 ACME-B 40\n"
EXPECTED = [DeviceFacts(index=0, uuid="ACME-A"), DeviceFacts(index=1, uuid="ACME-B", memory_bytes=40)]


class Acme:
    """Takes whole lines of its tool, unless a test changes what it takes of them."""

    vendor, variables, files = "acme", ("ACME_CARDS",), ("/dev/acme[0-9]*",)

    def __init__(self, change: Callable[[Reading], Reading] = lambda reading: reading, *, only_whole: bool = True):
        self.change, self.only_whole = change, only_whole

    def is_present(self, sources):
        return bool(sources.glob(self.files[0]))

    def inventory(self, sources):
        output = sources.run(*LIST)
        lines = output.text.splitlines(keepends=True) if output.passed else []
        whole = [line for line in lines if line.endswith("\n") or not self.only_whole]
        rows = [line.split() for line in whole]
        return self.change(
            Reading(
                devices=tuple(
                    DeviceFacts(index=at, uuid=row[1], memory_bytes=int(row[2])) for at, row in enumerate(rows)
                )
            )
        )

    def sample(self, sources):
        return self.inventory(sources)

    def closed_files(self, given, here):
        return ()

    def container_flags(self, given):
        return ()


def sources():
    return Recorded({LIST: TEXT}, {"/dev/acme0": "", "/sys/class/acme/acme0/name": "A\n"})


def changed(**facts):
    """Return what makes a reading whose second device has other facts."""
    return lambda reading: replace(
        reading, devices=tuple(replace(d, **facts) if d.index == 1 else d for d in reading.devices)
    )


def added(**parts):
    """Return what adds something to a reading."""
    return lambda reading: replace(reading, **parts)


def test_a_provider_that_keeps_the_rules_passes():
    check_provider(Acme(), sources(), EXPECTED)
    check_inventory(Acme(added(links=(LinkFacts(0, 1, "pcie"),))).inventory(sources()))


@pytest.mark.parametrize(
    ("provider", "rule"),
    [
        (Acme(changed(index=2)), "count from 0"),
        (Acme(changed(uuid="ACME-A")), "two devices with one uuid"),
        (Acme(changed(memory_bytes=50)), "memory_bytes of device 1 is 50, expected 40"),
        (Acme(changed(use_milli=1001)), "use_milli of 1001"),
        (Acme(lambda reading: replace(reading, devices=reading.devices[:1])), "1 devices, 2 expected"),
        (Acme(added(processes=(ProcessFacts(pid=7, uuid="ACME-C"),))), "no device of the inventory"),
        (Acme(added(findings=(Finding(code="odd", text=""),))), "no known finding"),
        (Acme(added(links=(LinkFacts(0, 2, "pcie"),))), "a link of devices that are not in the inventory"),
        (Acme(only_whole=False), "damage [0-9]+"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_that_is_broken_is_named(provider, rule):
    with pytest.raises(AssertionError, match=rule):
        check_provider(provider, sources(), EXPECTED)


def test_what_is_not_recorded_is_missing():
    machine = sources()
    assert machine.run(*LIST) == Output(TEXT, code=0)
    assert machine.run("acme-smi").missing
    assert machine.asked == [LIST, ("acme-smi",)]
    assert (machine.read("/dev/acme1"), machine.read("/sys/class/acme/acme0/name")) == ("", "A\n")
    assert machine.glob("/sys/class/acme/*") == ["/sys/class/acme/acme0"]
    assert machine.glob("/sys/*") == ["/sys/class"]


def test_damage_comes_again_from_its_seed():
    assert with_damage(sources(), 3).outputs == with_damage(sources(), 3).outputs
    damaged = {with_damage(sources(), seed).outputs[LIST] for seed in range(50)}
    assert len(damaged) > 10
