"""The size of a request once arrays are counted and names are resolved, and the maxima.

It is computed from the request alone, in time that grows with its text only: so every entry point can check it before
any work, and once more where the jobs are made.
"""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.messages.requests import JOBS_MAX, NewJob
from penstock.core.model.dependencies import JobRun, runs_of
from penstock.core.model.errors import Problem
from penstock.core.model.ids import JobId

DEPENDENCIES_OF_JOB_MAX = 10_000
"""Of one job: numbers count one by one, an array one, other jobs of one name one for each run of them."""
NUMBERS_MAX = 20_000
"""Jobs that one request names by number: each is looked up."""
DEPENDENCIES_MAX = 100_000
"""Of one request, each entry counted once."""
DEPENDENCIES_OF_ALL_MAX = 1_000_000
"""Of one request, each entry counted as often as it has jobs."""
JOB_MAX_BYTES = 2**20
"""One job as the log keeps it."""
LOG_MAX_BYTES = 64 * 2**20
"""All jobs of one request as the log keeps them."""
SHAPES_MAX = 1_000
"""Different shapes of jobs in one request: each is tried on the empty cluster."""
REPLICAS_TRIED_MAX = 100_000
"""Replicas of these shapes together."""
RECORD_BYTES = 256
"""A job in the log beside its spec."""
DEPENDENCY_BYTES = 64
"""A dependency that was a name in the request."""
_encode = msgspec.msgpack.Encoder().encode


class RequestBounds(msgspec.Struct, frozen=True):
    """The maximum size of one request. A server has the defaults; a simulated world has less."""

    jobs: int = JOBS_MAX
    dependencies_of_job: int = DEPENDENCIES_OF_JOB_MAX
    numbers: int = NUMBERS_MAX
    dependencies: int = DEPENDENCIES_MAX
    dependencies_of_all: int = DEPENDENCIES_OF_ALL_MAX
    job_bytes: int = JOB_MAX_BYTES
    log_bytes: int = LOG_MAX_BYTES
    shapes: int = SHAPES_MAX
    replicas_tried: int = REPLICAS_TRIED_MAX


BOUNDS = RequestBounds()


class Size(msgspec.Struct, frozen=True):
    """The size of a request."""

    jobs: int
    numbers: int
    """Jobs named by their numbers, each time they are."""
    dependencies: int
    """Each entry counted once."""
    dependencies_of_all: int
    """Each entry counted as often as it has jobs."""
    largest: tuple[int, str]
    """Most dependencies of one job, and the entry that has them."""


class Weight(msgspec.Struct, frozen=True):
    """What a request adds to the log, in bytes."""

    log_bytes: int
    """Counted no further once it is over the limit."""
    heaviest: tuple[int, str]
    """The largest job, and its entry."""


def runs_by_name(jobs: Iterable[NewJob], first: int = 1) -> dict[str, list[JobRun]]:
    """Return the jobs of each name of a request whose first job gets the number `first`."""
    found: dict[str, list[JobRun]] = {}
    for new in jobs:
        found.setdefault(new.spec.name, []).append((JobId(first), new.count))
        first += new.count
    return {name: runs_of(runs) for name, runs in found.items()}


def _named(jobs: Sequence[NewJob]) -> dict[str, int]:
    """Return how many values a dependency on each name is."""
    if not any(new.after_names for new in jobs):
        return {}
    return {name: len(runs) for name, runs in runs_by_name(jobs).items()}


def size_of(jobs: Sequence[NewJob]) -> Size:
    """Return the size of a request's entries; names that it does not have count nothing."""
    named = _named(jobs)
    count, numbers, once, of_all = 0, 0, 0, 0
    largest = (0, "")
    for new in jobs:
        count += new.count
        if not new.after_names and not new.spec.after:
            continue
        by_name = sum(named.get(name, 0) for name, _ in new.after_names)
        by_number = sum(one.count for one in new.spec.after)
        numbers += by_number
        once += by_name + by_number
        of_all += by_name + by_number + (new.count - 1) * (by_name + len(new.spec.after))
        if by_name + by_number > largest[0]:
            largest = (by_name + by_number, new.field)
    return Size(count, numbers, once, of_all, largest)


def weight_of(jobs: Sequence[NewJob], bounds: RequestBounds = BOUNDS) -> Weight:
    """Return what the entries of a request add to the log: a spec that several jobs share is kept once."""
    named = _named(jobs)
    total, heaviest = 0, (0, "")
    seen: dict[int, int] = {}
    for new in jobs:
        if total > bounds.log_bytes:
            break
        total += RECORD_BYTES * new.count * (2 if new.held else 1)
        if id(new.spec) in seen and not new.after_names:
            continue
        one = seen.get(id(new.spec)) or len(_encode(new.spec))
        seen[id(new.spec)] = one
        one += DEPENDENCY_BYTES * sum(named.get(name, 0) for name, _ in new.after_names)
        total += one
        if one > heaviest[0]:
            heaviest = (one, new.field)
    return Weight(total, heaviest)


def over_size(size: Size, bounds: RequestBounds = BOUNDS) -> Problem | None:
    """Return the first maximum that a request exceeds, or None."""
    if size.jobs > bounds.jobs:
        text = f"one request may create {bounds.jobs} jobs, this one asks for {size.jobs}"
        return Problem("too_many_jobs", "jobs", text, str(size.jobs))
    most, field = size.largest
    if most > bounds.dependencies_of_job:
        text = f"{field or 'the job'} has {most} dependencies, at most {bounds.dependencies_of_job} are kept of one job"
        hint = "let it wait for an array by its name, or for a job that waits for the others"
        return Problem("too_many_dependencies", field, text, str(most), hint)
    for count, limit, how in (
        (size.numbers, bounds.numbers, " on jobs by their numbers"),
        (size.dependencies, bounds.dependencies, ""),
        (size.dependencies_of_all, bounds.dependencies_of_all, ", those of an array counted for each of its jobs"),
    ):
        if count > limit:
            text = f"one request may have {limit} dependencies{how}, this one has {count}"
            hint = "let jobs wait for one that waits for the others, or give the others one name and make them an array"
            return Problem("too_many_dependencies", "jobs", text, str(count), hint)
    return None


def over_weight(weight: Weight, jobs: int, bounds: RequestBounds = BOUNDS) -> Problem | None:
    """Return the first maximum of bytes that a request exceeds, or None."""
    hint = "put large things into files"
    most, field = weight.heaviest
    if most > bounds.job_bytes:
        text = f"{field or 'the job'} has {most} bytes, at most {bounds.job_bytes} are kept of one job"
        return Problem("too_large", field, text, str(most), hint)
    if weight.log_bytes > bounds.log_bytes:
        text = f"these {jobs} jobs would take over {bounds.log_bytes} bytes of the log, more than is kept at once"
        return Problem("too_large", "jobs", text, str(weight.log_bytes), f"{hint}, or submit fewer at once")
    return None
