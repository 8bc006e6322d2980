"""Certificates of a data folder, shown and rotated; a running server takes up what was changed by itself."""

import datetime as dt
from pathlib import Path

from penstock.cli.options import data_folder
from penstock.cli.output import Console, print_json, say, table
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import NodeName
from penstock.engines.local.launch import known_nodes
from penstock.engines.local.paths import DataFolder
from penstock.security.keeper import Keeper, Shown


def certificates(data: Path | None, *, rotate: bool, drop_former: bool, as_json: bool) -> None:
    folder = DataFolder(data_folder(data))
    if not folder.root.is_dir():
        raise InvalidInput(f"there is no data folder {folder.root}", hint="penstock up makes it, with certificates")
    keeper = Keeper(folder.certificates)
    now = dt.datetime.now(dt.UTC)
    if rotate:
        keeper.rotate(now)
    dropped = keeper.drop_former(now) if drop_former else 0
    shown = keeper.shown({NodeName(name): folder.node_certificate(name) for name in known_nodes(folder)})
    if as_json:
        print_json({"trusted": str(keeper.trusted_file), "certificates": shown})
        return
    rows = [_row(one) for one in shown]
    Console().print(table(["what", "name", "also for", "until", "renewed from"], rows))
    if rotate or dropped:
        say(*_said(keeper, shown, rotated=rotate, dropped=dropped))


def _said(keeper: Keeper, shown: list[Shown], *, rotated: bool, dropped: int) -> list[str]:
    """Say what was done, and what is left to do."""
    lines = ["a new authority signs from now on"] if rotated else []
    lines += [f"{dropped} former authorities are trusted no more"] if dropped else []
    former = [one for one in shown if one.kind == "former authority"]
    by = f" by {_day(former[0].not_after_ms)}" if former else ""
    lines.append(f"clients elsewhere need the new {keeper.trusted_file}{by}")
    return lines


def _row(one: Shown) -> list[str]:
    further = [name for name in one.names if name != one.subject]
    renewed = _day(one.renewed_from_ms) if one.renewed_from_ms else "-"
    return [one.kind, one.subject, ", ".join(further), _day(one.not_after_ms), renewed]


def _day(unix_ms: int) -> str:
    return dt.datetime.fromtimestamp(unix_ms / 1000, dt.UTC).strftime("%Y-%m-%d")
