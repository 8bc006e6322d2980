"""Gangs, in every dialect: none starts in part, none keeps another from starting, and one that lost a pod is healed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.sim.apiserver.store import Kind
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import COSCHEDULING, VOLCANO, Scene, box, in_scene, scene, template

NATIVE = "scheduling.k8s.io/podgroups"
Marks = tuple[dict[str, str], dict[str, str], dict[str, Any]]


class Dialect(NamedTuple):
    """How pods of a gang say so."""

    marks: Callable[[str, int], Marks]
    """Labels, annotations and fields of the spec, by the gang's name and size."""
    group: Callable[[str, int], tuple[Kind | str, Any]] | None = None
    """The object that says the size, where one does."""
    kinds: tuple[Kind, ...] = ()


def _yunikorn(name: str, size: int) -> Marks:
    groups = f'[{{"name": "head", "minMember": 1}}, {{"name": "work", "minMember": {size - 1}}}]'
    annotations = {"yunikorn.apache.org/task-group-name": "work", "yunikorn.apache.org/task-groups": groups}
    return {"applicationId": name}, annotations, {}


DIALECTS = {
    "ours": Dialect(lambda name, size: ({"penstock.dev/gang": name, "penstock.dev/gang-size": str(size)}, {}, {})),
    "native": Dialect(
        lambda name, size: ({}, {}, {"schedulingGroup": {"podGroupName": name}}),
        lambda name, size: (NATIVE, {"schedulingPolicy": {"gang": {"minCount": size}}}),
    ),
    "coscheduling": Dialect(
        lambda name, size: ({"scheduling.x-k8s.io/pod-group": name}, {}, {}),
        lambda name, size: (COSCHEDULING, {"minMember": size}),
        (COSCHEDULING,),
    ),
    "volcano": Dialect(
        lambda name, size: ({}, {"scheduling.k8s.io/group-name": name}, {}),
        lambda name, size: (VOLCANO, {"minMember": size}),
        (VOLCANO,),
    ),
    "kai": Dialect(
        lambda name, size: ({}, {"pod-group-name": name, "kai.scheduler/batch-min-member": str(size)}, {}),
    ),
    "kueue": Dialect(
        lambda name, size: (
            {"kueue.x-k8s.io/pod-group-name": name},
            {"kueue.x-k8s.io/pod-group-total-count": str(size)},
            {},
        )
    ),
    "yunikorn": Dialect(_yunikorn),
    "leaderworkerset": Dialect(
        lambda name, size: (
            {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-index": "0"},
            {"leaderworkerset.sigs.k8s.io/size": str(size)},
            {},
        )
    ),
}


def _pod(c: Scene, dialect: Dialect, gang: str, size: int, name: str, gpus: int = 1) -> None:
    labels, annotations, spec = dialect.marks(gang, size)
    body = {"schedulerName": "penstock", "containers": [box(gpus)], **spec}
    c.make("/pods", name, body, labels=labels, annotations=annotations)


def _group(c: Scene, dialect: Dialect, gang: str, size: int) -> None:
    if dialect.group is not None:
        kind, spec = dialect.group(gang, size)
        c.make(kind, gang, spec)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_gang_waits_for_all_its_pods_in_every_dialect(dialect: Dialect) -> None:
    """KEP-4671 (minCount); scheduler-plugins coscheduling_test; volcano e2e jobp; KAI third_party; YuniKorn gangs."""

    async def work() -> None:
        async with scene("n1", kinds=dialect.kinds) as c:
            _group(c, dialect, "team", 3)
            for name in ("team-1", "team-2"):
                _pod(c, dialect, "team", 3, name)
            c.pod("single")
            await until(lambda: c.where("single") == ["n1"])
            assert list(c.states()) == ["single"]
            assert c.where("team-1", "team-2") == ["", ""]
            _pod(c, dialect, "team", 3, "team-0")
            await until(lambda: c.where("team-0", "team-1", "team-2") == ["n1"] * 3)
            assert len(c.states()) == 2, "one job for the whole gang"

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_gang_without_room_for_all_its_pods_leaves_the_room_to_others_in_every_dialect(dialect: Dialect) -> None:
    """AI conformance gang scheduling (no part of it starts); kueue#4329: what cannot be placed holds nothing."""

    async def work() -> None:
        async with scene("n1", "n2", kinds=dialect.kinds) as c:
            c.theirs("theirs", gpus=2, node="n1")
            _group(c, dialect, "team", 2)
            for name in ("team-0", "team-1"):
                _pod(c, dialect, "team", 2, name, gpus=4)
            await c.waits("team-0", "team-1")
            c.pod("other", gpus=4)
            await until(lambda: c.where("other") == ["n2"])
            c.delete("theirs")
            c.ends("other")
            await until(lambda: sorted(c.where("team-0", "team-1")) == ["n1", "n2"])

    run(work)


@pytest.mark.parametrize("dialect", ["native", "coscheduling", "volcano"])
def test_a_pod_that_names_a_missing_group_waits_until_there_is_one(dialect: str) -> None:
    """KEP-4671: such a pod is not scheduled before; k8s podgroup_test."""
    spoken = DIALECTS[dialect]

    async def work() -> None:
        async with scene("n1", kinds=spoken.kinds) as c:
            _pod(c, spoken, "team", 1, "early")
            await c.waits("early", reason="GangUnknown")
            assert "PodGroup team" in c.says("early")[1]
            _group(c, spoken, "team", 1)
            await until(lambda: c.where("early") == ["n1"])

    run(work)


@in_scene("n1")
async def test_pods_of_a_basic_group_start_one_by_one(c: Scene) -> None:
    """KEP-4671: with `basic` nothing is asked for together; so the Job controller's own groups are read (KEP-5547)."""
    c.make(NATIVE, "loose", {"schedulingPolicy": {"basic": {}}})
    c.theirs("theirs", gpus=3)
    for name in ("one", "two"):
        _pod(c, DIALECTS["native"], "loose", 2, name)
    await until(lambda: any(c.where("one", "two")))
    assert sorted(c.where("one", "two")) == ["", "n1"]


@in_scene("n1")
async def test_the_priority_of_a_native_group_is_that_of_its_gang(c: Scene) -> None:
    """KEP-5710: the PodGroup's own priority counts when it preempts, not that of its pods."""
    c.pod("low", gpus=4)
    await until(lambda: c.states() == {"low": "running"})
    c.make(NATIVE, "team", {"priority": 500, "schedulingPolicy": {"gang": {"minCount": 2}}})
    for name in ("team-0", "team-1"):
        _pod(c, DIALECTS["native"], "team", 2, name, gpus=2)
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
    assert c.get("low") is None


@in_scene("n1", kinds=(VOLCANO,))
async def test_the_priority_class_of_a_volcano_group_is_that_of_its_gang(c: Scene) -> None:
    """volcano#3291: a gang of higher priority takes the room of lower ones."""
    c.priority("urgent", 700)
    c.pod("low", gpus=4)
    await until(lambda: c.states() == {"low": "running"})
    c.make(VOLCANO, "team", {"minMember": 2, "priorityClassName": "urgent"})
    for name in ("team-0", "team-1"):
        _pod(c, DIALECTS["volcano"], "team", 2, name, gpus=2)
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
    assert c.get("low") is None


def _zones(c: Scene) -> None:
    """Two zones of two nodes: in the first one node is half full, so that only the second holds four pods of 2."""
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        c.node(name, **{"topology.kubernetes.io/zone": zone})
    c.theirs("theirs", gpus=2, node="a1")


@pytest.mark.parametrize("dialect", ["native", "kai", "kueue"])
def test_a_gang_that_asks_for_one_zone_gets_one(dialect: str) -> None:
    """KEP-5732 (topology of a PodGroup); KAI e2e topology; kueue e2e tas."""
    key = "topology.kubernetes.io/zone"
    asked: dict[str, dict[str, str]] = {
        "kai": {"kai.scheduler/topology-required-placement": key},
        "kueue": {"kueue.x-k8s.io/podset-required-topology": key},
        "native": {},
    }

    async def work() -> None:
        async with scene() as c:
            _zones(c)
            await until(c.ready)
            if dialect == "native":
                policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
                c.make(NATIVE, "team", {**policy, "schedulingConstraints": {"topology": [{"key": key}]}})
            names = [f"team-{i}" for i in range(4)]
            for name in names:
                labels, annotations, spec = DIALECTS[dialect].marks("team", 4)
                body = {"schedulerName": "penstock", "containers": [box(2)], **spec}
                c.make("/pods", name, body, labels=labels, annotations={**annotations, **asked[dialect]})
            await until(lambda: all(c.where(*names)))
            assert sorted(c.where(*names)) == ["b1", "b1", "b2", "b2"]

    run(work)


@in_scene("n1")
async def test_a_gated_pod_does_not_count_to_its_gang(c: Scene) -> None:
    """volcano#3555, volcano#3658, scheduler-plugins PR#952: gates are kept, and the gang waits for them."""
    gate = [{"name": "example.com/data"}]
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}
    c.pod("team-0", labels=labels)
    c.pod("team-1", labels=labels, schedulingGates=gate)
    c.pod("single")
    await until(lambda: c.where("single") == ["n1"])
    assert c.where("team-0", "team-1") == ["", ""]
    c.change("/pods", "team-1", {"spec": {"schedulingGates": []}})
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])


@in_scene("n1")
async def test_a_gang_that_loses_a_pod_while_it_waits_starts_once_it_is_whole_again(c: Scene) -> None:
    """k8s podgroup_test: a pod that is deleted counts no more."""
    c.theirs("theirs", gpus=4)
    c.gang("team", 2)
    await c.waits("team-0", "team-1")
    c.delete("team-1")
    await until(lambda: c.state.jobs[1].hold is not None)
    c.delete("theirs")
    c.pod("single")
    await until(lambda: c.where("single") == ["n1"])
    assert c.where("team-0") == [""]
    c.gang("team", 2, first=1)
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
    assert c.state.jobs[1].spec.name == "team", "it kept its place in the queue"


@in_scene("n1")
async def test_pods_beyond_the_size_of_a_gang_start_alone_once_it_is_known(c: Scene) -> None:
    """KAI e2e allocate/elastic: a gang of at least two with three pods starts, and the third when there is room."""
    labels = {"pod-group-name": "team", "kai.scheduler/batch-min-member": "2"}
    for name in ("team-0", "team-1"):
        c.pod(name, gpus=2, labels=labels)
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
    c.pod("team-2", gpus=2, labels=labels)
    await c.waits("team-2")
    c.ends("team-0")
    await until(lambda: c.where("team-2") == ["n1"])
    assert c.where("team-1") == ["n1"]


@in_scene("n1")
async def test_gangs_of_one_name_in_two_namespaces_are_two(c: Scene) -> None:
    """KEP-4671: a PodGroup is an object of its namespace."""
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}
    spec = {"schedulerName": "penstock", "containers": [box()]}
    for namespace in ("default", "other"):
        c.make("/pods", "team-0", spec, namespace=namespace, labels=labels)
    c.pod("single")
    await until(lambda: c.where("single") == ["n1"])
    assert c.where("team-0") == [""], "the pod of the other namespace is none of its gang"
    c.make("/pods", "team-1", spec, namespace="other", labels=labels)
    there = c.store.all_of("pods")
    await until(lambda: all(there["other", name]["spec"].get("nodeName") for name in ("team-0", "team-1")))
    assert c.where("team-0") == [""]


@in_scene("n1", "n2")
async def test_gangs_that_ask_for_the_same_room_start_one_after_the_other(c: Scene) -> None:
    """KEP-4671 names the deadlock of gangs that hold a part each; k8s e2e gang_scheduling; scheduler_perf gangs."""
    names = ("red", "green", "blue")
    for i in range(2):
        for name in names:
            c.pod(f"{name}-{i}", gpus=4, labels={"penstock.dev/gang": name, "penstock.dev/gang-size": "2"})
    left = set(names)
    while left:
        await until(lambda: any(all(c.where(f"{name}-0", f"{name}-1")) for name in left))
        (first,) = [name for name in left if any(c.where(f"{name}-0", f"{name}-1"))]
        assert all(c.where(f"{first}-0", f"{first}-1"))
        for i in range(2):
            c.ends(f"{first}-{i}")
        left.remove(first)
    await until(lambda: c.states() == {})


@in_scene("n1", "n2")
async def test_a_gang_of_pods_of_two_owners_starts_together(c: Scene) -> None:
    """KAI#1420: pods of a Job and a pod of a server are one gang by their label."""
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"}
    plain = c.job("train", 2, pods=template(2, labels), labels={}, suspend=False)
    await until(lambda: len(c.pods_of("train")) == 2)
    c.pod("single")
    await until(lambda: all(c.where("single")))
    assert c.nodes_of("train") == ["", ""]
    c.pod("server", gpus=2, labels=labels)
    await until(lambda: all((*c.nodes_of("train"), *c.where("server"))))
    assert sorted(c.states()) == ["single", "team"]
    assert plain["spec"]["suspend"] is False


@in_scene("n1")
async def test_a_gang_may_have_pods_that_ask_for_different_amounts(c: Scene) -> None:
    """KEP-4671: kube-scheduler promises nothing for such groups; here they are planned as a whole."""
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"}
    c.pod("team-launcher", gpus=0, cpus="5", labels=labels)
    for name in ("team-0", "team-1"):
        c.pod(name, gpus=2, labels=labels)
    await until(lambda: c.where("team-launcher", "team-0", "team-1") == ["n1"] * 3)
    devices = [c.get(name)["metadata"]["annotations"]["penstock.dev/devices"] for name in ("team-0", "team-1")]
    assert sorted(",".join(devices)) == list(",,,0123")


@in_scene("n1", "n2")
async def test_rules_between_pods_of_a_gang_hold_among_themselves(c: Scene) -> None:
    """KEP-4671 leaves rules inside a group to chance; volcano#2976: no part of it may start that then does not fit."""
    apart = {"labelSelector": {"matchLabels": {"team": "red"}}, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    c.gang("pair", 2, labels={"team": "red"}, affinity=rules)
    await until(lambda: all(c.where("pair-0", "pair-1")))
    assert sorted(c.where("pair-0", "pair-1")) == ["n1", "n2"]
    c.ends("pair-0")
    c.ends("pair-1")
    c.gang("three", 3, labels={"team": "red"}, affinity=rules)
    await until(lambda: c.says("three-0")[0] != "")
    assert c.where("three-0", "three-1", "three-2") == ["", "", ""]


@in_scene("n1", "n2")
async def test_ranks_follow_the_numbers_in_the_names_of_pods(c: Scene) -> None:
    """Names with numbers of two digits come after those of one: as worker processes are numbered."""
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"}
    for name in ("team-10", "team-2", "team-1"):
        c.pod(name, labels=labels)
    await until(lambda: all(c.where("team-1", "team-2", "team-10")))
    ranks = [c.get(name)["metadata"]["annotations"]["penstock.dev/replica"] for name in ("team-1", "team-2", "team-10")]
    assert ranks == ["1.1.0", "1.1.1", "1.1.2"]


@in_scene("n1")
async def test_a_gang_whose_pods_are_deleted_one_after_the_other_leaves_no_job(c: Scene) -> None:
    """Without the first one it is held; without any there is nobody to wait for."""
    c.theirs("theirs", gpus=4)
    c.gang("train", 2)
    await until(lambda: c.states() == {"train": "waiting"})
    c.delete("train-0")
    await until(lambda: c.state.jobs[1].hold is not None)
    c.delete("train-1")
    await until(lambda: c.states() == {})
    assert [row.state for row in c.disk.finished_jobs(9)] == ["cancelled"]
