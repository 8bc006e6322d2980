"""Tools that show what a change would do, and change nothing."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.api.jobs import LISTED, ActionAnswer
from penstock.client import Client
from penstock.core.model.actions import JobAction
from penstock.core.model.answers import PlanAnswer, PlannedJob, Quote
from penstock.core.model.quantities import money
from penstock.mcp.budget import MILLI_MS_PER_HOUR, Cost
from penstock.mcp.callers import Caller
from penstock.mcp.cluster_tools import Word
from penstock.mcp.errors import Refused
from penstock.mcp.job_tools import JobId, Reason
from penstock.mcp.tool import Arguments, Tool
from penstock.mcp.values import Untrusted, named, said, within_bytes

ENTRIES_MAX = 50
"""Entries of a request that an answer shows."""
Request = Annotated[
    dict[str, Any],
    Meta(
        description="A job as in a job file, or {jobs: [...]} for several. Fields of a job: command (a list of words), "
        "name, tenant, queue, priority (low, medium, high or a number), devices, replicas, cpus, memory (8GiB), "
        "time_limit (such as 2h), preemptible, env, workdir, labels; all are in the resource penstock://schema/job.",
        examples=[{"command": ["python", "train.py"], "devices": 1, "time_limit": "2h"}],
    ),
]


class RequestAsked(Arguments, frozen=True):
    request: Request


class PlannedRow(msgspec.Struct, frozen=True):
    """The expected course of one entry of the request, if no other jobs are submitted. Times are unix milliseconds."""

    name: Untrusted
    count: int
    """Jobs alike; all values are of the last of them to start."""
    starts_now: bool
    start_early_ms: int
    start_likely_ms: int
    """0: unknown, or never."""
    start_late_ms: int
    text: Untrusted
    nodes: list[str]
    preempts: list[int]
    """Running jobs that would be asked to leave for it."""
    price: str
    """Of one job, before tiers; empty where no prices are declared."""
    device_hours_max: float | None
    """Of one job, by its time limit and retries; null: it has no time limit."""
    reasons: list[Reason]
    edits: list[Untrusted]
    """Changes of the request with which it would start now."""


class Planned(msgspec.Struct, frozen=True):
    """What a submit of the request would do. Nothing was submitted."""

    jobs: list[PlannedRow]
    not_shown: int
    """Further entries of the request."""


def plan(caller: Caller, asked: RequestAsked) -> Planned:
    with caller.client() as client:
        return planned_of(client.plan(asked.request))


def job_schema(caller: Caller) -> dict[str, Any]:
    """Return the JSON Schema of what `plan` and `submit` take."""
    with caller.client() as client:
        return client.job_schema()


def planned_of(answer: PlanAnswer) -> Planned:
    rows = within_bytes(map(_planned, answer.jobs[:ENTRIES_MAX]))
    return Planned(rows, len(answer.jobs) - len(rows))


def _planned(job: PlannedJob) -> PlannedRow:
    explained = job.explanation
    hours = job.device_milli_ms_max
    return PlannedRow(
        name=named(job.name),
        count=job.count,
        starts_now=job.starts_now,
        start_early_ms=job.start_p10_ms,
        start_likely_ms=job.start_p50_ms,
        start_late_ms=job.start_p90_ms,
        text=said(job.text),
        nodes=sorted({place.node for place in job.places})[:20],
        preempts=[victim.job_id for victim in job.preempts[:20]],
        price=_price(job.price) if job.price is not None else "",
        device_hours_max=None if hours is None else round(hours / MILLI_MS_PER_HOUR, 4),
        reasons=[Reason(c.code, said(c.text), c.distance, c.unit, c.where) for c in explained.constraints[:5]]
        if explained is not None
        else [],
        edits=[said(edit.text) for edit in explained.edits[:5]] if explained is not None else [],
    )


def _price(price: Quote) -> str:
    low, high = money(price.hour_low, price.digits), money(price.hour_high, price.digits)
    return f"{low if low == high else f'{low} to {high}'} {price.currency} an hour"


def cost_of(answer: PlanAnswer) -> Cost:
    """Return what a submit takes of a budget. Raises: Refused for a job that may hold devices without end."""
    device_milli_ms = 0
    for number, job in enumerate(answer.jobs):
        if job.device_milli_ms_max is None:
            text = "the job has devices and no time limit, expected one: its device-hours count for the budget"
            raise Refused("over_budget", text, field=f"jobs[{number}].time_limit", hint="set time_limit, such as 2h")
        device_milli_ms += job.count * job.device_milli_ms_max
    return Cost(sum(job.count for job in answer.jobs), device_milli_ms)


class Selection(Arguments, frozen=True):
    """Which live jobs: numbers, or conditions that all must hold."""

    jobs: Annotated[tuple[JobId, ...], Meta(max_length=LISTED)] = ()
    name: Annotated[str, Meta(max_length=200, description="a name, or a pattern such as train-*")] = ""
    user: Word = ""
    tenant: Word = ""
    queue: Word = ""
    states: Annotated[tuple[Word, ...], Meta(max_length=8)] = ()

    def select(self) -> dict[str, Any]:
        """Return the selection as the API takes it. Raises: Refused for none."""
        given = {name: getattr(self, name) for name in ("name", "user", "tenant", "queue", "states")}
        found = {name: value for name, value in given.items() if value}
        if self.jobs:
            found["ids"] = [str(number) for number in self.jobs]
        if not found:
            raise Refused("invalid_input", "no jobs are named, expected numbers or a condition", field="jobs")
        return found


class Change(Selection, frozen=True):
    """New values of the jobs. Not the time limit: a longer one would spend device-hours past the budget."""

    priority: int | Literal["low", "medium", "high"] | None = None
    to_queue: Annotated[str, Meta(max_length=200, description="queue to move to")] = ""

    def change(self) -> dict[str, Any]:
        """Return the new values as the API takes them. Raises: Refused for none."""
        given = {"priority": self.priority, "queue": self.to_queue or None}
        found = {name: value for name, value in given.items() if value is not None}
        if not found:
            raise Refused("invalid_input", "nothing to change is given, expected a new value", field="priority")
        return found


class ActionAsked(Change, frozen=True, kw_only=True):
    action: JobAction


class LeftAlone(msgspec.Struct, frozen=True):
    """Jobs that an action leaves as they are, for one reason."""

    code: str
    text: Untrusted
    count: int
    jobs: list[int]


class ActionPlanned(msgspec.Struct, frozen=True):
    """What an action would do. Nothing was done."""

    matched: int
    would_change: int
    jobs: list[int]
    """The first of those that would change."""
    left_alone: list[LeftAlone]


def dry_run(caller: Caller, asked: ActionAsked) -> ActionPlanned:
    change = asked.change() if asked.action == "edit" else {}
    with caller.client() as client:
        return action_planned(look(client, asked.action, asked.select(), change))


def look(client: Client, action: JobAction, select: dict[str, Any], change: dict[str, Any]) -> ActionAnswer:
    """Return what an action would do. Raises: PenstockError."""
    return client.act(action, select, change=change, dry_run=True)


def action_planned(answer: ActionAnswer) -> ActionPlanned:
    return ActionPlanned(answer.matched, answer.changed, answer.jobs, left_alone(answer))


def left_alone(answer: ActionAnswer) -> list[LeftAlone]:
    return [LeftAlone(one.code, said(one.text), one.count, one.jobs) for one in answer.unchanged[:20]]


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("plan", "What a submit would do: start, places, price, who would have to leave. Submits nothing.",
         RequestAsked, Planned, plan),
    Tool("dry_run", "What an action on jobs would do. Does nothing.", ActionAsked, ActionPlanned, dry_run),
)  # fmt: skip
