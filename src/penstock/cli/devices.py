"""`penstock devices`: every device with its use, and devices closed and opened by hand."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api.devices import DeviceRow
from penstock.cli.helping import PlainGroup
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_done, print_json, say, table
from penstock.cli.place import client_of
from penstock.core.model.quantities import format_size

if TYPE_CHECKING:
    from penstock.client import Client


class ListingGroup(PlainGroup):
    """A group that lists where the first word is no command of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; `list` is added in front of those that begin with none of the commands."""
        if not ctx.resilient_parsing and "--help" not in args[:1] and not {*args[:1]} & {*self.commands}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


devices = typer.Typer(cls=ListingGroup, help="List devices with their use; close and open single ones.")
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
IndexArgument = Annotated[int, typer.Argument(metavar="INDEX", help="Index of the device on it, from 0.")]
ReasonOption = Annotated[str, typer.Option(help="Shown in explanations and lists.")]


@devices.command("list")
def list_devices(
    name: Annotated[str, typer.Argument(metavar="[NODE]", help="Only of this node, or of those like gpu-*.")] = "",
    json: JsonOption = False,
) -> None:
    """List devices: free, held by a job, taken by other programs, closed and why; and what they report."""
    client = client_of()
    found, notes = _all_of(client, name)
    if not found and name and "*" not in name:
        client.node(name)  # there is none of this name: says so
    if json:
        print_json({"devices": found, "notes": notes})
        return
    columns = ("node", "device", "model", "state", "use", "memory", "heat", "power")
    none = "no devices" + f" on {name}" * bool(name)
    settings: dict[str, Any] = {"of": found, "kind": DeviceRow, "key": "id", "empty": none}
    drop = ("heat", "power", "memory", "model", "use")
    right = ("device", "use", "memory", "heat", "power")
    rows = [_cells(one) for one in found]
    Console().print(table(columns, rows, right=right, drop=drop, text=("state",), **settings))
    for node, said in notes.items():
        for note in said:
            say(f"{node}: {note}")


def _all_of(client: "Client", name: str) -> tuple[list[DeviceRow], dict[str, list[str]]]:
    """Return the devices of all pages, and what drivers do not say by node."""
    query, rows, notes = {"node": name} if name else {}, list[DeviceRow](), dict[str, list[str]]()
    while True:
        page = client.devices(**query)
        rows += page.devices
        notes |= page.notes
        if not page.next_cursor:
            return rows, notes
        query["cursor"] = page.next_cursor


def _cells(row: DeviceRow) -> tuple[str, ...]:
    used, celsius = row.memory_used_bytes, row.temperature_c
    memory = format_size(row.memory_bytes)
    return (
        row.node,
        str(row.index),
        row.model + (" (simulated)" if row.simulated else ""),
        state_text(row),
        f"{row.use_milli / 10:.0f} %" if row.use_milli is not None else "",
        f"{format_size(used)} of {memory}" if used is not None else memory,
        f"{celsius} C" if celsius is not None else "",
        power_text(row),
    )


def power_text(row: DeviceRow) -> str:
    """Return what a device draws, of its limit where that is known; '' where it does not report it."""
    if row.power_mw is None:
        return ""
    limit = f" of {row.power_limit_mw / 1000:.0f}" if row.power_limit_mw is not None else ""
    return f"{row.power_mw / 1000:.0f}{limit} W"


def state_text(row: DeviceRow) -> str:
    """Return what a device does, in words."""
    text = row.state + (f": {row.reason}" if row.reason else "")
    if row.state == "held":
        holder = f"held by job {row.job}" if row.job is not None else "held by another tenant's job"
        return holder + (f"; {row.reason}" if row.reason else "")
    if row.state == "taken":
        return f"taken, {row.reason}" if row.reason else "taken"
    return text + (f"; job {row.job} is still there" if row.state == "closed" and row.job is not None else "")


@devices.command("close")
def close_device(
    node: NodeArgument,
    index: IndexArgument,
    reason: ReasonOption = "",
    evict: Annotated[bool, typer.Option(help="Ask the jobs on it to save and move.")] = False,
    json: JsonOption = False,
) -> None:
    """Close a device to new work, until it is opened by hand."""
    done = client_of().close_device(node, index, reason=reason, evict=evict)
    print_done(done, f"device {index} of {node} is closed: penstock devices open {node} {index}", as_json=json)


@devices.command("open")
def open_device(node: NodeArgument, index: IndexArgument, reason: ReasonOption = "", json: JsonOption = False) -> None:
    """Open a closed device at once. A fault that its node still reports closes it again."""
    done = client_of().open_device(node, index, reason=reason)
    print_done(done, f"device {index} of {node} is open again", as_json=json)
    if done.note and not json:
        say(done.note)
