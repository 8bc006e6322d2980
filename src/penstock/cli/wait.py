"""`penstock wait`: until jobs have ended, or started."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.api import types as api
from penstock.cli.errors import JobsFailed, TimedOut
from penstock.cli.options import JsonOption, duration_ms
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of
from penstock.core.model.quantities import listed
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client import Client

POLL_S, POLL_MOST_S = 0.2, 2.0
ENDED = frozenset({"succeeded", "failed", "cancelled"})
STARTED = ENDED | {"running", "suspended", "stopping"}


def wait(
    jobs: Annotated[list[int], typer.Argument(help="Numbers of the jobs.", min=1)],
    until: Annotated[
        Literal["ended", "started"], typer.Option("--until", help="Wait until they have ended, or started.")
    ] = "ended",
    timeout: Annotated[str | None, typer.Option("--timeout", "-t", help="Give up after this time, such as 2h.")] = None,
    json: JsonOption = False,
) -> None:
    """Wait until jobs have ended. Exit code: 0 all succeeded, 1 one did not, 8 the time is over."""
    deadline = None if timeout is None else time.monotonic() + duration_ms("timeout", timeout) / 1000
    shown = _waited(client_of(), jobs, ENDED if until == "ended" else STARTED, deadline, quiet=json)
    if json:
        print_json({"jobs": shown})
    bad = [job for job in shown if job.state in ("failed", "cancelled")]
    if bad and json:
        sys.exit(1)
    if bad:
        raise JobsFailed(f"{counted(len(bad), 'job')} did not succeed: {listed(job.id for job in bad)}")


def _waited(
    client: "Client", jobs: list[int], wanted: frozenset[str], deadline: float | None, *, quiet: bool
) -> list[api.JobView]:
    """Return the jobs once all are in a wanted state; each is named when it gets there. Raises: TimedOut."""
    left, found, pause = list(dict.fromkeys(jobs)), {}, POLL_S
    while True:
        for number in list(left):
            shown = client.job(number)
            if shown.state in wanted:
                left.remove(number)
                found[number] = shown
                if not quiet:
                    why = f": {shown.reason}" if shown.reason and shown.state in ("failed", "cancelled") else ""
                    say(f"job {shown.id} ({shown.name}) {'is ' if shown.state == 'running' else ''}{shown.state}{why}")
        if not left:
            return [found[number] for number in found]
        remaining = pause if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            raise TimedOut(f"the time is over, and {counted(len(left), 'job')} did not get there: {listed(left)}")
        time.sleep(min(pause, remaining))
        pause = min(pause * 1.2, POLL_MOST_S)
