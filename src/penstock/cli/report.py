"""`penstock report`: a page on the whole run."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_done
from penstock.cli.place import client_of


def report(
    out: Annotated[Path, typer.Option(help="Folder for report.html and summary.json.")] = Path("penstock-report"),
    json: JsonOption = False,
) -> None:
    """Write a page on everything that happened, and summary.json."""
    from penstock.report import run as page

    client = client_of()
    built = page.build(list(client.all_events()), time.time_ns() // 1_000_000)
    out.mkdir(parents=True, exist_ok=True)
    summary = page.summary(built)
    (out / "report.html").write_text(page.render(built), encoding="utf-8")
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    print_done(summary, f"wrote {out / 'report.html'} and {out / 'summary.json'}", as_json=json)
