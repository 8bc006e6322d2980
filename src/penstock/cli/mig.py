"""How MIG would divide the devices of a node here: a dry run, by the node's own state. Nothing is changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.place import folder_here
from penstock.core.model.errors import InvalidInput, PenstockError

if TYPE_CHECKING:
    from penstock.core.model.resources import Device
    from penstock.devices.mig_apply import Applied
    from penstock.devices.provider import Sources
    from penstock.engines.processes.paths import DataFolder

Strategy = Literal["training", "inference", "balanced"]


class Divided(msgspec.Struct, frozen=True):
    """What a strategy would make of one device."""

    device: int
    model: str
    destroy: tuple[str, ...] = ()
    """Instances that would go: `3g.40gb at 4`."""
    create: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    """All instances afterwards."""
    commands: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be divided."""


def mig(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="A node of this machine; needed if several.")
    ] = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            "--strategy",
            help="training: halves; inference: the smallest; balanced: both (that of its pool, else balanced).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show how MIG would divide a node's devices, and by which commands.

    On the machine of the node. Nothing is changed.
    """
    from penstock.engines.local.launch import known_nodes, node_config

    data = folder_here()
    name = _one_of(known_nodes(data), node)
    folder = data.node(name)
    spec = node_config(folder / "agent.json").spec
    devices = [device for device in spec.devices if device.mig]
    chosen = strategy or strategy_of(data, spec.pool)
    found = [_divided(folder, _tool(folder, spec.devices), device, chosen) for device in devices]
    if json:
        print_json({"node": name, "strategy": chosen, "devices": found})
        return
    if not found:
        say(f"no device of {name} may be divided: MIG is off, or not known to them")
        return
    rows = [[str(d.device), d.model, ", ".join(d.layout) or "-", ", ".join(d.destroy) or "-", d.problem] for d in found]
    columns = ("device", "model", "instances", "destroyed", "problem")
    Console().print(table(columns, rows, right=("device",), drop=("model",), text=("problem",), of=found, key="device"))
    say(*(command for each in found for command in each.commands))


def strategy_of(data: "DataFolder", pool: str) -> Strategy:
    """Return the strategy of a pool, where the server here runs and the pool has one; else `balanced`."""
    from penstock.client import Client

    try:
        with Client.of(data.root) as client:
            pools = client.config().config.get("pools", [])
    except PenstockError:
        return "balanced"
    said = next((one.get("mig_strategy") for one in pools if isinstance(one, dict) and one.get("name") == pool), None)
    return next((known for known in get_args(Strategy) if known == said), "balanced")


def _one_of(known: list[str], node: str | None) -> str:
    """Return the node that is meant. Raises: InvalidInput."""
    if not known:
        raise InvalidInput("no node has ever run here", hint="penstock up starts them")
    if node is None and len(known) == 1:
        return known[0]
    if node not in known:
        what = "which node" if node is None else f"there is no node {node!r} here"
        raise InvalidInput(f"{what}: one of {', '.join(known)}", hint=f"penstock mig {known[0]}")
    return node


def _tool(folder: Path, devices: "tuple[Device, ...]") -> "Sources":
    from penstock.devices.provider import Machine
    from penstock.devices.simulated_mig import SimulatedMig

    if any(device.simulated for device in devices):
        return SimulatedMig(folder / "mig.json", devices)
    return Machine()


def _divided(folder: Path, sources: "Sources", device: "Device", strategy: Strategy) -> Divided:
    from penstock.devices.mig_apply import NotMade, preview
    from penstock.devices.simulated_mig import simulated_uuid

    uuid = simulated_uuid(device.index) if device.simulated else device.uuid
    planned: Applied | NotMade = preview(folder, sources, uuid, strategy)
    if isinstance(planned, NotMade):
        return Divided(device.index, device.model, problem=planned.reason)
    plan = planned.plan
    named = {
        action: tuple(f"{s.instance.profile} at {s.instance.start}" for s in plan.steps if s.action == action)
        for action in ("destroy", "create")
    }
    ((_, layout),) = plan.layouts
    commands = tuple(" ".join(command) for command in planned.commands)
    lies = tuple(f"{one.profile} at {one.start}" for one in layout)
    return Divided(device.index, device.model, named["destroy"], named["create"], lies, commands)
