"""Actions on many jobs at once: the selection, and what became of it."""

from typing import Any

import msgspec

from penstock.core.model.actions import JobAction

IDS_MAX = 2_000
"""Entries of `ids` in one selection."""
NUMBERS_MAX = 100_000
"""Numbers that the ranges of one selection may span together."""
ACTION_JOBS_MAX = 100_000
"""Jobs that one request may act on."""
LISTED = 20
"""Jobs that an answer lists of each kind."""


class JobSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which live jobs; all given conditions must hold. With neither ids nor a condition, `all` is needed."""

    ids: list[str] = []
    """Numbers (`3`), ranges (`5-9`, its live jobs), arrays by their first job (`12[]`), members (`12[0-3,7]`)."""
    all: bool = False
    states: list[str] = []
    name: str = ""
    """A name, or a pattern with `*`, `?` and `[...]`."""
    user: str = ""
    tenant: str = ""
    queue: str = ""
    labels: dict[str, str] = {}


class ActionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action on all jobs of a selection."""

    action: JobAction
    select: JobSelection = JobSelection()
    set: dict[str, Any] = {}
    """For `edit`: the new values, named as in a job file."""
    dry_run: bool = False
    """Only count."""
    expect: int | None = None
    """Refuse when another number of jobs matches by now."""


class Unchanged(msgspec.Struct, frozen=True):
    """Jobs that an action left as they were, for one reason."""

    code: str
    """`over`, `no_right`, `not_found`, `cancel_requested`, `not_running`, ..."""
    text: str
    count: int
    jobs: list[int]
    """The first of them."""


class ActionAnswer(msgspec.Struct, frozen=True):
    """What became of a selection: `matched` = `changed` + the counts in `unchanged`."""

    matched: int
    changed: int
    """With `dry_run`: how many would be changed."""
    unchanged: list[Unchanged]
    jobs: list[int]
    """The first jobs that are changed."""
