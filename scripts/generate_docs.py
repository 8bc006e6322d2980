"""Writes the parts of docs/ that come from the code; `--check` says whether they are current."""

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from api_pages import api_pages, openapi
from command_words import command_words
from drawings import drawings
from reference_pages import errors_page, events_page, metrics_page

from penstock.cli.commands import FORMER, GROUPS, PANELS
from penstock.cli.examples import EXAMPLES
from penstock.cli.helping import sections
from penstock.cli.main import load
from penstock.cli.man import exit_codes
from penstock.core.config.cluster import cluster_schema
from penstock.core.config.fields import DURATION, SIZE, TIME, Json
from penstock.core.config.job import job_schema, request_schema
from penstock.core.explain import reasons
from penstock.core.model.cluster import Settings
from penstock.core.state.tables import TABLES, mermaid
from penstock.server.http.budgets import budgets_table
from penstock.testing.openapi import incompatible

DOCS = Path("docs")
TEXTS = Path("src/penstock/core/config/setting_texts.py")
WORDS = Path("src/penstock/cli/words.json")
REPEATED = ("alternatives", "groups", "later")
"""Lists whose entries have fields that stand above."""
NO_LIMIT = 2**53
_WORDS = {
    "string": "text",
    "boolean": "`true`, `false`",
    ("string", "number"): "number",
    ("string", "integer"): "text or whole number",
    ("string", "number", "boolean"): "text",
}
_KINDS = (
    "A *duration* has a unit: `500ms`, `90s`, `15m`, `2h`, `1h30m`, `2d`; a plain number is seconds. A *size* has one,",
    "too: `512MiB`, `40GiB` (powers of 1024), `64GB` (powers of 1000); a plain number is bytes. A *time* has its",
    "offset from UTC: `2027-01-31T18:00+01:00`; a plain number is unix seconds. A *number* has at most three decimals.",
)
_EDITORS = "Its JSON Schema: [schema/{of}.json](schema/{of}.json), `penstock schema {of}`; [in an editor](editors.md)."


_FORMS = (
    "## Forms of output",
    "",
    "Every command that prints a list or a thing takes these; `--columns`, `--sort` and `--watch` are of lists.",
    "",
    "| | |",
    "|---|---|",
    "| `-o wide` | the table with all columns, of which a narrow terminal else shows the first |",
    "| `-o json`, `--json` | the whole answer, as the API gives it |",
    "| `-o yaml` | the same as YAML |",
    "| `-o csv` | a heading and a line for each item, with all fields; what is nested is JSON, and `=1+1` is `'=1+1` |",
    "| `-o name` | what one types for each: the number of a job (`12[]` of an array), the name of a node |",
    "| `--format '{id} {name:<20}'` | a line for each; `\\t`, `\\n`; `{array_counts.waiting}` for what is in a field |",
    "| `--columns job,state,waited` | only these, in this order; also with `-o csv` |",
    "| `--sort -waited` | numbers, durations and sizes by their amount; with `-` the greatest first |",
    "| `--watch` | drawn anew every second |",
    "",
    "Names are those of fields of the JSON and of columns, the latter in small letters, with `_` for a space.",
    "Where both have one name, tables show the column, and all else uses the field; times of fields are in ms.",
    "",
    "    penstock cancel $(penstock ps --mine --state waiting -o name) --yes",
    "    penstock ps -a --columns id,name,exit_code -o csv",
    "    penstock nodes --sort -memory",
    "",
)


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
        "From `core/config/job_fields.py` by `make docs`. What a field is by default stands in parentheses;",
        "`defaults` beside a list of `jobs` may have the same fields.",
        _EDITORS.format(of="job"),
        "",
        *_KINDS,
        "",
        "| field | type | meaning |",
        "|---|---|---|",
    ]
    rows += _rows(job_schema(), ("field", "type", "meaning"))
    return "\n".join(rows) + "\n"


def cluster_fields() -> str:
    parts = [
        "# Fields of a cluster file",
        "",
        "From the tables in `core/config` by `make docs`. An entry of a list has a name, which may stand alone:",
        "`- vision` is `- {name: vision}`.",
        _EDITORS.format(of="cluster"),
        "",
        *_KINDS,
        "",
        "How the parts work together: [jobs.md](jobs.md#cluster-files), [policies.md](policies.md),",
        "[tenants.md](tenants.md), [billing.md](billing.md), [notifications.md](notifications.md), [oidc.md](oidc.md).",
    ]
    sections = cluster_schema()["properties"]
    single = {name: sections.pop(name) for name in ("root_policy", "candidates")}
    last = {name: sections.pop(name) for name in ("billing", "notifications", "oidc", "settings")}
    for name, section in {**sections, **last, "at the top": {"properties": single}}.items():
        title, about = (name, "") if " " in name else (f"`{name}`", section["description"].capitalize() + ".")
        head = [*([about, ""] if about else []), "| field | type | default | meaning |", "|---|---|---|---|"]
        fields = section if "properties" in section else section["items"]["anyOf"][1]
        parts += ["", f"## {title}", "", *head, *_rows(fields, ("field", "type", "default", "meaning"))]
    return "\n".join(parts) + "\n"


def _rows(schema: Json, columns: Sequence[str], above: str = "") -> list[str]:
    """Return a row for each field, those of inner mappings below it; `REPEATED` have the fields of a table above."""
    rows = []
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if field.get("deprecated"):
            continue
        default = "" if "default" not in field else f"`{_plain(field['default'])}`"
        cells = {
            "field": f"`{above}{name}`" + (" (required)" if name in required and name != "name" else ""),
            "type": _kind(field),
            "default": default,
            "meaning": field["description"],
        }
        rows.append("| " + " | ".join(cells[column].replace("|", "\\|") for column in columns) + " |")
        if name not in REPEATED:
            rows += [row for inner in _mappings(field) for row in _rows(inner, columns, f"{above}{name}.")]
    return rows


def _mappings(schema: Json) -> list[Json]:
    """Return the mappings with fields of their own that a value, or an entry of it, may be, each once."""
    if "properties" in schema:
        return [schema]
    inner = [*schema.get("anyOf", ()), *(schema[key] for key in ("items", "additionalProperties") if schema.get(key))]
    found: list[Json] = []
    for mapping in (made for one in inner for made in _mappings(one)):
        if mapping not in found:
            found.append(mapping)
    return found


def _kind(schema: Json) -> str:
    """Return what values of a schema are, for people."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    for name, known in {"duration": DURATION, "size": SIZE, "time": TIME}.items():
        if schema.get("examples") == known["examples"]:
            return name
    kind = schema["type"]
    if kind in ("integer", "number"):
        high = f" to {schema['maximum']:,}" if schema.get("maximum", NO_LIMIT) < NO_LIMIT else ""
        return {"integer": "whole number"}.get(kind, kind) + (f", {schema['minimum']:,}{high}" if high else "")
    if kind == "array":
        return f"list of: {_kind(schema['items'])}"
    if kind == "object":
        return "mapping"
    if schema.get("pattern", "").startswith("^ext:"):
        return "`ext:NAME`"
    if schema.get("examples"):
        return f"such as `{schema['examples'][0]}`"
    return _WORDS[kind if isinstance(kind, str) else tuple(kind)]


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_texts() -> str:
    """Return a module with the text below each setting of the model, for schemas: the core cannot read its source."""
    (body,) = (node for node in ast.parse(inspect.getsource(Settings)).body if isinstance(node, ast.ClassDef))
    lines = ['"""What each setting says: the texts below the attributes of `Settings`, copied by `make docs`."""', ""]
    lines.append("SETTING_TEXTS = {")
    for attribute, text in pairwise(body.body):
        if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            said = " ".join(str(text.value.value).split())
            lines.append(f'    "{ast.unparse(attribute.target)}": {json.dumps(said, ensure_ascii=False)},')
    return "\n".join(["# ruff: noqa: E501", *lines, "}"]) + "\n"


def command_line() -> str:
    """Return the reference of the command line: the program's own help, panel by panel."""
    parts = [
        "# Command line",
        "",
        "From the program's own help by `make docs`. `--data DIR` and `--server URL` say which server is meant, before",
        "or after the command; without them it is the one on this machine, or that of `PENSTOCK_URL` (unless empty).",
        "`up`, `down`, `store` and `certificates` work on a data folder of this machine (`--data`, `PENSTOCK_HOME`):",
        "they refuse `--server`, and where `PENSTOCK_URL` is set they note which folder they use.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in exit_codes().items()),
        "",
        "`run`, `attach` and `exec` end with the program's own code. With `--json` an error is JSON on standard error.",
        "",
        "`penstock help --man ~/.local/share/man` writes a manual page for each command: `man penstock-ps`.",
        "`penstock completion install` makes bash, zsh or fish complete commands, options, jobs and names.",
        "",
        *_FORMS,
    ]
    for title, panel in PANELS.items():
        parts += [f"## {title}", ""]
        for name, entry in panel.items():
            if not entry.hidden:
                parts += _command(load(name), f"penstock {name}")
    parts += ["## Former names", "", "They work, and name the new one.", ""]
    parts += [f"- `{old}`: `{new}`" for old, new in FORMER.items()]
    return "\n".join(parts) + "\n"


def _command(command: Any, path: str) -> list[str]:
    """Return the help of a command and of its members, as Markdown."""
    members = getattr(command, "commands", None)
    if members is not None:
        loaded = {
            name: load(f"{command.name} {name}") if command.name in GROUPS else one for name, one in members.items()
        }
        return [line for name, member in loaded.items() for line in _command(member, f"{path} {name}")]
    context = command.make_context(path, [], resilient_parsing=True)
    context.info_name = path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"### {path}", "", " ".join(command.help.split()), "", f"    {usage}", ""]
    rows = [row for rows in sections(command, context).values() for row in rows if "--help" not in row[0]]
    if rows:
        lines += ["| | |", "|---|---|", *(f"| `{_cell(name)}` | {_cell(about)} |" for name, about in rows), ""]
    examples = EXAMPLES.get(path.removeprefix("penstock "), ())
    return [*lines, *(f"    {line}" for line in examples), *([""] if examples else [])]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def architecture() -> str:
    text = (DOCS / "architecture.md").read_text()
    between = re.compile(r"(<!-- drawings[^>]*-->\n).*(<!-- end -->)", re.DOTALL)
    return between.sub(lambda found: f"{found[1]}\n{drawings()}\n{found[2]}", text)


def _json(schema: Json) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def frozen_api() -> str:
    """Return the document of `/api/v1`, which may only grow: `--break-api` writes it whatever clients would miss."""
    path, document = DOCS / "schema" / "openapi-v1.json", openapi()
    broken = incompatible(json.loads(path.read_bytes()), document) if path.exists() else []
    if broken and "--break-api" not in sys.argv:
        hint = "add, do not change; --break-api, where no release has it"
        raise SystemExit(f"clients of /api/v1 would break ({hint}):\n" + "\n".join(broken))
    return _json(document)


def main() -> None:
    made = {
        "architecture.md": architecture(),
        "lifecycles.md": lifecycles(),
        "job-fields.md": job_fields(),
        "cluster-fields.md": cluster_fields(),
        "cli.md": command_line(),
        "reasons.md": reasons.table(),
        "api-budgets.md": budgets_table(),
        **api_pages(),
        "errors.md": errors_page(),
        "events.md": events_page(),
        "metrics.md": metrics_page(),
        "schema/job.json": _json(request_schema()),
        "schema/cluster.json": _json(cluster_schema()),
        "schema/openapi-v1.json": frozen_api(),
    }
    files = {DOCS / name: text for name, text in made.items()} | {TEXTS: setting_texts(), WORDS: command_words()}
    stale = [str(path) for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print("docs: " + (f"not current: {', '.join(stale)} (make docs)" if stale else "ok"))
        sys.exit(bool(stale))
    for name in stale:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(files[Path(name)])
    print(f"wrote {', '.join(stale) or 'nothing: all current'}", flush=True)
    if str(TEXTS) in stale:  # the tables above were made with the former texts
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - this script itself


if __name__ == "__main__":
    main()
