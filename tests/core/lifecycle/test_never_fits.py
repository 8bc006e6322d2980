"""The refusal of what no set of nodes could hold: of the pool that was asked, with numbers and what would fit."""

import pytest

from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.refused import refused_text
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.model.selectors import Taint
from penstock.testing.builders import ask, device, job_spec, node
from penstock.testing.harness import World


def refusal(*nodes, queues=None, pools=("default", "big"), spec=None, **fields):
    settings = {"queues": queues} if queues else {}
    w = World(*nodes, pools=tuple(Pool(name) for name in pools), **settings)
    (problem,) = w.request(spec or job_spec(**fields)).problems
    assert problem.code == "never_fits"
    return problem


def test_only_nodes_of_the_pool_are_counted_and_only_what_was_asked_is_said():
    problem = refusal(node("a", 4), node("b", 4), node("c", 4, pool="big"), devices=5, cpus=0)
    assert problem.message == (
        "no node of pool 'default' can hold this job (5 devices), even when empty: 2 nodes have too few devices"
    )
    assert (problem.field, problem.value) == ("devices", "5 devices")
    assert problem.hint == "the largest node of pool 'default' is a, with 4 devices"


def test_a_pool_without_nodes_is_named_as_the_reason():
    problem = refusal(node("a", 4), pool="big")
    assert (problem.field, problem.message) == ("pool", "pool 'big' has no nodes")
    assert problem.hint == "pool 'default' could hold it"


def test_a_pool_that_could_hold_it_is_named_unless_a_maximum_forbids_it():
    nodes = (node("a", 4), node("b", 8, pool="big"))
    assert refusal(*nodes, devices=6).hint.endswith("; pool 'big' could hold it")
    closed = (Queue("default", max=(("big/devices", 2000),)),)
    assert "pool 'big'" not in refusal(*nodes, queues=closed, devices=6).hint


def test_the_largest_node_is_that_with_most_of_what_is_short():
    problem = refusal(node("a", 8), node("b", 4, memory_gib=128), devices=1, memory_gib=200)
    assert problem.message.endswith("2 nodes have too little memory")
    assert problem.field == "memory"
    assert problem.hint == "the largest node of pool 'default' is b, with 4 devices, 16 CPUs, 128 GiB of memory"


def test_the_largest_node_has_most_of_the_amount_that_is_short_whatever_else_refuses():
    slow = {"labels": (("gpu", "slow"),)}
    nodes = (node("a1", 8, **slow), node("a2", 8, **slow), node("b", 8), node("c", 4, memory_gib=128))
    problem = refusal(*nodes, devices=1, memory_gib=200, labels_shunned=(("gpu", "slow"),))
    assert problem.message.endswith("2 nodes do not have the labels wanted; 2 nodes have too little memory")
    assert problem.hint.startswith("the largest node of pool 'default' is c, with 4 devices, 16 CPUs, 128 GiB")


def test_a_taint_that_keeps_a_job_off_every_node_is_named():
    problem = refusal(node("a", 8, taints=(Taint("spot", "yes"),)), devices=1)
    assert problem.message.endswith("1 node has a taint that it does not tolerate")
    assert (problem.field, problem.hint) == ("tolerations", "taints of its nodes: spot=yes:NoSchedule")


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        ("node", "no node of pool 'default' can hold GANG (topology: node), even when empty: a, the largest, holds 1"),
        ("rack", "no rack of pool 'default' can hold GANG (topology: rack), even when empty: r1, the largest, holds 2"),
        ("switch", "no node of pool 'default' that could hold GANG declares its switch"),
    ],
)
def test_a_topology_is_named_where_it_is_the_reason(topology, text):
    nodes = [node(name, 4, rack=rack) for name, rack in zip("abcd", ("r1", "r1", "r2", "r2"), strict=True)]
    problem = refusal(*nodes, devices=4, replicas=4, topology=topology)
    assert (problem.field, problem.message.replace("4 replicas of 4 devices and 1 CPU", "GANG")) == ("topology", text)
    assert problem.hint == "with another `topology`, or none, it would fit"


def test_replicas_that_must_be_spread_are_counted_by_nodes():
    problem = refusal(node("a", 8), node("b", 8), devices=1, replicas=3, topology="spread")
    assert problem.message.endswith(
        "each on a node of its own (topology: spread), even when empty: 2 nodes can hold one"
    )


def test_too_many_replicas_are_counted():
    problem = refusal(node("a", 4), node("b", 4), devices=2, replicas=5)
    assert problem.message == (
        "pool 'default' cannot hold 5 replicas of 2 devices and 1 CPU, even when empty: 4 fit at most"
    )
    assert problem.field == "replicas"


def test_groups_are_named_with_all_their_replicas():
    one, two = (ReplicaAsk(Resources(), DeviceAsk(count)) for count in (1, 4))
    gang = GangAsk(2, one, others=(GroupAsk(1, two),))
    problem = refusal(node("a", 5), spec=job_spec(gang=gang))
    assert problem.message == (
        "pool 'default' cannot hold 2 replicas of 1 device, plus 1 replica of 4 devices together, even when empty"
    )


def test_a_mig_profile_is_named_with_those_that_there_are():
    plain, mig = device(0, model="A100-SXM4-80GB"), device(0, model="A100-SXM4-80GB", mig=True)
    gang = ask(1, cpus=0, profile="3g.20gb")
    without = refusal(node("a", (plain,)), spec=job_spec(gang=gang))
    assert without.message.startswith("no node of pool 'default' can hold this job (a MIG instance 3g.20gb)")
    assert without.hint == "no device of pool 'default' is declared as one that may be cut into MIG instances"
    offered = refusal(node("a", (mig,)), spec=job_spec(gang=gang)).hint
    assert offered.startswith("its devices offer the profiles 1g.10gb")


def test_filters_of_devices_are_answered_with_the_devices_there_are():
    problem = refusal(node("a", 4), devices=1, cpus=0, models=("H100",))
    assert problem.message.endswith(
        "(1 device of model H100), even when empty: 1 node has no device of an accepted model"
    )
    assert problem.hint == "devices of pool 'default': A100 of nvidia (80 GiB)"


def test_labels_are_answered_with_those_that_the_nodes_have():
    problem = refusal(node("a", 4, labels=(("zone", "b"),)), labels_wanted=(("zone", "c"),))
    assert (problem.field, problem.hint) == ("node_labels", "labels of its nodes: zone=b")


def test_only_the_first_refusal_of_a_request_looks_for_what_would_fit():
    w = World(node("a", 4), node("b", 8, pool="big"), pools=(Pool("default"), Pool("big")))
    first, second = w.request(job_spec(5), job_spec(6)).problems
    assert first.hint == "the largest node of pool 'default' is a, with 4 devices, 16 CPUs; pool 'big' could hold it"
    assert (second.code, second.hint) == ("never_fits", "")
    assert second.message.endswith("(6 devices and 1 CPU), even when empty: 1 node has too few devices")


def test_verbs_agree_with_the_number_of_nodes():
    assert refused_text([("label", 1), ("node_lost", 2)]) == "1 node does not have the labels wanted; 2 nodes are lost"
    assert refused_text([("device_failed", 1)]) == "1 node has failed devices"
