"""Names that certificates carry: the server's, and one for each node. Pure text; who signs is not known here."""

from penstock.core.model.ids import NodeName

SERVER_IDENTITY = "penstock-server"
"""The server answers its agents under this name, wherever it listens."""
_NODE_PREFIX = "penstock:node:"


def node_identity(node: NodeName) -> str:
    """Return the name (a URI) by which the certificate of `node` names it."""
    return _NODE_PREFIX + node


def node_named(identity: str) -> NodeName | None:
    """Return the node that a certificate's URI names, or None when it names none."""
    name = identity.removeprefix(_NODE_PREFIX)
    return NodeName(name) if name and name != identity else None
