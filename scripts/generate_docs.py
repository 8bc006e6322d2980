"""Writes the parts of docs/ that come from the code; `--check` says whether they are current."""

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from drawings import drawings
from msgspec.structs import replace

from penstock.cli.main import COMMANDS, load
from penstock.cli.output import EXIT_CODES
from penstock.core.config.billing import BILLING
from penstock.core.config.cluster import entry_sections, single_fields
from penstock.core.config.fields import Field
from penstock.core.config.job import FIELDS
from penstock.core.config.settings import SETTINGS
from penstock.core.explain import reasons
from penstock.core.model.cluster import Settings
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


def cluster_fields() -> str:
    parts = [
        "# Fields of a cluster file",
        "",
        "From the tables in `core/config` by `make docs`. An entry of a list has a name, which may stand alone:",
        "`- vision` is `- {name: vision}`. `penstock schema cluster` prints the JSON Schema.",
    ]
    single = single_fields({}).fields
    settings = _explained(Settings, SETTINGS.shown)
    named = {name: (section.shown, section.defaults) for name, section in entry_sections({}, 2).items()}
    named |= {"billing": (BILLING.shown, BILLING.defaults), "settings": (settings, SETTINGS.defaults)}
    named["at the top"] = ({name: single[name] for name in ("root_policy", "candidates")}, single_fields({}).defaults)
    for name, (fields, defaults) in named.items():
        title = name if " " in name else f"`{name}`"
        parts += ["", f"## {title}", "", "| field | default | meaning |", "|---|---|---|", *_rows("", fields, defaults)]
    return "\n".join(parts) + "\n"


def _rows(above: str, fields: Mapping[str, Field], defaults: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, field in fields.items():
        words = ": " + ", ".join(f"`{word}`" for word in field.schema["enum"]) if "enum" in field.schema else ""
        default = defaults.get(field.at or name)
        shown = "" if default in (None, "", (), {}) or field.fields else f"`{_plain(field.write(default))}`"
        rows.append(f"| `{above}{name}` | {shown} | {field.about}{words} |")
        rows += _rows(f"{above}{name}.", field.fields, defaults if field.grouped else {})
    return rows


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explained(struct: type, fields: Mapping[str, Field]) -> dict[str, Field]:
    """Return fields with what the text below each attribute says."""
    (body,) = (node for node in ast.parse(inspect.getsource(struct)).body if isinstance(node, ast.ClassDef))
    texts = {}
    for attribute, text in pairwise(body.body):
        if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(attribute.target)] = " ".join(str(text.value.value).split())
    return {name: replace(field, about=texts.get(field.at or name, "")) for name, field in fields.items()}


def command_line() -> str:
    parts = ["# Command line", "", "From the program's own help by `make docs`. Every listing takes `--json`.", ""]
    parts += [
        "Exit codes: 0 done; "
        + "; ".join(f"{code} {name}" for name, code in EXIT_CODES.items())
        + "; 1 any other error; `run` ends with the job's own.",
        "",
    ]
    parts += ["| command | what it does |", "|---|---|"]
    for name, entry in COMMANDS.items():
        if not entry.hidden:
            parts.append(f"| `penstock {name}` | {' '.join(load(name).help.split())} |")
    return "\n".join(parts) + "\n"


def architecture() -> str:
    text = (DOCS / "architecture.md").read_text()
    between = re.compile(r"(<!-- drawings[^>]*-->\n).*(<!-- end -->)", re.DOTALL)
    return between.sub(lambda found: f"{found[1]}\n{drawings()}\n{found[2]}", text)


def main() -> None:
    made = {
        "architecture.md": architecture(),
        "lifecycles.md": lifecycles(),
        "job-fields.md": job_fields(),
        "cluster-fields.md": cluster_fields(),
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
