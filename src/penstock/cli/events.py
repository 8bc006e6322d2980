"""`penstock events`: what happened, from the log."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.errors import UsageError
from penstock.cli.forms import chosen
from penstock.cli.output import json_line, print_json, raw, say
from penstock.cli.place import client_of
from penstock.cli.story import story
from penstock.core.model.events import Record

if TYPE_CHECKING:
    from penstock.client import Client

POLL_S = 0.3
LAST = 50


def events(
    job: Annotated[int | None, typer.Argument(help="Number of a job; by default everything.", min=1)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what happens from now on, too.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", help="How many to begin with.", min=0, max=10_000)] = LAST,
    json: Annotated[bool, typer.Option("--json", help="Print each event as a JSON object.")] = False,
) -> None:
    """List what happened, from the log. The newest last; with --follow until it is interrupted."""
    client = client_of()
    seq = client.cluster().seq
    records = client.job_events(job) if job is not None else client.events(max(0, seq - last))
    if chosen().of_items or chosen().output == "yaml":
        if follow:
            raise UsageError("--follow prints lines or JSON, no other form", hint="leave --follow out")
        kept = records[-last:] if last else []
        flat = [(record.seq, record.time_ms, msgspec.to_builtins(record.event)) for record in kept]
        print_json(
            {"events": kept}, of=[{"seq": seq, "time_ms": time_ms, **event} for seq, time_ms, event in flat], key="seq"
        )
        return
    for record in records[-last:] if last else []:
        _print(record, as_json=json)
    if not records and not follow and last:
        say(_none_of(job, min(last, seq), seq), err=True)
    if follow:
        for record in _following(client, max(seq, records[-1].seq if records else 0)):
            if job is None or getattr(record.event, "job_id", None) == job:
                _print(record, as_json=json)


def _none_of(job: int | None, looked: int, seq: int) -> str:
    """Return that there is nothing to print: among the last events of a log there may be those of others only."""
    if job is not None:
        return f"no events of job {job}"
    return f"none of the last {looked:,} events is yours" + (": --last N looks further back" if looked < seq else "")


def _following(client: "Client", after: int) -> Iterator[Record]:
    while True:
        found, after = client.events_after(after)
        yield from found
        time.sleep(POLL_S)


def _print(record: Record, *, as_json: bool) -> None:
    if as_json:
        raw(json_line(record).encode())
        return
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.time_ms / 1000))
    job = getattr(record.event, "job_id", None)
    say(f"{when}  {f'job {job}: ' if job is not None else ''}{story(record)}")
