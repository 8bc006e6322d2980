"""What pods take: of whatever form, ours and those of others, to the last thousandth of a core."""

from functools import partial
from typing import Any

import pytest

from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, box, in_scene, scene, template

NODE_CPUS = 8000


def cpus(amount: str, **fields: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": amount}}
    return {"name": fields.pop("name", "main"), "image": "none", "resources": resources, **fields}


SIDECAR = {"restartPolicy": "Always"}
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "two containers": (2500, {"containers": [cpus("2"), cpus("500m", name="b")]}),
    "a limit alone": (3000, {"containers": [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "3"}}}]}),
    "a thirsty init container": (5000, {"containers": [cpus("1")], "initContainers": [cpus("5", name="i")]}),
    "a modest init container": (4000, {"containers": [cpus("4")], "initContainers": [cpus("3", name="i")]}),
    "a sidecar": (3000, {"containers": [cpus("1")], "initContainers": [cpus("2", name="i", **SIDECAR)]}),
    "an init container after a sidecar": (
        6000,
        {"containers": [cpus("1")], "initContainers": [cpus("2", name="s", **SIDECAR), cpus("4", name="i")]},
    ),
    "an init container before a sidecar": (
        4000,
        {"containers": [cpus("1")], "initContainers": [cpus("4", name="i"), cpus("2", name="s", **SIDECAR)]},
    ),
    "overhead": (2250, {"containers": [cpus("2")], "overhead": {"cpu": "250m"}}),
    "resources of the whole pod": (
        3000,
        {"containers": [cpus("1"), cpus("1", name="b")], "resources": {"requests": {"cpu": "3"}}},
    ),
}
"""Thousandths of a core, and the spec. KAI#1556 (sidecars), KEP-753, KEP-688 (overhead), KEP-2837 (whole pods)."""


@pytest.mark.parametrize("form", FORMS)
def test_a_pod_of_another_scheduler_takes_all_that_its_kubelet_counts(form: str) -> None:
    """KAI#1454, volcano#2700: what is not counted ends as OutOfcpu on the node."""
    taken, spec = FORMS[form]

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("theirs", **{"schedulerName": "default-scheduler", "nodeName": "n1", **spec})
            await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == taken)
            c.pod("large", containers=[cpus(f"{NODE_CPUS - taken + 1}m")])
            await c.waits("large")
            c.pod("exact", containers=[cpus(f"{NODE_CPUS - taken}m")])
            await until(lambda: c.where("exact") == ["n1"])

    run(work)


@pytest.mark.parametrize("form", FORMS)
def test_a_pod_starts_where_there_is_exactly_as_much_as_it_takes(form: str) -> None:
    """k8s e2e predicates: one thousandth less is too little."""
    taken, spec = FORMS[form]

    async def work() -> None:
        async with scene("n1") as c:
            c.theirs("filler", containers=[cpus(f"{NODE_CPUS - taken + 1}m")])
            c.pod("ours", **spec)
            await c.waits("ours")
            c.delete("filler")
            await until(lambda: c.where("ours") == ["n1"])
            c.theirs("filler", containers=[cpus(f"{NODE_CPUS - taken}m")])
            await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == NODE_CPUS - taken)
            assert c.state.jobs[1].placed.each_of(0).host.cpu_milli == taken

    run(work)


@pytest.mark.parametrize(
    ("asked", "allocated", "taken"),
    [("6", "2", 6000), ("2", "6", 6000)],
    ids=["grows", "shrinks"],
)
def test_a_pod_that_is_resized_takes_the_larger_of_both_sizes(asked: str, allocated: str, taken: int) -> None:
    """kueue#13822 (resizes were missed); KEP-1287: until the kubelet has finished, both may be in force."""

    async def work() -> None:
        async with scene("n1") as c:
            c.theirs("theirs", containers=[cpus(asked)])
            now = {"name": "main", "allocatedResources": {"cpu": allocated}}
            c.set("theirs", containerStatuses=[{**now, "resources": {"requests": {"cpu": allocated}}}])
            await until(lambda: c.state.nodes["n1"].others.host.cpu_milli == taken)
            c.pod("large", gpus=0, cpus="3")
            await c.waits("large")
            c.set("theirs", containerStatuses=[{"name": "main", "allocatedResources": {"cpu": asked}}])
            if asked == "2":
                await until(lambda: c.where("large") == ["n1"])

    run(work)


@in_scene("n1")
async def test_a_pod_of_ours_that_grows_in_place_keeps_others_off(c: Scene) -> None:
    """k8s e2e in_place_resize: a running pod may grow; what it was planned with counts no more."""
    c.pod("ours", gpus=0, cpus="2")
    await until(lambda: c.where("ours") == ["n1"])
    grown = {"spec": {"containers": [cpus("6")]}}
    c.change("/pods", "ours", grown, part="resize")
    c.set("ours", containerStatuses=[{"name": "main", "allocatedResources": {"cpu": "6"}}])
    await until(lambda: c.at_work.pods.objects["default", "ours"].status.container_statuses != ())
    c.pod("next", gpus=0, cpus="4")
    await until(lambda: decided(c, "next"))
    assert c.where("next") == [""]


def _node(c: Scene, name: str, **allocatable: str) -> None:
    c.node(name)
    body = {"status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", **allocatable}}}
    c.change("/nodes", name, body, part="status")


def decided(c: Scene, name: str) -> bool:
    return c.where(name) != [""] or c.says(name)[0] != ""


@pytest.mark.parametrize(
    ("resource", "has", "each"),
    [
        ("memory", "4Gi", "3Gi"),
        ("ephemeral-storage", "10Gi", "6Gi"),
        ("hugepages-2Mi", "8Mi", "6Mi"),
        ("example.com/fpga", "3", "2"),
        ("rdma/hca", "1", "1"),
    ],
)
def test_resources_of_any_name_are_counted(resource: str, has: str, each: str) -> None:
    """k8s filters_test (extended resources); YuniKorn e2e: a pod waits for what another one has."""

    async def work() -> None:
        async with scene() as c:
            _node(c, "n1", **{resource: has})
            await until(c.ready)
            for name in ("first", "second"):
                c.pod(name, containers=[box(0, **{resource: each})])
                await until(partial(decided, c, name))
            assert c.where("first", "second") == ["n1", ""]
            c.ends("first")
            await until(lambda: c.where("second") == ["n1"])

    run(work)


@in_scene()
async def test_a_node_takes_no_more_pods_than_it_says(c: Scene) -> None:
    """k8s e2e predicates (pod limit); every pod counts, of whatever scheduler, whatever it asks for."""
    _node(c, "n1", pods="2")
    await until(c.ready)
    c.theirs("theirs", containers=[{"name": "main", "image": "none"}])
    await until(lambda: c.state.nodes["n1"].others.host.extended == (("pods", 1),))
    c.pod("first", gpus=0)
    await until(lambda: c.where("first") == ["n1"])
    c.pod("second", gpus=0)
    await c.waits("second")
    c.ends("theirs")
    await until(lambda: c.where("second") == ["n1"])


@in_scene("n1")
async def test_pods_that_ask_for_nothing_start(c: Scene) -> None:
    """A pod without requests is legal, and takes its place among the pods of the node."""
    c.pod("bare", containers=[{"name": "main", "image": "none"}])
    await until(lambda: c.where("bare") == ["n1"])
    assert c.state.jobs[1].placed.each_of(0).host.extended == (("pods", 1),)


@pytest.mark.parametrize("amount", ["-1", "one", "1e99999999999"])
def test_a_pod_with_an_amount_that_cannot_be_read_says_so(amount: str) -> None:
    """kueue#13391: a negative request freed quota."""

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("wrong", gpus=0, cpus=amount)
            await c.waits("wrong", reason="InvalidAmount")
            assert "cpu: " in c.says("wrong")[1]
            c.pod("right", gpus=4)
            await until(lambda: c.where("right") == ["n1"])

    run(work)


@pytest.mark.parametrize("amount", ["9223372036854775807", "1e400"])
def test_a_pod_with_an_enormous_amount_fits_nowhere_and_breaks_nothing(amount: str) -> None:
    """kueue#14108: sums overflowed and became negative."""

    async def work() -> None:
        async with scene("n1") as c:
            c.pod("huge", containers=[box(0, memory=amount), {**box(0, memory=amount), "name": "b"}])
            await until(lambda: c.says("huge")[0] != "")
            c.theirs("theirs", containers=[box(0, memory=amount)])
            await until(lambda: c.state.nodes["n1"].others.host.memory_bytes >= 2**60)
            c.pod("right", gpus=4)
            await c.waits("right")
            c.delete("theirs")
            await until(lambda: c.where("right") == ["n1"])
            assert c.where("huge") == [""]

    run(work)


@in_scene("n1")
async def test_a_pod_of_another_scheduler_that_cannot_be_read_does_not_stop_its_node(c: Scene) -> None:
    """Its kubelet refuses it as well; everything else goes on."""
    c.theirs("wrong", gpus=0, cpus="-5")
    c.pod("right", gpus=4)
    await until(lambda: c.where("right") == ["n1"])


@in_scene("n1")
async def test_a_node_whose_amounts_cannot_be_read_is_left_out(c: Scene) -> None:
    status = {"allocatable": {"cpu": "many"}, "conditions": [{"type": "Ready", "status": "True"}]}
    c.store.create(c.kind("nodes"), "", {"metadata": {"name": "n2"}, "status": status})
    c.gang("team", 2, gpus=2)
    await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
    assert list(c.state.nodes) == ["n1"]


@in_scene("n1")
async def test_pods_without_devices_share_the_node_with_those_that_have_them(c: Scene) -> None:
    """CPUs run out before the devices do, and the other way round."""
    c.pod("prepare", gpus=0, cpus="6")
    c.pod("train", gpus=4, cpus="2")
    await until(lambda: c.where("prepare", "train") == ["n1", "n1"])
    c.pod("late", gpus=0, cpus="1")
    await c.waits("late")
    c.ends("train")
    await until(lambda: c.where("late") == ["n1"])


@in_scene("n1")
async def test_a_workload_with_an_amount_that_cannot_be_read_says_so_and_others_go_on(c: Scene) -> None:
    """Of some kinds the API server does not check it."""
    c.job("wrong", 1, pods=template(0, containers=[box(0, "many")]))
    event = await c.explained("wrong")
    assert (event["reason"], c.suspended("wrong")) == ("InvalidAmount", True)
    assert "cpu: 'many' is no quantity" in event["note"]
    c.pod("right")
    await until(lambda: c.where("right") == ["n1"])
