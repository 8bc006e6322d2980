"""`penstock explain`: why a job waits, and what would start it."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.options import JobArgument, JsonOption
from penstock.cli.output import Console, marked, print_json, styled
from penstock.cli.place import client_of
from penstock.core.model.explanation import Explanation
from penstock.core.model.quantities import format_duration
from penstock.core.model.refused import node_text
from penstock.core.model.start_text import estimate_text, latest_text

if TYPE_CHECKING:
    from rich.text import Text


def explain(job: JobArgument, json: JsonOption = False) -> None:
    """Explain why a job waits. Lists all constraints, the smallest changes that would start it now, and an estimate."""
    found = client_of().explain(job)
    if json:
        print_json(found)
        return
    out = Console()
    for line in explanation_lines(found, time.time_ns() // 1_000_000):
        out.print(line)


def explanation_lines(found: Explanation, now_ms: int) -> "list[Text]":
    """Return an explanation for people, the sentence first; empty lines divide its parts."""
    text = found.text.removeprefix(f"{found.state}: ")
    code = "" if found.code == found.state else f" ({found.code})"
    said = "" if text == found.state else f": {text}"
    lines = [marked("[bold]job {}[/] {}{}[dim]{}[/]", found.job_id, styled(found.state), said, code)]
    constraints = [marked("  {} [dim]({})[/]", one.text, one.code) for one in found.constraints]
    refused = [marked("  {}", node_text(reason, count)) for reason, count in found.refused.items()]
    elsewhere = [marked("  {}", found.elsewhere)] if found.elsewhere else []
    for part in (constraints, refused, elsewhere):
        if part:
            lines += [marked(""), *part]
    return lines + list(_ways_on(found, now_ms))


def _ways_on(found: Explanation, now_ms: int) -> "Iterator[Text]":
    """Yield the changes that would help and the estimated start."""
    if found.blockers:
        yield marked("{}", "held by / waits for: job " + ", ".join(map(str, found.blockers)))
    for edit in found.edits:
        when = "would start now" if edit.starts_now else "would make room now"
        yield marked("[green]{}:[/] {}", when, edit.text)
    if found.edits_note:
        yield marked("{}", found.edits_note)
    for line in start_lines(found, now_ms):
        yield marked("{}", line)
    if found.stop is not None and found.stop.grace_left_ms:
        yield marked("{}", f"it has {format_duration(found.stop.grace_left_ms)} left to save")


def start_lines(found: Explanation, now_ms: int) -> list[str]:
    """Return when a waiting job starts: the estimate, and the latest time or why there is none."""
    if found.state != "waiting" or found.code == "next_cycle":
        return []
    early_ms, late_ms = found.start_interval_ms or (0, 0)
    lines = [f"not estimated yet: penstock eta {found.job_id}"]
    if found.start_likely_ms:
        lines = [f"starts {estimate_text(now_ms, early_ms, found.start_likely_ms, late_ms)}"]
    if found.start_by_ms:
        lines.append(f"starts {latest_text(now_ms, found.start_by_ms)}")
    elif found.start_note:
        lines.append(f"no latest start: {found.start_note.removeprefix('unknown: ')}")
    return lines
