"""The status of ElasticJobs: what the log says of each, written where that differs from what stands there."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.core.model.ids import JobId
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.gangs.gang import Gang
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.gangs.workloads import ELASTIC_JOBS
from penstock.engines.kubernetes.names import ELASTIC_JOB_LABEL
from penstock.engines.kubernetes.objects.penstock import ElasticJob, ElasticJobStatus, Phase
from penstock.engines.kubernetes.operator.making import Objects
from penstock.engines.kubernetes.operator.statuses import Statuses, Told, alike, conditions
from penstock.engines.kubernetes.saying import Said, Saying
from penstock.engines.kubernetes.server import Seen, Server

LOOK_S = 0.5
"""ElasticJobs are looked at this often, `LOOKS_MAX` at a time."""
LOOKS_MAX = 1_000
PHASES: Mapping[str, Phase] = {
    "waiting": "Pending", "starting": "Starting", "running": "Running", "stopping": "Stopping",
    "succeeded": "Succeeded", "failed": "Failed", "cancelled": "Cancelled",
}  # fmt: skip


class Looked(NamedTuple):
    """All that a status follows from."""

    one: ElasticJob
    gang: Gang
    seen: Seen | None
    why: Said | None
    changing: bool


class Telling:
    """Writes statuses. Everything runs on the engine's loop."""

    def __init__(self, client: Client, gangs: Gangs, server: Server, saying: Saying, objects: Objects) -> None:
        self._gangs, self._server, self._saying = gangs, server, saying
        self._objects = objects
        self._statuses = Statuses(client)
        self._rest: list[tuple[str, str]] = []
        """ElasticJobs that are looked at before it begins with the first one again."""
        self._looked: dict[tuple[str, str], Looked] = {}
        """What was looked at last: as long as nothing of it changes, the status is as it was."""
        self._asked: set[JobId] = set()
        """Jobs of which the end is being looked up."""

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                self._turn()
        finally:
            self._statuses.close()

    def _turn(self) -> None:
        objects = self._objects()
        if not self._rest:
            self._rest = [key for key, one in objects.items() if not one.over]
            for key in self._looked.keys() - objects.keys():
                del self._looked[key]
        for key in self._rest[:LOOKS_MAX]:
            one = objects.get(key)
            if one is not None and not one.over and not self._statuses.busy(one.metadata.uid):
                self._look(key, one)
        del self._rest[:LOOKS_MAX]

    def _look(self, key: tuple[str, str], one: ElasticJob) -> None:
        gang = self._gangs.get((key[0], f"elasticjob/{key[1]}"))
        if gang is None or gang.workload is None or gang.workload.uid != one.metadata.uid:
            return
        if gang.ended_job is not None:
            self._ask_end(gang, gang.ended_job)
            return
        seen = self._server.seen(gang.job_id) if gang.job_id is not None else None
        if gang.job_id is not None and seen is None:
            if not gang.placed and not gang.asked:
                self._gangs.reform(gang)  # it was cancelled while it waited
            return
        looked = Looked(one, gang, seen, self._saying.why(gang), gang.edited or gang.renewed)
        if self._statuses.full or self._looked.get(key) == looked:
            return
        self._looked[key] = looked
        wanted = self._status(one, gang, seen)
        if not alike(wanted, one.status):
            self._statuses.write(ELASTIC_JOBS, one, wanted, lambda: self._forget(key))

    def _forget(self, key: tuple[str, str]) -> None:
        self._looked.pop(key, None)

    def _status(self, one: ElasticJob, gang: Gang, seen: Seen | None) -> ElasticJobStatus:
        meta, status = one.metadata, one.status
        phase: Phase = PHASES[seen.phase] if seen is not None else "Pending"
        if phase == "Pending" and one.spec.suspend:
            phase = "Suspended"
        current = not gang.edited and not gang.renewed and gang.workload is not None and gang.workload.elastic
        return ElasticJobStatus(
            phase=phase,
            job=gang.job_id or status.job,
            cluster=self._server.identity() if gang.job_id else status.cluster,
            attempt=seen.attempt if seen is not None else status.attempt,
            replicas=seen.replicas if seen is not None else 0,
            ready_replicas=seen.running if seen is not None else 0,
            selector=f"{ELASTIC_JOB_LABEL}={meta.name}",
            observed_generation=meta.generation if current else status.observed_generation,
            conditions=conditions(one, {"Placed": self._placed(gang, phase, seen)}),
        )

    def _placed(self, gang: Gang, phase: Phase, seen: Seen | None) -> Told:
        """Return the condition that says whether it has places, and why not."""
        if phase == "Suspended":
            return Told("False", "Suspended", "spec.suspend is true")
        if phase != "Pending":
            assert seen is not None
            return Told("True", phase, f"{seen.replicas} of {_range(gang)} replicas hold places, {seen.running} run")
        why = self._saying.why(gang) or Said("Waiting", "it is about to be planned")
        ended = f"; its last attempt ended: {seen.text}" if seen is not None and seen.attempt and seen.text else ""
        return Told("False", why.reason, why.text + ended)

    def _ask_end(self, gang: Gang, job_id: JobId) -> None:
        if job_id in self._asked:
            return
        self._asked.add(job_id)

        def told(seen: Seen | None) -> None:
            self._asked.discard(job_id)
            one = self._objects().get((gang.namespace, gang.name.partition("/")[2]))
            if seen is None or one is None or gang.ended_job != job_id or one.over:
                return  # it is asked again
            elastic = gang.elastic
            if seen.phase == "cancelled" and elastic is not None and not elastic.observed:
                gang.ended_job, gang.left_job = None, job_id  # for its new spec, by which it has to wait anew
                self._gangs.mark(gang)
                return
            if not self._statuses.busy(one.metadata.uid):
                self._statuses.write(ELASTIC_JOBS, one, _last(one, seen, job_id, self._server.identity()))

        self._server.ended(job_id, told)


def _range(gang: Gang) -> str:
    elastic, most = gang.elastic, len(gang.slots)
    return f"{elastic.least} to {most}" if elastic is not None and elastic.least < most else str(most)


def _last(one: ElasticJob, seen: Seen, job_id: JobId, cluster: str) -> ElasticJobStatus:
    """Return the status of one whose job has ended."""
    phase = PHASES[seen.phase]
    told = {
        "Placed": Told("False", phase, "it has ended"),
        "Finished": Told("True", phase, seen.text or "all ranks have succeeded"),
    }
    return msgspec.structs.replace(
        one.status, phase=phase, job=job_id, cluster=cluster, attempt=seen.attempt, replicas=0, ready_replicas=0,
        conditions=conditions(one, told),
    )  # fmt: skip
