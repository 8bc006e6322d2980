"""Progress of long computations on standard error: a bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.output import say
from penstock.core.model.quantities import format_duration

LINE_EVERY_S = 10.0
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
    import rich.console
    from rich import progress as bars

    done = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TaskProgressColumn())
    times = (bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn())
    with bars.Progress(*done, *times, transient=True, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


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
