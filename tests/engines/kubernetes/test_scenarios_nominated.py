"""Scenarios of `status.nominatedNodeName`: it stands on pods for which others leave, and on no others."""

import asyncio
from typing import Any

from penstock.engines.kubernetes import nominating
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import HIGH, Scene, in_scene, standing

URGENT: dict[str, Any] = {"priorityClassName": HIGH}


def nominated(c: Scene, *names: str) -> list[str]:
    return [(c.get(name) or {"status": {}})["status"].get("nominatedNodeName", "") for name in names]


async def full(c: Scene, *names: str) -> None:
    """Let low pods of four GPUs each run, which take their time to leave."""
    c.priority()
    c.slow.update(names)
    for name in names:
        c.pod(name, gpus=4)
    await until(lambda: all(c.states().get(name) == "running" for name in names))


@in_scene("n1")
async def test_a_pod_for_which_another_leaves_is_nominated_until_it_is_bound(c: Scene) -> None:
    await full(c, "low")
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: nominated(c, "urgent") == ["n1"])
    assert c.where("urgent") == [""]
    c.slow.clear()
    await until(lambda: c.where("urgent") == ["n1"])
    assert nominated(c, "urgent") == [""]


@in_scene("n1", "n2")
async def test_each_pod_of_a_gang_is_nominated_for_its_own_node(c: Scene) -> None:
    await full(c, "low-1", "low-2")
    c.gang("pair", 2, gpus=4, **URGENT)
    await until(lambda: all(nominated(c, "pair-0", "pair-1")))
    planned = nominated(c, "pair-0", "pair-1")
    assert sorted(planned) == ["n1", "n2"]
    c.slow.clear()
    await until(lambda: all(c.where("pair-0", "pair-1")))
    assert c.where("pair-0", "pair-1") == planned


@in_scene("n1")
async def test_a_pod_that_merely_waits_is_never_nominated(c: Scene) -> None:
    """volcano#3680, #5131: autoscalers take a nominated pod for one that has a node."""
    await full(c, "low")
    c.pod("equal", gpus=4)
    c.pod("huge", gpus=8, **URGENT)
    c.pod("urgent", gpus=4, **URGENT)
    await c.waits("equal", "huge")
    await until(lambda: nominated(c, "urgent") == ["n1"])
    c.pod("late", gpus=4, **URGENT)
    await c.waits("late")
    assert nominated(c, "equal", "huge", "late") == [""] * 3


@in_scene("n1")
async def test_without_a_place_in_time_a_pod_is_no_longer_nominated(c: Scene) -> None:
    """The room is gone: a pod of another scheduler has taken it."""
    await full(c, "low")
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: nominated(c, "urgent") == ["n1"])
    c.theirs("foreign", gpus=4)
    c.slow.clear()
    await until(lambda: c.get("low") is None)
    await until(lambda: nominated(c, "urgent") == [""])
    assert c.where("urgent") == [""]


@in_scene("n1")
async def test_a_nominated_pod_of_ours_is_no_load_of_its_node(c: Scene) -> None:
    """What others leave for it is kept for it in the plan: as a load it would count twice."""
    await full(c, "low")
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: nominated(c, "urgent") == ["n1"])
    c.theirs("foreign", gpus=0, node="")
    c.status("pods", "foreign", nominatedNodeName="n1")
    await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == 1000)
    assert c.state.nodes["n1"].others.devices == ()


def test_after_a_restart_a_pod_that_leaves_holds_its_place_until_it_is_gone() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                await full(c, "low")
                c.pod("urgent", gpus=4, **URGENT)
                await until(lambda: bool(c.get("low")["metadata"].get("deletionTimestamp")))
            async with c.serving():
                await asyncio.sleep(0.5)
                assert c.states() == {"low": "stopping", "urgent": "waiting"}
                c.slow.clear()
                await until(lambda: c.states() == {"urgent": "running"})
                (job,) = c.state.jobs.values()
                assert (job.last_attempt, job.infrastructure_failures) == (1, 0)

    run(work)


def test_a_restart_knows_who_was_nominated() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                await full(c, "low")
                c.pod("urgent", gpus=4, **URGENT)
                await until(lambda: nominated(c, "urgent") == ["n1"])
            c.status("pods", "urgent", nominatedNodeName="n9")
            async with c.serving():
                await until(lambda: nominated(c, "urgent") == ["n1"])
            c.pod("other", gpus=4)
            c.status("pods", "other", nominatedNodeName="n1")
            async with c.serving():
                await until(lambda: nominated(c, "other", "urgent") == ["", "n1"])

    run(work)


@in_scene("n1")
async def test_a_nomination_is_written_once(c: Scene) -> None:
    await full(c, "low")
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: nominated(c, "urgent") == ["n1"])
    await c.waits("urgent")
    writes = c.requests("PATCH", "urgent/status")
    await asyncio.sleep(0.3)
    assert c.requests("PATCH", "urgent/status") == writes


@in_scene("n1", "n2", "n3")
async def test_pods_whose_nomination_is_always_refused_keep_no_others_from_theirs(c: Scene) -> None:
    """An admission webhook may refuse them."""
    await full(c, "low-1", "low-2", "low-3")
    c.api.faults.append(Fault("PATCH", "refused-[0-9]+/status", 403, times=10_000))
    c.gang("refused", nominating.WRITES_MAX, gpus=1, **URGENT)
    await until(lambda: c.requests("PATCH", "refused-") >= nominating.WRITES_MAX)
    c.gang("other", 4, gpus=1, **URGENT)
    async with asyncio.timeout(5):
        await until(lambda: all(nominated(c, *(f"other-{i}" for i in range(4)))))
    assert not any(nominated(c, *(f"refused-{i}" for i in range(nominating.WRITES_MAX))))


@in_scene("n1")
async def test_a_nomination_that_was_refused_for_a_while_is_written(c: Scene) -> None:
    await full(c, "low")
    c.api.faults.append(Fault("PATCH", "urgent/status", 403, times=4))
    c.pod("urgent", gpus=4, **URGENT)
    await until(lambda: nominated(c, "urgent") == ["n1"])
    assert not c.api.faults
