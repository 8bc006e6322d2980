"""Certificates of a data folder, shown and rotated; a running server reloads changed ones."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.place import folder_here
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import NodeName

if TYPE_CHECKING:
    from penstock.security.keeper import CertificateKeeper, Shown


def certificates(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the authority; the former stays trusted for a while.")
    ] = False,
    drop_former: Annotated[bool, typer.Option("--drop-former", help="Stop trusting former authorities now.")] = False,
    json: JsonOption = False,
) -> None:
    """Show or rotate the certificates of a data folder."""
    from penstock.engines.local.launch import known_nodes
    from penstock.security.keeper import CertificateKeeper

    folder = folder_here()
    if not folder.root.is_dir():
        raise InvalidInput(f"there is no data folder {folder.root}", hint="penstock up makes it, with certificates")
    keeper = CertificateKeeper(folder.certificates)
    now = dt.datetime.now(dt.UTC)
    if rotate:
        keeper.rotate(now)
    dropped = keeper.drop_former(now) if drop_former else 0
    shown = keeper.shown({NodeName(name): folder.node_certificate(name) for name in known_nodes(folder)})
    if json:
        print_json({"trusted": str(keeper.trusted_file), "certificates": shown})
        return
    rows = [_row(one) for one in shown]
    columns, drop = ("what", "name", "also for", "until", "renewed from"), ("also for", "renewed from")
    Console().print(table(columns, rows, drop=drop, of=shown, key="subject"))
    if rotate or dropped:
        say(*_said(keeper, shown, rotated=rotate, dropped=dropped))


def _said(keeper: "CertificateKeeper", shown: "list[Shown]", *, rotated: bool, dropped: int) -> list[str]:
    """Return lines with the changes made, and the steps left to do."""
    lines = ["a new authority signs from now on"] if rotated else []
    lines += [f"{dropped} former authorities are trusted no more"] if dropped else []
    former = [one for one in shown if one.kind == "former authority"]
    by = f" by {_day(former[0].not_after_ms)}" if former else ""
    lines.append(f"clients elsewhere need the new {keeper.trusted_file}{by}")
    return lines


def _row(one: "Shown") -> list[str]:
    further = [name for name in one.names if name != one.subject]
    renewed = _day(one.renewed_from_ms) if one.renewed_from_ms else "-"
    return [one.kind, one.subject, ", ".join(further), _day(one.not_after_ms), renewed]


def _day(unix_ms: int) -> str:
    return dt.datetime.fromtimestamp(unix_ms / 1000, dt.UTC).strftime("%Y-%m-%d")
