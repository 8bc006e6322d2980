"""Requests of users, and the answers."""

import msgspec

from penstock.core.model.actions import ActionRefusal, JobAction, JobChange
from penstock.core.model.errors import Problem
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, UserName
from penstock.core.model.new_jobs import NewJob as NewJob


class Submit(msgspec.Struct, frozen=True):
    jobs: tuple[NewJob, ...]
    user: UserName
    idempotency_key: str = ""
    digest: str = ""
    account: str = ""
    """The account that runs the jobs on the machines; empty: the agents'."""
    delegated: bool = False
    """By a token that another user issued for the user: the jobs get none of the user's own secrets."""
    administrator: bool = False
    """The caller administers the cluster: fair shares do not apply."""
    log_bytes: int = 0
    """Bytes that it adds to the log, where an earlier check counted them; 0: they are counted where jobs are made."""
    config_seq: int = -1
    """The record of the configuration that its names were checked against; -1 where they were not."""
    seen: bool = False
    """The jobs wait for another scheduler: they are taken as they are, whether or not they could ever start here."""


class ChangeJobs(msgspec.Struct, frozen=True):
    """One action on each of these jobs, all of which the caller may act on.

    Each job is changed or refused independently of the others.
    """

    action: JobAction
    job_ids: tuple[JobId, ...]
    by: UserName
    change: JobChange = JobChange()
    """For `edit`: what changes."""
    administrator: bool = False
    """As of `Submit`: edits move jobs into other queues."""
    versions: tuple[str, ...] = ()
    """Refused unless the first job is one of these (`core.lifecycle.versions`); empty: whatever it is."""


class JobsChanged(msgspec.Struct, frozen=True):
    """The jobs that the action changed, and why it left each of the others as it was."""

    changed: tuple[JobId, ...]
    unchanged: tuple[tuple[JobId, ActionRefusal], ...] = ()


class SeenStart(msgspec.Struct, frozen=True):
    """Another scheduler has placed a job that waits: by rank, on which nodes, and what it calls the replicas."""

    job_id: JobId
    scheduler: str
    nodes: tuple[NodeName, ...]
    names: tuple[str, ...]


class StartNoted(msgspec.Struct, frozen=True):
    """The start is in the log: with this number, and these devices by rank."""

    attempt: AttemptNumber
    devices: tuple[tuple[int, ...], ...]


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was done; `problems` has all the reasons. `code` maps to an HTTP status."""

    code: str
    problems: tuple[Problem, ...]


class Submitted(msgspec.Struct, frozen=True):
    job_ids: tuple[JobId, ...]
    repeated: bool = False
    """The same request came before under this key; these are the jobs it made then."""
    warnings: tuple[str, ...] = ()
    """What its submitter should know, for people."""


JOBS_MAX = 100_000
