"""`penstock node`: nodes on other machines, declared at the server and joined there."""

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.api.joined import JoinedNodeView
from penstock.cli.options import JsonOption, pairs
from penstock.cli.output import Console, print_done, print_json, say, table
from penstock.cli.place import client_of, home
from penstock.core.model.errors import InvalidInput
from penstock.core.model.quantities import format_time, parse_size_bytes

node = typer.Typer(help="Add nodes on other machines, and make this machine one.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.")]


@node.command("add")
def add_node(
    name: NameArgument,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Write the join bundle to this file.")] = None,
    pool: Annotated[str, typer.Option(help="Pool of the node.")] = "default",
    label: Annotated[list[str] | None, typer.Option(help="Label NAME=VALUE; may be repeated.")] = None,
    zone: Annotated[str, typer.Option(help="Zone of the node.")] = "",
    rack: Annotated[str, typer.Option(help="Rack of the node.")] = "",
    switch: Annotated[str, typer.Option(help="Switch of the node.")] = "",
    cpus: Annotated[float, typer.Option(help="CPUs that are used at most; 0: all.", min=0)] = 0,
    memory: Annotated[str, typer.Option(help="Memory that is used at most, such as 64GiB.")] = "",
    devices: Annotated[int | None, typer.Option(help="Devices that are used at most.", min=0, max=128)] = None,
    hours: Annotated[int, typer.Option(help="Hours within which the machine has to join.", min=1, max=720)] = 24,
    json: JsonOption = False,
) -> None:
    """Declare a node on another machine, and print the join bundle for it: a secret, for one machine.

    The same name again makes a new bundle; the machine that has joined with the former one is let in no more.
    """
    wanted: dict[str, Any] = {
        "name": name, "pool": pool, "labels": pairs("--label", label or []), "zone": zone, "rack": rack,
        "switch": switch, "cpu_milli": round(cpus * 1000), "memory_bytes": _bytes(memory), "devices": devices,
        "valid_hours": hours,
    }  # fmt: skip
    made = client_of().declare_node(wanted)
    if file is not None:
        from penstock.privatefiles import write_whole

        try:
            write_whole(file, made.bundle)
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror}") from error
    if json:
        shown = {"name": made.name, "valid_until_ms": made.valid_until_ms, "servers": made.servers}
        print_json({**shown, "file": str(file)} if file is not None else {**shown, "bundle": made.bundle})
        return
    if file is None:
        say(made.bundle.rstrip("\n"))
    place = file.name if file is not None else "FILE"
    say(f"node {name} will look for this server at {', '.join(made.servers)}", err=True)
    say(f"on its machine, until {format_time(made.valid_until_ms)}: penstock node join {place}", err=True)


def _bytes(text: str) -> int:
    try:
        return parse_size_bytes(text) if text else 0
    except ValueError as error:
        raise InvalidInput(f"--memory is '{text}', expected a size such as 64GiB") from error


@node.command("list")
def list_nodes(json: JsonOption = False) -> None:
    """List the nodes that were added on other machines, also those that have not joined yet."""
    found = client_of().joined_nodes()
    if json:
        print_json({"nodes": found})
        return
    rows = [
        (
            one.name,
            one.pool,
            one.engine or "by hand",
            one.at or "-",
            format_time(one.joined_ms) if one.joined_ms else "not yet",
            "yes" if one.connected else "no",
        )
        for one in found
    ]
    columns, none = ("node", "pool", "brought by", "where", "joined", "connected"), "none: penstock node add NAME"
    Console().print(
        table(columns, rows, drop=("brought by", "joined"), of=found, kind=JoinedNodeView, key="name", empty=none)
    )


@node.command("remove")
def remove_node(name: NameArgument, json: JsonOption = False) -> None:
    """Let a node on another machine in no more; what runs there ends with its lease."""
    client_of().remove_node(name)
    print_done({"removed": name}, f"node {name} is let in no more; drain it first to let its jobs save", as_json=json)


@node.command("join")
def join_node(
    bundle: Annotated[str, typer.Argument(metavar="[BUNDLE]", help="File of the join bundle; -: read it.")] = "",
    cpus: Annotated[float | None, typer.Option(help="CPUs that are offered; by default all.")] = None,
    memory: Annotated[str, typer.Option(help="Memory that is offered, such as 64GiB; by default the machine's.")] = "",
    devices: Annotated[str | None, typer.Option(help="Devices that are offered, such as 0,2; by default all.")] = None,
    simulated: Annotated[str, typer.Option(help="Offer simulated devices, such as 2 or 2:SIM-40G.")] = "",
    address: Annotated[str, typer.Option(help="Address by which other nodes reach this one.")] = "",
    ports: Annotated[str, typer.Option(help="Ports for gangs, such as 21000-21199.")] = "",
    shared: Annotated[str, typer.Option(help="Folder for jobs' files, on storage that all nodes share.")] = "",
    servers: Annotated[str, typer.Option(help="Addresses of the server, HOST:PORT with commas.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait until the server has let it in.", min=0)] = 20,
    foreground: Annotated[bool, typer.Option("--foreground", help="Run the agent as this process.")] = False,
    json: JsonOption = False,
) -> None:
    """Make this machine a node of a server elsewhere, and start its agent; again without a bundle after a restart.

    The folder of the node is that of --data. It must not be that of a server.
    """
    from penstock import starts
    from penstock.joining.__main__ import begin_here, joined_within, read_bundle, wish_of
    from penstock.joining.node import join

    given = read_bundle(bundle) if bundle else None
    data = starts.whole(home())
    wish = wish_of({
        "cpus": cpus, "memory": memory, "devices": devices, "simulated": simulated, "address": address, "ports": ports,
        "shared": shared, "servers": servers,
    })  # fmt: skip
    if foreground:
        begin_here(given, data, wish)
    joined = join(given, data, wish)
    server = joined_within(joined, wait)
    text = f"this machine is node {joined.node} of the server at {server} (data in {joined.data})"
    print_done({"node": joined.node, "pid": joined.pid, "data": joined.data, "server": server}, text, as_json=json)
