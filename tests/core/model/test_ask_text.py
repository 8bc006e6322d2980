"""What jobs ask for, in words and in cells of tables."""

import pytest

from penstock.core.model.ask_text import devices_cell, gang_text, placement_text
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import ask

WORKER = ReplicaAsk(Resources(1000))
LEADER = GroupAsk(1, ReplicaAsk(Resources(500), DeviceAsk(1)))


@pytest.mark.parametrize(
    ("gang", "cell"),
    [
        (ask(0), ""),
        (ask(8), "8"),
        (ask(2, 4), "4x2"),
        (ask(1, share_milli=250), "0.25"),
        (ask(1, 2, share_milli=500), "2x0.5"),
        (ask(1, profile="1g.10gb"), "1x mig 1g.10gb"),
        (GangAsk(4, ReplicaAsk(Resources(), DeviceAsk(2)), others=(LEADER,)), "4x2 + 1x1"),
    ],
)
def test_devices_are_counted_in_parts_and_by_group(gang, cell):
    assert devices_cell(gang) == cell


@pytest.mark.parametrize(
    ("gang", "text"),
    [
        (ask(1), "1 device and 1 CPU"),
        (ask(0, cpus=0), "no devices, CPUs or memory"),
        (ask(4, 2, cpus=8, memory_gib=3), "2 replicas of 4 devices, 8 CPUs and 3 GiB of memory"),
        (ask(2, cpus=0, models=("a", "b"), link="nvlink"), "2 devices of model a or b joined by nvlink"),
        (ask(1, cpus=0, share_milli=250), "0.25 of a device"),
        (ask(1, cpus=0, profile="1g.10gb"), "a MIG instance 1g.10gb"),
        (GangAsk(1, WORKER, others=(LEADER,)), "1 replica of 1 CPU, plus 1 replica of 1 device and 0.5 CPUs"),
        (GangAsk(2, WORKER, replicas_max=4), "2 to 4 replicas of 1 CPU"),
    ],
)  # fmt: skip
def test_only_what_was_asked_is_said(gang, text):
    assert gang_text(gang) == text


@pytest.mark.parametrize(
    ("gang", "text"),
    [
        (ask(1), ""),
        (ask(1, 2, topology="rack"), "on one rack"),
        (ask(1, 2, topology="spread", required=False), "each on a node of its own if possible"),
        (ask(1, labels_wanted=(("a", "b"),), labels_shunned=(("c", "d"),)), "nodes with a=b; not on nodes with c=d"),
    ],
)
def test_where_replicas_may_stand_is_said(gang, text):
    assert placement_text(gang) == text
