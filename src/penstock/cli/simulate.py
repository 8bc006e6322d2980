"""`penstock sim`: a trace under several policies, compared in the terminal, as JSON and as one page."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import rich.console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from penstock.cli.output import Console, print_json, say, table
from penstock.control.config_files import read_cluster_file
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.units import parse_duration_ms
from penstock.extensions import installed_policies
from penstock.report.run.text import duration
from penstock.report.simulation.numbers import MEASURES, by_variant, cost_rows
from penstock.sim.replay.compare import Result, compare
from penstock.sim.replay.measures import Summary
from penstock.sim.replay.physics import Physics
from penstock.sim.replay.variants import Variant, variant
from penstock.traces import Trace, load
from penstock.traces.edit import drawn_like, with_nodes

DEFAULT_POLICIES = ("fifo+easy", "fair_share+easy", "shortest_predicted+easy+learned")
LOAD_MAX = 100
TRACES_VARIABLE = "PENSTOCK_TRACES"


class Options(NamedTuple):
    """What the command line says, as it says it."""

    kind: str | None
    policies: Sequence[str]
    nodes: str | None
    cluster: Path | None
    load: float
    seeds: int
    processes: int | None
    start: str
    save: str
    restore: str
    mtbf: str
    repair: str


def simulate(path: Path, options: Options, out: Path | None, *, as_json: bool) -> None:
    check_load(options.load)
    trace = changed(load(found(path), options.kind), options)
    base = _base_config(trace, options.cluster)
    variants = [variant_of(words, base) for words in options.policies or DEFAULT_POLICIES]
    physics = physics_of(options)

    def workload(seed: int) -> Trace:
        return trace if seed == 0 and options.load == 1.0 else drawn_like(trace, seed, options.load)

    with progress(f"{len(trace.jobs):,} jobs, {len(variants)} policies", quiet=as_json) as on_share:
        results = compare(
            workload,
            variants,
            physics,
            seeds=options.seeds,
            processes=options.processes,
            policies=installed_policies(),
            on_share=on_share,
        )
    if out is not None:
        write_page(trace, results, out, "sim")
    if as_json:
        print_json(_for_programs(trace, results))
        return
    print_results(trace, results)
    if out is not None:
        say(f"report: {out / 'sim.html'}")


def check_load(load_times: float) -> None:
    """Raises: InvalidInput for a load that is none."""
    if not 0 < load_times <= LOAD_MAX:
        problem = Problem("invalid_value", "load", f"load is {load_times:g}, expected more than 0, at most {LOAD_MAX}")
        raise InvalidInput(problem.message, problems=(problem,))


def write_page(trace: Trace, results: Sequence[Result], out: Path, name: str) -> None:
    """Write `name`.html and `name`.json to the folder `out`."""
    from penstock.report.simulation.page import render

    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.html").write_text(render(trace, results), encoding="utf-8")
    known = msgspec.json.encode(_for_programs(trace, results))
    (out / f"{name}.json").write_bytes(msgspec.json.format(known, indent=2))


def found(path: Path) -> Path:
    """Return the path as it is given, or below the folder of traces that the environment names."""
    folder = os.environ.get(TRACES_VARIABLE)
    if not path.exists() and folder and (Path(folder) / path).exists():
        return Path(folder) / path
    return path


def changed(trace: Trace, options: Options) -> Trace:
    return with_nodes(trace, options.nodes) if options.nodes else trace


def _base_config(trace: Trace, cluster: Path | None) -> ClusterConfig:
    if cluster is None:
        return trace.config
    return read_cluster_file(cluster).config


def variant_of(words: str, base: ClusterConfig) -> Variant:
    """Return a policy by its words, or of a cluster file."""
    if words.endswith((".yaml", ".yml", ".json")):
        return Variant(words, _base_config(Trace("", (), ()), Path(words)))
    return variant(words, base)


def physics_of(options: Options) -> Physics:
    """Return how programs and machines behave. Raises: InvalidInput for what is no duration."""
    given = {
        "start_ms": options.start,
        "save_ms": options.save,
        "restore_ms": options.restore,
        "node_mtbf_ms": options.mtbf,
        "node_repair_ms": options.repair,
    }
    found_ms: dict[str, int] = {}
    for name, text in given.items():
        try:
            found_ms[name] = parse_duration_ms(text)
        except ValueError as error:
            field = name.removesuffix("_ms").replace("_", "-")
            problem = Problem("invalid_value", field, f"{field} is '{text}': {error}", text, "such as 30s, 5m or 2h")
            raise InvalidInput(problem.message, problems=(problem,)) from None
    return Physics(**found_ms)


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """Show a bar with the time left on the terminal, if there is one."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *left, transient=True, console=rich.console.Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def print_results(trace: Trace, results: Sequence[Result]) -> None:
    devices = sum(len(spec.devices) for spec in trace.nodes)
    say(f"{trace.name}: {len(trace.jobs):,} jobs on {len(trace.nodes):,} nodes with {devices:,} devices")
    by_name = by_variant(results)
    names = list(by_name)
    rows = []
    for measure in MEASURES:
        found = [measure.over(of_one) for of_one in by_name.values()]
        if any(one.mean for one in found):
            cells = [measure.written(f.mean) + (f" ± {measure.written(f.half)}" if f.half else "") for f in found]
            rows.append((measure.name, *cells))
    Console().print(table(("", *names), rows, right=names))
    seeds = len(next(iter(by_name.values())))
    if seeds > 1:
        say(f"mean of {seeds} workloads, with 95 % confidence; the first is the trace, the others drawn like it")
        _print_differences(by_name)
    tenants = tenant_rows(by_name)
    if len(tenants) > 1:
        columns = ("tenant: mean wait", "jobs", *names)
        Console().print(table(columns, tenants, right=columns[1:]))
    _print_costs(by_name)
    for note in trace.notes:
        say(f"note: {note}")


def _print_costs(by_name: dict[str, list[Result]]) -> None:
    rows = cost_rows(by_name)
    if rows:
        columns = (f"billed, {rows.currency}", *by_name)
        Console().print(table(columns, [(name, *cells) for name, cells in rows.cells], right=columns[1:]))


def _print_differences(by_name: dict[str, list[Result]]) -> None:
    (base, against), *others = by_name.items()
    rows = [
        (measure.name, *(measure.signed(measure.difference(of_one, against)) for _, of_one in others))
        for measure in MEASURES
        if any(measure.difference(of_one, against).mean for _, of_one in others)
    ]
    if rows:
        names = [name for name, _ in others]
        Console().print(table((f"against {base}", *names), rows, right=names))
        say("on the same workloads; (in brackets: no more than chance)")


def tenant_rows(by_name: dict[str, list[Result]]) -> list[tuple[str, ...]]:
    first = next(iter(by_name.values()))[0]
    rows = []
    for tenant, summary in sorted(first.measures.by_tenant.items(), key=lambda item: -item[1].jobs):
        waits = [_of_tenant(of_one[0], tenant) for of_one in by_name.values()]
        cells = (duration(round(summary.wait_ms.mean)) if summary else "" for summary in waits)
        rows.append((tenant, f"{summary.jobs:,}", *cells))
    return rows


def _of_tenant(result: Result, tenant: str) -> Summary | None:
    return result.measures.by_tenant.get(tenant)


def _for_programs(trace: Trace, results: Sequence[Result]) -> dict[str, object]:
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "nodes": len(trace.nodes),
        "notes": trace.notes,
        "results": [{"policy": result.variant, "seed": result.seed} | for_programs(result) for result in results],
    }


def for_programs(result: Result) -> dict[str, object]:
    """Return a result for JSON; what it costs only where that is known."""
    shown: dict[str, object] = {"policy": result.variant, "measures": result.measures}
    return shown | ({"costs": result.costs} if result.costs is not None else {})
