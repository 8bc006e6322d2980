"""Guarded changes: each tool shows what it would do and returns a confirmation; `confirm` alone makes the change."""

import hashlib
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.api.jobs import LISTED, ActionAnswer
from penstock.client import Client
from penstock.client.errors import ApiProblem
from penstock.core.model.actions import JobAction
from penstock.core.model.errors import PenstockError
from penstock.core.model.foreign import one_line
from penstock.core.model.words import counted
from penstock.mcp.budget import MILLI_MS_PER_HOUR, Cost, Left
from penstock.mcp.callers import Caller
from penstock.mcp.confirmations import CONFIRM_WITHIN_S, Made, Pending
from penstock.mcp.errors import Refused, invalid
from penstock.mcp.plan_tools import (
    ActionPlanned,
    Change,
    LeftAlone,
    Planned,
    RequestAsked,
    Selection,
    action_planned,
    cost_of,
    left_alone,
    look,
    planned_of,
)
from penstock.mcp.tool import Arguments, Tool


class Preview(msgspec.Struct, frozen=True):
    """What the change would do. Nothing was done; `confirm` with this confirmation and summary does it."""

    summary: str
    confirmation: str
    """Valid once, for this change, for you, for `valid_s` seconds."""
    valid_s: int
    left: Left
    """Of the budget, before the change."""


class SubmitPreview(Preview, frozen=True):
    plan: Planned


class ActionPreview(Preview, frozen=True):
    effect: ActionPlanned


class DrainPreview(Preview, frozen=True):
    node: str
    draining_now: bool
    jobs: list[int]
    """The first jobs that run there and that you may see."""


def submit(caller: Caller, asked: RequestAsked) -> SubmitPreview:
    with caller.client() as client:
        answer = client.plan(asked.request)
    cost = cost_of(answer)
    hours = cost.device_milli_ms / MILLI_MS_PER_HOUR
    encoded = msgspec.json.encode(asked.request)
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    summary = f"submit {counted(cost.jobs, 'job')}, at most {hours:.2f} device-hours (request {digest})"
    token = _kept(caller, Pending(summary, cost, partial(_submit, encoded)))
    return SubmitPreview(summary, token, int(CONFIRM_WITHIN_S), caller.budget.left, planned_of(answer))


def _submit(encoded: bytes, client: Client, key: str) -> Made:
    answer = client.submit_request(msgspec.json.decode(encoded), idempotency_key=key)
    numbers = [job.id for job in answer.jobs]
    return Made(f"submitted {counted(len(numbers), 'job')}", numbers[:200])


def act(action: JobAction, caller: Caller, asked: Selection) -> ActionPreview:
    """Show an action on jobs; what is confirmed acts on exactly the jobs that were shown."""
    change = asked.change() if isinstance(asked, Change) else {}
    with caller.client() as client:
        answer = look(client, action, asked.select(), change)
    if not answer.changed:
        reasons = "; ".join(one.text for one in answer.unchanged[:3]) or "no live job matches"
        raise Refused(_code_of(answer), f"nothing would change: {reasons}", field="jobs")
    if answer.changed > LISTED:
        text = f"it would change {answer.changed} jobs, expected at most {LISTED}"
        raise Refused("too_many_jobs", text, field="jobs", hint="name fewer jobs, one call after the other")
    numbers = sorted(answer.jobs)
    new = "".join(f", {one_line(name)} {one_line(str(value))}" for name, value in change.items())
    summary = f"{action} {'job' if len(numbers) == 1 else 'jobs'} {', '.join(map(str, numbers))}{new}"
    token = _kept(caller, Pending(summary, Cost(), partial(_act, action, numbers, change)))
    return ActionPreview(summary, token, int(CONFIRM_WITHIN_S), caller.budget.left, action_planned(answer))


def _code_of(answer: ActionAnswer) -> str:
    codes = {one.code for one in answer.unchanged}
    if "no_right" in codes:
        return "forbidden"
    return "not_found" if not answer.matched or "not_found" in codes else "conflict"


def _act(action: JobAction, numbers: list[int], change: dict[str, Any], client: Client, _: str) -> Made:
    answer = client.act(action, {"ids": [str(number) for number in numbers]}, change=change)
    return Made(f"{action}: {counted(answer.changed, 'job')} changed", answer.jobs, left_alone(answer))


class DrainAsked(Arguments, frozen=True):
    node: Annotated[str, Meta(min_length=1, max_length=63)]
    on: Annotated[bool, Meta(description="false opens the node again")] = True
    evict: Annotated[bool, Meta(description="ask the jobs there to save and move")] = False
    reason: Annotated[str, Meta(max_length=200)] = ""


def drain(caller: Caller, asked: DrainAsked) -> DrainPreview:
    with caller.client() as client:
        me, every = client.me(), client.nodes()
    if me.role not in ("operator", "admin") or me.level == "read":
        raise Refused("forbidden", f"{one_line(me.user)} may not close or open nodes", hint="operators may")
    found = next((node for node in every if node.name == asked.node), None)
    if found is None:
        raise invalid("node", asked.node, "the name of a node: the tool nodes lists them")
    what = "open" if not asked.on else "close"
    evicting = ", and ask its jobs to move" if asked.on and asked.evict else ""
    summary = f"{what} node {one_line(found.name)}{evicting}"
    token = _kept(caller, Pending(summary, Cost(), partial(_drain, asked)))
    preview = (summary, token, int(CONFIRM_WITHIN_S), caller.budget.left)
    return DrainPreview(*preview, found.name, found.draining, found.jobs[:20])


def _drain(asked: DrainAsked, client: Client, _: str) -> Made:
    client.drain(asked.node, on=asked.on, evict=asked.evict and asked.on, reason=asked.reason)
    return Made(f"node {one_line(asked.node)} is {'closed' if asked.on else 'open'}", [])


def _kept(caller: Caller, pending: Pending) -> str:
    """Return the confirmation of a change that the budget has room for. Raises: Refused."""
    caller.budget.check(pending.cost)
    return caller.confirmations.add(pending)


class ConfirmAsked(Arguments, frozen=True, kw_only=True):
    confirmation: Annotated[str, Meta(max_length=100, description="of the preview")]
    summary: Annotated[str, Meta(max_length=2_000, description="of the preview, word for word")]


class Confirmed(msgspec.Struct, frozen=True):
    """The change is made."""

    done: str
    jobs: list[int]
    left_alone: list[LeftAlone]
    left: Left
    """Of the budget."""


def confirm(caller: Caller, asked: ConfirmAsked) -> Confirmed:
    """Make a change that was shown. The server checks the rights of the token once more.

    Raises: Refused, with the code `unknown_outcome` where the change may have been made all the same: its budget stays
        spent. ApiProblem where it was surely not made.
    """
    pending = caller.confirmations.take(asked.confirmation, asked.summary)
    caller.budget.take(pending.cost)
    key = hashlib.sha256(asked.confirmation.encode()).hexdigest()
    try:
        with caller.client() as client:
            made = pending.make(client, key)
    except PenstockError as error:
        if isinstance(error, ApiProblem) and error.details.status < 500:  # it was surely not done
            caller.budget.give_back(pending.cost)
            raise
        text = f"it may be done, or not: {error.message}"
        raise Refused("unknown_outcome", text, hint="look (jobs, nodes) before you ask for it again") from error
    return Confirmed(made.done, made.jobs, list(made.left_alone), caller.budget.left)


_FIRST = " Shows what it would do, and does nothing before `confirm`."
TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("submit", "Submit jobs." + _FIRST, RequestAsked, SubmitPreview, submit, writes=True),
    Tool("cancel", "Cancel jobs." + _FIRST, Selection, ActionPreview, partial(act, "cancel"), writes=True),
    Tool("hold", "Keep waiting jobs from starting." + _FIRST, Selection, ActionPreview, partial(act, "hold"),
         writes=True),
    Tool("release", "Let held jobs start." + _FIRST, Selection, ActionPreview, partial(act, "release"), writes=True),
    Tool("edit", "Change the priority or queue of jobs." + _FIRST, Change, ActionPreview,
         partial(act, "edit"), writes=True),
    Tool("drain", "Close a node to new work, or open it again; for operators." + _FIRST, DrainAsked, DrainPreview,
         drain, writes=True),
    Tool("confirm", "Make a change that a preview has shown. Ask the user first, with the summary.", ConfirmAsked,
         Confirmed, confirm, writes=True, commits=True),
)  # fmt: skip
