"""Nodes."""

from penstock.engines.kubernetes.objects.common import Amounts, Condition, Metadata, Wire


class Taint(Wire, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Wire, frozen=True):
    type: str
    address: str


class NodeStatus(Wire, frozen=True):
    allocatable: Amounts = {}
    capacity: Amounts = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(Wire, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
