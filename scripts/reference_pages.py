"""Pages of docs/ about events of the log, metrics and error codes, from the tables in the code."""

from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec
from event_fields import EVENT_FIELDS
from shapes import UNITS, cell, classes, reach, shape, texts

from penstock.api import error_texts
from penstock.api.error_texts import ErrorText
from penstock.cli.output import EXIT_CODES
from penstock.control.metrics import METRICS
from penstock.core.config.job import job_schema
from penstock.core.model import events
from penstock.core.model.actions import REFUSAL_TEXT
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.progress import Gauges
from penstock.server.http.responses import STATUS

GROUPS_OF_EVENTS = {"events": "Jobs and the server", "node_events": "Nodes", "money_events": "Money"}
ACCESS = "Access"
EVENTS_HEAD = """\
# Events of the log

From `core/model/events.py` by `make docs`. The log is the only source of state: everything else is a fold over these.
`penstock events --json`, `GET /api/v1/events` and `GET /api/v1/events/stream` give records of this form, those that the
caller may see:

    {"seq": 17, "time_ms": 1798761600000, "event": {"type": "JobHeld", "job_id": 3, "by": "ann"}}

`seq` counts from 1 without gaps, `time_ms` is unix time and never goes back. A field that has its default is left out.
A type is never changed, nor a field taken away; new fields have defaults, so old logs open for ever."""
METRICS_HEAD = """\
# Metrics

From `control/metrics.py` by `make docs`. What the server counts and measures of its own work, since its start:
`figures` of `GET /api/v1/cluster`, for callers who see the whole cluster. A counter has `count`; measured values have
their number (`count`), `sum`, `most` and `last`. A metrics sink of your own gets the same (`ports.Metrics`).

| name | kind | unit | labels | meaning |
|---|---|---|---|---|"""
GAUGES_HEAD = """
## Of running programs

What a program reports of itself ([training](training.md#what-to-report)) is kept with its job and is in the log
(`ProgressNoted`), when it has changed much, or after a while. 0: it reports none.

| gauge | unit | meaning |
|---|---|---|"""
ERRORS_HEAD = """\
# Error codes

From `api/error_texts.py` by `make docs`. An error of the API is a problem details document (RFC 9457,
`application/problem+json`) with a `code` that stays the same in all versions; `title` is for people, `hint` is the next
step. Programs go by `code`, never by the text:

    {"title": "devices is -1, expected 0 or more", "status": 422, "code": "invalid_input", "hint": "",
     "problems": [{"code": "bad_value", "field": "devices", "message": "...", "value": "-1"}]}

The command line shows the same, with `--json` as JSON on standard error, and ends with an exit code. A refused request
has done nothing. Where nothing came back at all, send it again with the same `Idempotency-Key`.

## Of answers

| code | HTTP | exit code | meaning | what to do |
|---|---|---|---|---|"""
PROBLEMS_HEAD = """
Exit code 0: done. 130: interrupted. `run` and `exec` end with the program's own code; `plan` with 10 where a job waits,
and with 11 where its start is unknown; `sizing` with 10 where no size that was tried reaches the goal.

## Of one problem

`problems` lists everything that was wrong, each with `code`, `field`, `message`, and where there is one `value` and
`hint`.

| code | meaning |
|---|---|"""
UNCHANGED_HEAD = """
## Of jobs that an action left as they are

`penstock cancel`, `hold`, `edit` and others act on a selection. What was not changed is in `unchanged`, by its code.

| code | meaning |
|---|---|
| `no_right` | belongs to another user, and the caller may not act on it |
| `not_found` | there is no such job |"""


def events_page() -> str:
    """Return the page on the events of the log."""
    kinds: Sequence[type] = get_args(events.AnyEvent)
    _, schemas = msgspec.json.schema_components([events.AnyEvent], ref_template="{name}")
    structs = classes([events.AnyEvent])
    told = {kind.__name__ for kind in kinds}
    groups: dict[str, list[type]] = {}
    for kind in kinds:
        groups.setdefault(GROUPS_OF_EVENTS.get(kind.__module__.rpartition(".")[2], ACCESS), []).append(kind)
    parts = [EVENTS_HEAD, *UNITS, ""]
    seen: dict[str, None] = {}
    for title, group in groups.items():
        parts += [f"## {title}", ""]
        for kind in group:
            parts += shape(kind.__name__, schemas, structs, EVENT_FIELDS, lambda name: _event_link(name, told))
            reach(kind.__name__, schemas, seen, {ClusterConfig.__name__})
    parts += ["## Parts of events", "", "A part may stand in several events.", ""]
    declared = {name: one["description"] for name, one in job_schema()["properties"].items() if "description" in one}
    bare = [line.split(" |")[0][2:] for line in parts if line.startswith("| `") and line.endswith("|  |")]
    if bare:
        raise SystemExit(f"docs: scripts/event_fields.py is to say what fields of events mean: {', '.join(bare)}")
    for name in seen:
        if name not in told and name != ClusterConfig.__name__:
            parts += shape(name, schemas, structs, declared, lambda name: _event_link(name, told))
    return "\n".join(parts).rstrip() + "\n"


def _event_link(name: str, told: Iterable[str]) -> str:
    if name == ClusterConfig.__name__:
        return "[the cluster file](cluster-fields.md), in the server's own form"
    return f"[{name}](#{name.lower()})"


def metrics_page() -> str:
    """Return the page on what the server measures of itself, and what programs report."""
    lines = [METRICS_HEAD]
    for name, one in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        lines.append(f"| `{name}` | {one.kind} | {one.unit} | {labels} | {one.about} |")
    _, told = texts(Gauges)
    lines.append(GAUGES_HEAD)
    for field in msgspec.structs.fields(Gauges):
        lines.append(f"| `{field.name}` | {_unit(field.name)} | {told.get(field.name) or GAUGES[field.name]} |")
    lines += ["", "Use of devices, CPUs and memory over time: [usage](billing.md#usage), [waste](billing.md#waste)."]
    return "\n".join(lines) + "\n"


GAUGES = {
    "total_steps": "how many steps the program makes in all",
    "samples_per_s_milli": "inputs that it works through",
    "communication_milli": "share of the time that it spends exchanging data between ranks",
}
"""Gauges whose names are text enough in the code."""


def _unit(name: str) -> str:
    units = {"_per_s_milli": "thousandths, per second", "_ms": "ms", "_milli": "thousandths", "_bytes": "bytes"}
    return next((unit for end, unit in units.items() if name.endswith(end)), "")


def errors_page() -> str:
    """Return the page on error codes and exit codes."""
    unknown = sorted({*STATUS} - {*error_texts.ANSWERS})
    if unknown:
        raise SystemExit(f"docs: what {', '.join(unknown)} means is to be said in api/error_texts.py")
    lines = [ERRORS_HEAD]
    lines += [
        f"| `{code}` | {STATUS.get(code, 500)}{_program(code, text)[len(f'| `{code}`') :]}"
        for code, text in error_texts.ANSWERS.items()
    ]
    lines += ["", "## Of the command line", "", "| code | exit code | meaning | what to do |", "|---|---|---|---|"]
    lines += [_program(code, text) for code, text in error_texts.PROGRAM.items()]
    lines.append(PROBLEMS_HEAD)
    lines += [f"| `{code}` | {cell(text)} |" for code, text in sorted(error_texts.PROBLEMS.items())]
    lines += [
        UNCHANGED_HEAD,
        *(f"| `{code}` | {cell(one)} |" for code, (one, _) in REFUSAL_TEXT.items()),
    ]
    return "\n".join(lines) + "\n"


def _program(code: str, text: ErrorText) -> str:
    return f"| `{code}` | {EXIT_CODES.get(code, 1)} | {cell(text.meaning)} | {cell(text.next_step)} |"
