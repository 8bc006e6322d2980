"""`penstock sim`: a trace under several policies, compared in the terminal, as JSON and as one page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from penstock.cli.options import JsonOption, KindOption, LoadOption, NodesOption, duration_ms
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.progress import progress
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from penstock.core.predict.forecast import PastRun
    from penstock.sim.replay.compare import VariantResult
    from penstock.sim.replay.execution_model import Physics
    from penstock.sim.replay.measures import Summary
    from penstock.sim.replay.variants import Variant
    from penstock.traces import Trace

DEFAULT_POLICIES = ("shortest_predicted+easy", "fifo+easy", "fair_share+easy")
"""The first is the default of a pool and its queues."""
LOAD_MAX = 100
TRACES_VARIABLE = "PENSTOCK_TRACES"
ElasticOption = Annotated[
    str,
    typer.Option(
        help="What elastic jobs ask for: speedup, as the trace has it; off, their size and no other; goodput, one "
        "replica and more with the batches that were measured (Pollux)."
    ),
]


def sim(
    trace: Annotated[Path, typer.Argument(help="Trace file; also below the folder PENSTOCK_TRACES names.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-P",
            help="Words joined by +, such as fifo+easy or fair_share+best_fit+learned; "
            "as_is; or a cluster file. Repeat it to compare several.",
        ),
    ] = None,
    kind: KindOption = None,
    nodes: NodesOption = None,
    cluster: Annotated[Path | None, typer.Option(help="Cluster file with pools, tenants, queues and settings.")] = None,
    history: Annotated[
        list[Path] | None,
        typer.Option(help="Earlier trace to learn run times from before the first job. Repeat it, the earliest first."),
    ] = None,
    load: LoadOption = 1.0,
    elastic: ElasticOption = "speedup",
    seeds: Annotated[int, typer.Option(help="Number of workloads: the trace, and others drawn like it.", min=1)] = 1,
    processes: Annotated[int | None, typer.Option(help="Processes in parallel; by default one per core.")] = None,
    start: Annotated[str, typer.Option(help="Time from allocation until a job runs.")] = "0s",
    save: Annotated[str, typer.Option(help="Time to save and leave when preempted.")] = "0s",
    restore: Annotated[str, typer.Option(help="Time to restore, in each attempt after the first.")] = "0s",
    mtbf: Annotated[str, typer.Option(help="Mean time between failures of a node; 0s: no failures.")] = "0s",
    repair: Annotated[str, typer.Option(help="Time to repair a failed node.")] = "1h",
    out: Annotated[Path | None, typer.Option(help="Folder for sim.html and sim.json.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare policies on a trace of jobs. The scheduler itself decides."""
    from penstock.sim.replay.earlier import earlier_runs
    from penstock.sim.replay.execution_model import Physics
    from penstock.traces.asking import asking

    jobs = asking(load_trace(trace, kind, load, nodes), elastic)
    known, note = earlier_runs([load_trace(path, kind, 1.0, nodes) for path in history or ()], jobs)
    jobs = replace(jobs, notes=(*jobs.notes, note)) if history else jobs
    jobs, variants = variants_of(jobs, policy or DEFAULT_POLICIES, cluster)
    physics = Physics(
        start_ms=duration_ms("start", start),
        save_ms=duration_ms("save", save),
        restore_ms=duration_ms("restore", restore),
        node_mtbf_ms=duration_ms("mtbf", mtbf),
        node_repair_ms=duration_ms("repair", repair),
    )
    results = _compared(jobs, variants, physics, known, load=load, seeds=seeds, processes=processes, quiet=json)
    jobs = with_unserved(jobs, results)
    if out is not None:
        write_page(jobs, results, out, "sim")
    if json:
        print_json(_for_programs(jobs, results))
        return
    print_results(jobs, results)
    if out is not None:
        say(f"report: {out / 'sim.html'}")


def _compared(
    jobs: "Trace",
    variants: "Sequence[Variant]",
    physics: "Physics",
    history: "Sequence[PastRun]",
    *,
    load: float,
    seeds: int,
    processes: int | None,
    quiet: bool,
) -> "list[VariantResult]":
    """Replay the trace, and workloads drawn like it, under each variant; show how far that is."""
    from penstock.extensions import installed_policies
    from penstock.sim.replay.compare import compare
    from penstock.traces.edit import drawn_like

    def workload(seed: int) -> "Trace":
        return jobs if seed == 0 and load == 1.0 else drawn_like(jobs, seed, load)

    title, total = f"{len(jobs.jobs):,} jobs, {len(variants)} policies", len(jobs.jobs) * len(variants) * seeds
    with progress(title, total=total, quiet=quiet) as on_share:
        return compare(
            workload,
            variants,
            physics,
            seeds=seeds,
            processes=processes,
            policies=installed_policies(),
            history=history,
            on_share=on_share,
        )


def load_trace(path: Path, kind: str | None, load_times: float, nodes: str | None = None) -> "Trace":
    """Return the trace at a path, or below the folder of traces that the environment names.

    Args:
        nodes: other nodes than the trace's (see `traces.edit.with_nodes`).
    Raises: InvalidInput, also for a load that is none.
    """
    from penstock.traces import given_cluster, load
    from penstock.traces.edit import with_nodes

    if not 0 < load_times <= LOAD_MAX:
        problem = Problem("invalid_value", "load", f"load is {load_times:g}, expected more than 0, at most {LOAD_MAX}")
        raise InvalidInput(problem.message, problems=(problem,))
    folder = os.environ.get(TRACES_VARIABLE)
    if not path.exists() and folder and (Path(folder) / path).exists():
        path = Path(folder) / path
    given = given_cluster(nodes)
    trace = load(path, kind, given)
    return with_nodes(trace, nodes) if nodes and not given else trace


def with_unserved(trace: "Trace", results: "Sequence[VariantResult]") -> "Trace":
    """Return the trace with a note of the jobs that can never start, where some never ended."""
    from penstock.sim.replay.unserved import unserved_note

    unfinished = any(result.measures.whole.unfinished for result in results)
    note = unserved_note(trace) if unfinished else ""
    return replace(trace, notes=(*trace.notes, note)) if note else trace


def write_page(trace: "Trace", results: "Sequence[VariantResult]", out: Path, name: str) -> None:
    """Write `name`.html and `name`.json to the folder `out`."""
    from penstock.report.simulation.page import render

    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.html").write_text(render(trace, results), encoding="utf-8")
    known = msgspec.json.encode(_for_programs(trace, results))
    (out / f"{name}.json").write_bytes(msgspec.json.format(known, indent=2))


def variants_of(
    trace: "Trace", policies: "Sequence[str]", cluster: Path | None = None
) -> "tuple[Trace, list[Variant]]":
    """Return policies by their words, or of cluster files, and the trace with a note of what the files lack.

    Args:
        cluster: cluster file instead of the trace's configuration.
    """
    from penstock.control.config_files import read_cluster_file
    from penstock.sim.replay.variants import Variant, variant
    from penstock.traces.edit import with_names_of

    notes: dict[str, None] = {}

    def config_of(path: Path) -> ClusterConfig:
        config, note = with_names_of(read_cluster_file(path).config, trace)
        if note:
            notes[f"{path}: {note}"] = None
        return config

    base = trace.config if cluster is None else config_of(cluster)
    found = [
        Variant(words, config_of(Path(words))) if words.endswith((".yaml", ".yml", ".json")) else variant(words, base)
        for words in policies
    ]
    return replace(trace, notes=(*trace.notes, *notes)), found


def print_results(trace: "Trace", results: "Sequence[VariantResult]") -> None:
    from penstock.report.simulation.numbers import MEASURES, by_variant

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
    tenants = _tenant_rows(by_name)
    if len(tenants) > 1:
        columns = ("tenant: mean wait", "jobs", *names)
        Console().print(table(columns, tenants, right=columns[1:]))
    _print_strategies(by_name)
    _print_costs(by_name)
    for note in trace.notes:
        say(f"note: {note}")


def _print_strategies(by_name: "dict[str, list[VariantResult]]") -> None:
    """Print how often each strategy was picked on the trace itself, and what it decided."""
    from penstock.report.simulation.numbers import STRATEGY_COLUMNS, strategy_rows

    Console().print(table(STRATEGY_COLUMNS, strategy_rows(by_name), right=STRATEGY_COLUMNS[2:]))


def _print_costs(by_name: "dict[str, list[VariantResult]]") -> None:
    from penstock.report.simulation.numbers import cost_rows

    rows = cost_rows(by_name)
    if rows:
        columns = (f"billed, {rows.currency}", *by_name)
        Console().print(table(columns, [(name, *cells) for name, cells in rows.cells], right=columns[1:]))


def _print_differences(by_name: "dict[str, list[VariantResult]]") -> None:
    from penstock.report.simulation.numbers import MEASURES

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


def _tenant_rows(by_name: "dict[str, list[VariantResult]]") -> list[tuple[str, ...]]:
    from penstock.report.text import duration

    first = next(iter(by_name.values()))[0]
    rows = []
    for tenant, summary in sorted(first.measures.by_tenant.items(), key=lambda item: -item[1].jobs):
        waits = [_of_tenant(of_one[0], tenant) for of_one in by_name.values()]
        cells = (duration(round(summary.wait_ms.mean)) if summary else "" for summary in waits)
        rows.append((tenant, f"{summary.jobs:,}", *cells))
    return rows


def _of_tenant(result: "VariantResult", tenant: str) -> "Summary | None":
    return result.measures.by_tenant.get(tenant)


def _for_programs(trace: "Trace", results: "Sequence[VariantResult]") -> dict[str, object]:
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "nodes": len(trace.nodes),
        "notes": trace.notes,
        "results": [{"policy": result.variant, "seed": result.seed} | for_programs(result) for result in results],
    }


def for_programs(result: "VariantResult") -> dict[str, object]:
    """Return a result for JSON; with costs only where known."""
    shown: dict[str, object] = {"policy": result.variant, "measures": result.measures}
    return shown | ({"costs": result.costs} if result.costs is not None else {})
