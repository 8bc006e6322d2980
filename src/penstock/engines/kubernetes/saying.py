"""What people read on the objects: why a pod is not placed, as its condition and as events, with numbers.

Writes are few: one for each text that differs, at a bounded rate, the oldest first. What cannot be written is said in
the server's log, and changes no decision.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.core.model.ids import JobId
from penstock.engines.kubernetes.amounts import BadAmount, pod_sums
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.errors import Conflict, KubernetesError
from penstock.engines.kubernetes.binding import PODS
from penstock.engines.kubernetes.events import EVENTS, TEXT_MAX, event
from penstock.engines.kubernetes.gangs.gang import Gang, GangId, Refused
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.nodes import device_names
from penstock.engines.kubernetes.objects.answers import AnyObject
from penstock.engines.kubernetes.objects.common import Metadata, as_known, timestamp
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.server import Outlook, Server
from penstock.engines.kubernetes.tasks import Tasks

log = logging.getLogger(__name__)

WRITES_AT_A_TIME = 4
PAUSE_S = 0.05
"""Between two writes of one writer: at most 80 a second in all."""
LOOK_S = 2.0
"""Gangs that wait are looked at this often."""
FIRST_S, LATER_S = 2.0, 30.0
"""A gang that waits says why after this long, and what has changed about that after this long again."""
GANGS_AT_A_TIME = 8
CAPACITY = "Unschedulable"
"""The reason that autoscalers act on: more nodes would help."""
QUOTA_CODES = frozenset(
    ("quota", "power_cap", "not_lent", "reserve", "admission", "tenant_held", "held", "dependency", "array_turn")
)
"""Codes of explanations for which more nodes would not help."""


class Said(NamedTuple):
    reason: str
    text: str


class Saying:
    """Writes conditions and events. Everything runs on the engine's loop."""

    def __init__(self, client: Client, gangs: Gangs, server: Server, wrote: Any) -> None:
        self._client, self._gangs, self._server, self._wrote = client, gangs, server, wrote
        self._said: dict[str, Said] = {}
        """What stands on pods, by their keys."""
        self._due: dict[str, tuple[Pod, Said]] = {}
        """What is to be written, the oldest first."""
        self._wake = asyncio.Event()
        self._next_s: dict[JobId, float] = {}
        """When each gang that waits is looked at next (of the loop's clock)."""
        self._told: dict[JobId, Said] = {}
        self._refused: dict[GangId, Said] = {}
        self._events = Tasks()

    def refuse(self, pods: Iterable[Pod], refused: Refused) -> None:
        """Say on pods why they are not placed, once for each text."""
        for pod in tuple(pods):
            said = Said(refused.reason, _named(pod, refused)[:TEXT_MAX])
            if self._said.get(pod.key) != said:
                self._said[pod.key] = said
                self._due.pop(pod.key, None)
                self._due[pod.key] = pod, said
                self._wake.set()

    def refuse_gang(self, gang: Gang, refused: Refused) -> None:
        """Say why a gang is not placed: on its pods, and of a workload, which has none yet, by an event."""
        self.refuse(gang.members.values(), refused)
        said = Said(refused.reason, refused.text)
        if gang.workload is not None and self._refused.get(gang.id) != said:
            self._refused[gang.id] = said
            self._events.begin(self._event(gang, refused.reason, refused.text[:TEXT_MAX]))

    def why(self, gang: Gang) -> Said | None:
        """Return why a gang waits, as was said last."""
        told = self._told.get(gang.job_id) if gang.job_id is not None else None
        return told or self._refused.get(gang.id)

    def forget(self, pod_key: str) -> None:
        self._said.pop(pod_key, None)
        self._due.pop(pod_key, None)

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look())
                for _ in range(WRITES_AT_A_TIME):
                    group.create_task(self._write())
        finally:
            self._events.cancel()

    async def _write(self) -> None:
        while True:
            while not self._due:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._due))
            pod, said = self._due.pop(key)
            await self._condition(pod, said)
            await asyncio.sleep(PAUSE_S)

    async def _condition(self, pod: Pod, said: Said) -> None:
        known = any((one.type, one.status) == ("PodScheduled", "False") for one in pod.status.conditions)
        since = {} if known else {"lastTransitionTime": timestamp()}
        condition = {"type": "PodScheduled", "status": "False", "reason": said.reason, "message": said.text, **since}
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": as_known(pod.metadata), "status": {"conditions": [condition]}}
        try:
            try:
                self._wrote(await self._client.patch(path, body, Pod, "strategic"))
            except Conflict:
                found = await self._client.get(path.removesuffix("/status"), Pod)
                if found.metadata.uid != pod.metadata.uid or found.spec.node_name:
                    raise
                self._due.setdefault(pod.key, (found, said))
        except KubernetesError as error:
            if self._said.get(pod.key) == said:
                del self._said[pod.key]
            log.warning("a condition could not be written", extra={"pod": pod.key, "problem": error.message})

    # Why gangs wait.

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = asyncio.get_running_loop().time()
            waiting = self._gangs.waiting()
            self._refused = {name: said for name, said in self._refused.items() if self._gangs.get(name) is not None}
            for job_id in self._next_s.keys() - waiting.keys():
                del self._next_s[job_id]
                self._told.pop(job_id, None)
            for job_id in waiting.keys() - self._next_s.keys():
                self._next_s[job_id] = now_s + FIRST_S
            due = sorted((at, job_id) for job_id, at in self._next_s.items() if at <= now_s)[:GANGS_AT_A_TIME]
            if due:
                asked = [job_id for _, job_id in due]
                self._next_s.update(dict.fromkeys(asked, now_s + LATER_S))
                self._server.outlooks(asked, self._tell)

    def _tell(self, outlooks: Mapping[JobId, Outlook]) -> None:
        for job_id, outlook in outlooks.items():
            gang = self._gangs.of_job(job_id)
            if gang is None or gang.placed:
                continue
            reason = "QuotaExceeded" if outlook.code in QUOTA_CODES else CAPACITY
            text = outlook.text[:TEXT_MAX]
            self.refuse((pod for pod in gang.members.values() if not pod.spec.node_name), Refused(reason, text))
            if self._told.get(job_id) != Said(reason, text):
                self._told[job_id] = Said(reason, text)
                self._events.begin(self._event(gang, reason, text))

    async def _event(self, gang: Gang, reason: str, text: str) -> None:
        """Say on a gang's first pod, or its workload, why it waits."""
        pod = next(iter(gang.members.values()), None)
        workload = gang.workload
        if workload is not None:
            kind, meta = workload.kind, Metadata(workload.name, workload.namespace, workload.uid)
        elif pod is not None:
            kind, meta = PODS, pod.metadata
        else:
            return
        shown = "FailedScheduling" if reason == CAPACITY else reason
        body = event(kind, KINDS.get(kind.plural, "Pod"), meta, shown, text, action="Scheduling")
        try:
            await self._client.write("POST", EVENTS.path(meta.namespace), body, AnyObject)
        except KubernetesError as error:
            log.info("an event could not be written", extra={"gang": gang.label, "problem": error.message})


def _named(pod: Pod, refused: Refused) -> str:
    """Return a text with the names of the pod's device resources, which autoscalers look for."""
    if refused.reason != CAPACITY:
        return refused.text
    try:
        sums = pod_sums(pod)
    except BadAmount:
        return refused.text
    asked = [f"{name} {sums[name]}" for name in device_names(sums) if name not in refused.text]
    return "; ".join((refused.text, *(f"it asks for {one}" for one in asked)))


KINDS = {
    "pods": "Pod", "jobs": "Job", "jobsets": "JobSet", "rayclusters": "RayCluster", "rayjobs": "RayJob",
    "trainjobs": "TrainJob", "elasticjobs": "ElasticJob",
}  # fmt: skip
