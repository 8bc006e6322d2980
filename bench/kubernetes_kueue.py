"""Kueue's published baseline as suspended Jobs in queues of Penstock: 15,000 of three classes, in cohorts with quota.

Shape, pace and run times are those of `kueue_scenario`. Kueue's own run has neither Jobs nor pods: its workloads are
marked as finished after their run time. Here each is a Job that is started, makes a pod that is bound, run and ended,
and is completed by its controller; one that is preempted runs again from its beginning.
"""

import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from bench.kubernetes_cluster import (
    JOBS,
    PODS,
    SHOWN_EVERY_S,
    Body,
    Cluster,
    Penstock,
    pod_spec,
    run_annotations,
    say,
)
from bench.kueue_scenario import NOMINAL, SCENARIOS, Kind, Scenario, arrivals, bound_s

BORROWED = 100
STALL_S = 120.0


class Played(NamedTuple):
    """What came of it.

    Args:
        admission_s: mean time from creation to start, by class.
        cpu_s: of the server.
    """

    took_s: float
    total: int
    unfinished: int
    preempted: int
    admission_s: dict[str, float]
    cpu_s: float
    bound_s: float


def scaled(scale: float) -> Scenario:
    """Return the baseline with so many workloads of each class, at its pace and with its quotas."""
    whole = SCENARIOS["baseline"]
    return whole._replace(kinds=tuple(kind._replace(count=max(1, round(kind.count * scale))) for kind in whole.kinds))


def declared(scenario: Scenario) -> Body:
    """Return the cluster file: cohorts as queues of queues."""
    whole, queues = NOMINAL * scenario.queues, []
    for cohort in range(scenario.cohorts):
        shared = {"policy": "capacity", "guaranteed": {"cpus": whole}, "max": {"cpus": whole}}
        queues.append({"name": f"c{cohort}", **shared})
        own = {"guaranteed": {"cpus": NOMINAL}, "max": {"cpus": min(whole, NOMINAL + BORROWED)}}
        queues += [
            {"name": f"c{cohort}q{number}", "parent": f"c{cohort}", "policy": "capacity", **own}
            for number in range(scenario.queues)
        ]
    return {"queues": queues, "root_policy": "capacity"}


def class_name(cluster: Cluster, kind: Kind) -> str:
    return f"{cluster.namespace}-{kind.name}"


def job(cluster: Cluster, name: str, queue: str, kind: Kind, annotations: tuple[str, ...]) -> Body:
    spec = pod_spec("penstock", kind.cpus, priorityClassName=class_name(cluster, kind))
    template = {"metadata": {"annotations": run_annotations(annotations, kind.run_ms / 1000)}, "spec": spec}
    meta = {"name": name, "labels": {"penstock.dev/queue": queue}}
    return {"metadata": meta, "spec": {"suspend": True, "backoffLimit": 0, "template": template}}


class _Watch:
    """Follows the Jobs: when each was created, first started, stopped, and finished."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.created_s: dict[str, float] = {}
        self.waits_s: dict[str, list[float]] = defaultdict(list)
        self.finished: set[str] = set()
        self.preempted = 0
        self.news_s = time.monotonic()
        self._running: dict[str, bool] = {}

    async def run(self, version: str) -> None:
        async for one in self._cluster.follow(JOBS, version):
            name, now_s = one.metadata.name, time.monotonic()
            if not one.spec.suspend and name not in self._running and name in self.created_s:
                self.waits_s[name.partition("-")[0]].append(now_s - self.created_s[name])
            self.preempted += one.spec.suspend and self._running.get(name, False)
            if not one.spec.suspend or name in self._running:
                self._running[name] = not one.spec.suspend
            if name not in self.finished and one.has("Complete"):
                self.finished.add(name)
                self.news_s = now_s

    async def end_pods(self, version: str, run_s: dict[str, float]) -> None:
        """End pods after their run time, as no kubelet does."""
        seen: set[str] = set()

        async def end(name: str) -> None:
            await asyncio.sleep(run_s[name.partition("-")[0]])
            await self._cluster.end_pod(name)

        async with asyncio.TaskGroup() as group:
            async for one in self._cluster.follow(PODS, version, fieldSelector="spec.nodeName!="):
                if one.metadata.uid not in seen:
                    seen.add(one.metadata.uid)
                    group.create_task(end(one.metadata.name))


async def _create(cluster: Cluster, scenario: Scenario, watch: _Watch, annotations: tuple[str, ...]) -> None:
    """Create each Job when it is due."""
    begun = time.monotonic()
    numbered = list(enumerate(arrivals(scenario)))

    async def one(coming: tuple[int, tuple[int, str, Kind]]) -> None:
        number, (due_ms, queue, kind) = coming
        await asyncio.sleep(max(0.0, begun + due_ms / 1000 - time.monotonic()))
        name = f"{kind.name}-{number:05}"
        watch.created_s[name] = time.monotonic()
        await cluster.create(JOBS, job(cluster, name, queue, kind, annotations))

    await cluster.each(one, numbered, "")


async def _finished(watch: _Watch, total: int, server: Penstock) -> None:
    while len(watch.finished) < total and time.monotonic() - watch.news_s < STALL_S:
        server.check()
        say(f"{len(watch.created_s):,} Jobs created, {len(watch.finished):,} finished of {total:,}", end="")
        await asyncio.sleep(SHOWN_EVERY_S)


async def play(cluster: Cluster, scale: float, annotations: tuple[str, ...], *, ends: bool) -> Played:
    """Play the scenario.

    Args:
        annotations: by which kubelets know how long a pod runs.
        ends: pods are ended here, as no kubelet does.
    """
    scenario = scaled(scale)
    total = scenario.cohorts * scenario.queues * sum(kind.count for kind in scenario.kinds)
    for kind in scenario.kinds:
        await cluster.create_class(class_name(cluster, kind), kind.priority)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server, watch = Penstock(Path(folder), cluster.kubeconfig, declared(scenario)), _Watch(cluster)
        server.start()
        tasks = [asyncio.create_task(watch.run(await cluster.version_now(JOBS)))]
        if ends:
            run_s = {kind.name: kind.run_ms / 1000 for kind in scenario.kinds}
            tasks.append(asyncio.create_task(watch.end_pods(await cluster.version_now(PODS), run_s)))
        try:
            await server.ready(cluster.nodes)
            cpu_s, begun = server.process.cpu_s(), time.monotonic()
            watch.news_s = begun
            tasks.append(asyncio.create_task(_create(cluster, scenario, watch, annotations)))
            await _finished(watch, total, server)
            cpu_s = server.process.cpu_s() - cpu_s
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(server.stop)
    first_s = min(watch.created_s.values())
    means = {kind: sum(waits) / len(waits) for kind, waits in watch.waits_s.items()}
    left = total - len(watch.finished)
    return Played(watch.news_s - first_s, total, left, watch.preempted, means, cpu_s, bound_s(scenario))
