"""What a node of an allocation offers, before there is one."""

import pytest

from penstock.control.slurm_pilot import fresh_node
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.nodes import SlurmNode
from penstock.engines.slurm.pilot.settings import PilotSettings

GIB = 2**30


def node(name: str, cpus: int, gib: int, *, partitions=("main",), features=()) -> SlurmNode:
    return SlurmNode(
        name=name, state="IDLE", reason="", address=name, cpus=cpus, memory_bytes=gib * GIB, storage_bytes=0,
        gres="gpu:a100:8", features=features, partitions=partitions,
    )  # fmt: skip


def test_a_whole_node_offers_the_least_of_those_it_may_be():
    nodes = [node("a", 8, 64), node("b", 16, 32), node("c", 4, 16, partitions=("debug",))]
    fresh = fresh_node(nodes, PilotSettings(partition="main"))
    assert (fresh.capacity.cpu_milli, fresh.capacity.memory_bytes, fresh.devices) == (8_000, 32 * GIB, ())
    assert fresh_node(nodes, PilotSettings()).capacity.cpu_milli == 4_000


def test_what_is_asked_for_is_what_is_offered():
    fresh = fresh_node([node("a", 8, 64)], PilotSettings(cpus=2, memory_mib=1024, gres="gpu:a100:4", pool="lent"))
    assert (fresh.capacity.cpu_milli, fresh.capacity.memory_bytes, fresh.pool) == (2_000, GIB, "lent")
    assert [(device.index, device.model, device.simulated) for device in fresh.devices] == [
        (index, "a100", False) for index in range(4)
    ]
    made_up = fresh_node([node("a", 8, 64)], PilotSettings(gres="gpu:a100:2", simulated=True))
    assert [(device.model, device.simulated) for device in made_up.devices] == [("a100", True)] * 2


def test_nodes_without_a_wanted_feature_do_not_count():
    nodes = [node("a", 8, 64), node("b", 16, 64, features=("fast", "amd"))]
    assert fresh_node(nodes, PilotSettings(constraint="fast&amd")).capacity.cpu_milli == 16_000
    with pytest.raises(SlurmAway, match="no node in partition"):
        fresh_node(nodes, PilotSettings(partition="gpu"))
