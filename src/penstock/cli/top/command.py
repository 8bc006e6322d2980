"""`penstock top`: declared here; the screens are imported when one opens."""

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import UsageError
from penstock.cli.options import one_of
from penstock.cli.output import Console, say
from penstock.cli.place import client_of
from penstock.cli.top.looks import VIEWS, ListWanted, banner, listing

if TYPE_CHECKING:
    from penstock.client import Client

ROWS = 20
"""Rows printed where standard output is no terminal."""


def top(
    view: Annotated[
        str,
        typer.Argument(metavar="[VIEW]", help="queue, running, nodes, devices, mine or alerts."),
    ] = "queue",
    filter: Annotated[  # noqa: A002
        str, typer.Option("--filter", "-f", help="Only what matches, as typed after / in the screen.")
    ] = "",
) -> None:
    """Show queue, nodes, devices and jobs on a full screen. Without a terminal it prints one view and ends."""
    wanted = ListWanted(one_of("view", view, VIEWS), filter)
    with closing(client_of()) as client:
        user = client.me().user  # a server that is away or refuses is an error before the screen opens
        if not (sys.stdout.isatty() and sys.stdin.isatty()):
            _print(client, wanted, user)
            return
    _open(wanted)


def _print(client: "Client", wanted: ListWanted, user: str) -> None:
    """Print the first rows of a view."""
    totals, alerts = banner(client.cluster(), client.alerts())
    shown = listing(client, wanted, user, time.time_ns() // 1_000_000, limit=ROWS)
    say(totals, alerts, "")
    if shown.rows:
        Console().print(shown.table())
    say(shown.note)


def _open(wanted: ListWanted) -> None:
    """Open the screen and return when it is left. Raises: UsageError without Textual."""
    try:
        from penstock.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        hint = "pip install 'penstock[top]'; without it: penstock ps --watch"
        raise UsageError("penstock top needs Textual, which is not installed", hint=hint) from error
    TopApp(client_of, wanted).run()
