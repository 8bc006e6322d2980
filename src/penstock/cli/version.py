"""`penstock version` and `penstock help`."""

import contextlib
import platform
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of
from penstock.core.model.errors import PenstockError


def version(json: JsonOption = False) -> None:
    """Print the versions of the program and the server."""
    server = None
    with contextlib.suppress(PenstockError):
        server = client_of().cluster().version
    if json:
        print_json({"program": __version__, "server": server, "python": platform.python_version()})
        return
    say(f"penstock {__version__} (Python {platform.python_version()})")
    say(f"server   {server}" if server else "server   none reached")


def help_(
    command: Annotated[list[str] | None, typer.Argument(help="Command, such as: submit, or: money bill.")] = None,
) -> None:
    """Show the help of a command."""
    from penstock.cli.main import app

    app([*(command or []), "--help"])
