"""`penstock audit`: decisions made again from the log."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.eventlog import log_of
from penstock.cli.options import JsonOption, LogOption
from penstock.cli.output import Console, marked, print_json, say
from penstock.cli.progress import progress
from penstock.core.model import events as ev
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import JobId
from penstock.core.model.quantities import exact_duration

if TYPE_CHECKING:
    from penstock.core.audit import NodeScore, Ruling

DIGEST_SHOWN = 12
UNLAWFUL = 1
"""Exit code when a decision differs or a rule was broken."""


def audit(
    job: Annotated[int | None, typer.Argument(help="Number of a job; by default every decision of the log.")] = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> None:
    """Repeat every decision from the log, and check the rules.

    Exit code 1 when a decision differs, or a rule was broken.
    """
    from penstock.core.audit import audit as rederived
    from penstock.extensions import installed_policies

    records = log_of(log, quiet=json)
    job_id = None if job is None else JobId(job)
    submitted = _submitted(records, job_id)
    with progress(f"{len(records):,} records", total=len(records), noun="records", quiet=json) as on_share:

        def told(place: int) -> None:
            if on_share is not None and place % 1000 == 0:
                on_share(place / len(records))

        rulings = list(rederived(records, job_id, policies=installed_policies(), on_record=told))
    bad = [ruling for ruling in rulings if not ruling.lawful]
    if json:
        print_json({"job": job_id, "records": len(records), "lawful": not bad, "rulings": rulings})
    else:
        if submitted is not None:
            _head(submitted)
        for ruling in rulings if job_id is not None else bad:
            _print(ruling, job_id)
        _sum_up(rulings, len(records))
    if bad:
        sys.exit(UNLAWFUL)


def _submitted(records: Sequence[ev.Record], job_id: JobId | None) -> ev.Record | None:
    if job_id is None:
        return None
    jobs = [r for r in records if isinstance(r.event, ev.JobSubmitted)]
    found = next((r for r in jobs if isinstance(r.event, ev.JobSubmitted) and r.event.job_id == job_id), None)
    if found is None:
        raise InvalidInput(f"the log has no job {job_id}", hint=f"it tells of {len(jobs)} jobs")
    return found


def _head(record: ev.Record) -> None:
    from penstock.report.text import moment

    event = record.event
    assert isinstance(event, ev.JobSubmitted)
    spec, out = event.spec, Console()
    name = f" '{spec.name}'" if spec.name else ""
    pattern = "[bold]job {}{}[/] of {}, queue {}, priority {}; submitted {}"
    out.print(marked(pattern, event.job_id, name, event.user, spec.queue, spec.priority, moment(record.time_ms)))


def _print(ruling: "Ruling", job_id: JobId | None) -> None:
    from penstock.report.text import moment

    out = Console()
    whose = f"job {ruling.job_id}: " if ruling.job_id not in (job_id, 0) else ""
    out.print(marked("[bold]{}  {}[/]", moment(ruling.time_ms), whose + ruling.text))
    if ruling.planned:
        _print_plan(ruling)
    for check in ruling.checks:
        mark = "[green]holds[/]" if check.holds else "[red]BROKEN[/]"
        out.print(marked(f"    {mark}  {{}}: {{}}", check.rule, check.text))
    if ruling.scores:
        out.print(f"    scores by {ruling.rule}, lowest first: {'; '.join(map(_score, ruling.scores))}")


def _print_plan(ruling: "Ruling") -> None:
    out = Console()
    if not ruling.basis:
        out.print(f"    by {ruling.rule}; the log does not say on which record: it cannot be made again")
        return
    before = exact_duration(max(0, ruling.time_ms - ruling.decided_ms))
    state = f" (state {ruling.digest[:DIGEST_SHOWN]})" if ruling.digest else ""
    version = f" with penstock {ruling.version}" if ruling.version else ""
    out.print(f"    by {ruling.rule}, decided on record {ruling.basis}{state}{version}, {before} before")
    if ruling.same:
        out.print(marked("    [green]holds[/]  again: the same inputs give the same decision"))
    else:
        out.print(marked("    [red]DIFFERS[/]  again: from the same inputs {}", ruling.instead))


def _score(score: "NodeScore") -> str:
    alike = f" (+{score.alike} alike)" if score.alike else ""
    parts = f" ({score.parts})" if score.parts else ""
    return f"{score.node} {score.score:,}{parts}{alike}" + (" <- chosen" if score.chosen else "")


def _sum_up(rulings: "Sequence[Ruling]", records: int) -> None:
    kinds = Counter((r.kind, r.same, r.lawful) for r in rulings)
    again = sum(n for (_, same, _), n in kinds.items() if same)
    untold = sum(1 for r in rulings if r.planned and not r.basis)
    unplanned = sum(1 for r in rulings if not r.planned)
    lawful = sum(n for (_, _, fine), n in kinds.items() if fine)
    text = f"{len(rulings):,} decisions in {records:,} records: {again:,} come out the same again"
    text += f", {unplanned:,} followed from what happened" if unplanned else ""
    text += f", {untold:,} do not say what they were made on and cannot be made again" if untold else ""
    say(f"{text}; {lawful:,} of {len(rulings):,} are lawful")
