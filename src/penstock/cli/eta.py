"""`penstock eta`: estimated start times of waiting jobs, and the accuracy of past estimates."""

from collections.abc import Collection
from typing import Annotated

import typer

from penstock.api import types as api
from penstock.cli import forms
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.place import client_of
from penstock.core.model.answers import Bucket, Score
from penstock.core.model.errors import InvalidInput
from penstock.core.model.quantities import format_duration
from penstock.core.model.start_text import interval_text
from penstock.core.model.words import counted

EXPECTED = (10, 40, 40, 10)
"""Of a hundred starts, how many should come before the early time, between early and likely, and so on."""
PARTS = ("before early", "early to likely", "likely to late", "after late")
BAR_WIDTH = 40
UNTOLD = "unknown"


def eta(
    jobs: Annotated[list[int] | None, typer.Argument(help="Numbers of waiting jobs; by default all.")] = None,
    calibration: Annotated[bool, typer.Option("--calibration", help="Show how accurate past estimates were.")] = False,
    json: JsonOption = False,
) -> None:
    """Estimate when waiting jobs start. The interval holds 8 of 10 starts."""
    client = client_of()
    if not calibration:
        _print_etas(jobs or (), client.etas(), as_json=json)
    elif json:
        print_json(client.eta_calibration())
    else:
        _print_score(client.eta_calibration())


def _print_etas(jobs: Collection[int], found: api.EtaList, *, as_json: bool) -> None:
    known = {job.id for job in found.jobs}
    missing = [job for job in jobs if job not in known]
    if missing and found.untold:
        raise InvalidInput(f"job {missing[0]} has no estimate: {_not_simulated(found.untold)}")
    if missing:
        raise InvalidInput(f"job {missing[0]} does not wait, or is none", hint="penstock show says what it does")
    chosen = [job for job in found.jobs if not jobs or job.id in jobs]
    if as_json:
        print_json(api.EtaList(found.made_ms, found.samples, found.untold, chosen))
        return
    if not chosen and not forms.chosen().bare:
        say(_not_simulated(found.untold) if found.untold else "no job waits")
        return
    ordered = sorted(chosen, key=lambda j: (not j.likely_ms, j.likely_ms, j.id))
    rows = [_row(job, found.made_ms) for job in ordered]
    Console().print(
        table(
            ("job", "name", "queue", "waited", "starts", "8 of 10 such starts"),
            rows,
            right=("job",),
            drop=("waited", "queue", "8 of 10 such starts"),
            of=ordered,
            kind=api.EtaView,
        )
    )
    if found.untold:
        say(_not_simulated(found.untold))
    if not found.samples:
        say("no sample was simulated in time: too many jobs wait")


def _not_simulated(later: int) -> str:
    """Return that the jobs submitted last have no estimate, and why."""
    return f"{counted(later, 'later job')} {'was' if later == 1 else 'were'} not simulated: too many wait"


def _row(job: api.EtaView, now_ms: int) -> tuple[str, ...]:
    waited = format_duration(max(0, now_ms - job.submitted_ms))
    if not job.likely_ms:
        return str(job.id), job.name, job.queue, waited, UNTOLD, ""
    likely = f"in about {format_duration(max(0, job.likely_ms - now_ms))}"
    return str(job.id), job.name, job.queue, waited, likely, interval_text(now_ms, job.early_ms, job.late_ms)


def _print_score(score: Score) -> None:
    overall = score.overall
    if not overall.count:
        say(f"no estimate has come true yet; {score.open:,} are open")
        return
    held = score.held_permille / 10
    say(f"{held:.1f} % of {overall.count:,} starts came in their interval; 80 % should. {score.open:,} are open")
    for name, count, expected in zip(PARTS, overall.parts, EXPECTED, strict=True):
        share = 100 * count / overall.count
        bar = "#" * round(share * BAR_WIDTH / 100)
        say(f"  {name:>15}  {share:5.1f} % (of {expected:2} %)  {bar}")
    rows = [_bucket_row(bucket, least) for bucket, least in _with_least(score.buckets) if bucket.count]
    columns = ("likely within", "estimates", "in the interval", "off by (median)")
    Console().print(table(columns, rows, right=columns[1:]))


def _with_least(buckets: tuple[Bucket, ...]) -> list[tuple[Bucket, int]]:
    return list(zip(buckets, (0, *(b.within_ms for b in buckets)), strict=False))


def _bucket_row(bucket: Bucket, least_ms: int) -> tuple[str, ...]:
    within = format_duration(bucket.within_ms) if bucket.within_ms else f"more than {format_duration(least_ms)}"
    held = 100 * (bucket.parts[1] + bucket.parts[2]) / bucket.count
    return within, f"{bucket.count:,}", f"{held:.0f} %", format_duration(bucket.error_ms)
