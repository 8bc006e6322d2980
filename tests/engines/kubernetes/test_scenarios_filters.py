"""Where pods may be: every rule of Kubernetes about nodes and about other pods, seen from outside."""

from typing import Any

import pytest

from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, box, in_scene, scene

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


async def placed(c: Scene, *names: str) -> list[str]:
    await until(lambda: all(c.where(*names)))
    return c.where(*names)


def rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def on_nodes(*terms: list[dict[str, Any]], fields: str = "matchExpressions") -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{fields: term} for term in terms]}}}


SSD = {"disk": "ssd"}
AFFINITIES: dict[str, tuple[dict[str, Any], str]] = {
    "In": ({"affinity": on_nodes([rule("disk", "In", "tape", "ssd")])}, "fast"),
    "NotIn, and another value": ({"affinity": on_nodes([rule("disk", "NotIn", "ssd")])}, "slow"),
    "NotIn, and no such label": ({"affinity": on_nodes([rule("only", "NotIn", "slow")])}, "fast"),
    "Exists": ({"affinity": on_nodes([rule("only", "Exists")])}, "slow"),
    "DoesNotExist": ({"affinity": on_nodes([rule("only", "DoesNotExist")])}, "fast"),
    "Gt": ({"affinity": on_nodes([rule("cores", "Gt", "16")])}, "fast"),
    "Lt": ({"affinity": on_nodes([rule("cores", "Lt", "32")])}, "slow"),
    "one of two terms": ({"affinity": on_nodes([rule("disk", "In", "tape")], [rule("disk", "In", "ssd")])}, "fast"),
    "both rules of a term": (
        {"affinity": on_nodes([rule("disk", "Exists"), rule("cores", "Lt", "32")])},
        "slow",
    ),
    "a selector and a rule": ({"nodeSelector": SSD, "affinity": on_nodes([rule("cores", "Exists")])}, "fast"),
    "the name of the node": (
        {"affinity": on_nodes([rule("metadata.name", "In", "slow")], fields="matchFields")},
        "slow",
    ),
    "any name but this": (
        {"affinity": on_nodes([rule("metadata.name", "NotIn", "slow")], fields="matchFields")},
        "fast",
    ),
}
"""k8s filters_test and e2e predicates: the spec, and the only node that it allows."""


@pytest.mark.parametrize("form", AFFINITIES)
def test_a_pod_is_placed_where_its_rules_about_nodes_allow_it(form: str) -> None:
    spec, node = AFFINITIES[form]

    async def work() -> None:
        async with scene() as c:
            c.node("fast", disk="ssd", cores="32")
            c.node("slow", disk="hdd", cores="16", only="slow")
            await until(c.ready)
            for name in ("one", "two"):
                c.pod(name, gpus=2, **spec)
            assert await placed(c, "one", "two") == [node, node]
            c.pod("three", gpus=1, **spec)
            await c.waits("three")

    run(work)


@pytest.mark.parametrize("terms", [[], [[]]], ids=["no term", "a term without rules"])
def test_rules_without_content_allow_no_node(terms: Any) -> None:
    """k8s: an empty term matches nothing, unlike an absent rule."""

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("nowhere", affinity=on_nodes(*terms))
            c.pod("anywhere")
            assert await placed(c, "anywhere") == ["n1"]
            await until(lambda: c.says("nowhere")[0] != "")
            assert c.where("nowhere") == [""]

    run(work)


TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}
TOLERATIONS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "none": ([], False),
    "the same value": ([{"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}], True),
    "the operator left out": ([{"key": "team", "value": "red"}], True),
    "another value": ([{"key": "team", "value": "blue"}], False),
    "any value": ([{"key": "team", "operator": "Exists"}], True),
    "every taint": ([{"operator": "Exists"}], True),
    "another key": ([{"key": "crew", "operator": "Exists"}], False),
    "another effect": ([{"key": "team", "operator": "Exists", "effect": "NoExecute"}], False),
}
"""k8s taint_test and e2e predicates."""


@pytest.mark.parametrize("form", TOLERATIONS)
def test_a_taint_keeps_pods_off_that_do_not_tolerate_it(form: str) -> None:
    tolerations, tolerated = TOLERATIONS[form]

    async def work() -> None:
        async with scene() as c:
            c.node("tainted", taints=[TAINT])
            c.node("free", full="yes")
            await until(c.ready)
            c.theirs("theirs", gpus=4, node="free")
            await until(lambda: len(c.state.nodes["free"].others.devices) == 4)
            c.pod("one", tolerations=tolerations)
            if tolerated:
                assert await placed(c, "one") == ["tainted"]
            else:
                await c.waits("one")

    run(work)


@pytest.mark.parametrize(
    ("effect", "kept_off"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_only_hard_taints_keep_pods_off(effect: str, kept_off: bool) -> None:
    """k8s taint_test: what is only preferred does not forbid."""

    async def work() -> None:
        async with scene() as c:
            c.node("n1", taints=[{"key": "spot", "effect": effect}])
            await until(c.ready)
            c.pod("one")
            await until(lambda: c.where("one") == ["n1"] or c.says("one")[0] != "")
            assert c.where("one") == ([""] if kept_off else ["n1"])

    run(work)


@in_scene("n1", "n2")
async def test_a_cordoned_node_gets_no_pods_and_keeps_those_it_has(c: Scene) -> None:
    """k8s e2e predicates; notes of drains: unschedulable, then evictions."""
    c.gang("team", 2, gpus=4)
    await until(lambda: c.states() == {"team": "running"})
    c.change("/nodes", "n1", {"spec": {"unschedulable": True}})
    await until(lambda: c.state.nodes["n1"].spec.taints != ())
    names = [name for name in ("team-0", "team-1") if c.where(name) == ["n1"]]
    for name in ("team-0", "team-1"):
        assert c.get(name)["status"]["phase"] == "Running"
        c.ends(name)
    c.pod("next", gpus=4)
    assert (await placed(c, "next"), len(names)) == (["n2"], 1)
    c.pod("later", gpus=4)
    await c.waits("later")
    c.change("/nodes", "n1", {"spec": {"unschedulable": False}})
    assert await placed(c, "later") == ["n1"]


@in_scene("n1")
async def test_a_node_that_is_not_ready_gets_no_pods(c: Scene) -> None:
    """k8s: its controller is about to taint it."""
    down = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "no word"}
    c.change("/nodes", "n1", {"status": {"conditions": [down]}}, part="status")
    await until(lambda: c.state.nodes["n1"].spec.taints != ())
    c.pod("one")
    await until(lambda: c.says("one")[0] != "")
    assert c.where("one") == [""]
    c.change("/nodes", "n1", {"status": {"conditions": [{**down, "status": "True"}]}}, part="status")
    assert await placed(c, "one") == ["n1"]


def port(number: int, address: str = "", protocol: str = "TCP") -> dict[str, Any]:
    one = {"containerPort": number, "hostPort": number, "protocol": protocol}
    return {**box(0), "ports": [{**one, **({"hostIP": address} if address else {})}]}


PORTS: dict[str, tuple[dict[str, Any], bool]] = {
    "the same": (port(80), False),
    "another number": (port(81), True),
    "another protocol": (port(80, protocol="UDP"), True),
    "one address of the same": (port(80, "10.0.0.1"), False),
}
"""k8s e2e predicates (hostPort), beside a pod with port 80 of all addresses; volcano PR#3895."""


@pytest.mark.parametrize("whose", ["penstock", "default-scheduler"])
@pytest.mark.parametrize("form", PORTS)
def test_a_port_of_a_node_is_given_out_once(form: str, whose: str) -> None:
    container, free = PORTS[form]

    async def work() -> None:
        async with scene("n1") as c:
            if whose == "penstock":
                c.pod("first", containers=[port(80)])
            else:
                c.theirs("first", containers=[port(80)])
            await until(lambda: c.states() == {"first": "running"} or c.state.nodes["n1"].others.selected != ())
            c.pod("second", containers=[container])
            if free:
                assert await placed(c, "second") == ["n1"]
            else:
                await c.waits("second")
                c.ends("first")
                assert await placed(c, "second") == ["n1"]

    run(work)


@in_scene("n1")
async def test_one_port_on_two_addresses_is_two_ports(c: Scene) -> None:
    """k8s e2e predicates: two addresses of a node do not conflict, all of them with each."""
    c.pod("one", containers=[port(80, "10.0.0.1")])
    c.pod("two", containers=[port(80, "10.0.0.2")])
    assert await placed(c, "one", "two") == ["n1", "n1"]
    c.pod("all", containers=[port(80)])
    await c.waits("all")


@in_scene("n1")
async def test_a_port_of_a_sidecar_counts(c: Scene) -> None:
    """KEP-753: a sidecar stays as long as its pod."""
    c.theirs("first", containers=[box(0)], initContainers=[{**port(80), "name": "side", "restartPolicy": "Always"}])
    await until(lambda: c.state.nodes["n1"].others.selected != ())
    c.pod("second", containers=[port(80)])
    await c.waits("second")


@in_scene("n1")
async def test_all_gates_have_to_be_lifted(c: Scene) -> None:
    """KEP-3521, volcano#3658: and what the API server says of them on the pod stays."""
    c.pod("one", schedulingGates=[{"name": "a"}, {"name": "b"}])
    c.pod("other")
    await placed(c, "other")
    c.change("/pods", "one", {"spec": {"schedulingGates": [{"name": "b"}]}})
    c.pod("third")
    await placed(c, "third")
    assert (c.where("one"), c.says("one")[0]) == ([""], "SchedulingGated")
    c.change("/pods", "one", {"spec": {"schedulingGates": []}})
    assert await placed(c, "one") == ["n1"]
