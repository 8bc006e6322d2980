"""Planted bugs: each breaks one rule by replacing a named function, to prove that the simulator finds such a bug.

The product knows nothing of them. A function that no longer exists cannot be replaced, which fails loudly.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.control import controller, leases
from penstock.core.cycle import kept_room, match, resizing, verify, workspace
from penstock.core.elastic import learned
from penstock.core.ledger import sessions
from penstock.core.lifecycle import device_health, health, money, orders, reports, requests, size
from penstock.core.lifecycle.ending import after_replica_gone
from penstock.core.lifecycle.suspending import on_frozen
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import Refusal
from penstock.core.model.events import ReplicaExited
from penstock.core.model.ids import Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.plan import Preemption
from penstock.core.preempt import preemptor
from penstock.core.state import accounts, state
from penstock.sim.world import disk, node
from penstock.sim.world.ground import LEASE_TTL_MS

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the broken function from the right one."""


class Patch(NamedTuple):
    """One function to replace: its owner, its name, and the wrapper that breaks it."""

    owner: Any
    name: str
    wrap: Wrap


def always(value: Any) -> Wrap:
    """Return what makes a function return always this."""
    return lambda real: lambda *_, **__: value


def _taken_one_by_one(real: Callable[..., Any]) -> Callable[..., Any]:
    def take(check: Any, *args: Any) -> Any:
        before = dict(check._free)
        taken = real(check, *args)
        check._free = before
        return taken

    return take


def _placed_one_by_one(real: Callable[..., Any]) -> Callable[..., Any]:
    def note_start(workspace: Any, job: Any, ask: Any, places: Any, choice: int) -> None:
        workspace.cluster.put_back(ask, enumerate(places))
        real(workspace, job, ask, places, choice)

    return note_start


def _expired_early(real: Callable[..., Any]) -> Callable[..., Any]:
    def ends_ms(known: Any, lease: Any) -> Any:
        return real(known, lease) - LEASE_TTL_MS * 3 // 4

    return ends_ms


def _answered_early(real: Callable[..., Any]) -> Callable[..., Any]:
    """Answer a group whose commit failed as if it had been committed."""

    def handle(server: Any, group: Any) -> Any:
        replies: list[Any] = []
        decide, failed = server._decide, server._failed

        def remembered(tx: Any, request: Any) -> Any:
            replies.append(decide(tx, request))
            return replies[-1]

        def answered(group: Any, error: Any) -> Any:
            handled = failed(group, error)
            return replace(handled, replies=tuple(replies)) if replies else handled

        server._decide, server._failed = remembered, answered
        try:
            return real(server, group)
        finally:
            del server._decide, server._failed

    return handle


def _asked_then(act: Callable[[Transaction, Preemption], None]) -> Wrap:
    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def ask_to_leave(tx: Transaction, preemption: Preemption, *more: Any) -> None:
            real(tx, preemption, *more)
            act(tx, preemption)

        return ask_to_leave

    return wrap


def _release(tx: Transaction, preemption: Preemption) -> None:
    for rank in range(tx.state.jobs[preemption.victim].ask.replica_total):
        gone = ExitInfo(problem="released before it was gone", stop_sent=True)
        tx.emit(ReplicaExited(preemption.victim, preemption.attempt, Rank(rank), gone))
    after_replica_gone(tx, preemption.victim)


def _give_cpus(tx: Transaction, preemption: Preemption) -> None:
    for rank in range(tx.state.jobs[preemption.victim].ask.replica_total if preemption.suspend else 0):
        now = tx.state.jobs[preemption.victim]
        on_frozen(tx, now, Rank(rank), now.attempt.suspensions if now.attempt is not None else 0)


def _numbered_together(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda money_of, kind, prefix: f"{prefix}{len(money_of.invoices) + 1:06d}"


def _checked_late(real: Callable[..., Any]) -> Callable[..., Any]:
    def submit(tx: Transaction, request: Any, finished: Any, bounds: Any = size.BOUNDS) -> Any:
        answer = real(tx, request, finished, bounds)
        over = requests.over_bounds(request, bounds)
        too_large = isinstance(answer, Refusal) and over is not None and answer.problems == (over,)
        if too_large and not requests.submit_problems(tx.state, request, finished, bounds):
            requests.accept(tx, request, finished)
        return answer

    return submit


def _opened_unseen(real: Callable[..., Any]) -> Callable[..., Any]:
    def open_due_ms(closure: Any, settings: Any) -> Any:
        return real(replace(closure, clear_ms=closure.clear_ms or closure.seen_ms), settings)

    return open_due_ms


def _without_changes(real: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out of a snapshot when jobs were restarted."""

    def image(self: Any) -> Any:
        found = real(self)
        return replace(found, jobs=[replace(job, changes_ms=()) for job in found.jobs])

    return image


def _twice_as_large(real: Callable[..., Any]) -> Callable[..., Any]:
    def range_of(batch: Any) -> Any:
        found = real(batch)
        return replace(found, largest=2 * found.largest, local_max=2 * found.local_max)

    return range_of


def _saved_or_not(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda job: job.undisturbed is not None and job.evictable


def _without_running(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda log: replace(real(log), open=())


class Bug(NamedTuple):
    """A planted bug: its description, and its patches."""

    text: str
    patches: tuple[Patch, ...]


PLANTED_BUGS: dict[str, Bug] = {
    "gang_checked_one_by_one": Bug(
        "each start is planned against the same free capacity",
        (
            Patch(verify._Check, "_take", _taken_one_by_one),
            Patch(workspace.Workspace, "note_start", _placed_one_by_one),
        ),
    ),
    "plan_not_verified": Bug(
        "a plan is committed without looking at what changed meanwhile",
        (Patch(verify._Check, "_take", always(True)), Patch(verify._Check, "_within_quota", always(True))),
    ),
    "old_attempt_accepted": Bug(
        "reports of an older attempt are taken for the current one",
        (Patch(reports, "_is_current", always(True)),),
    ),
    "node_lost_too_early": Bug(
        "the server counts a node as lost before the node has ended its processes",
        (Patch(leases.Leases, "_ends_ms", _expired_early),),
    ),
    "started_unnoted": Bug(
        "a node with a full disk starts what it cannot note", (Patch(node.SimNode, "_can_note", always(True)),)
    ),
    "start_not_resent": Bug(
        "a start order that got lost is never sent again", (Patch(orders, "_missing_starts", always([])),)
    ),
    "released_before_gone": Bug(
        "places are freed when the stop is asked for, not when the processes are gone",
        (Patch(orders, "_ask_to_leave", _asked_then(_release)),),
    ),
    "cpus_given_before_frozen": Bug(
        "the CPUs of an attempt are others' when it is told to stand still, not when it does",
        (Patch(orders, "_ask_to_leave", _asked_then(_give_cpus)),),
    ),
    "answer_before_commit": Bug(
        "a submit is answered before its commit is on disk", (Patch(controller.Controller, "handle", _answered_early),)
    ),
    "stale_controller_commits": Bug(
        "the epoch is not compared inside the transaction", (Patch(disk.SimDisk, "_is_stale", always(False)),)
    ),
    "held_tenant_starts": Bug(
        "a start that was planned before its tenant was held is committed all the same",
        (Patch(verify._Check, "_held", always(False)),),
    ),
    "held_tenant_goes_on": Bug(
        "what runs of a tenant that is to leave is not asked to", (Patch(money, "_make_leave", always(None)),)
    ),
    "account_posted_blindly": Bug(
        "what was worked out is written though the account has changed since",
        (Patch(money, "_has_changed", always(False)),),
    ),
    "numbers_with_gaps": Bug(
        "invoices and credit notes are counted together",
        (Patch(accounts.Accounts, "next_number", _numbered_together),),
    ),
    "claims_close_for_all": Bug(
        "what programs of one tenant print about a node closes it for all tenants",
        (Patch(health, "_agree", always(True)),),
    ),
    "device_opened_while_ill": Bug(
        "a device that failed is opened after a while though its node still reports the fault",
        (Patch(device_health, "open_due_ms", _opened_unseen),),
    ),
    "work_left_on_failed_device": Bug(
        "what runs on a device that failed is not asked to leave",
        (Patch(device_health, "_recover", always(None)),),
    ),
    "limit_measured_before_names": Bug(
        "a request is measured as it was sent, not as what its names stand for",
        (Patch(size, "_named", always({})),),
    ),
    "rule_checked_after_work": Bug(
        "the jobs of a request are made, and then it is measured and refused",
        (Patch(requests, "submit", _checked_late),),
    ),
    "running_use_forgotten": Bug(
        "books that are kept over a restart do not know what runs",
        (Patch(sessions.SessionLog, "image", _without_running),),
    ),
    "round_places_given_away": Bug(
        "the places that a round gave to a job are not kept until it comes back",
        (Patch(preemptor.Preemptor, "keep_rounds", always({})),),
    ),
    "round_before_the_last_is_over": Bug(
        "a pool has a round while jobs still leave for the one before",
        (Patch(resizing.Resizing, "_is_unsettled", always(False)),),
    ),
    "half_of_a_round_holds": Bug(
        "what still holds of a round is committed though the rest of it does not",
        (Patch(verify, "_broken_rounds", always(set())),),
    ),
    "restarts_forgotten": Bug(
        "a server that starts from a snapshot does not know how often a job was restarted",
        (Patch(state.State, "image", _without_changes),),
    ),
    "batch_out_of_range": Bug(
        "batches are chosen up to twice as large as a job accepts",
        (Patch(learned, "range_of", _twice_as_large),),
    ),
    "moved_too_often": Bug(
        "a job moves to another model as soon as that pays", (Patch(match.ModelMatch, "_settled_ms", always(0)),)
    ),
    "moved_unsaved": Bug(
        "a job moves to another model though it cannot go on from where it is",
        (Patch(match, "can_move", _saved_or_not),),
    ),
    "expected_room_given_away": Bug(
        "jobs that are bound start in the room that is kept for demand that is expected",
        (Patch(kept_room.KeptRoom, "cut", always(None)),),
    ),
    "more_kept_than_expected": Bug(
        "one device more is kept than jobs are expected to ask for",
        (Patch(kept_room, "_of_use", lambda real: lambda devices, demand: real(devices, demand) + 1),),
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one bug while the context lasts.

    Raises:
        ValueError: there is no bug of this name.
        AttributeError: the function that it replaces does not exist any more.
    """
    bug = PLANTED_BUGS.get(name)
    if bug is None:
        raise ValueError(f"no planted bug named {name}; known: {sorted(PLANTED_BUGS)}")
    with plant(bug):
        yield


@contextmanager
def plant(bug: Bug) -> Iterator[None]:
    """Plant a bug while the context lasts. Raises: AttributeError when a function that it replaces does not exist."""
    real = [_function(patch) for patch in bug.patches]
    try:
        for patch, function in zip(bug.patches, real, strict=True):
            setattr(patch.owner, patch.name, patch.wrap(function))
        yield
    finally:
        for patch, function in zip(bug.patches, real, strict=True):
            setattr(patch.owner, patch.name, function)


def _function(patch: Patch) -> Any:
    if patch.name in vars(patch.owner):
        return vars(patch.owner)[patch.name]
    raise AttributeError(f"{patch.owner.__name__} has no {patch.name}: the planted bug that replaces it breaks nothing")
