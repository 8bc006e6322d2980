"""Commands about the cluster: `nodes`, `drain`, `queue`, `alerts`, `defrag`."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api import types as api
from penstock.cli.errors import NotThere
from penstock.cli.forms import chosen
from penstock.cli.node_page import is_held, print_node, promises_text, state_text
from penstock.cli.options import JsonOption, duration_ms
from penstock.cli.output import Console, marked, print_done, print_json, say, table
from penstock.cli.place import client_of
from penstock.core.model.answers import OF_RUNNING
from penstock.core.model.errors import nearest
from penstock.core.model.quantities import format_duration, format_size, listed
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from rich.text import Text


JOBS_SHOWN = 4
"""Jobs that the list of nodes names of each."""
NEXT_SHOWN, NEXT_WIDTH = 5, 64
"""Jobs next to start that the queue tree names, and characters that they take."""


def nodes(
    name: Annotated[str, typer.Argument(metavar="[NODE]", help="Show this node with its devices.")] = "",
    json: JsonOption = False,
) -> None:
    """List nodes with their devices and jobs."""
    found = client_of().nodes()
    if name:
        known = {node.name: node for node in found}
        if name not in known:
            raise NotThere(f"there is no node '{name}'", hint=nearest(name, known))
        if json:
            print_json(known[name])
            return
        if not chosen().of_items:
            print_node(known[name])
            return
        found = [known[name]]
    if json:
        print_json({"nodes": found})
        return
    rows = [_node_row(node) for node in found]
    drop = ("not promised", "engine", "switch", "rack", "memory", "pool", "CPUs", "jobs", "devices (x: held)")
    columns = ["node", "state", "pool", "rack", "switch", "CPUs", "memory", "devices (x: held)", "jobs"]
    columns += ["engine", "not promised"]
    shown = table(columns, rows, right=("CPUs",), drop=drop, text=("state",), of=found, kind=api.NodeView, key="name")
    Console().print(shown)


def _node_row(node: api.NodeView) -> tuple[str, ...]:
    marks = "".join("x" if is_held(d) else "." for d in node.devices)
    models = {d.model + (" (simulated)" if d.simulated else "") for d in node.devices}
    devices = f"{marks} {len(node.devices)} x {', '.join(sorted(models))}" if node.devices else "none"
    return (
        node.name + (" (virtual)" if node.virtual else ""),
        state_text(node),
        node.pool,
        node.rack,
        node.switch,
        f"{node.cpu_held_milli / 1000:g}/{node.cpu_milli / 1000:g}",
        f"{format_size(node.memory_held_bytes)} of {format_size(node.memory_bytes)}",
        devices,
        listed(node.jobs, JOBS_SHOWN),
        node.engine,
        promises_text(node),
    )


def drain(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    off: Annotated[bool, typer.Option("--off", help="Open the node again.")] = False,
    evict: Annotated[bool, typer.Option(help="Ask running jobs to save and move.")] = False,
    after: Annotated[str, typer.Option("--after", help="Evict jobs that still run after this time, such as 2h.")] = "",
    reason: Annotated[str, typer.Option(help="Shown in explanations and node lists.")] = "",
    json: JsonOption = False,
) -> None:
    """Close a node to new work, or open it again."""
    after_ms = duration_ms("--after", after) if after else 0
    client_of().drain(node, on=not off, evict=evict, reason=reason, evict_after_ms=after_ms)
    text = f"node {node} is {'open again' if off else 'being drained'}"
    print_done({"node": node, "draining": not off}, text, as_json=json)


def alerts(json: JsonOption = False) -> None:
    """List jobs that can never start, and other problems. Most severe first, each with its remedy."""
    found = client_of().alerts()
    if json:
        print_json({"alerts": found})
        return
    for alert in found:
        jobs = ", ".join(map(str, alert.job_ids)) + (", ..." if alert.count > len(alert.job_ids) else "")
        say(f"{alert.code}: {counted(alert.count, 'job')}: {jobs}" if alert.count else alert.code)
        say(f"  {alert.text}")
        say(f"  to resolve it: {alert.resolve}")
    if not found:
        say("no alerts")


def defrag(json: JsonOption = False) -> None:
    """Show which jobs would move to fit a gang, and at what cost. Nothing moves."""
    found = client_of().defrag()
    if json:
        print_json(found, of=found.found)
        return
    for one in found.found:
        moves = ", ".join(f"{move.job} ({format_duration(move.cost_device_ms)} x device)" for move in one.moves)
        say(f"job {one.beneficiary} would start on {', '.join(one.nodes)}")
        say(f"  if these saved and moved: {moves}")
    if not found.found:
        say("nothing to gain: no waiting job would fit if others moved, or the moves cost more than they gain")
    elif not found.switched_on:
        say("nothing was moved; the setting `defrag: true` lets the scheduler do it")


def _following(view: api.QueueView) -> list[str]:
    """Return a line with the jobs next to start, as many as a narrow terminal has room for; none where none waits."""
    names = [f"{ref.id} {ref.name}" for ref in view.next_jobs[:NEXT_SHOWN]]
    while len(names) > 1 and len(", ".join(names)) > NEXT_WIDTH:
        names.pop()
    return [f"next: {', '.join(names)}"] if names else []


def queue(json: JsonOption = False) -> None:
    """Show the queue tree, waiting jobs and those next to start."""
    client = client_of()
    found = client.queues()
    if json:
        print_json({"queues": found})
        return
    from rich.tree import Tree

    def label(view: api.QueueView) -> "Text":
        following = _following(view)
        text = f"{view.policy}: {view.active} active, {view.waiting} waiting"
        text += f", {view.blocked} blocked by dependencies" if view.blocked else ""
        return marked("[bold]{}[/] {}" + ("\n{}" if following else ""), view.name, text, *following)

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
    standing = sum(alert.count for alert in client.alerts() if alert.code not in OF_RUNNING | {"tenant_held"})
    if standing:
        say(f"{counted(standing, 'job')} can never start as things are: penstock alerts")
