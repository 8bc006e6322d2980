"""Requests about schedules, and the answer."""

import msgspec

from penstock.core.model.ids import UserName
from penstock.core.model.schedules import Schedule, ScheduleAction, ScheduledRun


class SetSchedule(msgspec.Struct, frozen=True):
    """Set a schedule, or change the owner's one of that name."""

    schedule: Schedule
    administrator: bool = False
    """The caller administers the cluster: it has no share, and may use the reserve."""


class ActOnSchedule(msgspec.Struct, frozen=True):
    """Pause a schedule, resume it, or start a run out of turn."""

    owner: UserName
    name: str
    action: ScheduleAction
    by: UserName


class RemoveSchedule(msgspec.Struct, frozen=True):
    owner: UserName
    name: str
    by: UserName


ScheduleRequest = SetSchedule | ActOnSchedule | RemoveSchedule


class ScheduleDone(msgspec.Struct, frozen=True):
    """It is in the log. `found` is False when there was no such schedule."""

    found: bool = True
    run: ScheduledRun | None = None
    """What `run` started."""
