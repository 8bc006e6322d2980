"""Devices of nodes: gres.conf where it lists them, else what slurm.conf counts."""

import pytest

from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import outcomes, slurm_of

GIB = 2**30
NODE = "NodeName=n[1-2] Sockets=2 CoresPerSocket=4 Gres={}\n"


def devices(tmp_path, gres: str, lines: str = ""):
    found = slurm_of(tmp_path, NODE.format(gres), gres=lines)
    assert found.nodes[0].devices is found.nodes[1].devices  # nodes that are alike share theirs
    return found.nodes[0].devices


def test_counts_with_and_without_type(tmp_path):
    found = devices(tmp_path, "gpu:a100:2,gpu:v100:1,craynetwork:4")
    assert [(d.index, d.model, d.memory_bytes // GIB) for d in found] == [
        (0, "a100", 40),
        (1, "a100", 40),
        (2, "v100", 16),
    ]
    assert [(d.model, d.vendor, d.memory_bytes) for d in devices(tmp_path, "gpu:2")] == [("gpu", "nvidia", 0)] * 2
    assert len(devices(tmp_path, "gpu")) == 1
    assert [d.model for d in devices(tmp_path, "gpu:a100:no_consume:1")] == ["a100"]


def test_lines_without_node_names_hold_for_nodes_that_have_gpus(tmp_path):
    lines = "Name=gpu File=/dev/nvidia[0-3] Cores=4-7\n"
    found = slurm_of(tmp_path, NODE.format("gpu:h100:4") + "NodeName=c1\n", gres=lines)
    assert [(d.model, d.numa_node) for d in found.nodes[0].devices] == [("h100", 1)] * 4
    assert found.nodes[2].devices == ()


def test_a_list_that_differs_from_the_count_is_taken_and_said(tmp_path):
    found = slurm_of(tmp_path, NODE.format("gpu:4"), gres="Name=gpu Type=t4 File=/dev/nvidia[0,2]\n")
    assert [d.index for d in found.nodes[0].devices] == [0, 1]
    assert (1, "gpu: 4", "approximated") in outcomes(found, "Gres")


def test_links_join_devices_that_are_there(tmp_path):
    lines = "".join(
        f"Name=gpu Type=a100 File=/dev/nvidia{i} Links={links}\n"
        for i, links in enumerate(["-1,16,0,4", "16,-1,0,0", "0,0,-1,0"])
    )
    found = devices(tmp_path, "gpu:a100:3", lines)
    assert [[link.peer for link in d.links] for d in found] == [[1], [0], []]


def test_auto_detection_gives_the_vendor_and_is_said_to_be_guessed(tmp_path):
    found = slurm_of(tmp_path, NODE.format("gpu:new:1"), gres="AutoDetect=rsmi\n")
    assert [(d.vendor, d.model) for d in found.nodes[0].devices] == [("amd", "new")]
    assert outcomes(found, "AutoDetect") == [(1, "rsmi", "approximated")]


def test_shares_are_approximated_and_other_resources_are_not_mapped(tmp_path):
    found = slurm_of(tmp_path, NODE.format("gpu:1"), gres="Name=mps Count=100\nName=nic File=/dev/nic0\n")
    assert outcomes(found, "Count") == [(1, "100", "approximated")]
    assert outcomes(found, "Name") == [(1, "mps", "approximated"), (2, "nic", "not mapped")]


def test_mig_instances_become_whole_devices_that_may_be_cut(tmp_path):
    lines = "".join(
        f"Name=gpu Type=3g.20gb MultipleFiles=/dev/nvidia{card},/dev/nvidia-caps/nvidia-cap{card}{i}\n"
        for card in (0, 1) for i in (1,)
    )  # fmt: skip
    found = devices(tmp_path, "gpu:3g.20gb:2", lines)  # six slices, but on two cards
    assert [(d.index, d.model, d.memory_bytes // GIB, d.mig) for d in found] == [
        (0, "a100", 40, True), (1, "a100", 40, True),
    ]  # fmt: skip


def test_whole_devices_stand_before_those_that_are_cut(tmp_path):
    found = slurm_of(tmp_path, "NodeName=n1 Gres=gpu:1g.10gb:7,gpu:h100:1\n")
    (node,) = found.nodes
    assert [(d.index, d.model, d.mig) for d in node.devices] == [(0, "h100", False), (1, "a100", True)]
    assert (1, "gpu: 7 MIG instances", "approximated") in outcomes(found, "Gres")


def test_detection_that_is_off_for_a_node_is_said_once(tmp_path):
    found = slurm_of(tmp_path, "NodeName=n1 Gres=gpu:1\n", gres="NodeName=n1 AutoDetect=off\n")
    assert outcomes(found, "NodeName")[1:] == [(1, "n1", "mapped")]


def test_mig_instances_that_are_only_counted_are_put_together_by_slices(tmp_path):
    found = devices(tmp_path, "gpu:h100_1g.10gb:10")
    assert [(d.model, d.memory_bytes // GIB, d.capability, d.mig) for d in found] == [("h100", 80, (9, 0), True)] * 2


@pytest.mark.parametrize(
    ("lines", "field", "said"),
    [
        ("Name=gpu Fiel=/dev/nvidia0\n", "Fiel", "a key that Slurm knows here"),
        ("Name=gpu File=/dev/nvidia[0-\n", "File", "brackets in pairs"),
        ("Name=gpu Count=1 Cores=a-b\n", "Cores", "core numbers"),
        ("Name=gpu Links=x Count=1\n", "Links", "counts of connections"),
        ("Name=gpu Count=many\n", "Count", "a count such as 8"),
        ("Name=gpu File=/dev/nvidia[0-2000]\n", "Gres", "at most 1024 GPUs in a node"),
    ],
)
def test_malformed_lines_are_refused(tmp_path, lines, field, said):
    with pytest.raises(ImportFault, match=said) as caught:
        slurm_of(tmp_path, NODE.format("gpu:1"), gres=lines)
    assert caught.value.field == field
