"""How many nodes to ask Slurm for, which asks to cancel and which allocations to give back: pure.

Theory. Nodes that are missing are those that the waiting jobs need beside all that is there. An ask that is on its way
counts as if it had come, so nothing is asked for twice. Three things keep the number steady: a job has to have waited
for a moment before it counts, an ask has to have been of no use for a while before it is cancelled, and an allocation
has to have been idle for longer before it is given back. Asks that fail make the next one
wait, twice as long each time.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from penstock.engines.slurm.pilot.settings import PilotSettings

BACKOFF_MOST = 32
"""Times the first pause, at most."""
ASKS_MAX = 20
"""Asks of one decision: the next one comes a refresh later."""
Phase = Literal["asked", "held", "ending"]


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation as it counts here. Times in seconds since 1970."""

    number: str
    nodes: int
    phase: Phase
    """`asked`: it waits in Slurm's queue; `ending`: it was given back, or is about to end: it counts for nothing."""
    asked_s: float
    began_s: float = 0.0
    joined: int = 0
    """How many of its nodes are here."""
    lost: int = 0
    """How many were here and are lost: they do not come back."""
    idle_since_s: float = 0.0
    """Since when none of its nodes has run a job; 0: one runs."""


class Memory(msgspec.Struct, frozen=True):
    """What one decision leaves for the next."""

    surplus_since_s: float = 0.0
    """Since when more is asked for than is of use; 0: it is not."""
    failed: int = 0
    """Asks in a row that failed."""
    failed_s: float = 0.0


class Decision(NamedTuple):
    """What is to be done."""

    asks: tuple[int, ...]
    """How many nodes each new allocation is to have."""
    cancels: tuple[str, ...]
    """Asks that are of no more use."""
    returns: tuple[str, ...]
    """Allocations that are idle, or whose nodes have not come."""
    memory: Memory
    held_back: int = 0
    """Nodes that are missing and not asked for: `nodes_max` is reached."""
    again_s: float = 0.0
    """Asks failed: the next one is made then; 0: nothing is put off."""


def decide(
    settings: PilotSettings, allocations: Iterable[Allocation], missing: int, now_s: float, memory: Memory
) -> Decision:
    """Return what to ask for, to cancel and to give back.

    Args:
        missing: nodes that waiting jobs need beside those that have joined, as `needs.nodes_needed` counts them.
    """
    known = sorted(allocations, key=lambda one: (one.asked_s, one.number))
    asked = [one for one in known if one.phase == "asked"]
    held = [one for one in known if one.phase == "held"]
    returns = _returned(settings, held, asked, now_s)
    kept = [one for one in held if one.number not in returns]
    have = sum(one.nodes for one in kept)
    coming = sum(one.nodes for one in asked) + sum(max(0, one.nodes - one.joined - one.lost) for one in kept)
    joined = sum(min(one.joined, one.nodes) for one in kept)
    wanted = max(missing, settings.nodes_min - joined)
    surplus = coming - wanted
    cancels, since_s = _cancelled(settings, asked, surplus, now_s, memory)
    short = wanted - coming
    if short <= 0:
        return Decision((), cancels, returns, msgspec.structs.replace(memory, surplus_since_s=since_s))
    room = settings.nodes_max - have - sum(one.nodes for one in asked)
    count = max(0, min(short, room))
    left = msgspec.structs.replace(memory, surplus_since_s=since_s)
    again_s = _again_s(settings, memory)
    if count and again_s > now_s:
        return Decision((), cancels, returns, left, short - count, again_s)
    return Decision(_parts(count, settings.nodes_per_allocation), cancels, returns, left, short - count)


def after_ask(memory: Memory, now_s: float, *, ok: bool) -> Memory:
    """Return the memory after Slurm took an ask, or refused it."""
    if ok:
        return msgspec.structs.replace(memory, failed=0, failed_s=0.0)
    return msgspec.structs.replace(memory, failed=memory.failed + 1, failed_s=now_s)


def _again_s(settings: PilotSettings, memory: Memory) -> float:
    """Return when the next ask may be made (seconds since 1970)."""
    if not memory.failed:
        return 0.0
    return memory.failed_s + settings.backoff_s * min(BACKOFF_MOST, 1 << min(memory.failed - 1, 10))


def _parts(count: int, most: int) -> tuple[int, ...]:
    whole, rest = divmod(count, most)
    return (*((most,) * whole), *((rest,) if rest else ()))[:ASKS_MAX]


def _returned(
    settings: PilotSettings, held: Sequence[Allocation], asked: Sequence[Allocation], now_s: float
) -> tuple[str, ...]:
    """Return allocations to give back: those whose nodes have not come or are lost, then idle ones, oldest first."""
    late = [one for one in held if one.began_s and now_s - one.began_s >= settings.join_s]
    lame = [one for one in held if not one.joined and (one.lost or one in late)]
    found = [one.number for one in lame]
    left = sum(one.nodes for one in (*held, *asked)) - sum(one.nodes for one in lame)
    idle = [one for one in held if one.joined and one.idle_since_s and now_s - one.idle_since_s >= settings.idle_s]
    for one in sorted(idle, key=lambda one: (one.idle_since_s, one.asked_s, one.number)):
        if left - one.nodes >= settings.nodes_min:
            found.append(one.number)
            left -= one.nodes
    return tuple(found)


def _cancelled(
    settings: PilotSettings, asked: Sequence[Allocation], surplus: int, now_s: float, memory: Memory
) -> tuple[tuple[str, ...], float]:
    """Return asks to cancel, the newest first, and since when there is a surplus."""
    useless: list[str] = []
    left = surplus
    for one in reversed(asked):
        if one.nodes <= left:
            useless.append(one.number)
            left -= one.nodes
    if not useless:
        return (), 0.0
    since_s = memory.surplus_since_s or now_s
    return (tuple(useless), 0.0) if now_s - since_s >= settings.cancel_after_s else ((), since_s)
