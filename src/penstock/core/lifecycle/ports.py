"""Rendezvous ports of attempts."""

from penstock.core.model.ids import NodeName
from penstock.core.state.state import State


def free_port(state: State, node: NodeName) -> int:
    """Return a rendezvous port of `node` that no live attempt has, going round the node's range; 0 where none is."""
    spec, used = state.nodes[node].spec, state.indexes.ports
    for step in range(spec.port_count):
        port = spec.port_first + (state.next_port + step) % spec.port_count
        if (node, port) not in used:
            return port
    return 0
