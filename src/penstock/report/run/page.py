"""The whole page: one file of HTML with its style, its script and its charts inside, and nothing from elsewhere."""

from penstock.core.model.quantities import format_energy
from penstock.report.page import document, figure, legend, note, section
from penstock.report.run.build import tenant_totals
from penstock.report.run.charts import load_chart
from penstock.report.run.gantt import gantt
from penstock.report.run.happened import happened
from penstock.report.run.model import InterruptionKind, RunReport
from penstock.report.run.sections import interruptions, jobs_table, usage, waiting
from penstock.report.run.style import SCRIPT, TENANT_COLOURS, stylesheet, tenant_class
from penstock.report.run.timeline import CPU_LANES_MAX, TimelineLayout, lay_out
from penstock.report.tables import swatch
from penstock.report.text import counted, duration, esc, moment, percent

STATES = ("succeeded", "running", "starting", "suspended", "stopping", "waiting", "failed", "cancelled")


def render(report: RunReport) -> str:
    """Return the report as one HTML page that needs no network and runs no script but its own.

    The same report gives the same bytes. Size is bounded for any log: omissions are counted on the page.
    """
    layout = lay_out(report)
    story = "".join(f"<li>{line}</li>" for line in happened(report))
    quiet = note("Every attempt ran undisturbed from its start to its end.")
    body = [
        _header(report),
        section("happened", "What happened", f'<ol class="story">{story}</ol>' if story else quiet),
        section("timeline", "Who held what", _timeline(report, layout)),
        section("load", "How much was held, and how many waited", figure(load_chart(report), _load_note(report))),
        section("waiting", "What jobs waited for", waiting(report)),
        section("interruptions", "Preemptions, losses and recoveries", interruptions(report)),
        section("jobs", "Jobs", jobs_table(report)),
        section("usage", "Usage by tenant", usage(report)),
        _footer(report),
    ]
    return document("Penstock run report", body, style=stylesheet(), script=SCRIPT)


def _header(report: RunReport) -> str:
    devices = sum(len(n.lanes) for n in report.nodes)
    chips = "".join(
        f'<span class="chip">{words}</span>'
        for words, on in (
            ("simulated devices", any(n.simulated for n in report.nodes)),
            ("virtual nodes", any(n.virtual for n in report.nodes)),
        )
        if on
    )
    models = ", ".join(dict.fromkeys(n.model for n in report.nodes if n.model))
    about = f" ({esc(models)})" if models else ""
    span = f"{moment(report.start_ms)}, {duration(report.until_ms - report.start_ms)}"
    where = f"{counted(len(report.nodes), 'node')}, {counted(devices, 'device')}{about}"
    return f'<header><h1>Penstock run report</h1><p class="sub">{span} · {where} {chips}</p>{_tiles(report)}</header>'


def _tiles(report: RunReport) -> str:
    totals, wait = report.totals, report.totals.wait
    states = ", ".join(f"{totals.by_state[s]} {s}" for s in STATES if s in totals.by_state)
    if report.unit == "devices":
        held, available, what = totals.device_held_ready_ms, totals.device_available_ms, "device-time"
    else:
        held, available, what = totals.cpu_held_ready_ms, totals.cpu_available_ms, "CPU-time"
    waits = f"mean {duration(wait.mean_ms)}, p95 {duration(wait.p95_ms)}, max {duration(wait.max_ms)}"
    lost = _steps_lost(report, "preempted")
    back = f"{totals.recoveries} recovered, {_steps_lost(report, 'lost')}" if totals.losses else ""
    tiles = (
        ("Jobs", f"{totals.jobs:,}", states),
        ("Median wait", duration(wait.p50_ms), waits),
        ("Utilisation", percent(held, available), f"of {duration(available)} of {what}"),
        ("Preemptions", f"{totals.preemptions:,}", lost),
        ("Attempts lost with a node", f"{totals.losses:,}", back),
        *_energy_tile(report),
    )
    parts = (f'<div><dt>{n}</dt><dd class="big">{big}</dd><dd class="more">{more}</dd></div>' for n, big, more in tiles)
    return f'<dl class="tiles">{"".join(parts)}</dl>'


def _energy_tile(report: RunReport) -> tuple[tuple[str, str, str], ...]:
    used = tenant_totals(report)
    if not used.powered_ms:
        return ()
    mean = f"{used.energy_mj / used.powered_ms:,.0f} W a device"
    return (("Energy of devices", format_energy(used.energy_mj), f"measured, mean {mean}"),)


def _steps_lost(report: RunReport, kind: InterruptionKind) -> str:
    """Say how many steps were lost, and of how many interruptions that is known."""
    items = [i for i in report.interruptions if i.kind == kind]
    known = [i.lost_steps for i in items if i.lost_steps is not None]
    if not known:
        return "no program reported its steps" if items else ""
    of = f" ({len(known)} of {len(items)} reported)" if len(known) < len(items) else ""
    return f"{counted(sum(known), 'step')} lost{of}"


def _timeline(report: RunReport, layout: TimelineLayout) -> str:
    if not report.nodes:
        return note("No node has joined.")
    notes = ["One lane is one device; hover for details, click to find the job."]
    if layout.nodes_left_out:
        notes.append(f"{counted(layout.nodes_left_out, 'more node')} not drawn.")
    if layout.bars_left_out:
        left = f"{counted(layout.bars_left_out, 'allocation')} of {len(report.bars):,} not drawn"
        notes.append(f"{left}: the shortest, and what overlaps more than {CPU_LANES_MAX} CPU lanes of a node.")
    return _legend(report) + figure(gantt(report, layout), " ".join(notes))


def _legend(report: RunReport) -> str:
    names = [t.tenant for t in report.tenants]
    most = len(TENANT_COLOURS) - 1
    keys = [swatch(tenant_class(name, names), esc(name, 40)) for name in names[:most]]
    if len(names) > most:
        keys.append(swatch(f"t{most}", f"{len(names) - most} other tenants"))
    bars = report.bars
    signs = (
        ("preempted", "preempted", "M6 3v8m3 -8v8"),
        ("lost", "lost with its node", "M4.5 4.5l5 5m0 -5l-5 5"),
        ("failed", "failed", "M7 3.5v4.5m0 2v.8"),
    )
    for outcome, words, path in signs:
        if any(b.outcome == outcome for b in bars):
            icon = f'<circle class="m-{outcome}" cx="7" cy="7" r="6"/><path class="sign" d="{path}"/>'
            keys.append(f'<span class="key"><svg viewBox="0 0 14 14" aria-hidden="true">{icon}</svg>{words}</span>')
    if any(b.stop_ms is not None for b in bars):
        icon = '<rect class="bar t0" width="14" height="14"/><rect width="14" height="14" fill="url(#hatch)"/>'
        words = "asked to save and leave"
        keys.append(f'<span class="key"><svg viewBox="0 0 14 14" aria-hidden="true">{icon}</svg>{words}</span>')
    return legend(keys)


def _load_note(report: RunReport) -> str:
    return (
        "Held above the line: a node was lost or joining while its replicas still counted."
        if any(s.held > s.available for s in report.steps)
        else ""
    )


def _footer(report: RunReport) -> str:
    sampling = report.sampling
    derived = f"{counted(sampling.planned, 'plan')} made on the folded log"
    if sampling.planned < sampling.points:
        derived += f", sampled from {sampling.points:,} moments at which jobs waited"
    return (
        f"<footer><p>A fold of {counted(report.records, 'record')} of the event log. The log holds no reasons for "
        f"waiting: they were derived again by the scheduler's own planner ({derived}). Times are since the start; "
        "“ran” is from the moment all replicas had started. Steps lost: those reported after the checkpoint "
        "that the job resumed from. A lost node failed when it was last heard; “back after” counts from there."
        "</p></footer>"
    )
