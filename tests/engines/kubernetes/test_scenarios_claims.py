"""Scenarios: claims that are written while others write, restarts in between, devices that are ill or not ready yet."""

import asyncio

import msgspec
import pytest

from penstock.engines.kubernetes.devices import tidying, writing
from penstock.engines.kubernetes.devices.tidying import Starting, Tidying
from penstock.engines.kubernetes.objects.devices import ResourceClaim
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.sim.apiserver.claims import twice_allocated
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes import scenes
from tests.engines.kubernetes.devices_made import DRIVER, claim_of, class_of, dev, req, slice_of
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import in_scene
from tests.engines.kubernetes.storage import claim, storage_class, using
from tests.engines.kubernetes.test_scenarios_devices import (
    CLAIM,
    CLASS,
    SLICE,
    TEMPLATE,
    USES,
    bound,
    devices_of,
    gpus,
    has,
    sound,
)

RULE = "resource.k8s.io/devicetaintrules"
LEAST = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{{}}")) >= 0'


def uses(name):
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def made(s, name, *requests, **more):
    """Make a template of this name, and return what pods that use it say."""
    s.make(TEMPLATE, name, {"spec": claim_of(*requests, **more)})
    return uses(name)


def drivers(s, *devices, node="n1", name="", **more):
    """Let a driver publish these devices of a node; the class `gpu` is made with the first ones."""
    one = slice_of(*devices, on=node, pool=more.pop("pool", node), **more)
    s.make(SLICE, name or one["spec"]["pool"]["name"], one["spec"])
    if ("", "gpu") not in s.store.all_of("deviceclasses"):
        s.make(CLASS, "gpu", class_of()["spec"])


def claim_status(s, name):
    return s.store.all_of("resourceclaims")["default", name].get("status") or {}


# Writes.


@pytest.mark.parametrize("status", [409, 429, 500, 504])
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_write_that_fails_or_whose_answer_is_lost_is_settled(status, carried_out):
    @in_scene("n1")
    async def play(s):
        gpus(s, 1)
        s.api.faults.append(Fault("PATCH", r"resourceclaims/[^/]+$", status, carried_out=carried_out))
        s.api.faults.append(Fault("PATCH", r"resourceclaims/[^/]+/status$", status, times=2, carried_out=carried_out))
        s.pod("p", gpus=0, **USES)
        await bound(s, "p")
        assert has(s, "p") == ["n1/gpu0"]

    play()


@in_scene("n1")
async def test_a_pod_that_cannot_be_bound_gives_its_device_back(s):
    """Else others wait for a device that nobody uses (YUNIKORN-3128, KAI-Scheduler#2075)."""
    gpus(s, 1)
    s.api.faults.append(Fault("POST", "pods/p/binding", 422, times=1))
    s.pod("p", gpus=0, **USES)
    await until(lambda: s.requests("POST", "pods/p/binding") > 0)
    s.delete("p")
    s.pod("q", gpus=0, **USES)
    await bound(s, "q")


def test_a_restart_takes_up_the_claims_that_it_finds():
    async def work():
        async with scenes.standing("n1") as s:
            gpus(s, 2)
            async with s.serving():
                s.api.faults.append(Fault("POST", "binding", 503, times=10_000))
                s.gang("g", 2, gpus=0, **USES)
                await until(lambda: all(has(s, f"g-{i}") for i in range(2)))
            s.api.faults.clear()
            before = [has(s, f"g-{i}") for i in range(2)]
            async with s.serving():
                await bound(s, "g-0", "g-1")
            assert [has(s, f"g-{i}") for i in range(2)] == before

    run(work)


async def cut_off(s):
    """Let a pod get its device on the first node, but no Binding; then nobody may be bound there any more."""
    gpus(s, 1)
    async with s.serving():
        s.api.faults.append(Fault("POST", "binding", 503, times=10_000))
        s.pod("p", gpus=0, **USES)
        await until(lambda: has(s, "p") == ["n1/gpu0"])
    s.api.faults.clear()
    s.change("/nodes", "n1", {"spec": {"unschedulable": True}})


def test_devices_of_a_start_that_nobody_wants_any_more_are_taken_back(monkeypatch):
    monkeypatch.setattr(tidying, "LEFTOVER_S", 0.2)

    async def work():
        async with scenes.standing("n1") as s:
            await cut_off(s)
            async with s.serving():
                await until(lambda: has(s, "p") == [])
                assert s.where("p") == [""]

    run(work)


def test_devices_of_a_group_that_does_not_start_after_all_are_taken_back(monkeypatch):
    monkeypatch.setattr(tidying, "LEFTOVER_S", 0.2)

    async def work():
        async with scenes.standing("n1") as s:
            gpus(s, 1)
            async with s.serving():
                s.api.faults.append(Fault("POST", "binding", 503, times=10_000))
                shared_by_group(s)
                await until(lambda: devices_of(s, "shared") == ["n1/gpu0"])
            s.api.faults.clear()
            s.change("/nodes", "n1", {"spec": {"unschedulable": True}})
            async with s.serving():
                await until(lambda: devices_of(s, "shared") == [])
                assert s.where("a", "b") == ["", ""]

    run(work)


def shared_by_group(s):
    """Make a claim that a PodGroup names, and the two pods of the group."""
    s.make(CLAIM, "shared", claim_of(req()))
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]}
    s.make("scheduling.k8s.io/podgroups", "g", spec)
    for name in ("a", "b"):
        s.pod(name, gpus=0, schedulingGroup={"podGroupName": "g"}, resourceClaims=[entry])


def test_a_pod_that_starts_on_another_node_than_before_gets_devices_there(monkeypatch):
    monkeypatch.setattr(tidying, "LEFTOVER_S", 1_000.0)

    async def work():
        async with scenes.standing("n1") as s:
            await cut_off(s)
            s.node("n2")
            drivers(s, dev("gpu0"), node="n2")
            async with s.serving():
                await bound(s, "p")
            assert has(s, "p") == ["n2/gpu0"]

    run(work)


@in_scene("n1")
async def test_devices_that_another_scheduler_gives_out_are_taken(s):
    gpus(s, 2)
    s.make(CLAIM, "theirs", claim_of(req()))
    other = {"resource": "pods", "name": "their-pod", "uid": "u"}
    s.theirs("their-pod", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "theirs"}])
    other["uid"] = s.get("their-pod")["metadata"]["uid"]
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu0"}
    s.status("resourceclaims", "theirs", allocation={"devices": {"results": [result]}}, reservedFor=[other])
    s.gang("g", 2, gpus=0, **USES)
    await s.waits("g-0", "g-1")
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    assert has(s, "p") == ["n1/gpu1"]


@in_scene("n1")
async def test_a_claim_that_another_scheduler_allocated_meanwhile_keeps_its_device(s):
    """What was to be written for it counts no more: else its device would be given out again."""
    gpus(s, 2)
    s.make(CLAIM, "mine", claim_of(req()))
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu1"}
    raced = []

    def race(change):
        if change.kind.plural == "resourceclaims" and change.new["metadata"].get("finalizers") and not raced:
            raced.append(change.new["metadata"]["name"])
            s.status("resourceclaims", "mine", allocation={"devices": {"results": [result]}})

    s.store.listeners.append(race)
    s.pod("p", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    await bound(s, "p")
    assert (raced, has(s, "p")) == (["mine"], ["n1/gpu1"])
    s.pod("q", gpus=0, **USES)
    await bound(s, "q")
    assert has(s, "q") == ["n1/gpu0"]


def test_a_pod_that_is_gone_before_its_start_begins_holds_no_device(monkeypatch):
    """Its gang had got devices, in memory alone: nobody else would ever have given them back."""
    monkeypatch.setattr(tidying, "LEFTOVER_S", 0.2)

    @in_scene("n1")
    async def play(s):
        gpus(s, 1)
        devices, named = s.at_work.devices, {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
        s.make(CLAIM, "mine", claim_of(req()))
        s.pod("p", gpus=0, schedulerName="other", **named)
        await until(lambda: ("default", "p") in s.at_work.pods.objects and devices.claimed.claims)
        starting = [(s.at_work.pods.objects["default", "p"], "n1")]
        devices.claimed.assume(starting)
        devices._starting.begin(
            [(*starting[0], devices.claimed.known(starting[0][0]))], due_s=asyncio.get_running_loop().time() + 1_000
        )
        s.delete("p")
        await until(lambda: not devices.claimed.assumed)
        s.pod("q", gpus=0, **USES)
        await bound(s, "q")

    play()


@pytest.mark.parametrize("bound_yet", [True, False])
@pytest.mark.parametrize("whose", ["of a pod", "of a PodGroup"])
@in_scene("n1")
async def test_a_device_that_two_schedulers_gave_out_at_once_goes_to_one(s, bound_yet, whose):
    """The API server protects single claims alone (kubernetes#128980); the pod that does not run yet loses it.

    Here the watch of claims is late: a Binding waits until it shows what was written before.
    """
    gpus(s, 2)
    claims, loop = s.at_work.devices.view.claims, asyncio.get_running_loop()
    apply = claims._apply
    claims._apply = lambda *event: loop.call_later(0.2, apply, *event)
    s.make(CLAIM, "theirs", claim_of(req()))
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu0"}
    named = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "theirs"}]}
    s.theirs("their-pod", gpus=0, **named, **({} if bound_yet else {"nodeName": ""}))
    uid = s.get("their-pod")["metadata"]["uid"]
    other = {"resource": "pods", "name": "their-pod", "uid": uid}
    given = {"devices": {"results": [result]}, "allocationTimestamp": "2099-01-01T00:00:00Z"}  # its clock is ahead
    raced = []

    def race(change):
        begun = change.kind.plural == "resourceclaims" and change.new["metadata"].get("finalizers")
        if begun and not raced:
            raced.append(change.new["metadata"]["name"])
            s.status("resourceclaims", "theirs", allocation=given, reservedFor=[other])

    s.store.listeners.append(race)
    if whose == "of a PodGroup":
        shared_by_group(s)
        await until(lambda: s.where("a", "b") == ["n1", "n1"])
        assert devices_of(s, "shared") == ["n1/gpu1"]
    else:
        s.pod("p", gpus=0, **USES)
        await until(lambda: s.where("p") == ["n1"])
        assert has(s, "p") == ["n1/gpu1"]
    assert raced
    assert twice_allocated(s.store) == []


KEPT = [
    ("all of its pods wait", [{}, {}], False),
    ("one of them is bound", [{}, {"nodeName": "n1"}], True),
    ("another scheduler starts one", [{"schedulerName": "other"}, {}], True),
    ("none of them is known", [], True),
]


@pytest.mark.parametrize(("pods", "keeps"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_whether_a_pod_group_keeps_a_device_that_two_claims_have(pods, keeps):
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    meta = {"name": "shared", "namespace": "default"}
    one = msgspec.convert({"metadata": meta, "spec": {}, "status": {"reservedFor": [group]}}, ResourceClaim)
    known = {
        ("default", f"p{i}"): msgspec.convert(
            {"metadata": {"name": f"p{i}", "namespace": "default"}, "spec": {"schedulerName": "penstock", **spec}}, Pod
        )
        for i, spec in enumerate(pods)
    }
    using = {one.key: dict.fromkeys(pod.key for pod in known.values())}
    assert Tidying(None, None, Starting(), known, using)._keeps(one) is keeps


# Gangs.


@in_scene("n1", "n2")
async def test_a_first_choice_of_a_gang_is_undone_for_its_other_pods(s):
    """kube-scheduler gives pod by pod, and may give a small pod the large device (kubernetes#138765, #137617)."""
    drivers(s, dev("large", memory="80Gi"), dev("small", memory="40Gi"))
    either = made(s, "either", req("r", 1, LEAST.format("40Gi")))
    large = made(s, "big", req("r", 1, LEAST.format("80Gi")))
    labels = {"penstock.dev/gang": "g", "penstock.dev/gang-size": "2"}
    s.pod("g-0", gpus=0, labels=labels, **either)
    s.pod("g-1", gpus=0, labels=labels, **large)
    await bound(s, "g-0", "g-1")
    assert (has(s, "g-0"), has(s, "g-1")) == (["n1/small"], ["n1/large"])


@in_scene("n1", "n2")
async def test_a_node_that_cannot_hold_the_gang_is_left_out_for_it(s):
    """Each kind of claim alone fits on either node; both together on the second one alone."""
    drivers(s, dev("d0", memory="80Gi"))
    drivers(s, dev("d0", memory="80Gi"), dev("d1", memory="40Gi"), node="n2")
    either = made(s, "either", req("r", 1, LEAST.format("40Gi")))
    large = made(s, "big", req("r", 1, LEAST.format("80Gi")))
    labels = {"penstock.dev/gang": "g", "penstock.dev/gang-size": "2", "app": "g"}
    term = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "kubernetes.io/hostname"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    s.pod("g-0", gpus=0, labels=labels, affinity=near, **either)
    s.pod("g-1", gpus=0, labels=labels, affinity=near, **large)
    await bound(s, "g-0", "g-1")
    assert (has(s, "g-0"), has(s, "g-1")) == (["n2/d1"], ["n2/d0"])


@in_scene("n1", "n2")
async def test_a_claim_of_a_pod_group_is_reserved_for_the_group(s):
    """KEP-5729: the group, not each of its pods, so that 257 pods can have it."""
    gpus(s, 1, 1)
    shared_by_group(s)
    await until(lambda: all(s.where("a", "b")))
    assert len(set(s.where("a", "b"))) == 1
    (user,) = claim_status(s, "shared")["reservedFor"]
    assert (user["apiGroup"], user["resource"], user["name"]) == ("scheduling.k8s.io", "podgroups", "g")
    sound(s)


# What devices are like.


@in_scene("n1")
async def test_parts_of_a_gpu_are_given_until_its_counters_are_used_up(s):
    devices = [dev(f"1g-{i}", memory="10Gi", counters={"gpu/slices": "1"}) for i in range(7)]
    devices += [dev(f"3g-{i}", memory="40Gi", counters={"gpu/slices": "4"}) for i in range(2)]
    drivers(s, *devices, of=2)
    drivers(s, of=2, counters={"gpu/slices": "7"}, name="n1-counters")
    small = made(s, "small", req("r", 1, LEAST.format("10Gi")))
    large = made(s, "half", req("r", 1, LEAST.format("40Gi")))
    s.gang("halves", 2, gpus=0, **large)
    await s.waits("halves-0", "halves-1")
    s.pod("half", gpus=0, **large)
    await bound(s, "half")
    s.gang("small", 4, gpus=0, **small)
    await s.waits("small-0")
    s.gang("fits", 3, gpus=0, **small)
    await bound(s, "fits-0", "fits-1", "fits-2")
    assert all(has(s, f"fits-{i}")[0].startswith("n1/1g") for i in range(3))
    await asyncio.sleep(0.3)
    assert not any(s.where("halves-0", "halves-1", *(f"small-{i}" for i in range(4))))


@in_scene("n1")
async def test_shares_of_a_device_are_given_until_it_is_used_up(s):
    drivers(s, dev("d0", memory="80Gi", allowMultipleAllocations=True))
    share = made(s, "share", req("r", takes={"memory": "30Gi"}))
    s.gang("three", 3, gpus=0, **share)
    await s.waits("three-0")
    s.gang("two", 2, gpus=0, **share)
    await bound(s, "two-0", "two-1")
    assert [has(s, name) for name in ("two-0", "two-1")] == [["n1/d0"], ["n1/d0"]]
    shares = [one["status"]["allocation"]["devices"]["results"][0] for one in claims_with_devices(s)]
    assert [one["consumedCapacity"] for one in shares] == [{"memory": "30Gi"}] * 2
    assert len({one["shareID"] for one in shares}) == 2


def claims_with_devices(s):
    return [one for one in s.store.all_of("resourceclaims").values() if (one.get("status") or {}).get("allocation")]


@in_scene("n1")
async def test_the_second_alternative_is_taken_where_the_first_is_not_free(s):
    drivers(s, dev("large", memory="80Gi"), dev("small", memory="40Gi"))
    first, second = req("a", 1, LEAST.format("80Gi")), req("b", 1, LEAST.format("40Gi"))
    either = made(s, "either", req("r", any_of=[first, second]))
    s.pod("p", gpus=0, **either)
    await bound(s, "p")
    s.pod("q", gpus=0, **either)
    await bound(s, "q")
    assert (has(s, "p"), has(s, "q")) == (["n1/large"], ["n1/small"])


@in_scene("n1", "n2")
async def test_a_rule_keeps_claims_off_the_devices_that_it_taints(s):
    gpus(s, 1, 1)
    selector = {"driver": DRIVER, "pool": "n1"}
    s.make(RULE, "ill", {"deviceSelector": selector, "taint": {"key": "ill", "effect": "NoSchedule"}})
    s.gang("g", 2, gpus=0, **USES)
    await s.waits("g-0")
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    assert has(s, "p") == ["n2/gpu0"]
    s.store.delete(s.kind("devicetaintrules", "resource.k8s.io"), ("", "ill"))
    s.pod("q", gpus=0, **USES)
    await bound(s, "q")
    assert has(s, "q") == ["n1/gpu0"]


@in_scene("n1", "n2")
async def test_a_device_of_all_nodes_is_given_once(s):
    one = slice_of(dev("fabric"), on=True, pool="fabric")
    s.make(SLICE, "fabric", one["spec"])
    s.make(CLASS, "gpu", class_of()["spec"])
    s.make(TEMPLATE, "gpu", {"spec": claim_of(req())})
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    s.pod("q", gpus=0, **USES)
    await s.waits("q")
    s.ends("p")
    await bound(s, "q")


# Devices that have to be made ready.


def says(s, claim, **conditions):
    """Let a driver say this of the first device of a claim."""
    (one,) = claim_status(s, claim)["allocation"]["devices"]["results"]
    told = [{"type": name, "status": status} for name, status in conditions.items()]
    device = {"driver": one["driver"], "pool": one["pool"], "device": one["device"], "conditions": told}
    s.status("resourceclaims", claim, devices=[device])


def claim_of_pod(s, pod, number=0):
    return s.get(pod)["status"]["resourceClaimStatuses"][number]["resourceClaimName"]


def slow(s, *numbers):
    gpus(s, *numbers, bindingConditions=["Attached"], bindingFailureConditions=["Broken"])


def test_a_pod_is_bound_once_its_device_is_ready(monkeypatch):
    monkeypatch.setattr(writing, "LOOK_S", 0.02)

    @in_scene("n1")
    async def play(s):
        slow(s, 1)
        s.pod("p", gpus=0, **USES)
        await until(lambda: has(s, "p") == ["n1/gpu0"])
        assert s.where("p") == [""]
        says(s, claim_of_pod(s, "p"), Attached="True")
        await bound(s, "p")

    play()


def test_a_device_that_fails_to_get_ready_is_given_back(monkeypatch):
    monkeypatch.setattr(writing, "LOOK_S", 0.02)

    @in_scene("n1", "n2")
    async def play(s):
        slow(s, 1, 1)
        s.pod("p", gpus=0, **USES)
        await until(lambda: has(s, "p") != [])
        (first,) = has(s, "p")

        def moves():
            said = claim_status(s, claim_of_pod(s, "p")).get("devices")
            if has(s, "p") == [first] and not said:  # it may be tried again, on a slow machine
                says(s, claim_of_pod(s, "p"), Broken="True")
            return has(s, "p") not in ([], [first])

        await until(moves)
        says(s, claim_of_pod(s, "p"), Attached="True")
        await bound(s, "p")
        assert has(s, "p") != [first]

    play()


def test_all_claims_of_a_pod_are_waited_for_at_once(monkeypatch):
    """One after the other, each with a time of its own, the second is given up only once the first is ready."""
    monkeypatch.setattr(writing, "LOOK_S", 0.02)

    @in_scene("n1")
    async def play(s):
        slow(s, 2)
        both = [{"name": name, "resourceClaimTemplateName": "gpu"} for name in ("first", "second")]
        s.pod("p", gpus=0, resourceClaims=both)
        await until(lambda: sorted(has(s, "p")) == ["n1/gpu0", "n1/gpu1"])
        says(s, claim_of_pod(s, "p", 1), Broken="True")
        await until(lambda: has(s, "p") == [])
        assert s.where("p") == [""]

    play()


def test_a_device_that_does_not_get_ready_in_time_is_given_back(monkeypatch):
    monkeypatch.setattr(writing, "LOOK_S", 0.02)
    monkeypatch.setattr(writing, "BINDING_TIMEOUT_S", 0.2)

    @in_scene("n1")
    async def play(s):
        slow(s, 1)
        s.pod("p", gpus=0, **USES)
        await until(lambda: has(s, "p") == ["n1/gpu0"])
        await until(lambda: has(s, "p") == [])
        assert s.where("p") == [""]

    play()


@in_scene("n1")
async def test_a_driver_that_reports_no_conditions_ends_nothing(s):
    """The API server writes `conditions: null` then, such as for the addresses of a network device."""
    gpus(s, 2)
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    (one,) = claim_status(s, claim_of_pod(s, "p"))["allocation"]["devices"]["results"]
    told = {"driver": one["driver"], "pool": one["pool"], "device": one["device"], "conditions": None}
    s.status("resourceclaims", claim_of_pod(s, "p"), devices=[told])
    known = s.at_work.devices.view.claims.objects
    await until(lambda: known["default", claim_of_pod(s, "p")].status.devices != ())
    s.pod("q", gpus=0, **USES)
    await bound(s, "q")


# Extended resources that a node has as devices.

GPU = "nvidia.com/gpu"


def bare(s, name):
    """Create a node without a device plugin."""
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    s.store.create(s.kind("nodes"), "", {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status})


def named(s, *devices, node="n1"):
    """Let a driver publish devices of a node, behind the name of GPUs of device plugins."""
    s.make(CLASS, "gpu", class_of(extendedResourceName=GPU)["spec"])
    drivers(s, *devices, node=node)


def extended_claim(s, pod):
    told = s.get(pod)["status"].get("extendedResourceClaimStatus")
    return told and s.store.all_of("resourceclaims")["default", told["resourceClaimName"]]


@in_scene()
async def test_pods_that_ask_for_a_name_get_the_devices_behind_it(s):
    """`nvidia.com/gpu: 1` on a node with a DRA driver alone waits for ever elsewhere (NVIDIA/aicr PR#450)."""
    bare(s, "n1")
    named(s, dev("gpu0"), dev("gpu1"), dev("gpu2"))
    s.pod("p", gpus=2)
    await bound(s, "p")
    claim = extended_claim(s, "p")
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert [one["uid"] for one in claim["metadata"]["ownerReferences"]] == [s.get("p")["metadata"]["uid"]]
    assert devices_of(s, claim["metadata"]["name"]) == ["n1/gpu0", "n1/gpu1"]
    mapped = s.get("p")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert mapped == [{"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}]
    s.pod("q", gpus=2)
    await s.waits("q")
    s.pod("r", gpus=1)
    await bound(s, "r")
    s.ends("p")
    await bound(s, "q")


@in_scene()
async def test_names_and_claims_are_counted_together(s):
    bare(s, "n1")
    named(s, dev("gpu0"), dev("gpu1"))
    s.make(TEMPLATE, "gpu", {"spec": claim_of(req())})
    s.pod("p", gpus=1)
    await bound(s, "p")
    s.gang("g", 2, gpus=0, **USES)
    await s.waits("g-0")
    s.pod("q", gpus=0, **USES)
    await bound(s, "q")
    s.pod("r", gpus=1)
    await s.waits("r")


@in_scene("n1")
async def test_a_node_with_a_device_plugin_gives_its_own_devices(s):
    named(s, dev("gpu0"))
    s.pod("p", gpus=4)
    await bound(s, "p")
    assert extended_claim(s, "p") is None
    s.pod("q", gpus=1)
    await s.waits("q")


@in_scene()
async def test_the_name_that_every_class_has_is_known(s):
    bare(s, "n1")
    named(s, dev("gpu0"))
    box = {"name": "main", "image": "none", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
    s.pod("p", containers=[box])
    await bound(s, "p")
    assert devices_of(s, extended_claim(s, "p")["metadata"]["name"]) == ["n1/gpu0"]


@in_scene()
async def test_of_classes_with_one_name_that_are_equally_old_the_first_by_name_counts(s):
    bare(s, "n1")
    same_age = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    for name in ("b", "a", "c"):
        s.make(CLASS, name, class_of(extendedResourceName=GPU)["spec"])
        s.change("resource.k8s.io/deviceclasses", name, {"metadata": same_age})
    drivers(s, dev("gpu0"))
    s.pod("p", gpus=1)
    await bound(s, "p")
    (request,) = extended_claim(s, "p")["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "a"


@pytest.mark.parametrize("status", [409, 500, 504])
def test_the_claim_for_a_name_is_made_once(status):
    @in_scene()
    async def play(s):
        bare(s, "n1")
        named(s, dev("gpu0"))
        s.api.faults.append(Fault("POST", "resourceclaims", status, carried_out=True))
        s.pod("p", gpus=1)
        await bound(s, "p")
        assert len(s.store.all_of("resourceclaims")) == 1

    play()


def unname(s):
    """Let the class of GPUs stand behind no name any more."""
    s.change("resource.k8s.io/deviceclasses", "gpu", {"spec": {"extendedResourceName": None}})


async def gets_devices_after_all(s, *pods):
    """Wait until a pod with a claim has all devices of `n1`, which others had, and these pods wait."""
    s.make(TEMPLATE, "all", {"spec": claim_of(req(count=2))})
    s.pod("after", gpus=0, **uses("all"))
    await bound(s, "after")
    assert s.where(*pods) == [""] * len(pods)
    assert s.at_work.devices.claimed.assumed == {}


@in_scene()
async def test_what_a_pod_got_for_a_name_is_given_back_if_the_class_changes_while_it_starts(s):
    """It was bound without devices, and those that it was to get were nobody's until the next restart."""
    bare(s, "n1")
    named(s, dev("gpu0"), dev("gpu1"))
    s.api.faults.append(Fault("POST", "resourceclaims", 503, times=1_000))
    s.pod("p", gpus=2)
    await until(lambda: s.at_work.devices.claimed.assumed)
    unname(s)
    await until(lambda: not s.at_work.devices.claimed.classes["gpu"].spec.extended_resource_name)
    s.api.faults.clear()
    await gets_devices_after_all(s, "p")
    s.change("resource.k8s.io/deviceclasses", "gpu", {"spec": {"extendedResourceName": GPU}})
    s.ends("after")
    await bound(s, "p")
    assert devices_of(s, extended_claim(s, "p")["metadata"]["name"]) == ["n1/gpu0", "n1/gpu1"]


@in_scene()
async def test_what_a_gang_got_for_a_name_is_given_back_if_the_class_changes_before_all_of_it_is_made_ready(s):
    """The second pod's volume takes its time, and its devices are kept meanwhile."""
    bare(s, "n1")
    named(s, dev("gpu0"), dev("gpu1"))
    storage_class(s, "zonal")
    s.controllers.volumes.idle = True
    claim(s, "data")
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}
    s.pod("team-0", 1, labels=labels)
    s.pod("team-1", 1, labels=labels, volumes=using("data"))
    await until(lambda: len(s.at_work.devices.claimed.assumed) == 1 and extended_claim(s, "team-0"))
    unname(s)
    await until(lambda: not s.at_work.devices.claimed.classes["gpu"].spec.extended_resource_name)
    s.controllers.volumes.idle = False
    s.controllers.volumes.reconcile()
    await gets_devices_after_all(s, "team-0", "team-1")


@in_scene()
async def test_init_containers_use_the_devices_of_the_others(s):
    bare(s, "n1")
    named(s, dev("gpu0"), dev("gpu1"))
    s.pod("p", gpus=1, initContainers=[{"name": "first", "image": "none", "resources": {"limits": {GPU: "1"}}}])
    await bound(s, "p")
    assert len(devices_of(s, extended_claim(s, "p")["metadata"]["name"])) == 1
    mapped = s.get("p")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert {one["containerName"]: one["requestName"] for one in mapped} == {
        "main": "container-1-request-0", "first": "container-1-request-0",
    }  # fmt: skip
