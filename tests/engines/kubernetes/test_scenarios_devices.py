"""Scenarios: devices by claims (DRA), from whole devices to gangs, as peers got them wrong."""

import asyncio

import msgspec

from penstock.core.model.cluster import Queue
from penstock.core.model.ids import QueueName
from penstock.engines.kubernetes.devices import planned, view
from penstock.sim.apiserver.claims import trouble_with, twice_allocated
from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes import scenes
from tests.engines.kubernetes.devices_made import claim_of, class_of, dev, req, slice_of
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import in_scene, template

CLASS = "resource.k8s.io/deviceclasses"
SLICE = "resource.k8s.io/resourceslices"
CLAIM = "resource.k8s.io/resourceclaims"
TEMPLATE = "resource.k8s.io/resourceclaimtemplates"
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
USES = {"resourceClaims": FROM_TEMPLATE}


def gpus(s, *numbers, **more):
    """Give each node a slice with so many GPUs, and make a class and a template of one of them."""
    for i, number in enumerate(numbers, 1):
        devices = [dev(f"gpu{k}", **more) for k in range(number)]
        one = slice_of(*devices, on=f"n{i}", pool=f"n{i}")
        s.make(SLICE, f"n{i}", one["spec"])
    s.make(CLASS, "gpu", class_of()["spec"])
    s.make(TEMPLATE, "gpu", {"spec": claim_of(req())})


def has(s, pod):
    """Return the devices of a pod's claims, as `POOL/DEVICE`."""
    made = [one["resourceClaimName"] for one in s.get(pod)["status"].get("resourceClaimStatuses", ())]
    made += [one["resourceClaimName"] for one in s.get(pod)["spec"]["resourceClaims"] if "resourceClaimName" in one]
    return sorted(device for name in made for device in devices_of(s, name))


def devices_of(s, claim):
    status = s.store.all_of("resourceclaims")["default", claim].get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results", ())
    return [f"{one['pool']}/{one['device']}" for one in results]


def sound(s):
    """Check that no device has two claims, and that every bound pod has its claims."""
    assert twice_allocated(s.store) == []
    pods = [pod for pod in s.store.all_of("pods").values() if pod["spec"].get("nodeName")]
    assert [trouble_with(s.store, pod) for pod in pods if pod["status"]["phase"] not in OVER] == [""] * sum(
        pod["status"]["phase"] not in OVER for pod in pods
    )


async def bound(s, *names):
    await until(lambda: all(s.where(*names)))
    sound(s)


@in_scene("n1", "n2")
async def test_a_pod_gets_the_device_of_its_claim_before_it_is_bound(s):
    gpus(s, 0, 1)
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    assert s.where("p") == ["n2"]
    assert has(s, "p") == ["n2/gpu0"]
    (claim,) = s.store.all_of("resourceclaims").values()
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["status"]["allocation"]["allocationTimestamp"]
    assert s.requests("PATCH", "pods/p/status") == 0, "that its claim is not made yet is not worth a condition"


@in_scene("n1")
async def test_a_pod_waits_for_a_device_and_gets_it_when_another_one_is_over(s):
    gpus(s, 1)
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    s.pod("q", gpus=0, **USES)
    await s.waits("q")
    s.ends("p")
    await bound(s, "q")
    assert has(s, "q") == ["n1/gpu0"]


@in_scene("n1")
async def test_what_is_missing_is_said_on_the_pod(s):
    s.pod("p", gpus=0, **USES)
    await s.waits("p", reason="ResourceClaimUnknown")
    assert s.says("p")[1] == "ResourceClaimTemplate gpu is not there"
    s.make(TEMPLATE, "gpu", {"spec": claim_of(req())})
    await s.waits("p", reason="ResourceClaimInvalid")
    assert s.says("p")[1].endswith("there is no DeviceClass gpu")
    gpus_but_template(s)
    await bound(s, "p")


def gpus_but_template(s):
    s.make(CLASS, "gpu", class_of()["spec"])
    s.make(SLICE, "n1", slice_of(dev("gpu0"), pool="n1")["spec"])


@in_scene("n1")
async def test_a_pod_waits_for_the_claim_that_it_names(s):
    gpus(s, 1)
    s.pod("p", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    await s.waits("p", reason="ResourceClaimUnknown")
    assert s.says("p")[1] == "ResourceClaim mine is not there"
    s.make(CLAIM, "mine", claim_of(req()))
    await bound(s, "p")


@in_scene("n1", "n2")
async def test_too_few_devices_are_said_with_numbers(s):
    gpus(s, 2, 1)
    s.make(TEMPLATE, "three", {"spec": claim_of(req("r", 3))})
    s.pod("p", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "three"}])
    await s.waits("p")
    assert s.says("p")[1] == (
        "no node of pool 'default' can hold this job (1 CPU and 3 x devices of class gpu), even when empty: 2 nodes "
        "have too little devices of class gpu: the largest node of pool 'default' is n1, with 8 CPUs, 2 x "
        "devices of class gpu"
    )


@in_scene("n1", "n2")
async def test_a_gang_gets_all_its_devices_or_none(s):
    """Volcano gave pods of a gang claims without reservation (#5119); kube-scheduler allocates pod by pod (#138765)."""
    gpus(s, 2, 1)
    s.gang("big", 4, gpus=0, **USES)
    await s.waits("big-0", "big-1", "big-2", "big-3")
    assert twice_allocated(s.store) == []
    assert [has(s, f"big-{i}") for i in range(4)] == [[]] * 4
    s.gang("fits", 3, gpus=0, **USES)
    await bound(s, "fits-0", "fits-1", "fits-2")
    assert sorted(one for i in range(3) for one in has(s, f"fits-{i}")) == ["n1/gpu0", "n1/gpu1", "n2/gpu0"]
    assert s.where("big-0") == [""]


@in_scene("n1", "n2")
async def test_a_suspended_job_gets_devices_for_all_its_pods(s):
    gpus(s, 1, 1)
    s.job("train", 2, pods=template(0, **USES))
    s.job("later", 1, pods=template(0, **USES))
    await until(lambda: len(s.nodes_of("train")) == 2 and all(s.nodes_of("train")))
    sound(s)
    assert s.suspended("later")
    s.all_end("train")
    await until(lambda: s.nodes_of("later") != [] and all(s.nodes_of("later")))
    sound(s)


@in_scene("n1", "n2")
async def test_pods_with_one_claim_share_its_device_on_one_node(s):
    gpus(s, 1, 1)
    s.make(CLAIM, "both", claim_of(req()))
    uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "both"}]}
    s.gang("pair", 2, gpus=0, **uses)
    await bound(s, "pair-0", "pair-1")
    assert len(set(s.where("pair-0", "pair-1"))) == 1
    s.pod("third", gpus=0, **uses)
    await bound(s, "third")
    assert s.where("third") == s.where("pair-0")
    users = s.store.all_of("resourceclaims")["default", "both"]["status"]["reservedFor"]
    assert sorted(one["name"] for one in users) == ["pair-0", "pair-1", "third"]


def test_pods_with_claims_are_told_that_the_cluster_serves_beta_versions_alone(monkeypatch):
    """They start once it has been upgraded."""
    monkeypatch.setattr(view, "LOOK_AGAIN_S", 0.1)

    async def work():
        async with scenes.standing("n1") as s:
            kinds = dict(s.store.kinds)
            for plural in ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"):
                s.store.kinds["resource.k8s.io", plural] = s.kind(plural, "resource.k8s.io")._replace(version="v1beta1")
            async with s.serving():
                s.pod("p", gpus=0, **USES)
                await s.waits("p", reason="Unsupported")
                assert "need resource.k8s.io/v1, which this cluster does not serve" in s.says("p")[1]
                s.pod("q", gpus=1)
                await until(lambda: s.where("q") == ["n1"])
                s.store.kinds.update(kinds)
                gpus(s, 1)
                await bound(s, "p")

    run(work)


def test_one_namespace_cannot_have_all_kinds_of_claims_counted(monkeypatch):
    """Others' pods start although one namespace asks for more kinds of claims than are counted."""
    monkeypatch.setattr(planned, "OF_NAMESPACE_MAX", 3)

    @in_scene("n1")
    async def play(s):
        gpus(s, 8)
        for i in range(5):
            name, expression = f"t{i}", f'device.driver != "{i}"'
            s.make(TEMPLATE, name, {"spec": claim_of(req("r", 1, expression))}, namespace="greedy")
            uses = [{"name": "gpu", "resourceClaimTemplateName": name}]
            s.make("/pods", name, {**template(0)["spec"], "resourceClaims": uses}, namespace="greedy")
        pods = s.store.all_of("pods")
        await until(lambda: sum(bool(pod["spec"].get("nodeName")) for pod in pods.values()) == 3)
        s.pod("p", gpus=0, **USES)
        await bound(s, "p")
        crowded = [key for key, pod in pods.items() if not pod["spec"].get("nodeName")]
        assert len(crowded) == 2
        gone = next(key for key, pod in pods.items() if key[0] == "greedy" and pod["spec"].get("nodeName"))
        s.store.delete(s.kind("pods"), gone, 0)
        await until(lambda: sum(bool(pods[key]["spec"].get("nodeName")) for key in crowded) == 1)

    play()


@in_scene("n1", "n2")
async def test_jobs_whose_claims_are_alike_start_one_after_the_other(s):
    """What is counted for a Job that waits is not forgotten with the pods of another one."""
    gpus(s, 1, 1)
    for name in ("a", "b", "c"):
        s.job(name, 2, pods=template(0, **USES))
    done = []
    while len(done) < 3:
        await until(lambda: any(s.pods_of(name) and all(s.nodes_of(name)) for name in {"a", "b", "c"} - set(done)))
        (name,) = (name for name in {"a", "b", "c"} - set(done) if s.pods_of(name) and all(s.nodes_of(name)))
        sound(s)
        s.all_end(name)
        for pod in [pod["metadata"]["name"] for pod in s.store.all_of("pods").values()]:
            s.delete(pod)
        done.append(name)
    assert twice_allocated(s.store) == []


@in_scene("n1", "n2")
async def test_pods_with_one_claim_are_not_planned_on_two_nodes(s):
    gpus(s, 1, 1)
    s.make(CLAIM, "both", claim_of(req()))
    uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "both"}]}
    labels = {"penstock.dev/gang": "pair", "penstock.dev/gang-size": "2"}
    for name in ("pair-0", "pair-1"):
        s.pod(name, gpus=0, cpus="5", labels=labels, **uses)  # no node has room for both
    await s.waits("pair-0", "pair-1")
    await asyncio.sleep(0.3)
    assert [job.last_attempt for job in s.state.jobs.values()] == [0]


def test_without_the_rights_pods_with_claims_wait_and_say_so():
    """KAI broke when a right was missing (KAI-Scheduler#1372); here everything else goes on."""

    async def work():
        async with scenes.standing("n1") as s:
            s.api.faults.append(Fault("GET", "v1/resourceclaims", 403, times=10_000))
            async with s.serving():
                gpus(s, 1)
                s.pod("p", gpus=0, **USES)
                await s.waits("p", reason="Unsupported")
                assert s.says("p")[1] == "resourceClaims: resourceclaims may not be read"
                s.pod("q", gpus=1)
                await until(lambda: s.where("q") == ["n1"])

    run(work)


def charged(s):
    """Return the devices that each queue's and tenant's running jobs are charged for, in thousandths."""
    return sorted(
        (job.spec.name, charge.device_milli, charge.models)
        for job in s.state.jobs.values()
        if (charge := s.state.indexes.charges.get(job.id)) is not None
    )


@in_scene("n1", queues=(Queue(QueueName("default")), Queue(QueueName("small"), max=(("devices", 2000),))))
async def test_devices_of_claims_count_for_the_quota_of_a_queue(s):
    gpus(s, 4)
    labels = {"penstock.dev/queue": "small"}
    for name in ("a", "b"):
        s.pod(name, gpus=0, labels=labels, **USES)
    await bound(s, "a", "b")
    assert charged(s) == [("a", 1000, (("gpu", 1000),)), ("b", 1000, (("gpu", 1000),))]
    s.pod("c", gpus=0, labels=labels, **USES)
    await s.waits("c", reason="QuotaExceeded")
    assert "devices" in s.says("c")[1]
    s.ends("a")
    await bound(s, "c")


@in_scene("n1")
async def test_a_claim_that_a_gang_shares_is_charged_for_once(s):
    gpus(s, 3)
    s.make(CLAIM, "both", claim_of(req(count=3)))
    shared = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "both"}]}
    s.gang("team", 2, gpus=0, **shared)
    await bound(s, "team-0", "team-1")
    assert charged(s) == [("team", 3000, (("gpu", 3000),))]


@in_scene("n1")
async def test_extended_resources_that_are_devices_are_charged_for(s):
    gpus(s, 2)
    s.make(CLASS, "card", class_of(extendedResourceName="example.com/card")["spec"])
    s.pod("p", containers=[scenes.box(0, **{"example.com/card": "2"})])
    await until(lambda: all(s.where("p")))
    assert charged(s) == [("p", 2000, (("card", 2000),))]


@in_scene("n1")
async def test_a_pod_that_asks_for_more_devices_than_the_log_can_hold_ends_nothing(s):
    gpus(s, 1)
    s.make(CLASS, "card", class_of(extendedResourceName="example.com/card")["spec"])
    s.pod("endless", containers=[scenes.box(0, **{"example.com/card": "4E"})])
    s.pod("p", gpus=0, **USES)
    await bound(s, "p")
    assert s.where("endless") == [""]
    seen = s.at_work.pods.objects["default", "endless"]
    assert msgspec.json.decode(msgspec.json.encode(s.at_work.devices.devices(seen, 1))) == [["card", 10**12]]
