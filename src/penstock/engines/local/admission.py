"""What the server knows of nodes before their agents say anything, and what it registers of what these say."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from penstock.core.lifecycle.registering import absurd, believed
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Incarnation, NodeName
from penstock.engines.local.launch import node_config
from penstock.engines.local.paths import DataFolder

log = logging.getLogger(__name__)


class Admission:
    """Cuts what agents say of their nodes to what is known of these.

    A node that the server runs is known as it was declared. Any other has a certificate because somebody who may write
    in the data folder added it: it is known as its agent was started there (`agent.json`). Of one without even that
    nothing is known but its name; what it says is bounded.

    Args:
        nodes: those that the server runs.
        measured: those whose storage was not declared: what is free on the disk changes, its size is the bound.
    """

    def __init__(self, data: DataFolder, nodes: Sequence[NodeSpec], measured: Collection[str] = ()) -> None:
        self._data, self._measured = data, frozenset(measured)
        self._declared = {spec.name: spec for spec in nodes}
        self.on_more: Callable[[NodeName, str], None] = lambda node, text: None
        """Told of a node that says more than is known of it, and in which fields; each time that the fields change."""
        self._told: dict[NodeName, tuple[str, ...]] = {}
        """What was said last of nodes that claim more than they have."""

    def refusal(self, said: NodeSpec, incarnation: Incarnation) -> str:
        """Return why an agent is not taken in at all, or ''."""
        wrong = absurd(said, incarnation)
        return f"what the agent says of its node cannot be: {wrong}" if wrong else ""

    def registered(self, said: NodeSpec) -> NodeSpec:
        """Return what is registered of a node; that it said more than is known is logged, once."""
        known = self._known(said.name)
        if known is None:
            return said
        spec, more = believed(said, known)
        if more and self._told.get(said.name) != more:
            log.warning("node says more than is known of it", extra={"node": said.name, "fields": more})
            self.on_more(said.name, f"more or other than is known: {', '.join(more)}")
        self._told[said.name] = more
        return spec

    def _known(self, name: NodeName) -> NodeSpec | None:
        declared = self._declared.get(name)
        if declared is not None and name not in self._measured:
            return declared
        if declared is not None:
            size = shutil.disk_usage(self._data.root).total
            return replace(declared, capacity=replace(declared.capacity, storage_bytes=size))
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return node_config(self._data.node(name) / "agent.json").spec
        return None
