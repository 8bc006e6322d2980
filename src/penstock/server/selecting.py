"""Turns a selection of jobs into the live jobs that it names: bounds first, then the jobs that the caller sees.

Reads the state, and for single numbers the log: for a thread.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from typing import NamedTuple

from penstock.api.jobs import IDS_MAX, NUMBERS_MAX, JobSelection
from penstock.core.model.access import Scope
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import ApiError
from penstock.server.views.reads import Reads

TEXT_MAX = 200
"""Characters of a pattern or a name, and of what an error repeats."""
ID_MAX = 2_000
"""Characters of one `12[0-3,7]`."""
STARS_MAX = 8
"""Each `*` of a pattern may be tried at every character of a name."""
LABELS_MAX = 32
PAGE = 1_000
FIRST_PAGE = 32
"""Of the members of an array, of which there may be few; each following page is twice as long."""
_RANGE = re.compile(r"(\d{1,16})(?:-(\d{1,16}))?", re.ASCII)
_ARRAY = re.compile(r"(\d{1,16})\[([\d,-]*)\]", re.ASCII)
FORMS = "a number (3), a range (5-9), an array (12[]) or members of one (12[0-3])"


class Named(NamedTuple):
    """What the ids of a selection name, each once."""

    singles: set[int]
    ranges: list[range]
    """Of job numbers."""
    arrays: dict[int, set[int] | None]
    """By their first job, the indexes of the members; None: all members."""


class Selected(NamedTuple):
    """The live jobs of a selection, by number, and the single numbers that name none: the job is over, or unknown."""

    jobs: list[Job]
    over: list[tuple[int, str]]
    """With their final state."""
    unknown: list[int]


def named_by(ids: Sequence[str]) -> Named:
    """Return what the texts name. Raises: ApiError with the first text that names no jobs, or too many."""
    if len(ids) > IDS_MAX:
        raise _bad("too_many_ids", "ids", f"ids has {len(ids)} entries, at most {IDS_MAX} may be in one request")
    found = Named(set(), [], {})
    numbers = 0
    for text in ids:
        array, parts = _parsed(text)
        numbers += sum(map(len, parts))
        if numbers > NUMBERS_MAX:
            hint = "name the jobs by --all, --name, --user or another condition"
            raise _bad("too_many_ids", "ids", f"the ids span more than {NUMBERS_MAX} numbers", hint=hint)
        if array is not None and not parts:
            found.arrays[array] = None
        elif array is not None:
            members = found.arrays.setdefault(array, set())
            if members is not None:
                members.update(*parts)
        elif len(parts[0]) == 1:
            found.singles.add(parts[0].start)
        else:
            found.ranges.append(parts[0])
    return found


def _parsed(text: str) -> tuple[int | None, list[range]]:
    """Return the first job of an array and the indexes, none for all; or no array, and one range of job numbers."""
    if len(text) > ID_MAX:
        raise _bad_id(text)
    match = _ARRAY.fullmatch(text)
    if match is None:
        return None, [_range(text, text)]
    return int(match[1]), [_range(text, part) for part in match[2].split(",")] if match[2] else []


def _range(text: str, part: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise _bad_id(text)
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise _bad("bad_id", "ids", f"ids: the range '{text[:TEXT_MAX]}' ends before it begins", text[:TEXT_MAX])
    return range(low, high + 1)


def _bad_id(text: str) -> ApiError:
    return _bad("bad_id", "ids", f"ids: '{text[:TEXT_MAX]}' names no job", text[:TEXT_MAX], f"expected: {FORMS}")


def selected(select: JobSelection, named: Named, who: Scope, reads: Reads, config: ClusterConfig) -> Selected:
    """Return the jobs that a selection names, of those that the caller sees. Raises: ApiError.

    Args:
        named: what its ids name.
    """
    check_selection(select, who, config)
    matches = matcher(select)
    if not select.ids:
        tenant = select.tenant or None
        return Selected([job for job in all_live(who, reads, tenant) if matches(job)], [], [])
    found: dict[JobId, Job] = {}
    over: dict[int, str] = {}
    unknown: list[int] = []
    for number in named.singles:
        job = reads.live_job(who, JobId(number))
        if job is not None:
            found[job.id] = job
        elif (ended := reads.finished_job(who, JobId(number))) is not None:
            over[number] = ended.state
        else:
            unknown.append(number)
    for span in named.ranges:
        found.update((job.id, job) for job in _in_range(span, who, reads))
    for array, indexes in named.arrays.items():
        members = _members(array, who, reads)
        found.update((job.id, job) for job in members if indexes is None or job.array_index in indexes)
    jobs = [found[job_id] for job_id in sorted(found) if matches(found[job_id])]
    return Selected(jobs, sorted(over.items()), sorted(unknown))


def check_selection(select: JobSelection, who: Scope, config: ClusterConfig) -> None:
    """Raise ApiError for a selection that is empty, too long, or names what the caller knows nothing of."""
    conditions = (select.states, select.name, select.user, select.tenant, select.queue, select.labels)
    if not select.ids and not select.all and not any(conditions):
        hint = "name jobs by number, or give a condition; all: true selects every live job"
        raise _bad("empty_selection", "select", "the selection names no jobs", hint=hint)
    if select.ids and select.all:
        raise _bad("empty_selection", "select.all", "a selection has ids or all, not both")
    for field in ("name", "user", "tenant", "queue"):
        if len(getattr(select, field)) > TEXT_MAX:
            raise _bad("too_long", f"select.{field}", f"{field} may have {TEXT_MAX} characters")
    checked_pattern(select.name, "select.name")
    if len(select.labels) > LABELS_MAX or len(select.states) > LABELS_MAX:
        raise _bad("too_long", "select.labels", f"a selection may have {LABELS_MAX} labels and {LABELS_MAX} states")
    for state in select.states:
        if state not in LIVE_STATES:
            text = f"state is '{state[:TEXT_MAX]}': no live job can be in it"
            raise _bad("unknown_state", "select.states", text, state[:TEXT_MAX], nearest(state, LIVE_STATES))
    check_names(who, config, tenant=select.tenant, queue=select.queue)


def check_names(who: Scope, config: ClusterConfig, *, tenant: str = "", queue: str = "", prefix: str = "") -> None:
    """Raise ApiError for a tenant that the caller does not see, whether or not it exists, and an unknown queue."""
    seen = [one.name for one in config.tenants if who.sees(one.name)]
    for field, value, known in (("tenant", tenant, seen), ("queue", queue, [q.name for q in config.queues])):
        if value and value not in known:
            text = f"there is no {field} '{value}'"
            raise _bad(f"unknown_{field}", prefix + field, text, value, nearest(value, known))


def matcher(select: JobSelection) -> Callable[[Job], bool]:
    """Return the test of a job against everything in a selection but its ids."""
    states, labels = frozenset(select.states), tuple(select.labels.items())
    named = name_matcher(select.name)

    def matches(job: Job) -> bool:
        spec = job.spec
        return (
            (not states or job.state in states)
            and (not select.user or job.user == select.user)
            and (not select.tenant or spec.tenant == select.tenant)
            and (not select.queue or spec.queue == select.queue)
            and named(spec.name)
            and all(label in spec.labels for label in labels)
        )

    return matches


def checked_pattern(pattern: str, field: str) -> str:
    """Return a pattern of a name. Raises: ApiError for one that would take too long to compare."""
    if pattern.count("*") > STARS_MAX:
        raise _bad("too_long", field, f"a pattern may have {STARS_MAX} stars")
    return pattern


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test of a name against a pattern; every name matches an empty one."""
    if not pattern:
        return lambda name: True
    compiled = re.compile(translate(pattern))
    return lambda name: compiled.match(name) is not None


def all_live(who: Scope, reads: Reads, tenant: str | None = None) -> Iterator[Job]:
    """Yield the live jobs that the caller sees, by number."""
    after = 0
    while page := reads.live_page(who, after, PAGE, tenant=tenant):
        yield from page
        after = page[-1].id


def _in_range(span: range, who: Scope, reads: Reads) -> Iterator[Job]:
    after = span.start - 1
    while after < span.stop - 1:
        page = reads.live_page(who, after, min(PAGE, span.stop - 1 - after))
        if not page:
            return
        yield from (job for job in page if job.id < span.stop)
        after = page[-1].id


def _members(array: int, who: Scope, reads: Reads) -> Iterator[Job]:
    """Yield the live members of an array: they follow one another."""
    after, size = array - 1, FIRST_PAGE
    while page := reads.live_page(who, after, size):
        for job in page:
            if job.array_id == array:
                yield job
            elif job.id > array:
                return
        after, size = page[-1].id, min(PAGE, 2 * size)


def _bad(code: str, field: str, text: str, value: str = "", hint: str = "") -> ApiError:
    return invalid([Problem(code, field, text, value, hint)])
