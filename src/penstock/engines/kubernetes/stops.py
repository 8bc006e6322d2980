"""Orders to stop, carried out: a pod is evicted, a workload is suspended, once budgets let the whole gang leave."""

import asyncio
from collections.abc import Callable

from penstock.core.messages.orders import StopReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import JobId
from penstock.engines.kubernetes.binding import EVICTION_WAIT_S, Binder
from penstock.engines.kubernetes.gangs.gang import Gang
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import OnNode
from penstock.engines.kubernetes.server import Server
from penstock.engines.kubernetes.tasks import Tasks


class Stops:
    """Evicts and suspends. Everything runs on the engine's loop."""

    def __init__(self, server: Server, gangs: Gangs, binder: Binder, judging: Judging, tasks: Tasks) -> None:
        self._server, self._gangs, self._binder, self._judging, self._tasks = server, gangs, binder, judging, tasks

    def suspend(self, gang: Gang, key: ReplicaKey) -> None:
        """Suspend a gang's workload, once for each attempt."""
        if gang.suspended != key.attempt:
            gang.suspended = key.attempt
            self._tasks.begin(self._end_workload(gang, key.job_id))

    async def _end_workload(self, gang: Gang, job_id: JobId) -> None:
        def pods() -> list[Pod]:
            return [pod for pod in gang.members.values() if pod.spec.node_name and not pod.over and not pod.leaving]

        await self._while_guarded(gang, lambda: gang.workload is not None)
        if gang.workload is not None:  # else it was deleted: its pods leave with it
            await self._binder.suspend(gang.workload, pods, self._server.stop_text(job_id))

    def evict(self, on: OnNode, pod: Pod, order: StopReplica) -> None:
        """Evict a pod, unless that is under way."""
        if not pod.leaving and order.key not in on.stopping:
            on.stopping.add(order.key)
            self._tasks.begin(self._evict(on, pod, order))

    async def _evict(self, on: OnNode, pod: Pod, order: StopReplica) -> None:
        def wanted() -> bool:
            now = on.pods.get(pod.key)
            return now is not None and now.metadata.uid == pod.metadata.uid and not now.leaving

        try:
            why = self._server.stop_text(order.key.job_id) or order.reason
            gang = self._gangs.of_job(order.key.job_id)
            if gang is not None and gang.size > 1:
                await self._while_guarded(gang, wanted)
            await self._binder.evict(pod, order.grace_ms, why, wanted)
            on.evicted.add(order.key)
        finally:
            on.stopping.discard(order.key)

    async def _while_guarded(self, gang: Gang, wanted: Callable[[], bool]) -> None:
        """Wait until budgets let all pods of a gang leave: none of it leaves before."""
        while wanted() and self._judging.guarded(gang):
            await asyncio.sleep(EVICTION_WAIT_S)
