"""Providers of devices on recorded outputs: a machine made of recordings, and the checks that every provider passes.

def test_my_provider():
    sources = Recorded({("acme-smi", "-q"): text}, {"/dev/acme0": ""})
    check_provider(Acme(), sources, [DeviceFacts(index=0, uuid="ACME-7", model="A1")])
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from penstock.devices.provider import TOOL_LIMIT_S, DeviceProvider, Output
from penstock.devices.reading import FINDINGS, DeviceFacts, Finding, LinkFacts, ProcessFacts, Reading

DAMAGED = 200
"""Damaged machines that `check_provider` tries."""
NAMES = ("uuid", "pci")
FIXED = (*NAMES, "model", "serial", "card", "chip", "numa_node", "minor", "memory_bytes", "capability", "files")
"""Facts that stay the same, whichever output they are read from."""
BOUNDS = {"use_milli": 1000, "temperature_c": 200, "power_mw": 10**7, "clock_mhz": 10**5}
MISSING = Output(missing=True)
_Naming = DeviceFacts | ProcessFacts | Finding


class Recorded:
    """Recorded outputs and files in place of a machine (`Sources`); every other tool and file is missing.

    Args:
        outputs: by the whole command; a text alone is an output of a tool that ended well.
        files: by absolute path. Their folders are there too, for `glob`.
    """

    def __init__(
        self, outputs: Mapping[tuple[str, ...], Output | str] | None = None, files: Mapping[str, str] | None = None
    ) -> None:
        self.outputs = {
            command: Output(output, code=0) if isinstance(output, str) else output
            for command, output in (outputs or {}).items()
        }
        self.files = dict(files or {})
        self.asked: list[tuple[str, ...]] = []
        """The commands that were run, in their order, those that are missing too."""

    def run(self, *command: str, limit_s: float = TOOL_LIMIT_S) -> Output:
        self.asked.append(command)
        return self.outputs.get(command, MISSING)

    def read(self, path: str) -> str:
        return self.files.get(path, "")

    def glob(self, pattern: str) -> list[str]:
        paths = {str(each) for file in self.files for each in (PurePosixPath(file), *PurePosixPath(file).parents)}
        return sorted(path for path in paths if PurePosixPath(path).match(pattern))


def check_provider(
    provider: DeviceProvider,
    sources: Recorded,
    expected: Sequence[DeviceFacts],
    *,
    damaged: int = DAMAGED,
    seed: int = 0,
) -> None:
    """Check that a provider reads these recordings as it must, and damaged ones without an error or a wrong fact.

    Args:
        expected: the devices of the inventory, in its order; what is None or empty in them is not compared.
        damaged: how many machines are tried whose tools were cut off, failed, hung or are missing.
    Raises: AssertionError with the rule that does not hold, and the seed of the damage.
    """
    here = provider.inventory(sources)
    check_inventory(here)
    assert len(here.devices) == len(expected), f"{len(here.devices)} devices, {len(expected)} expected: {here}"
    for device, wanted in zip(here.devices, expected, strict=True):
        for name in DeviceFacts.__struct_fields__:
            value = getattr(wanted, name)
            fits = value in (None, "", ()) or getattr(device, name) == value
            assert fits, f"{name} of device {device.index} is {getattr(device, name)!r}, expected {value!r}"
    check_sample(provider.sample(sources), here)
    for number in range(seed, seed + damaged):
        machine = with_damage(sources, number)
        try:
            for reading in (provider.inventory(machine), provider.sample(machine)):
                check_facts(reading, here)
        except AssertionError as error:
            raise AssertionError(f"damage {number}: {error}") from error
        except Exception as error:
            raise AssertionError(f"damage {number} raises {error!r}") from error


def check_inventory(here: Reading) -> None:
    """Check that an inventory counts its devices from 0, and names each once."""
    indexes = [device.index for device in here.devices]
    assert indexes == list(range(len(indexes))), f"the devices of an inventory count from 0, these: {indexes}"
    for name in ("uuid", "pci"):
        values = [value for device in here.devices if (value := getattr(device, name))]
        assert len(set(values)) == len(values), f"two devices with one {name}: {values}"
    for link in here.links:
        assert {link.device, link.peer} <= set(indexes), f"a link of devices that are not in the inventory: {link}"
    check_facts(here, here)


def check_sample(sample: Reading, here: Reading) -> None:
    """Check that a sample names devices of the inventory and no others."""
    check_facts(sample, here)
    named: tuple[_Naming, ...] = (*sample.devices, *sample.processes)
    for each in named:
        assert _same(each, here), f"no device of the inventory: {each}"


def check_facts(reading: Reading, here: Reading) -> None:
    """Check that no fact of a reading belongs to another device than it names, and that all of it is possible."""
    for finding in reading.findings:
        assert finding.code in FINDINGS, f"no known finding: {finding}"
    seen: set[int | None] = set()
    for device in reading.devices:
        for name, most in BOUNDS.items():
            value = getattr(device, name)
            assert value is None or 0 <= value <= most, f"{name} of {value}"
        for known in _same(device, here):
            assert known.index not in seen, f"a device twice: {device}"
            seen.add(known.index)
            for name in FIXED:
                mine, its = getattr(device, name), getattr(known, name)
                absent = mine in (None, "", ()) or its in (None, "", ())
                assert absent or mine == its, f"{name} of device {known.index} is {mine!r}, not {its!r}"
    named: tuple[_Naming, ...] = (*reading.processes, *reading.findings)
    for each in named:
        assert len(_same(each, here)) <= 1, f"it names two devices: {each}"
    pairs = {_pair(link): link.kind for link in here.links}
    for link in reading.links if len(reading.devices) == len(here.devices) else ():
        assert pairs.get(_pair(link), link.kind) == link.kind, f"{link}, where it is {pairs[_pair(link)]}"


def with_damage(sources: Recorded, seed: int) -> Recorded:
    """Return a machine some of whose tools are cut off at a random place, fail, hang or are missing; the same by seed.

    At least one of them is damaged. Files are as they were: the kernel writes them whole.
    """
    chance = random.Random(seed)
    outputs = dict(sources.outputs)
    commands = sorted(outputs)
    for command in chance.sample(commands, chance.randint(1, len(commands))) if commands else ():
        outputs[command] = chance.choice(list(_damages(outputs[command], chance)))
    return Recorded(outputs, sources.files)


def _damages(output: Output, chance: random.Random) -> Iterator[Output]:
    text = output.text
    for _ in range(4):
        yield Output(text[: chance.randrange(len(text) + 1)], output.error_text, output.code)
    lines = text.splitlines(keepends=True)
    yield Output("".join(lines[: chance.randrange(len(lines) + 1)]), output.error_text, output.code)
    yield Output(text, "killed", -9)
    yield Output("", "failed", 1)
    yield Output(timed_out=True)
    yield MISSING


def _same(named: _Naming, here: Reading) -> list[DeviceFacts]:
    """Return the devices of the inventory that something names: one, or none, unless names contradict each other.

    An index counts where nothing else names the device: where one is missing, those behind it move up.
    """
    values = [(name, value) for name in NAMES if (value := getattr(named, name))]
    if not values and named.index is not None:
        values = [("index", named.index)]
    return [device for device in here.devices if any(getattr(device, name) == value for name, value in values)]


def _pair(link: LinkFacts) -> tuple[int, int]:
    return min(link.device, link.peer), max(link.device, link.peer)
