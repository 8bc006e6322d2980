"""Beside another scheduler, read-only: what it makes wait is explained, what it decides is in the log."""

import asyncio
from typing import Any
from unittest import mock

import pytest

from penstock.core.explain import Explainer, question_of
from penstock.core.model import events as ev
from penstock.core.model.cluster import Queue
from penstock.core.model.errors import InvalidInput
from penstock.engines.kubernetes.shadow import asked
from penstock.server.views.jobs import waiting_reason
from penstock.sim.apiserver.store import Kind
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import PLAIN, VOLCANO, Scene, box, in_scene, standing, template

THEIRS = {"schedulerName": "default-scheduler"}
KUEUE = {"kueue.x-k8s.io/queue-name": "team"}
LOCAL_QUEUES = Kind("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue", True, PLAIN)
WORKLOADS = Kind("kueue.x-k8s.io", "v1beta1", "workloads", "Workload", True, PLAIN)
TEAM = Queue("team-a", max=(("devices", 3000),))
VOLCANO_QUEUE = Queue("research")


def why(c: Scene, name: str) -> str:
    """Return why a job waits, as `penstock explain` says it."""
    job = next(job for job in c.state.jobs.values() if job.spec.name == name)
    now_ms = job.submitted_ms
    found = Explainer().explain(question_of(c.state, job, now_ms))
    return f"{found.code}: {found.text}"


def short(c: Scene, name: str) -> str:
    """Return why a job waits, as `penstock ps` says it."""
    job = next(job for job in c.state.jobs.values() if job.spec.name == name)
    return waiting_reason(job, c.controller.last_plan, job.submitted_ms, shadow=True)


def log_of(c: Scene, kind: Any) -> list[Any]:
    return [record.event for record in c.disk.tail(0) if isinstance(record.event, kind)]


def groups_of(job: Any) -> list[Any]:
    """Return the groups of replicas that a job asks for."""
    return [job.spec.ask.each, *job.spec.ask.others]


def writes(c: Scene) -> list[Any]:
    """Return what was asked of the API server that is no read."""
    return [seen for seen in c.api.seen if seen.method != "GET"]


@in_scene("n1", "n2", shadow=True)
async def test_a_pod_of_another_scheduler_is_seen_from_its_wait_to_its_end(c: Scene) -> None:
    c.pod("train", 4, **THEIRS)
    await until(lambda: c.states() == {"train": "waiting"})
    c.binds("train", "n2")
    await until(lambda: c.states() == {"train": "running"})
    (attempt,) = log_of(c, ev.AttemptAllocated)
    assert (attempt.scheduler, [p.node for p in attempt.places]) == ("default-scheduler", ["n2"])
    assert attempt.places[0].devices == (0, 1, 2, 3)
    c.ends("train")
    await until(lambda: c.states() == {})
    (end,) = log_of(c, ev.JobFinished)
    assert end.state == "succeeded"
    assert writes(c) == []


@in_scene("n1", shadow=True)
async def test_a_pod_that_waits_is_explained_with_numbers(c: Scene) -> None:
    c.pod("first", 3, **THEIRS)
    c.binds("first", "n1")
    c.pod("second", 2, **THEIRS)
    await until(lambda: c.states() == {"first": "running", "second": "waiting"})
    text = "needs 1 x 2 devices; 1 free in all, at most 1 on one node: 1 node has too few devices free"
    assert why(c, "second") == f"no_fit: {text}"
    c.pod("third", 9, **THEIRS)
    await until(lambda: "third" in c.states())
    assert why(c, "third").startswith("never: can never start as things are")
    c.ends("first")
    await until(lambda: "first" not in c.states())
    text = "fits now on n1: Penstock would start it; another scheduler decides"
    assert why(c, "second") == f"decided_elsewhere: {text}"
    await until(lambda: short(c, "second") == "decided_elsewhere")
    assert [start.job_id for start in log_of(c, ev.AttemptAllocated)] == [1], "what would start is not started"
    c.pod("fourth", 3, **THEIRS)
    c.binds("fourth", "n1")
    await until(lambda: short(c, "second") == "no_fit")
    assert writes(c) == []


@in_scene("n1", "n2", shadow=True, kinds=(LOCAL_QUEUES,), queues=(Queue("default"), TEAM))
async def test_a_job_that_kueue_suspends_is_explained_and_seen_to_start(c: Scene) -> None:
    c.make(LOCAL_QUEUES, "team", {"clusterQueue": "team-a"})
    for name in ("first", "second"):
        c.job(name, 2, 1, pods=template(1, **THEIRS), labels=KUEUE)
    await until(lambda: c.states() == {"first": "waiting", "second": "waiting"})
    assert {job.spec.queue for job in c.state.jobs.values()} == {"team-a"}
    await kueue_admits(c, "first", "n1")
    await until(lambda: c.states() == {"first": "running", "second": "waiting"})
    assert why(c, "second") == "quota: queue team-a: devices 2 of 3 used, short by 1; in use by job 1"
    c.all_end("first")
    await until(lambda: c.states() == {"second": "waiting"})
    assert [end.state for end in log_of(c, ev.JobFinished)] == ["succeeded"]
    assert len(log_of(c, ev.JobSubmitted)) == 2, "what is over waits no more"
    assert writes(c) == []


async def kueue_admits(c: Scene, name: str, node: str) -> None:
    """Let a Job be started as Kueue does it, and its pods bound as kube-scheduler does it."""
    c.change("batch/jobs", name, {"spec": {"suspend": False}})
    await until(lambda: len(c.pods_of(name)) == 2)
    for pod in c.pods_of(name):
        c.binds(pod["metadata"]["name"], node)


@in_scene("n1", shadow=True, kinds=(WORKLOADS,))
async def test_the_words_of_the_scheduler_stand_beside_the_explanation(c: Scene) -> None:
    c.pod("train", 8, **THEIRS)
    await until(lambda: c.states() == {"train": "waiting"})
    assert c.engine.said_of(1) == ""
    text = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    c.set("train", conditions=[{"type": "PodScheduled", "status": "False", "message": text}])
    await until(lambda: c.engine.said_of(1) == f"default-scheduler: {text}")
    c.job("queued", 2, 1, pods=template(1, **THEIRS), labels=KUEUE)
    await until(lambda: c.states().get("queued") == "waiting")
    owner = c.store.all_of("jobs")["default", "queued"]
    text = "couldn't assign flavors to pod set main: insufficient quota"
    said = [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": text}]
    c.make(WORKLOADS, "job-queued", owner=owner)
    c.change(WORKLOADS, "job-queued", {"status": {"conditions": said}}, part="status")
    await until(lambda: c.engine.said_of(2) == f"Kueue: {text}")
    c.store.delete(WORKLOADS, ("default", "job-queued"), 0)
    await until(lambda: c.engine.said_of(2) == "")


@in_scene("n1", "n2", shadow=True)
async def test_a_job_that_kueue_evicts_waits_again_as_the_same_job(c: Scene) -> None:
    c.job("train", 2, 1, pods=template(1, **THEIRS), labels=KUEUE)
    await until(lambda: c.states() == {"train": "waiting"})
    for node in ("n1", "n2"):
        await kueue_admits(c, "train", node)
        await until(lambda: c.states() == {"train": "running"})
        c.change("batch/jobs", "train", {"spec": {"suspend": True}})
        await until(lambda: c.states() == {"train": "waiting"})
    ended = log_of(c, ev.AttemptEnded)
    assert [(end.job_id, end.attempt, end.outcome) for end in ended] == [(1, 1, "requeued"), (1, 2, "requeued")]
    assert [start.places[0].node for start in log_of(c, ev.AttemptAllocated)] == ["n1", "n2"]


@in_scene("n1", "n2", shadow=True, kinds=(VOLCANO,), queues=(Queue("default"), VOLCANO_QUEUE))
async def test_a_gang_of_volcano_is_one_job_that_starts_once_all_its_pods_are_bound(c: Scene) -> None:
    c.make(VOLCANO, "team", {"minMember": 2, "queue": "research"})
    body = {"schedulerName": "volcano", "containers": [box(2)]}
    for name in ("team-0", "team-1"):
        c.make("/pods", name, body, annotations={"scheduling.k8s.io/group-name": "team"})
    await until(lambda: c.states() == {"team": "waiting"})
    c.binds("team-1", "n2")
    await until(lambda: c.state.nodes["n2"].others.devices == (2, 3))
    assert c.states() == {"team": "waiting"}, "a gang that is bound in part waits, and its pods are load"
    c.binds("team-0", "n1")
    await until(lambda: c.states() == {"team": "running"})
    (job,) = c.state.jobs.values()
    assert job.spec.queue == "research"
    assert [replica.place.node for replica in job.attempt.replicas] == ["n1", "n2"]
    assert c.state.nodes["n2"].others.devices == ()


@in_scene("n1", shadow=True, kinds=(VOLCANO,))
async def test_what_a_scheduler_says_of_a_pod_is_no_reason_to_compare_its_whole_gang_with_its_job(c: Scene) -> None:
    c.make(VOLCANO, "team", {"minMember": 3})
    body = {"schedulerName": "volcano", "containers": [box(8)]}
    for name in ("team-0", "team-1", "team-2"):
        c.make("/pods", name, body, annotations={"scheduling.k8s.io/group-name": "team"})
    await until(lambda: c.states() == {"team": "waiting"})
    with mock.patch.object(asked, "in_slots", wraps=asked.in_slots) as compared:
        for i in range(10):
            for name in ("team-0", "team-1", "team-2"):
                said = {"type": "PodScheduled", "status": "False", "message": f"{name} has waited for {i} cycles"}
                c.set(name, conditions=[said])
            await until(lambda i=i: c.engine.said_of(1) == f"volcano: team-0 has waited for {i} cycles")
            await asyncio.sleep(0.05)  # a turn of the engine
        assert compared.call_count <= 1
        c.delete("team-2")
        c.make(
            "/pods", "team-2", {**body, "containers": [box(7)]}, annotations={"scheduling.k8s.io/group-name": "team"}
        )
        await until(lambda: [len(groups_of(job)) for job in c.state.jobs.values()] == [2])


@in_scene("n1", shadow=True)
async def test_pods_of_nodes_are_load_and_no_jobs(c: Scene) -> None:
    meta = {"name": "proxy-n1", "annotations": {"kubernetes.io/config.mirror": "1"}}
    body = {"metadata": meta, "spec": {"schedulerName": "default-scheduler", "nodeName": "n1", "containers": [box(1)]}}
    c.store.create(c.kind("pods"), "default", body)
    await until(lambda: c.state.nodes["n1"].others.devices == (3,))
    assert c.states() == {}


@in_scene("n1", shadow=True)
async def test_a_pod_that_is_deleted_while_it_runs_ends_its_job(c: Scene) -> None:
    c.pod("train", 1, **THEIRS)
    c.binds("train", "n1")
    await until(lambda: c.states() == {"train": "running"})
    c.delete("train")
    await until(lambda: c.states() == {})
    (end,) = log_of(c, ev.JobFinished)
    assert (end.state, end.reason) == ("cancelled", "its pods were deleted")


@in_scene("n1", shadow=True)
async def test_what_does_not_fit_what_is_known_of_a_node_counts_as_load(c: Scene) -> None:
    c.pod("one", 3, **THEIRS)
    c.binds("one", "n1")
    await until(lambda: c.states() == {"one": "running"})
    c.pod("two", 3, **THEIRS)
    c.binds("two", "n1")
    await until(lambda: [end.reason for end in log_of(c, ev.JobFinished)] != [])
    assert c.states() == {"one": "running"}
    (end,) = log_of(c, ev.JobFinished)
    assert end.reason == "it runs, but n1 has too few devices left, as far as is known"
    await until(lambda: c.state.nodes["n1"].others.devices != ())
    c.engine.gangs.reconsider()
    c.pod("next", 8, **THEIRS)
    await until(lambda: "next" in c.states())
    assert [job.spec.name for job in log_of(c, ev.JobSubmitted)] == ["one", "two", "next"], "it is tried once"


def test_a_restart_loses_nothing_and_finds_what_runs() -> None:
    async def work() -> None:
        async with standing("n1", "n2") as c:
            async with c.serving(shadow=True):
                for name in ("stays", "ends", "leaves"):
                    c.pod(name, 1, **THEIRS)
                    c.binds(name, "n1")
                c.pod("waits", 8, **THEIRS)
                every = {"stays": "running", "ends": "running", "leaves": "running", "waits": "waiting"}
                await until(lambda: c.states() == every)
                known = c.controller.state.seq
            c.ends("ends")
            c.delete("leaves")
            async with c.serving(shadow=True):
                await until(lambda: c.states() == {"stays": "running", "waits": "waiting"})
                ends = {end.job_id: (end.state, end.reason) for end in log_of(c, ev.JobFinished)}
                assert sorted(ends.values()) == [("cancelled", "its pods were deleted"), ("succeeded", "")]
                assert len(log_of(c, ev.JobSubmitted)) == 4
                assert len(log_of(c, ev.AttemptAllocated)) == 3
                assert known < c.controller.state.seq
                c.ends("stays")
                await until(lambda: c.states() == {"waits": "waiting"})
            assert writes(c) == []

    run(work)


def test_a_log_of_decisions_is_no_shadow_and_a_shadow_decides_nothing_later() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving(shadow=True):
                pass
            with pytest.raises(InvalidInput, match="the log is that of a shadow"):
                async with c.serving():
                    pass

    run(work)
