"""Pods of a gang that claim something are bound once what all of them claim is ready: none of them runs in vain.

Pods that a controller makes one after the other wait for those that are there: some controllers make the next one once
the one before runs.
"""

import asyncio
from collections.abc import Callable

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.engines.kubernetes.gangs.gang import Gang, pods_of
from penstock.engines.kubernetes.objects.pods import Pod

LOOK_S = 0.5
"""Whether a start is still wanted is looked at this often."""


def claims_something(pod: Pod) -> bool:
    """Return whether a pod uses an object that may have to be made ready for it."""
    volumes = any(one.persistent_volume_claim or one.ephemeral for one in pod.spec.volumes)
    return volumes or bool(pod.spec.resource_claims)


class _Start(msgspec.Struct):
    """The start of one attempt."""

    attempt: AttemptNumber
    ranks: set[int]
    """Those that are not ready yet."""
    all_ready: asyncio.Event
    failed: bool = False


class Together:
    """Starts of gangs. Everything runs on the engine's loop."""

    def __init__(self) -> None:
        self._starts: dict[JobId, _Start] = {}

    def begin(self, gang: Gang, key: ReplicaKey) -> None:
        """Note that the start of a replica begins."""
        start = self._of(key)
        if start is None:
            if not any(map(claims_something, pods_of(gang))):
                return
            start = self._starts[key.job_id] = _Start(key.attempt, set(), asyncio.Event())
            if gang.workload is None:
                start.ranks.update(rank for rank, slot in enumerate(gang.slots) if _waits(gang.members.get(slot.pod)))
        start.ranks.add(key.rank)
        start.all_ready.clear()

    def fail(self, key: ReplicaKey) -> None:
        """Note that a replica is not started: the others are not to start either, as far as they were not yet."""
        start = self._of(key)
        if start is not None:
            start.failed = True
            start.all_ready.set()

    def leave(self, key: ReplicaKey) -> None:
        """Note that the others wait for a replica no more: it is ready, or ended well before it started."""
        start = self._of(key)
        if start is not None:
            start.ranks.discard(key.rank)
            if not start.ranks:
                start.all_ready.set()

    def wanted(self, key: ReplicaKey) -> bool:
        """Return whether no other replica of an attempt has failed to start."""
        start = self._of(key)
        return start is None or not start.failed

    async def ready(self, key: ReplicaKey, wanted: Callable[[], bool]) -> None:
        """Note that all that a replica claims is ready. Returns once that is so of the others, or it is not wanted."""
        start = self._of(key)
        if start is None:
            return
        self.leave(key)
        while wanted() and not start.all_ready.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await start.all_ready.wait()
            except TimeoutError:
                continue

    def forget(self, job_id: JobId) -> None:
        """Forget a job, or an attempt that is over: who waits for the others does so no more."""
        start = self._starts.pop(job_id, None)
        if start is not None:
            start.all_ready.set()

    def _of(self, key: ReplicaKey) -> _Start | None:
        start = self._starts.get(key.job_id)
        return start if start is not None and start.attempt == key.attempt else None


def _waits(pod: Pod | None) -> bool:
    return pod is not None and not pod.spec.node_name and not pod.leaving
