"""`penstock run`: a command as a job, with its output in this terminal."""

import sys
from typing import Annotated

import typer

from penstock.cli.logs import exit_code, follow_job
from penstock.cli.output import print_json, say
from penstock.cli.progress import waiting
from penstock.cli.requests import from_command
from penstock.cli.shape import JobShape, shaped
from penstock.cli.up import ensure
from penstock.client.snapshots import with_snapshots


@shaped(without=("array",))
def run(
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.")],
    shape: JobShape = JobShape(),
    json: Annotated[
        bool, typer.Option("--json", help="Print the ended job as JSON; its output goes to standard error.")
    ] = False,
) -> None:
    """Run a command as a job and follow its output. Exits with the job's exit code."""
    client = ensure()
    with waiting("sending the folder", quiet=json) as say_what:
        request = with_snapshots(client, from_command(command, shape), say_what)
    answer = client.submit_request(request)
    for text in answer.warnings:
        say(f"penstock: warning: {text}", err=True)
    made = answer.jobs[0]
    say(f"penstock: job {made.id} ({made.name})", err=True)
    try:
        ended = follow_job(client, made.id, err=json, say=lambda text: say(f"penstock: {text}", err=True))
    except KeyboardInterrupt:
        client.cancel(made.id)
        say("", f"penstock: job {made.id} is being cancelled", err=True)
        sys.exit(130)
    if json:
        print_json(ended)
    elif ended.reason and ended.state != "succeeded":
        say(f"penstock: job {made.id} {ended.state}: {ended.reason}", err=True)
    sys.exit(exit_code(ended))
