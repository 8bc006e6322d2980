"""The last scheduling cycle: its strategy, its decisions, and the plans it chose from."""

import time

from penstock.api.scheduling import CandidatePlan, CycleView
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, table
from penstock.cli.place import client_of
from penstock.core.model.quantities import format_duration, listed
from penstock.core.model.words import counted

WAIT_TEXT = {
    "no_fit": "found no room",
    "making_room": "wait until preempted jobs have saved and left",
    "kept_back": "could use room only that is kept for a job before them",
    "power_cap": "would draw more power than their pool may",
    "quota": "would exceed a maximum of a queue or tenant",
    "reserve": "would cut into their pool's reserve",
    "admission": "wait for their turn in their queue",
    "expected_demand": "are held back: room is kept for demand that is expected",
    "backing_off": "wait after a failure",
    "cycle_full": "are left to the next cycle, which may start more",
}
"""What kinds of jobs do, by the code of why they wait."""
OBJECTIVES = ("utilisation", "response time", "fairness", "energy", "cost")


def cycle(json: JsonOption = False) -> None:
    """Show the last scheduling cycle: its decisions and candidate plans. Candidates come with their Pareto front."""
    shown = client_of().cycle()
    if json:
        print_json(shown)
    else:
        print_cycle(shown, time.time_ns() // 1_000_000)


def print_cycle(shown: CycleView, now_ms: int) -> None:
    """Print a cycle for people."""
    out = Console()
    ago = f" {format_duration(max(0, now_ms - shown.time_ms))} ago" if shown.time_ms else ""
    out.print(f"last cycle{ago}, on record {shown.seq:,} of the log")
    out.print(f"  strategy  {shown.strategy}")
    preempted = counted(shown.preemptions, "preemption")
    out.print(f"  decided   {counted(shown.starts, 'start')}, {preempted}" + _dropped(shown))
    if shown.reserved:
        out.print(f"  reserved  room for {'job' if len(shown.reserved) == 1 else 'jobs'} {listed(shown.reserved)}")
    for code, kinds in shown.waiting.items():
        out.print(f"  waiting   {counted(kinds, 'kind')} of jobs: {WAIT_TEXT.get(code, code.replace('_', ' '))}")
    for problem in shown.problems:
        out.print(f"  problem   {problem}")
    _print_candidates(out, shown)


def _dropped(shown: CycleView) -> str:
    return f"; {counted(shown.dropped, 'decision')} left out, as the state had moved on" if shown.dropped else ""


def _print_candidates(out: Console, shown: CycleView) -> None:
    out.print()
    if not shown.candidates:
        out.print("one plan only: it chooses between placements where the cluster file names several (candidates)")
        return
    rows = [_candidate_row(one) for one in shown.candidates]
    columns = ("placement", *OBJECTIVES, "weighted", "Pareto front", "")
    if shown.weights is not None:
        told = zip(OBJECTIVES, _parts(shown.weights), strict=True)
        out.print("weights: " + ", ".join(f"{name} {part / 10:g} %" for name, part in told))
    if shown.energy:
        out.print(shown.energy)
    out.print(table(columns, rows, right=(*OBJECTIVES, "weighted"), drop=OBJECTIVES))


def _candidate_row(one: CandidatePlan) -> tuple[str, ...]:
    scores = (f"{part / 10:g}" for part in _parts(one.scores))
    front = "on it" if one.on_front else "dominated"
    return one.placement, *scores, f"{one.weighted / 10_000:.1f}", front, "chosen" if one.chosen else ""


def _parts(values: object) -> tuple[int, ...]:
    return tuple(getattr(values, name.replace(" ", "_")) for name in OBJECTIVES)
