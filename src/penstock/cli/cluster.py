"""Commands about the cluster: `nodes`, `drain`, `queue`, `alerts`, `defrag`."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api import types as api
from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import Console, marked, print_done, print_json, say, table
from penstock.core.model.answers import OF_RUNNING
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.quantities import format_duration, format_size, listed, parse_duration_ms

if TYPE_CHECKING:
    from rich.text import Text


def nodes(data: DataOption = None, json: JsonOption = False) -> None:
    """List nodes with their devices and jobs."""
    found = client_of(data).nodes()
    if json:
        print_json({"nodes": found})
        return
    rows = [_node_row(node) for node in found]
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


def drain(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    data: DataOption = None,
    off: Annotated[bool, typer.Option("--off", help="Open the node again.")] = False,
    evict: Annotated[bool, typer.Option(help="Ask running jobs to save and move.")] = False,
    after: Annotated[str, typer.Option("--after", help="Evict jobs that still run after this time, such as 2h.")] = "",
    reason: Annotated[str, typer.Option(help="Shown in explanations and node lists.")] = "",
    json: JsonOption = False,
) -> None:
    """Close a node to new work, or open it again."""
    after_ms = _duration("after", after) if after else 0
    client_of(data).drain(node, on=not off, evict=evict, reason=reason, evict_after_ms=after_ms)
    text = f"node {node} is {'open again' if off else 'being drained'}"
    print_done({"node": node, "draining": not off}, text, as_json=json)


def _duration(field: str, text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError:
        problem = Problem("bad_value", field, f"{field} is '{text}', expected a duration such as 2h", text)
        raise InvalidInput(problem.message, problems=(problem,)) from None


def alerts(data: DataOption = None, json: JsonOption = False) -> None:
    """List jobs that can never start, and other problems. Most severe first, each with its remedy."""
    found = client_of(data).alerts()
    if json:
        print_json({"alerts": found})
        return
    for alert in found:
        jobs = ", ".join(map(str, alert.job_ids)) + (", ..." if alert.count > len(alert.job_ids) else "")
        say(f"{alert.code}: {alert.count} job(s): {jobs}")
        say(f"  {alert.text}")
        say(f"  to resolve it: {alert.resolve}")
    if not found:
        say("no alerts")


def defrag(data: DataOption = None, json: JsonOption = False) -> None:
    """Show which jobs would move to fit a gang, and at what cost. Nothing moves."""
    found = client_of(data).defrag()
    if json:
        print_json(found)
        return
    for one in found.found:
        moves = ", ".join(f"{move.job} ({format_duration(move.cost_device_ms)} x device)" for move in one.moves)
        say(f"job {one.beneficiary} would start on {', '.join(one.nodes)}")
        say(f"  if these saved and moved: {moves}")
    if not found.found:
        say("nothing to gain: no waiting job would fit if others moved, or the moves cost more than they gain")
    elif not found.switched_on:
        say("nothing was moved; the setting `defrag: true` lets the scheduler do it")


def queue(data: DataOption = None, json: JsonOption = False) -> None:
    """Show the queue tree, waiting jobs and those next to start."""
    client = client_of(data)
    found = client.queues()
    if json:
        print_json({"queues": found})
        return
    from rich.tree import Tree

    def label(view: api.QueueView) -> "Text":
        following = ", ".join(f"{ref.id} {ref.name}" for ref in view.next_jobs[:5])
        text = f"{view.policy}: {view.active} active, {view.waiting} waiting"
        text += f", {view.blocked} blocked by dependencies" if view.blocked else ""
        return marked("[bold]{}[/] {}", view.name, text + (f"; next: {following}" if following else ""))

    tree = Tree("root")
    branches = {"root": tree}
    left = list(found)
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
