"""`penstock usage`: what was held and used, by whom."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import console, plain, print_json, table

HOUR_MILLI_MS = 3_600_000 * 1000
GIB_HOUR = 2**30 * 3_600_000


def usage(
    by: Annotated[str, typer.Option(help="tenant, user, queue, pool, job, node; several with commas.")] = "tenant",
    since: Annotated[str, typer.Option(help="A time with its offset, such as 2026-11-01T00:00+01:00.")] = "",
    until: Annotated[str, typer.Option(help="The same; by default now.")] = "",
    waste: Annotated[bool, typer.Option("--waste", help="What was held and not used first.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file: .csv or .parquet.")] = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Show device, CPU and memory time from the log, and how much of it programs used."""
    client = client_of(data)
    query = {name: text for name, text in (("since", since), ("until", until)) if text}
    if out is not None:
        kind = out.suffix.lstrip(".").lower()
        out.write_bytes(client.usage_table(kind, by, **query))
        typer.echo(f"written to {out}")
        return
    found = client.usage(by, **query)
    if json:
        print_json(found)
        return
    names = [name.strip() for name in by.split(",")]
    rows = sorted(found.rows, key=lambda row: row.used_milli_ms - row.measured_milli_ms) if waste else found.rows
    lines = []
    for row in rows:
        held, measured, used = (
            amount / HOUR_MILLI_MS for amount in (row.device_milli_ms, row.measured_milli_ms, row.used_milli_ms)
        )
        idle = f"{measured - used:,.2f} ({100 * (measured - used) / measured:.0f} %)" if measured else ""
        amounts = (f"{held:,.2f}", f"{measured:,.2f}", f"{used:,.2f}", idle, f"{row.cpu_milli_ms / HOUR_MILLI_MS:,.2f}")
        about = (plain(str(getattr(row, name))) for name in names)
        lines.append((*about, *amounts, f"{row.memory_byte_ms / GIB_HOUR:,.2f}", str(row.jobs), str(row.attempts)))
    columns = (*names, "device-hours", "measured", "used", "idle", "CPU-hours", "GiB-hours", "jobs", "attempts")
    console().print(table(columns, lines, right=columns[len(names) :]))
    if not lines:
        sys.stdout.write("nobody held anything\n")
