"""`penstock submit`."""

from typing import Annotated

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.cli.requests import request_of
from penstock.cli.schedule import rule_of, set_schedule, with_schedule
from penstock.cli.shape import JobShape, WhatArgument, shaped
from penstock.client.snapshots import with_snapshots


@shaped()
def submit(
    what: WhatArgument,
    shape: JobShape = JobShape(),
    key: Annotated[str | None, typer.Option(help="Idempotency key: a repeated one submits nothing new.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="CRON", help="Submit it at these times: '0 3 * * *', @daily.")
    ] = None,
    zone: Annotated[str | None, typer.Option("--zone", help="Time zone of --schedule, such as Europe/Berlin.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Submit nothing; show the plan.")] = False,
    json: JsonOption = False,
) -> None:
    """Submit a job file or a command, and return at once.

    With a schedule it is submitted again and again, at its times.
    """
    if dry_run:
        from penstock.cli.plan import planned, print_plan

        print_plan(planned(request_of(what, shape), quiet=json), as_json=json)
        return
    request = with_schedule(request_of(what, shape), schedule, zone)
    rule = rule_of(request)
    if rule is not None:
        set_schedule(request, rule, json=json)
        return
    client = client_of()
    with waiting("submitting", quiet=json) as say_what:
        request = with_snapshots(client, request, say_what)
        answer = client.submit_request(request, idempotency_key=key)
    if json:
        print_json(answer, of=answer.jobs)
        return
    for text in answer.warnings:
        say(f"warning: {text}", err=True)
    again = " (submitted before under this key)" if answer.repeated else ""
    if len(answer.jobs) > 8:
        first, last = answer.jobs[0], answer.jobs[-1]
        say(f"jobs {first.id} to {last.id} ({len(answer.jobs)} jobs){again}")
        return
    for job in answer.jobs:
        say(f"job {job.id} ({job.name}){again}")
