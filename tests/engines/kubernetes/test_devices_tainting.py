"""Devices of nodes that were closed for their failures are tainted for everybody, and no longer once they are open."""

import asyncio
import contextlib
from types import SimpleNamespace

from penstock.control.pods import PodJobs
from penstock.engines.kubernetes.devices import tainting
from penstock.engines.kubernetes.devices.pools import Inventory
from penstock.engines.kubernetes.devices.tainting import Tainting
from penstock.engines.kubernetes.devices.view import DeviceView, Heard
from penstock.sim.apiserver.requests import Fault
from penstock.testing.harness import cluster
from tests.core.lifecycle.test_health import fails
from tests.engines.kubernetes.devices_made import dev, slice_of
from tests.engines.kubernetes.helpers import run, served, until


def rules(server):
    return [one["spec"] for one in server.store.all_of("devicetaintrules").values()]


@contextlib.asynccontextmanager
async def keeping(closed):
    """A server with two nodes with devices, and the rules for those that are closed."""
    async with served() as (server, client):
        inventory = Inventory()
        heard = Heard(*[lambda *_: None] * 2, lambda _, new: new and inventory.put(new), *[lambda *_: None] * 3)
        view = DeviceView(client, heard)
        kind = server.store.kind("resource.k8s.io", "resourceslices")
        for node in ("n1", "n2"):
            server.store.create(kind, "", slice_of(dev("gpu0"), on=node, pool=node))
        work = Tainting(client, view, inventory, lambda: closed, lambda: "log")
        tasks = [asyncio.create_task(view.run()), asyncio.create_task(work.run())]
        try:
            yield server
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()


def test_devices_of_a_closed_node_are_tainted_until_it_is_opened(monkeypatch):
    monkeypatch.setattr(tainting, "LOOK_S", 0.02)

    async def work():
        closed = {"n1": "it failed"}
        async with keeping(closed) as server:
            foreign = {"metadata": {"name": "theirs"}, "spec": {"taint": {"key": "x", "effect": "None"}}}
            server.store.create(server.store.kind("resource.k8s.io", "devicetaintrules"), "", foreign)
            await until(lambda: len(rules(server)) == 2)
            assert rules(server)[1] == {
                "deviceSelector": {"driver": "gpu.example.com", "pool": "n1", "device": "gpu0"},
                "taint": {"key": "penstock.dev/failing", "value": "n1", "effect": "NoSchedule"},
            }
            closed.clear()
            await until(lambda: len(rules(server)) == 1)
            assert rules(server) == [foreign["spec"]]

    run(work)


def test_a_rule_whose_write_fails_is_written_later(monkeypatch):
    monkeypatch.setattr(tainting, "LOOK_S", 0.02)

    async def work():
        async with keeping({"n2": "it failed"}) as server:
            server.faults.append(Fault("POST", "devicetaintrules", 500, times=3))
            await until(lambda: len(rules(server)) == 1)
            assert rules(server)[0]["deviceSelector"]["pool"] == "n2"

    run(work)


def test_nodes_count_as_closed_that_failed_and_no_others():
    w = cluster(2, 1)
    fails(w, 3)
    jobs = PodJobs.__new__(PodJobs)
    jobs._service = SimpleNamespace(controller=SimpleNamespace(state=w.state))
    assert list(jobs.closed_nodes()) == ["n0"]
    assert "disk" in jobs.closed_nodes()["n0"]
