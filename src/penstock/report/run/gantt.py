"""Draws the timeline: one lane per device, bars by tenant, marks where an attempt was made to leave."""

from penstock.core.model.ids import AttemptNumber, JobId
from penstock.report import svg
from penstock.report.run.model import Bar, JobRow, NodeSpan, RunReport
from penstock.report.run.style import tenant_class
from penstock.report.run.timeline import NodeBand, Placed, TimelineLayout
from penstock.report.svg import TimeScale, num
from penstock.report.text import clock, counted, duration, esc

TOP = 8.0
ARROWS_MAX = 200
ARROW_WIDTH = 14.0
_SPAN_TEXT = {"lost": "node lost", "draining": "draining", "joining": "joining"}
_PATTERNS = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch" d="M0 0V6"/></pattern>'
    '<pattern id="gone" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<path class="gone" d="M0 0V8"/></pattern>'
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="head" d="M0 0L8 4L0 8Z"/></marker></defs>'
)


def gantt(report: RunReport, layout: TimelineLayout) -> str:
    """Return the timeline as one SVG."""
    scale = TimeScale(report.start_ms, report.until_ms)
    jobs = {job.id: job for job in report.jobs}
    tenants = [t.tenant for t in report.tenants]
    bottom = TOP + layout.height
    parts = [_PATTERNS]
    parts += [_band(band, scale, layout.lane_height) for band in layout.bands]
    parts.append(svg.axis(scale, TOP, bottom + 4))
    handovers = _handovers(report, layout)
    entered = {id(taker) for _, taker in handovers}
    for placed in layout.placed:
        job = jobs[placed.bar.job_id]
        css = tenant_class(job.tenant, tenants)
        parts.append(_bar(placed, job, css, scale, jobs, ARROW_WIDTH + 3 if id(placed) in entered else 5))
    parts += [_arrow(victim, taker, scale) for victim, taker in handovers]
    parts += [_mark(placed, scale) for placed in layout.placed]
    said = f"Timeline of {counted(len(layout.placed), 'allocation')} on {counted(len(layout.bands), 'node')}"
    return svg.frame(bottom + 26, said, "".join(parts))


def _band(band: NodeBand, scale: TimeScale, lane_height: float) -> str:
    y = TOP + band.y
    left, right = scale.x(scale.start_ms), svg.WIDTH - svg.RIGHT
    parts = [svg.rect(left, y, right - left, band.height, "absent")]
    for span in band.node.spans:
        if span.kind == "ready":
            x = scale.x(span.start_ms)
            parts.append(svg.rect(x, y, scale.x(span.end_ms) - x, band.height, "ready"))
    parts += [_span(span, y, band.height, scale) for span in band.node.spans if span.kind != "ready"]
    name = svg.fitted(band.node.name, svg.LEFT - 40) or band.node.name[:4]
    parts.append(f"<g><title>{esc(band.node.name)}</title>{svg.text(0, y + 12, name, 'node')}</g>")
    if band.height >= 28 and (band.node.virtual or band.node.simulated):
        parts.append(svg.text(0, y + 26, "virtual" if band.node.virtual else "simulated", "tick"))
    for lane in band.lanes:
        middle = TOP + lane.y + lane_height / 2 + 3.5
        parts.append(svg.text(svg.LEFT - 8, middle, lane.text, "tick", "end"))
        if lane is not band.lanes[0]:
            parts.append(svg.across("lane", TOP + lane.y))
    return "".join(parts)


def _span(span: NodeSpan, y: float, height: float, scale: TimeScale) -> str:
    x, end = scale.x(span.start_ms), scale.x(span.end_ms)
    words = _SPAN_TEXT[span.kind]
    hint = f"{words} {clock(span.start_ms - scale.start_ms)} to {clock(span.end_ms - scale.start_ms)}"
    shown = ""
    if span.kind == "lost":
        shown = svg.rect(x, y, end - x, height, "gone-over", ' fill="url(#gone)"')
    if end - x > svg.text_width(words) + 6:
        at = y + height / 2 + 4 if span.kind == "lost" else y + height - 4
        shown += svg.text((x + end) / 2, at, words, "span-text", "middle")
    return f"<g><title>{hint}</title>{svg.rect(x, y, end - x, height, 's-' + span.kind)}{shown}</g>"


def _bar(placed: Placed, job: JobRow, css: str, scale: TimeScale, jobs: dict[JobId, JobRow], indent: float) -> str:
    bar = placed.bar
    x, end = scale.x(bar.start_ms), scale.x(bar.end_ms)
    y, width, height = TOP + placed.y + 1, max(1.5, end - x - 0.6), placed.height - 2
    still = " open" if bar.open else ""
    body = svg.rect(x, y, width, height, f"bar {css}{still}", ' rx="2"')
    if bar.stop_ms is not None:
        asked = min(max(scale.x(bar.stop_ms), x), max(x, x + width - 4))
        body += svg.rect(asked, y, x + width - asked, height, "asked", ' fill="url(#hatch)"')
    shown = _label(job, width - indent - (14 if _glyph(bar) else 3)) if height >= 9 else ""
    if shown:
        body += svg.text(x + indent, y + height / 2 + 3.8, shown, "bar-text")
    return f'<g data-j="{bar.job_id}"><title>{_hover(bar, job, scale, jobs)}</title>{body}</g>'


def _label(job: JobRow, width: float) -> str:
    """Return what fits: the name, the beginning of it, or the index in the array."""
    shown = svg.fitted(job.label, width)
    index = f"[{job.array_index}]"
    if job.array_id is not None and not shown.endswith(index):
        return index if svg.text_width(index) <= width else ""
    return shown


def _hover(bar: Bar, job: JobRow, scale: TimeScale, jobs: dict[JobId, JobRow]) -> str:
    since = clock(bar.start_ms - scale.start_ms)
    to = "now" if bar.open else clock(bar.end_ms - scale.start_ms)
    where = f"{bar.node}, {'devices ' + ', '.join(map(str, bar.devices)) if bar.devices else 'CPU only'}"
    lines = [
        f"{job.label} (job {job.id}, {job.tenant})",
        f"attempt {bar.attempt}, replica {bar.rank}: {bar.outcome or 'still holds its place'}",
        where,
        f"{since} to {to} ({duration(bar.end_ms - bar.start_ms)})",
    ]
    if bar.stop_reason is not None:
        whom = jobs.get(bar.beneficiary) if bar.beneficiary is not None else None
        lines.append(f"asked to leave: {bar.stop_reason}" + (f" for {whom.label} (job {whom.id})" if whom else ""))
    return "\n".join(esc(line) for line in lines)


def _glyph(bar: Bar) -> str:
    return bar.outcome if not bar.open and bar.outcome in ("lost", "failed", "preempted") else ""


def _mark(placed: Placed, scale: TimeScale) -> str:
    """Return a sign at the end of a bar that did not end well: a shape for each, not only a colour."""
    glyph = _glyph(placed.bar)
    if not glyph:
        return ""
    x, y = scale.x(placed.bar.end_ms), TOP + placed.y + placed.height / 2
    shape = {
        "lost": f"M{num(x - 8)} {num(y - 3)}l6 6m0 -6l-6 6",
        "failed": f"M{num(x - 5)} {num(y - 4)}v5m0 2v1.5",
        "preempted": f"M{num(x - 7)} {num(y - 4)}v8m3 -8v8",
    }[glyph]
    back = f'<circle class="m-{glyph}" cx="{num(x - 5)}" cy="{num(y)}" r="6"/>'
    return f'<g class="mark" data-j="{placed.bar.job_id}">{back}<path class="sign" d="{shape}"/></g>'


def _handovers(report: RunReport, layout: TimelineLayout) -> list[tuple[Placed, Placed]]:
    """Return for each preemption a bar of the victim and the nearest bar of the beneficiary on the same node.

    Room on other nodes is left to the table: arrows across the page hide more than they show.
    """
    placed: dict[tuple[JobId, AttemptNumber], list[Placed]] = {}
    of_job: dict[JobId, list[Placed]] = {}
    for piece in layout.placed:
        placed.setdefault((piece.bar.job_id, piece.bar.attempt), []).append(piece)
        of_job.setdefault(piece.bar.job_id, []).append(piece)
    found = []
    for item in report.interruptions:
        victims = placed.get((item.job_id, item.attempt), [])
        if item.kind != "preempted" or item.beneficiary is None or not victims:
            continue
        first = victims[0]
        takers = of_job.get(item.beneficiary, [])
        later = [p for p in takers if p.bar.start_ms >= item.time_ms and p.bar.node == first.bar.node]
        if later:
            found.append((first, min(later, key=lambda p: (p.bar.start_ms, abs(p.y - first.y)))))
    return found[:ARROWS_MAX]


def _arrow(victim: Placed, taker: Placed, scale: TimeScale) -> str:
    x0, x1 = scale.x(victim.bar.end_ms) - 1, scale.x(taker.bar.start_ms) + ARROW_WIDTH
    y0, y1 = (TOP + p.y + p.height / 2 for p in (victim, taker))
    bend = "" if abs(y1 - y0) < 6 else f"H{num(x0 + 4)}V{num(y1)}"
    path = f'd="M{num(x0)} {num(y0)}{bend}H{num(x1)}"'
    return f'<path class="halo" {path}/><path class="arrow" {path} marker-end="url(#head)"/>'
