"""Decisions about schedules: set, paused, removed, due.

A run is decided where the time is known, in one group of events with its jobs: `JobSubmitted` for each, then
`ScheduleFired` with the time at which the schedule is due next. So a time that is due is never lost and never used
twice, whichever server leads; and rights, quotas and names are those of the moment of the run.
"""

from typing import Protocol

from msgspec.structs import replace

from penstock.core.lifecycle.asking import name_problems
from penstock.core.lifecycle.requests import accept, never_served, over_bounds, submit_problems
from penstock.core.lifecycle.size import BOUNDS, weight_of
from penstock.core.lifecycle.thresholds import too_many
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import NewJob, Refusal, Submit
from penstock.core.messages.schedules import ActOnSchedule, RemoveSchedule, ScheduleDone, ScheduleRequest, SetSchedule
from penstock.core.model.access import submits_as
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem
from penstock.core.model.events import ScheduleFired, SchedulePaused, ScheduleRemoved, ScheduleResumed, ScheduleSet
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Dependency, Scheduled
from penstock.core.model.quantities import format_duration, format_time
from penstock.core.model.schedule_rule import ScheduleRule
from penstock.core.model.schedules import Schedule, ScheduledRun

OWN_MAX = 50
"""Of one user."""
SCHEDULES_MAX = 2_000
RESERVE = 200
"""Beyond that, for administrators."""
JOBS_MAX = 10_000
"""Of one run."""
BYTES_PER_MINUTE = 65_536
"""A run may add this much to the log for each minute until the next."""
BYTES_MAX = 8 * 2**20
"""Of one run."""
KEPT_BYTES_MAX = 65_536
"""The jobs of a schedule as they are kept with it."""
RUNS_LIVE_MAX = 100
"""Runs of one schedule that are not over; of more than that, none is started."""
CATCH_UP_MAX = 100
"""Missed times that are made up for, or counted: the latest."""
ON_TIME_MS = 60_000
"""A run that starts within this time of its due time is not late: a server takes over in less."""
FIRED_AT_ONCE = 20
JOBS_AT_ONCE = 10_000
"""Jobs of all schedules that are submitted in one group, unless the first alone has more."""
TEXT_MAX = 500
NOBODY = UserName("")


class Times(Protocol):
    """A calendar: when a rule is due (unix ms). Its bounds `start_ms` and `end_ms` count."""

    def following(self, rule: ScheduleRule, after_ms: int) -> int:
        """Return the first time after `after_ms`; 0: never."""

    def passed(self, rule: ScheduleRule, since_ms: int, until_ms: int, most: int) -> tuple[int, ...]:
        """Return the times in [since_ms, until_ms], ascending, of more than `most` the latest."""


def decide(
    tx: Transaction, request: ScheduleRequest, times: Times, *, switches: bool = False
) -> ScheduleDone | Refusal:
    """Carry a request out, or say why not.

    Args:
        switches: jobs run under machine accounts: a user without one has none started.
    """
    if isinstance(request, SetSchedule):
        return _set(tx, request, times)
    one = tx.state.schedules.by_key.get((request.owner, request.name))
    if one is None:
        return ScheduleDone(found=False)
    if isinstance(request, RemoveSchedule):
        tx.emit(ScheduleRemoved(one.tenant, one.owner, one.name, request.by))
        return ScheduleDone()
    return _act(tx, one, request, times, switches=switches)


def _act(
    tx: Transaction, one: Schedule, request: ActOnSchedule, times: Times, *, switches: bool
) -> ScheduleDone | Refusal:
    match request.action:
        case "pause":
            if not one.paused:
                tx.emit(SchedulePaused(one.tenant, one.owner, one.name, request.by))
        case "resume":
            if one.paused:
                following = times.following(one.rule, tx.now_ms)
                tx.emit(ScheduleResumed(one.tenant, one.owner, one.name, request.by, following))
        case "run":
            run = _run(tx, one, tx.now_ms, switches=switches, by=request.by)
            if isinstance(run, str):
                hint = f"penstock schedule show {one.name}"
                return Refusal("conflict", (Problem("not_started", "name", run, one.name, hint),))
            tx.emit(
                ScheduleFired(
                    one.tenant, one.owner, one.name, run.due_ms, one.next_ms, run.first, run.count, by=request.by
                )
            )
            return ScheduleDone(run=run)
    return ScheduleDone()


def _set(tx: Transaction, request: SetSchedule, times: Times) -> ScheduleDone | Refusal:
    one = request.schedule
    following = times.following(one.rule, tx.now_ms)
    problems = _shape_problems(one, times, tx.now_ms, following)
    if not problems and one.key not in tx.state.schedules.by_key:
        too_many = _too_many(tx, one, administrator=request.administrator)
        problems = [too_many] if too_many is not None else []
    submit = Submit(one.jobs, one.owner, administrator=request.administrator)
    if not problems:
        over = over_bounds(submit, BOUNDS)
        problems = [over] if over is not None else name_problems(tx.state, submit)
    for new in one.jobs if not problems else ():
        problems = never_served(tx.state, new.spec, f"{new.field}." if new.field else "", hinted=False)
        if problems:
            break
    if problems:
        return Refusal("invalid_input", tuple(problems))
    paused = one.rule.paused
    by = one.owner if paused else UserName("")
    tx.emit(ScheduleSet(replace(one, set_ms=tx.now_ms, next_ms=following, paused=paused, paused_by=by)))
    return ScheduleDone()


def _shape_problems(one: Schedule, times: Times, now_ms: int, following: int) -> list[Problem]:
    """Return what no schedule may be, whatever else there is."""
    if not following:
        text = f"schedule.cron is '{one.rule.cron}': it is never due" + " before its end" * bool(one.rule.end_ms)
        return [Problem("never_due", "schedule.cron", text, one.rule.cron, "check day, month, start and end")]
    numbered = next((new for new in one.jobs if new.spec.after), None)
    if numbered is not None:
        kind = numbered.spec.after[0].kind
        field = f"{numbered.field}.{kind}" if numbered.field else kind
        text = f"{field} names a job by its number: jobs of a schedule wait for others of the same file, by name"
        return [Problem("bad_value", field, text, str(numbered.spec.after[0].job_id))]
    jobs, weight = sum(new.count for new in one.jobs), weight_of(one.jobs).log_bytes
    if jobs > JOBS_MAX:
        text = f"a run of a schedule may have {JOBS_MAX:,} jobs, these are {jobs:,}"
        return [Problem("too_many_jobs", "jobs", text, str(jobs))]
    once = weight_of([replace(new, array=0) for new in one.jobs]).log_bytes
    gap_ms = _shortest_gap_ms(one.rule, times, now_ms)
    most = min(BYTES_MAX, BYTES_PER_MINUTE * max(1, gap_ms // 60_000)) if gap_ms else BYTES_MAX
    if once > KEPT_BYTES_MAX or weight > most:
        size, limit = (once, KEPT_BYTES_MAX) if once > KEPT_BYTES_MAX else (weight, most)
        text = f"a run adds {size:,} bytes to the log, and {limit:,} may be"
        if size == weight and gap_ms:
            text += f" where the next comes after {format_duration(gap_ms)}"
        return [Problem("too_large", "jobs", text, str(size), "put large things into files, or run it less often")]
    return []


def _shortest_gap_ms(rule: ScheduleRule, times: Times, now_ms: int) -> int:
    """Return the shortest time between two of the next runs; 0 where there is only one."""
    due, gaps = times.following(rule, now_ms), []
    for _ in range(10):
        following = times.following(rule, due)
        if not following:
            break
        gaps.append(following - due)
        due = following
    return min(gaps, default=0)


def _too_many(tx: Transaction, one: Schedule, *, administrator: bool) -> Problem | None:
    known = tx.state.schedules
    return too_many(
        "schedules", one.name, one.owner,
        own=len(known.of_user(one.owner)), own_most=OWN_MAX,
        used=len(known.by_key), most=SCHEDULES_MAX + (RESERVE if administrator else 0),
        hint="remove unused ones: penstock schedule remove NAME", shares=not administrator,
    )  # fmt: skip


def fire_due(tx: Transaction, times: Times, *, switches: bool = False) -> None:
    """Start the runs that are due, the longest due first; what is too much for one group follows in the next.

    Args:
        switches: as of `decide`.
    """
    jobs = 0
    for one in tx.state.schedules.due(tx.now_ms, FIRED_AT_ONCE):
        jobs += sum(new.count for new in one.jobs)
        if jobs > JOBS_AT_ONCE and tx.records:
            return
        _fire(tx, one, times, switches=switches)


def _fire(tx: Transaction, one: Schedule, times: Times, *, switches: bool) -> None:
    """Start the run of a schedule that is due, or say why not; of several missed times as its rule says."""
    passed = times.passed(one.rule, one.next_ms, tx.now_ms, CATCH_UP_MAX) or (one.next_ms,)
    due_ms, missed, next_ms = passed[-1], len(passed) - 1, 0
    if one.rule.catch_up == "all" and missed:
        due_ms, missed, next_ms = passed[0], 0, passed[1]  # one in each group
    next_ms = next_ms or times.following(one.rule, tx.now_ms)
    run: ScheduledRun | str
    if one.rule.catch_up == "none" and tx.now_ms - due_ms > ON_TIME_MS:
        run = f"no server ran at {format_time(due_ms)}, when it was due (catch_up: none)"
    else:
        run = _overlapping(tx, one) or _run(tx, one, due_ms, switches=switches)
    if isinstance(run, str):
        tx.emit(ScheduleFired(one.tenant, one.owner, one.name, due_ms, next_ms, skipped=run[:TEXT_MAX], missed=missed))
    else:
        tx.emit(ScheduleFired(one.tenant, one.owner, one.name, due_ms, next_ms, run.first, run.count, missed=missed))


def _overlapping(tx: Transaction, one: Schedule) -> str:
    """Return why earlier runs that are not over keep it from a further one, or ''."""
    live = tx.state.schedules.live.get(one.key)
    if not live or one.rule.overlap != "skip":
        return ""
    return f"its run of job {max(live)} is not over (overlap: skip)"


def _run(tx: Transaction, one: Schedule, due_ms: int, *, switches: bool, by: UserName = NOBODY) -> ScheduledRun | str:
    """Submit the jobs of one run, or return why that cannot be."""
    config, state = tx.state.config, tx.state
    account = _account(config, one) if switches else ""
    why = _not_theirs(config, one)
    if why or account is None:
        return why or f"{one.owner} has no account of the machines to run jobs as"
    live = state.schedules.live.get(one.key, {})
    if len(live) >= RUNS_LIVE_MAX:
        return f"{len(live)} of its runs are not over, and no more may be"
    user = config.user_by_name.get(one.owner)
    administrator = one.operator or (user is not None and user.role == "admin")
    request = Submit(one.jobs, one.owner, account=account, administrator=administrator)
    problems = submit_problems(state, request, {})
    if problems:
        return "; ".join(problem.message for problem in problems[:3])
    if live and one.rule.overlap == "queue" and not by:
        last = live[max(live)]
        request = replace(request, jobs=_after(one.jobs, min(last), max(last)))
    first = JobId(state.next_job)
    made = accept(tx, request, {}, Scheduled(one.name, due_ms, first))
    return ScheduledRun(due_ms, first, len(made.job_ids), by)


def _after(jobs: tuple[NewJob, ...], first: JobId, last: JobId) -> tuple[NewJob, ...]:
    """Return jobs that wait until all of a run have ended."""
    before = Dependency(first, "after_any", last - first + 1)
    return tuple(replace(new, spec=replace(new.spec, after=(before,))) for new in jobs)


def _account(config: ClusterConfig, one: Schedule) -> str | None:
    """Return the machine account of its jobs, '' for that of the server; None where its owner has none."""
    if one.operator:
        return ""
    user = config.user_by_name.get(one.owner)
    return (user.account if user is not None else "") or config.settings.job_account or None


def _not_theirs(config: ClusterConfig, one: Schedule) -> str:
    """Return why its owner may not submit its jobs now, or ''."""
    if one.tenant not in config.tenant_by_name:
        return f"tenant {one.tenant} is not declared"
    if one.operator:
        return ""
    user = config.user_by_name.get(one.owner)
    if user is None:
        return f"user {one.owner} is not declared"
    if user.disabled:
        return f"user {one.owner} is disabled"
    if not submits_as(user.role, dict(user.tenants).get(one.tenant)):
        return f"user {one.owner} may not submit jobs for tenant {one.tenant} any more"
    return ""
