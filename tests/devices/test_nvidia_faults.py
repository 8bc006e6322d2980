"""NVML fails at random, each of its functions with each of its errors: no exception, no wrong fact or device."""

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from penstock.devices.nvidia import Nvidia
from penstock.devices.reading import FINDINGS, DeviceFacts, Reading
from penstock.testing.devices import Recorded, check_facts, check_inventory
from tests.devices.nvidia_machines import Clock, by_uuid, divided, library
from tests.devices.nvml_library import ERRORS, FUNCTIONS, Library, loaded
from tests.properties import LONG

NAMES = ("q-x-12.xml", "q-x-17.xml")
CHANGING = ("partitioned", "parts", "throttled")


def machine() -> Library:
    made = library(*NAMES)
    divided(made.gpus[0])
    made.gpus[0].fabric = (3, 0, 0)
    made.gpus[1].group = made.gpus[0].group = 1
    return made


def clean() -> tuple[Reading, Reading]:
    with loaded(machine()):
        provider = Nvidia(Clock())
        return provider.inventory(Recorded()), provider.sample(Recorded())


def true_or_absent(device: DeviceFacts, known: DeviceFacts) -> bool:
    """Return whether each fact is the true one or is not there; an index may move up, and parts may be fewer."""
    names = (name for name in DeviceFacts.__struct_fields__ if name not in ("index", *CHANGING))
    return all(getattr(device, name) in (None, "", (), getattr(known, name)) for name in names) and {
        (part.uuid, part.instance) for part in device.parts if part.uuid and part.instance is not None
    } <= {(part.uuid, part.instance) for part in known.parts}


def known_of(device: DeviceFacts, reading: Reading) -> DeviceFacts:
    return next(known for known in reading.devices if device.uuid == known.uuid or device.pci == known.pci)


def whole(device: DeviceFacts) -> bool:
    """Return whether it is no instance: those are devices where the rest of theirs is refused."""
    return not device.uuid.startswith("MIG-")


def run(seed: int, wanted: tuple[Reading, Reading], failed: Counter[tuple[str, int]]) -> None:
    """Fail calls of one device, or of any and of NVML itself, through an inventory and three samples."""
    chance = random.Random(seed)
    victim = chance.choice((0, 1, None))
    share = chance.choice((0.01, 0.1, 0.5))

    def fault(function: str, device: int | None) -> int:
        if (victim is not None and device != victim) or chance.random() >= share:
            return 0
        error = chance.choice(ERRORS)
        failed[function, error] += 1
        return error

    with loaded(machine()) as nvml:
        nvml.fault = fault
        clock = Clock()
        provider = Nvidia(clock)
        here = provider.inventory(Recorded())
        check_inventory(here)
        readings = [(here, wanted[0])]
        for _ in range(3):
            clock.now += chance.choice((1, 60))
            readings.append((provider.sample(Recorded()), wanted[1]))
        nvml.fault = lambda function, device: 0
        clock.now += 60
        provider.inventory(Recorded())
        clock.now += 60
        provider.inventory(Recorded())
        healed = provider.sample(Recorded())
    for reading, true in readings:
        check_facts(replace(reading, links=()), wanted[0])
        assert {link.kind for link in reading.links} <= {"nvlink", "node"}  # "not supported" is no NVLink
        assert all(finding.code in FINDINGS for finding in reading.findings)
        assert all(true_or_absent(device, known_of(device, true)) for device in reading.devices if whole(device))
        if victim is not None:
            other = wanted[0].devices[1 - victim].uuid
            mine, its = by_uuid(reading)[other], by_uuid(true)[other]
            assert [getattr(mine, n) for n in mine.__struct_fields__ if n != "index"] == [
                getattr(its, n) for n in its.__struct_fields__ if n != "index"
            ]
            assert [p for p in reading.processes if p.uuid == other] == [p for p in true.processes if p.uuid == other]
            assert not [finding for finding in reading.findings if finding.uuid == other]
    assert (healed.devices, healed.processes) == (wanted[1].devices, wanted[1].processes)


def fuzz(seeds: range) -> Counter[tuple[str, int]]:
    wanted = clean()
    failed: Counter[tuple[str, int]] = Counter()
    for seed in seeds:
        try:
            run(seed, wanted, failed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    return failed


def test_what_fails_costs_its_own_fact_and_no_other():
    failed = fuzz(range(600))
    assert {function for function, _ in failed} == set(FUNCTIONS)
    assert {error for _, error in failed} == set(ERRORS)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="minutes long: set PENSTOCK_SLOW=1")
def test_what_fails_costs_its_own_fact_and_no_other_20_000_times():
    failed = fuzz(range(10_000, 30_000))
    assert {function for function, _ in failed} == set(FUNCTIONS)
    assert {error for _, error in failed} == set(ERRORS)
