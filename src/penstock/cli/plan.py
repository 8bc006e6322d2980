"""`penstock plan`: the effect of a submit, without submitting."""

import sys
from typing import Annotated, Any

import typer

from penstock.cli.options import JsonOption, duration_ms
from penstock.cli.output import Console, marked, print_json
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.cli.requests import request_of
from penstock.cli.shape import JobShape, WhatArgument, shaped
from penstock.core.model.answers import PlanAnswer, PlannedJob, Quote
from penstock.core.model.quantities import format_duration, money
from penstock.core.model.start_text import latest_text

WAITS, UNTOLD = 10, 11
"""Exit codes: some job waits (longer than `--within`); the start of some job is unknown."""


@shaped()
def plan(
    what: WhatArgument,
    shape: JobShape = JobShape(),
    within: Annotated[str | None, typer.Option(help="Exit with 0 if it starts within this time.")] = None,
    json: JsonOption = False,
) -> None:
    """Show what a submit would do, without submitting. Exit code: 0 starts now, 10 waits, 11 unknown."""
    within_ms = 0 if within is None else duration_ms("within", within)
    print_plan(planned(request_of(what, shape), quiet=json), within_ms, as_json=json)


def planned(request: Any, *, quiet: bool) -> PlanAnswer:
    """Return the server's plan for a request."""
    client = client_of()
    with waiting("the server makes a plan", quiet=quiet):
        return client.plan(request)


def print_plan(answer: PlanAnswer, within_ms: int = 0, *, as_json: bool) -> None:
    """Print when jobs would start; the exit code says whether all of them do within a time."""
    if as_json:
        print_json(answer)
    else:
        for job in answer.jobs:
            _print(job, answer.now_ms)
    code = max((_code(job, answer.now_ms, within_ms) for job in answer.jobs), default=0)
    if code:
        sys.exit(code)


def _code(job: PlannedJob, now_ms: int, within_ms: int) -> int:
    if job.starts_now:
        return 0
    if not job.start_p90_ms:
        return UNTOLD
    return 0 if job.start_p90_ms - now_ms <= within_ms else WAITS


def _price(price: Quote) -> str:
    """Return the costs of a job, in words."""

    def between(low: int, high: int) -> str:
        one = money(low, price.digits)
        return one if low == high else f"{one} to {money(high, price.digits)}"

    text = f"costs {between(price.hour_low, price.hour_high)} {price.currency} an hour"
    if price.length_ms:
        total = between(price.total_low, price.total_high)
        text += f", {total} {price.currency} for {format_duration(price.length_ms)}"
    return text + ", before tiers"


def _print(job: PlannedJob, now_ms: int) -> None:
    out = Console()
    count = f" x {job.count}" if job.count > 1 else ""
    style = "green" if job.starts_now else "yellow" if job.start_p50_ms else "red"
    out.print(marked(f"[bold]{{}}[/]{{}}: [{style}]{{}}[/]", job.name, count, job.text))
    nodes: dict[str, list[str]] = {}
    for place in job.places:
        nodes.setdefault(place.node, []).extend(map(str, place.devices))
    for node, devices in nodes.items():
        out.print(f"  on {node}" + (f": device {', '.join(devices)}" if devices else ""))
    for victim in job.preempts:
        name = f" ({victim.name})" if victim.name else ""
        out.print(f"  would preempt job {victim.job_id}{name}, by the rule {victim.rule}")
    if job.price is not None:
        out.print(f"  {_price(job.price)}")
    if job.explanation is not None:
        if job.explanation.start_by_ms and not job.starts_now:
            out.print(f"  starts {latest_text(now_ms, job.explanation.start_by_ms)}")
        for constraint in job.explanation.constraints:
            out.print(marked("  {} [dim]({})[/]", constraint.text, constraint.code))
        for edit in job.explanation.edits:
            when = "would start now" if edit.starts_now else "would make room now"
            out.print(marked("  [green]{}:[/] {}", when, edit.text))
