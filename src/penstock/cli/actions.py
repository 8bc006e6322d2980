"""Commands that act on jobs, one request for any number, such as `cancel`, `hold`, `suspend`, `requeue`, `edit`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from penstock.api.jobs import ActionAnswer
from penstock.cli.confirm import DryRunOption, YesOption, confirm
from penstock.cli.errors import NotThere, UsageError
from penstock.cli.options import JsonOption, pairs, spread
from penstock.cli.output import EXIT_CODES, print_json, say
from penstock.cli.place import client_of
from penstock.core.model.actions import JobAction
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client import Client

Verb = JobAction | Literal["suspend", "resume"]
"""What a command does: an action of the API, or one made of them."""
DONE: dict[Verb, tuple[str, str]] = {
    "cancel": ("Cancel", "cancel requested for {}"),
    "hold": ("Hold", "{} held"),
    "release": ("Release", "{} released"),
    "suspend": ("Suspend", "suspension requested for {}"),
    "resume": ("Resume", "{} resumed"),
    "requeue": ("Requeue", "requeue requested for {}"),
    "requeue_hold": ("Requeue and hold", "requeue requested for {}, held from then on"),
    "edit": ("Change", "{} changed"),
    "save": ("Ask for a checkpoint of", "checkpoint requested of {}"),
}
"""The verb of the question and of a dry run, and what is said once it is done."""
JOBS_SHOWN = 5
FAILURES = {"not_found": "not_found", "no_right": "forbidden"}
"""Error codes of jobs that were left as they were, where that is a failure; any other is `conflict`."""


class Selection(NamedTuple):
    """Which jobs: numbers, or conditions that all must hold."""

    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            help="Numbers (3), ranges (5-9), arrays (12[]), members (12[0-3]).",
        ),
    ] = None
    all: Annotated[bool, typer.Option("--all", help="All live jobs that you may change.")] = False
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="In this state; may be repeated.")] = None
    name: Annotated[str | None, typer.Option("--name", "-J", help="With this name, or pattern such as 'train-*'.")] = (
        None
    )
    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user.")] = None
    mine: Annotated[bool, typer.Option("--mine", help="Of yourself.")] = False
    tenant: Annotated[str | None, typer.Option("--tenant", "-A", help="Of this tenant.")] = None
    queue: Annotated[str | None, typer.Option("--queue", "-p", help="In this queue.")] = None
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="With this label, NAME=VALUE.")] = None

    def of(self, client: "Client") -> dict[str, Any]:
        """Return the selection as the API takes it. Raises: UsageError for none."""
        user = client.me().user if self.mine else self.user
        given = {"name": self.name, "user": user, "tenant": self.tenant, "queue": self.queue}
        found: dict[str, Any] = {field: value for field, value in given.items() if value}
        if self.jobs:
            found["ids"] = self.jobs
        if self.state:
            found["states"] = self.state
        if self.label:
            found["labels"] = pairs("--label", self.label)
        if self.all:
            found["all"] = True
        if not found:
            raise UsageError("no jobs are named", hint="give numbers, or --mine, --name, --state, --all, ...")
        return found

    @property
    def named(self) -> bool:
        """Whether each job is named by its number: then nothing is asked."""
        given = (self.all, self.state, self.name, self.user, self.mine, self.tenant, self.queue, self.label)
        return bool(self.jobs) and all(one.isdecimal() for one in self.jobs or ()) and not any(given)


_selecting = spread(Selection, "selection")
_NONE = Selection()


def _command(action: Verb, text: str) -> Callable[..., None]:
    """Return the command of an action that has no options of its own; `text` is its help."""

    @_selecting
    def command(
        selection: Selection = _NONE, yes: YesOption = False, dry_run: DryRunOption = False, json: JsonOption = False
    ) -> None:
        _act(action, selection, yes=yes, dry_run=dry_run, as_json=json)

    command.__doc__ = text
    return command


cancel = _command("cancel", "Cancel jobs. Running ones get the stop signal and their grace first.")
hold = _command("hold", "Keep waiting jobs from starting. They keep their place; penstock release lets them start.")
release = _command("release", "Let held jobs start.")
suspend = _command(
    "suspend",
    "Stop jobs until they are resumed. Running ones save first, free their devices, and later resume from their last "
    "checkpoint, as a new attempt; waiting ones are held.",
)
resume = _command(
    "resume", "Let suspended or held jobs start again. They start when there is room; the same as release."
)
save = _command("save", "Ask running jobs to save a checkpoint and continue.")


@_selecting
def requeue(
    selection: Selection = _NONE,
    then_hold: Annotated[bool, typer.Option("--hold", help="Hold them there: no attempt starts in between.")] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Stop running jobs, and put them back into their queues. They save first, and resume from their checkpoints."""
    _act("requeue_hold" if then_hold else "requeue", selection, yes=yes, dry_run=dry_run, as_json=json)


@_selecting
def edit(
    selection: Selection = _NONE,
    priority: Annotated[str | None, typer.Option("--priority", help="low, medium, high or a number.")] = None,
    time_limit: Annotated[str | None, typer.Option("--time-limit", "-t", help="New time limit; 0 for none.")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", help="Move it to this queue.")] = None,
    rename: Annotated[str | None, typer.Option("--rename", help="New name.")] = None,
    preemptible: Annotated[
        bool | None, typer.Option("--preemptible/--no-preemptible", help="May be asked to make room for others.")
    ] = None,
    max_wait: Annotated[str | None, typer.Option("--max-wait", help="Cancel it when it has waited this long.")] = None,
    set_label: Annotated[list[str] | None, typer.Option("--set-label", help="Set a label, NAME=VALUE.")] = None,
    unset_label: Annotated[list[str] | None, typer.Option("--unset-label", help="Remove a label, by its name.")] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Change the priority, queue or limits of jobs."""
    given = {
        "priority": int(priority) if priority and priority.isdecimal() else priority,
        "time_limit": time_limit,
        "queue": to_queue,
        "name": rename,
        "preemptible": preemptible,
        "max_wait": max_wait,
        "labels": _labels(set_label or [], unset_label or []) or None,
    }
    change = {field: value for field, value in given.items() if value is not None}
    if not change:
        raise UsageError("nothing to change is given", hint="such as --priority high or --time-limit 2h")
    _act("edit", selection, change, yes=yes, dry_run=dry_run, as_json=json)


def _labels(given: list[str], removed: list[str]) -> dict[str, str | None]:
    """Return labels as the API takes them, without a value to remove one. Raises: UsageError, InvalidInput."""
    labels: dict[str, str | None] = {**pairs("--set-label", given)}
    for name in removed:
        if name in labels:
            raise UsageError(f"label '{name}' is both set and removed", hint="--set-label or --unset-label, not both")
        if not name or "=" in name:
            raise UsageError(f"--unset-label is '{name}', expected the name of a label alone", hint="without a value")
        labels[name] = None
    return labels


def _act(
    action: Verb,
    selection: Selection,
    change: dict[str, Any] | None = None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Count the selected jobs, ask, and act on them in one request."""
    client = client_of()
    select = selection.of(client)
    expect = None
    if not selection.named and not yes and not dry_run:
        planned = _request(client, action, select, change, dry_run=True)
        if planned.changed == 0:
            _report(action, planned, as_json=as_json, named=False, planned=True)
            return
        question = f"{DONE[action][0]} {counted(planned.changed, 'job')} ({_some(planned)})?"
        confirm(question, yes=False, as_json=as_json)
        expect = planned.matched
    answer = _request(client, action, select, change, dry_run=dry_run, expect=expect)
    _report(action, answer, as_json=as_json, named=selection.named, planned=dry_run)


def _request(
    client: "Client",
    action: Verb,
    select: dict[str, Any],
    change: dict[str, Any] | None,
    *,
    dry_run: bool,
    expect: int | None = None,
) -> ActionAnswer:
    """Do the action; to suspend holds what waits, and then stops and holds what runs."""
    if action != "suspend":
        name = "release" if action == "resume" else action
        return client.act(name, select, change=change, dry_run=dry_run, expect=expect)
    held = client.act("hold", select, dry_run=dry_run, expect=expect)
    if not any(one.code == "not_waiting" for one in held.unchanged):
        return held
    stopped = client.act("requeue_hold", select, dry_run=dry_run)
    left = [one for one in held.unchanged if one.code in ("held_already", "no_right", "over", "not_found")]
    left += [one for one in stopped.unchanged if one.code not in ("waiting", *(other.code for other in left))]
    changed = held.changed + stopped.changed
    matched = changed + sum(one.count for one in left)
    return ActionAnswer(matched=matched, changed=changed, unchanged=left, jobs=[*held.jobs, *stopped.jobs])


def _some(answer: ActionAnswer) -> str:
    shown = answer.jobs[:JOBS_SHOWN]
    more = answer.changed - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more:,} more" if more else "")


def _report(action: Verb, answer: ActionAnswer, *, as_json: bool, named: bool, planned: bool) -> None:
    """Print what became of the jobs; end with an exit code where one of those named, or all, stay as they were.

    Args:
        named: each job was named by its number.
        planned: nothing was done.
    Raises: NotThere where no job matches; SystemExit.
    """
    if answer.matched == 0:
        raise NotThere("no live job matches", hint="penstock ps lists the jobs")
    failed = bool(answer.unchanged) and (named or answer.changed == 0)
    if as_json:
        print_json(answer)
    else:
        if answer.changed:
            one = answer.changed == 1
            which = f"job {answer.jobs[0]}" if one else f"{counted(answer.changed, 'job')} ({_some(answer)})"
            question, done = DONE[action]
            say(f"would {question.lower()} {which}" if planned else done.format(which))
        for left in answer.unchanged:
            say(f"{'error: ' if failed else ''}{left.text}", err=failed)
    if failed:
        code = next((FAILURES[one.code] for one in answer.unchanged if one.code in FAILURES), "conflict")
        sys.exit(EXIT_CODES[code])
