"""Progress of long work on standard error: a bar on a terminal, elsewhere a line now and then.

Of work whose length is not known, a terminal shows after a second what is waited for, and since when.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.cli.output import say
from penstock.core.model.quantities import format_duration

LINE_EVERY_S = 10.0
WAIT_SHOWN_AFTER_S = 1.0
STEPS = 500
"""How often the share of a long list is told, at most."""
T = TypeVar("T")
OnShare = Callable[[float], None]
"""Called with the part of the work that is done, 0 to 1."""


@contextmanager
def progress(title: str, *, total: int = 0, noun: str = "jobs", quiet: bool) -> Iterator[OnShare | None]:
    """Show how much is done and the time left: a bar on a terminal, else a line every `LINE_EVERY_S`.

    Args:
        total: what there is of `noun`; 0 where the work is not counted so.
        quiet: show nothing, as for JSON.
    """
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield ProgressLines(total, noun)
        return
    from rich import progress as bars

    done = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TaskProgressColumn())
    times = (bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn())
    with bars.Progress(*done, *times, transient=True, **_on_terminal()) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def waiting(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is waited for, once it has taken a second; yield what changes the text.

    Args:
        text: words and numbers of our own, nothing that others wrote.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich import progress as bars

    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}", markup=False), bars.TimeElapsedColumn())
    bar = bars.Progress(*columns, transient=True, **_on_terminal())
    task = bar.add_task(text, total=None)
    shown = threading.Timer(WAIT_SHOWN_AFTER_S, bar.start)
    shown.daemon = True
    shown.start()
    try:
        yield lambda text: bar.update(task, description=text)
    finally:
        shown.cancel()
        shown.join()
        bar.stop()


def _on_terminal() -> dict[str, Any]:
    """Return where a bar stands: on standard error, and above it what is printed meanwhile; never in a pipe or file."""
    import rich.console

    console = rich.console.Console(stderr=True)
    return {"console": console, "redirect_stdout": sys.stdout.isatty(), "redirect_stderr": True}


def shared(rows: Iterable[T], on_share: OnShare | None, total: int) -> Iterator[T]:
    """Yield the rows, and tell their share of `total` as they are taken."""
    every = max(1, total // STEPS)
    for place, row in enumerate(rows, start=1):
        yield row
        if on_share is not None and place % every == 0:
            on_share(min(1.0, place / max(1, total)))


class ProgressLines:
    """Says in lines what a bar shows, for logs and pipes: never two within `LINE_EVERY_S`, and none of short work."""

    def __init__(
        self,
        total: int,
        noun: str,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        print_line: Callable[[str], None] = lambda line: say(line, err=True),
    ) -> None:
        self._total, self._noun, self._clock_s, self._print = total, noun, clock_s, print_line
        self._start_s = self._begun_s = self._said_s = clock_s()
        self._share = 0.0

    def __call__(self, share: float) -> None:
        """Take the part that is done; one below the last begins anew, as with each replay of a search."""
        now_s = self._clock_s()
        if share < self._share:
            self._begun_s = now_s
        self._share = share
        if now_s - self._said_s >= LINE_EVERY_S and share < 1:
            self._said_s = now_s
            self._print(self._line(now_s, share))

    def _line(self, now_s: float, share: float) -> str:
        passed = format_duration(round(now_s - self._start_s) * 1000)
        counted = f", {int(share * self._total):,} of {self._total:,} {self._noun}" if self._total else ""
        spent_s = now_s - self._begun_s
        left_ms = round(spent_s * (1 - share) / share) * 1000 if share else 0
        left = f"about {format_duration(left_ms)} left" if share else "time left unknown"
        return f"after {passed}: {100 * share:.1f} % done{counted}, {left}"
