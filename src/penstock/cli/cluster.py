"""Commands about nodes, queues and the whole."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.api import types as api
from penstock.cli.options import client_of
from penstock.cli.output import Console, marked, print_json, say, table
from penstock.core.explain.reasons import OF_RUNNING
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.units import format_duration, format_size, parse_duration_ms
from penstock.core.status.alerts import listed

if TYPE_CHECKING:
    from rich.text import Text


def nodes(data: Path | None, *, as_json: bool) -> None:
    listed = client_of(data).nodes()
    if as_json:
        print_json({"nodes": listed})
        return
    rows = [_node_row(node) for node in listed]
    Console().print(table(("node", "state", "CPUs", "memory", "devices (x: held)", "jobs"), rows, right=("CPUs",)))


def _node_row(node: api.NodeView) -> tuple[str, ...]:
    marks = "".join("x" if d.job is not None else "." for d in node.devices)
    models = {d.model + (" (simulated)" if d.simulated else "") for d in node.devices}
    devices = f"{marks} {len(node.devices)} x {', '.join(sorted(models))}" if node.devices else "none"
    state = node.state if node.connected or node.state == "lost" else f"{node.state}, not connected"
    if node.draining:
        state += f", draining{': ' + node.drain_reason if node.drain_reason else ''}"
    if node.shut_to:
        state += f", shut to {listed(node.shut_to)}"
    return (
        node.name + (" (virtual)" if node.virtual else ""),
        state,
        f"{node.cpu_held_milli / 1000:g}/{node.cpu_milli / 1000:g}",
        f"{format_size(node.memory_held_bytes)} of {format_size(node.memory_bytes)}",
        devices,
        ", ".join(map(str, node.jobs)),
    )


def drain(data: Path | None, node: str, *, on: bool, evict: bool, after: str, reason: str, as_json: bool) -> None:
    after_ms = _duration("after", after) if after else 0
    client_of(data).drain(node, on=on, evict=evict, reason=reason, evict_after_ms=after_ms)
    if as_json:
        print_json({"node": node, "draining": on})
    else:
        say(f"node {node} is {'being drained' if on else 'open again'}")


def _duration(field: str, text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError:
        problem = Problem("bad_value", field, f"{field} is '{text}', expected a duration such as 2h", text)
        raise InvalidInput(problem.message, problems=(problem,)) from None


def alerts(data: Path | None, *, as_json: bool) -> None:
    found = client_of(data).alerts()
    if as_json:
        print_json({"alerts": found})
        return
    for alert in found:
        jobs = ", ".join(map(str, alert.job_ids)) + (", ..." if alert.count > len(alert.job_ids) else "")
        say(f"{alert.code}: {alert.count} job(s): {jobs}")
        say(f"  {alert.text}")
        say(f"  to resolve it: {alert.resolve}")
    if not found:
        say("nothing stands still")


def defrag(data: Path | None, *, as_json: bool) -> None:
    found = client_of(data).defrag()
    if as_json:
        print_json(found)
        return
    for one in found.found:
        moves = ", ".join(f"{move.job} ({format_duration(move.cost_device_ms)} x device)" for move in one.moves)
        say(f"job {one.beneficiary} would start on {', '.join(one.nodes)}")
        say(f"  if these saved and went on elsewhere: {moves}")
    if not found.found:
        say("nothing to gain: no waiting job would fit if others moved, or the moves cost more than they gain")
    elif not found.switched_on:
        say("nothing was moved; the setting `defrag: true` lets the scheduler do it")


def queue(data: Path | None, *, as_json: bool) -> None:
    client = client_of(data)
    listed = client.queues()
    if as_json:
        print_json({"queues": listed})
        return
    from rich.tree import Tree

    def label(view: api.QueueView) -> "Text":
        following = ", ".join(f"{ref.id} {ref.name}" for ref in view.next_jobs[:5])
        text = f"{view.policy}: {view.active} active, {view.waiting} waiting"
        text += f", {view.blocked} blocked by dependencies" if view.blocked else ""
        return marked("[bold]{}[/] {}", view.name, text + (f"; next: {following}" if following else ""))

    tree = Tree("root")
    branches = {"root": tree}
    left = list(listed)
    while left:
        placed = [view for view in left if view.parent in branches]
        for view in placed:
            branches[view.name] = branches[view.parent].add(label(view))
        left = [view for view in left if view not in placed]
        if not placed:
            break
    Console().print(tree)
    standing = sum(alert.count for alert in client.alerts() if alert.code not in OF_RUNNING)
    if standing:
        say(f"{standing} job(s) can never start as things are: penstock alerts")


def report(data: Path | None, out: Path, *, as_json: bool) -> None:
    from penstock.report import run as page

    client = client_of(data)
    built = page.build(list(client.all_events()), time.time_ns() // 1_000_000)
    out.mkdir(parents=True, exist_ok=True)
    summary = page.summary(built)
    (out / "report.html").write_text(page.render(built), encoding="utf-8")
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    if as_json:
        print_json(summary)
    else:
        say(f"wrote {out / 'report.html'} and {out / 'summary.json'}")
