"""Amid faults: no pod onto a node without room, no device twice, no gang in part, and all of it ends."""

import asyncio
import random

import pytest

from penstock.engines.kubernetes import binding, engine, placing, sessions, settling
from penstock.engines.kubernetes.api import reflector
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.cluster import cluster
from tests.engines.kubernetes.helpers import run, until

GPUS, CPUS = 4, 8


def audit(c) -> None:
    """Check what the kubelet would: the sums of all pods of a node, and each device of ours once."""
    cpus, gpus, devices = {}, {}, {}
    for pod in c.store.all_of("pods").values():
        node = pod["spec"].get("nodeName")
        if not node or pod["status"]["phase"] in ("Succeeded", "Failed"):
            continue
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        cpus[node] = cpus.get(node, 0) + int(limits["cpu"])
        gpus[node] = gpus.get(node, 0) + int(limits.get("nvidia.com/gpu", 0))
        for one in filter(None, pod["metadata"].get("annotations", {}).get("penstock.dev/devices", "").split(",")):
            assert one not in devices.setdefault(node, set()), (node, one)
            devices[node].add(one)
    assert all(number <= CPUS for number in cpus.values()), cpus
    assert all(number <= GPUS for number in gpus.values()), gpus


@pytest.mark.parametrize("seed", range(8))
def test_everything_ends_and_nothing_is_given_out_twice(seed, monkeypatch):
    monkeypatch.setattr(reflector, "BACKOFF_S", (0.01, 0.05))
    monkeypatch.setattr(binding, "WAIT_S", (0.005, 0.05))
    for module, name, value in (
        (placing, "EARLY_S", 0.2), (settling, "SETTLE_S", 0.05), (sessions, "ALIVE_S", 0.2), (engine, "AGAIN_S", 0.2),
        (placing, "REPLACED_S", 0.3),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)

    async def work() -> None:
        draw = random.Random(seed)
        async with cluster("n0", "n1", "n2") as c:
            c.api.streams = seed % 2 == 0
            wanted: set[str] = set()
            checks = asyncio.create_task(checking(c))
            for number in range(25):
                match draw.randrange(8):
                    case 0 | 1 | 2:
                        c.pod(f"p{number}", gpus=draw.randrange(GPUS + 1))
                        wanted.add(f"p{number}")
                    case 3 | 4:
                        size = draw.randint(2, 4)
                        c.gang(f"g{number}", size, gpus=draw.randint(1, 2))
                        wanted |= {f"g{number}-{i}" for i in range(size)}
                    case 5:
                        c.api.cut_watches()
                    case 6:
                        c.store.compact()
                    case _:
                        status = draw.choice((409, 429, 500, 503, 504))
                        lost = draw.random() < 0.5 and status >= 500
                        c.api.faults.append(Fault("POST", "binding", status, times=2, carried_out=lost))
                finish(c, draw)
                await asyncio.sleep(draw.uniform(0, 0.03))
            c.api.faults.clear()
            await until(
                lambda: finish(c, draw) or all(c.get(name)["status"]["phase"] == "Succeeded" for name in wanted)
            )
            await until(lambda: c.jobs() == [])
            assert not checks.done(), checks.exception()
            checks.cancel()
            rows = c.disk.finished_jobs(100)
            assert {row.state for row in rows} <= {"succeeded"}
            names = {name.partition("-")[0] for name in wanted}
            assert sorted(row.name for row in rows) == sorted(names), "each once"

    run(work)


async def checking(c) -> None:
    while True:
        audit(c)
        await asyncio.sleep(0.002)


def finish(c, draw) -> None:
    """Let some running pods end: those of a gang only once all of it runs."""
    running = {}
    for (_, name), pod in c.store.all_of("pods").items():
        running.setdefault(name.partition("-")[0], []).append(pod)
    for pods in running.values():
        if all(pod["status"]["phase"] == "Running" for pod in pods) and draw.random() < 0.3:
            for pod in pods:
                c.ends(pod["metadata"]["name"])


def test_what_another_scheduler_bound_is_respected_once_it_is_seen():
    async def work() -> None:
        draw = random.Random(7)
        async with cluster("n0", "n1") as c:
            for number in range(12):
                theirs = f"theirs-{number}"
                c.pod(theirs, gpus=1, schedulerName="default-scheduler")
                room = [name for name in ("n0", "n1") if used(c, name) < GPUS]
                if room:
                    target = {"metadata": {"name": theirs}, "target": {"name": draw.choice(room)}}
                    bind(c.store, c.kind("pods"), "default", target)
                await until(
                    lambda: all(len(c.state.nodes[n].others.devices) == used(c, n, "theirs") for n in ("n0", "n1"))
                )
                c.pod(f"ours-{number}", gpus=1)
                full = all(used(c, name) >= GPUS for name in ("n0", "n1"))
                if not full:
                    await until(lambda name=f"ours-{number}": c.where(name) != [""] or all_full(c))
                audit(c)
                for (_, name), pod in list(c.store.all_of("pods").items()):
                    if pod["status"]["phase"] == "Running" and draw.random() < 0.3:
                        c.ends(name)
                await asyncio.sleep(0.05)

    run(work)


def all_full(c) -> bool:
    return all(used(c, name) >= GPUS for name in ("n0", "n1"))


def used(c, node: str, whose: str = "") -> int:
    return sum(
        int(pod["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        for (_, name), pod in c.store.all_of("pods").items()
        if pod["spec"].get("nodeName") == node
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
        and name.startswith(whose)
    )


async def withdrawn_start(c) -> None:
    """Let a start be withdrawn while its Binding may still be on its way."""
    c.api.faults.append(Fault("POST", "binding", 504, times=1000))
    c.pod("late")
    await until(lambda: sum("binding" in seen.path for seen in c.api.seen) > 1)
    (job,) = (job for job in c.state.jobs.values() if job.spec.name == "late")
    c.engine._server.cancel(job.id, "a test")
    await until(lambda: "penstock.dev/withdrawn" in c.get("late")["metadata"].get("annotations", {}))
    c.api.faults.clear()


def test_a_start_that_is_withdrawn_changes_the_pod_so_that_a_binding_on_its_way_fails():
    async def work() -> None:
        async with cluster("n1") as c:
            await withdrawn_start(c)
            assert c.get("late")["metadata"]["annotations"] == {"penstock.dev/withdrawn": "1.1.0"}
            await until(lambda: [row.state for row in c.disk.finished_jobs(9)] == ["cancelled"])

    run(work)
