"""What is wrong with a device, its driver or the output is a finding with the device that it is of."""

import json

import pytest

from penstock.devices.amd_tools import amd_smi, amd_smi_tables, kfd, rocm_smi, rocm_smi_tables, topology
from penstock.devices.reading import LinkFacts
from tests.devices.amd_tools.recordings import text_of

ECC = text_of("amd-smi-metric-ecc-1.txt").replace("UNCORRECTABLE_COUNT: 0", "UNCORRECTABLE_COUNT: 3", 1)
POWER = text_of("amd-smi-metric-power-1.txt")
THROTTLE = text_of("amd-smi-metric-throttle-1.txt").replace("...\n", "")
PAGES = text_of("amd-smi-bad-pages-1.txt").replace("[output truncated]\n", "")
PLAIN = text_of("amd-smi-plain-1.txt")
BAD = [{"page_address": "0x7f0000", "page_size": 4096, "status": "RESERVED"}]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ECC.replace("        ...\n", ""), [("ecc_uncorrected", 0, "close")]),
        (POWER.replace("STATUS: UNTHROTTLED", "STATUS: THROTTLED", 1), [("throttled", 0, "warn")]),
        (
            THROTTLE.replace("HBM_THERMAL_VIOLATION_STATUS: NOT ", "HBM_THERMAL_VIOLATION_STATUS: ", 1),
            [("throttled", 0, "warn")],
        ),
        (THROTTLE.replace("PPT_VIOLATION_STATUS: NOT ", "PPT_VIOLATION_STATUS: "), []),
        (
            PAGES.replace("PENDING: No bad pages found.", "PENDING: 0x7f0000", 1),
            [("page_retirement_pending", 0, "close")],
        ),
        (json.dumps([{"gpu": 4, "retired": BAD, "pending": "No bad pages found."}]), [("pages_retired", 4, "warn")]),
        (json.dumps({"error": "amdgpu driver not loaded", "code": -34}), [("no_driver", None, "warn")]),
        (json.dumps({"code": -7, "message": "strange"}), [("tool_failed", None, "warn")]),
        (json.dumps({"gpu_data": [{"cpu": 0}]}), [("no_devices", None, "none")]),
        (f"WARNING: not in the group render\n{json.dumps([{'gpu': 0}])}\n", []),
        (json.dumps([{"gpu": 0}, {"gpu": 0, "uuid": "x"}]), [("duplicate", 0, "warn")]),
        ("ERROR: Permission denied: /dev/kfd\n", [("no_permission", None, "warn")]),
        ("No AMD GPUs found\n", [("no_devices", None, "none")]),
        ("Hello\n", [("unknown_format", None, "warn")]),
        ("GPU: 0\n    BUS:\n        BDF: 0000:05:\0000.0\n", [("unreadable", None, "warn")]),
        (f"GPU: 0\n    BUS:\n        BDF: {'0' * 9000}\n", [("unreadable", None, "warn")]),
        ("GPU: 0\n    PROCESS_INFO:\n        PID: 0\n", [("cut", 0, "warn")]),
        ("GPU: 0\n    PROCESS_INFO:\n        PID: 5\n        PID: 6\n", [("cut", 0, "warn")]),
        ("CPU: 0\n\nCPU: 1\n\nGPU: 0\n    BUS: N/A\n", []),
        (json.dumps([{"gpu": 0}, 3, {"gpu": True}, {"gpu": -1}]), [("unknown_format", None, "warn")]),
    ],
)
def test_ills_of_amd_smi_are_findings(text, found):
    assert [(each.code, each.index, each.effect) for each in amd_smi.read(text).findings] == found


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        (amd_smi_tables.read_table, PLAIN.replace("37 °C   0 ", "37 °C   2 "), [("ecc_uncorrected", 0)]),
        (amd_smi_tables.read_table, PLAIN.replace("285/196288 MB", "285/196288 MB  1"), [("cut", None)]),
        (amd_smi_tables.read_table, PLAIN.replace("Mem-Usage", "    Usage"), []),
        (amd_smi_tables.read_table, PLAIN.replace("| BDF ", "| CARD"), [("unknown_format", None)]),
        (amd_smi_tables.read_monitor, "GPU     TVIOL\n  0      12 %\n", [("throttled", 0)]),
        (amd_smi_tables.read_monitor, "GPU     PVIOL\n  0      99 %\n", []),
        (amd_smi_tables.read_monitor, "GPU     POWER\n", [("no_devices", None)]),
        (amd_smi_tables.read_monitor, "GPU  XCP  POWER\n  0  N/A    9 W\n", [("cut", None)]),
        (amd_smi_tables.read_monitor, "GPU  XCP  POWER\n  0    1    9 W\n", [("cut", None)]),
        (topology.read, json.dumps([{"gpu": "0"}, 3]), [("unknown_format", None)]),
        (amd_smi_tables.read_monitor, "  0      99 W\n", [("cut", None)]),
        (amd_smi_tables.read_versions, "amd-smi: command not found\n", [("tool_failed", None)]),
        (rocm_smi.read, "ERROR:root:Driver not initialized\n", [("unreadable", None), ("no_driver", None)]),
        (rocm_smi.read, "[]\n", [("unknown_format", None)]),
        (rocm_smi.read, '{"card0": {"Unique ID": "REDACTED"}}\n', [("masked", 0)]),
        (
            rocm_smi.read_csv,
            "ERROR:root:Driver not initialized (amdgpu not found in modules)\n",
            [("no_driver", None), ("unknown_format", None)],
        ),
        (rocm_smi.read_csv, "device,Unique ID\ncard0,0x1,5\n", [("cut", None)]),
        (rocm_smi.read_csv, "device,Unique ID\ncard0,0x1\ncard0,0x2\n", [("duplicate", 0)]),
        (rocm_smi.read_csv, "device,Unique ID\n", [("no_devices", None)]),
        (rocm_smi_tables.read, text_of("rocm-smi-plain-8.txt").replace("71%   100%", "71%"), [("cut", None)]),
        (kfd.properties, "", None),
        (
            topology.read_xgmi,
            text_of("amd-smi-xgmi-1.txt").replace("GPU3   0000:5c", "GPU3   0000:5d"),
            [("cut", None)],
        ),
    ],
)
def test_ills_of_outputs_are_findings(read, text, found):
    if found is None:
        assert [each.code for each in read(text)[1]] == ["unreadable"]
    else:
        assert [(each.code, each.index) for each in read(text).findings] == found


def test_a_row_that_stands_twice_with_other_values_is_no_device():
    twice = text_of("rocm-smi-showproduct-4.txt").replace(
        "GPU[0]          : Card model", "GPU[0] : Card series: 0x74a1\nGPU[0] : Card model"
    )
    read = rocm_smi.read_lines(twice)
    assert read.devices == ()
    assert [(each.code, each.index) for each in read.findings] == [("duplicate", 0)]


def test_names_are_looked_up_by_id_where_the_tool_has_no_table_of_names():
    assert rocm_smi.read_lines(text_of("rocm-smi-showproduct-4.txt")).devices[0].model == "Instinct MI210"
    assert rocm_smi.read(text_of("rocm-smi-a-3.json")).devices[0].model == ""


@pytest.mark.parametrize(("hops", "kind"), [(2, "pcie"), (3, "node")])
def test_a_path_over_two_processors_is_longer(hops, kind):
    listed = [{"gpu": 0, "links": [{"gpu": 1, "link_type": "PCIE", "num_hops": hops}]}, {"gpu": 1, "links": []}]
    assert topology.read(json.dumps(listed)).links == (LinkFacts(0, 1, kind),)


def test_ends_that_describe_a_link_differently_have_none():
    listed = [{"gpu": one, "links": [{"gpu": 1 - one, "link_type": word}]} for one, word in ((0, "PCIE"), (1, "XGMI"))]
    read = topology.read(json.dumps(listed))
    assert read.links == ()
    assert [each.code for each in read.findings] == ["duplicate"]


def test_entries_of_links_that_are_none_are_left_out():
    links = [3, {"gpu": -1, "link_type": "XGMI"}, {"gpu": "1", "link_type": "XGMI"}, {"gpu": 1, "link_type": "XGMI"}]
    read = topology.read(json.dumps([{"gpu": 0, "links": links}, {"gpu": 1, "links": "none"}]))
    assert read.links == (LinkFacts(0, 1, "nvlink"),)
    assert read.findings == ()


def test_hops_of_a_table_tell_how_far_a_path_is():
    table = text_of("amd-smi-topology-1.txt").replace("XGMI", "PCIE")
    head, hops, rest = table.partition("HOPS TABLE:")
    far = hops + rest.replace(" 1  ", " 3  ").replace(" 1\n", " 3\n")
    assert {link.kind for link in topology.read(table).links} == {"pcie"}
    assert {link.kind for link in topology.read(head + far).links} == {"node"}


@pytest.mark.parametrize(("affinity", "node"), [("1", 1), ("0", None), ("-1", 1), ("4294967295", 1)])
def test_a_numa_node_that_is_contradicted_is_not_known(affinity, node):
    card = {"(Topology) Numa Node": "1", "(Topology) Numa Affinity": affinity}
    assert rocm_smi.read(json.dumps({"card0": card})).devices[0].numa_node == node
