"""`penstock report`: a page on the whole run."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.eventlog import log_of
from penstock.cli.options import JsonOption
from penstock.cli.output import print_done
from penstock.cli.progress import waiting


def report(
    out: Annotated[Path, typer.Option(help="Folder for report.html and summary.json.")] = Path("penstock-report"),
    json: JsonOption = False,
) -> None:
    """Write a page on everything that happened, and summary.json."""
    from penstock.report import run as page

    records = log_of(None, quiet=json)
    with waiting(f"making the page of {len(records):,} records", quiet=json):
        built = page.build(records, time.time_ns() // 1_000_000)
    out.mkdir(parents=True, exist_ok=True)
    summary = page.summary(built)
    (out / "report.html").write_text(page.render(built), encoding="utf-8")
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    print_done(summary, f"wrote {out / 'report.html'} and {out / 'summary.json'}", as_json=json)
