"""The pods of ElasticJobs, made when the server starts their replicas.

Nothing is made before the status names the job: whatever is lost after that, a restart asks how that very job ended,
and never submits another one.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import Busy, Conflict, KubernetesError, Unavailable
from penstock.engines.kubernetes.binding import PODS, AnyWorkload
from penstock.engines.kubernetes.gangs.gang import Gang, is_of
from penstock.engines.kubernetes.gangs.workloads import ELASTIC_JOBS
from penstock.engines.kubernetes.objects.answers import AnyObject
from penstock.engines.kubernetes.objects.common import as_known
from penstock.engines.kubernetes.objects.penstock import ElasticJob
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.operator.pods import name_of, pod_of, service_of
from penstock.engines.kubernetes.tasks import Tasks

log = logging.getLogger(__name__)

SERVICES = Kind("", "v1", "services")
WAIT_S = (0.1, 5.0)
"""After the first try, doubled with each; and the longest."""
BEGUN_KEPT = 1_000
"""Jobs of which is known that their last attempt has all that it needs: others ask once more."""
GONE = "its ElasticJob is gone"
Objects = Callable[[], Mapping[tuple[str, str], ElasticJob]]
"""The ElasticJobs of the cluster, by namespace and name."""


class Maker:
    """Makes pods and services. Everything runs on the engine's loop.

    Args:
        wrote: gets each pod that was made.
        identity: gives the identity of the log in which was decided.
        pods: the pods of the cluster, by namespace and name.
    """

    def __init__(
        self,
        client: Client,
        objects: Objects,
        pods: Mapping[tuple[str, str], Pod],
        wrote: Callable[[Pod], None],
        identity: Callable[[], str],
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._objects, self._pods, self._wrote, self._identity = client, objects, pods, wrote, identity
        self._draw = draw or random.Random()  # noqa: S311 - spreads requests in time
        self._begun: dict[JobId, tuple[AttemptNumber, asyncio.Future[str]]] = {}
        """What all pods of an attempt need first, by job: under way, or done."""
        self._tasks = Tasks()

    def close(self) -> None:
        self._tasks.cancel()

    async def make(self, gang: Gang, order: StartReplica, wanted: Callable[[], bool]) -> str:
        """Make the pod of a replica. Returns: '' once it is there or no longer wanted, else why it never will be."""
        assert gang.workload is not None
        key = gang.workload.namespace, gang.workload.name
        one = self._objects().get(key)
        if one is None or one.metadata.uid != gang.workload.uid:
            return GONE
        problem = await self._first(one, order, wanted)
        if problem:
            return problem
        try:
            body = pod_of(one, order)
        except msgspec.ValidationError as error:
            return str(error)
        return await self._create(PODS.path(key[0]), body, wanted, order.key, one.metadata.uid)

    async def _first(self, one: ElasticJob, order: StartReplica, wanted: Callable[[], bool]) -> str:
        """Name the job in the status, and make the service: once for each attempt."""
        job_id, attempt = order.key.job_id, order.key.attempt
        known = self._begun.get(job_id)
        if known is None or known[0] != attempt:
            for other in [other for other, (_, done) in self._begun.items() if done.done()][:-BEGUN_KEPT]:
                del self._begun[other]
            done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._begun[job_id] = known = attempt, done
            self._tasks.begin(self._prepare(one, order, wanted, done))
        return await asyncio.shield(known[1])

    async def _prepare(
        self, one: ElasticJob, order: StartReplica, wanted: Callable[[], bool], done: "asyncio.Future[str]"
    ) -> None:
        problem = "it was stopped"
        try:
            problem = await self._name_job(one, order.key, wanted)
            if not problem:
                problem = await self._create(SERVICES.path(one.metadata.namespace), service_of(one), wanted)
        finally:
            if problem:
                self._begun.pop(order.key.job_id, None)  # the next order tries it again
            if not done.done():
                done.set_result(problem)

    async def _name_job(self, one: ElasticJob, key: ReplicaKey, wanted: Callable[[], bool]) -> str:
        cluster = self._identity()
        if (one.status.job, one.status.cluster) == (key.job_id, cluster):
            return ""
        meta, version = one.metadata, one.metadata.resource_version

        async def name() -> None:
            nonlocal version
            body = {"metadata": {"resourceVersion": version}, "status": {"job": key.job_id, "cluster": cluster}}
            try:
                await self._client.patch(ELASTIC_JOBS.path(meta.namespace, meta.name, "status"), body, AnyWorkload)
            except Conflict as error:
                now = self._objects().get((meta.namespace, meta.name))
                if now is None or now.metadata.uid != meta.uid:
                    raise Foreign(GONE) from None
                version = now.metadata.resource_version
                raise Unavailable(error.message) from None

        return await self._until_done(name, wanted)

    async def _create(
        self,
        path: str,
        body: dict[str, Any],
        wanted: Callable[[], bool],
        key: ReplicaKey | None = None,
        uid: str = "",
    ) -> str:
        """Create an object, unless it is there: a pod as this replica, anything else with the same owner."""

        async def create() -> None:
            try:
                if key is not None:
                    self._wrote(await self._client.write("POST", path, body, Pod))
                else:
                    await self._client.write("POST", path, body, AnyObject)
            except Conflict:
                await self._settle(f"{path}/{body['metadata']['name']}", body, key, uid)

        return await self._until_done(create, wanted)

    async def _settle(self, path: str, body: dict[str, Any], key: ReplicaKey | None, uid: str) -> None:
        """Settle whose an object is that is there already. Raises: KubernetesError."""
        name = body["metadata"]["name"]
        if key is None:
            found = await self._client.get(path, AnyObject)
            owner = found.metadata.controller
            if owner is None or owner.uid != body["metadata"]["ownerReferences"][0]["uid"]:
                raise Foreign(f"service {name} is there already, and not of this ElasticJob")
            return
        pod = await self._client.get(path, Pod)
        controller = pod.metadata.controller
        if controller is None or controller.uid != uid or not is_of(pod, key):
            if pod.leaving:
                raise Unavailable(f"pod {name} of another object is leaving")
            raise Foreign(f"pod {name} is there already, and not of this ElasticJob")
        self._wrote(pod)

    async def _until_done(self, work: Callable[[], Any], wanted: Callable[[], bool]) -> str:
        number, problem = 0, "it was stopped"
        while wanted():
            try:
                await work()
                return ""
            except (Busy, Unavailable) as error:
                wait_s = error.retry_after_s if isinstance(error, Busy) else 0.0
                await asyncio.sleep(wait_s or self._wait_s(number))
            except KubernetesError as error:
                return error.message
            except Foreign as error:
                return str(error)
            number += 1
        return problem

    def sweep(self, gang: Gang) -> None:
        """Remove the pods of a gang without places that were never bound: their replicas are not to start any more."""
        for pod in gang.members.values():
            if not pod.spec.node_name and not pod.leaving:
                self._tasks.begin(self._remove(pod))

    def forget_old(self, gang: Gang, key: ReplicaKey) -> None:
        """Remove what is left of the attempt before the last one: the last one's pods are kept, for their output."""
        assert gang.workload is not None
        if key.rank != 0 or key.attempt < 3:
            return
        for rank in range(len(gang.slots)):
            name = name_of(gang.workload.name, key.attempt - 2, rank)
            pod = self._pods.get((gang.workload.namespace, name))
            owner = pod.metadata.controller if pod is not None else None
            if pod is not None and pod.over and owner is not None and owner.uid == gang.workload.uid:
                self._tasks.begin(self._remove(pod))

    async def _remove(self, pod: Pod) -> None:
        path = PODS.path(pod.metadata.namespace, pod.metadata.name)
        body = {"preconditions": as_known(pod.metadata)}
        try:
            await self._client.write("DELETE", path, body, AnyObject)
        except KubernetesError as error:
            log.info("a pod could not be removed", extra={"pod": pod.key, "problem": error.message})

    def _wait_s(self, number: int) -> float:
        return float(min(WAIT_S[1], WAIT_S[0] * 2**number)) * self._draw.uniform(0.5, 1.0)


class Foreign(Exception):
    """An object of this name exists and has another owner."""
