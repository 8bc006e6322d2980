"""What an Eviction does, and when it is refused: the stop of a replica depends on each of these."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e_kubernetes.kube import BUDGETS, PODS, Kube, on_cluster

CONFLICT = (409, "Conflict")
OURS = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for job 7"}


async def condition(k: Kube, name: str = "web") -> Any:
    found = (await k.known(PODS, name))["status"].get("conditions", ())
    return next((one for one in found if one["type"] == "DisruptionTarget"), None)


async def budget(k: Kube, allowed: int = 0, **spec: Any) -> None:
    """Create a budget for pods with the label `app: web`, and wait until it is counted."""
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    await k.make(BUDGETS, "web", spec={**selector, **(spec or {"minAvailable": 1})})

    async def counted() -> bool:
        status = (await k.known(BUDGETS, "web")).get("status", {})
        return bool(status.get("expectedPods")) and status["disruptionsAllowed"] == allowed

    await k.until(counted)


async def web(k: Kube, name: str = "web", **spec: Any) -> Any:
    """Return a pod that runs."""
    await k.pod(name, labels={"app": "web"}, **spec)
    return await k.runs(name)


@on_cluster
async def test_a_running_pod_that_is_evicted_gets_its_grace_period(k: Kube) -> None:
    await web(k)
    answer = await k.evict("web", gracePeriodSeconds=7)
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    meta = (await k.known(PODS, "web"))["metadata"]
    assert meta["deletionTimestamp"]
    assert meta["deletionGracePeriodSeconds"] == 7


@on_cluster
async def test_an_eviction_says_on_the_pod_that_it_was_one(k: Kube) -> None:
    await web(k)
    await k.evict("web")
    found = await condition(k)
    assert (found["status"], found["reason"], found["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


@on_cluster
async def test_an_eviction_overwrites_a_reason_that_stands_there_before(k: Kube) -> None:
    await web(k)
    k.right(await k.patch(PODS, "web", {"status": {"conditions": [OURS]}}, "strategic", "status"))
    await k.evict("web")
    assert (await condition(k))["reason"] == "EvictionByEvictionAPI"


@on_cluster
async def test_a_reason_that_is_written_after_the_eviction_remains(k: Kube) -> None:
    await web(k)
    await k.evict("web")
    k.right(await k.patch(PODS, "web", {"status": {"conditions": [OURS]}}, "strategic", "status"))
    found = await condition(k)
    assert (found["status"], found["reason"], found["message"]) == ("True", "PreemptionByScheduler", "for job 7")


@on_cluster
async def test_a_pod_that_is_not_bound_is_gone_with_its_eviction(k: Kube) -> None:
    await k.pod("web")
    assert (await k.evict("web")).status == 201
    assert await k.get(PODS, "web") is None


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
@on_cluster
async def test_an_eviction_of_another_pod_or_version_is_refused(k: Kube, field: str) -> None:
    await web(k)
    wrong = {"uid": "00000000-0000-0000-0000-000000000001", "resourceVersion": "1"}[field]
    assert (await k.evict("web", preconditions={field: wrong})).said == CONFLICT
    assert "deletionTimestamp" not in (await k.known(PODS, "web"))["metadata"]


@on_cluster
async def test_an_eviction_with_the_right_uid_and_version_is_carried_out(k: Kube) -> None:
    meta = (await web(k))["metadata"]
    wanted = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert (await k.evict("web", preconditions=wanted)).status == 201
    assert (await k.known(PODS, "web"))["metadata"]["deletionTimestamp"]


@on_cluster
async def test_a_pod_that_is_gone_is_not_evicted(k: Kube) -> None:
    assert (await k.evict("web")).said == (404, "NotFound")


@on_cluster
async def test_a_budget_forbids_an_eviction_and_changes_nothing(k: Kube) -> None:
    await web(k)
    await budget(k)
    answer = await k.evict("web")
    assert answer.said == (429, "TooManyRequests")
    assert answer.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "disruption budget" in answer.body["message"]
    assert "deletionTimestamp" not in (await k.known(PODS, "web"))["metadata"]
    assert await condition(k) is None


@on_cluster
async def test_a_budget_allows_as_many_evictions_as_it_says(k: Kube) -> None:
    for name in ("a", "b", "c"):
        await web(k, name)
    await budget(k, 1, minAvailable=2)
    assert [(await k.evict(name)).status for name in ("a", "b")] == [201, 429]
    status = (await k.known(BUDGETS, "web"))["status"]
    assert (status["disruptionsAllowed"], status["desiredHealthy"]) == (0, 2)


@on_cluster
async def test_a_budget_counts_pods_that_are_ready(k: Kube) -> None:
    await web(k, "a")
    await web(k, "b")
    await k.pod("c", labels={"app": "web"})
    await budget(k, 1)
    status = (await k.known(BUDGETS, "web"))["status"]
    assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (2, 1, 3)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    k.right(await k.patch(PODS, "b", unready, "strategic", "status"))

    async def forbidden() -> bool:
        return int((await k.known(BUDGETS, "web"))["status"]["disruptionsAllowed"]) == 0

    await k.until(forbidden)


@on_cluster
async def test_a_budget_does_not_keep_a_pod_that_does_not_run_yet(k: Kube) -> None:
    await web(k, "a")
    await k.pod("b", labels={"app": "web"})
    await budget(k)
    assert (await k.evict("b")).status == 201
    assert await k.get(PODS, "b") is None


@on_cluster
async def test_a_trial_eviction_says_what_a_budget_would(k: Kube) -> None:
    await web(k, "a")
    await web(k, "b")
    await budget(k, 1)
    assert (await k.evict("a", dryRun=["All"])).status == 201
    assert "deletionTimestamp" not in (await k.known(PODS, "a"))["metadata"]
    assert await condition(k, "a") is None
    assert (await k.known(BUDGETS, "web"))["status"]["disruptionsAllowed"] == 1
    assert (await k.evict("a")).status == 201
    assert (await k.evict("b", dryRun=["All"])).said == (429, "TooManyRequests")


@on_cluster
async def test_an_eviction_of_another_version_costs_its_budget_a_disruption(k: Kube) -> None:
    for name in ("a", "b"):
        await web(k, name)
    await budget(k, 1)
    assert (await k.evict("a", preconditions={"resourceVersion": "1"})).said == CONFLICT
    status = (await k.known(BUDGETS, "web"))["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["a"])
    assert (await k.evict("a")).status == 429


@on_cluster
async def test_a_pod_that_was_to_leave_for_no_one_knows_how_long_stays(k: Kube) -> None:
    await web(k)
    k.right(await k.patch(PODS, "web", {"status": {"conditions": [OURS]}}, "strategic", "status"))

    async def taken_back() -> bool:
        return str((await condition(k))["status"]) == "False"

    await k.until(taken_back)


@on_cluster
async def test_a_pod_that_is_to_leave_from_now_on_says_so(k: Kube) -> None:
    await web(k)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ours = {**OURS, "lastTransitionTime": now}
    k.right(await k.patch(PODS, "web", {"status": {"conditions": [ours]}}, "strategic", "status"))
    await budget(k)
    found = await condition(k)
    assert (found["status"], found["reason"], found["lastTransitionTime"]) == ("True", "PreemptionByScheduler", now)


@on_cluster
async def test_a_pod_in_two_budgets_cannot_be_evicted(k: Kube) -> None:
    await web(k)
    await budget(k, 1, minAvailable=0)
    await k.make(BUDGETS, "other", spec={"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0})

    async def refused() -> bool:
        return (await k.evict("web", dryRun=["All"])).status == 500

    await k.until(refused)
    assert "deletionTimestamp" not in (await k.known(PODS, "web"))["metadata"]


@on_cluster
async def test_a_pod_that_is_over_is_deleted_by_its_eviction(k: Kube) -> None:
    await web(k)
    k.right(await k.patch(PODS, "web", {"status": {"phase": "Succeeded"}}, "strategic", "status"))
    assert (await k.evict("web")).status == 201
    assert await k.get(PODS, "web") is None


@on_cluster
async def test_a_pod_that_leaves_is_evicted_again_without_a_budget(k: Kube) -> None:
    await web(k)
    await budget(k)
    await k.delete(PODS, "web")
    assert (await k.evict("web")).status == 201
