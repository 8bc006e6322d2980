"""Which rank is to blame when a training makes no step.

In a synchronous training all ranks wait for the missing one. So the culprit is the rank that does not wait: it is
suspended, it waits for its data, it is somewhere else in the program. When all ranks wait, but not in the same place,
one has taken another branch: a minority of one is the culprit. When no rank waits for another, all are busy with a long
operation, and nothing hangs.
"""

from collections import Counter
from collections.abc import Sequence

from penstock.core.health.stacks import activity, own_frame, waits_in
from penstock.core.model.hangs import Activity, Finding, Sight
from penstock.core.model.ids import Rank

STALL_FACTOR = 2
STALL_MARGIN_MS = 4_000


def stalled(age_ms: int, step_ms: int) -> bool:
    """Return whether the time since the last step calls for an inspection, for steps that usually take `step_ms`."""
    return step_ms > 0 and age_ms > STALL_FACTOR * step_ms + STALL_MARGIN_MS


def diagnose(sights: Sequence[Sight]) -> Finding:
    """Return why a gang makes no step, by the sights of all its ranks."""
    if not sights:
        return Finding(False, (), "no rank could be inspected")
    doing = {sight.rank: activity(sight) for sight in sights}
    by_rank = {sight.rank: sight for sight in sights}
    stopped = _those(doing, "stopped")
    if stopped:
        # A traced process is being debugged, and a child may be stopped on purpose.
        itself = any(by_rank[rank].state == "T" for rank in stopped)
        return Finding(True, stopped, _told(by_rank, doing, stopped), certain=itself)
    waiting = _those(doing, "waits")
    others = tuple(rank for rank in doing if doing[rank] != "waits")
    if not others:
        return _all_wait(sights)
    if len(sights) == 1:
        return _alone(sights[0], doing[others[0]])
    blocked = _those(doing, "blocked") + _those(doing, "unknown")
    if not waiting:
        closer = tuple(rank for rank in blocked if not by_rank[rank].native)
        text = "no rank waits for another: " + _told(by_rank, doing, others)
        return Finding(False, (), text, look_closer=closer)
    if len(others) > 1:
        closer = tuple(rank for rank in blocked if not by_rank[rank].native)
        text = f"{_ranks(waiting)} wait, and more than one is elsewhere: {_told(by_rank, doing, others)}"
        idle = tuple(rank for rank in others if doing[rank] in ("blocked", "data", "gone"))
        return Finding(bool(idle), idle, text, look_closer=closer)
    text = f"{_told(by_rank, doing, others)}; {_where(waiting, by_rank)}"
    closer = tuple(rank for rank in others if rank in blocked and not by_rank[rank].native)
    hung = doing[others[0]] in ("blocked", "data", "gone", "unknown")
    return Finding(hung, others, text, look_closer=closer)


def _alone(sight: Sight, does: Activity) -> Finding:
    """A training of one rank hangs when it waits for its data, or idles and has lost processes to the kernel.

    Without other ranks that is never certain.
    """
    hung = does == "data" or (does == "blocked" and bool(sight.killed))
    return Finding(hung, (sight.rank,) if hung else (), _one(sight, does))


def _all_wait(sights: Sequence[Sight]) -> Finding:
    places = {sight.rank: _place(sight) for sight in sights}
    counted = Counter(places.values())
    if len(counted) > 1:
        rarest = min(counted.values())
        odd = tuple(rank for rank, place in places.items() if counted[place] == rarest)
        text = "all ranks wait, not in the same place: " + "; ".join(
            f"{_ranks(tuple(r for r, p in places.items() if p == place))} in {place}" for place in sorted(counted)
        )
        return Finding(True, odd if len(odd) == 1 and len(sights) > 2 else (), text)
    return Finding(True, (), f"all ranks wait in {next(iter(counted))}: a rank or a message is missing on all ranks")


def _place(sight: Sight) -> str:
    wait, own = waits_in(sight.stack), own_frame(sight.stack)
    name = wait.function.rpartition(".")[2] if wait is not None else "a wait"
    return f"{name}, called from {own}" if own is not None else name


def _those(doing: dict[Rank, Activity], what: Activity) -> tuple[Rank, ...]:
    return tuple(rank for rank, does in doing.items() if does == what)


def _told(by_rank: dict[Rank, Sight], doing: dict[Rank, Activity], ranks: Sequence[Rank]) -> str:
    return "; ".join(_one(by_rank[rank], doing[rank]) for rank in ranks)


def _one(sight: Sight, does: Activity) -> str:
    text = _does(sight, does)
    return f"{text}, and has lost processes ({sight.killed})" if sight.killed else text


def _does(sight: Sight, does: Activity) -> str:
    who, own = f"rank {sight.rank}", own_frame(sight.stack)
    where = f", in {own}" if own is not None else ""
    match does:
        case "stopped":
            return f"a child process of {who} is stopped{where}" if sight.child_stopped else f"{who} is stopped{where}"
        case "gone":
            return f"{who} has ended"
        case "data":
            return f"{who} waits for its data{where}"
        case "saves":
            return f"{who} writes a checkpoint{where}"
        case "computes":
            return f"{who} computes{where}"
        case "unknown":
            return f"{who} could not be looked at ({sight.problem or 'no stack'})"
        case _:
            return f"{who} is idle{where}"


def _where(ranks: Sequence[Rank], by_rank: dict[Rank, Sight]) -> str:
    wait = waits_in(by_rank[ranks[0]].stack)
    call = f" in {wait.function.rpartition('.')[2]}" if wait is not None else ""
    return f"{_ranks(ranks)} wait{'s' if len(ranks) == 1 else ''}{call}"


def _ranks(ranks: Sequence[Rank]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
