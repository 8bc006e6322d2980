"""`penstock attach`: the output of a running job from now on, until it ends or the reader leaves."""

import sys
import time
from typing import Annotated

import typer

from penstock.api import types as api
from penstock.cli.errors import NotRunning
from penstock.cli.logs import OutputFollower, check_place, exit_code, follow_job
from penstock.cli.options import JobArgument
from penstock.cli.output import say
from penstock.cli.place import client_of
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.model.quantities import format_duration

INTERRUPTED = 130


def attach(
    job: JobArgument,
    rank: Annotated[int | None, typer.Option(help="Only this replica.", min=0)] = None,
    tail: Annotated[int, typer.Option("--tail", "-n", help="Begin with the last N lines of each output.", min=0)] = 0,
) -> None:
    """Follow a job's output from now on. Exits with the job's exit code; Ctrl-C detaches, and the job goes on."""
    client = client_of()
    shown = client.job(job)
    if shown.state in FINAL_STATES:
        raise NotRunning(
            f"job {job} is over ({shown.state}): there is no more output to follow", hint=f"penstock logs {job}"
        )
    if rank is not None:
        check_place(client.outputs(job), shown, rank=rank, attempt=None)
    follower = OutputFollower(client, job, rank=rank, tail=tail)
    try:
        follower.step()  # what is written from here on is printed
        say(f"penstock: {_greeting(shown)}; Ctrl-C detaches, the job goes on", err=True)
        ended = follow_job(client, job, follower=follower, say=lambda text: say(f"penstock: {text}", err=True))
    except KeyboardInterrupt:
        back = f"penstock attach {job}" + ("" if rank is None else f" --rank {rank}")
        say("", f"penstock: detached; job {job} goes on. Come back with: {back}", err=True)
        sys.exit(INTERRUPTED)
    why = f": {ended.reason}" if ended.reason and ended.state != "succeeded" else ""
    say(f"penstock: job {job} {ended.state}{why}", err=True)
    sys.exit(exit_code(ended))


def _greeting(job: api.JobView) -> str:
    """Return the job and what it does: `job 3 (train) is running for 5m on n1`."""
    since = f" for {format_duration(max(0, time.time_ns() // 1_000_000 - job.started_ms))}" if job.started_ms else ""
    where = f" on {', '.join(job.nodes)}" if job.nodes else ""
    return f"job {job.id} ({job.name}) is {job.state}{since if job.state != 'waiting' else ''}{where}"
