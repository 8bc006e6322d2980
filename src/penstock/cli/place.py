"""Which server a command talks to: the options `--data` and `--server`, else the environment."""

import os
from pathlib import Path


class Place:
    """Where the server is, as the command line says it. One for the process, which runs one command."""

    data: Path | None = None
    server: str | None = None


PLACE = Place()


def named(*, data: Path | None = None, server: str | None = None) -> None:
    """Note what the command line says. Raises: UsageError for both a folder and an address."""
    PLACE.data = data or PLACE.data
    PLACE.server = server or PLACE.server
    if PLACE.data is not None and PLACE.server is not None:
        from penstock.cli.errors import UsageError

        raise UsageError("--data and --server name two servers", hint="give one of them")


def url() -> str:
    """Return the address of a server elsewhere that the command line or the environment names, or ''."""
    return PLACE.server or ("" if PLACE.data is not None else os.environ.get("PENSTOCK_URL", ""))


def home() -> Path:
    """Return the data folder: the option, else PENSTOCK_HOME, else the user's own."""
    named_here = PLACE.data or os.environ.get("PENSTOCK_HOME")
    return Path(named_here or Path.home() / ".local" / "share" / "penstock")
