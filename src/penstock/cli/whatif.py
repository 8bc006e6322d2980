"""`penstock whatif`: the cluster's own log replayed with other rules, quotas, nodes or failures."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.cli.eventlog import log_of
from penstock.cli.output import print_json, say
from penstock.cli.simulate import for_programs, print_results, progress, write_page
from penstock.control.config_files import with_changes
from penstock.core.audit import audit
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.events import Record
from penstock.core.model.units import parse_duration_ms
from penstock.extensions import installed_policies
from penstock.sim.replay.agreement import Agreement, Decisions, agreement, as_recorded
from penstock.sim.replay.compare import Result, result_of
from penstock.sim.replay.costs import Till, declared_billing
from penstock.sim.replay.replay import Progress, Ran, replay
from penstock.sim.replay.variants import Variant, variant
from penstock.traces.edit import with_nodes
from penstock.traces.model import Outage, Trace
from penstock.traces.ownlog import Told, trace_of

REAL = "as it was"
"""The replay of the unchanged log."""


class Again(msgspec.Struct, frozen=True):
    """How many decisions of the log say what they were made on, and how many of them come out the same again."""

    decisions: int
    same: int


class Wish(NamedTuple):
    """What shall be different, as the command line says it."""

    policies: Sequence[str]
    changes: Sequence[str]
    nodes: str | None
    racks: Sequence[str]
    since: str | None


def whatif(data: Path | None, log: Path | None, wish: Wish, out: Path | None, *, as_json: bool) -> None:
    since_ms = _since_ms(wish.since)
    records = log_of(data, log)
    told = trace_of(records)
    if not told.trace.jobs:
        raise InvalidInput("the log has no jobs yet", hint="submit some, or name another log with --log")
    changed = _changed(told.trace, wish)
    physics = as_recorded(told)
    tried = [_variant(words, changed, wish) for words in wish.policies or ("as_is",)]
    results = []
    decisions = Decisions()
    steps = 2 + len(tried)
    with progress(f"{len(told.trace.jobs):,} jobs of the log, {steps - 1} replays", quiet=as_json) as on_share:

        def report(place: int) -> Progress:
            def said(done: int, total: int) -> None:
                if on_share is not None:
                    on_share((place + done / max(1, total)) / steps)

            return said

        again = _again(records, report(steps - 1))
        billing = declared_billing(told.trace)
        till = Till(billing)
        real = replay(told.trace, physics, on_plan=decisions, on_progress=report(0), on_records=till.take)
        found = _agreement(told, decisions, real)
        results.append(_result(REAL, real, since_ms, till))
        for place, one in enumerate(tried, start=1):
            till = Till(billing)
            ran = replay(
                _under(changed, one),
                physics,
                knows=one.knows,
                policies=installed_policies(),
                on_progress=report(place),
                on_records=till.take,
            )
            results.append(_result(one.name, ran, since_ms, till))
    if out is not None:
        write_page(told.trace, results, out, "whatif")
    if as_json:
        shown = [for_programs(result) for result in results]
        print_json({"again": again, "agreement": found, "results": shown, "notes": told.trace.notes})
        return
    _say(again, found)
    print_results(changed, results)
    if out is not None:
        say(f"report: {out / 'whatif.html'}")


def _since_ms(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return time.time_ns() // 1_000_000 - parse_duration_ms(text)
    except ValueError as error:
        problem = Problem("invalid_value", "from", f"from is '{text}': {error}", text, "such as 12h or 30d")
        raise InvalidInput(problem.message, problems=(problem,)) from None


def _changed(trace: Trace, wish: Wish) -> Trace:
    """Return the trace on other nodes, without the racks that fail."""
    if wish.nodes:
        trace = with_nodes(trace, wish.nodes)
    racks = {spec.rack for spec in trace.nodes if spec.rack}
    for rack in wish.racks:
        if rack not in racks:
            hint = nearest(rack, racks) or "no node has a rack"
            problem = Problem("unknown_rack", "fail-rack", f"there is no rack '{rack}'", rack, hint)
            raise InvalidInput(problem.message, problems=(problem,))
    begun_ms = trace.jobs[0].submit_ms
    lost = tuple(Outage(spec.name, begun_ms, 0) for spec in trace.nodes if spec.rack in wish.racks)
    return replace(trace, outages=(*lost, *trace.outages))


def _variant(words: str, trace: Trace, wish: Wish) -> Variant:
    named = "+".join([*([] if words == "as_is" else [words]), *wish.changes])
    named = " ".join([named, *([f"nodes {wish.nodes}"] if wish.nodes else []), *(f"without {r}" for r in wish.racks)])
    base = with_changes(trace.config, wish.changes)
    return replace(variant(words, base), name=named.strip() or REAL + ", again")


def _under(trace: Trace, one: Variant) -> Trace:
    """Return the trace under the variant's rules from its start to its end: later changes of the log do not count."""
    changes = tuple(change for change in trace.changes if change.config is None)
    return replace(trace, config=one.config, changes=changes)


def _result(name: str, ran: Ran, since_ms: int, till: Till) -> Result:
    kept = tuple(life for life in ran.lives if life.submitted_ms >= since_ms)
    costs = till.costs({life.job_id for life in kept}, ran.ended_ms)
    return replace(result_of(name, 0, replace(ran, lives=kept)), costs=costs)


def _agreement(told: Told, decisions: Decisions, real: Ran) -> Agreement:
    ended_ms = max((life.ended_ms for life in real.lives), default=0)
    return agreement(told.stories, decisions, [life.started_ms for life in real.lives], ended_ms)


def _again(records: Sequence[Record], said: Progress) -> Again:
    """Make the plans of the log again: what they decided follows from what each of them knew, or it does not."""

    def at(place: int) -> None:
        if place % 1000 == 0:
            said(place, len(records))

    same = [r.same for r in audit(records, policies=installed_policies(), on_record=at) if r.basis]
    return Again(len(same), sum(map(bool, same)))


def _say(again: Again, found: Agreement) -> None:
    """Say how well the replay of the unchanged log agrees with what happened: what the rest is worth."""
    if again.decisions:
        say(f"{again.same:,} of {again.decisions:,} decisions come out the same from what each of them knew")
    text = f"the replay of what happened starts {found.same:,} of {found.decisions:,} attempts on the same nodes"
    text += ", all in the same order" if found.exact else f", the first {found.in_order:,} in the same order"
    off = f"{found.start_off_ms:,} ms off in the middle; the makespan is {100 * found.makespan_off:.1f} % off"
    say(f"{text}; starts are {off}")
