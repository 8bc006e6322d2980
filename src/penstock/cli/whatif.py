"""`penstock whatif`: the cluster's own log replayed with other rules, quotas, nodes or failures."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer
from msgspec.structs import replace

from penstock.cli.eventlog import log_of
from penstock.cli.options import JsonOption, LogOption, NodesOption, duration_ms
from penstock.cli.output import print_json, say
from penstock.cli.progress import progress
from penstock.cli.simulate import for_programs, print_results, with_unserved, write_page
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.events import Record
from penstock.core.model.quantities import listed

if TYPE_CHECKING:
    from penstock.sim.replay.agreement import PlanAgreement
    from penstock.sim.replay.compare import VariantResult
    from penstock.sim.replay.costs import CostMeter
    from penstock.sim.replay.replay import Ran
    from penstock.sim.replay.variants import Variant
    from penstock.traces.model import Trace
    from penstock.traces.ownlog import LogTrace

REAL = "as it was"
"""The replay of the unchanged log; where other schedulers decided, what they did."""


class Again(msgspec.Struct, frozen=True):
    """Number of decisions in the log with a recorded basis, and of decisions reproduced."""

    decisions: int
    same: int


class Changes(NamedTuple):
    """The changes to replay with, as given on the command line."""

    settings: Sequence[str]
    nodes: str | None
    racks: Sequence[str]


def whatif(
    policy: Annotated[list[str] | None, typer.Option("--policy", "-P", help="As for sim; may be repeated.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="PATH=VALUE, such as queue.research.max.devices=16."),
    ] = None,
    nodes: NodesOption = None,
    fail_rack: Annotated[list[str] | None, typer.Option(help="Rack that is down all the time.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Only jobs submitted in the last, such as 30d.")] = None,
    log: LogOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for whatif.html and whatif.json.")] = None,
    json: JsonOption = False,
) -> None:
    """Replay the cluster's log with other rules, quotas or nodes."""
    from penstock.sim.replay.observed import schedulers_of
    from penstock.traces.ownlog import trace_of

    now_ms = time.time_ns() // 1_000_000
    since_ms = 0 if since is None else now_ms - duration_ms("from", since, hint="such as 12h or 30d")
    records = log_of(log, quiet=json)
    told = trace_of(records)
    if not told.trace.jobs:
        raise InvalidInput("the log has no jobs yet", hint="submit some, or name another log with --log")
    changes = Changes(change or (), nodes, fail_rack or ())
    changed = _changed(told.trace, changes)
    others = schedulers_of(records)
    unchanged = "under Penstock" if others else REAL + ", again"
    tried = [_variant(words, changed, changes, unchanged) for words in policy or ("as_is",)]
    title = f"{len(told.trace.jobs):,} jobs of the log, {1 + len(tried)} replays"
    with progress(title, quiet=json) as on_share:
        first = _observed(records, told, since_ms, on_share) if others else _repeated(records, told, since_ms, on_share)
        again, found, real = first
        results = [real, *_replayed(told, changed, tried, since_ms, on_share)]
    changed = with_unserved(changed, results)
    if out is not None:
        write_page(changed, results, out, "whatif")
    if json:
        shown = [for_programs(result) for result in results]
        print_json({"again": again, "agreement": found, "results": shown, "notes": changed.notes})
        return
    if found is not None:
        _say(again, found)
    else:
        say(f"'{REAL}' is what {listed(others)} did: nothing of it is replayed")
    print_results(changed, results)
    if out is not None:
        say(f"report: {out / 'whatif.html'}")


OnShare = Callable[[float], None] | None


def _reporting(on_share: OnShare, place: int, steps: int) -> Callable[[int, int], None]:
    def said(done: int, total: int) -> None:
        if on_share is not None:
            on_share((place + done / max(1, total)) / steps)

    return said


def _observed(
    records: Sequence[Record], told: "LogTrace", since_ms: int, on_share: OnShare
) -> "tuple[Again, None, VariantResult]":
    """Count what other schedulers did."""
    from penstock.sim.replay.costs import CostMeter, declared_billing
    from penstock.sim.replay.observed import observed

    till = CostMeter(declared_billing(told.trace))
    till.take(records)
    return Again(0, 0), None, _result(REAL, observed(records, told), since_ms, till)


def _repeated(
    records: Sequence[Record], told: "LogTrace", since_ms: int, on_share: OnShare
) -> "tuple[Again, PlanAgreement, VariantResult]":
    """Replay the log as it was."""
    from penstock.sim.replay.agreement import Decisions, agreement, as_recorded
    from penstock.sim.replay.costs import CostMeter, declared_billing
    from penstock.sim.replay.replay import replay

    again = _again(records, _reporting(on_share, 0, 3))
    decisions, till = Decisions(), CostMeter(declared_billing(told.trace))
    report = _reporting(on_share, 1, 3)
    real = replay(told.trace, as_recorded(told), on_plan=decisions, on_progress=report, on_records=till.take)
    ended_ms = max((life.ended_ms for life in real.lives), default=0)
    found = agreement(told.jobs, decisions, [life.started_ms for life in real.lives], ended_ms)
    return again, found, _result(REAL, real, since_ms, till)


def _replayed(
    told: "LogTrace", changed: "Trace", tried: "Sequence[Variant]", since_ms: int, on_share: OnShare
) -> "list[VariantResult]":
    """Replay the log under each variant."""
    from penstock.extensions import installed_policies
    from penstock.sim.replay.agreement import as_recorded
    from penstock.sim.replay.costs import CostMeter, declared_billing
    from penstock.sim.replay.replay import replay

    results = []
    for place, one in enumerate(tried):
        till = CostMeter(declared_billing(told.trace))
        ran = replay(
            _under(changed, one),
            as_recorded(told),
            knows=one.knows,
            policies=installed_policies(),
            on_progress=_reporting(on_share, 2 * len(tried) + place, 3 * len(tried)),
            on_records=till.take,
        )
        results.append(_result(one.name, ran, since_ms, till))
    return results


def _changed(trace: "Trace", changes: Changes) -> "Trace":
    """Return the trace on other nodes, without the racks that fail."""
    from penstock.traces.edit import with_nodes
    from penstock.traces.model import Outage

    if changes.nodes:
        trace = with_nodes(trace, changes.nodes)
    racks = {spec.rack for spec in trace.nodes if spec.rack}
    for rack in changes.racks:
        if rack not in racks:
            hint = nearest(rack, racks) or "no node has a rack"
            problem = Problem("unknown_rack", "fail-rack", f"there is no rack '{rack}'", rack, hint)
            raise InvalidInput(problem.message, problems=(problem,))
    begun_ms = trace.jobs[0].submit_ms
    lost = tuple(Outage(spec.name, begun_ms, 0) for spec in trace.nodes if spec.rack in changes.racks)
    return replace(trace, outages=(*lost, *trace.outages))


def _variant(words: str, trace: "Trace", changes: Changes, unchanged: str) -> "Variant":
    from penstock.control.config_files import with_changes
    from penstock.sim.replay.variants import variant

    rules = "+".join([*([] if words == "as_is" else [words]), *changes.settings])
    nodes = [f"nodes {changes.nodes}"] if changes.nodes else []
    named = " ".join([rules, *nodes, *(f"without {rack}" for rack in changes.racks)])
    base = with_changes(trace.config, changes.settings)
    return replace(variant(words, base), name=named.strip() or unchanged)


def _under(trace: "Trace", one: "Variant") -> "Trace":
    """Return the trace under the variant's rules from its start to its end: later changes of the log do not count."""
    changes = tuple(change for change in trace.changes if change.config is None)
    return replace(trace, config=one.config, changes=changes)


def _result(name: str, ran: "Ran", since_ms: int, till: "CostMeter") -> "VariantResult":
    from penstock.sim.replay.compare import result_of

    kept = tuple(life for life in ran.lives if life.submitted_ms >= since_ms)
    costs = till.costs({life.job_id for life in kept}, ran.ended_ms)
    return replace(result_of(name, 0, replace(ran, lives=kept)), costs=costs)


def _again(records: Sequence[Record], said: Callable[[int, int], None]) -> Again:
    """Repeat the plans of the log, each on its recorded basis, and count equal decisions."""
    from penstock.core.audit import audit
    from penstock.extensions import installed_policies

    def at(place: int) -> None:
        if place % 1000 == 0:
            said(place, len(records))

    same = [r.same for r in audit(records, policies=installed_policies(), on_record=at) if r.basis]
    return Again(len(same), sum(map(bool, same)))


def _say(again: Again, found: "PlanAgreement") -> None:
    """Print how well the replay of the unchanged log agrees with the real run: a measure of trust in the rest."""
    if again.decisions:
        say(f"{again.same:,} of {again.decisions:,} decisions come out the same from what each of them knew")
    text = f"the replay of what happened starts {found.same:,} of {found.decisions:,} attempts on the same nodes"
    text += ", all in the same order" if found.exact else f", the first {found.in_order:,} in the same order"
    off = f"{found.start_off_ms:,} ms off in the middle; the makespan is {100 * found.makespan_off:.1f} % off"
    say(f"{text}; starts are {off}")
