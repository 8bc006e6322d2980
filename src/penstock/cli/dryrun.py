"""`penstock plan`: what a submit would lead to, before it is one."""

import sys
from pathlib import Path

from penstock.api import types as api
from penstock.cli.jobs import request_of
from penstock.cli.options import JobShape, client_of
from penstock.cli.output import Console, marked, print_json
from penstock.core.ledger.bill import money
from penstock.core.model.answers import Quote
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.units import format_duration, parse_duration_ms

WAITS, UNTOLD = 10, 11
"""Exit codes: some job waits (longer than `--within`); of some job nobody can tell when it starts."""


def plan(data: Path | None, what: list[str], shape: JobShape, within: str | None, *, as_json: bool) -> None:
    within_ms = _within_ms(within)
    answer = client_of(data).plan(request_of(what, shape))
    if as_json:
        print_json(answer)
    else:
        for job in answer.jobs:
            _print(job, answer.now_ms)
    code = max((_code(job, answer.now_ms, within_ms) for job in answer.jobs), default=0)
    if code:
        sys.exit(code)


def _within_ms(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        problem = Problem("invalid_value", "within", f"within is '{text}': {error}", text, "such as 30s, 5m or 2h")
        raise InvalidInput(problem.message, problems=(problem,)) from None


def _code(job: api.PlannedJob, now_ms: int, within_ms: int) -> int:
    if job.starts_now:
        return 0
    if not job.start_p90_ms:
        return UNTOLD
    return 0 if job.start_p90_ms - now_ms <= within_ms else WAITS


def _price(price: Quote) -> str:
    """Return what a job costs, in words."""

    def between(low: int, high: int) -> str:
        one = money(low, price.digits)
        return one if low == high else f"{one} to {money(high, price.digits)}"

    text = f"costs {between(price.hour_low, price.hour_high)} {price.currency} an hour"
    if price.length_ms:
        total = between(price.total_low, price.total_high)
        text += f", {total} {price.currency} for {format_duration(price.length_ms)}"
    return text + ", before tiers"


def _print(job: api.PlannedJob, now_ms: int) -> None:
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
    if not job.starts_now and job.start_p50_ms:
        low, high = job.start_p10_ms - now_ms, job.start_p90_ms - now_ms
        most = format_duration(max(0, high)) if job.start_p90_ms else "never told"
        out.print(f"  8 of 10 samples: {format_duration(max(0, low))} to {most}; if nobody submits anything else")
    if job.price is not None:
        out.print(f"  {_price(job.price)}")
    if job.explanation is not None:
        for constraint in job.explanation.constraints:
            out.print(f"  {constraint.code}: {constraint.text}")
        for edit in job.explanation.edits:
            when = "would start now" if edit.starts_now else "would make room now"
            out.print(marked("  [green]{}:[/] {}", when, edit.text))
