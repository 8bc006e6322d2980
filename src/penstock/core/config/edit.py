"""Reads the new values of a live job: the fields of a job file that an edit may name."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.core.config.fields import read_fields
from penstock.core.config.job_fields import FIELDS
from penstock.core.config.reader import Reader
from penstock.core.model.actions import JobChange
from penstock.core.model.errors import Problem

EDITABLE = {
    name: FIELDS[name] for name in ("name", "queue", "priority", "preemptible", "time_limit", "max_wait", "labels")
}
CHANGE_MAX_BYTES = 2_048
"""Each job that is edited has the change in the log."""


def parse_change(raw: Mapping[str, Any], where: str = "set") -> tuple[JobChange, list[Problem]]:
    """Return the change that `raw` asks for, and what is wrong with it; a label that is null is removed."""
    problems: list[Problem] = []
    reader = Reader(where, problems)
    given = dict(raw)
    removed: tuple[str, ...] = ()
    if isinstance(labels := given.get("labels"), Mapping):
        removed = tuple(sorted(name for name, text in labels.items() if text is None))
        given["labels"] = {name: text for name, text in labels.items() if text is not None}
    values = read_fields(reader, given, EDITABLE)
    change = JobChange(
        name=values.get("name") or None,
        queue=values.get("queue"),
        priority=values.get("priority"),
        preemptible=values.get("preemptible"),
        time_limit_ms=values.get("time_limit"),
        max_wait_ms=values.get("max_wait"),
        labels=values.get("labels", ()),
        labels_removed=removed,
    )
    if not problems and change == JobChange():
        known = ", ".join(EDITABLE)
        problems.append(Problem("missing_field", where, "an edit changes nothing", "", f"it may set {known}"))
    size = len(msgspec.json.encode(change)) if not problems else 0
    if size > CHANGE_MAX_BYTES:
        text = f"{where} takes {size} bytes, an edit may take {CHANGE_MAX_BYTES}"
        problems.append(Problem("too_large", where, text, "", "set fewer or shorter labels"))
    return change, problems
