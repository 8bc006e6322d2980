"""Who leaves for whom: by eviction, within budgets, and with a reason that remains."""

from typing import Any

from tests.e2e_kubernetes.kube import BUDGETS, JOBS, PODS
from tests.e2e_kubernetes.live import Live, condition, live

URGENT = 1000


async def low(c: Live, name: str = "low", **labels: str) -> None:
    """Create a pod that takes a node, and wait until it and the server know that it runs."""
    await c.ask(name, 4, labels=labels)
    await c.run(name)

    async def known() -> bool:
        return (name, "running") in c.jobs()

    await c.until(known)


async def budget(c: Live, least: int = 1) -> None:
    selector = {"selector": {"matchLabels": {"app": "low"}}}
    await c.make(BUDGETS, "keep", spec={**selector, "minAvailable": least})

    async def counted() -> bool:
        return bool((await c.known(BUDGETS, "keep")).get("status", {}).get("expectedPods"))

    await c.until(counted)


@live("n1")
async def test_a_pod_of_lower_priority_leaves_for_one_of_a_higher(c: Live) -> None:
    await low(c)
    await c.ask("urgent", 4, priorityClassName=await c.priority(URGENT))
    assert await c.run("urgent") == ["n1"]
    assert await c.get(PODS, "low") is None


@live("n1")
async def test_a_victim_says_for_whom_and_why_it_left(c: Live) -> None:
    await c.ask("low", 4, terminationGracePeriodSeconds=77)
    await c.run("low")
    c.right(await c.patch(PODS, "low", {"metadata": {"finalizers": ["example.com/wait"]}}))
    await c.ask("urgent", 4, priorityClassName=await c.priority(URGENT))

    async def said() -> Any:
        found = condition(await c.known(PODS, "low"), "DisruptionTarget")
        return found if found.get("reason") == "PreemptionByScheduler" and await leaves() else None

    async def leaves() -> bool:
        return "deletionTimestamp" in (await c.known(PODS, "low"))["metadata"]

    found = await c.until(said)
    assert found["status"] == "True"
    assert f"{c.name}/pod/urgent" in found["message"]
    assert (await c.known(PODS, "low"))["metadata"]["deletionGracePeriodSeconds"] <= 77
    c.right(await c.patch(PODS, "low", {"metadata": {"finalizers": None}}))
    assert await c.run("urgent") == ["n1"]


@live("n1")
async def test_nobody_leaves_for_a_pod_of_the_same_priority(c: Live) -> None:
    await low(c)
    await c.ask("next", 4)
    await c.waits("next")
    assert await c.phases("low") == ["Running"]


@live("n1")
async def test_a_gang_leaves_whole(c: Live) -> None:
    names = await c.gang("team", 2, 2)
    await c.run(*names)

    async def known() -> bool:
        return ("team", "running") in c.jobs()

    await c.until(known)
    await c.ask("urgent", 1, priorityClassName=await c.priority(URGENT))
    assert await c.run("urgent") == ["n1"]
    for name in names:
        await c.gone(PODS, name)


@live("n1")
async def test_a_budget_keeps_a_pod_until_it_allows_that_it_leaves(c: Live) -> None:
    await low(c, app="low")
    await budget(c)

    async def protected() -> bool:
        return any(job.protected for job in c.state.jobs.values())

    await c.until(protected)
    await c.ask("urgent", 4, priorityClassName=await c.priority(URGENT))
    assert f"PodDisruptionBudget {c.name}/keep" in await c.waits("urgent")
    assert "deletionTimestamp" not in (await c.known(PODS, "low"))["metadata"]
    c.right(await c.patch(BUDGETS, "keep", {"spec": {"minAvailable": 0}}))
    assert await c.run("urgent") == ["n1"]
    assert await c.get(PODS, "low") is None


@live("n1")
async def test_a_job_makes_room_by_suspension_and_starts_again(c: Live) -> None:
    await c.job("train", 2, 2)
    await c.has("train", 2)

    async def known() -> bool:
        return ("train", "running") in c.jobs()

    await c.until(known)
    await c.ask("urgent", 4, priorityClassName=await c.priority(URGENT))
    assert await c.run("urgent") == ["n1"]
    assert ((await c.known(JOBS, "train"))["spec"]["suspend"], await c.pods_of("train")) == (True, [])
    c.exits["urgent"] = 0
    await c.has("train", 2)
    assert not (await c.known(JOBS, "train"))["spec"]["suspend"]
