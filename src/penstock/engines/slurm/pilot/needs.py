"""How many nodes of an allocation the waiting jobs need: they are packed into fresh ones, gangs whole or not at all."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.core.model.cluster import Node, NodeSpec
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import Incarnation
from penstock.core.place.capacity import NodeCapacity, empty, shape_of
from penstock.core.place.fit import Need, capacity, needs_of, put_on, refusal
from penstock.core.status.scaleout import Missing

GANGS_MAX = 2_000
"""Gangs of one shape that are packed at a time: the rest is packed once these have started."""


class Needed(NamedTuple):
    """What waiting jobs need."""

    nodes: int
    """Fresh ones."""
    nodes_of: dict[GangAsk, int]
    """Of each shape, how many nodes its jobs need."""
    never: dict[GangAsk, str]
    """Shapes that the most nodes that may be held cannot hold, and the reason code."""


def nodes_needed(missing: Sequence[Missing], fresh: NodeSpec, most: int) -> Needed:
    """Return how many fresh nodes hold the missing jobs, the longest wait first; those beyond `most` are left out.

    Args:
        fresh: what a node of an allocation offers.
        most: nodes that may be held in all: a gang that needs more never starts.
    """
    bare = empty(shape_of(Node(fresh, Incarnation(""), state="ready")))
    nodes: list[NodeCapacity] = []
    needed: dict[GangAsk, int] = {}
    never: dict[GangAsk, str] = {}
    for one in missing:
        if one.ask.pool != fresh.pool:
            continue
        why = _never(one.ask, bare, most)
        if why:
            never[one.ask] = why
            continue
        before = len(nodes)
        nodes = _with_all(nodes, one, bare, most)
        needed[one.ask] = max(1, len(nodes) - before)
    return Needed(len(nodes), needed, never)


def _with_all(nodes: list[NodeCapacity], one: Missing, bare: NodeCapacity, most: int) -> list[NodeCapacity]:
    """Return the nodes with as many of these gangs on them as fit."""
    if one.ask.replica_total == 1:
        return _spread_out(nodes, needs_of(one.ask)[0][0], one.count, bare, most)
    for _ in range(min(one.count, GANGS_MAX)):
        held = _with_gang(nodes, one.ask, bare, most)
        if held is None:
            break
        nodes = held
    return nodes


def _spread_out(nodes: list[NodeCapacity], need: Need, left: int, bare: NodeCapacity, most: int) -> list[NodeCapacity]:
    """Return the nodes with as many of `left` jobs of one replica on them as fit."""
    found: list[NodeCapacity] = []
    for free in (*nodes, *((bare,) * max(0, most - len(nodes)))):
        if not left and len(found) >= len(nodes):
            break
        free, placed = _filled(need, free, left) if left else (free, 0)
        left -= placed
        found.append(free)
    return found


def _never(ask: GangAsk, bare: NodeCapacity, most: int) -> str:
    for need, _ in needs_of(ask):
        if why := refusal(need, bare):
            return why
    return "gang_short" if _with_gang([], ask, bare, most) is None else ""


def _with_gang(nodes: list[NodeCapacity], ask: GangAsk, bare: NodeCapacity, most: int) -> list[NodeCapacity] | None:
    """Return the nodes with one more gang on them, new ones last; None: `most` cannot hold it."""
    found = list(nodes)
    spread = ask.topology is not None and ask.topology.scope == "spread"
    for need, replicas in _parts(ask):
        left = replicas
        for at, free in enumerate(found):
            if not left:
                break
            found[at], placed = _filled(need, free, 1 if spread else left)
            left -= placed
        while left:
            if len(found) >= most:
                return None
            free, placed = _filled(need, bare, 1 if spread else left)
            if not placed:
                return None
            found.append(free)
            left -= placed
    return found


def _parts(ask: GangAsk) -> Iterable[tuple[Need, int]]:
    return needs_of(replace(ask, replicas_max=0) if ask.replicas_max else ask)


def _filled(need: Need, free: NodeCapacity, most: int) -> tuple[NodeCapacity, int]:
    count = capacity(need, free, most)
    if not count:
        return free, 0
    put = put_on(need, free, count)
    return (put[0], count) if put is not None else (free, 0)
