"""Checks of the destinations that jobs name, when they are submitted: what may be known then; sending checks again."""

from collections.abc import Iterable

from penstock.core.lifecycle.requests import NewJob
from penstock.core.model.access import Scope
from penstock.core.model.dependencies import JobDestination
from penstock.core.model.errors import PROBLEMS_MAX, Problem, nearest
from penstock.core.state.state import State
from penstock.server.services.notifying.channels import check_destination
from penstock.server.services.notifying.errors import NotSent


def destination_problems(entries: Iterable[NewJob], who: Scope, state: State) -> list[Problem]:
    """Return which destinations of jobs this caller may not use, or that are not there."""
    checked: dict[JobDestination, NotSent | None] = {}
    problems: list[Problem] = []
    for entry in entries:
        for one in entry.spec.notify_to:
            if one not in checked:
                checked[one] = _refusal(one, who, state)
            if (error := checked[one]) is not None and len(problems) < PROBLEMS_MAX:
                field = f"{entry.field}.notify" if entry.field else "notify"
                code = "unknown_notification" if one.channel == "own" else "not_permitted"
                problems.append(Problem(code, field, f"{field}: {error.message}", "", error.hint))
    return problems


def _refusal(one: JobDestination, who: Scope, state: State) -> NotSent | None:
    declared = state.config.notifications
    if one.channel == "own":
        known = [own.name for own in state.subscriptions.of_user(who.user)]
        if one.to in known:
            return None
        hint = nearest(one.to, known) or "penstock notify list"
        return NotSent(f"you have no notification '{one.to}'", hint=hint)
    if one.secret:
        if declared.webhooks.hosts or declared.webhooks.internal:
            return None
        return NotSent("no webhooks are permitted", hint="an administrator declares hosts: notifications.webhooks")
    try:
        check_destination(declared, one.channel, one.to, operates=who.operates)
    except NotSent as error:
        return error
    return None
