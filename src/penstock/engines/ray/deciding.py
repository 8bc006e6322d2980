"""What follows from what Ray shows: which nodes get holders and agents, which are closed, opened and forgotten.

Theory. Ray says early that a node goes; it never proves that our agent is dead. So its word closes a node to new work,
and only the lease, or the agent's own goodbye, ends what runs there. An agent that lives where its Ray node has died
goes on with its jobs: the next Ray node of that machine that holds the same takes it over. Nothing here waits or keeps
state: what is under way is seen in what the driver says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.engines.ray.records import (
    Action,
    Adopt,
    Amounts,
    Forget,
    FoundAgent,
    Going,
    Hold,
    Holder,
    Join,
    KnownNode,
    Open,
    RayNode,
    Release,
    Seen,
    StopAgent,
)

HOLD_WAIT_S = 30.0
"""For Ray to place a holder; what is free may have been taken meanwhile."""
FAILED_PAUSE_S = 10.0
ABSENT_S = 60.0
"""A node that the cluster does not list may still be found by a new holder of its machine for so long."""
MILLI = 1000


class View(NamedTuple):
    """All that a decision depends on."""

    seen: Seen
    known: Mapping[str, KnownNode]
    places: Mapping[str, str]
    """The Ray node of each known node, as far as it was seen."""
    absent_s: Mapping[str, float]
    """For how long a known node's Ray node has not been alive."""
    share_milli: int
    """Of each node, what Penstock may hold."""
    wanted: bool = False
    """Jobs wait for capacity: no node is given back."""
    idle_release_s: float = 0.0
    """Nodes that are idle for longer are given back; 0: none is."""
    released: frozenset[str] = frozenset()
    """Ray nodes that were given back."""
    local_only: str = ""
    """The host that agents can reach this server from; '' where they can from all."""


def decide(view: View) -> list[Action]:
    """Return what is to be done now; the same again until it is seen to be done."""
    actions: list[Action] = []
    # Ray calls a killed raylet alive for 15 s and more; the next one of its machine may be there before that.
    alive = {node.id for node in view.seen.nodes if node.alive and node.answers}
    for node in sorted(view.seen.nodes, key=lambda one: one.id):
        if node.alive:
            actions += _of_living(node, alive, view)
    for name in sorted(view.known):
        actions += _of_known(view.known[name], view)
    return actions


def share_of(total: Amounts, free: Amounts, share_milli: int) -> Amounts:
    """Return what may be held of a node: its share, as far as others have left it."""
    return Amounts(
        min(total.cpus * share_milli // MILLI, free.cpus),
        min(total.gpus * share_milli // MILLI, free.gpus),
        min(total.memory_bytes * share_milli // MILLI, free.memory_bytes),
    )


def new_name(node: RayNode) -> str:
    """Return the name of a node that is made of a Ray node."""
    return f"ray-{node.id[:12]}"


def _of_living(node: RayNode, alive: set[str], view: View) -> Iterator[Action]:
    if node.draining_until_ms or not node.answers or node.id in view.released:
        return
    if view.local_only and node.host != view.local_only:
        return
    holder = node.holder
    if holder is None or (holder.state == "failed" and view.seen.now_s - holder.since_s > FAILED_PAUSE_S):
        held = share_of(node.total, node.free, view.share_milli)
        if held.cpus >= 1 and held.memory_bytes > 0:
            yield Hold(node.id, held)
    elif holder.state == "asked":
        if view.seen.now_s - holder.since_s > HOLD_WAIT_S:
            yield Release(node.id)  # a pending actor is demand, and would wait for ever
    elif holder.state == "ready" and not holder.busy:
        yield from _of_holder(node, holder, alive, view)


def _of_holder(node: RayNode, holder: Holder, alive: set[str], view: View) -> Iterator[Action]:
    own = next((agent for agent in holder.agents if agent.node == node.id and agent.name in view.known), None)
    if own is not None:
        known = view.known[own.name]
        if not own.lives:
            yield Join(node, own.name, holder.amounts, holder.devices, again=True)
        elif _is_to_be_released(known, view):
            yield Release(node.id)
        elif known.closed:
            yield Open(own.name)
        return
    strangers = [agent for agent in holder.agents if agent.name not in view.known]  # forgotten ones, dead or alive
    left = [agent for agent in holder.agents if agent.lives and agent.name in view.known and agent.node not in alive]
    for agent in strangers:
        yield StopAgent(node.id, agent.name)
    if strangers:
        return
    same = next((agent for agent in left if _holds_same(agent, holder)), None)
    if same is not None:
        yield Adopt(node, same.name, holder.amounts, holder.devices)
        return
    for agent in left:
        if view.known[agent.name].idle_s > 0:
            yield StopAgent(node.id, agent.name)
    if not any(set(agent.devices) & set(holder.devices) for agent in left):
        yield Join(node, new_name(node), holder.amounts, holder.devices)


def _holds_same(agent: FoundAgent, holder: Holder) -> bool:
    return (agent.amounts.cpus, agent.devices) == (holder.amounts.cpus, holder.devices)


def _is_to_be_released(known: KnownNode, view: View) -> bool:
    return bool(view.idle_release_s) and not view.wanted and known.idle_s > view.idle_release_s


def _of_known(known: KnownNode, view: View) -> Iterator[Action]:
    place = view.places.get(known.name, "")
    node = next((one for one in view.seen.nodes if one.id == place), None)
    if node is not None and node.alive and node.draining_until_ms:
        reason = f"Ray drains node {place[:12]}"
        if known.closed != reason:
            yield Going(known.name, node.draining_until_ms, reason)
    elif node is not None and node.alive and not node.answers:
        reason = f"the raylet of Ray node {place[:12]} is not there"
        if not known.closed:
            yield Going(known.name, None, reason)
    elif node is None or not node.alive:
        absent_s = view.absent_s.get(known.name, 0.0)
        if known.lost and not known.connected and absent_s > ABSENT_S:
            yield Forget(known.name)
        elif not known.closed and (node is not None or absent_s > ABSENT_S):
            why = f": {node.reason}" if node is not None and node.reason else ""
            yield Going(known.name, None, f"Ray node {place[:12] or 'unknown'} is dead{why}")


def bundles(held: Sequence[Amounts], missing: Sequence[Amounts]) -> tuple[Amounts, ...]:
    """Return the bundles of which Ray's autoscaler has to see room for all: it counts what is in use, too."""
    return (*held, *missing) if missing else ()
