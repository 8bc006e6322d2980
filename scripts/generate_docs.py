"""Writes the parts of docs/ that come from the code; `--check` says whether they are current."""

import sys
from pathlib import Path

import typer.main

from penstock.cli.main import app
from penstock.cli.output import EXIT_CODES
from penstock.core.config.job import FIELDS
from penstock.core.explain import reasons
from penstock.core.state.tables import TABLES, mermaid
from penstock.server.http.budgets import budgets_table

DOCS = Path("docs")


def lifecycles() -> str:
    parts = [
        "# Lifecycles",
        "",
        "Drawn from `core/state/tables.py` by `make docs`. What a table does not list cannot",
        "happen: it would stop the process as a broken invariant.",
        "",
    ]
    for kind in TABLES:
        parts += [f"## {kind.capitalize()}", "", "```mermaid", mermaid(kind), "```", ""]
    return "\n".join(parts)


def job_fields() -> str:
    rows = [
        "# Fields of a job",
        "",
        "From `core/config/job.py` by `make docs`; `penstock schema` prints the JSON Schema.",
        "",
        "| field | what it says |",
        "|---|---|",
    ]
    rows += [f"| `{name}` | {field.about} |" for name, field in FIELDS.items()]
    return "\n".join(rows) + "\n"


def command_line() -> str:
    group = typer.main.get_command(app)
    parts = ["# Command line", "", "From the program's own help by `make docs`. Every listing takes `--json`.", ""]
    parts += [
        "Exit codes: 0 done; "
        + "; ".join(f"{code} {name}" for name, code in EXIT_CODES.items())
        + "; 1 any other error; `run` ends with the job's own.",
        "",
    ]
    parts += ["| command | what it does |", "|---|---|"]
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            parts.append(f"| `penstock {name}` | {command.help} |")
    return "\n".join(parts) + "\n"


def main() -> None:
    made = {
        "lifecycles.md": lifecycles(),
        "job-fields.md": job_fields(),
        "cli.md": command_line(),
        "reasons.md": reasons.table(),
        "api-budgets.md": budgets_table(),
    }
    stale = [name for name, text in made.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    if "--check" in sys.argv:
        print("docs: " + (f"not current: {', '.join(stale)} (make docs)" if stale else "ok"))
        sys.exit(bool(stale))
    for name in stale:
        (DOCS / name).write_text(made[name])
    print(f"wrote {', '.join(stale) or 'nothing: all current'}")


if __name__ == "__main__":
    main()
