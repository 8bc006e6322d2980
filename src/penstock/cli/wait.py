"""`penstock wait`: until jobs have ended, or started."""

import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.api import types as api
from penstock.cli.errors import JobsFailed, TimedOut
from penstock.cli.options import JsonOption, duration_ms
from penstock.cli.output import EXIT_CODES, print_json, say
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.model.quantities import listed
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client import Client

POLL_S, POLL_MOST_S = 0.2, 2.0
REQUESTS_PER_S = 10
"""At most, for jobs that have not got there."""
FAILED = ("failed", "cancelled")
STARTED = FINAL_STATES | {"running", "suspended", "stopping"}


def wait(
    jobs: Annotated[list[int], typer.Argument(help="Numbers of the jobs.", min=1)],
    until: Annotated[
        Literal["ended", "started"], typer.Option("--until", help="Wait until they have ended, or started.")
    ] = "ended",
    timeout: Annotated[str | None, typer.Option("--timeout", "-t", help="Give up after this time, such as 2h.")] = None,
    json: JsonOption = False,
) -> None:
    """Wait until jobs have ended. Exit code: 0 all succeeded, 1 one did not, 8 the timeout is reached."""
    client, wanted = client_of(), FINAL_STATES if until == "ended" else STARTED
    shown: list[api.JobView] = []
    left = deque(dict.fromkeys(jobs))
    timeout_ms = None if timeout is None else duration_ms("timeout", timeout)
    with waiting(_left(left), quiet=json) as change:
        for found in reached(client, left, wanted, timeout_ms):
            shown.append(found)
            if not json:
                _say(found)
            change(_left(left))
    if left:
        missing = (
            f"{counted(len(left), 'job')} {'has' if len(left) == 1 else 'have'} not {until}: {listed(sorted(left))}"
        )
        raise TimedOut(f"timeout of {timeout} reached: {missing}")
    if json:
        print_json({"jobs": shown})
    bad = [job for job in shown if job.state in FAILED]
    if bad and json:
        sys.exit(EXIT_CODES["job_failed"])
    if bad:
        raise JobsFailed(f"{counted(len(bad), 'job')} did not succeed: {listed(job.id for job in bad)}")


def reached(
    client: "Client", left: deque[int], wanted: frozenset[str], timeout_ms: int | None
) -> Iterator[api.JobView]:
    """Yield each job when it is in a wanted state, and take it off `left`; end when the time is over.

    All jobs are asked for once; then as many of those left as the rate allows, in turn, and after one that has got
    there the next at once.
    """
    deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    pause, asks = POLL_S, len(left)
    while True:
        while left and asks > 0:
            shown = client.job(left[0])
            if shown.state in wanted:
                left.popleft()
                yield shown
            else:
                left.rotate(-1)
                asks -= 1
        remaining = pause if deadline is None else deadline - time.monotonic()
        if not left or remaining <= 0:
            return
        time.sleep(min(pause, remaining))
        pause = min(pause * 1.2, POLL_MOST_S)
        asks = min(len(left), round(pause * REQUESTS_PER_S))


def _left(jobs: Collection[int]) -> str:
    """Return what is still waited for."""
    return f"waiting for {counted(len(jobs), 'job')}: {listed(sorted(jobs))}"


def _say(job: api.JobView) -> None:
    why = f": {job.reason}" if job.reason and job.state in FAILED else ""
    say(f"job {job.id} ({job.name}) {'is ' if job.state == 'running' else ''}{job.state}{why}")
