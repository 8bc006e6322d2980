"""Cambricon, Moore Threads and Hygon devices as the recorded outputs of their tools show them."""

from penstock.devices import cambricon_tools, mthreads_tools
from penstock.devices.reading import Finding
from tests.devices.tool_outputs import MIB, codes, read, text_of, told


def mlu(index: int, mib: int, model: str, celsius: int, watts: int, limit: int, **more: object) -> dict[str, object]:
    facts = {"index": index, "model": model, "memory_bytes": mib * MIB, "memory_used_bytes": 0, "use_milli": 0}
    return {**facts, "temperature_c": celsius, "power_mw": watts * 1000, "power_limit_mw": limit * 1000, **more}


def gpu(index: int, bus: str, model: str, mib: tuple[int, int], percent: int, celsius: int) -> dict[str, object]:
    facts = {"index": index, "pci": f"0000:{bus}:00.0", "model": model, "temperature_c": celsius}
    return {**facts, "memory_used_bytes": mib[0] * MIB, "memory_bytes": mib[1] * MIB, "use_milli": percent * 10}


def test_cambricon_cards_with_the_driver_in_their_rows():
    reading = read("cambricon/cnmon-1.txt")
    cards = [mlu(0, 23308, "MLU370-X4", 32, 30, 150), mlu(1, 23308, "MLU370-X4", 33, 25, 150)]
    assert (reading.driver, [told(device) for device in reading.devices]) == ("4.20.11", cards)
    assert codes(reading) == ["unknown_format", "cut", "cut"]


def test_rows_that_no_border_closes_are_no_device():
    lines = text_of("cambricon/cnmon-1.txt").splitlines(keepends=True)
    reading = cambricon_tools.parse_table("".join([*lines[:11], *lines[12:], lines[11]]))
    assert [device.index for device in reading.devices] == [0]


def test_cambricon_cards_with_addresses():
    reading = read("cambricon/cnmon-2.txt")
    assert [told(device) for device in reading.devices] == [
        mlu(0, 23374, "MLU370-X8", 32, 106, 250, pci="0000:39:00.0"),
        mlu(1, 23374, "MLU370-X8", 39, 106, 250, pci="0000:3d:00.0"),
    ]
    assert (reading.driver, codes(reading)) == ("5.10.13", ["unknown_format", "cut", "cut"])


def test_moore_threads_devices_of_three_versions():
    one, two, three = (read(f"mthreads/mthreads-gmi-{number}.txt") for number in (1, 2, 3))
    assert [told(device) for device in one.devices] == [gpu(0, "04", "MTT S80", (2, 16384), 0, 49)]
    assert [told(device) for device in three.devices] == [gpu(0, "5e", "MTT S3000", (30094, 32768), 58, 57)]
    assert [told(device) for device in two.devices] == [
        gpu(0, "18", "MTT S5000", (0, 81920), 0, 48),
        gpu(1, "3a", "MTT S5000", (0, 81920), 0, 48),
    ]
    assert [reading.driver for reading in (one, two, three)] == ["2.7.0", "5.1.0-server", "2.9.2-000"]
    assert (one.findings, codes(two), three.findings) == ((), ["unknown_format", "cut"], ())


def test_moore_threads_processes():
    text = text_of("mthreads/mthreads-gmi-1.txt").replace(
        "   No running processes found", "0    4711      python train.py   512MiB"
    )
    (process,) = mthreads_tools.parse_table(text).processes
    assert told(process) == {"pid": 4711, "index": 0, "name": "python train.py", "memory_bytes": 512 * MIB}


def test_a_moore_threads_device_without_all_its_rows_is_none():
    lines = text_of("mthreads/mthreads-gmi-1.txt").splitlines(keepends=True)
    reading = mthreads_tools.parse_table("".join(lines[:10] + lines[11:]))
    assert (reading.devices, codes(reading)) == ((), ["unknown_format", "cut"])


def test_a_virtual_hygon_device_is_a_share():
    reading = read("hygon/hy-smi-virtual-1.txt")
    finding = Finding(code="masked", text="a share of device 0, with 60 compute units", index=0)
    assert [told(device) for device in reading.devices] == [{"index": 0, "memory_bytes": 2097152000}]
    assert reading.findings == (finding,)
