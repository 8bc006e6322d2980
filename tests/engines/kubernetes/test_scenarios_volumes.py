"""Pods with volumes: where they are placed, and how their claims get volumes, seen from outside."""

import asyncio
from unittest import mock

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.volumes import getting
from penstock.sim.apiserver.requests import Fault
from penstock.sim.apiserver.volumes import SELECTED, ZONE
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, in_scene, standing, template
from tests.engines.kubernetes.storage import (
    CLAIMS,
    DRIVER,
    HOST,
    VOLUMES,
    bound,
    claim,
    claim_of,
    claim_spec,
    local_class,
    own,
    reached,
    storage_class,
    using,
    volume,
    volume_of,
    zone_of,
)
from tests.engines.kubernetes.test_scenarios_filters import placed

NOT_READY = "VolumeNotReady"


async def zones(c: Scene, *names: str) -> None:
    """Add nodes named by their zone and a number, such as `a1`."""
    for name in names:
        c.node(name, **{ZONE: name[0]})
    await until(c.ready)


@in_scene()
async def test_a_pod_is_placed_where_its_volume_is_reached(c: Scene) -> None:
    """volumebinding: node affinity of a bound volume; volumezone: labels of old volumes."""
    await zones(c, "a1", "b1")
    bound(c, "data", {ZONE: "b"})
    c.pod("one", volumes=using("data"))
    assert await placed(c, "one") == ["b1"]
    bound(c, "old", {}, labels={ZONE: "a"})
    c.pod("two", volumes=using("old"))
    assert await placed(c, "two") == ["a1"]
    bound(c, "nowhere", {ZONE: "c"})
    c.pod("three", volumes=using("nowhere"))
    await c.waits("three")
    await zones(c, "c1")
    assert await placed(c, "three") == ["c1"]


@in_scene("n1")
async def test_a_pod_waits_for_a_claim_that_is_not_there(c: Scene) -> None:
    c.pod("one", volumes=using("data"))
    await c.waits("one", reason=NOT_READY)
    assert "claim data does not exist" in c.says("one")[1]
    bound(c, "data", {HOST: "n1"})
    assert await placed(c, "one") == ["n1"]
    assert c.says("one")[0] == ""


@in_scene("n1")
async def test_a_pod_waits_for_a_claim_that_is_bound_at_once_by_its_class(c: Scene) -> None:
    c.controllers.volumes.idle = True
    storage_class(c, "quick", late=False)
    claim(c, "data", "quick")
    c.pod("one", volumes=using("data"))
    await c.waits("one", reason=NOT_READY)
    assert "claim data is not bound yet" in c.says("one")[1]
    c.controllers.volumes.idle = False
    c.controllers.volumes.reconcile()
    assert await placed(c, "one") == ["n1"]


@in_scene("n1")
async def test_a_pod_does_not_begin_with_a_claim_that_is_being_deleted(c: Scene) -> None:
    bound(c, "data", {HOST: "n1"})
    c.change(CLAIMS, "data", {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}})
    c.store.delete(c.kind("persistentvolumeclaims"), ("default", "data"))
    c.pod("one", volumes=using("data"))
    await c.waits("one", reason=NOT_READY)
    assert "claim data is being deleted" in c.says("one")[1]


@in_scene("n1")
async def test_a_volume_has_to_be_bound_to_the_claim_that_names_it(c: Scene) -> None:
    """Another claim of the name, deleted and created anew, is not the one that the volume is bound to."""
    bound(c, "data", {HOST: "n1"})
    c.controllers.volumes.idle = True
    c.change(VOLUMES, "volume-data", {"spec": {"claimRef": {"uid": "another"}}})
    c.pod("one", volumes=using("data"))
    await c.waits("one", reason=NOT_READY)
    assert "volume volume-data is not bound to claim data" in c.says("one")[1]


# Claims that get their volume once the node is chosen.


@in_scene()
async def test_a_class_makes_a_volume_for_the_node_that_is_chosen(c: Scene) -> None:
    await zones(c, "a1", "b1")
    storage_class(c, "zonal")
    claim(c, "data")
    c.pod("one", volumes=using("data"), nodeSelector={ZONE: "b"})
    assert await placed(c, "one") == ["b1"]
    assert claim_of(c, "data")["metadata"]["annotations"][SELECTED] == "b1"
    assert reached(c, "one")


@in_scene()
async def test_a_class_makes_volumes_where_its_topologies_allow_it(c: Scene) -> None:
    await zones(c, "a1", "b1", "c1")
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]}]
    storage_class(c, "zonal", allowedTopologies=allowed)
    claim(c, "data")
    c.pod("one", volumes=using("data"))
    assert await placed(c, "one") == ["c1"]


@in_scene()
async def test_a_node_for_which_no_volume_is_made_is_not_chosen_again(c: Scene) -> None:
    """external-provisioner takes the annotation back where there is no room."""
    await zones(c, "a1", "b1")
    c.controllers.volumes.refusing.add("a1")
    storage_class(c, "zonal")
    claim(c, "data")
    c.theirs("load", gpus=1, node="a1")  # it is the tighter one from now on, and tried first
    await until(lambda: c.state.nodes["a1"].others.devices != ())
    c.pod("one", gpus=3, volumes=using("data"))
    assert await placed(c, "one") == ["b1"]
    assert reached(c, "one")
    assert c.requests("PATCH", "persistentvolumeclaims/data") == 2, "it was tried once on each"


@in_scene("n1")
async def test_a_pod_whose_volume_does_not_come_waits_and_says_so(c: Scene) -> None:
    with mock.patch.object(getting, "BIND_WAIT_S", 0.3):
        storage_class(c, "zonal")
        c.controllers.volumes.idle = True
        claim(c, "data")
        c.pod("one", volumes=using("data"))
        await until(lambda: "claim data has got no volume within 0.3 s" in c.says("one")[1])
        assert c.where("one") == [""]
        c.controllers.volumes.idle = False
        c.controllers.volumes.reconcile()
        assert await placed(c, "one") == ["n1"]


@in_scene()
async def test_a_gang_whose_volumes_are_in_two_zones_is_placed_whole_or_not_at_all(c: Scene) -> None:
    await zones(c, "a1", "b1")
    for zone in "ab":
        bound(c, f"data-{zone}", {ZONE: zone})
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}
    for name, zone in (("team-0", "a"), ("team-1", "b")):
        c.pod(name, 4, labels=labels, volumes=using(f"data-{zone}"))
    assert await placed(c, "team-0", "team-1") == ["a1", "b1"]
    labels = {"penstock.dev/gang": "next", "penstock.dev/gang-size": "2"}
    bound(c, "more-a", {ZONE: "a"})
    bound(c, "more-c", {ZONE: "c"})
    c.ends("team-0")
    c.ends("team-1")
    for name, zone in (("next-0", "a"), ("next-1", "c")):
        c.pod(name, 4, labels=labels, volumes=using(f"more-{zone}"))
    await c.waits("next-0", "next-1")
    await zones(c, "c1")
    assert await placed(c, "next-0", "next-1") == ["a1", "c1"]


@in_scene()
async def test_an_unbound_claim_that_a_gang_shares_ties_it_to_one_zone(c: Scene) -> None:
    """The first pod decides where the volume is; the gang settles where all of it reach it."""
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "a"), ("n4", "b")):
        c.node(name, **{ZONE: zone})
    await until(c.ready)
    storage_class(c, "zonal")
    claim(c, "data", "zonal", "10Gi", "ReadWriteMany")
    c.gang("team", 2, gpus=4, volumes=using("data"))
    found = await placed(c, "team-0", "team-1")
    assert len({zone_of(c, node) for node in found}) == 1
    assert all(reached(c, name) for name in ("team-0", "team-1"))


@in_scene("n1", "n2")
async def test_a_claim_for_which_a_node_was_chosen_before_ties_its_pod_to_it(c: Scene) -> None:
    """By another scheduler, or by a start that came to nothing: its volume may be on the way."""
    storage_class(c, "zonal")
    claim(c, "data")
    c.change(CLAIMS, "data", {"metadata": {"annotations": {SELECTED: "n2"}}})
    c.controllers.volumes.idle = True
    c.theirs("load", gpus=2, node="n1")  # the tighter one
    await until(lambda: c.state.nodes["n1"].others.devices != ())
    c.pod("one", volumes=using("data"))
    await until(lambda: c.states() == {"one": "starting"})
    c.controllers.volumes.idle = False
    c.controllers.volumes.reconcile()
    assert await placed(c, "one") == ["n2"]


TEAM = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}


async def team_waits_for_its_volume(c: Scene) -> None:
    """Begin the start of a gang of two, of which one has a volume that nobody makes."""
    storage_class(c, "zonal")
    c.controllers.volumes.idle = True
    claim(c, "data")
    c.pod("team-0", labels=TEAM)
    c.pod("team-1", labels=TEAM, volumes=using("data"))
    await until(lambda: SELECTED in claim_of(c, "data")["metadata"].get("annotations", {}))


@in_scene("n1")
async def test_no_pod_of_a_gang_is_bound_before_all_its_volumes_are_there(c: Scene) -> None:
    await team_waits_for_its_volume(c)
    await asyncio.sleep(0.3)
    assert c.where("team-0", "team-1") == ["", ""]
    c.controllers.volumes.idle = False
    c.controllers.volumes.reconcile()
    assert await placed(c, "team-0", "team-1") == ["n1", "n1"]


@in_scene("n1")
async def test_a_start_that_is_not_wanted_any_more_is_given_up_with_its_whole_gang(c: Scene) -> None:
    """A pod that is deleted while the volume of another is made takes the place of its gang along."""
    await team_waits_for_its_volume(c)
    c.delete("team-0")
    await until(lambda: c.states() == {"team": "waiting"})
    assert c.where("team-1") == [""]
    c.controllers.volumes.idle = False
    c.controllers.volumes.reconcile()
    c.pod("team-0", labels=TEAM)
    assert await placed(c, "team-0", "team-1") == ["n1", "n1"]


@in_scene("n1")
async def test_a_pod_has_its_volume_made_although_another_one_was_about_to(c: Scene) -> None:
    storage_class(c, "zonal")
    claim(c, "data", "zonal", "10Gi", "ReadWriteMany")
    c.api.faults.append(Fault("PATCH", f"{CLAIMS}/data", 503, times=1_000))
    for name in ("one", "two"):
        c.pod(name, volumes=using("data"))
        await until(lambda name=name: c.states().get(name) == "starting")
    await until(lambda: c.requests("PATCH", f"{CLAIMS}/data") > 0)
    c.delete("one")
    await until(lambda: "one" not in c.states())
    c.api.faults.clear()
    assert await placed(c, "two") == ["n1"]


# Volumes that are there.


@in_scene("n1", "n2")
async def test_a_claim_gets_the_smallest_volume_that_suffices(c: Scene) -> None:
    local_class(c)
    for name, size, node in (("small", "5Gi", "n1"), ("large", "100Gi", "n2"), ("right", "20Gi", "n2")):
        volume(c, name, "local", size, on={HOST: node})
    claim(c, "data", "local", "10Gi")
    c.pod("one", volumes=using("data"))
    assert await placed(c, "one") == ["n2"]
    assert volume_of(c, "data")["metadata"]["name"] == "right"
    assert volume_of(c, "data")["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


@in_scene("n1")
async def test_a_volume_that_a_claim_did_not_get_after_all_goes_to_another_one(c: Scene) -> None:
    local_class(c)
    volume(c, "only", on={HOST: "n1"})
    claim(c, "first", "local")
    claim(c, "second", "local")
    c.api.faults.append(Fault("PATCH", f"{VOLUMES}/only", 503, times=1_000))
    c.pod("one", volumes=using("first"))
    await until(lambda: c.requests("PATCH", f"{VOLUMES}/only") > 0)
    c.pod("two", volumes=using("second"))
    volume(c, "small", size="1Gi", on={HOST: "n1"})
    await until(lambda: "claim second asks for 10Gi of class local, and no node has that" in c.says("two")[1])
    c.delete("one")
    await until(lambda: "one" not in c.states())
    c.api.faults.clear()
    assert await placed(c, "two") == ["n1"]
    assert volume_of(c, "second")["metadata"]["name"] == "only"


@in_scene("n1")
async def test_a_claim_that_is_deleted_meanwhile_gets_no_volume(c: Scene) -> None:
    """A volume that is given to a claim that is gone is released, and nobody can have it any more."""
    local_class(c)
    volume(c, "only", on={HOST: "n1"})
    claim(c, "data", "local")
    c.api.faults.append(Fault("PATCH", f"{VOLUMES}/only", 503, times=1_000))
    c.pod("one", volumes=using("data"))
    await until(lambda: c.requests("PATCH", f"{VOLUMES}/only") > 0)
    c.store.delete(c.store.kind("", "persistentvolumeclaims"), ("default", "data"), 0)
    await until(lambda: c.at_work.volumes.view.claim(("default", "data")) is None)
    c.api.faults.clear()
    await until(lambda: "claim data" in c.says("one")[1] and c.states() != {"one": "starting"})
    assert "claimRef" not in c.store.all_of("persistentvolumes")["", "only"]["spec"]


@in_scene("n1", "n2")
async def test_pods_of_a_gang_get_a_volume_each(c: Scene) -> None:
    """Only one of two nodes has two disks: nothing else would place them all."""
    local_class(c)
    for name, node in (("v1", "n1"), ("v2", "n2"), ("v3", "n2")):
        volume(c, name, on={HOST: node})
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"}
    for i in range(3):
        claim(c, f"data-{i}", "local")
        c.pod(f"team-{i}", labels=labels, volumes=using(f"data-{i}"))
    assert sorted(await placed(c, "team-0", "team-1", "team-2")) == ["n1", "n2", "n2"]
    assert {volume_of(c, f"data-{i}")["metadata"]["name"] for i in range(3)} == {"v1", "v2", "v3"}
    claim(c, "late", "local")
    c.pod("late", volumes=using("late"))
    await c.waits("late", reason=NOT_READY)
    assert "claim late asks for 10Gi of class local, and no node has that" in c.says("late")[1]
    volume(c, "v4", on={HOST: "n1"})
    assert await placed(c, "late") == ["n1"]


@in_scene("n1", "n2", "n3")
async def test_a_gang_that_claims_more_volumes_than_are_there_gets_none_and_waits_for_more(c: Scene) -> None:
    """Each of its nodes reaches the two that are there, and counts both."""
    local_class(c)
    for name in ("v0", "v1"):
        volume(c, name)
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"}
    for i in range(3):
        claim(c, f"data-{i}", "local")
        c.pod(f"team-{i}", 3, labels=labels, volumes=using(f"data-{i}"))
    text = "its gang claims 3 volumes of class local, and 2 of these are there"
    await until(lambda: all(text in c.says(f"team-{i}")[1] for i in range(3)))
    await asyncio.sleep(0.5)
    assert c.states() == {}
    assert c.requests("PATCH", f"{VOLUMES}/v") == 0, "nothing was given to a part of it"
    claim(c, "other", "local")
    c.pod("other", volumes=using("other"))
    assert await placed(c, "other") == ["n1"]
    for name in ("v2", "v3"):
        volume(c, name)
    assert await placed(c, "team-0", "team-1", "team-2") == ["n1", "n2", "n3"]
    assert max(c.state.jobs) <= 4, "jobs of the gang: with two volumes, perhaps with three, and with four"


@in_scene()
async def test_a_gang_that_was_planned_on_one_volume_of_a_zone_is_placed_where_the_others_are(c: Scene) -> None:
    """The class has enough, and each node of the first zone counts the one that is there."""
    local_class(c)
    await zones(c, "a1", "a2", "b1", "b2")
    for name, zone in (("v0", "a"), ("v1", "b"), ("v2", "b")):
        volume(c, name, on={ZONE: zone})
    for name in ("a1", "a2"):
        c.theirs(f"load-{name}", gpus=1, node=name)  # the tighter ones, and tried first
    await until(lambda: all(c.state.nodes[name].others.devices != () for name in ("a1", "a2")))
    for i in range(2):
        claim(c, f"data-{i}", "local")
        c.pod(f"team-{i}", 3, labels=TEAM, volumes=using(f"data-{i}"))
    found = await placed(c, "team-0", "team-1")
    assert len(set(found)) == 2
    assert all(reached(c, name) for name in ("team-0", "team-1"))
    assert max(job.last_attempt for job in c.state.jobs.values()) <= 5, "each that failed gave a claim its volume"


@in_scene("n1")
async def test_a_volume_that_is_kept_for_a_claim_goes_to_that_one(c: Scene) -> None:
    local_class(c)
    volume(c, "kept", on={HOST: "n1"}, claimRef={"namespace": "default", "name": "data"})
    claim(c, "other", "local")
    c.pod("other", volumes=using("other"))
    await c.waits("other", reason=NOT_READY)
    claim(c, "data", "local")
    c.pod("one", volumes=using("data"))
    assert await placed(c, "one") == ["n1"]
    assert c.where("other") == [""]


# What claims allow.


@in_scene("n1")
async def test_a_claim_for_one_pod_is_used_by_one_pod(c: Scene) -> None:
    bound(c, "data", {HOST: "n1"}, "zonal", "ReadWriteOncePod")
    c.pod("one", volumes=using("data"))
    assert await placed(c, "one") == ["n1"]
    c.pod("two", volumes=using("data"))
    await c.waits("two", reason=NOT_READY)
    assert "claim data may be used by one pod, and is by one" in c.says("two")[1]
    c.ends("one")
    assert await placed(c, "two") == ["n1"]


@in_scene("n1")
async def test_a_claim_for_one_pod_is_named_by_one_pod_of_a_template(c: Scene) -> None:
    bound(c, "data", {HOST: "n1"}, "zonal", "ReadWriteOncePod")
    c.job("train", 2, pods=template(1, volumes=using("data")))
    event = await c.explained("train")
    assert (event["reason"], c.suspended("train")) == (NOT_READY, True)
    assert "claim data may be used by one pod, and 2 pods of a template name it" in event["note"]


def limits(c: Scene, **counts: int) -> None:
    """Let nodes hold so many volumes of the driver."""
    for node, count in counts.items():
        driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": count}}
        c.make("storage.k8s.io/csinodes", node, {"drivers": [driver]})


@in_scene("n1", "n2")
async def test_a_node_holds_as_many_volumes_as_its_driver_allows(c: Scene) -> None:
    limits(c, n1=1, n2=2)
    storage_class(c, "zonal")
    for i in range(4):
        claim(c, f"data-{i}")
        c.pod(f"p{i}", gpus=0, volumes=using(f"data-{i}"))
    await until(lambda: sum(bool(node) for node in c.where("p0", "p1", "p2", "p3")) == 3)
    (last,) = [f"p{i}" for i in range(4) if not c.where(f"p{i}")[0]]
    await c.waits(last)
    where = sorted(filter(None, c.where("p0", "p1", "p2", "p3")))
    assert where == ["n1", "n2", "n2"]
    c.ends(next(f"p{i}" for i in range(4) if c.where(f"p{i}") == ["n1"]))
    assert await placed(c, last) == ["n1"]


@in_scene("n1")
async def test_a_shared_volume_counts_once_on_its_node(c: Scene) -> None:
    limits(c, n1=1)
    bound(c, "shared", {HOST: "n1"}, "zonal", "ReadWriteMany", csi={"driver": DRIVER, "volumeHandle": "shared"})
    c.gang("team", 3, gpus=1, volumes=using("shared"))
    assert await placed(c, "team-0", "team-1", "team-2") == ["n1", "n1", "n1"]
    bound(c, "second", {HOST: "n1"}, "zonal", "ReadWriteMany", csi={"driver": DRIVER, "volumeHandle": "second"})
    limits(c, n2=1)
    c.node("n2", **{HOST: "n1"})  # the second volume is reached from there, too
    await until(c.ready)
    c.pod("other", volumes=using("second"))
    assert await placed(c, "other") == ["n2"], "the first node is tighter, and tried first"
    why = c.at_work.volumes.refusal_of(NodeName("n1"), c.at_work.pods.objects["default", "other"])
    assert why == f"its node would hold 2 volumes of {DRIVER}, and can hold 1"


def room(c: Scene, zone: str, size: str) -> None:
    c.make("storage.k8s.io/csistoragecapacities", f"room-{zone}", storageClassName="zonal", capacity=size,
           nodeTopology={"matchLabels": {ZONE: zone}})  # fmt: skip


@in_scene()
async def test_a_class_that_tells_its_room_makes_volumes_where_it_has_room(c: Scene) -> None:
    await zones(c, "a1", "b1", "c1")
    c.make("storage.k8s.io/csidrivers", DRIVER, {"storageCapacity": True})
    storage_class(c, "zonal")
    room(c, "a", "5Gi")
    claim(c, "data")
    c.pod("one", volumes=using("data"))
    await c.waits("one", reason=NOT_READY)
    assert "claim data asks for 10Gi of class zonal, and no node has that" in c.says("one")[1]
    room(c, "b", "10Gi")
    assert await placed(c, "one") == ["b1"]


# Workloads.


@in_scene()
async def test_a_suspended_workload_is_planned_by_the_claims_of_its_template(c: Scene) -> None:
    await zones(c, "a1", "b1")
    c.job("train", 2, pods=template(2, volumes=using("data")))
    event = await c.explained("train")
    assert (event["reason"], c.suspended("train")) == (NOT_READY, True)
    assert "claim data does not exist" in event["note"]
    bound(c, "data", {ZONE: "b"}, "zonal", "ReadWriteMany")
    await until(lambda: c.nodes_of("train") == ["b1", "b1"])


@in_scene()
async def test_pods_of_a_workload_get_volumes_of_their_own(c: Scene) -> None:
    await zones(c, "a1", "b1")
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    storage_class(c, "zonal", allowedTopologies=allowed)
    c.job("train", 2, pods=template(1, volumes=own()))
    await until(lambda: c.nodes_of("train") == ["b1", "b1"])
    assert all(reached(c, pod["metadata"]["name"]) for pod in c.pods_of("train"))
    assert c.requests("PATCH", "jobs/train") == 2, "it was started by two writes, and not stopped to be planned anew"


@in_scene()
async def test_a_workload_whose_volumes_turn_out_to_be_elsewhere_is_planned_anew_and_settles(c: Scene) -> None:
    """Where a volume that is bound at once is becomes known only with its pod."""
    await zones(c, "a1", "b1")
    storage_class(c, "quick", late=False, parameters={"zone": "b"})
    c.theirs("load", gpus=1, node="a1")  # the tighter one
    await until(lambda: c.state.nodes["a1"].others.devices != ())
    c.job("train", 1, pods=template(1, volumes=own("data", "quick")))
    await until(lambda: c.nodes_of("train") == ["b1"])
    assert reached(c, c.pods_of("train")[0]["metadata"]["name"])
    await until(lambda: c.states() == {"train": "running"})
    (job,) = c.state.jobs.values()
    assert job.last_attempt in (2, 3), "a cycle may come between the end of the first attempt and the edit"


@in_scene()
async def test_pods_of_a_workload_take_the_places_that_reach_their_volumes(c: Scene) -> None:
    """Volumes that are bound at once are in one zone and the other, in any order."""
    await zones(c, "a1", "b1")
    storage_class(c, "quick", late=False)
    for name in ("first", "second", "third"):
        c.job(name, 2, pods=template(4, volumes=own("data", "quick")))
        await until(lambda name=name: sorted(c.nodes_of(name)) == ["a1", "b1"])
        assert all(reached(c, pod["metadata"]["name"]) for pod in c.pods_of(name))
        assert c.requests("PATCH", f"jobs/{name}") == 2, (
            "it was started by two writes, and not stopped to be planned anew"
        )
        c.make(CLAIMS, f"odd-{name}", claim_spec())  # the next ones begin with the other zone
        c.all_end(name)
        await until(lambda: c.states() == {})


@in_scene("n1", "n2")
async def test_a_volume_that_another_pod_has_got_meanwhile_is_no_reason_to_plan_anew(c: Scene) -> None:
    """By the time that the second pod comes one of the two nodes of its template has no volume left."""
    local_class(c)
    volume(c, "first", on={HOST: "n1"})
    volume(c, "second", on={HOST: "n2"})
    c.job("train", 2, pods=template(1, volumes=own("data", "local")))
    await until(lambda: sorted(c.nodes_of("train")) == ["n1", "n2"])
    assert c.requests("PATCH", "jobs/train") == 2, "it was started by two writes, and not stopped to be planned anew"


@in_scene("n1", "n2")
async def test_a_workload_that_lost_its_node_goes_where_volumes_have_come_since(c: Scene) -> None:
    """While it had a place nothing was planned for it: what its template asks for has changed by the next time."""
    local_class(c)
    volume(c, "first", on={HOST: "n1"})
    c.job("train", 1, pods=template(1, volumes=own("data", "local")))
    await until(lambda: c.nodes_of("train") == ["n1"])
    volume(c, "second", on={HOST: "n2"})
    await until(lambda: c.state.nodes["n2"].spec.capacity.of("volumes:local:10Gi") == 1)
    (pod,) = c.pods_of("train")
    c.store.delete(c.kind("nodes"), ("", "n1"))
    c.delete(pod["metadata"]["name"])
    await until(lambda: c.nodes_of("train") == ["n2"])
    assert reached(c, c.pods_of("train")[0]["metadata"]["name"])


@in_scene("n1")
async def test_an_ephemeral_claim_has_to_be_the_pods_own(c: Scene) -> None:
    bound(c, "one-data", {HOST: "n1"})
    c.pod("one", volumes=own())
    await c.waits("one", reason=NOT_READY)
    assert "claim one-data is not its own" in c.says("one")[1]


# Rights and restarts.


def test_without_the_right_to_read_claims_their_pods_say_so_and_others_are_placed() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            c.api.faults += [Fault("GET", "persistentvolumeclaims", 403, times=10**6)]
            async with c.serving():
                c.pod("plain")
                assert await placed(c, "plain") == ["n1"]
                c.pod("one", volumes=using("data"))
                await c.waits("one", reason=NOT_READY)
                assert "persistentvolumeclaims cannot be read: the server lacks the role" in c.says("one")[1]
                c.api.faults.clear()
                bound(c, "data", {HOST: "n1"})
                assert await placed(c, "one") == ["n1"]

    run(work)


def test_after_a_restart_volumes_are_counted_as_before() -> None:
    async def work() -> None:
        async with standing("n1", "n2") as c:
            local_class(c)
            for name in ("v1", "v2"):
                volume(c, name, on={HOST: "n1"})
            claim(c, "data-0", "local")
            async with c.serving():
                c.pod("p0", volumes=using("data-0"))
                assert await placed(c, "p0") == ["n1"]
            async with c.serving():
                claim(c, "data-1", "local")
                c.pod("p1", volumes=using("data-1"))
                assert await placed(c, "p1") == ["n1"]
                assert volume_of(c, "data-0") != volume_of(c, "data-1")

    run(work)
