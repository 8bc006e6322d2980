"""One HTML page that compares policies on a trace: its style and its charts inside, and nothing from elsewhere."""

from collections.abc import Callable, Sequence

from penstock.report.page import document, figure, legend, section
from penstock.report.run.style import SCRIPT, stylesheet
from penstock.report.simulation.curves import SERIES_MAX, Series, distribution, over_time, shares, span_label
from penstock.report.simulation.numbers import MEASURES, Measure, by_variant, cost_rows
from penstock.report.tables import Cell, number, row, swatch, table, text
from penstock.report.text import counted, duration, esc, moment
from penstock.sim.replay.compare import Interval, VariantResult
from penstock.sim.replay.counters import Sample
from penstock.sim.replay.measures import SIZE_CLASSES, Measures, Summary
from penstock.traces import Trace

COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#bbbbbb", "#000000")
"""Source: the `bright` scheme of P. Tol, Colour Schemes, SRON/EPS/TN/09-002, 2021."""
SPANS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
RATIOS = (0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
_STYLE = """
.curve{fill:none;stroke-width:1.8}.limit{stroke:var(--ink);stroke-dasharray:4 3;fill:none}
td .half{color:var(--dim);font-size:12px}.best{font-weight:650}
"""


def render(trace: Trace, results: Sequence[VariantResult]) -> str:
    """Return the comparison as one HTML page that needs no network. The same results give the same bytes.

    Pictures show the first workload of each policy, which is the trace itself; numbers are means over all seeds.
    """
    by_name = by_variant(results)
    first = [of_one[0] for of_one in by_name.values()]
    paired = len(by_name) > 1 and len(next(iter(by_name.values()))) > 1
    body = [
        _header(trace, results),
        section("numbers", "In numbers", _numbers(by_name)),
        *([section("differences", "Against the first", _differences(by_name))] if paired else []),
        section("waits", "How long jobs waited", _legend(first) + _waits(first)),
        section("completions", "How long jobs took from submit to end", _legend(first) + _completions(first)),
        section("held", "Devices held", _legend(first) + _held(first)),
        section("stranded", "Idle devices that no waiting job could use", _legend(first) + _stranded(first)),
        section("queue", "Jobs waiting", _legend(first) + _queue(first)),
        section("fairness", "Who had less than an equal share", _legend(first) + _fairness(first)),
        *_costs(by_name),
        section("tenants", "By tenant", _groups(by_name, "tenant", lambda m: m.by_tenant)),
        section("sizes", "By devices asked for", _groups(by_name, "devices", lambda m: m.by_size)),
        _footer(trace),
    ]
    return document(f"Policies on {esc(trace.name)}", body, style=_style(), script=SCRIPT)


def _style() -> str:
    colours = "".join(f".s{i}{{stroke:{c};background:{c}}}" for i, c in enumerate(COLOURS[:SERIES_MAX]))
    return f"{stylesheet()}{_STYLE}{colours}"


def _legend(first: Sequence[VariantResult]) -> str:
    return legend(swatch(f"s{i % SERIES_MAX}", esc(result.variant)) for i, result in enumerate(first))


def _header(trace: Trace, results: Sequence[VariantResult]) -> str:
    devices = sum(len(spec.devices) for spec in trace.nodes)
    seeds = 1 + max(result.seed for result in results)
    where = f"{counted(len(trace.nodes), 'node')}, {counted(devices, 'device')}"
    what = f"{counted(len(trace.jobs), 'job')} · {where}"
    what += f" · mean of {seeds} workloads, ± 95 % confidence" if seeds > 1 else ""
    begun = f"{moment(trace.jobs[0].submit_ms)} · " if trace.jobs and trace.jobs[0].submit_ms > 10**12 else ""
    return f'<header><h1>Policies on {esc(trace.name)}</h1><p class="sub">{begun}{what}</p></header>'


def _numbers(by_name: dict[str, list[VariantResult]]) -> str:
    bodies = []
    for measure in MEASURES:
        found = [measure.over(of_one) for of_one in by_name.values()]
        if not any(one.mean for one in found):
            continue
        best = (min if measure.less_is_better else max)(one.mean for one in found)
        cells = [_measured(one, measure, best=one.mean == best and len(found) > 1) for one in found]
        bodies.append(row([Cell(measure.name), *cells]))
    heads = ("", *(f"#{esc(name)}" for name in by_name))
    return table("the best of each row is bold", heads, bodies)


def _measured(found: Interval, measure: Measure, *, best: bool) -> Cell:
    shown = f'<span class="best">{measure.written(found.mean)}</span>' if best else measure.written(found.mean)
    if found.half:
        shown += f' <span class="half">± {measure.written(found.half)}</span>'
    return Cell(shown, round(1000 * found.mean), True)


def _differences(by_name: dict[str, list[VariantResult]]) -> str:
    (base, against), *others = by_name.items()
    bodies = []
    for measure in MEASURES:
        found = [measure.difference(of_one, against) for _, of_one in others]
        if any(one.mean or one.half for one in found):
            cells = [Cell(measure.signed(one), round(1000 * one.mean), True) for one in found]
            bodies.append(row([Cell(measure.name), *cells]))
    heads = ("", *(f"#{esc(name)}" for name, _ in others))
    return table(f"difference to {esc(base)} on the same workloads, ± 95 % confidence", heads, bodies)


def _waits(first: Sequence[VariantResult]) -> str:
    series = [distribution(result.waits_ms, result.variant) for result in first]
    chart = shares(series, "share of jobs that waited no longer", SPANS_MS, span_label)
    return figure(chart, "At each time: the part of the jobs that had places by then, from their submit on.")


def _completions(first: Sequence[VariantResult]) -> str:
    series = [distribution(result.completions_ms, result.variant) for result in first]
    chart = shares(series, "share of jobs completed by then", SPANS_MS, span_label)
    return figure(chart, "At each time: the part of the jobs that were over by then, from their submit on.")


def _fairness(first: Sequence[VariantResult]) -> str:
    series = [distribution(result.ratios, result.variant) for result in first]
    chart = shares(series, "part of the jobs by finish-time ratio", RATIOS, lambda v: f"{v:g}")
    note = (
        "Finish-time ratio: how long a job took against what it would take with an equal share of the devices all the "
        "time (Themis, NSDI 2020). Right of 1 a job was worse off than that."
    )
    return figure(chart, note)


def _span(first: Sequence[VariantResult]) -> tuple[int, int]:
    ended = [result.samples[-1].time_ms for result in first if result.samples]
    return min(result.begun_ms for result in first), max(ended, default=0)


def _sampled(first: Sequence[VariantResult], value: Callable[[Sample], float]) -> list[Series]:
    return [Series(one.variant, tuple((float(s.time_ms), float(value(s))) for s in one.samples)) for one in first]


def _held(first: Sequence[VariantResult]) -> str:
    series = []
    for result in first:
        points = []
        for one, after in zip(result.samples, result.samples[1:], strict=False):
            passed = after.time_ms - one.time_ms
            if passed:
                points.append((float(one.time_ms), (after.busy_device_ms - one.busy_device_ms) / passed))
        series.append(Series(result.variant, tuple(points)))
    limit = max((sample.total_milli for result in first for sample in result.samples), default=0) / 1000
    chart = over_time(series, "devices held over time", *_span(first), limit)
    return figure(chart, "Devices held, averaged between samples; the broken line is all there are.")


def _stranded(first: Sequence[VariantResult]) -> str:
    series = _sampled(first, lambda sample: sample.stranded_milli / 1000)
    note = (
        "Free devices that the next job, of those that came lately, could not use on average (Weng et al., ATC 2023)."
    )
    return figure(over_time(series, "stranded devices over time", *_span(first)), note)


def _queue(first: Sequence[VariantResult]) -> str:
    series = _sampled(first, lambda sample: sample.jobs_waiting)
    return figure(over_time(series, "jobs waiting over time", *_span(first)), "Jobs waiting for places.")


def _groups(
    by_name: dict[str, list[VariantResult]], what: str, groups: Callable[[Measures], dict[str, Summary]]
) -> str:
    first = {name: groups(of_one[0].measures) for name, of_one in by_name.items()}
    jobs = {name: summary.jobs for found in first.values() for name, summary in found.items()}
    bodies = []
    order = {name: place for place, (_, name) in enumerate(SIZE_CLASSES)}
    for group in sorted(jobs, key=lambda name: (order.get(name, 0), -jobs[name], name)):
        cells = [text(group), number(jobs[group])]
        for found in first.values():
            summary = found.get(group)
            if summary is None:
                cells += [number(None), number(None)]
            else:
                wait, took = round(summary.wait_ms.mean), round(summary.completion_ms.mean)
                cells += [number(wait, duration(wait)), number(took, duration(took))]
        bodies.append(row(cells))
    heads = [what, "#jobs"]
    for name in first:
        heads += [f"#{esc(name)}: mean wait", "#mean completion"]
    return table(f"jobs by {what}", heads, bodies)


def _costs(by_name: dict[str, list[VariantResult]]) -> list[str]:
    """Return the section about money; none where no prices are declared."""
    rows = cost_rows(by_name)
    if rows is None:
        return []
    bodies = [row([text(name), *(Cell(amount, None, True) for amount in amounts)]) for name, amounts in rows.cells]
    heads = (f"billed, {esc(rows.currency)}", *(f"#{esc(name)}" for name in by_name))
    shown = table("by the prices that are declared; nothing is given back for failed nodes", heads, bodies)
    return [section("costs", "What it would cost", shown)]


def _footer(trace: Trace) -> str:
    notes = "".join(f"<li>{esc(note, 400)}</li>" for note in trace.notes)
    listed = f"<p>About the trace:</p><ul>{notes}</ul>" if notes else ""
    said = "Every decision was made by the scheduler itself; only programs and machines are modelled."
    return f"<footer>{listed}<p>{said}</p></footer>"
