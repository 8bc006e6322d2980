"""Requests of users, and the answers."""

import msgspec

from penstock.core.model.dependencies import DependencyKind
from penstock.core.model.errors import Problem
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import JobSpec


class NewJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One checked entry of a submit request; dependencies may name other entries of the same request."""

    spec: JobSpec
    array: int = 0
    """0 for a plain job, else how many jobs this entry stands for."""
    after_names: tuple[tuple[str, DependencyKind], ...] = ()
    field: str = ""
    """Path of the entry in the request, for error messages."""

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


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was done; `problems` has all the reasons. `code` maps to an HTTP status."""

    code: str
    problems: tuple[Problem, ...]


class Submitted(msgspec.Struct, frozen=True):
    job_ids: tuple[JobId, ...]
    repeated: bool = False
    """The same request came before under this key; these are the jobs it made then."""


JOBS_MAX = 100_000
