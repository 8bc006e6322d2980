"""The page's tables: waiting, interruptions, jobs and usage."""

from collections.abc import Sequence

from penstock.core.model.ids import JobId
from penstock.core.model.quantities import format_energy
from penstock.core.model.refused import refused_text
from penstock.report.page import note
from penstock.report.run.build import tenant_totals
from penstock.report.run.causes import CAUSES
from penstock.report.run.model import Interruption, InterruptionKind, JobRow, RunReport, Usage, WaitCause, WaitPart
from penstock.report.run.style import tenant_class
from penstock.report.tables import Cell, number, row, segment, swatch, table, text, track
from penstock.report.text import clock, counted, duration, esc, percent

WAIT_ROWS_MAX = 100
INTERRUPTION_ROWS_MAX = 300
JOB_ROWS_MAX = 600
"""Rows of jobs, members of arrays included."""
BLOCKERS_NAMED_MAX = 3
_KIND_TEXT: dict[InterruptionKind, str] = {
    "preempted": "preempted",
    "lost": "node lost",
    "drained": "drained",
    "failed": "failed, retried",
}


def left_out(total: int, most: int, noun: str, rule: str) -> str:
    """Return a note when a table is cut, or ''."""
    return note(f"{counted(total - most, 'more ' + noun)} not shown ({rule}).") if total > most else ""


def waiting(report: RunReport) -> str:
    """Return the total by cause, and a stacked bar for each job or array that waited, longest first."""
    sums: dict[WaitCause, int] = {}
    for part in (p for job in report.jobs for p in job.waits):
        sums[part.cause] = sums.get(part.cause, 0) + part.duration_ms
    total_ms = sum(sums.values())
    if not total_ms:
        return note("No job waited.")
    causes = [c for c in CAUSES if c in sums]
    names = {job.id: job.label for job in report.jobs}
    entries = sorted(_wait_entries(report.jobs), key=lambda e: -sum(p.duration_ms for p in e[1]))
    widest = sum(p.duration_ms for p in entries[0][1])
    by_cause = [
        row(
            (
                Cell(swatch(f"c-{c}", CAUSES[c].label), CAUSES[c].label),
                number(sums[c], duration(sums[c])),
                number(1000 * sums[c] // total_ms, percent(sums[c], total_ms)),
                text(CAUSES[c].meaning),
            )
        )
        for c in causes
    ]
    bodies = [_wait_row(who, parts, widest, names) for who, parts in entries[:WAIT_ROWS_MAX]]
    whole = track(segment(f"c-{c}", sums[c], total_ms, f"{CAUSES[c].label}: {duration(sums[c])}") for c in causes)
    return (
        f'<div class="whole">{whole}</div>'
        + table("Waiting time by cause", ("cause", "#time", "#share", "meaning"), by_cause)
        + table("Jobs that waited, longest first", ("job", "", "#waited", "for what"), bodies, "waits")
        + left_out(len(entries), WAIT_ROWS_MAX, "job", "those that waited least")
    )


def _wait_entries(jobs: Sequence[JobRow]) -> list[tuple[Cell, tuple[WaitPart, ...]]]:
    """Return the entries with a bar: each job, and for each array the mean over its members."""
    entries, arrays = [], dict[JobId, list[JobRow]]()
    for job in jobs:
        if job.array_id is not None:
            arrays.setdefault(job.array_id, []).append(job)
        elif job.waits:
            entries.append((Cell(_job_link(job), job.label.lower()), job.waits))
    for members in arrays.values():
        parts = _mean_parts(members)
        if parts:
            name = esc(members[0].name or f"array {members[0].array_id}")
            entries.append((Cell(f"{name} <small>mean of {len(members)}</small>", name), parts))
    return entries


def _mean_parts(members: Sequence[JobRow]) -> tuple[WaitPart, ...]:
    parts = []
    for cause in CAUSES:
        mine = [p for job in members for p in job.waits if p.cause == cause]
        mean_ms = sum(p.duration_ms for p in mine) // len(members)
        if mean_ms:
            longest = max(mine, key=lambda p: p.duration_ms)
            parts.append(WaitPart(cause, mean_ms, longest.refused, longest.blockers))
    return tuple(parts)


def _wait_row(who: Cell, parts: Sequence[WaitPart], widest: int, names: dict[JobId, str]) -> str:
    total_ms = sum(p.duration_ms for p in parts)
    bar = track(
        segment(f"c-{p.cause}", p.duration_ms, widest, f"{CAUSES[p.cause].label}: {duration(p.duration_ms)}")
        for p in parts
    )
    why = "; ".join(_why(p, names) for p in sorted(parts, key=lambda p: -p.duration_ms))
    return row((who, Cell(bar), number(total_ms, duration(total_ms)), Cell(why)))


def _why(part: WaitPart, names: dict[JobId, str]) -> str:
    shown = [esc(names.get(i, f"job {i}"), 40) for i in part.blockers[:BLOCKERS_NAMED_MAX]]
    if len(part.blockers) > BLOCKERS_NAMED_MAX:
        shown.append(f"{len(part.blockers) - BLOCKERS_NAMED_MAX} more")
    detail = ", ".join(shown) or esc(_refusals(part))
    about = f" <small>({detail})</small>" if detail else ""
    return f"{CAUSES[part.cause].label} {duration(part.duration_ms)}{about}"


def _refusals(part: WaitPart) -> str:
    """Return why nodes refused, in the product's words: `2 nodes have too few devices free`."""
    if part.cause == "no_fit" and not part.refused:
        return "no node was there"
    return refused_text(part.refused)


def interruptions(report: RunReport) -> str:
    """Return the table of attempts that had to stop early, and how their jobs went on."""
    if not report.interruptions:
        return note("No attempt was interrupted.")
    jobs = {job.id: job for job in report.jobs}
    heads = ("#at", "what", "job", "for / why", "#cost, device-s", "#grace", "#left after", "#next ran after",
             "#saved step", "#resumed step", "#steps lost", "#back after", "on")  # fmt: skip
    bodies = [_interruption_row(i, jobs, report.start_ms) for i in report.interruptions[:INTERRUPTION_ROWS_MAX]]
    caption = "Preemptions, node losses, drains and retried failures, by time"
    return table(caption, heads, bodies, "dense") + left_out(
        len(report.interruptions), INTERRUPTION_ROWS_MAX, "interruption", "the later ones"
    )


def _interruption_row(item: Interruption, jobs: dict[JobId, JobRow], start_ms: int) -> str:
    why = esc(item.detail)
    if item.beneficiary is not None:
        why = _job_link(jobs[item.beneficiary]) if item.beneficiary in jobs else f"job {item.beneficiary}"
    ended = " <small>finished anyway</small>" if item.outcome == "succeeded" else ""
    asked, gone = item.kind in ("preempted", "drained"), item.kind != "failed"
    return row(
        (
            number(item.time_ms - start_ms, clock(item.time_ms - start_ms)),
            Cell(f'<span class="k k-{item.kind}">{_KIND_TEXT[item.kind]}</span>{ended}', item.kind),
            Cell(f"{_job_link(jobs[item.job_id])} <small>attempt {item.attempt}</small>", item.job_id),
            Cell(why, why.lower()),
            number(item.cost if item.cost else None, f"{item.cost // 1000:,}"),
            _time(item.grace_ms if asked else None),
            _time(item.left_after_ms if gone else None),
            _time(item.beneficiary_after_ms),
            number(item.saved_step),
            number(item.resumed_step),
            number(item.lost_steps),
            _time(item.restarted_after_ms),
            text(", ".join(item.restarted_on) or "–"),
        )
    )


def _time(ms: int | None) -> Cell:
    return number(ms, duration(ms or 0))


def _job_link(job: JobRow) -> str:
    return f'<a href="#job-{job.id}">{esc(job.label)}</a>'


JOB_HEADS = ("#id", "name", "tenant", "state", "#wait", "#run", "#attempts", "#preempted", "asks", "nodes", "end")


def jobs_table(report: RunReport) -> str:
    """Return one entry per job, arrays folded into one entry that opens."""
    if not report.jobs:
        return note("No job was submitted.")
    tenants = [t.tenant for t in report.tenants]
    arrays: dict[JobId, list[JobRow]] = {}
    for job in report.jobs:
        arrays.setdefault(job.id if job.array_id is None else job.array_id, []).append(job)
    bodies, shown = [], 0
    for members in arrays.values():
        if shown >= JOB_ROWS_MAX:
            break
        if members[0].array_id is None:
            bodies.append(_job_row(members[0], tenants))
            shown += 1
        else:
            listed = members[: JOB_ROWS_MAX - shown]
            bodies.append(_array_rows(members, listed, tenants))
            shown += len(listed)
    return table("Every job; a head sorts by its column", JOB_HEADS, bodies, "dense jobs") + left_out(
        len(report.jobs), shown, "job", "summary.json has all"
    )


def _job_row(job: JobRow, tenants: Sequence[str]) -> str:
    return row(
        (
            number(job.id, str(job.id)),
            text(job.label),
            Cell(swatch(tenant_class(job.tenant, tenants), esc(job.tenant)), job.tenant),
            Cell(f'<span class="k k-{job.state}">{job.state}</span>', job.state),
            _time(job.wait_ms),
            _time(job.run_ms),
            number(job.attempts),
            number(job.preemptions),
            _asks(job),
            text(", ".join(job.nodes) or "–"),
            text(job.exit or "–"),
        ),
        f' id="job-{job.id}" data-j="{job.id}"',
    )


def _asks(job: JobRow) -> Cell:
    each = counted(job.devices_each, "device") if job.devices_each else "CPU"
    return Cell(f"{job.replicas} × {each}" if job.replicas > 1 else each, job.replicas * job.devices_each)


def _array_rows(members: Sequence[JobRow], listed: Sequence[JobRow], tenants: Sequence[str]) -> str:
    first, total = members[0], len(members)
    states: dict[str, int] = {}
    for job in members:
        states[job.state] = states.get(job.state, 0) + 1
    said = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    head = row(
        (
            Cell(f"{first.id}–{members[-1].id}", first.id, True),
            Cell(f"{esc(first.name or 'array')} <small>× {total}</small>", first.name[:60].lower()),
            Cell(swatch(tenant_class(first.tenant, tenants), esc(first.tenant)), first.tenant),
            Cell(said, said),
            _time(sum(j.wait_ms for j in members)),
            _time(sum(j.run_ms for j in members)),
            number(sum(j.attempts for j in members)),
            number(sum(j.preemptions for j in members)),
            _asks(first),
            text(", ".join(dict.fromkeys(n for j in members for n in j.nodes)) or "–"),
            text("sums over the members"),
        )
    )
    rows = "".join(_job_row(job, tenants) for job in listed)
    cut = left_out(total, len(listed), "member", "summary.json has all")
    cells = "".join(f'<th scope="col">{h.lstrip("#")}</th>' for h in JOB_HEADS)
    inner = f"<table class='dense'><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>{cut}"
    opener = f"<details><summary>the {total} members</summary>{inner}</details>"
    return f'{head}<tr class="members"><td colspan="{len(JOB_HEADS)}">{opener}</td></tr>'


def usage(report: RunReport) -> str:
    """Return held time per tenant, exactly as billed, with bars for the share of the whole, and measured energy."""
    if not report.tenants:
        return note("Nobody used anything.")
    tenants = [t.tenant for t in report.tenants]
    total = tenant_totals(report)
    bodies = [_usage_row(one, total, tenant_class(one.tenant, tenants)) for one in report.tenants]
    bodies.append(_usage_row(total, total))
    heads = ["tenant", "#jobs", "#attempts", "#device-seconds", "", "#CPU-seconds", ""]
    caption = "Time held, from allocation to release"
    if not total.powered_ms:
        return table(caption, heads, bodies, "usage")
    heads += ["#energy", "#mean of a device", ""]
    caption += ", and the energy of devices"
    about = f"Energy: {format_energy(total.energy_mj)}, as nodes measured it of replicas that have ended, over "
    about += f"{percent(total.powered_ms, total.device_ms)} of the device time held."
    return table(caption, heads, bodies, "usage") + note(about)


def _usage_row(one: Usage, total: Usage, css: str = "") -> str:
    """Return a tenant's row in the colour of `css`; without a colour it is the row of the sums."""

    def bar(part: int, whole: int) -> Cell:
        return Cell(track([segment(css, part, whole, percent(part, whole))]) if css else "")

    cells = [
        Cell(swatch(css, esc(one.tenant)), one.tenant) if css else text(one.tenant),
        number(one.jobs),
        number(one.attempts),
        number(one.device_ms, f"{one.device_ms / 1000:,.1f}"),
        bar(one.device_ms, total.device_ms),
        number(one.cpu_ms, f"{one.cpu_ms / 1000:,.1f}"),
        bar(one.cpu_ms, total.cpu_ms),
    ]
    if total.powered_ms:
        watts = one.energy_mj / one.powered_ms if one.powered_ms else 0
        cells += [
            number(one.energy_mj if one.powered_ms else None, format_energy(one.energy_mj)),
            number(round(watts) if one.powered_ms else None, f"{watts:,.0f} W"),
            bar(one.energy_mj, total.energy_mj),
        ]
    return row(cells, "" if css else ' class="sum"')
