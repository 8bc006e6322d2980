"""`status.nominatedNodeName`: where a pod of ours is to start once those that were asked to leave for it have left.

Other schedulers keep that room free then, and autoscalers buy no node for the pod. It is written only while others
leave for it: on a pod that merely waits it would keep autoscalers from buying the node that it needs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.errors import Conflict, KubernetesError
from penstock.engines.kubernetes.binding import PODS
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.objects.common import as_known
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.server import Server
from penstock.engines.kubernetes.tasks import Tasks

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Rooms are looked at this often."""
CLEAR_S = 3.0
"""A pod for which nobody leaves any more is bound by then; else it is no longer nominated."""
WRITES_MAX = 8
"""Pods that are written at a time."""
REFUSED_S = (0.5, 60.0)
"""A pod whose nomination was refused waits this long, doubled with each refusal, and at most so long."""


class Nominating:
    """Writes nominations. Everything runs on the engine's loop.

    Args:
        pods: all pods, by namespace and name.
        wrote: takes in what the API server answered.
    """

    def __init__(
        self,
        client: Client,
        server: Server,
        gangs: Gangs,
        pods: Mapping[tuple[str, str], Pod],
        wrote: Callable[[Pod], None],
    ) -> None:
        self._client, self._server, self._gangs, self._pods, self._wrote = client, server, gangs, pods, wrote
        self._nominated: dict[tuple[str, str], float] = {}
        """Pods that are nominated, and since when nobody leaves for them (of the loop's clock); 0: somebody does."""
        self._writing: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], tuple[float, float]] = {}
        """Pods whose last write was refused: how long they wait for the next, and until when (of the loop's clock)."""
        self._tasks = Tasks()

    async def run(self, begun: Callable[[], bool]) -> None:
        """Write until cancelled. Args: begun: whether all pods are known."""
        try:
            while not begun():
                await asyncio.sleep(LOOK_S)
            while True:
                self._look(asyncio.get_running_loop().time())
                await asyncio.sleep(LOOK_S)
        finally:
            self._tasks.cancel()

    def pod_changed(self, pod: Pod) -> None:
        """Note a pod of ours that is nominated: by whom, and for whom others leave, is looked at."""
        if pod.status.nominated_node_name and not pod.spec.node_name:
            self._nominated.setdefault((pod.metadata.namespace, pod.metadata.name), 0.0)

    def _look(self, now_s: float) -> None:
        wanted, writes = dict(self._wanted()), list[tuple[tuple[str, str], NodeName | None]]()
        for key, node in wanted.items():
            self._nominated[key] = 0.0
            if self._pods[key].status.nominated_node_name != node:
                writes.append((key, node))
        for key in self._nominated.keys() - wanted.keys():
            pod = self._pods.get(key)
            if pod is None or pod.spec.node_name or pod.over or not pod.status.nominated_node_name:
                if key not in self._writing:
                    del self._nominated[key]
                    self._refused.pop(key, None)
            elif not self._nominated[key]:
                self._nominated[key] = now_s
            elif now_s - self._nominated[key] >= CLEAR_S:
                writes.append((key, None))
        for key, planned in sorted(writes, key=lambda one: self._due_s(one[0])):  # those never refused come first
            if self._due_s(key) <= now_s:
                self._write(key, planned)

    def _due_s(self, key: tuple[str, str]) -> float:
        """Return until when a refusal pauses a pod; 0: it was not refused."""
        return self._refused[key][1] if key in self._refused else 0.0

    def _wanted(self) -> Iterator[tuple[tuple[str, str], NodeName]]:
        """Yield pods for which others leave, and the node that they are to start on."""
        for job_id, nodes in self._server.rooms().items():
            gang = self._gangs.of_job(job_id)
            if gang is None:
                continue  # its pods have been deleted, and its job is about to be cancelled
            for slot, node in zip(gang.slots, nodes, strict=False):
                key = (gang.namespace, slot.pod)
                pod = self._pods.get(key)
                if pod is not None and not (pod.spec.node_name or pod.over or pod.leaving):
                    yield key, node

    def _write(self, key: tuple[str, str], node: NodeName | None) -> None:
        if key not in self._writing and len(self._writing) < WRITES_MAX:
            self._writing.add(key)
            self._tasks.begin(self._patch(key, self._pods[key], node))

    async def _patch(self, key: tuple[str, str], pod: Pod, node: NodeName | None) -> None:
        meta = pod.metadata
        body = {"metadata": as_known(meta), "status": {"nominatedNodeName": node}}
        try:
            self._wrote(await self._client.patch(PODS.path(*key, "status"), body, Pod, "strategic"))
            self._refused.pop(key, None)
        except Conflict:
            pass  # the next look sees what it is by now
        except KubernetesError as error:
            log.info("a nomination could not be written", extra={"pod": pod.key, "problem": error.message})
            first_s, longest_s = REFUSED_S
            pause_s = min(longest_s, 2 * self._refused[key][0] if key in self._refused else first_s)
            self._refused[key] = pause_s, asyncio.get_running_loop().time() + pause_s
        finally:
            self._writing.discard(key)
