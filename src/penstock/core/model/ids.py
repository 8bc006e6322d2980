"""Distinct types for identifiers, so that a job number cannot be passed for an attempt number."""

from typing import NewType

JobId = NewType("JobId", int)
AttemptNumber = NewType("AttemptNumber", int)
Rank = NewType("Rank", int)
NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
QueueName = NewType("QueueName", str)
TenantName = NewType("TenantName", str)
UserName = NewType("UserName", str)
Epoch = NewType("Epoch", int)
"""Number of a controller's term: only the newest may commit."""
Incarnation = NewType("Incarnation", str)
"""One life of a node's agent state: a node that lost its processes comes back under another one."""
ClassId = NewType("ClassId", int)
"""Interned request class: jobs that are alike for the scheduler share it."""

DEFAULT_QUEUE = QueueName("default")
DEFAULT_POOL = PoolName("default")
DEFAULT_TENANT = TenantName("default")


SERVER_IDENTITY = "penstock-server"
"""The server answers its agents under this name, wherever it listens."""


NODE_NAME_MAX = 255
"""Bytes: a node has a folder of its name."""


_NODE_PREFIX = "penstock:node:"


def is_node_name(name: str) -> bool:
    """Return whether a node can have this name: it becomes a folder's, a control group's, and part of messages.

    Not empty, no `/`, nothing that does not print; `.`, `..` and other names that begin with a dot are none either.
    """
    plain = name.isprintable() and not name.startswith(".") and "/" not in name
    return plain and 0 < len(name.encode()) <= NODE_NAME_MAX


def node_identity(node: NodeName) -> str:
    """Return the name (a URI) by which the certificate of `node` names it."""
    return _NODE_PREFIX + node


def node_named(identity: str) -> NodeName | None:
    """Return the node that a certificate's URI names, or None when it names none."""
    name = identity.removeprefix(_NODE_PREFIX)
    return NodeName(name) if name != identity and is_node_name(name) else None
