"""The cluster's identity, and the marks of jobs' folders that follow from it.

Theory. Numbers of jobs name a job within one log only: another log in the same data folder, and a log that was restored
from a backup, give them out again. So a folder carries a mark: the identity of the log, and when its job was submitted.
The identity is a digest of the log's beginning, so that every copy of a log has the same, also one of before there were
marks. Two jobs of one number in one log of which one was lost with later records were submitted at different times.

Folders of versions without marks have none. They can only be of jobs that were submitted to such a version.
"""

import hashlib

import msgspec

from penstock.core.model.events import LeaderElected, Record
from penstock.core.model.jobs import Job

LENGTH = 16


class Identity(msgspec.Struct, frozen=True):
    """What the fold knows of the cluster's identity."""

    cluster: str = ""
    """The same for all terms of a log; empty before the first term of a version that has it."""
    since_ms: int = 0
    """Since when every term was of a version that marks folders (unix ms)."""
    shadow: bool = False
    """The log is of a server that only watches other schedulers."""

    def after(self, event: LeaderElected, time_ms: int) -> "Identity":
        """Return the identity from the beginning of a term on."""
        if not event.cluster:
            return Identity(self.cluster)
        return Identity(event.cluster, self.since_ms or time_ms, event.shadow)

    def mark(self, job: Job) -> str:
        """Return the mark of a job's folder, of letters, digits and `-`; '' where the identity is not known."""
        return f"{self.cluster}-{job.submitted_ms}" if self.cluster else ""

    def may_be_unmarked(self, job: Job) -> bool:
        """Return whether a folder without a mark may be the job's: earlier attempts ran under a former version."""
        return job.submitted_ms < self.since_ms and job.last_attempt > 1


def identity_of(first: Record) -> str:
    """Return the identity of a log by its first record."""
    event = first.event
    server = event.server if isinstance(event, LeaderElected) else ""
    return begun_by(server, first.time_ms)


def begun_by(server: str, time_ms: int) -> str:
    """Return the identity of a log that a server began at a time (unix ms)."""
    return hashlib.sha256(f"{time_ms} {server}".encode()).hexdigest()[:LENGTH]
