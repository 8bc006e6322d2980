"""`penstock ps`: the list of jobs."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.api import types as api
from penstock.cli.forms import chosen, sorted_by, using
from penstock.cli.options import JsonOption, one_of, pairs
from penstock.cli.output import Console, print_json, say, styled, table
from penstock.cli.place import client_of
from penstock.cli.remaining import left
from penstock.core.model.errors import InvalidInput, nearest
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.model.quantities import format_duration

if TYPE_CHECKING:
    from rich.text import Text

LIVE = ("running", "starting", "stopping", "suspended", "waiting")
"""In the order in which they are counted."""
STATES = (*LIVE, *sorted(FINAL_STATES))
SORTS = ("newest", "id", "priority", "submitted")
COLUMNS = ("job", "name", "state", "user", "tenant", "prio", "devices", "nodes", "waited", "ran", "left", "att", "step",
           "why")  # fmt: skip
RIGHT = ("job", "prio", "waited", "ran", "left", "att", "step")
DROP = ("att", "user", "step", "prio", "left", "tenant", "waited", "nodes", "ran", "why", "devices")
"""Columns left out at a narrow terminal, in this order."""
WHY = {
    "admission": "not its turn yet",
    "array_turn": "its array's turn",
    "backing_off": "failed, retries soon",
    "cycle_full": "starts next cycle",
    "dependency": "other jobs first",
    "expected_demand": "room for expected jobs",
    "held": "held",
    "kept_back": "room kept for others",
    "making_room": "others make room",
    "no_fit": "no room",
    "no_queue": "queue is gone",
    "not_lent": "not lent to it",
    "quota": "quota reached",
    "decided_elsewhere": "fits: not placed yet",
    "power_cap": "pool's power limit",
    "reserve": "pool's reserve",
    "tenant_held": "tenant has no money",
}
"""Reasons of waiting in a few words; `penstock explain` has the numbers."""


def ps(
    all: Annotated[bool, typer.Option("--all", "-a", help="Finished jobs, too.")] = False,  # noqa: A002
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="In this state; may be repeated.")] = None,
    name: Annotated[str | None, typer.Option("--name", "-J", help="With this name, or a pattern: 'train-*'.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Your own.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", "-A", help="Of this tenant.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-p", help="In this queue.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="With this label, NAME=VALUE.")] = None,
    array: Annotated[int | None, typer.Option("--array", help="The members of this array.", min=1)] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="ORDER",
            help="newest, id, priority or submitted; or sort the page by a column or field, -NAME: greatest first.",
        ),
    ] = "newest",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Jobs on a page.", min=1, max=1000)] = 100,
    cursor: Annotated[str, typer.Option("--cursor", help="The next page, as the one before names it.")] = "",
    json: JsonOption = False,
) -> None:
    """List jobs. Running before waiting, newest first; an array is one line. --all lists finished jobs, too."""
    client = client_of()
    order = _sort_of(sort)
    form = chosen() if order == sort else sorted_by(chosen(), sort)
    states = [one_of("--state", each, STATES) for each in state or []]
    query: dict[str, Any] = {
        "state": states,
        "name": name,
        "user": client.me().user if mine else user,
        "tenant": tenant,
        "queue": queue,
        "label": [f"{key}={value}" for key, value in pairs("--label", label or []).items()],
        "array": array,
        "sort": order,
        "finished": "true" if all else None,
        "fold_arrays": "true" if array is None else None,
        "cursor": cursor,
        "limit": limit,
    }
    listed = client.jobs(**{key: value for key, value in query.items() if value})
    if json:
        print_json(listed)
        return
    with using(form):
        _print(listed, filtered=any((states, name, mine, user, tenant, queue, label, array)), finished=all)


def _sort_of(sort: str) -> str:
    """Return the server's order; a column or field sorts the page that came. Raises: InvalidInput for neither."""
    if sort in SORTS:
        return sort
    name = sort.removeprefix("-")
    known = [*COLUMNS, *(field.encode_name for field in msgspec.structs.fields(api.JobView))]
    if name not in known:
        hint = nearest(name, [*SORTS, *known])
        raise InvalidInput(f"--sort is '{sort}', expected one of {', '.join(SORTS)}, or a column or field", hint=hint)
    return SORTS[0]


def _print(listed: api.JobList, *, filtered: bool, finished: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [_row(job, now_ms) for job in listed.jobs]
    if rows or chosen().bare:
        Console().print(
            table(COLUMNS, rows, right=RIGHT, drop=DROP, text=("why",), of=listed.jobs, kind=api.JobView, key="job")
        )
    counts = [f"{listed.totals[state]:,} {state}" for state in LIVE if listed.totals.get(state)]
    where = " that match" if filtered else ""
    say(", ".join(counts) + where if counts else f"no jobs{where} are running or waiting")
    if not counts and not finished:
        say("finished ones: penstock ps --all")
    if listed.next_cursor:
        say(f"more: the same with --cursor {listed.next_cursor}", err=chosen().bare)


def _row(job: api.JobView, now_ms: int) -> "tuple[str | Text, ...]":
    started = 0 if job.state == "waiting" else job.started_ms
    waited = (started or job.finished_ms or now_ms) - job.submitted_ms
    ran = (job.finished_ms or now_ms) - started if started else 0
    counts = sorted(job.array_counts.items(), key=lambda one: (*STATES, one[0]).index(one[0]))
    name = f"{job.name}[{job.array_index}]" if job.array_id is not None else job.name
    return (
        f"{job.array_id}[]" if counts else str(job.id),
        f"{job.name}[]" if counts else name,
        ", ".join(f"{count:,} {state}" for state, count in counts) if counts else styled(job.state),
        job.user,
        job.tenant,
        str(job.priority),
        job.devices_text,
        ",".join(job.nodes),
        format_duration(max(0, waited)),
        format_duration(max(0, ran)) if started else "",
        left(job, now_ms),
        str(job.attempt or ""),
        str(job.step) if job.step else "",
        WHY.get(job.reason, job.reason),
    )
