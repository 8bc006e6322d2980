"""`penstock usage`: held and used resources by holder; with `--waste`, held but unused resources, and their costs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.api.usage import UsageList, WasteList
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, say, table
from penstock.cli.place import client_of
from penstock.cli.progress import waiting
from penstock.core.model.answers import UsageRow, WasteRow
from penstock.core.model.quantities import KWH_MJ, money

HOUR_MILLI_MS = 3_600_000 * 1000
GIB_HOUR = 2**30 * 3_600_000


def usage(
    by: Annotated[str, typer.Option(help="tenant, user, queue, pool, job, node; several with commas.")] = "tenant",
    since: Annotated[str, typer.Option(help="Begin: how long ago (30d), or a time (2026-11-01T00:00+01:00).")] = "",
    until: Annotated[str, typer.Option(help="End; by default now.")] = "",
    waste: Annotated[
        bool, typer.Option("--waste", help="Show idle time with its causes and cost; by default of this month.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="File to write: .csv or .parquet.")] = None,
    json: JsonOption = False,
) -> None:
    """Show device, CPU and memory time, and how much was used."""
    client = client_of()
    query = {name: text for name, text in (("since", since), ("until", until)) if text}
    if out is not None:
        kind = out.suffix.lstrip(".").lower()
        fetch = client.waste_table if waste else client.usage_table
        with waiting("the server adds up", quiet=json):
            out.write_bytes(fetch(kind, by, **query))
        say(f"written to {out}")
        return
    with waiting("the server adds up", quiet=json):
        found = client.waste(by, **query) if waste else client.usage(by, **query)
    if json:
        print_json(found)
        return
    names = [name.strip() for name in by.split(",")]
    if isinstance(found, UsageList):
        _show(names, _USAGE_COLUMNS, [(row, _usage_cells(row)) for row in found.rows], UsageRow)
        return
    columns = _WASTE_COLUMNS + (("idle cost", "not known cost", "cost") if found.priced else ())
    rows = sorted(found.rows, key=lambda row: (-row.idle_cost, -row.idle_milli_ms))
    _show(names, columns, [(row, _waste_cells(row, found)) for row in rows], WasteRow)
    if rows:
        say("all times in device-hours" + (f"; amounts in {found.currency}" if found.priced else ""))


_USAGE_COLUMNS = ("device-hours", "measured", "used", "idle", "CPU-hours", "GiB-hours", "kWh", "jobs", "attempts")
_WASTE_COLUMNS = ("device-hours", "used", "waits for data", "hangs", "unused", "not known")


def _show(names: list[str], columns: tuple[str, ...], rows: list[tuple[Any, tuple[str, ...]]], kind: type) -> None:
    lines = [(*(str(getattr(row, name)) for name in names), *cells) for row, cells in rows]
    drop, items = tuple(reversed(columns[1:])), [row for row, _ in rows]
    Console().print(
        table((*names, *columns), lines, right=columns, drop=drop, of=items, kind=kind, key=names[0], empty="no use")
    )


def _usage_cells(row: UsageRow) -> tuple[str, ...]:
    measured, used = row.measured_milli_ms / HOUR_MILLI_MS, row.used_milli_ms / HOUR_MILLI_MS
    idle = f"{measured - used:,.2f} ({100 * (measured - used) / measured:.0f} %)" if measured else ""
    amounts = (f"{row.device_milli_ms / HOUR_MILLI_MS:,.2f}", f"{measured:,.2f}", f"{used:,.2f}", idle)
    energy = f"{row.energy_mj / KWH_MJ:,.3f}" if row.powered_milli_ms else ""
    rest = (f"{row.cpu_milli_ms / HOUR_MILLI_MS:,.2f}", f"{row.memory_byte_ms / GIB_HOUR:,.2f}", energy)
    return (*amounts, *rest, str(row.jobs), str(row.attempts))


def _waste_cells(row: WasteRow, found: WasteList) -> tuple[str, ...]:
    idle = (row.data_milli_ms, row.hang_milli_ms, row.unused_milli_ms)
    times = (row.device_milli_ms, row.used_milli_ms, *idle, row.unknown_milli_ms)
    amounts = (row.idle_cost, row.unknown_cost, row.cost) if found.priced else ()
    return (*(f"{time / HOUR_MILLI_MS:,.2f}" for time in times), *(money(one, found.digits) for one in amounts))
