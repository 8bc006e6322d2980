"""Lists, links, versions and the sentences that stand in place of an output."""

import pytest

from penstock.devices.nvidia_tools.listing import listing, nvlink_errors, nvlink_status
from penstock.devices.nvidia_tools.texts import INDEX_MAX, LINES_MAX, TEXT_BYTES_MAX
from penstock.devices.nvidia_tools.topology import topology
from penstock.devices.nvidia_tools.xml_log import xml_log
from penstock.devices.reading import LinkFacts
from tests.devices.nvidia_tools.recorded import PARSERS, codes, names, read, text

FLAT = [
    ("1", ["GH200 120GB"] * 4, [], ["masked"] * 4),
    ("mig-1", ["NVIDIA H100 80GB HBM3"], ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], ["masked", "masked"]),
    ("mig-2", ["NVIDIA H200"], ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"], ["masked", "masked"]),
    ("mig-3", ["NVIDIA A30"], ["2g.12gb", "1g.6gb", "1g.6gb"], []),
    ("mig-4", ["NVIDIA A30"], ["1g.6gb"], []),
    ("mig-5", ["NVIDIA H100 80GB HBM3"], ["1g.10gb"] * 7, []),
    ("mig-6", ["NVIDIA H100 80GB HBM3"], ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], []),
    ("mig-7", ["NVIDIA A100-PCIE-40GB"], ["1g.5gb"], []),
]


def test_every_recording_has_devices_or_a_finding():
    silent = {"version", "pmon", "compute-apps", "accounted-apps", "retired-pages"}
    for name in names():
        reading = read(name)
        if not any(name.removeprefix("nvidia-smi-").startswith(kind) for kind in silent):
            assert reading.devices or reading.findings, name


@pytest.mark.parametrize(("name", "models", "profiles", "findings"), FLAT)
def test_a_list_tells_devices_and_their_parts(name, models, profiles, findings):
    reading = read(f"L-{name}.txt")
    assert [(device.index, device.model) for device in reading.devices] == list(enumerate(models))
    assert [part.profile for device in reading.devices for part in device.parts] == profiles
    assert [device.partitioned for device in reading.devices] == [True if profiles else None] * len(models)
    assert codes(reading) == findings


def test_a_line_that_is_absurdly_long_is_not_read():
    rows = text("L-mig-4.txt").splitlines()
    reading = listing(f"{rows[0]}\n{rows[1]}{' ' * 600}\n")
    assert (reading.devices[0].parts, codes(reading)) == ((), ["unreadable"])


def test_uuids_that_are_masked_or_cut_are_none():
    assert {device.uuid for device in read("L-1.txt").devices} == {""}
    (a30,) = read("L-mig-4.txt").devices
    assert a30.uuid == "GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd"
    assert a30.parts[0].uuid == "MIG-41b9eab5-8d48-5c52-9f07-82bc59af3901"
    cut = listing("GPU 0: NVIDIA A30 (UUID: GPU-1e44b340-5807-0dbe-62e6-343a6b8)\n")
    assert cut.devices[0].uuid == ""
    assert codes(cut) == ["masked"]


def test_parts_of_old_drivers_are_named_by_their_instances():
    line = "  MIG 3g.20gb Device 0: (UUID: MIG-GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd/1/0)\n"
    (device,) = listing(text("L-mig-4.txt").splitlines(keepends=True)[0] + line).devices
    assert [(part.profile, part.instance, part.compute_instance) for part in device.parts] == [("3g.20gb", 1, 0)]


def test_a_list_with_a_device_missing_says_so():
    rows = text("L-mig-3.txt").splitlines(keepends=True)
    other = rows[0].replace("GPU 0", "GPU 1").replace("GPU-1e44b340", "GPU-2e44b340")
    assert codes(listing("".join([*rows, *rows[1:]]))) == ["unreadable"]
    assert codes(listing(other)) == ["cut"]
    assert codes(listing(rows[0] + rows[2] + rows[3])) == ["unreadable"]
    lost = "Unable to determine the device handle for gpu 0000:01:00.0: Unknown Error\n"
    assert codes(listing(lost + other)) == ["lost"]


def test_links_that_are_down_beside_others_are_a_fault():
    for name, count in (("1", 1), ("3", 8)):
        reading = read(f"nvlink-s-{name}.txt")
        assert len(reading.devices) == count
        assert set(codes(reading)) <= {"masked"}
    down = read("nvlink-s-4.txt")
    assert [(f.index, f.code) for f in down.findings] == [(n, "link_fault") for n in (3, 4, 5, 6)]
    assert down.findings[0].text == "2 of 6 NVLinks inactive: 3, 5"
    assert codes(read("nvlink-s-2.txt")) == ["not_supported", "masked"]
    alone = text("nvlink-s-3.txt").replace("25 GB/s", "<inactive>")
    assert codes(nvlink_status(alone)) == []


def test_errors_of_links_are_a_fault():
    assert codes(read("nvlink-e-1.txt")) == ["unreadable"]
    ill = nvlink_errors(text("nvlink-e-1.txt").replace("Link 17: CRC Errors: 0", "Link 17: CRC Errors: 12"))
    assert codes(ill) == ["link_fault", "unreadable"]
    assert ill.findings[0].text == "link 17: CRC Errors 12"


@pytest.mark.parametrize(("number", "driver"), [(1, "590.48.01"), (2, "610.62"), (3, "610.57.04")])
def test_the_version_is_that_of_the_driver_under_either_name(number, driver):
    reading = read(f"version-{number}.txt")
    assert (reading.driver, reading.findings) == (driver, ())


ALL_TO_ALL = tuple(LinkFacts(a, b, "nvlink") for a in range(8) for b in range(a + 1, 8))


@pytest.mark.parametrize(
    ("name", "numa", "links"),
    [
        ("1", [None, None], (LinkFacts(0, 1, "nvlink"),)),
        ("2", [None, None], (LinkFacts(0, 1, "pcie"),)),
        ("3", [0] * 4 + [1] * 4, ALL_TO_ALL),
        ("4", [0] * 4 + [1] * 4, ALL_TO_ALL),
        ("5", [0] * 4 + [1] * 4, ALL_TO_ALL),
        ("nic-1", [0] * 4 + [1] * 4, ALL_TO_ALL),
        ("single-1", [0], ()),
        ("windows-1", [None], ()),
    ],
)
def test_the_matrix_tells_each_link_once_and_the_nodes(name, numa, links):
    reading = read(f"topo-m-{name}.txt")
    assert [(device.index, device.numa_node) for device in reading.devices] == list(enumerate(numa))
    assert reading.links == links
    assert reading.findings == ()


@pytest.mark.parametrize(
    ("old", "new", "findings", "links"),
    [
        ("GPU1    NV2 ", "GPU1    SYS ", ["unreadable"], 0),
        ("GPU1    NV2      X ", "GPU1     X      NV2 ", ["cut", "unreadable"], 1),
        ("GPU1    NV2      X ", "GPU1    NV2     NV2 ", ["cut", "unreadable"], 1),
        ("GPU1    NV2 ", "GPU1    NVX ", ["cut", "unreadable"], 1),
        ("GPU1    NV2      X      0-23            N/A\n", "", ["cut"], 1),
        ("        GPU0    GPU1", "        GPU0    GPU0", ["unreadable"], 0),
    ],
)
def test_a_matrix_that_is_not_whole_tells_the_links_of_whole_rows(old, new, findings, links):
    reading = topology(text("topo-m-1.txt").replace(old, new))
    assert codes(reading) == findings
    assert reading.links == (LinkFacts(0, 1, "nvlink"),) * links


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("error-driver-1.txt", [("no_driver", None, "")]),
        ("error-lost-1.txt", [("lost", 0, "0000:01:00.0"), ("no_devices", None, "")]),
        ("error-lost-3.txt", [("lost", None, "0000:91:00.0")]),
        ("error-mismatch-1.txt", [("driver_mismatch", None, "")]),
        ("error-mismatch-2.txt", [("driver_mismatch", None, ""), ("driver_mismatch", None, "")]),
        ("topo-m-error-1.txt", [("not_supported", None, "")]),
    ],
)
@pytest.mark.parametrize("parse", [parse for _, parse in PARSERS])
def test_a_sentence_in_place_of_an_output_is_the_same_finding_everywhere(parse, name, expected):
    reading = parse(text(name))
    told = [(f.code, f.index, f.pci) for f in reading.findings if f.code != "unreadable"]
    assert (told, reading.devices) == (expected, ())


@pytest.mark.parametrize("parse", [parse for _, parse in PARSERS])
@pytest.mark.parametrize(
    "nothing", ["", "\n", "\0" * 40 + "\n", "x\n", "x", "∞\n" * 300, "<", "<a/>\n", "a, b\n1, 2\n"]
)
def test_a_text_of_something_else_is_a_finding(parse, nothing):
    reading = parse(nothing)
    assert reading.devices == ()
    assert reading.findings


@pytest.mark.parametrize("parse", [parse for _, parse in PARSERS])
@pytest.mark.parametrize("large", ["x" * (TEXT_BYTES_MAX + 1), "\n" * (LINES_MAX + 1)], ids=["characters", "lines"])
def test_a_text_that_is_too_large_is_refused(parse, large):
    reading = parse(large)
    assert codes(reading) == ["unreadable"]
    assert "are read" in reading.findings[0].text


def test_xml_of_more_devices_than_a_machine_has_is_not_read_on():
    many = "".join(f'<gpu id="00000000:{n >> 8:02x}:{n & 255:02x}.0"/>' for n in range(1, 2000))
    reading = xml_log(f"<nvidia_smi_log>{many}</nvidia_smi_log>\n")
    assert len(reading.devices) == INDEX_MAX
    assert codes(reading) == ["unreadable"]


@pytest.mark.parametrize(
    "bad",
    [
        '<!DOCTYPE a [<!ENTITY b "bbbb">]><nvidia_smi_log><gpu id="00000000:01:00.0">&b;</gpu></nvidia_smi_log>\n',
        "<nvidia_smi_log>" + "<a>" * 100_000,
        f"<nvidia_smi_log>{'<a>' * 100}{'</a>' * 100}</nvidia_smi_log>\n",
        "<nvidia_smi_log><gpu id='00000000:01:00.0'><uuid>GPU-1</uuid><uuid>GPU-2</uuid></gpu></nvidia_smi_log>\n",
        "<nvidia_smi_log><gpu><uuid>1</uuid></gpu></nvidia_smi_log>\n",
        "<other><gpu id='00000000:01:00.0'/></other>\n",
        "<nvidia_smi_log>\0</nvidia_smi_log>\n",
    ],
)
def test_xml_that_is_not_the_tools_is_a_finding(bad):
    reading = xml_log(bad)
    assert reading.devices == ()
    assert len(reading.findings) == 1
