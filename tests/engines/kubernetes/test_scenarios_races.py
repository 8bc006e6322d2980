"""Scenarios that once failed: races between submits, watches and the controllers of workloads; what is said."""

import asyncio
from typing import Any

import pytest

from penstock.core.model.cluster import Queue
from penstock.core.model.ids import NodeName, QueueName
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import (
    HIGH,
    JOB_SETS,
    QUEUE,
    TRAIN_JOBS,
    Scene,
    in_scene,
    scene,
    standing,
    template,
)
from tests.engines.kubernetes.test_scenarios_neighbours import HOST, apart, near, placed
from tests.engines.kubernetes.test_scenarios_workloads import job_set, runs


@in_scene("n1")
async def test_a_pod_that_waits_for_devices_names_the_resource(c: Scene) -> None:
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.pod("large", gpus=2)
    await c.waits("large")
    assert "nvidia.com/gpu" in c.says("large")[1]


@in_scene("n1")
async def test_a_pod_that_no_present_node_could_hold_is_unschedulable(c: Scene) -> None:
    c.pod("large", gpus=8)
    await until(lambda: c.says("large")[0] != "")
    assert c.says("large")[0] == "Unschedulable"


@pytest.mark.parametrize(
    ("queue", "reason", "text"),
    [
        ("default", "FailedScheduling", "even when empty: 4 fit at most"),
        ("small", "QuotaExceeded", "may hold 2 of devices, this job asks for 3"),
        ("absent", "Refused", "there is no queue 'absent'"),
    ],
)
def test_a_job_that_is_refused_says_why(queue: str, reason: str, text: str) -> None:

    async def work() -> None:
        async with scene(
            "n1", queues=(Queue(QueueName("default")), Queue(QueueName("small"), max=(("devices", 2000),)))
        ) as c:
            c.job("giant", 9 if queue == "default" else 3, labels={"penstock.dev/queue": queue})
            c.pod("other")
            await until(lambda: c.states().get("other") == "running")
            async with asyncio.timeout(3):
                event = await c.explained("giant")
            assert event["reason"] == reason
            assert text in event["note"]
            assert "giant" not in c.states()

    run(work)


def held(c: Scene) -> list[Any]:
    """Hold back the server's answers to submits; those that are held are returned."""
    server, kept = c.at_work._server, []
    submit = server.submit
    server.submit = lambda job, reply: submit(job, lambda found: kept.append((reply, found)))
    return kept


@pytest.mark.parametrize("kind", ["pod", "job"])
def test_what_is_deleted_before_the_answer_to_its_submit_has_no_job(kind: str) -> None:

    async def work() -> None:
        async with scene("n1") as c:
            c.theirs("theirs", gpus=4)
            await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
            kept = held(c)
            if kind == "pod":
                c.pod("one")
            else:
                c.job("one", 1)
            await until(lambda: kept != [])
            c.store.delete(c.kind("pods") if kind == "pod" else c.kind("jobs", "batch"), ("default", "one"), 0)
            await asyncio.sleep(0.1)
            for reply, found in kept:
                reply(found)
            async with asyncio.timeout(3):
                await until(lambda: c.states() == {})
            assert [row.state for row in c.disk.finished_jobs(9)] == ["cancelled"]

    run(work)


@in_scene("n1", "n2")
async def test_a_job_that_is_changed_before_the_answer_to_its_submit_is_planned_anew(c: Scene) -> None:
    c.theirs("theirs", gpus=4, node="n1")
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    kept = held(c)
    c.job("train", 1, pods=template(nodeSelector={"kubernetes.io/hostname": "n1"}))
    await until(lambda: kept != [])
    other = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}}}
    c.change("batch/jobs", "train", {"spec": other})
    await asyncio.sleep(0.1)
    for reply, found in kept:
        reply(found)
    async with asyncio.timeout(3):
        assert await runs(c, "train", 1) == ["n2"]


@in_scene("n1")
async def test_a_pod_starts_once_one_of_ours_that_it_wants_near_has_started(c: Scene) -> None:
    c.pod("cache", affinity=near(HOST))
    await c.waits("cache")
    c.pod("web", labels={"app": "web"})
    await placed(c, "web")
    async with asyncio.timeout(3):
        await placed(c, "cache")
    assert c.where("web", "cache") == ["n1", "n1"]


@in_scene("n1")
async def test_a_rule_that_is_new_holds_for_the_pod_that_brings_it(c: Scene) -> None:
    c.theirs("web", gpus=0, labels={"app": "web"})
    await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == 1000)
    c.pod("shy", affinity=apart(HOST))
    await until(lambda: c.where("shy") != [""] or c.says("shy")[0] != "")
    assert c.where("shy") == [""]


@in_scene("n1")
async def test_nobody_leaves_for_a_pod_whose_new_rule_keeps_it_off(c: Scene) -> None:
    c.priority()
    c.theirs("web", gpus=0, labels={"app": "web"})
    c.pod("low", gpus=4)
    await until(lambda: c.states() == {"low": "running"})
    c.pod("urgent", gpus=4, priorityClassName=HIGH, affinity=apart(HOST))
    await until(lambda: c.says("urgent")[0] != "" or c.where("urgent") != [""])
    assert (c.requests("POST", "eviction"), c.where("urgent")) == (0, [""])


@in_scene("n1")
async def test_a_job_that_failed_is_a_failed_job(c: Scene) -> None:
    c.job("train", 2, gpus=2, backoffLimit=0)
    await runs(c, "train", 2)
    c.all_end("train", 1)
    await until(lambda: c.states() == {})
    assert [(row.name, row.state) for row in c.disk.finished_jobs(9)] == [("train", "failed")]


@in_scene()
async def test_a_toleration_for_a_while_permits_the_node(c: Scene) -> None:
    c.node("n1", taints=[{"key": "spot", "effect": "NoExecute"}])
    await until(c.ready)
    for_a_while = {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    c.pod("one", tolerations=[for_a_while])
    await until(lambda: c.where("one") == ["n1"] or c.says("one")[0] != "")
    assert c.where("one") == ["n1"]


@pytest.mark.parametrize("which", ["trainjobs", "jobsets"])
def test_a_train_job_that_is_deleted_while_it_waits_is_forgotten(which: str) -> None:

    async def work() -> None:
        async with scene("n1", kinds=(JOB_SETS, TRAIN_JOBS)) as c:
            c.theirs("theirs", gpus=4)
            await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
            owner = c.make(TRAIN_JOBS, "tune", {"suspend": True}, labels=QUEUE)
            job_set(c, "tune", labels={}, owner=owner)
            await c.explained("tune")
            kind = TRAIN_JOBS if which == "trainjobs" else JOB_SETS
            c.store.delete(kind, ("default", "tune"))
            async with asyncio.timeout(3):
                await until(lambda: c.states() == {})
            assert [row.state for row in c.disk.finished_jobs(9)] == ["cancelled"]

    run(work)


@in_scene("n1")
async def test_a_job_whose_pods_another_scheduler_places_is_not_counted_twice(c: Scene) -> None:
    c.job("train", 2, pods=template(1, schedulerName="default-scheduler"))
    c.pod("other", gpus=0)
    await until(lambda: c.states().get("other") == "running")
    for pod in c.pods_of("train"):
        c.binds(pod["metadata"]["name"], "n1")
    c.pod("half", gpus=2)
    async with asyncio.timeout(3):
        await placed(c, "half")
    assert "train" not in c.states()


@in_scene("n1")
async def test_a_job_whose_pods_have_succeeded_is_not_submitted_again(c: Scene) -> None:
    c.job("train", 2, gpus=2)
    await runs(c, "train", 2)
    c.job("next", 2, gpus=2)
    await c.explained("next")
    c.controllers.reconcile = lambda: None  # type: ignore[method-assign]
    for pod in c.pods_of("train"):
        c.ends(pod["metadata"]["name"])
    await until(lambda: [row.state for row in c.disk.finished_jobs(9)] == ["succeeded"])
    await asyncio.sleep(0.3)
    assert (list(c.states()), c.suspended("train")) == (["next"], False)


@pytest.mark.parametrize("number", range(2))
def test_a_job_that_was_made_unsuspended_runs_as_a_whole(number: int) -> None:
    """AI conformance, gang scheduling, positive case: its controller deletes its pods a moment later."""

    async def work() -> None:
        async with scene("n1", "n2") as c:
            c.job("train", 4, gpus=2, suspend=False)
            async with asyncio.timeout(3):
                assert sorted(await runs(c, "train", 4)) == ["n1", "n1", "n2", "n2"]

    run(work)


@in_scene("n1")
async def test_a_pod_that_is_bound_to_a_node_that_has_just_gone_does_not_keep_its_place(c: Scene) -> None:
    binder, begun, let_go = c.at_work.placing._binder, asyncio.Event(), asyncio.Event()
    bind = binder.bind

    async def late(*args: Any) -> str:
        binder.bind = bind  # type: ignore[method-assign] - the binding of the first pod alone is late
        begun.set()
        await let_go.wait()
        return await bind(*args)

    binder.bind = late  # type: ignore[method-assign]
    c.job("one", 1)
    await begun.wait()
    c.store.delete(c.kind("nodes"), ("", "n1"))
    await until(lambda: c.at_work.standing.at(NodeName("n1")).starting == {})
    let_go.set()
    await until(lambda: "n1" in c.nodes_of("one"))
    c.node("n2")
    await until(lambda: c.at_work.standing.at(NodeName("n2")).starting != {})
    c.all_end("one", code=1)  # as pods of nodes that are gone do
    async with asyncio.timeout(4):
        await until(lambda: c.nodes_of("one") == ["n2"] and c.states() == {"one": "running"})
    assert c.at_work.standing.at(NodeName("n2")).starting == {}


def test_a_job_that_waits_keeps_its_place_over_a_restart_that_lists_its_priority_last() -> None:
    """Its priority is that of a class which is listed after the Jobs: until then it seemed to be another job by now."""

    async def work() -> None:
        async with standing("n1") as c:
            c.priority()
            c.theirs("theirs", gpus=4)
            async with c.serving():
                c.job("train", 2, pods=template(priorityClassName=HIGH))
                await c.explained("train")
            c.api.faults.append(Fault("GET", "priorityclasses", 503, times=5))
            async with c.serving():
                c.pod("other", gpus=1)
                await c.waits("other")
                assert list(c.state.jobs) == [1, 2]
                assert c.state.jobs[1].spec.priority == c.store.all_of("priorityclasses")["", HIGH]["value"]
                c.delete("theirs")
                await runs(c, "train", 2)

    run(work)
