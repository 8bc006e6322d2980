"""Who leaves for whom, and how often; what queues and tenants may hold."""

from typing import Any

import pytest

from penstock.core.model.cluster import Queue, Tenant
from penstock.core.model.ids import QueueName, TenantName
from penstock.core.order.ranks import LOST_MAX
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import HIGH, Scene, box, in_scene, scene

DEFAULT, SMALL = Queue(QueueName("default")), Queue(QueueName("small"), max=(("devices", 2000),))
IN_SMALL = {"penstock.dev/queue": "small"}
URGENT: dict[str, Any] = {"priorityClassName": HIGH}


def evictions(c: Scene, name: str = "") -> int:
    return c.requests("POST", f"{name}/eviction")


async def starts(c: Scene, *names: str) -> list[str]:
    """Wait until these pods run, and return where."""
    await until(lambda: all(c.where(*names)) and all(c.get(n)["status"]["phase"] == "Running" for n in names))
    return c.where(*names)


async def begun(c: Scene, *names: str) -> None:
    """Wait until the server knows that these jobs run."""
    await until(lambda: all(c.states().get(name) == "running" for name in names))


@in_scene("n1", "n2")
async def test_no_more_pods_leave_than_are_needed(c: Scene) -> None:
    """k8s preemption_test: the fewest victims; kueue: issued once for each of them."""
    c.priority()
    for i in range(4):
        c.pod(f"low-{i}", gpus=2)
    await begun(c, "low-0", "low-1", "low-2", "low-3")
    c.pod("urgent", gpus=2, **URGENT)
    await starts(c, "urgent")
    assert (sum(c.get(f"low-{i}") is None for i in range(4)), evictions(c)) == (1, 1)


@in_scene("n1", "n2")
async def test_a_gang_leaves_whole_or_not_at_all(c: Scene) -> None:
    """volcano#3291, KEP-5710 (disruptionMode all): a gang without one of its pods is of no use to anybody."""
    c.priority()
    c.gang("low", 2, gpus=4)
    await begun(c, "low")
    c.pod("urgent", gpus=1, **URGENT)
    await starts(c, "urgent")
    await until(lambda: (c.get("low-0"), c.get("low-1")) == (None, None))
    assert (evictions(c, "low-0"), evictions(c, "low-1")) == (1, 1)


@in_scene("n1")
async def test_a_gang_preempts_for_all_its_pods_at_once(c: Scene) -> None:
    """KEP-5710, volcano#3291: nobody leaves for a part of a gang."""
    c.priority()
    for i in range(2):
        c.pod(f"low-{i}", gpus=2)
    await begun(c, "low-0", "low-1")
    c.gang("huge", 3, gpus=2, **URGENT)
    await until(lambda: c.says("huge-0")[0] != "")
    assert evictions(c) == 0
    c.gang("pair", 2, gpus=2, **URGENT)
    await starts(c, "pair-0", "pair-1")
    assert evictions(c) == 2


@pytest.mark.parametrize(
    ("low", "urgent"),
    [
        ({}, {}),
        ({}, {"priorityClassName": "polite"}),
        ({"labels": {"penstock.dev/preemptible": "false"}}, {"priorityClassName": HIGH}),
        ({"priorityClassName": HIGH}, {}),
    ],
    ids=["of the same priority", "that never preempts", "for one that stays", "of a lower priority"],
)
def test_nobody_leaves_for_a_pod(low: dict[str, Any], urgent: dict[str, Any]) -> None:
    """k8s preemption_test: equal priorities, preemptionPolicy Never; KAI e2e preempt: what is not preemptible."""

    async def work() -> None:
        async with scene("n1") as c:
            c.priority()
            c.priority("polite", preemptionPolicy="Never")
            c.pod("low", gpus=4, **low)
            await begun(c, "low")
            c.pod("urgent", gpus=4, **urgent)
            await c.waits("urgent")
            assert (evictions(c), c.where("low")) == (0, ["n1"])
            c.ends("low")
            await starts(c, "urgent")

    run(work)


@in_scene("n1", "n2")
async def test_a_pod_that_never_preempts_still_comes_first(c: Scene) -> None:
    """k8s: preemptionPolicy Never changes who leaves, not who is next."""
    c.priority("polite", preemptionPolicy="Never")
    c.theirs("theirs", gpus=4, node="n1")
    c.theirs("others", gpus=4, node="n2")
    c.pod("early", gpus=4)
    await c.waits("early")
    c.pod("polite", gpus=4, priorityClassName="polite")
    await c.waits("polite")
    c.delete("theirs")
    await starts(c, "polite")
    assert c.where("early") == [""]


def _elsewhere(c: Scene) -> dict[str, Any]:
    return {"nodeSelector": {"disk": "ssd"}}


def _port(c: Scene) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": 80}]
    c.theirs("web", containers=[{**box(0), "ports": ports}])
    return {"containers": [{**box(4), "ports": ports}]}


def _apart(c: Scene) -> dict[str, Any]:
    c.theirs("web", gpus=0, labels={"app": "web"})
    one = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one]}}
    c.pod("scout", affinity=rules, nodeSelector={"disk": "ssd"})
    return {"affinity": rules}


def _fpga(c: Scene) -> dict[str, Any]:
    return {"containers": [box(4, **{"example.com/fpga": "1"})]}


@pytest.mark.parametrize(
    "rule",
    [_elsewhere, _port, _apart, _fpga],
    ids=["another node", "a port that is taken", "another pod", "a resource that is not there"],
)
def test_nobody_leaves_for_a_pod_that_would_not_fit_all_the_same(rule: Any) -> None:
    """volcano#3845, #2976, #3068, #3079, PR#3895: what a preemption cannot mend leads to none."""

    async def work() -> None:
        async with scene("n1") as c:
            c.priority()
            asked = {"gpus": 4, **URGENT, **rule(c)}
            c.pod("low", gpus=4)
            await begun(c, "low")
            await until(lambda: rule not in (_port, _apart) or c.state.nodes["n1"].others.selected != ())
            c.pod("early", **asked)
            await until(lambda: c.says("early")[0] != "")
            assert (evictions(c), c.where("early", "low")) == (0, ["", "n1"])

    run(work)


@in_scene("n1")
async def test_nobody_takes_the_room_that_victims_make_for_another(c: Scene) -> None:
    """kueue#13320, kueue#14246: no stealing while a preemptor waits for several evictions."""
    c.priority()
    for i in range(2):
        c.pod(f"low-{i}", gpus=2)
    await begun(c, "low-0", "low-1")
    c.slow = {"low-1"}
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: c.get("low-0") is None)
    c.pod("thief", gpus=2)
    await c.waits("thief")
    assert c.where("urgent") == [""], "the second of its victims is still there"
    c.slow.clear()
    await starts(c, "urgent")
    assert c.where("thief") == [""]


@in_scene("n1")
async def test_a_preemption_is_asked_for_once(c: Scene) -> None:
    """kueue preemption_test: no cycle of preemptions; a victim that comes back does not preempt in turn."""
    c.priority()
    c.pod("low", gpus=4)
    await begun(c, "low")
    c.slow = {"low"}
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: c.get("low")["metadata"].get("deletionTimestamp") is not None)
    c.pod("other", gpus=4)
    await c.waits("other")
    c.slow.clear()
    await starts(c, "urgent")
    c.pod("low", gpus=4)
    await c.waits("low")
    assert (evictions(c), c.where("urgent")) == (1, ["n1"])


@in_scene("n1")
async def test_a_victim_is_given_its_own_grace_and_says_for_whom_it_left(c: Scene) -> None:
    """KEP-3329 (DisruptionTarget); KAI#1579 deletes without either."""
    c.priority()
    c.pod("low", gpus=4, terminationGracePeriodSeconds=77)
    await begun(c, "low")
    c.slow = {"low"}
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: c.get("low")["metadata"].get("deletionTimestamp") is not None)

    def said() -> Any:
        return next(one for one in c.get("low")["status"]["conditions"] if one["type"] == "DisruptionTarget")

    await until(lambda: said()["reason"] != "EvictionByEvictionAPI")
    reason = said()
    assert (reason["status"], reason["reason"]) == ("True", "PreemptionByScheduler")
    assert "default/pod/urgent" in reason["message"]
    assert c.get("low")["metadata"]["deletionGracePeriodSeconds"] == 77


@in_scene("n1")
async def test_pods_of_other_schedulers_are_never_evicted(c: Scene) -> None:
    """YuniKorn e2e foreign_pod: whose they are decides."""
    c.priority()
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.pod("urgent", gpus=4, **URGENT)
    await c.waits("urgent")
    assert (evictions(c), c.requests("DELETE", "pods")) == (0, 0)


@in_scene("n1")
async def test_pods_without_a_priority_class_have_the_default_one(c: Scene) -> None:
    """k8s: globalDefault; a workload's template counts the same, before it has pods."""
    c.priority("usual", 500, globalDefault=True)
    c.priority("low", 100)
    c.job("low", 1, gpus=4, pods=None)
    await begun(c, "low")
    c.pod("same", gpus=4)
    await c.waits("same")
    c.priority("above", 501)
    c.pod("above", gpus=4, priorityClassName="above")
    await starts(c, "above")
    assert c.suspended("low")


@in_scene("n1", queues=(DEFAULT, SMALL))
async def test_a_queue_holds_no_more_than_its_maximum(c: Scene) -> None:
    """KAI#1615, volcano PR#5033: no node is bought for what a quota keeps waiting: it says so with another reason."""
    for i in range(2):
        c.pod(f"small-{i}", gpus=2, labels=IN_SMALL)
    await until(lambda: any(c.where("small-0", "small-1")))
    first, second = sorted(("small-0", "small-1"), key=lambda name: c.where(name) == [""])
    await c.waits(second, reason="QuotaExceeded")
    assert "devices 2 of 2 used, short by 2" in c.says(second)[1]
    c.pod("other", gpus=2)
    await starts(c, "other")
    c.ends(first)
    await starts(c, second)


@in_scene("n1", queues=(DEFAULT, SMALL))
async def test_what_waits_holds_no_quota(c: Scene) -> None:
    """kueue#4329, #5243, #6868, #4270: admitted by quota, and then there was no place for it."""
    c.theirs("theirs", gpus=3)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 3)
    c.pod("large", gpus=2, labels=IN_SMALL)
    await c.waits("large")
    c.pod("fits", gpus=1, labels=IN_SMALL)
    await starts(c, "fits")


@in_scene("n1", queues=(DEFAULT, SMALL))
async def test_a_job_that_its_quota_keeps_waiting_stays_suspended(c: Scene) -> None:
    """kueue: suspended means no pods, so that no autoscaler sees any."""
    c.job("first", 2, labels=IN_SMALL)
    await begun(c, "first")
    c.job("second", 1, labels=IN_SMALL)
    event = await c.explained("second")
    assert (event["reason"], event["regarding"]["kind"]) == ("QuotaExceeded", "Job")
    assert "short by 1" in event["note"]
    assert (c.suspended("second"), c.pods_of("second")) == (True, [])


RED, BLUE = (Queue(QueueName(name), guaranteed=(("devices", 2000),), preemption="reclaim") for name in ("red", "blue"))


@in_scene("n1", queues=(RED, BLUE))
async def test_a_queue_gets_back_what_it_is_guaranteed(c: Scene) -> None:
    """KAI e2e reclaim, kueue fair_sharing_test: what was lent comes back, and no more than that."""
    for i in range(4):
        c.pod(f"red-{i}", labels={"penstock.dev/queue": "red"})
    await begun(c, *(f"red-{i}" for i in range(4)))
    c.pod("blue", gpus=2, labels={"penstock.dev/queue": "blue"})
    await starts(c, "blue")
    assert evictions(c) == 2
    c.pod("more", gpus=1, labels={"penstock.dev/queue": "blue"})
    await c.waits("more")
    assert evictions(c) == 2, "beyond its guarantee it takes what is idle"


@in_scene("n1", tenants=(Tenant(TenantName("default")), Tenant(TenantName("science"), max=(("devices", 2000),))))
async def test_a_namespace_is_the_tenant_of_its_name(c: Scene) -> None:
    """What all its queues together may hold; pods of other namespaces are of the default tenant."""
    spec = {"schedulerName": "penstock", "containers": [box(2)]}
    for name in ("one", "two"):
        c.make("/pods", name, spec, namespace="science")
    c.pod("other", gpus=2)
    await starts(c, "other")
    await until(lambda: sorted(job.state for job in c.state.jobs.values()) == ["running", "running", "waiting"])
    assert {job.spec.name: job.spec.tenant for job in c.state.jobs.values()}["other"] == "default"
    (waiting,) = [job for job in c.state.jobs.values() if job.state == "waiting"]
    assert waiting.spec.tenant == "science"


@pytest.mark.parametrize(
    "named",
    [
        {"labels": {"pod-group-name": "t", "kai.scheduler/batch-min-member": "1", "kai.scheduler/queue": "small"}},
        {"labels": {"applicationId": "t", "queue": "small"}, "annotations": {
            "yunikorn.apache.org/task-group-name": "w", "yunikorn.apache.org/task-groups": '[{"name": "w"}]'}},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "t", "kueue.x-k8s.io/pod-group-total-count": "1",
                    "kueue.x-k8s.io/queue-name": "small"}},
        {"labels": IN_SMALL},
    ],
    ids=["kai", "yunikorn", "kueue", "ours"],
)  # fmt: skip
def test_a_queue_named_in_any_dialect_is_the_queue_of_the_gang(named: dict[str, Any]) -> None:
    """KAI e2e allocate/quota; the quota of that queue holds."""

    async def work() -> None:
        async with scene("n1", queues=(DEFAULT, SMALL)) as c:
            c.pod("first", gpus=2, labels=IN_SMALL)
            await starts(c, "first")
            c.make("/pods", "second", {"schedulerName": "penstock", "containers": [box(1)]}, **named)
            await c.waits("second", reason="QuotaExceeded")

    run(work)


@in_scene("n1")
async def test_a_pod_that_is_never_bound_evicts_only_so_often(c: Scene) -> None:
    """volcano#2976, #3079: others left again and again for a pod that could not start then."""
    c.priority()
    c.job("low", 1, gpus=4)
    await begun(c, "low")
    c.api.faults.append(Fault("POST", "pods/urgent/binding", 403, times=1000))
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: "lost before it ran" in c.says("urgent")[1])
    await begun(c, "low")
    assert 1 < c.state.jobs[1].last_attempt <= 1 + LOST_MAX
    c.api.faults.clear()
    c.all_end("low")
    assert await starts(c, "urgent") == ["n1"]
