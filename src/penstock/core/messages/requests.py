"""Requests of users, and the answers."""

from typing import Literal

import msgspec

from penstock.core.model.actions import ActionRefusal, JobAction, JobChange
from penstock.core.model.dependencies import DependencyKind
from penstock.core.model.errors import Problem
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, UserName
from penstock.core.model.jobs import JobSpec


class NewJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One checked entry of a submit request; dependencies may name other entries of the same request."""

    spec: JobSpec
    array: int = 0
    """0 for a plain job, else how many jobs this entry stands for."""
    after_names: tuple[tuple[str, DependencyKind], ...] = ()
    field: str = ""
    """Path of the entry in the request, for error messages."""
    unnamed: tuple[Literal["tenant", "queue"], ...] = ()
    """What the entry does not name: defaults of the user and of the cluster are to be filled in."""
    array_first: int = 0
    """The index of the array's first job."""
    array_step: int = 1
    held: bool = False
    """It waits until it is released."""

    @property
    def count(self) -> int:
        return max(1, self.array)


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


JOBS_MAX = 100_000
