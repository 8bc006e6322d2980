"""Turns a selection of jobs into the live jobs that it names: bounds first, then the jobs that the caller sees.

Reads the state, and for single numbers the log: for a thread.
"""

import re
from collections.abc import Callable, Iterable, Iterator
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
"""Characters of a pattern, a name or an id."""
PIECES_MAX = 1_000
"""Parts of one `12[0-3,7]`."""
STARS_MAX = 8
"""Each `*` of a pattern may be tried at every character of a name."""
LABELS_MAX = 32
PAGE = 1_000
_RANGE = re.compile(r"(\d{1,16})(?:-(\d{1,16}))?", re.ASCII)
_ARRAY = re.compile(r"(\d{1,16})\[([\d,-]*)\]", re.ASCII)
FORMS = "a number (3), a range (5-9), an array (12[]) or members of one (12[0-3])"


class Span(NamedTuple):
    """Job numbers from `first` to `last`; where `array` is set, indexes in that array, all of them without a `last`."""

    first: int
    last: int | None
    array: int | None = None

    @property
    def single(self) -> bool:
        """Whether it names one job, not an array and not a range."""
        return self.array is None and self.first == self.last


class Selected(NamedTuple):
    """The live jobs of a selection, by number, and the single numbers that name none: the job is over, or unknown."""

    jobs: list[Job]
    over: list[tuple[int, str]]
    """With their final state."""
    unknown: list[int]


def spans_of(ids: Iterable[str]) -> list[Span]:
    """Return what the texts name. Raises: ApiError with the first text that names no jobs, or too many."""
    texts = list(ids)
    if len(texts) > IDS_MAX:
        raise _bad("too_many_ids", "ids", f"ids has {len(texts)} entries, at most {IDS_MAX} may be in one request")
    found: list[Span] = []
    numbers = 0
    for text in texts:
        for span in _spans(text):
            found.append(span)
            numbers += span.last - span.first + 1 if span.last is not None else 1
        if numbers > NUMBERS_MAX:
            hint = "name the jobs by --all, --name, --user or another condition"
            raise _bad("too_many_ids", "ids", f"the ids span more than {NUMBERS_MAX} numbers", hint=hint)
    return found


def _spans(text: str) -> Iterator[Span]:
    if len(text) <= TEXT_MAX * 10 and (match := _RANGE.fullmatch(text)):
        yield _span(text, match[1], match[2])
        return
    match = _ARRAY.fullmatch(text) if len(text) <= TEXT_MAX * 10 else None
    pieces = match[2].split(",") if match is not None else []
    if match is None or len(pieces) > PIECES_MAX:
        raise _bad("bad_id", "ids", f"ids: '{text[:TEXT_MAX]}' names no job", text[:TEXT_MAX], f"expected: {FORMS}")
    array = int(match[1])
    if not match[2]:
        yield Span(0, None, array)
        return
    for piece in pieces:
        part = _RANGE.fullmatch(piece)
        if part is None:
            raise _bad("bad_id", "ids", f"ids: '{text[:TEXT_MAX]}' names no job", text[:TEXT_MAX], f"expected: {FORMS}")
        span = _span(text, part[1], part[2])
        assert span.last is not None, "a range has an end"
        yield Span(span.first, span.last, array)


def _span(text: str, first: str, last: str | None) -> Span:
    low, high = int(first), int(last or first)
    if low > high:
        raise _bad("bad_id", "ids", f"ids: the range '{text[:TEXT_MAX]}' ends before it begins", text[:TEXT_MAX])
    return Span(low, high)


def selected(select: JobSelection, who: Scope, reads: Reads, config: ClusterConfig) -> Selected:
    """Return the jobs that a selection names, of those that the caller sees. Raises: ApiError."""
    check_selection(select, who, config)
    matches = matcher(select)
    spans = spans_of(select.ids)
    if not spans:
        tenant = select.tenant or None
        return Selected([job for job in all_live(who, reads, tenant) if matches(job)], [], [])
    found: dict[JobId, Job] = {}
    over: dict[int, str] = {}
    unknown: dict[int, None] = {}
    for span in spans:
        jobs = list(_in_span(span, who, reads))
        found.update((job.id, job) for job in jobs if matches(job))
        if span.single and not jobs:
            ended = reads.finished_job(who, JobId(span.first))
            if ended is None:
                unknown[span.first] = None
            else:
                over[span.first] = ended.state
    return Selected([found[job_id] for job_id in sorted(found)], sorted(over.items()), sorted(unknown))


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
    if select.name.count("*") > STARS_MAX:
        raise _bad("too_long", "select.name", f"a pattern may have {STARS_MAX} stars")
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


def _in_span(span: Span, who: Scope, reads: Reads) -> Iterator[Job]:
    if span.single:
        job = reads.live_job(who, JobId(span.first))
        if job is not None:
            yield job
        return
    after = (span.array or span.first) - 1
    while True:
        page = reads.live_page(who, after, PAGE)
        for job in page:
            if span.array is None:
                if span.last is not None and job.id > span.last:
                    return
                yield job
            elif job.array_id == span.array:
                if span.last is None or span.first <= job.array_index <= span.last:
                    yield job
            elif job.id > span.array:
                return  # members follow one another
        if len(page) < PAGE:
            return
        after = page[-1].id


def _bad(code: str, field: str, text: str, value: str = "", hint: str = "") -> ApiError:
    return invalid([Problem(code, field, text, value, hint)])
