"""How many fresh nodes the waiting jobs need."""

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.gang import GangAsk, GroupAsk, Topology
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.core.status.scaleout import Missing
from penstock.engines.slurm.pilot.needs import Needed, nodes_needed

FRESH = NodeSpec(
    NodeName("fresh"), Resources(8_000, 2**35), tuple(Device(i, "nvidia", "a100", 2**35) for i in range(4))
)


def waits(job: int, ask: GangAsk, count: int = 1) -> Missing:
    return Missing(ask.pool, ask, count, tuple(JobId(job + i) for i in range(min(count, 20))), 0)


def cpus(number: int) -> ReplicaAsk:
    return ReplicaAsk(Resources(number * 1_000))


def gpus(number: int) -> ReplicaAsk:
    return ReplicaAsk(Resources(), DeviceAsk(number))


def needed(*missing: Missing, most: int = 10) -> Needed:
    return nodes_needed(missing, FRESH, most)


def test_jobs_are_packed_into_fresh_nodes():
    assert needed().nodes == 0
    assert needed(waits(1, GangAsk(1, cpus(1)), count=17)).nodes == 3
    assert needed(waits(1, GangAsk(2, gpus(4))), waits(9, GangAsk(1, cpus(8)))).nodes == 2
    assert needed(waits(1, GangAsk(2, gpus(3))), waits(9, GangAsk(1, gpus(2)))).nodes == 3
    assert needed(waits(1, GangAsk(3, cpus(1), topology=Topology("spread")))).nodes == 3
    both = GangAsk(2, cpus(1), topology=Topology("spread"))
    assert needed(waits(1, GangAsk(1, cpus(1))), waits(2, both)).nodes == 2
    assert needed(waits(1, GangAsk(1, cpus(8), others=(GroupAsk(2, cpus(4)),)))).nodes == 2


def test_a_gang_takes_nodes_whole_or_not_at_all():
    found = needed(waits(1, GangAsk(3, gpus(4))), waits(2, GangAsk(2, gpus(4))), most=4)
    assert (found.nodes, found.nodes_of[GangAsk(3, gpus(4))]) == (3, 3)
    assert needed(waits(1, GangAsk(1, cpus(8)), count=1_000_000), most=4).nodes == 4


def test_what_no_number_of_nodes_could_hold_is_named_and_asks_for_nothing():
    found = needed(waits(1, GangAsk(5, gpus(4))), waits(2, GangAsk(1, gpus(5))), waits(3, GangAsk(1, cpus(9))), most=4)
    assert (found.nodes, found.never) == (0, {
        GangAsk(5, gpus(4)): "gang_short", GangAsk(1, gpus(5)): "devices_too_few", GangAsk(1, cpus(9)): "cpu_short",
    })  # fmt: skip


def test_jobs_of_other_pools_are_left_to_others():
    assert needed(waits(1, GangAsk(1, cpus(1), pool=PoolName("other")))) == Needed(0, {}, {})


def test_an_elastic_gang_needs_its_least_size():
    assert needed(waits(1, GangAsk(1, gpus(4), replicas_max=8))).nodes == 1
