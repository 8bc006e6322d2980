"""The commands for a server on this machine: `up`, `down` and `certificates`."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption
from penstock.cli.storing import StoreOption
from penstock.starts import whole


def up(
    data: DataOption = None,
    cluster: Annotated[Path | None, typer.Option(help="Cluster file (YAML): pools, tenants, queues, nodes.")] = None,
    host: Annotated[str, typer.Option(help="Address that the API listens on; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the API; 0 takes a free one.")] = 0,
    tls: Annotated[bool, typer.Option("--tls", help="Serve HTTPS by a certificate of the own authority.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Serve HTTPS by this certificate (PEM, with chain).")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate (PEM).")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Another name or address that clients use.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine.")] = False,
    limits: Annotated[Path | None, typer.Option(help="Limits of requests and connections (YAML).")] = None,
    store: StoreOption = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait beside the server that leads; needs a store.")
    ] = False,
    foreground: Annotated[bool, typer.Option(help="Stay in this terminal.")] = False,
    respawn: Annotated[bool, typer.Option(help="Start agents again when they die.")] = True,
    json: JsonOption = False,
) -> None:
    """Start the server and the agents of this machine's nodes."""
    from penstock.cli import lifecycle
    from penstock.server.http.transport import checked, transport_of

    options: dict[str, object] = {
        "cluster_file": _whole(cluster),
        "limits_file": _whole(limits),
        "host": host,
        "port": port,
        "tls": tls,
        "insecure": insecure,
        "certificate": _whole(certificate),
        "key": _whole(key),
        "names": name or [],
        "respawn_agents": respawn,
    }
    checked(transport_of(options))
    lifecycle.up(data, options, store, standby=standby, foreground=foreground, as_json=json)


def _whole(path: Path | None) -> str | None:
    return str(whole(path)) if path is not None else None


def down(data: DataOption = None, json: JsonOption = False) -> None:
    """End the server and its agents; running jobs are stopped and go on when it is up again."""
    from penstock.cli import lifecycle

    lifecycle.down(data, as_json=json)


def certificates(
    data: DataOption = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the authority; both are trusted for a while.")
    ] = False,
    drop_former: Annotated[
        bool, typer.Option("--drop-former", help="Trust former authorities no more, from now on.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the certificates of a data folder: what, for whom, until when."""
    from penstock.cli import certificates as work

    work.certificates(data, rotate=rotate, drop_former=drop_former, as_json=json)
