"""The schedules of all users, and which of their runs are not over: a fold of the log."""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import ScheduleFired, SchedulePaused, ScheduleRemoved, ScheduleResumed, ScheduleSet
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Job
from penstock.core.model.schedule_events import ScheduleEvent
from penstock.core.model.schedules import RUNS_SHOWN, Schedule, ScheduledRun

Key = tuple[UserName, str]


class Schedules:
    """All schedules by owner and name. Runs outlive their schedule: one set under its name goes on after them."""

    def __init__(self, schedules: Iterable[Schedule] = (), jobs: Iterable[Job] = ()) -> None:
        self.by_key: dict[Key, Schedule] = {}
        self._by_owner: dict[UserName, dict[str, Schedule]] = {}
        self.live: dict[Key, dict[JobId, set[JobId]]] = {}
        """By schedule: the live jobs of each run that has any, by its first job."""
        self._soonest_ms: int | None = None
        for one in schedules:
            self._set(one)
        for job in jobs:
            self.job_submitted(job)

    def apply(self, event: ScheduleEvent, time_ms: int) -> None:
        self._soonest_ms = None
        if isinstance(event, ScheduleSet):
            self._set(_carried_on(event.schedule, self.by_key.get(event.schedule.key)))
            return
        key = event.owner, event.name
        one = self.by_key[key]
        match event:
            case ScheduleRemoved():
                del self.by_key[key]
                own = self._by_owner[event.owner]
                del own[event.name]
                if not own:
                    del self._by_owner[event.owner]
            case SchedulePaused():
                self._set(replace(one, paused=True, paused_by=event.by, paused_why=event.reason))
            case ScheduleResumed():
                unpaused = replace(one, paused=False, paused_by=UserName(""), paused_why="")
                self._set(replace(unpaused, next_ms=event.next_ms))
            case ScheduleFired():
                self._set(_fired(one, event, time_ms))
            case _:
                assert_never(event)

    def job_submitted(self, job: Job) -> None:
        if job.scheduled is not None:
            runs = self.live.setdefault((job.user, job.scheduled.schedule), {})
            runs.setdefault(job.scheduled.first, set()).add(job.id)

    def job_over(self, job: Job) -> None:
        if job.scheduled is not None:
            key, first = (job.user, job.scheduled.schedule), job.scheduled.first
            runs = self.live[key]
            runs[first].discard(job.id)
            if not runs[first]:
                del runs[first]
            if not runs:
                del self.live[key]

    def due(self, now_ms: int, most: int) -> list[Schedule]:
        """Return up to `most` schedules that are due, the longest due first."""
        if self._soonest_ms is None:
            self._soonest_ms = min((one.due_ms for one in self.by_key.values() if one.due_ms), default=0)
        if not self._soonest_ms or self._soonest_ms > now_ms:
            return []
        found = [one for one in self.by_key.values() if 0 < one.due_ms <= now_ms]
        return sorted(found, key=lambda one: (one.due_ms, one.key))[:most]

    def of_user(self, user: UserName) -> list[Schedule]:
        """Return a user's schedules. Any thread."""
        return list(self._by_owner.get(user, {}).values())

    def live_runs(self, key: Key) -> list[tuple[JobId, set[JobId]]]:
        """Return the runs of a schedule that are not over, by their first jobs, with their live jobs. Any thread."""
        return list(self.live.get(key, {}).copy().items())

    def of_the_gone(self, before: ClusterConfig, after: ClusterConfig) -> list[Schedule]:
        """Return schedules of users and tenants that were declared before and are not after, unless they are paused."""
        tenants = {tenant.name for tenant in before.tenants} - {tenant.name for tenant in after.tenants}
        users = before.user_by_name.keys() - after.user_by_name.keys()
        gone = (one for one in self.by_key.values() if one.tenant in tenants or one.owner in users)
        return [one for one in gone if not one.paused]

    def _set(self, one: Schedule) -> None:
        self.by_key[one.key] = one
        self._by_owner.setdefault(one.owner, {})[one.name] = one


def _carried_on(one: Schedule, former: Schedule | None) -> Schedule:
    if former is None:
        return one
    return replace(
        one,
        runs=former.runs,
        run_total=former.run_total,
        skipped_total=former.skipped_total,
        skipped=former.skipped,
        skipped_ms=former.skipped_ms,
    )


def _fired(one: Schedule, event: ScheduleFired, time_ms: int) -> Schedule:
    one = replace(one, next_ms=event.next_ms, skipped_total=one.skipped_total + event.missed + (not event.first))
    if event.skipped:
        one = replace(one, skipped=event.skipped, skipped_ms=time_ms)
    if not event.first:
        return one
    run = ScheduledRun(event.due_ms, event.first, event.count, event.by)
    return replace(one, runs=(*one.runs, run)[-RUNS_SHOWN:], run_total=one.run_total + 1)
