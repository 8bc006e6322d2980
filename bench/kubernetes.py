"""Penstock as the scheduler of a Kubernetes cluster: pods a second, memory, idle use, restart, Kueue's baseline.

`KUBECONFIG=... python -m bench.kubernetes --make-nodes` measures on a cluster whose nodes are run by kwok or other fake
kubelets, beside kube-scheduler on the same nodes; without a kubeconfig on the API server for tests, in a process of its
own. Pods take 1 CPU and 1 GiB, nodes have 64 CPUs. All pods are created before the scheduler runs: what counts is the
time from the first binding to the last one. A kube-scheduler is paused meanwhile where `--kube-scheduler-pid` is given;
else it is measured while the pods are created, and so is Penstock a second time, to compare.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import machine
from bench.kubernetes_cluster import PODS, SHOWN_EVERY_S, Body, Cluster, Penstock, Process, pod, say, test_api
from bench.kubernetes_coexist import NODES as SHARED_NODES
from bench.kubernetes_coexist import SCHEDULERS, coexist
from bench.kubernetes_kueue import play
from bench.kueue_scenario import SCENARIOS

GANG, PENSTOCK, OTHER = 8, "penstock", "default-scheduler"
STALL_S = 60.0
"""A scheduler that binds nothing for so long has ended its work."""
LIMITS = {
    "of_kube_scheduler": 0.8,
    "gang_pods_per_s": 200.0,
    "pods_per_s_5000_nodes": 200.0,
    "memory_mb_20k_pods": 600.0,
    "idle_core_pct": 3.0,
    "restart_s": 10.0,
    "kueue_baseline_s": 180.0,
    "refused_again": 0,
}
"""Of November 2026, for two shared cores that run the API server and its etcd as well."""


class Sizes(NamedTuple):
    nodes: int = 1_000
    pods: int = 5_000
    idle_s: float = 30.0
    shared_s: float = 60.0
    scale: float = 1.0

    @property
    def large(self) -> tuple[int, int]:
        """Nodes and pods of the large cluster."""
        return 5 * self.nodes, 4 * self.pods


QUICK = Sizes(40, 200, 3.0, 10.0, 0.02)


class Bound(NamedTuple):
    """Pods that a scheduler has bound.

    Args:
        since_start_s: from its start, or from the first creation, to the last binding.
        cpu_s: of the scheduler from the first to the last binding; None where its process is not known.
    """

    names: set[str]
    took_s: float
    since_start_s: float
    cpu_s: float | None
    method: str

    @property
    def per_s(self) -> float:
        return (len(self.names) - 1) / self.took_s if len(self.names) > 1 and self.took_s else 0.0

    def facts(self) -> Body:
        found: Body = {"pods": len(self.names), "method": self.method, "since_start_s": round(self.since_start_s, 2)}
        if self.cpu_s is not None and self.names:
            found["cpu_ms_per_pod"] = round(self.cpu_s * 1000 / len(self.names), 2)
        return found


class Bench:
    """Measures on one cluster, and prints what it finds."""

    def __init__(self, cluster: Cluster, root: Path, sizes: Sizes, given: argparse.Namespace) -> None:
        self._cluster, self._root, self._sizes, self._given = cluster, root, sizes, given
        self._servers = 0

    def tell(self, metric: str, value: float | None, unit: str, better: str = "lower", **more: Any) -> None:
        """Print one line of results; `limit` and `reference` are in `more` where there are any."""
        shown = None if value is None else round(value, 3)
        line = {"metric": metric, "value": shown, "unit": unit, "better": better, "limit": LIMITS.get(metric),
                "reference": None, **more, "cluster": self._cluster.version, "nodes": self._cluster.nodes,
                "machine": machine()}  # fmt: skip
        print(json.dumps(line), flush=True)

    def _server(self) -> Penstock:
        self._servers += 1
        root = self._root / str(self._servers)
        root.mkdir()
        return Penstock(root, self._cluster.kubeconfig)

    async def _create(self, bodies: list[Body]) -> None:
        await self._cluster.each(lambda body: self._cluster.create(PODS, body), bodies, f"pods, of {len(bodies):,}")

    async def _bound(self, bodies: list[Body], begin: Callable[[], Process | None], *, first: bool) -> Bound:
        """Return what a scheduler binds.

        Args:
            begin: lets it run, and returns its process where that is known.
            first: all pods are created before.
        """
        cluster, wanted, times = self._cluster, {body["metadata"]["name"] for body in bodies}, [0.0]
        names: set[str] = set()
        cpus: list[float] = []
        if first:
            await self._create(bodies)
        version = await cluster.version_now(PODS)
        begun = times[0] = time.monotonic()
        process = begin()

        async def watch() -> None:
            async for one in cluster.follow(PODS, version, fieldSelector="spec.nodeName!="):
                if one.spec.node_name and one.metadata.name in wanted and one.metadata.name not in names:
                    if not names and process is not None:
                        cpus.append(process.cpu_s())
                    names.add(one.metadata.name)
                    times.append(time.monotonic())

        async def watched() -> None:
            while len(names) < len(wanted) and time.monotonic() - times[-1] < STALL_S:
                say(f"{len(names):,} of {len(wanted):,} bound", end="")
                await asyncio.wait([watching], timeout=SHOWN_EVERY_S)
                if watching.done():
                    watching.result()

        watching = asyncio.create_task(watch())
        try:
            if not first:
                await self._create(bodies)
            await watched()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        cpu_s = process.cpu_s() - cpus[0] if process is not None and cpus else None
        took_s = times[-1] - times[1] if len(times) > 1 else 0.0
        method = "all created before" if first else "created meanwhile"
        return Bound(names, took_s, times[-1] - begun, cpu_s, method)

    @contextlib.asynccontextmanager
    async def _penstock(self, bodies: list[Body]) -> AsyncIterator[tuple[Bound, Penstock]]:
        """Let a new server bind pods that are there already; they are gone afterwards."""
        server = self._server()

        def begin() -> Process:
            server.start()
            return server.process

        try:
            found = await self._bound(bodies, begin, first=True)
            server.check()
            yield found, server
        finally:
            await asyncio.to_thread(server.stop)
            await self._cluster.remove_pods()

    async def _penstock_meanwhile(self, bodies: list[Body]) -> Bound:
        server = self._server()
        try:
            server.start()
            await server.ready(self._cluster.nodes)
            return await self._bound(bodies, lambda: server.process, first=False)
        finally:
            await asyncio.to_thread(server.stop)
            await self._cluster.remove_pods()

    async def _kube_scheduler(self, bodies: list[Body]) -> Bound:
        pid = self._given.kube_scheduler_pid

        def begin() -> Process | None:
            if pid:
                os.kill(pid, signal.SIGCONT)
            return Process(pid) if pid else None

        try:
            if pid:
                os.kill(pid, signal.SIGSTOP)
            return await self._bound(bodies, begin, first=bool(pid))
        finally:
            if pid:
                os.kill(pid, signal.SIGCONT)
            await self._cluster.remove_pods()

    def _pods(self, count: int, scheduler: str = PENSTOCK) -> list[Body]:
        return [pod(f"one-{number:05}", scheduler) for number in range(count)]

    # The figures.

    async def single(self) -> None:
        """Single pods, beside kube-scheduler."""
        await self._cluster.with_nodes(self._sizes.nodes)
        say("single pods")
        count, other = self._sizes.pods, None
        async with self._penstock(self._pods(count)) as (own, _):
            pass
        if self._cluster.real:
            other = await self._kube_scheduler(self._pods(count, OTHER))
        alike = own
        if other is not None and other.method != own.method:
            alike = await self._penstock_meanwhile(self._pods(count))
            self.tell("pods_per_s_created_meanwhile", alike.per_s, "pods/s", "higher", **alike.facts())
        reference = limit = None
        if other is not None:
            reference = {"name": "kube-scheduler, same run", "value": round(other.per_s, 1), "method": other.method}
            limit = round(LIMITS["of_kube_scheduler"] * other.per_s, 1)
            self.tell("of_kube_scheduler", alike.per_s / other.per_s, "1", "higher", method=alike.method)
        self.tell("pods_per_s", own.per_s, "pods/s", "higher", reference=reference, limit=limit, **own.facts())
        facts = other.facts() if other is not None else {}
        self.tell("kube_scheduler_pods_per_s", other.per_s if other is not None else None, "pods/s", "higher", **facts)

    async def gangs(self) -> None:
        """Pods in gangs: all of a gang are bound, or none."""
        await self._cluster.with_nodes(self._sizes.nodes)
        say(f"gangs of {GANG}")
        bodies = []
        for gang in range(self._sizes.pods // GANG):
            labels = {"penstock.dev/gang": f"gang-{gang}", "penstock.dev/gang-size": str(GANG)}
            bodies += [pod(f"gang-{gang}-{rank}", PENSTOCK, labels) for rank in range(GANG)]
        async with self._penstock(bodies) as (own, _):
            sizes = Counter(name.rpartition("-")[0] for name in own.names)
            self.tell("gang_pods_per_s", own.per_s, "pods/s", "higher", **own.facts(), gang_size=GANG)
            self.tell("gangs_in_part", sum(size < GANG for size in sizes.values()), "gangs", limit=0)

    async def large(self) -> None:
        """A large cluster: what is bound in a second, what it takes when nothing changes, and a restart."""
        nodes, count = self._sizes.large
        await self._cluster.with_nodes(nodes)
        say("large cluster")
        async with self._penstock(self._pods(count)) as (own, server):
            self.tell("pods_per_s_5000_nodes", own.per_s, "pods/s", "higher", **own.facts())
            await asyncio.sleep(self._sizes.idle_s / 3)
            self.tell("memory_mb_20k_pods", server.process.rss_mb(), "MB", pods=len(own.names))
            cpu_s, begun = server.process.cpu_s(), time.monotonic()
            say(f"idle for {self._sizes.idle_s:.0f} s")
            await asyncio.sleep(self._sizes.idle_s)
            share = (server.process.cpu_s() - cpu_s) / (time.monotonic() - begun)
            self.tell("idle_core_pct", 100 * share, "% of a core", over_s=self._sizes.idle_s, pods=len(own.names))
            await asyncio.to_thread(server.stop)

            def begin() -> Process:
                server.start()
                return server.process

            new = await self._bound([pod("new", PENSTOCK)], begin, first=True)
            server.check()
            self.tell("restart_s", new.since_start_s if new.names else None, "s", pods=len(own.names))

    async def coexist(self) -> None:
        """Pods that a kubelet refuses where kube-scheduler binds pods to the same nodes; not without one."""
        if not self._cluster.real:
            return
        await self._cluster.with_nodes(SHARED_NODES)
        say("beside kube-scheduler on the same nodes")
        server = self._server()
        server.start()
        try:
            await server.ready(SHARED_NODES)
            refused, left = await coexist(self._cluster, server, self._sizes.shared_s, self._given.seed)
        finally:
            await asyncio.to_thread(server.stop)
            await self._cluster.remove_pods()
        own, other = (refused[name] for name in SCHEDULERS)
        facts = {"pods": own.bound, "unfinished": left, "seed": self._given.seed}
        reference = {"name": "kube-scheduler, same run", "value": other.refused, "pods": other.bound}
        self.tell("refused_by_kubelets", own.refused, "pods", reference=reference, **facts)
        self.tell("refused_again", own.again, "pods", reference={**reference, "value": other.again}, **facts)

    async def kueue(self) -> None:
        """Kueue's published baseline."""
        await self._cluster.with_nodes(self._sizes.nodes)
        say("Kueue's baseline")
        annotations = tuple(self._given.run_annotation)
        scale = self._sizes.scale
        played = await play(self._cluster, scale, annotations, ends=self._cluster.real and not annotations)
        published_s = SCENARIOS["baseline"].published_s
        reference = {"name": "Kueue, published, without Jobs and pods", "value": round(scale * published_s, 1)}
        limit = round(scale * LIMITS["kueue_baseline_s"], 1)
        self.tell(
            "kueue_baseline_s", played.took_s, "s", limit=limit, reference=reference, scale=scale,
            workloads=played.total, unfinished=played.unfinished, preempted=played.preempted,
            bound_s=round(played.bound_s, 1), cpu_ms_per_workload=round(1000 * played.cpu_s / played.total, 2),
            admission_s={kind: round(wait_s, 2) for kind, wait_s in played.admission_s.items()},
        )  # fmt: skip


FIGURES = ("single", "gangs", "coexist", "kueue", "large")


@contextlib.contextmanager
def chosen(given: argparse.Namespace, root: Path) -> Iterator[Cluster]:
    """Yield the cluster to measure on."""
    if given.kubeconfig:
        yield Cluster(Path(given.kubeconfig).resolve(), real=True, make_nodes=given.make_nodes)
    else:
        with test_api(root) as kubeconfig:
            yield Cluster(kubeconfig, real=False, make_nodes=True)


async def measure(given: argparse.Namespace, root: Path) -> None:
    usual = QUICK if given.quick else Sizes()
    sizes = Sizes(
        given.nodes or usual.nodes, given.pods or usual.pods, usual.idle_s, usual.shared_s, given.scale or usual.scale
    )
    with chosen(given, root) as found:
        async with found as cluster:
            bench = Bench(cluster, root, sizes, given)
            for name in given.only or FIGURES:
                await getattr(bench, name)()


def figures(text: str) -> list[str]:
    found = text.split(",")
    unknown = [name for name in found if name not in FIGURES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected {', '.join(FIGURES)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: below a minute on the API server for tests")
    parser.add_argument("--only", type=figures, metavar="NAME[,NAME]", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--nodes", type=int, help="nodes (1,000); the large cluster has five times as many")
    parser.add_argument("--pods", type=int, help="pods (5,000); the large cluster has four times as many")
    parser.add_argument("--scale", type=float, help="share of the workloads of Kueue's baseline (1.0)")
    parser.add_argument("--seed", type=int, default=1, help="of the pods beside kube-scheduler (1)")
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""), help="'': the API server for tests")
    parser.add_argument("--make-nodes", action="store_true", help="make the nodes, and remove them afterwards")
    parser.add_argument("--kube-scheduler-pid", type=int, default=0, metavar="PID", help="its process on this machine")
    parser.add_argument(
        "--run-annotation", action="append", default=[], metavar="NAME",
        help="annotation by which the kubelets know how many seconds a pod runs; without it the benchmark ends pods",
    )  # fmt: skip
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        asyncio.run(measure(given, Path(folder)))


if __name__ == "__main__":
    main()
