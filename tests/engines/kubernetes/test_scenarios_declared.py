"""Scenarios of Queues and ComputePools: they become the configuration, and their statuses say what holds."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from penstock.core.lifecycle import requests
from penstock.core.model import cluster as c
from penstock.core.model.errors import Problem
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.penstock import (
    ComputePool,
    ComputePoolSpec,
    PoolCapacity,
    PoolQuota,
    PoolVirtualization,
    Queue,
    QueueSpec,
)
from penstock.engines.kubernetes.operator import applying
from penstock.engines.kubernetes.operator.declaring import declared
from tests.engines.kubernetes.helpers import until
from tests.engines.kubernetes.scenes import Scene, in_scene

QUEUES, POOLS = "penstock.dev/queues", "penstock.dev/computepools"


def status(one: Scene, plural: str, name: str) -> Any:
    return one.store.all_of(plural)["", name].get("status") or {}


def ready(one: Scene, plural: str, name: str) -> tuple[str, str, str]:
    found = next((x for x in status(one, plural, name).get("conditions", ())), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


async def soon(done: Any) -> None:
    async with asyncio.timeout(6):
        await until(done)


@in_scene("n1")
async def test_a_queue_holds_its_jobs_to_what_it_may_have(s: Scene) -> None:
    s.make(QUEUES, "research", {"weight": 2, "maxCapacity": {"nvidia.com/gpu": "2", "cpu": "6500m"}})
    await soon(lambda: ready(s, "queues", "research")[0] == "True")
    queue = s.state.config.queue_by_name["research"]
    assert (queue.weight, queue.max) == (2, (("cpus", 6500), ("devices", 2000)))
    for name in ("a", "b", "c"):
        s.pod(name, labels={"penstock.dev/queue": "research"})
    await soon(lambda: sum(map(bool, s.where("a", "b", "c"))) == 2)
    await soon(lambda: status(s, "queues", "research").get("running") == 2)
    assert status(s, "queues", "research")["waiting"] == 1
    assert status(s, "queues", "research")["used"]["devices"] == "2"
    s.change(QUEUES, "research", {"spec": {"maxCapacity": {"nvidia.com/gpu": "3"}}})
    await soon(lambda: all(s.where("a", "b", "c")))


@in_scene("n1")
async def test_a_queue_whose_object_is_gone_leaves_with_its_last_job(s: Scene) -> None:
    for name in ("research", "teaching"):
        s.make(QUEUES, name, {})
    await soon(lambda: "research" in s.state.config.queue_by_name)
    s.pod("a", labels={"penstock.dev/queue": "research"})
    await soon(lambda: s.states().get("a") == "running")
    s.store.delete(s.store.kind("penstock.dev", "queues"), ("", "research"))
    await asyncio.sleep(0.5)
    assert "research" in s.state.config.queue_by_name
    s.ends("a")
    await soon(lambda: set(s.state.config.queue_by_name) == {"default", "teaching"})
    assert s.states() == {}


@in_scene("n1")
async def test_what_is_wrong_is_said_on_the_object_and_nothing_is_applied(s: Scene) -> None:
    s.make(QUEUES, "research", {"parent": "nobody"})
    s.make(QUEUES, "teaching", {})
    await soon(lambda: ready(s, "queues", "research")[1] == "Invalid")
    assert "unknown parent 'nobody'" in ready(s, "queues", "research")[2]
    await soon(lambda: ready(s, "queues", "teaching")[1] == "OthersInvalid")
    assert set(s.state.config.queue_by_name) == {"default"}
    s.change(QUEUES, "research", {"spec": {"parent": "teaching"}})
    await soon(lambda: ready(s, "queues", "research")[0] == "True")
    assert s.state.config.queue_by_name["research"].parent == "teaching"


@contextlib.contextmanager
def refusing() -> Iterator[mock.Mock]:
    """Let the server refuse every configuration, as it does when prices of the past are changed."""
    problem = Problem("past_price", "billing.prices", "the price for devices has begun", hint="declare a later one")
    with mock.patch.object(requests, "config_problems", return_value=[problem]) as refused:
        yield refused


@in_scene("n1")
async def test_what_the_server_refused_is_sent_again_once_something_changes(s: Scene) -> None:
    with refusing() as refused:
        s.make(QUEUES, "research", {})
        await soon(lambda: ready(s, "queues", "research")[0] == "False")
        text = "nothing is applied as long as this is so: configuration: the price for devices has begun"
        assert ready(s, "queues", "research")[2] == f"{text} (declare a later one)"
        await asyncio.sleep(0.5)
        assert refused.call_count == 1
        s.make(QUEUES, "teaching", {})
        await soon(lambda: ready(s, "queues", "teaching")[0] == "False")
        assert refused.call_count == 2
    s.change(QUEUES, "research", {"spec": {"weight": 3}})
    await soon(lambda: ready(s, "queues", "research")[0] == ready(s, "queues", "teaching")[0] == "True")
    assert s.state.config.queue_by_name["research"].weight == 3


@in_scene("n1")
async def test_what_the_server_refused_is_sent_again_after_a_while(s: Scene) -> None:
    with mock.patch.object(applying, "REFUSED_S", 0.3):
        with refusing():
            s.make(QUEUES, "research", {})
            await soon(lambda: ready(s, "queues", "research")[0] == "False")
        await soon(lambda: ready(s, "queues", "research")[0] == "True")
    assert "research" in s.state.config.queue_by_name


@in_scene("n1")
async def test_a_pool_has_the_nodes_that_name_it_and_jobs_choose_it(s: Scene) -> None:
    s.node("n2", **{"penstock.dev/pool": "a100"})
    s.make(POOLS, "a100", {"poolType": "gpu", "capacity": {"total": 8, "reserved": 2}})
    await soon(lambda: "n2" in s.state.nodes and s.state.nodes["n2"].spec.pool == "a100")
    s.pod("there", labels={"penstock.dev/pool": "a100"})
    s.pod("here")
    await soon(lambda: s.where("there", "here") == ["n2", "n1"])
    await soon(lambda: status(s, "computepools", "a100").get("allocatedCapacity") == 1)
    now = status(s, "computepools", "a100")
    assert (now["phase"], now["totalCapacity"], now["availableCapacity"]) == ("Degraded", 4, 3)
    assert "4 devices, 4 fewer" in ready(s, "computepools", "a100")[2]
    assert s.state.config.pool_by_name["a100"].reserve_milli == 250


@in_scene("n1")
async def test_a_pool_limits_a_tenant(s: Scene) -> None:
    s.node("n2", **{"penstock.dev/pool": "a100"})
    s.make(POOLS, "a100", {"quotas": [{"tenant": "default", "limit": 1}]})
    await soon(lambda: dict(s.state.config.tenant_by_name["default"].max) == {"a100/devices": 1000})
    for name in ("a", "b"):
        s.pod(name, labels={"penstock.dev/pool": "a100"})
    await soon(lambda: any(s.where("a", "b")))
    await asyncio.sleep(0.3)
    assert sorted(s.where("a", "b")) == ["", "n2"]


def pool(name: str = "a100", **spec: Any) -> ComputePool:
    return ComputePool(Metadata(name), ComputePoolSpec(**spec))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"virtualization": PoolVirtualization(enabled=True, strategy="vgpu")}, "expected mig or time-slicing"),
        ({"capacity": PoolCapacity(4, 5)}, "spec.capacity.reserved is 5, expected 4"),
        ({"capacity": PoolCapacity(0, 5)}, "spec.capacity.total is 0"),
        ({"quotas": (PoolQuota("a", 4, 2),)}, "guaranteed to a, expected 0"),
    ],
)
def test_a_pool_that_cannot_be_is_named(spec: Any, text: str) -> None:
    found = declared(c.ClusterConfig(), [], [pool(**spec)])
    assert text in found.problems["pool a100"]


@pytest.mark.parametrize(
    ("share", "text"),
    [({"gpus": 4}, "spec.maxCapacity.gpus: expected one of"), ({"cpu": "many"}, "expected a quantity")],
)
def test_an_amount_that_cannot_be_is_named(share: Any, text: str) -> None:
    found = declared(c.ClusterConfig(), [Queue(Metadata("q"), QueueSpec(max_capacity=share))], [])
    assert text in found.problems["queue q"]


def test_without_objects_the_configuration_is_as_it_was() -> None:
    config = c.ClusterConfig(queues=(c.Queue("default"), c.Queue("mine", policy="fifo")))  # type: ignore[arg-type]
    assert declared(config, [], []).config == config


def test_what_only_penstock_knows_of_a_queue_is_kept() -> None:
    config = c.ClusterConfig(queues=(c.Queue("default"), c.Queue("mine", policy="fifo")))  # type: ignore[arg-type]
    found = declared(config, [Queue(Metadata("mine"), QueueSpec(weight=3))], [])
    queue = found.config.queue_by_name["mine"]  # type: ignore[index]
    assert (queue.weight, queue.policy) == (3, "fifo")
