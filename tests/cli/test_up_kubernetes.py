"""`penstock up --engine kubernetes`: pods of a cluster, and the usual commands about them."""

import asyncio
import json
import threading

import pytest

from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster
from tests.server.harness import until

THEIRS = {"schedulerName": "default-scheduler"}


@pytest.fixture
def api():
    """A cluster of two nodes with kubelets, in a thread of its own."""
    loop, begun, found = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        async with ApiServer() as server:
            cluster = Cluster(server)
            cluster.node("n1")
            cluster.node("n2")
            kubelets = asyncio.create_task(cluster.kubelets())
            found.append(cluster)
            begun.set()
            await ended.wait()
            kubelets.cancel()

    ended = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    begun.wait(10)
    yield found[0], loop
    loop.call_soon_threadsafe(ended.set)
    thread.join(10)
    loop.close()


def kubeconfig(url):
    told = {
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab"}}],
        "clusters": [{"name": "lab", "cluster": {"server": url}}],
    }
    return json.dumps(told)


def test_pods_are_jobs_like_all_others(alone, api):
    cluster, loop = api
    up = alone("up", "--engine", "kubernetes", "--kubeconfig", alone.file(kubeconfig(cluster.api.url), "kubeconfig"))
    assert up.code == 0, up.err
    try:
        until(lambda: json.loads(alone("status", "--json").out)["cluster"]["nodes_ready"] == 2, 20)
        loop.call_soon_threadsafe(lambda: cluster.gang("team", 2, gpus=4))
        until(lambda: all(cluster.where("team-0", "team-1")), 20)
        loop.call_soon_threadsafe(lambda: cluster.pod("late", gpus=2))
        until(lambda: '"late"' in alone("ps", "--json").out, 20)
        said = alone("explain", "2").out
        assert "needs 1 x 2 devices; 0 free in all" in said
        assert "2 nodes have too few devices free" in said
        loop.call_soon_threadsafe(lambda: [cluster.ends(f"team-{i}") for i in (0, 1)])
        until(lambda: cluster.where("late") != [""], 20)
        shares = {"queues.yaml": "queues: [{name: research, maxCapacity: {nvidia.com/gpu: 2}}]"}
        loop.call_soon_threadsafe(lambda: cluster.config_map("penstock-queues", shares))
        until(lambda: '"research"' in alone("queue", "--json").out, 20)
        assert alone("audit").code == 0
    finally:
        assert alone("down").code == 0
    assert cluster.where("late") != [""], "what runs goes on without the server"


def test_a_shadow_shows_what_another_scheduler_does_and_writes_nothing(alone, api):
    cluster, loop = api
    config = alone.file(kubeconfig(cluster.api.url), "kubeconfig")
    up = alone("up", "--engine", "kubernetes", "--shadow", "--kubeconfig", config)
    assert up.code == 0, up.err
    do = loop.call_soon_threadsafe
    try:
        do(lambda: [cluster.pod(name, gpus, **THEIRS) for name, gpus in (("long", 3), ("short", 4), ("late", 2))])
        until(lambda: len(states(alone)) == 3, "jobs")
        do(lambda: [cluster.binds(*one) for one in (("long", "n1"), ("short", "n2"))])
        until(lambda: states(alone) == {"long": "running", "short": "running", "late": "waiting"}, "starts")
        said = alone("explain", "3").out
        assert "needs 1 x 2 devices; 1 free in all, at most 1 on one node: 2 nodes have too few devices free" in said
        text = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        do(lambda: cluster.set("late", conditions=[{"type": "PodScheduled", "status": "False", "message": text}]))
        until(lambda: f"default-scheduler: {text}" in alone("explain", "3").out, "its scheduler's words")
        do(lambda: cluster.ends("short"))
        until(lambda: "short" not in states(alone), "its end")
        assert "fits now on n2: Penstock would start it; another scheduler decides" in alone("explain", "3").out
        assert "fits: not placed yet" in alone("ps").out
        refused = alone("cancel", "3", "--yes")
        assert refused.code != 0
        assert "only watches" in refused.err
        told = alone("whatif", "--nodes", "+1", "--json")
        assert len(json.loads(told.out)["results"]) == 2, told.err
        assert alone("audit").code == 0
    finally:
        assert alone("down").code == 0
    assert {seen.method for seen in cluster.api.seen} == {"GET"}
    refused = alone("up", "--engine", "kubernetes", "--kubeconfig", config)
    assert refused.code != 0
    assert "the log is that of a shadow" in refused.err


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("queues: [{name: a}, {name: b}]", "queues: there is none for work that names no queue"),
        ("tenants: [{name: a}, {name: b}]", "tenants: there is none for namespaces that are no tenant"),
    ],
)
def test_a_shadow_needs_a_queue_and_a_tenant_for_all_other_work(alone, api, file, text):
    config = alone.file(kubeconfig(api[0].api.url), "kubeconfig")
    words = ("--engine", "kubernetes", "--shadow", "--kubeconfig", config)
    up = alone("up", *words, "--cluster", alone.file(file, "cluster.yaml"))
    assert up.code != 0
    assert text in up.err
    assert alone("up", *words).code == 0, "nothing is left of it"
    assert alone("down").code == 0


def states(alone):
    return {job["name"]: job["state"] for job in json.loads(alone("ps", "--json").out)["jobs"]}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--engine", "kubernets"), "did you mean 'kubernetes'?"),
        (("--shadow",), "--shadow needs --engine kubernetes"),
        (("--context", "lab"), "--context needs --engine kubernetes"),
        (("--engine", "kubernetes", "--queue-config", "a/b"), "--queue-config is 'a/b', expected the name of"),
        (("--engine", "kubernetes"), "there is no service account"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(alone, words, text):
    told = alone("up", *words)
    assert told.code != 0
    assert text in told.err
    assert alone("ps").code != 0


def test_a_kubeconfig_that_gives_no_access_is_named(alone):
    told = alone("up", "--engine", "kubernetes", "--kubeconfig", alone.file("{}", "kubeconfig"))
    assert told.code != 0
    assert "has no current-context" in told.err


def test_kubeconfig_names_several_files(alone, monkeypatch):
    first, second = (alone.file(text, name) for text, name in (("{}", "one"), (kubeconfig("lab"), "two")))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:absent")
    told = alone("up", "--engine", "kubernetes")
    assert told.code != 0
    assert f"/{second} has no server address: 'lab'" in told.err
    odd = alone.file(kubeconfig("odd"), "three:four")
    assert "has no server address: 'odd'" in alone("up", "--engine", "kubernetes", "--kubeconfig", odd).err
