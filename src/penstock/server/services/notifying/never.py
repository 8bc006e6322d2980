"""Which jobs can never start: not an event of the log, so it is looked for now and then."""

from collections.abc import Iterable

from penstock.core.explain.notices import JobFacts
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.model.notifications import NOTHING
from penstock.core.state.state import State
from penstock.core.status.alerts import Never, empty_cluster, never_start
from penstock.server.services.notifying.places import targets_of

LOOK_EVERY_MS = 60_000
EVENT = "never"
_PASSING = frozenset({"nodes_away"})
"""Nodes that are lost or closed come back: nobody is woken for that."""


class NeverWatch:
    """Finds such jobs of users who want to hear of them, each once."""

    def __init__(self, said: Iterable[JobId] = ()) -> None:
        self.said = set(said)
        self._due_ms = 0

    def due(self, now_ms: int) -> bool:
        """Return whether it is time to look, and take note of it."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + LOOK_EVERY_MS
        return True

    def look(self, state: State, now_ms: int) -> list[tuple[JobFacts, Never]]:
        """Return the jobs that were not said to be so before, with the first reason. For a thread."""
        self.said.intersection_update(list(state.jobs))
        wanted = {}
        for job in list(state.jobs.values()):
            if job.state != "waiting" or job.id in self.said or (NOTHING in job.spec.notify and not job.spec.notify_to):
                continue
            if any(targets_of(_facts(job), EVENT, state.subscriptions)):
                wanted[job.id] = job
        found: dict[JobId, tuple[JobFacts, Never]] = {}
        if wanted:
            for job_ids, never in never_start(wanted, state.config, empty_cluster(state, now_ms)):
                for job_id in job_ids if never.code not in _PASSING else ():
                    found.setdefault(job_id, (_facts(wanted[job_id]), never))
        self.said.update(found)
        return list(found.values())


def _facts(job: Job) -> JobFacts:
    return JobFacts(job.id, job.spec, job.user, job.array_id, job.array_index, job.delegated)
