"""Penstock and kube-scheduler on the same nodes, which are nearly full: how often a kubelet refuses what one has bound.

The benchmark is the kubelet of all nodes: it takes pods in the order of their bindings, refuses one for which its node
has no room, as `OutOfcpu` or `OutOfmemory`, and ends the others after their run time. A pod that was refused is made
anew, as its controller would do. Both schedulers see a binding of the other one a moment late, so both are refused at
times; what counts is that nothing is refused again and again.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from typing import NamedTuple

from bench.kubernetes_cluster import PODS, SHOWN_EVERY_S, Cluster, Penstock, pod_spec, say

NODES, CPUS, MEMORY_GI = 16, 64, 256
SCHEDULERS = ("penstock", "default-scheduler")
GANG = 4
PODS_A_S, RUN_S = 30.0, (2.0, 8.0)
"""Pods of each scheduler: about one and a half times what the nodes have room for."""
DRAIN_S = 60.0


class Refused(NamedTuple):
    """What the kubelets refused of one scheduler.

    Args:
        bound: pods that were bound.
        refused: those for which their node had no room.
        again: those of them that were refused before.
    """

    bound: int
    refused: int
    again: int


class _Pod(NamedTuple):
    scheduler: str
    cpus: int
    memory_gi: int
    run_s: float
    tries: int
    gang: str


class Kubelets:
    """All kubelets."""

    def __init__(self, cluster: Cluster, draw: random.Random) -> None:
        self._cluster, self._draw = cluster, draw
        self._made: dict[str, _Pod] = {}
        self._used: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._placed: set[str] = set()
        self.bound, self.refused, self.again = Counter[str](), Counter[str](), Counter[str]()
        self.ended = 0

    @property
    def left(self) -> int:
        return len(self._made) - self.ended - sum(self.refused.values())

    async def make(self, name: str, new: _Pod) -> None:
        self._made[name] = new
        labels = {"penstock.dev/gang": new.gang, "penstock.dev/gang-size": str(GANG)} if new.gang else {}
        asked = {"cpu": str(new.cpus), "memory": f"{new.memory_gi}Gi"}
        spec = pod_spec(new.scheduler, 1)
        spec["containers"][0]["resources"] = {"requests": asked, "limits": asked}
        await self._cluster.create(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def arrive(self, until_s: float) -> None:
        """Make pods of both schedulers at random, every other one of ours in a gang."""
        number = 0
        while time.monotonic() < until_s:
            await asyncio.sleep(self._draw.expovariate(PODS_A_S * len(SCHEDULERS) / GANG))
            number += 1
            scheduler = SCHEDULERS[number % 2]
            gang = f"gang-{number}" if scheduler == "penstock" and number % 4 == 0 else ""
            for rank in range(GANG):
                cpus, memory_gi = self._draw.choice((2, 4, 8)), self._draw.choice((4, 16, 32))
                new = _Pod(scheduler, cpus, memory_gi, self._draw.uniform(*RUN_S), 0, gang)
                await self.make(f"pod-{number}-{rank}", new)

    async def admit(self, version: str) -> None:
        """Take, refuse and end what is bound."""
        async with asyncio.TaskGroup() as group:
            async for one in self._cluster.follow(PODS, version, fieldSelector="spec.nodeName!="):
                name = one.metadata.name
                if name in self._placed or name not in self._made:
                    continue
                self._placed.add(name)
                new, used = self._made[name], self._used[one.spec.node_name]
                self.bound[new.scheduler] += 1
                if used[0] + new.cpus > CPUS or used[1] + new.memory_gi > MEMORY_GI:
                    group.create_task(self._refuse(name, new, "cpu" if used[0] + new.cpus > CPUS else "memory"))
                else:
                    used[0] += new.cpus
                    used[1] += new.memory_gi
                    group.create_task(self._run(name, new, used))

    async def _refuse(self, name: str, new: _Pod, short: str) -> None:
        self.refused[new.scheduler] += 1
        self.again[new.scheduler] += new.tries > 0
        await self._cluster.set_status(name, {"phase": "Failed", "reason": f"OutOf{short}"})
        await self.make(f"{name}-again", new._replace(tries=new.tries + 1))

    async def _run(self, name: str, new: _Pod, used: list[int]) -> None:
        await self._cluster.set_status(name, {"phase": "Running"})
        await asyncio.sleep(new.run_s)
        used[0] -= new.cpus
        used[1] -= new.memory_gi
        await self._cluster.end_pod(name)
        self.ended += 1


async def coexist(cluster: Cluster, server: Penstock, run_s: float, seed: int) -> tuple[dict[str, Refused], int]:
    """Let both schedulers bind pods for so long. Returns: what was refused of each, and how many pods are left."""
    kubelets = Kubelets(cluster, random.Random(seed))
    admitting = asyncio.create_task(kubelets.admit(await cluster.version_now(PODS)))
    arriving = asyncio.create_task(kubelets.arrive(time.monotonic() + run_s))
    drained_s = time.monotonic() + run_s + DRAIN_S
    try:
        while (not arriving.done() or kubelets.left) and time.monotonic() < drained_s:
            server.check()
            say(f"{sum(kubelets.bound.values()):,} bound, refused: {dict(kubelets.refused)}", end="")
            await asyncio.wait([admitting, arriving], timeout=SHOWN_EVERY_S, return_when=asyncio.FIRST_EXCEPTION)
            for task in (admitting, arriving):
                if task.done():
                    task.result()
    finally:
        admitting.cancel()
        arriving.cancel()
        await asyncio.gather(admitting, arriving, return_exceptions=True)
    return {
        one: Refused(kubelets.bound[one], kubelets.refused[one], kubelets.again[one]) for one in SCHEDULERS
    }, kubelets.left
