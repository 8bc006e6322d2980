"""`penstock up --engine kubernetes`: pods of a cluster, and the usual commands about them."""

import asyncio
import json
import threading

import pytest

from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster
from tests.server.harness import until


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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--engine", "kubernets"), "did you mean 'kubernetes'?"),
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
