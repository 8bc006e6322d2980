"""What an explanation consists of, as values that go over the API as they are."""

from typing import Literal

import msgspec

from penstock.core.model.ids import JobId

EditKind = Literal["request", "cluster"]
EditValue = bool | int | float | str | tuple[str, ...] | None


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that keeps a job from starting. `code` is stable (`reasons.py`); `text` is for people."""

    code: str
    text: str
    distance: int = 0
    """How much is missing, in `unit`; 0 where it cannot be counted."""
    unit: str = ""
    """`device_milli`, `cpu_milli`, `memory_bytes`, `storage_bytes`, `bandwidth_bps`, `jobs`, `replicas`, `nodes`, `ms`,
    `power_mw`, `units` of an extended resource; empty without a distance."""
    where: str = ""
    """The queue, node, switch, rack, pool or job that it is about."""


class Awaiting(msgspec.Struct, frozen=True):
    """What a job still waits for of one dependency: jobs with numbers from `begin` to before `end`."""

    kind: str
    begin: int
    end: int
    left: int
    """How many of them have not ended."""
    first: tuple[tuple[JobId, str], ...]
    """The first of these, and their states."""


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change with which the job would start in a cycle made now: it was planned, not reasoned.

    The job keeps its number and its age; a job that is submitted anew with the change has to wait behind others.
    """

    kind: EditKind
    path: str
    """The field of the job file, or the part of the cluster, such as `devices.count` or `queues.a.max.devices`."""
    old: EditValue
    new: EditValue
    text: str
    starts_now: bool = True
    """False when `victims` are asked to save and leave first."""
    victims: tuple[JobId, ...] = ()
    """Running jobs that would be asked to leave for it."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a running job was asked to stop."""

    reason: str
    rule: str = ""
    """The rule that gave the right to ask for it; empty when there is no beneficiary."""
    beneficiary: JobId | None = None
    cost_device_ms: int = 0
    """What this victim cost as the plan weighed it."""
    grace_left_ms: int = 0


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job is not running. `code` is stable; `text` is one sentence for people."""

    job_id: JobId
    state: str
    code: str
    text: str
    constraints: tuple[Constraint, ...] = ()
    """Everything that keeps it from starting now, the decisive constraint first."""
    refused: dict[str, int] = {}
    """Nodes ruled out, by reason; adds up to the number of nodes."""
    replicas_possible: int = 0
    """How many replicas of the first group find room now."""
    ahead: int = 0
    """Waiting jobs of its queue that come before this one in the present order."""
    ahead_first: tuple[JobId, ...] = ()
    """The first of them."""
    blockers: tuple[JobId, ...] = ()
    """Jobs that it waits for: to end, to leave, or to start before it."""
    edits: tuple[Edit, ...] = ()
    """Changes with which it would start now, changes of the request first; each the smallest of its kind."""
    edits_note: str = ""
    """Changes not tried, and why."""
    start_by_ms: int = 0
    """By when it starts at the latest (unix ms), if jobs keep to their time limits and take no time to start,
    none has to start again and no other job comes first; 0 when unknown."""
    start_note: str = ""
    """The basis of the bound, or why there is none."""
    start_interval_ms: tuple[int, int] | None = None
    """Estimate: 8 of 10 such starts come in this interval; 0 as its end: unknown. None: not estimated."""
    start_likely_ms: int = 0
    """Half of such starts come before this; 0: not estimated."""
    stop: Stop | None = None
    elsewhere: str = ""
    """In a shadow: what the scheduler of the cluster says of it, in its own words."""
