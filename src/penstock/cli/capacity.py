"""`penstock capacity`: how many nodes a goal for waiting takes."""

import sys
from pathlib import Path

from penstock.cli.output import Console, print_json, say, table
from penstock.cli.simulate import check_load, found, progress, variant_of
from penstock.extensions import installed_policies
from penstock.report.run.text import duration
from penstock.sim.replay.capacity import Capacity, Goal, capacity, goal_of
from penstock.sim.replay.measures import Measures, measure
from penstock.sim.replay.physics import Physics
from penstock.sim.replay.replay import replay
from penstock.traces import Trace, load
from penstock.traces.edit import drawn_like, with_nodes, without_nodes

NOT_MET = 10
"""Exit code when even the most nodes that were tried do not meet the goal."""


def plan_capacity(
    path: Path, kind: str | None, wait: str, policy: str, model: str | None, load_times: float, *, as_json: bool
) -> None:
    goal = goal_of(wait)
    check_load(load_times)
    trace = load(found(path), kind)
    if load_times != 1.0:
        trace = drawn_like(trace, 0, load_times)
    one = variant_of(policy, trace.config)
    with_nodes(trace, f"+1x{model}" if model else "+1")  # says at once that there is no such model
    others = [spec for spec in trace.nodes if model and all(d.model != model for d in spec.devices)]
    present = len(trace.nodes) - len(others)
    with progress(f"{len(trace.jobs):,} jobs", quiet=as_json) as on_share:

        def measured(nodes: int) -> Measures:
            def told(done: int, total: int) -> None:
                if on_share is not None:
                    on_share(done / max(1, total))

            ran = replay(
                _on(trace, nodes, model),
                Physics(),
                config=one.config,
                knows=one.knows,
                policies=installed_policies(),
                on_progress=told,
            )
            return measure(ran)

        result = capacity(present, goal, measured)
    if as_json:
        print_json({"goal": {"wait": goal.which, "most_ms": goal.most_ms}, "found": result})
    else:
        _print(trace, goal, result, model)
    if result.nodes is None:
        sys.exit(NOT_MET)


def _on(trace: Trace, nodes: int, model: str | None) -> Trace:
    """Return the trace with so many nodes (of the model; all others stay)."""
    if model is None:
        return with_nodes(trace, str(nodes))
    mine = [spec for spec in trace.nodes if any(d.model == model for d in spec.devices)]
    more = nodes - len(mine)
    if more > 0:
        return with_nodes(trace, f"+{more}x{model}")
    gone = {spec.name for spec in mine[nodes:]}
    return without_nodes(trace, gone)


def _print(trace: Trace, goal: Goal, result: Capacity, model: str | None) -> None:
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
    Console().print(table(heads, rows, right=heads))
    if result.nodes is None:
        say(f"not even {result.points[-1].nodes:,} nodes{kind} meet it")
    else:
        say(f"{result.nodes:,} nodes{kind} meet it")
