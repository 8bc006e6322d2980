"""Lists of jobs: filtered, sorted and paged by the server; live ones first, then finished ones from the newest.

For a thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from fastapi import Query

from penstock.api import types as api
from penstock.api.jobs import JobSelection
from penstock.core.config.reader import short
from penstock.core.model.access import Scope
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import FINAL_STATES, Job, JobSpec
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.ports import FinishedJob
from penstock.server.http.parsing import invalid
from penstock.server.selecting import all_live, check_names, check_selection, name_matcher
from penstock.server.tables import (
    SEARCH_MAX,
    Filter,
    ListCursor,
    ListQuery,
    ListTable,
    cursor_of,
    matcher_of,
    ordered,
    text_of,
)
from penstock.server.views.jobs import ends_ms
from penstock.server.views.reads import BATCHES_MAX, Reads

LISTED_STATES = (*LIVE_STATES, *sorted(FINAL_STATES))
FINISHED_BATCH = 1_000
FINISHED_MAX = 100_000
"""Finished jobs that one page looks through; a page may be short, and its cursor leads to the next."""
LABEL_MAX = 1_000
"""Characters of a label in a query."""
NEWEST_ABOVE = 2**60
Entry = Job | FinishedJob


class Row(NamedTuple):
    """A job of a page, live or finished; where arrays are folded, the first member in the order stands for them."""

    job: Entry
    counts: dict[str, int]
    """Its array's matching members by state; empty where it stands for itself."""


class JobPage(NamedTuple):
    rows: list[Row]
    cursor: str
    """Empty at the end."""
    matching: list[Entry]
    """Live jobs that match, on all pages."""


def _asked(job: Entry) -> JobSpec | FinishedJob:
    """Return the value that has name, tenant, queue and priority of a job."""
    return job.spec if isinstance(job, Job) else job


def _devices(job: Entry) -> int:
    return job.spec.ask.device_total if isinstance(job, Job) else job.devices


def _started_ms(job: Entry) -> int | None:
    return (job.first_started_ms if isinstance(job, Job) else job.started_ms) or None


def _ends_ms(job: Entry) -> int | None:
    return (ends_ms(job) if isinstance(job, Job) else job.finished_ms) or None


def _newest(job: Entry) -> int:
    """Return the place in the order in which jobs that run come before those that wait, the newest first."""
    return (NEWEST_ABOVE if job.state == "waiting" else 0) - job.id


def _has_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or len(text) > LABEL_MAX:
        raise invalid([Problem("bad_value", "label", f"label is '{short(text)}', expected key=value", short(text))])
    return name, value


def _with_labels(texts: Sequence[str]) -> Callable[[Entry], bool]:
    wanted = [_has_label(text) for text in texts]
    return lambda job: isinstance(job, Job) and all(label in job.spec.labels for label in wanted)


def _searched(text: str) -> Callable[[Entry], bool]:
    wanted = text.casefold()

    def matches(job: Entry) -> bool:
        if wanted in _asked(job).name.casefold() or wanted in job.user.casefold() or wanted in str(job.id):
            return True
        labels = job.spec.labels if isinstance(job, Job) else ()
        return any(wanted in f"{name}={value}".casefold() for name, value in labels)

    return matches


def _in_states(states: Sequence[str]) -> Callable[[Entry], bool]:
    wanted = frozenset(states)
    return lambda job: job.state in wanted


def _named(pattern: str) -> Callable[[Entry], bool]:
    named = name_matcher(pattern)
    return lambda job: named(_asked(job).name)


_TEXT = Annotated[str, Query(max_length=200)]
_STATES = Annotated[list[str] | None, Query(max_length=16, description="one or several")]
_NAME = Annotated[str, Query(max_length=200, description="a name, or a pattern such as train-*")]
_LABELS = Annotated[list[str] | None, Query(max_length=32, description="key=value, of live jobs")]
_ARRAY = Annotated[int, Query(ge=0, le=2**53, description="members of this array")]
_SEARCH = Annotated[
    str, Query(max_length=SEARCH_MAX, description="text in the name, user, number, or (of live jobs) a label")
]
_REASON = Annotated[str, Query(max_length=200, description="code of why it waits, or ended, as rows have it")]
FILTERS: dict[str, Filter[Entry]] = {
    "state": Filter(_STATES, None, _in_states),
    "tenant": Filter(Annotated[str, Query(max_length=63)], "", lambda text: lambda job: _asked(job).tenant == text),
    "name": Filter(_NAME, "", _named),
    "user": Filter(_TEXT, "", lambda text: lambda job: job.user == text),
    "queue": Filter(_TEXT, "", lambda text: lambda job: _asked(job).queue == text),
    "label": Filter(_LABELS, None, _with_labels),
    "array": Filter(_ARRAY, 0, lambda number: lambda job: job.array_id == number),
    "search": Filter(_SEARCH, "", _searched),
}


def job_table(
    reason_of: Callable[[Entry], str], likely_ms_of: Callable[[Entry], int | None] = lambda job: None
) -> ListTable[Entry]:
    """Return what the list of jobs can be asked for.

    Args:
        reason_of: the short code of why a job waits, or ended; empty: none.
        likely_ms_of: when a waiting job is expected to start (unix ms); None: not estimated.
    """
    return ListTable(
        key="jobs",
        view=api.JobView,
        id=attrgetter("id"),
        sorts={
            "newest": _newest,
            "id": lambda job: job.id,
            "priority": lambda job: -_asked(job).priority,
            "submitted": lambda job: job.submitted_ms,
            "name": lambda job: _asked(job).name,
            "user": lambda job: job.user,
            "tenant": lambda job: _asked(job).tenant,
            "queue": lambda job: _asked(job).queue,
            "state": lambda job: LISTED_STATES.index(job.state),
            "devices": _devices,
            "started": _started_ms,
            "ends": _ends_ms,
            "starts": likely_ms_of,
            "preemptions": lambda job: job.preemptions,
        },
        filters={**FILTERS, "reason": Filter(_REASON, "", lambda text: lambda job: reason_of(job) == text)},
        groups={
            "state": lambda job: job.state,
            "user": lambda job: job.user,
            "tenant": lambda job: _asked(job).tenant,
            "queue": lambda job: _asked(job).queue,
            "reason": reason_of,
        },
        devices=_devices,
        limit=200,
    )


def check_filters(given: Mapping[str, Any], who: Scope, config: ClusterConfig) -> None:
    """Raise ApiError for a state that there is not, a tenant that the caller does not see, and too long texts."""
    for state in given.get("state", ()):
        if state not in LISTED_STATES:
            text = f"state is '{short(state)}': no job can be in it"
            raise invalid([Problem("unknown_state", "state", text, short(state), nearest(state, LISTED_STATES))])
    labels = dict(_has_label(text) for text in given.get("label", ()))
    check_selection(JobSelection([], True, [], given.get("name", ""), labels=labels), who, config)
    check_names(who, config, tenant=given.get("tenant", ""), queue=given.get("queue", ""))


def page_of(
    table: ListTable[Entry],
    query: ListQuery,
    who: Scope,
    reads: Reads,
    *,
    finished: bool = False,
    fold_arrays: bool = False,
) -> JobPage:
    """Return a page of the list, with a sort.

    Args:
        finished: finished jobs too, after the live ones and from the newest whatever the sort is.
        fold_arrays: one row for each array of live jobs.
    Raises: ApiError for a bad cursor.
    """
    assert query.limit is not None
    at = cursor_of(query.cursor, query.sort)
    matches = matcher_of(table, query)
    states = frozenset(query.given.get("state", ()))
    live = _live(states, query.given.get("tenant"), matches, who, reads, tested=bool(query.given))
    rows: list[Row] = []
    if at is None or at.id is not None:
        counts: dict[JobId, dict[str, int]] = {}
        entries = live if not fold_arrays else list(_folded(live, table, query.sort, counts))
        if query.sort == "newest":
            entries = entries[::-1]  # what is first of many is found sooner where it comes first
        page = ordered(table, query, entries, at)
        rows = [Row(job, counts.get(job.id, {})) for job in page.rows]
        if page.cursor:
            return JobPage(rows, page.cursor, live)
    wanted = FINAL_STATES & states if states else FINAL_STATES
    if not (finished or states) or not wanted or "label" in query.given:
        return JobPage(rows, "", live)
    before = at.rest if at is not None else 0
    room = query.limit - len(rows)
    if room:
        shown = {row.job.id for row in rows}
        ended, before = _ended(matches, who, reads, before, room)
        rows += [Row(job, {}) for job in ended if job.id not in shown]
        if not before:
            return JobPage(rows, "", live)
    return JobPage(rows, text_of(ListCursor(query.sort, None, None, 0, before)), live)


def _live(
    states: frozenset[str],
    tenant: str | None,
    matches: Callable[[Entry], bool],
    who: Scope,
    reads: Reads,
    *,
    tested: bool,
) -> list[Entry]:
    if states and not states.intersection(LIVE_STATES):
        return []
    live = all_live(who, reads, tenant)
    return [job for job in live if matches(job)] if tested else list(live)


def _folded(
    live: Iterable[Entry], table: ListTable[Entry], sort: str, counts: dict[JobId, dict[str, int]]
) -> Iterator[Entry]:
    """Yield the jobs that belong to no array, and of each array the first member in the order, with its counts."""
    arrays: dict[JobId, list[Entry]] = {}
    for job in live:
        if job.array_id is None:
            yield job
        else:
            arrays.setdefault(job.array_id, []).append(job)
    turned, value_of = sort.startswith("-"), table.sorts[sort.removeprefix("-")]

    def place(job: Entry) -> tuple[bool, Any, int]:
        value = value_of(job)
        return (value is None) != turned, 0 if value is None else value, job.id

    for members in arrays.values():
        first = (max if turned else min)(members, key=place)
        counts[first.id] = dict(Counter(str(job.state) for job in members))
        yield first


def _ended(
    matches: Callable[[Entry], bool], who: Scope, reads: Reads, before: int, limit: int
) -> tuple[list[FinishedJob], int]:
    """Return up to `limit` finished jobs that match, newest first, and what the next page is before; 0 at the end."""
    found: list[FinishedJob] = []
    most = FINISHED_BATCH if who.sees_all else FINISHED_BATCH * BATCHES_MAX  # looked through for a batch of theirs
    for _ in range(FINISHED_MAX // most):
        batch = reads.finished_jobs(who, FINISHED_BATCH, JobId(before) if before else None)
        for job in batch.jobs:
            before = job.id
            if matches(job):
                found.append(job)
                if len(found) == limit:
                    return found, before
        if batch.before is None:
            return found, 0
        before = batch.before
    return found, before
