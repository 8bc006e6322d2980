"""Specs of the nodes of this machine: declared virtual nodes, or the machine itself."""

import platform
from collections.abc import Sequence

from penstock.core.config.nodes import VirtualNode
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Device, Resources
from penstock.core.order.extension import NAME_CHARACTERS

PORTS_FIRST = 21_000
PORTS_PER_NODE = 200


def this_machine() -> VirtualNode:
    """Return the machine itself as the only node."""
    host = "".join(c if c in NAME_CHARACTERS else "-" for c in platform.node())[:63]
    return VirtualNode(name=host.lstrip(".") or "localhost")


def specs(
    nodes: Sequence[VirtualNode], host: Resources, real: Sequence[Device], fake: Sequence[tuple[Device, ...]]
) -> list[NodeSpec]:
    """Return what each node offers, with rendezvous ports that no two of them share.

    Args:
        host: of the machine; a quantity of 0 of a node stands for all of it.
        real: the machine's own devices: they belong to the first node.
        fake: simulated devices of each node.
    """
    found = []
    for index, node in enumerate(nodes):
        capacity = Resources(
            cpu_milli=node.cpu_milli or host.cpu_milli,
            memory_bytes=node.memory_bytes or host.memory_bytes,
            storage_bytes=node.storage_bytes or host.storage_bytes,
        )
        own = tuple(real) if index == 0 and not fake[index] else ()
        spec = NodeSpec(
            name=NodeName(node.name),
            capacity=capacity,
            devices=fake[index] or own,
            pool=node.pool,
            labels=node.labels,
            rack=node.rack,
            switch=node.switch,
            port_first=PORTS_FIRST + index * PORTS_PER_NODE,
            port_count=PORTS_PER_NODE,
            virtual=len(nodes) > 1 or bool(node.simulated_count),
        )
        found.append(spec)
    return found
