"""Lists of jobs: filtered, sorted and paged by the server; live ones first, then finished ones from the newest.

A cursor names the last row by its place in the order, not by its number of rows before: jobs that come and go in
between neither hide nor repeat others. For a thread.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from penstock.api.jobs import JobSelection
from penstock.core.model.access import Scope
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.jobs import FINAL_STATES, Job
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.ports import FinishedJob
from penstock.server.http.parsing import invalid
from penstock.server.selecting import all_live, check_names, check_selection, matcher, name_matcher
from penstock.server.views.reads import Reads

Sort = Literal["newest", "id", "priority", "submitted"]
LISTED_STATES = (*LIVE_STATES, *sorted(FINAL_STATES))
FINISHED_BATCH = 1_000
FINISHED_BATCHES_MAX = 10
"""Batches of finished jobs that one page looks through; a page may be short, and its cursor leads to the next."""
Key = tuple[int, int]


class Filters(NamedTuple):
    """Which jobs; each value that is given must match."""

    states: tuple[str, ...] = ()
    name: str = ""
    user: str = ""
    tenant: str = ""
    queue: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Of live jobs: finished ones do not match any."""
    array: int = 0
    finished: bool = False
    """Finished jobs too."""


class Row(NamedTuple):
    """A job of a page, live or finished; where arrays are folded, the first member in the order stands for them."""

    job: Job | FinishedJob
    counts: dict[str, int]
    """Its array's matching members by state; empty where it stands for itself."""


class ListCursor(msgspec.Struct, frozen=True, array_like=True):
    sort: str
    live: Key | None
    """The place of the last live row; None: all have been listed."""
    before: int = 0
    """The last finished job; 0: none was listed yet."""


class Page(NamedTuple):
    rows: list[Row]
    cursor: str
    """Empty at the end."""
    totals: dict[str, int]
    """Live jobs that match, by state."""


def check_filters(filters: Filters, who: Scope, config: ClusterConfig) -> None:
    """Raise ApiError for a state that there is not, a tenant that the caller does not see, and too long texts."""
    for state in filters.states:
        if state not in LISTED_STATES:
            text = f"state is '{state}': no job can be in it"
            raise invalid([Problem("unknown_state", "state", text, state, nearest(state, LISTED_STATES))])
    select = JobSelection([], True, [], filters.name, filters.user, "", "", dict(filters.labels))
    check_selection(select, who, config)
    check_names(who, config, tenant=filters.tenant, queue=filters.queue)


def page_of(
    filters: Filters, who: Scope, reads: Reads, *, sort: Sort, limit: int, cursor: str = "", fold_arrays: bool = False
) -> Page:
    """Return up to `limit` rows after a cursor; running jobs before waiting ones. Raises: ApiError for a bad cursor."""
    at = _cursor_of(cursor, sort)
    live = _live(filters, who, reads)
    totals = dict(Counter(str(job.state) for job in live))
    rows: list[Row] = []
    last = at.live if at is not None else (-1 << 62, 0)
    if last is not None:
        key = _KEYS[sort]
        entries = sorted(((key(row.job), row) for row in _rows(live, key, fold=fold_arrays)), key=lambda one: one[0])
        rest = [(place, row) for place, row in entries if place > last]
        rows = [row for _, row in rest[:limit]]
        if len(rest) > limit:
            return Page(rows, _text(ListCursor(sort, rest[limit - 1][0])), totals)
    wanted = FINAL_STATES.intersection(filters.states) if filters.states else FINAL_STATES
    if not (filters.finished or filters.states) or not wanted or filters.labels:
        return Page(rows, "", totals)
    before = at.before if at is not None else 0
    if len(rows) == limit:
        return Page(rows, _text(ListCursor(sort, None, before)), totals)
    listed = {row.job.id for row in rows}
    ended, before = _ended(filters, frozenset(wanted), who, reads, before, limit - len(rows))
    rows += [Row(job, {}) for job in ended if job.id not in listed]
    return Page(rows, _text(ListCursor(sort, None, before)) if before else "", totals)


def _live(filters: Filters, who: Scope, reads: Reads) -> list[Job]:
    states: list[str] = [state for state in filters.states if state in LIVE_STATES]
    if filters.states and not states:
        return []
    labels = dict(filters.labels)
    matches = matcher(JobSelection([], True, states, filters.name, filters.user, "", filters.queue, labels))
    jobs = all_live(who, reads, filters.tenant or None)
    return [job for job in jobs if (not filters.array or job.array_id == filters.array) and matches(job)]


def _newest(job: Job | FinishedJob) -> Key:
    return (int(job.state == "waiting"), -job.id)


_KEYS: dict[Sort, Callable[[Job | FinishedJob], Key]] = {
    "newest": _newest,
    "id": lambda job: (0, job.id),
    "priority": lambda job: (-(job.spec.priority if isinstance(job, Job) else job.priority), job.id),
    "submitted": lambda job: (job.submitted_ms, job.id),
}


def _rows(live: Sequence[Job], key: Callable[[Job], Key], *, fold: bool) -> Iterator[Row]:
    if not fold:
        yield from (Row(job, {}) for job in live)
        return
    arrays: dict[JobId, list[Job]] = {}
    for job in live:
        if job.array_id is None:
            yield Row(job, {})
        else:
            arrays.setdefault(job.array_id, []).append(job)
    for members in arrays.values():
        yield Row(min(members, key=key), dict(Counter(str(job.state) for job in members)))


def _ended(
    filters: Filters, states: Iterable[str], who: Scope, reads: Reads, before: int, limit: int
) -> tuple[list[FinishedJob], int]:
    """Return up to `limit` finished jobs that match, newest first, and what the next page is before; 0 at the end."""
    named = name_matcher(filters.name)
    wanted, tenant, user = frozenset(states), TenantName(filters.tenant), UserName(filters.user)
    found: list[FinishedJob] = []
    for _ in range(FINISHED_BATCHES_MAX):
        batch = reads.finished_jobs(who, FINISHED_BATCH, JobId(before) if before else None)
        for job in batch.jobs:
            before = job.id
            fits = job.state in wanted and (not tenant or job.tenant == tenant) and (not user or job.user == user)
            fits = fits and (not filters.queue or job.queue == filters.queue) and named(job.name)
            if fits and filters.array in (0, job.array_id or -1):
                found.append(job)
                if len(found) == limit:
                    return found, before
        if batch.before is None:
            return found, 0
        before = batch.before
    return found, before


def _cursor_of(text: str, sort: Sort) -> ListCursor | None:
    if not text:
        return None
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=ListCursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise invalid([Problem("bad_value", "cursor", "cursor is not one that a list has given")]) from error
    if cursor.sort != sort:
        raise invalid([Problem("bad_value", "cursor", f"the cursor is of a list sorted by {cursor.sort[:20]}")])
    return cursor


def _text(cursor: ListCursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
