"""`penstock snapshots`: the folders that submits have sent, as the server keeps them."""

from typing import Annotated

import typer

from penstock.api.snapshots import SnapshotView
from penstock.cli.errors import NotThere
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_done, print_json, table
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput
from penstock.core.model.quantities import format_size, format_time, listed

SHORT = 12
"""Digits of a name that are shown."""
LEAST = 6
"""Digits that stand for a name."""
NAMED = 4
"""Names that an error says."""
snapshots = typer.Typer(help="List and remove the folders that your submits have sent.")


@snapshots.command("list")
def list_snapshots(json: JsonOption = False) -> None:
    """List the snapshots of folders that the server keeps for you, those used last first."""
    found = sorted(client_of().snapshots(), key=lambda one: (-one.used_ms, one.name))
    if json:
        print_json({"snapshots": found})
        return
    rows = [
        (
            one.name[:SHORT],
            f"{one.files:,}" if one.files else "-",
            format_size(one.bytes) if one.files else "-",
            format_time(one.used_ms // 1000 * 1000),
            f"{one.jobs:,}",
        )
        for one in found
    ]
    columns, none = ("snapshot", "files", "size", "last used", "needed by jobs"), "none: penstock submit --snapshot ."
    right = ("files", "size", "needed by jobs")
    Console().print(table(columns, rows, right=right, of=found, kind=SnapshotView, key="name", empty=none))


@snapshots.command("remove")
def remove_snapshots(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names, or their first digits.")],
    json: JsonOption = False,
) -> None:
    """Remove snapshots that no live job and no schedule starts in."""
    client = client_of()
    whole = list(dict.fromkeys(_whole(name, client.snapshots(name)) for name in names))
    for name in whole:
        client.remove_snapshot(name)
    print_done({"removed": whole}, f"removed: {listed([name[:SHORT] for name in whole], 20)}", as_json=json)


def _whole(name: str, found: list[SnapshotView]) -> str:
    """Return the name that begins so. Raises: NotThere; InvalidInput where several do, or too little is given."""
    if len(name) < LEAST:
        raise InvalidInput(f"'{name}' is too short for a snapshot's name", hint=f"give {LEAST} digits or more")
    matching = [one.name for one in found if one.name.startswith(name)]
    if len(matching) > 1:
        raise InvalidInput(f"'{name[:SHORT]}' begins {len(matching)} names: {listed(matching, NAMED)}")
    if not matching:
        raise NotThere(f"there is no snapshot '{name[:64]}' of yours", hint="penstock snapshots list")
    return matching[0]
