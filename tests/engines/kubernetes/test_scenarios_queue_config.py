"""Scenarios of the ConfigMap with queues: it is read live, gives way to Queue objects, and says what became of it."""

import asyncio
from typing import Any

import pytest

from penstock.core.model import cluster as c
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.cluster import QUEUES as WHERE
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, in_scene, standing
from tests.engines.kubernetes.test_scenarios_declared import QUEUES, ready, refusing, soon

RESEARCH = "queues: [{name: research, weight: 2, maxCapacity: {nvidia.com/gpu: 2}}]"


def put(one: Scene, text: str, *, key: str = "queues.yaml", name: str = WHERE.name) -> None:
    one.config_map(name, {key: text}, WHERE.namespace)


def change(one: Scene, text: str) -> None:
    one.change("/configmaps", WHERE.name, {"data": {"queues.yaml": text}}, namespace=WHERE.namespace)


def said(one: Scene) -> tuple[str, str, str]:
    """Return type, reason and text of the last event about the ConfigMap."""
    last = next(iter(one.events(WHERE.name)[::-1]), {})
    return last.get("type", ""), last.get("reason", ""), last.get("note", "")


def queues(one: Scene) -> set[str]:
    return set(one.state.config.queue_by_name)


@in_scene("n1")
async def test_queues_of_a_config_map_hold_their_jobs_and_change_without_a_restart(s: Scene) -> None:
    put(s, RESEARCH)
    await soon(lambda: said(s) == ("Normal", "QueuesApplied", "in the configuration: research"))
    assert s.state.config.queue_by_name["research"] == c.Queue(
        name="research",  # type: ignore[arg-type]
        weight=2,
        max=(("devices", 2000),),
    )
    for name in ("a", "b", "c"):
        s.pod(name, labels={"penstock.dev/queue": "research"})
    await soon(lambda: sum(map(bool, s.where("a", "b", "c"))) == 2)
    change(s, f"{RESEARCH[:-4]} 3}}}}]\nfairShare: true")
    await soon(lambda: all(s.where("a", "b", "c")))
    assert s.state.config.root_policy == "fair_share"
    assert s.starts == 1


@in_scene("n1")
async def test_a_wrong_file_changes_nothing_and_says_why(s: Scene) -> None:
    put(s, RESEARCH)
    await soon(lambda: said(s)[1] == "QueuesApplied")
    before = s.state.config
    change(s, "queues: [{name: teaching}, {name: research, wieght: 3}]")
    await soon(lambda: said(s)[1] == "InvalidQueues")
    assert said(s)[0] == "Warning"
    assert said(s)[2] == "nothing was changed: queues[1].wieght is not a field (did you mean 'weight'?)"
    change(s, "queues: [{name: teaching, parent: resarch}, {name: research}]")
    await soon(lambda: "'resarch'" in said(s)[2])
    assert said(s)[2].endswith("has the unknown parent 'resarch' (did you mean 'research'?)")
    assert s.state.config == before
    change(s, "queues: [{name: teaching, parent: research}, {name: research}]")
    await soon(lambda: "teaching" in queues(s))
    await soon(lambda: said(s)[1] == "QueuesApplied")
    assert s.state.config.queue_by_name["research"].max == ()
    reasons = [one["reason"] for one in s.events(WHERE.name)]
    assert reasons == ["QueuesApplied", "InvalidQueues", "InvalidQueues", "QueuesApplied"], "each is said once"


@in_scene("n1")
async def test_a_file_that_the_server_refuses_is_sent_once_and_says_why(s: Scene) -> None:
    with refusing() as refused:
        put(s, RESEARCH)
        await soon(lambda: said(s)[:2] == ("Warning", "InvalidQueues"))
        assert "the price for devices has begun" in said(s)[2]
        await asyncio.sleep(0.3)
        assert refused.call_count == 1
    change(s, f"{RESEARCH} ")
    await soon(lambda: said(s)[1] == "QueuesApplied")
    assert "research" in queues(s)


@in_scene("n1")
async def test_a_config_map_without_the_key_says_what_it_has(s: Scene, caplog: pytest.LogCaptureFixture) -> None:
    put(s, RESEARCH, key="queue.yaml")
    await soon(lambda: said(s)[1] == "InvalidQueues")
    assert said(s)[2] == "nothing was changed: the key queues.yaml is missing; its keys: queue.yaml"
    logged = [vars(one)["problem"] for one in caplog.records if "config_map" in vars(one)]
    assert logged == [said(s)[2]]
    assert queues(s) == {"default"}


@in_scene("n1")
async def test_queue_objects_win_and_the_config_map_says_so(s: Scene) -> None:
    put(s, RESEARCH)
    await soon(lambda: queues(s) == {"default", "research"})
    s.make(QUEUES, "teaching", {})
    await soon(lambda: queues(s) == {"default", "teaching"})
    await soon(lambda: said(s)[:2] == ("Warning", "QueueObjectsCount"))
    change(s, "queues: [{name: other}]")
    await asyncio.sleep(0.3)
    assert queues(s) == {"default", "teaching"}
    s.store.delete(s.store.kind("penstock.dev", "queues"), ("", "teaching"))
    await soon(lambda: queues(s) == {"default", "other"})
    await soon(lambda: said(s)[1] == "QueuesApplied")


@in_scene("n1")
async def test_a_queue_that_leaves_the_file_stays_for_its_last_job(s: Scene) -> None:
    put(s, "queues: [{name: research}, {name: teaching}]")
    await soon(lambda: "research" in queues(s))
    s.pod("a", labels={"penstock.dev/queue": "research"})
    await soon(lambda: s.states().get("a") == "running")
    change(s, "queues: [{name: new}]")
    await soon(lambda: queues(s) == {"default", "research", "new"})
    s.ends("a")
    await soon(lambda: queues(s) == {"default", "new"})


@in_scene("n1")
async def test_without_the_config_map_queues_stay_as_they_were(s: Scene) -> None:
    put(s, RESEARCH)
    await soon(lambda: "research" in queues(s))
    s.store.delete(s.store.kind("", "configmaps"), WHERE)
    s.make("penstock.dev/computepools", "a100", {"poolType": "gpu"})
    await soon(lambda: "a100" in s.state.config.pool_by_name)
    assert queues(s) == {"default", "research"}


@in_scene("n1")
async def test_pools_as_objects_and_queues_of_a_file_go_together(s: Scene) -> None:
    s.make("penstock.dev/computepools", "a100", {"poolType": "gpu"})
    put(s, "queues: [{name: research, maxCapacity: {cpu: x}}]")
    await soon(lambda: ready(s, "computepools", "a100")[0] == "True")
    await soon(lambda: said(s)[1] == "InvalidQueues")
    change(s, RESEARCH)
    await soon(lambda: "research" in queues(s))
    assert "a100" in s.state.config.pool_by_name


@in_scene("n1")
async def test_an_event_that_was_refused_is_written_again(s: Scene) -> None:
    s.api.faults.append(Fault("POST", "events", 503))
    put(s, "queues: 3")
    await soon(lambda: said(s)[1] == "InvalidQueues")
    assert not s.api.faults


def test_who_may_not_read_queue_objects_has_those_of_the_file() -> None:
    async def work() -> None:
        async with standing("n1") as s:
            s.api.faults.append(Fault("GET", "/queues", 403, times=10_000))
            put(s, RESEARCH)
            async with s.serving():
                await until(lambda: "research" in queues(s))

    run(work)


@pytest.mark.parametrize("streams", [True, False])
def test_no_other_config_map_is_asked_for(streams: bool) -> None:
    async def work() -> None:
        async with standing("n1") as s:
            s.api.streams = streams
            put(s, RESEARCH)
            put(s, "queues: [{name: foreign}]", name="another")
            async with s.serving():
                await until(lambda: "research" in queues(s))
            asked = [one for one in s.api.seen if "configmaps" in one.path]
            assert {one.path for one in asked} == {f"/api/v1/namespaces/{WHERE.namespace}/configmaps"}
            assert {one.query.get("fieldSelector") for one in asked} == {f"metadata.name={WHERE.name}"}
            assert "foreign" not in queues(s)

    run(work)


def test_a_restart_finds_the_same_queues() -> None:
    async def work() -> None:
        async with standing("n1") as s:
            async with s.serving():
                put(s, RESEARCH)
                await until(lambda: said(s)[1] == "QueuesApplied")
                before: Any = s.state.config
            change(s, "queues: [{name: teaching}]")
            async with s.serving():
                assert s.state.config == before
                await until(lambda: queues(s) == {"default", "teaching"})

    run(work)
