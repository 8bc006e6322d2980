"""The commands for the log itself: `backup`, `restore` and `verify`; none of them needs a running server."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="PENSTOCK_STORE",
        help="Database that holds the log: postgresql://USER@HOST/DATABASE; sqlite: the data folder.",
    ),
]


def backup(
    file: Annotated[Path, typer.Argument(help="Archive to write; it must not exist.")],
    data: DataOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write the whole log into one archive, as it is at this moment; servers may go on meanwhile."""
    from penstock.cli import keeping

    keeping.backup(file, data, store, as_json=json)


def restore(
    file: Annotated[Path, typer.Argument(help="Archive that backup wrote.")],
    data: DataOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a log from an archive where there is none: all of it, or nothing."""
    from penstock.cli import keeping

    keeping.restore(file, data, store, as_json=json)


def verify(data: DataOption = None, store: StoreOption = None, json: JsonOption = False) -> None:
    """Fold the log from its first record and compare: sequence, snapshot, finished jobs. Ends with 1 if they differ."""
    from penstock.cli import keeping

    keeping.verify(data, store, as_json=json)
