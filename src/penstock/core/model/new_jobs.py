"""Jobs that are asked for, and do not exist yet."""

from typing import Literal

import msgspec

from penstock.core.model.dependencies import DependencyKind
from penstock.core.model.jobs import JobSpec
from penstock.core.model.schedule_rule import ScheduleRule


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
    schedule: ScheduleRule | None = None
    """When such jobs are to be submitted; None: now."""

    @property
    def count(self) -> int:
        return max(1, self.array)
