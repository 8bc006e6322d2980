"""Rules of pods about other pods: affinity, anti-affinity and spread, over nodes and over zones."""

from typing import Any

import pytest

from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, box, in_scene, scene

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


async def placed(c: Scene, *names: str) -> list[str]:
    await until(lambda: all(c.where(*names)))
    return c.where(*names)


def near(key: str, selector: Any = WEB, **more: Any) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [{"labelSelector": selector, "topologyKey": key, **more}]}}


def apart(key: str, selector: Any = WEB, **more: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [{"labelSelector": selector, "topologyKey": key, **more}]}}


def spread(key: str, selector: Any = WEB, **more: Any) -> list[dict[str, Any]]:
    one = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [{**one, **more}]


async def zones(c: Scene, *names: str) -> None:
    """Nodes named by their zone and a number."""
    for name in names:
        c.node(name, **{ZONE: name[0]})
    await until(c.ready)


@pytest.mark.parametrize("whose", ["penstock", "default-scheduler"])
def test_a_pod_is_placed_near_those_it_asks_for(whose: str) -> None:
    """k8s e2e predicates (InterPodAffinity), whoever placed the other pod."""

    async def work() -> None:
        async with scene() as c:
            await zones(c, "a1", "b1", "b2")
            spec = {"nodeSelector": {HOST: "b1"}} if whose == "penstock" else {"nodeName": "b1"}
            c.pod("web", labels={"app": "web"}, schedulerName=whose, **spec)
            await placed(c, "web")
            c.pod("scout", affinity=near(ZONE), nodeSelector={"absent": ""})
            await until(lambda: c.state.nodes["b1"].others.selected != ())
            for i in range(3):
                c.pod(f"cache-{i}", gpus=2, affinity=near(ZONE))
            assert {name[0] for name in await placed(c, "cache-0", "cache-1", "cache-2")} == {"b"}
            c.pod("beside", gpus=0, affinity=near(HOST))
            assert await placed(c, "beside") == ["b1"]

    run(work)


@in_scene("n1")
async def test_a_pod_waits_for_those_it_wants_near(c: Scene) -> None:
    """k8s filters_test: nobody is there whom its rule selects, and it is not one of them itself."""
    c.pod("cache", affinity=near(HOST))
    await c.waits("cache")
    assert "is not near" in c.says("cache")[1]
    c.theirs("web", gpus=0, labels={"app": "web"})
    assert await placed(c, "cache") == ["n1"]


@in_scene()
async def test_the_first_pod_that_wants_its_own_kind_near_may_start_anywhere(c: Scene) -> None:
    """k8s: the rule that a pod selects itself by; those that follow go to the same zone."""
    await zones(c, "a1", "b1")
    for i in range(3):
        c.pod(f"web-{i}", gpus=1, labels={"app": "web"}, affinity=near(ZONE))
    assert len(set(await placed(c, "web-0", "web-1", "web-2"))) == 1


@in_scene()
async def test_pods_that_keep_apart_never_share_a_zone(c: Scene) -> None:
    """k8s e2e predicates (InterPodAntiAffinity)."""
    await zones(c, "a1", "a2", "b1")
    for i in range(3):
        c.pod(f"web-{i}", gpus=0, labels={"app": "web"}, affinity=apart(ZONE))
    await until(lambda: sum(map(bool, c.where("web-0", "web-1", "web-2"))) == 2)
    there = [name for name in c.where("web-0", "web-1", "web-2") if name]
    assert sorted(name[0] for name in there) == ["a", "b"]
    (waits,) = [f"web-{i}" for i in range(3) if not c.where(f"web-{i}")[0]]
    await c.waits(waits)


@pytest.mark.parametrize("whose", ["penstock", "default-scheduler"])
def test_a_pod_that_wants_to_be_alone_keeps_later_ones_off(whose: str) -> None:
    """Symmetry of anti-affinity: the rule of a pod that is there counts as that of the pod that comes."""

    async def work() -> None:
        async with scene("n1", "n2") as c:
            spec = {"nodeSelector": {HOST: "n1"}} if whose == "penstock" else {"nodeName": "n1"}
            c.pod("shy", schedulerName=whose, affinity=apart(HOST), **spec)
            await until(lambda: c.states() == {"shy": "running"} or c.state.nodes["n1"].others.repels != ())
            for i in range(2):
                c.pod(f"web-{i}", gpus=1, labels={"app": "web"})
            assert await placed(c, "web-0", "web-1") == ["n2", "n2"]
            c.pod("plain", gpus=3)
            assert await placed(c, "plain") == ["n1"], "others are welcome"

    run(work)


@in_scene("n1")
async def test_a_rule_counts_pods_of_its_own_namespace_unless_it_names_others(c: Scene) -> None:
    spec = {"schedulerName": "default-scheduler", "nodeName": "n1", "containers": [box(0)]}
    c.make("/pods", "web", spec, namespace="other", labels={"app": "web"})
    c.pod("shy", affinity=apart(HOST))
    assert await placed(c, "shy") == ["n1"]
    c.pod("first", affinity=apart(HOST, namespaces=["other"]), nodeSelector={"absent": ""})
    await until(lambda: c.state.nodes["n1"].others.selected != ())
    c.pod("named", affinity=apart(HOST, namespaces=["other"]))
    await c.waits("named")


@in_scene("n1")
async def test_a_rule_may_choose_namespaces_by_their_labels(c: Scene) -> None:
    """KEP-2249 (namespaceSelector); and it is looked at anew when the labels of a namespace change."""
    c.make("/namespaces", "other", labels={"team": "red"})
    spec = {"schedulerName": "default-scheduler", "nodeName": "n1", "containers": [box(0)]}
    c.make("/pods", "web", spec, namespace="other", labels={"app": "web"})
    c.pod("shy", affinity=apart(HOST, namespaceSelector={"matchLabels": {"team": "red"}}))
    await c.waits("shy")
    c.change("/namespaces", "other", {"metadata": {"labels": {"team": "blue"}}})
    assert await placed(c, "shy") == ["n1"]


@in_scene("n1", "n2")
async def test_a_rule_may_be_about_pods_of_the_same_version(c: Scene) -> None:
    """KEP-3633 (matchLabelKeys): a rollout keeps apart what is new, and not from what is old."""
    for name in ("n1", "n2"):
        c.theirs(f"old-{name}", gpus=0, node=name, labels={"app": "web", "version": "1"})
    await until(lambda: all(node.others.host.cpu_milli for node in c.state.nodes.values()))
    labels, rule = {"app": "web", "version": "2"}, apart(HOST, matchLabelKeys=["version"])
    c.pod("scout", labels=labels, affinity=rule, nodeSelector={"absent": ""})
    await until(lambda: c.says("scout")[0] != "")
    for name in ("n1", "n2"):
        c.theirs(f"more-{name}", gpus=0, node=name)
    await until(lambda: all(node.others.host.cpu_milli == 2000 for node in c.state.nodes.values()))
    for i in range(3):
        c.pod(f"new-{i}", gpus=0, labels=labels, affinity=rule)
    await until(lambda: sum(map(bool, c.where("new-0", "new-1", "new-2"))) == 2)
    assert sorted(c.where("new-0", "new-1", "new-2")) == ["", "n1", "n2"]


@in_scene()
async def test_pods_are_spread_evenly_over_zones(c: Scene) -> None:
    """k8s e2e predicates (PodTopologySpread): no zone has two more than another."""
    await zones(c, "a1", "a2", "b1")
    names = [f"web-{i}" for i in range(5)]
    for name in names:
        c.pod(name, gpus=0, labels={"app": "web"}, topologySpreadConstraints=spread(ZONE))
    found = [name[0] for name in await placed(c, *names)]
    assert sorted((found.count("a"), found.count("b"))) == [2, 3]


@in_scene()
async def test_pods_wait_where_the_zone_that_lacks_some_is_full(c: Scene) -> None:
    await zones(c, "a1", "b1")
    c.theirs("theirs", gpus=4, node="b1")
    await until(lambda: len(c.state.nodes["b1"].others.devices) == 4)
    for i in range(2):
        c.pod(f"web-{i}", gpus=1, labels={"app": "web"}, topologySpreadConstraints=spread(ZONE))
    await until(lambda: any(c.where("web-0", "web-1")))
    (waits,) = [f"web-{i}" for i in range(2) if not c.where(f"web-{i}")[0]]
    await c.waits(waits)
    c.delete("theirs")
    assert await placed(c, waits) == ["b1"]


@in_scene()
async def test_a_spread_that_is_only_wished_for_forbids_nothing(c: Scene) -> None:
    await zones(c, "a1", "b1")
    c.theirs("theirs", gpus=4, node="b1")
    await until(lambda: len(c.state.nodes["b1"].others.devices) == 4)
    wish = spread(ZONE, whenUnsatisfiable="ScheduleAnyway")
    for i in range(3):
        c.pod(f"web-{i}", gpus=1, labels={"app": "web"}, topologySpreadConstraints=wish)
    assert await placed(c, "web-0", "web-1", "web-2") == ["a1"] * 3


@in_scene()
async def test_a_spread_over_more_domains_than_there_are_waits_for_them(c: Scene) -> None:
    """KEP-3022 (minDomains): with two zones of three a second pod in one of them is too many."""
    await zones(c, "a1", "b1")
    rule = spread(ZONE, minDomains=3)
    for i in range(3):
        c.pod(f"web-{i}", gpus=0, labels={"app": "web"}, topologySpreadConstraints=rule)
    await until(lambda: sum(map(bool, c.where("web-0", "web-1", "web-2"))) == 2)
    assert sorted(c.where("web-0", "web-1", "web-2")) == ["", "a1", "b1"]
    c.node("c1", **{ZONE: "c"})
    await until(lambda: sorted(c.where("web-0", "web-1", "web-2")) == ["a1", "b1", "c1"])


@pytest.mark.parametrize(("policy", "started"), [("Ignore", 1), ("Honor", 3)])
def test_zones_of_tainted_nodes_count_as_the_spread_says(policy: str, started: int) -> None:
    """KEP-3094 (nodeTaintsPolicy): a zone that the pods do not tolerate holds them back, or is left out."""

    async def work() -> None:
        async with scene() as c:
            c.node("a1", **{ZONE: "a"})
            c.node("b1", taints=[{"key": "spot", "effect": "NoSchedule"}], **{ZONE: "b"})
            await until(c.ready)
            rule = spread(ZONE, nodeTaintsPolicy=policy)
            names = [f"web-{i}" for i in range(3)]
            for name in names:
                c.pod(name, gpus=0, labels={"app": "web"}, topologySpreadConstraints=rule)
            await until(lambda: all(c.where(name)[0] or c.says(name)[0] for name in names))
            assert sorted(c.where(*names)) == [""] * (3 - started) + ["a1"] * started

    run(work)


@pytest.mark.parametrize(("policy", "started"), [("Ignore", 1), ("Honor", 3)])
def test_zones_that_a_pod_does_not_choose_count_as_the_spread_says(policy: str, started: int) -> None:
    """KEP-3094 (nodeAffinityPolicy)."""

    async def work() -> None:
        async with scene() as c:
            c.node("a1", disk="ssd", **{ZONE: "a"})
            c.node("b1", **{ZONE: "b"})
            await until(c.ready)
            rule = spread(ZONE, nodeAffinityPolicy=policy)
            names = [f"web-{i}" for i in range(3)]
            for name in names:
                fields: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}, "topologySpreadConstraints": rule}
                c.pod(name, gpus=0, labels={"app": "web"}, **fields)
            await until(lambda: all(c.where(name)[0] or c.says(name)[0] for name in names))
            assert sorted(c.where(*names)) == [""] * (3 - started) + ["a1"] * started

    run(work)


@in_scene()
async def test_a_gang_is_spread_as_a_whole(c: Scene) -> None:
    """kube-scheduler judges members of a group one by one; here all of them are placed so that the rule holds."""
    await zones(c, "a1", "a2", "b1")
    c.gang("team", 4, gpus=1, labels={"app": "web"}, topologySpreadConstraints=spread(ZONE))
    found = [name[0] for name in await placed(c, *(f"team-{i}" for i in range(4)))]
    assert sorted(found) == ["a", "a", "b", "b"]
