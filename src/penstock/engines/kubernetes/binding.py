"""The writes that start and stop a replica: a Binding and an Eviction, each tried until its outcome is known.

A Binding names the uid and the version of the pod that was decided about, and carries the replica's name: it happens
once, to that very pod, and a restart sees whose it is. A lost answer is settled by reading the pod.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import Busy, Conflict, KubernetesError, Missing, Unavailable
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.names import (
    CLUSTER_ANNOTATION,
    DEVICES_ANNOTATION,
    REPLICA_ANNOTATION,
    TERM_ANNOTATION,
    WITHDRAWN_ANNOTATION,
)
from penstock.engines.kubernetes.objects.answers import Status
from penstock.engines.kubernetes.objects.common import Metadata, Wire, as_known, timestamp
from penstock.engines.kubernetes.objects.pods import Pod

log = logging.getLogger(__name__)

PODS = Kind("", "v1", "pods")
TRIES_MAX = 8
"""Of starting or suspending a workload."""
WAIT_S = (0.1, 5.0)
"""After the first try, doubled with each; and the longest."""
EVICTION_WAIT_S = 5.0
"""An eviction that a PodDisruptionBudget forbids is tried again after this long, unless the server says."""
PREEMPTED = "PreemptionByScheduler"
WITHDRAWN, GONE = "its start was withdrawn", "it is gone"


def always() -> bool:
    return True


class AnyWorkload(Wire, frozen=True):
    metadata: Metadata


class Binder:
    """Binds and evicts pods, starts and suspends workloads.

    Args:
        wrote: gets each pod that was read, or changed, by the way.
        identity: gives the identity of the log in which was decided; `term`: what this life of the server is called.
    """

    def __init__(
        self,
        client: Client,
        wrote: Callable[[Pod], None],
        identity: Callable[[], str] = str,
        term: Callable[[], str] = str,
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._wrote, self._identity, self._term = client, wrote, identity, term
        self._draw = draw or random.Random()  # noqa: S311 - spreads requests in time

    async def bind(
        self, pod: Pod, node: NodeName, key: ReplicaKey, devices: tuple[int, ...], wanted: Callable[[], bool] = always
    ) -> str:
        """Bind the pod to the node as this replica. Returns: '' once it is bound, else why it never will be.

        It returns only when that is certain: as long as a request may still be carried out, the place is taken.

        Args:
            wanted: whether the replica is still to start; else it is given up, by a write that makes requests on their
                way fail.
        """
        annotations = self.claims(key, devices)
        meta, number, open_ended = pod.metadata, 0, False
        while wanted():
            body, wait_s = _binding(meta, node, annotations), 0.0
            try:
                await self._client.write("POST", PODS.path(meta.namespace, meta.name, "binding"), body, Status)
                return ""
            except Conflict:
                pass  # read it
            except Busy as error:
                wait_s = error.retry_after_s
            except Unavailable:
                open_ended = True
            except Missing:
                return GONE
            except KubernetesError as error:
                return error.message
            await asyncio.sleep(wait_s or (self._wait_s(number) if number else 0))
            number += 1
            found = await self._again(pod)
            if found is None:
                continue
            outcome = _outcome(pod, found, node, annotations)
            if outcome is not None:
                return outcome
            open_ended = open_ended and found.metadata.resource_version == meta.resource_version
            meta = found.metadata
        return await self._withdrawn(pod, node, annotations) if open_ended else WITHDRAWN

    async def _withdrawn(self, pod: Pod, node: NodeName, claims: Mapping[str, str]) -> str:
        """Give up a start of which a Binding may still be on its way: a pod that has changed is not bound by it."""
        found = await self._marked(pod, {WITHDRAWN_ANNOTATION: claims[REPLICA_ANNOTATION]})
        outcome = _outcome(pod, found, node, claims) if found is not None else GONE
        return WITHDRAWN if outcome is None else outcome

    async def fence(self, pods: Iterable[Pod]) -> None:
        """Let Bindings of these pods fail that a former leader, or a former life of this one, may have on their way."""
        mark = {TERM_ANNOTATION: self._term()}
        await asyncio.gather(*(self._marked(pod, mark) for pod in pods))

    async def _marked(self, pod: Pod, annotations: Mapping[str, str]) -> Pod | None:
        """Annotate a pod, however long that takes. Returns: the pod as it is then; None where it is gone."""
        meta, number = pod.metadata, 0
        body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        while True:
            try:
                found = await self._client.patch(PODS.path(meta.namespace, meta.name), body, Pod)
            except Missing:
                return None
            except KubernetesError:
                again = await self._again(pod)
                if again is not None and again.metadata.uid != meta.uid:
                    return None
                await asyncio.sleep(self._wait_s(number))
                number += 1
                continue
            self._wrote(found)
            return found

    def claims(self, key: ReplicaKey, devices: tuple[int, ...]) -> dict[str, str]:
        """Return what is written on a pod that becomes a replica."""
        found = {REPLICA_ANNOTATION: str(key), CLUSTER_ANNOTATION: self._identity()}
        if devices:
            found[DEVICES_ANNOTATION] = ",".join(map(str, devices))
        return found

    async def _again(self, pod: Pod) -> Pod | None:
        """Return the pod as it is now; None where that cannot be said. A pod that is gone has no uid."""
        try:
            found = await self._client.get(PODS.path(pod.metadata.namespace, pod.metadata.name), Pod)
        except Missing:
            return Pod(Metadata())
        except KubernetesError:
            return None
        self._wrote(found)
        return found

    async def evict(self, pod: Pod, grace_ms: int, why: str, wanted: Callable[[], bool]) -> None:
        """Ask the pod to leave until it does, or until that is no longer wanted; then say on it why.

        Not before: with the eviction the API server puts a reason of its own in the place of any other. The pod is
        given `grace_ms` to save and leave, by its signal. One that has ended meanwhile stays: its owner is to see how
        it ended.
        """
        number, now = 0, pod
        while wanted():
            try:
                await self._evict(now, -(-grace_ms // 1000))
                if why:
                    await self._note_why(pod, why)
                return
            except Missing:
                return
            except Conflict:
                pass  # read it
            except Busy as error:
                await asyncio.sleep(error.retry_after_s or EVICTION_WAIT_S)
            except KubernetesError:
                await asyncio.sleep(self._wait_s(number))
                number += 1
            # An eviction of an outdated version is refused only after it has cost its budget a disruption.
            found = await self._again(pod)
            if found is not None and (found.metadata.uid != pod.metadata.uid or found.over or found.leaving):
                return
            now = found or now

    async def _evict(self, pod: Pod, grace_s: int, *, try_only: bool = False) -> None:
        meta = pod.metadata
        wanted = {"uid": meta.uid} if try_only else as_known(meta)
        options: dict[str, Any] = {"gracePeriodSeconds": grace_s, "preconditions": wanted}
        if try_only:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": options,
        }
        await self._client.write("POST", PODS.path(meta.namespace, meta.name, "eviction"), body, Status)

    async def _note_why(self, pod: Pod, why: str, *, evicted: bool = True) -> None:
        """Say on a pod why it leaves, for its controller and its owner.

        Args:
            evicted: the API server has said since when; else that is now: without a time it would count as long over.
        """
        since = {} if evicted else {"lastTransitionTime": timestamp()}
        condition = {"type": "DisruptionTarget", "status": "True", "reason": PREEMPTED, "message": why, **since}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        try:
            self._wrote(await self._client.patch(path, body, Pod, "strategic"))
        except KubernetesError as error:
            log.info("why a pod leaves could not be written", extra={"pod": pod.key, "problem": error.message})

    async def start(self, workload: Workload) -> str:
        """Let a workload make its pods. Returns: '' once it does, else why it never will."""
        return await self._set_suspended(workload, suspended=False)

    async def suspend(self, workload: Workload, pods: Callable[[], list[Pod]], why: str) -> None:
        """Let a workload's pods leave, and make no others: once the budgets of all of them allow that."""
        number = 0
        while True:
            try:
                for pod in pods():
                    await self._evict(pod, pod.spec.termination_grace_period_seconds, try_only=True)
                break
            except (Missing, Conflict):
                await asyncio.sleep(self._wait_s(0))  # the watch is about to show that it is gone
            except Busy as error:
                await asyncio.sleep(error.retry_after_s or EVICTION_WAIT_S)
            except KubernetesError:
                await asyncio.sleep(self._wait_s(number))
                number += 1
        for pod in pods() if why else ():
            await self._note_why(pod, why, evicted=False)
        await self._set_suspended(workload, suspended=True)

    async def _set_suspended(self, workload: Workload, *, suspended: bool) -> str:
        mark = {"metadata": {"uid": workload.uid, "annotations": {TERM_ANNOTATION: self._term()}}}
        problem = ""
        for number in range(TRIES_MAX):
            try:
                marked = await self._client.patch(workload.path(), mark, AnyWorkload)
                body = {"metadata": as_known(marked.metadata), "spec": {"suspend": suspended}}
                await self._client.patch(workload.path(), body, AnyWorkload)
                return ""
            except (Busy, Conflict, Unavailable) as error:
                problem = error.message
                after_s = error.retry_after_s if isinstance(error, Busy) else 0.0
                await asyncio.sleep(after_s or self._wait_s(number))
            except KubernetesError as error:
                return error.message
        return f"{problem} (tried {TRIES_MAX} times)"

    def _wait_s(self, number: int) -> float:
        return float(min(WAIT_S[1], WAIT_S[0] * 2**number)) * self._draw.uniform(0.5, 1.0)


def _binding(meta: Metadata, node: NodeName, annotations: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            **as_known(meta),
            "annotations": annotations,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def _outcome(pod: Pod, found: Pod, node: NodeName, claims: Mapping[str, str]) -> str | None:
    """Return '' where the pod is bound as wanted, None where it still may be, else why it never will be."""
    spec = found.spec
    if found.metadata.uid != pod.metadata.uid or found.leaving:
        return GONE
    if spec.node_name:
        told = found.metadata.annotations
        ours = spec.node_name == node and all(told.get(name) == text for name, text in claims.items())
        return "" if ours else f"it was bound to {spec.node_name} meanwhile"
    if spec.scheduling_gates or spec.scheduler_name != SCHEDULER:
        return "it may not be scheduled any more"
    return None
