"""Jobs in a notebook, and progress bars. What others have named is escaped."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TypeVar

from penstock.api.types import JobView
from penstock.core.model.errors import PenstockError
from penstock.core.model.quantities import format_duration

T = TypeVar("T")
ROWS_MAX = 20


def html_of(handle: object, views: Callable[[], Sequence[JobView]]) -> str:
    """Return the jobs of a handle as a table; where the server does not answer, what is known without it."""
    try:
        return jobs_html(views())
    except (PenstockError, OSError) as error:
        return f"<p>{escape(repr(handle))}: {escape(str(error))}</p>"


def jobs_html(jobs: Sequence[JobView]) -> str:
    """Return a table of the first jobs; of several also how many there are in each state."""
    if len(jobs) == 1:
        return _table(jobs)
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(Counter(job.state for job in jobs).items()))
    more = f"<p>and {len(jobs) - ROWS_MAX:,} more</p>" if len(jobs) > ROWS_MAX else ""
    return f"<p>{len(jobs):,} jobs: {escape(counts)}</p>{_table(jobs[:ROWS_MAX])}{more}"


def _table(jobs: Sequence[JobView]) -> str:
    columns = ("job", "name", "state", "queue", "devices", "nodes", "ran", "reason")
    head = "".join(f"<th>{column}</th>" for column in columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(job)) + "</tr>" for job in jobs)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(job: JobView) -> tuple[str, ...]:
    ran = format_duration(job.finished_ms - job.started_ms) if job.started_ms and job.finished_ms else ""
    return str(job.id), job.name, job.state, job.queue, job.devices_text, ", ".join(job.nodes), ran, job.reason


def shown_progress(ended: Iterable[T], total: int | None, what: str = "jobs") -> Iterator[T]:
    """Yield what is given, with a bar on standard error or in the notebook."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        for one in ended:
            yield one
            bar.advance(task)
