"""The report of an import or export, as a table: what became of each key."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.output import Console, say, table

if TYPE_CHECKING:
    from penstock.migrate.report import MigrationEntry, Outcome

OUTCOMES: "tuple[Outcome, ...]" = ("mapped", "approximated", "not mapped")
SHOWN_MAX = 40
"""Entries that the terminal shows."""


def print_outcomes(report: "Sequence[MigrationEntry]", rest: str, *, err: bool = False) -> None:
    """Print how many keys were mapped, and what became of the others.

    Args:
        rest: where those are that are too many to show, such as `in report.json`.
        err: to standard error.
    """
    counts = Counter(entry.outcome for entry in report)
    say(", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES), err=err)
    weaker = [entry for entry in report if entry.outcome != "mapped"]
    rows = [(_place(e), e.key, e.value, e.outcome, e.note) for e in weaker[:SHOWN_MAX]]
    if rows:
        columns = ("where", "key", "value", "", "what became of it")
        Console(err=err).print(table(columns, rows, drop=("value",), text=("value", "what became of it")))
    if len(weaker) > SHOWN_MAX:
        say(f"and {len(weaker) - SHOWN_MAX:,} more {rest}", err=err)


def _place(entry: "MigrationEntry") -> str:
    name = Path(entry.file).name
    return f"{name}:{entry.line}" if entry.line else name
