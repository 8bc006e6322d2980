"""Which server a command talks to: the options `--data` and `--server`, else the environment; and its client."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import UsageError
from penstock.core.model.errors import InvalidInput
from penstock.starts import whole

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.engines.processes.paths import DataFolder


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
        raise UsageError("--data and --server name two servers", hint="give one of them")


def url() -> str:
    """Return the address of a server elsewhere that the command line or the environment names, or ''."""
    return PLACE.server or ("" if PLACE.data is not None else os.environ.get("PENSTOCK_URL", ""))


def home() -> Path:
    """Return the data folder: the option, else PENSTOCK_HOME, else the user's own."""
    named_here = PLACE.data or os.environ.get("PENSTOCK_HOME")
    return Path(named_here or Path.home() / ".local" / "share" / "penstock")


def data_folder() -> "DataFolder":
    """Return the data folder, at an absolute path: that of `--data`, else PENSTOCK_HOME, else the user's own.

    Raises: NotPrivate when another user could have filled it: it decides where tokens are sent, and which programs run.
    """
    from penstock.engines.processes.paths import DataFolder
    from penstock.engines.processes.trust import check_data

    folder = DataFolder(whole(home()))
    check_data(folder)
    return folder


def folder_here() -> "DataFolder":
    """Return the data folder for a command that works on it, and talks to no server elsewhere.

    PENSTOCK_URL does not count for such a command: a note on standard error names the folder.

    Raises: UsageError when the command line names a server elsewhere; NotPrivate.
    """
    if PLACE.server is not None:
        raise UsageError(
            "this command works on a data folder of this machine, not on the server of --server",
            hint="--data DIR, without --server",
        )
    folder = data_folder()
    if remote():
        from penstock.cli.output import say

        note = f"PENSTOCK_URL is for other commands: this one works on the data folder {folder.root}"
        say(f"penstock: {note}", err=True)
    return folder


def client_of(token: str | None = None) -> "Client":
    """Return a client of the running server, with a token, by default that in PENSTOCK_TOKEN if it is set.

    `--server` or PENSTOCK_URL names a server elsewhere, unless `--data` is given; PENSTOCK_CA the authorities to trust.

    Raises: ServerNotRunning, InvalidInput, NotTrusted.
    """
    from penstock.client import Client

    token = os.environ.get("PENSTOCK_TOKEN") if token is None else token
    if not remote():
        return Client.of(data_folder().root, token=token)
    if not token:
        said = "--server names a server elsewhere" if PLACE.server else "PENSTOCK_URL is set"
        raise InvalidInput(f"{said}, but there is no token", hint="set PENSTOCK_TOKEN")
    return Client.connect(url(), token=token, patience_s=0)


def remote() -> bool:
    """Return whether the command line or the environment names a server elsewhere."""
    return bool(url())
