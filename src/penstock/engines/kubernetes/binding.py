"""The writes that start and stop a replica: a Binding and an Eviction, each tried until its outcome is known.

A Binding names the uid and the version of the pod that was decided about, and carries the replica's name: it happens
once, to that very pod, and a restart sees whose it is. A lost answer is settled by reading the pod.
"""

import asyncio
import random
from collections.abc import Callable

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.client import Client, Kind
from penstock.engines.kubernetes.errors import Busy, Conflict, KubernetesError, Missing, Unavailable
from penstock.engines.kubernetes.objects import Pod, Status
from penstock.engines.kubernetes.pods import DEVICES_ANNOTATION, REPLICA_ANNOTATION, SCHEDULER

PODS = Kind("", "v1", "pods")
TRIES_MAX = 8
"""Of a Binding whose outcome is not known, or that met another version of the pod."""
WAIT_S = (0.1, 5.0)
"""After the first try, doubled with each; and the longest."""
EVICTION_WAIT_S = 5.0
"""An eviction that a PodDisruptionBudget forbids is tried again after this long, unless the server says."""


class Binder:
    """Binds and evicts pods.

    Args:
        wrote: gets each pod that was read, or changed, by the way.
    """

    def __init__(self, client: Client, wrote: Callable[[Pod], None], draw: random.Random | None = None) -> None:
        self._client, self._wrote = client, wrote
        self._draw = draw or random.Random()  # noqa: S311 - spreads requests in time

    async def bind(self, pod: Pod, node: NodeName, key: ReplicaKey, devices: tuple[int, ...]) -> str:
        """Bind the pod to the node as this replica. Returns: '' once it is bound, else why it never will be."""
        annotations = {REPLICA_ANNOTATION: str(key)}
        if devices:
            annotations[DEVICES_ANNOTATION] = ",".join(map(str, devices))
        meta, problem = pod.metadata, ""
        for number in range(TRIES_MAX):
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": meta.name,
                    "namespace": meta.namespace,
                    "uid": meta.uid,
                    "resourceVersion": meta.resource_version,
                    "annotations": annotations,
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            try:
                await self._client.write("POST", PODS.path(meta.namespace, meta.name, "binding"), body, Status)
                return ""
            except (Conflict, Unavailable) as error:
                problem = error.message
            except Busy as error:
                problem = error.message
                await asyncio.sleep(error.retry_after_s or self._wait_s(number))
                continue
            except KubernetesError as error:
                return error.message
            await asyncio.sleep(self._wait_s(number) if number else 0)
            found = await self._again(pod)
            if found is None:
                continue
            outcome = _outcome(pod, found, node, str(key))
            if outcome is not None:
                return outcome
            meta = found.metadata
        return f"{problem} (tried {TRIES_MAX} times)"

    async def _again(self, pod: Pod) -> Pod | None:
        """Return the pod as it is now; None where that cannot be said. A pod that is gone has no uid."""
        try:
            found = await self._client.get(PODS.path(pod.metadata.namespace, pod.metadata.name), Pod)
        except Missing:
            return Pod(type(pod.metadata)())
        except KubernetesError:
            return None
        self._wrote(found)
        return found

    async def evict(self, pod: Pod, grace_ms: int, wanted: Callable[[], bool]) -> None:
        """Ask the pod to leave until it does, or until that is no longer wanted."""
        meta = pod.metadata
        options = {"gracePeriodSeconds": -(-grace_ms // 1000), "preconditions": {"uid": meta.uid}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": options,
        }
        number = 0
        while wanted():
            try:
                await self._client.write("POST", PODS.path(meta.namespace, meta.name, "eviction"), body, Status)
                return
            except (Missing, Conflict):
                return  # it is gone, or another pod has its name
            except Busy as error:
                await asyncio.sleep(error.retry_after_s or EVICTION_WAIT_S)
            except KubernetesError:
                await asyncio.sleep(self._wait_s(number))
                number += 1

    def _wait_s(self, number: int) -> float:
        return float(min(WAIT_S[1], WAIT_S[0] * 2**number)) * self._draw.uniform(0.5, 1.0)


def _outcome(pod: Pod, found: Pod, node: NodeName, key: str) -> str | None:
    """Return '' where the pod is bound as wanted, None where it still may be, else why it never will be."""
    spec = found.spec
    if found.metadata.uid != pod.metadata.uid or found.metadata.deletion_timestamp:
        return "it is gone"
    if spec.node_name:
        ours = spec.node_name == node and found.metadata.annotations.get(REPLICA_ANNOTATION) == key
        return "" if ours else f"it was bound to {spec.node_name} meanwhile"
    if spec.scheduling_gates or spec.scheduler_name != SCHEDULER:
        return "it may not be scheduled any more"
    return None
