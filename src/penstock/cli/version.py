"""`penstock version` and `penstock help`."""

import contextlib
import platform
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput, PenstockError


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
    man: Annotated[
        Path | None, typer.Option("--man", metavar="DIR", help="Write all manual pages into this folder instead.")
    ] = None,
) -> None:
    """Show the help of a command."""
    if man is not None:
        _write_manual(man)
        return
    from penstock.cli.main import app

    app([*(command or []), "--help"])


def _write_manual(folder: Path) -> None:
    """Write the manual pages, and say how to read them. Raises: InvalidInput."""
    from penstock.cli.man import write_pages

    try:
        written = write_pages(folder)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be written: {error.strerror}") from error
    say(f"{len(written)} pages are in {written[0].parent}", f"read one: man -M {folder} penstock")
