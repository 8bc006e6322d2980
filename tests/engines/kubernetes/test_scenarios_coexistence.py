"""Beside other schedulers, kubelets and people: what they do is load, and nothing of it leads to a double booking."""

import random
from typing import Any
from unittest import mock

import pytest

from penstock.sim.apiserver import requests
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.requests import Fault
from penstock.sim.world.disk import SimDisk
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, box, in_scene, scene, standing

NOMINATED = {"schedulerName": "default-scheduler", "containers": [box(2)]}


async def placed(c: Scene, *names: str) -> list[str]:
    await until(lambda: all(c.where(*names)))
    return c.where(*names)


FOREIGN: dict[str, dict[str, Any]] = {
    "of the default scheduler": {"schedulerName": "default-scheduler"},
    "of a DaemonSet": {"schedulerName": "default-scheduler", "tolerations": [{"operator": "Exists"}]},
    "of a third scheduler": {"schedulerName": "volcano"},
    "of ours that somebody bound at its creation": {"schedulerName": "penstock"},
}


@pytest.mark.parametrize("form", FOREIGN)
def test_a_pod_that_others_placed_is_load_until_it_ends(form: str) -> None:
    """YuniKorn e2e foreign_pod; every pod of every scheduler counts, also static ones and those of DaemonSets."""

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("theirs", gpus=2, nodeName="n1", **FOREIGN[form])
            await until(lambda: c.state.nodes["n1"].others.devices == (2, 3))
            c.pod("large", gpus=3)
            await c.waits("large")
            c.ends("theirs")
            assert await placed(c, "large") == ["n1"]
            assert list(c.states()) == ["large"]

    run(work)


@in_scene("n1")
async def test_a_pod_that_is_leaving_is_load_until_it_is_gone(c: Scene) -> None:
    """Its kubelet has not let go of its devices: volcano#2700."""
    c.slow = {"theirs"}
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.store.delete(c.kind("pods"), ("default", "theirs"), 30)
    c.pod("next", gpus=4)
    await c.waits("next")
    c.slow.clear()
    assert await placed(c, "next") == ["n1"]


@in_scene("n1")
async def test_room_that_another_scheduler_makes_for_its_pod_is_kept(c: Scene) -> None:
    """k8s nominatednodename tests: a pod with a nominated node is about to be bound there."""
    c.make("/pods", "theirs", NOMINATED)
    c.set("theirs", nominatedNodeName="n1")
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 2)
    c.pod("large", gpus=4)
    await c.waits("large")
    c.set("theirs", nominatedNodeName="")
    assert await placed(c, "large") == ["n1"]


@in_scene("n1", "n2")
async def test_a_nominated_pod_that_is_bound_elsewhere_counts_there(c: Scene) -> None:
    """YUNIKORN-3374: nothing stays behind where it was expected."""
    c.make("/pods", "theirs", NOMINATED)
    c.set("theirs", nominatedNodeName="n1")
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 2)
    c.binds("theirs", "n2")
    await until(lambda: len(c.state.nodes["n2"].others.devices) == 2)
    c.pod("large", gpus=4)
    assert await placed(c, "large") == ["n1"]


def test_a_pod_that_was_made_anew_under_its_name_is_not_bound_for_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """k8s#105261, k8s#102761: a binding without the uid hit the new pod."""
    seen: list[str] = []

    def anew(store: Any, pods: Any, namespace: str, binding: Any) -> None:
        name = binding["metadata"]["name"]
        seen.append(binding["metadata"]["uid"])
        if name == "one" and len(seen) == 1:
            old = store.get(pods, (namespace, name))
            store.delete(pods, (namespace, name), 0)
            body = {"metadata": {"name": name}, "spec": {**old["spec"], "containers": [box(3)]}}
            store.create(pods, namespace, body)
        bind(store, pods, namespace, binding)

    monkeypatch.setattr(requests, "bind", anew)

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("one", gpus=1)
            await until(lambda: c.where("one") == ["n1"])
            assert c.get("one")["metadata"]["annotations"]["penstock.dev/devices"].count(",") == 2, "three devices"
            assert seen[-1] == c.get("one")["metadata"]["uid"] != seen[0]

    run(work)


def test_a_pod_that_is_changed_just_before_its_binding_is_bound_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """k8s PR#105913: the binding names the version that was decided about; a mere label does not stop it for ever."""
    tries: list[str] = []

    def changed(store: Any, pods: Any, namespace: str, binding: Any) -> None:
        tries.append(binding["metadata"]["resourceVersion"])
        if len(tries) == 1:
            key = (namespace, binding["metadata"]["name"])
            store.update(pods, key, lambda one: {**one, "metadata": {**one["metadata"], "labels": {"seen": "yes"}}})
        bind(store, pods, namespace, binding)

    monkeypatch.setattr(requests, "bind", changed)

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("one")
            assert await placed(c, "one") == ["n1"]
            assert (len(tries), len(set(tries))) == (2, 2)
            assert c.get("one")["metadata"]["labels"] == {"seen": "yes"}

    run(work)


@in_scene("n1")
async def test_a_start_is_given_up_where_another_pod_came_first(c: Scene) -> None:
    """KAI#1454, volcano#2700: storms of OutOfcpu. What stands on the node by now is looked at before the binding."""
    held: list[Any] = []
    send = c.at_work.send
    with mock.patch.object(c.at_work, "send", held.extend):
        c.pod("ours", gpus=4)
        await until(lambda: held != [])
        c.theirs("theirs", gpus=1)
        await until(lambda: len(c.state.nodes["n1"].others.devices) == 1)
    send(held)
    c.pod("small", gpus=3)
    assert await placed(c, "small") == ["n1"]
    await until(lambda: c.says("ours")[0] != "")
    assert (c.where("ours"), c.requests("POST", "ours/binding")) == ([""], 0)


@in_scene("n1", "n2")
async def test_a_pod_that_its_kubelet_refused_is_tried_elsewhere_by_its_job(c: Scene) -> None:
    """volcano#2700 (OutOfcpu): the node is not to blame, and the Job's next pod starts."""
    c.job("train", 1, gpus=4)
    await until(lambda: c.states() == {"train": "running"})
    (pod,) = c.pods_of("train")
    c.set(pod["metadata"]["name"], phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu")
    await until(lambda: len(c.pods_of("train")) == 1 and all(c.nodes_of("train")))
    await until(lambda: c.states() == {"train": "running"})
    assert not any(node.strikes for node in c.state.nodes.values())


@in_scene("n1")
async def test_a_binding_that_is_refused_does_not_keep_others_waiting(c: Scene) -> None:
    """KAI#2075, KAI#2074: a rejected bind won every cycle; YUNIKORN-2884, -3316, -3355: its room was lost."""
    c.api.faults.append(Fault("POST", "bad/binding", 403, times=1000))
    c.pod("bad", gpus=4)
    await until(lambda: c.requests("POST", "bad/binding") == 1)
    c.pod("good", gpus=4)
    assert await placed(c, "good") == ["n1"]
    assert c.where("bad") == [""]


@in_scene("n1")
async def test_pods_that_came_while_the_api_server_refused_us_are_placed_later(c: Scene) -> None:
    """KAI#1817: its process ended at the first 401."""
    c.api.tokens = {"another"}
    c.api.cut_watches()
    await until(lambda: c.requests("GET", "/api/v1/pods") > 2)
    c.pod("one")
    c.api.tokens = set()
    assert await placed(c, "one") == ["n1"]


@in_scene("n1")
async def test_pods_that_ended_while_nobody_watched_leave_no_ghosts(c: Scene) -> None:
    """YUNIKORN-3374; a list that comes anew is compared with what was known: what is missing was deleted."""
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.api.faults.append(Fault("GET", "/api/v1/pods", 503, times=3))
    c.api.cut_watches()
    c.delete("theirs")
    c.store.compact()
    c.pod("next", gpus=4)
    assert await placed(c, "next") == ["n1"]


@in_scene("n1")
async def test_a_node_that_comes_back_under_its_name_is_empty(c: Scene) -> None:
    """YUNIKORN-3374: allocations of a node that flapped stayed for ever."""
    c.pod("ours", gpus=2)
    c.theirs("theirs", gpus=2)
    await until(lambda: c.states() == {"ours": "running"} and len(c.state.nodes["n1"].others.devices) == 2)
    c.store.delete(c.kind("nodes"), ("", "n1"))
    await until(lambda: c.state.nodes["n1"].state == "lost")
    c.delete("ours")
    c.delete("theirs")
    c.node("n1")
    c.gang("team", 2, gpus=2)
    assert await placed(c, "team-0", "team-1") == ["n1", "n1"]
    await until(lambda: c.states() == {"team": "running"})


@in_scene("n1")
async def test_a_node_that_grows_takes_more(c: Scene) -> None:
    """Device plugins come after the kubelet: what a node offers changes while pods wait."""
    c.pod("large", gpus=6)
    c.pod("small", gpus=4)
    assert await placed(c, "small") == ["n1"]
    more = {"allocatable": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "10", "pods": "110"}}
    c.change("/nodes", "n1", {"status": more}, part="status")
    assert await placed(c, "large") == ["n1"]
    devices = [c.get(name)["metadata"]["annotations"]["penstock.dev/devices"] for name in ("small", "large")]
    assert sorted(",".join(devices).split(",")) == [str(i) for i in range(10)]


def test_a_server_that_lost_its_log_leaves_what_runs_alone() -> None:
    """Claims of another log count for nothing: such pods are load, and none of them is bound or evicted again."""

    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                c.pod("old", gpus=2)
                await until(lambda: c.states() == {"old": "running"})
                before = c.state.identity.cluster
            c.disk, c.starts = SimDisk(random.Random(1)), 0
            async with c.serving():
                assert c.state.identity.cluster != before
                await until(lambda: len(c.state.nodes["n1"].others.devices) == 2)
                c.pod("large", gpus=3)
                await c.waits("large")
                c.change("/pods", "old", {"metadata": {"labels": {"seen": "yes"}}})
                c.theirs("theirs", gpus=0)
                await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == 2000)
                assert (c.states(), c.where("old")) == ({"large": "waiting"}, ["n1"])
                assert c.requests("POST", "eviction") == 0
                c.ends("old", 1)
                await until(lambda: c.states() == {"large": "running"})

    run(work)


def test_a_job_goes_on_over_a_restart_and_one_that_waits_starts_after_it() -> None:
    """YuniKorn e2e recovery_and_restart: nothing is started twice, nothing is forgotten."""

    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                c.job("first", 2, gpus=2)
                await until(lambda: c.states() == {"first": "running"})
                c.job("second", 2, gpus=2)
                await c.explained("second")
            names = [pod["metadata"]["name"] for pod in c.pods_of("first")]
            async with c.serving():
                assert c.states() == {"first": "running", "second": "waiting"}
                c.pod("single", gpus=0)
                await until(lambda: c.states().get("single") == "running")
                assert [pod["metadata"]["name"] for pod in c.pods_of("first")] == names
                c.ends("single")
                c.all_end("first")
                await until(lambda: c.states() == {"second": "running"})
                assert c.state.jobs[2].last_attempt == 1

    run(work)


def test_a_pod_that_was_bound_just_before_a_restart_is_known_by_what_stands_on_it() -> None:
    """YuniKorn assume_pod_fault_injection: the answer to the binding was lost with the server."""

    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                c.api.faults.append(Fault("POST", "one/binding", 504, times=50, carried_out=True))
                c.pod("one", gpus=4)
                await until(lambda: c.where("one") == ["n1"])
            c.api.faults.clear()
            bindings = c.requests("POST", "binding")
            async with c.serving():
                await until(lambda: c.states() == {"one": "running"})
                assert c.requests("POST", "binding") == bindings
                assert c.state.jobs[1].last_attempt == 1

    run(work)
