"""Ports of attempts: one for the rendezvous, and those that the job names."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd

from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.state.state import State


def free_port(state: State, node: NodeName) -> int:
    """Return a rendezvous port of `node` that no live attempt has, going round the node's range; 0 where none is."""
    return next(_free(state, node), 0)


def free_ports(state: State, places: Sequence[ReplicaPlace], count: int, port: int) -> tuple[int, ...]:
    """Return `count` ports for each replica that no live attempt has, by rank; 0 where a node has none left.

    Args:
        port: the rendezvous port at the first place, which is given already.
    """
    if not count:
        return ()
    free = {place.node: _free(state, place.node) for place in places}
    if port:
        next(free[places[0].node])  # that one
    return tuple(next(free[place.node], 0) for place in places for _ in range(count))


GOLDEN_MILLI = 618


@lru_cache
def stride_of(count: int) -> int:
    """Return a step that visits each of `count` ports once, and spreads any few visits in a row over all of them.

    Source: Fibonacci hashing, Knuth, The Art of Computer Programming 3, 6.4.
    """
    return next((step for step in range(count * GOLDEN_MILLI // 1000, 1, -1) if gcd(step, count) == 1), 1)


def _free(state: State, node: NodeName) -> Iterator[int]:
    """Yield the free ports of a node, neighbours far from each other: a program that took a block of the range without
    being given it costs others one further try, not one for each port of the block.
    """
    spec, used = state.nodes[node].spec, state.indexes.ports
    stride = stride_of(spec.port_count)
    for step in range(spec.port_count):
        port = spec.port_first + (state.next_port + step) * stride % spec.port_count
        if (node, port) not in used:
            yield port
