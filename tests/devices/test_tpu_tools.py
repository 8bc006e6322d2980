"""TPU chips as the recorded outputs of tpu-info show them."""

import pytest

from penstock.devices import tpu_tools
from penstock.devices.reading import Finding
from tests.devices.tool_outputs import codes, read, told

GIB = 2**30


def test_chips_have_memory_and_use_where_both_tables_number_them_alike():
    reading = read("tpu/tpu-info-1.txt")
    used = (18.45, 10.40, 10.40, 10.40)
    common = {"model": "TPU v6e", "memory_bytes": round(31.25 * GIB), "use_milli": 1000}
    expected = [{"index": n, **common, "memory_used_bytes": round(gib * GIB)} for n, gib in enumerate(used)]
    assert ([told(d) for d in reading.devices], reading.findings) == (expected, ())
    assert [(p.pid, p.index) for p in reading.processes] == [(1469584, n) for n in range(4)]
    assert reading.driver == "0.0.19.dev20250721+nightly"


def test_use_under_the_numbers_of_a_slice_is_given_to_no_chip():
    reading = read("tpu/tpu-info-streaming-1.txt")
    assert [told(d) for d in reading.devices] == [{"index": n, "model": "TPU v6e"} for n in range(4)]
    text = "memory and use are listed of chips [8, 9, 12, 13], not of these: they were left out"
    assert reading.findings == (Finding(code="not_supported", text=text),)
    assert [(p.pid, p.index) for p in reading.processes] == [(1022, n) for n in range(4)]


def test_the_view_of_processes_names_them():
    reading = read("tpu/tpu-info-process-1.txt")
    assert [told(p) for p in reading.processes] == [{"pid": 799657, "index": n, "name": "python3"} for n in range(8)]
    assert ([told(d) for d in reading.devices], reading.findings) == ([{"index": n} for n in range(8)], ())


@pytest.mark.parametrize(("number", "gib", "pid"), [(2, 31.75, 130007), (3, 30.75, 3786361)])
def test_older_versions_draw_lines_and_name_columns_otherwise(number, gib, pid):
    reading = read(f"tpu/tpu-info-{number}.txt")
    common = {"model": "TPU v4", "memory_bytes": round(gib * GIB), "memory_used_bytes": 0, "use_milli": 0}
    assert [told(d) for d in reading.devices] == [{"index": n, **common} for n in range(4)]
    assert ([(p.pid, p.index) for p in reading.processes], reading.findings) == ([(pid, n) for n in range(4)], ())


def test_a_machine_without_chips_has_none():
    assert codes(tpu_tools.parse("No TPU chips found.\n")) == ["no_devices"]


def test_versions_show_no_devices_and_an_old_environment_is_no_fault_of_theirs():
    version, incompatible = read("tpu/tpu-info-version-1.txt"), read("tpu/tpu-info-version-2.txt")
    assert (version.driver, codes(version)) == ("0.0.18", ["no_devices"])
    assert (incompatible.driver, codes(incompatible)) == ("", ["not_supported"])
    assert version.devices == incompatible.devices == ()
