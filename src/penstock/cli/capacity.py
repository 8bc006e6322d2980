"""`penstock sizing`: the number of nodes that a waiting-time goal needs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import JsonOption, KindOption, LoadOption
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.progress import progress
from penstock.cli.simulate import load_trace, variants_of

if TYPE_CHECKING:
    from penstock.sim.replay.capacity import Capacity, Goal
    from penstock.sim.replay.measures import Measures
    from penstock.traces import Trace

NOT_MET = 10
"""Exit code when even the largest number of nodes tried misses the goal."""


def capacity(
    trace: Annotated[Path, typer.Argument(help="Trace file, as for sim.")],
    wait: Annotated[str, typer.Option(help="The goal: p99=1h, p90=10m, p50=..., mean=..., max=...")] = "p90=1h",
    policy: Annotated[str, typer.Option("--policy", "-P", help="As for sim.")] = "as_is",
    model: Annotated[str | None, typer.Option(help="Vary only nodes with devices of this model.")] = None,
    kind: KindOption = None,
    load: LoadOption = 1.0,
    json: JsonOption = False,
) -> None:
    """Find how many nodes keep waiting times within a goal. Replays the trace; exit code 10: none of those tried."""
    from penstock.extensions import installed_policies
    from penstock.sim.replay.capacity import capacity as search
    from penstock.sim.replay.capacity import goal_of
    from penstock.sim.replay.execution_model import Physics
    from penstock.sim.replay.measures import measure
    from penstock.sim.replay.replay import replay
    from penstock.traces.edit import drawn_like, with_nodes

    goal = goal_of(wait)
    jobs = load_trace(trace, kind, load)
    if load != 1.0:
        jobs = drawn_like(jobs, 0, load)
    jobs, (one,) = variants_of(jobs, [policy])
    with_nodes(jobs, f"+1x{model}" if model else "+1")  # fails at once for an unknown model
    others = [spec for spec in jobs.nodes if model and all(d.model != model for d in spec.devices)]
    present = len(jobs.nodes) - len(others)
    with progress(f"{len(jobs.jobs):,} jobs", total=len(jobs.jobs), quiet=json) as on_share:

        def measured(nodes: int) -> "Measures":
            def told(done: int, total: int) -> None:
                if on_share is not None:
                    on_share(done / max(1, total))

            ran = replay(
                _on(jobs, nodes, model),
                Physics(),
                config=one.config,
                knows=one.knows,
                policies=installed_policies(),
                on_progress=told,
            )
            return measure(ran)

        result = search(present, goal, measured)
    if json:
        print_json({"goal": {"wait": goal.which, "most_ms": goal.most_ms}, "found": result})
    else:
        _print(jobs, goal, result, model)
    if result.nodes is None:
        sys.exit(NOT_MET)


def _on(trace: "Trace", nodes: int, model: str | None) -> "Trace":
    """Return the trace with a number of nodes (of the model; all others stay)."""
    from penstock.traces.edit import with_nodes, without_nodes

    if model is None:
        return with_nodes(trace, str(nodes))
    mine = [spec for spec in trace.nodes if any(d.model == model for d in spec.devices)]
    more = nodes - len(mine)
    if more > 0:
        return with_nodes(trace, f"+{more}x{model}")
    gone = {spec.name for spec in mine[nodes:]}
    return without_nodes(trace, gone)


def _print(trace: "Trace", goal: "Goal", result: "Capacity", model: str | None) -> None:
    from penstock.report.text import duration

    kind = f" with {model}" if model else ""
    rows = [
        (
            f"{point.nodes:,}",
            "yes" if point.met else "no",
            duration(round(goal.of(point.measures.whole.wait_ms))),
            duration(round(point.measures.whole.wait_ms.mean)),
            f"{100 * point.measures.utilisation:.1f} %",
            f"{point.measures.whole.unfinished:,}" if point.measures.whole.unfinished else "",
        )
        for point in result.points
    ]
    heads = (f"nodes{kind}", "meets it", f"wait, {goal.which}", "wait, mean", "utilisation", "never ended")
    say(f"{trace.name}: {len(trace.jobs):,} jobs; goal: wait, {goal.which}, at most {duration(goal.most_ms)}")
    Console().print(table(heads, rows, right=heads, drop=heads[:1:-1]))
    if result.nodes is None:
        say(f"not even {result.points[-1].nodes:,} nodes{kind} meet it")
    else:
        say(f"{result.nodes:,} nodes{kind} meet it")
