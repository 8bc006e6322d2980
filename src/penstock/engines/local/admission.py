"""Admission of nodes: an agent's claims are cut to the server's own record of its node."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from penstock.core.lifecycle.registering import absurd, believed
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Incarnation, NodeName
from penstock.engines.joined.records import JoinedNodes, bounded
from penstock.engines.local.launch import node_config
from penstock.engines.processes.paths import DataFolder
from penstock.ports import EngineEvents, NodeSession

log = logging.getLogger(__name__)


class Admission:
    """Cuts agents' claims to the server's record of their nodes.

    The record of a node that the server runs is its declaration. Any other has a certificate because a user who may
    write in the data folder added it: its record is the agent's configuration there (`agent.json`). Of a node without
    one only the name is known; its claims are bounded.

    Args:
        nodes: the server's own.
        measured: nodes without declared storage: free disk space changes, the size of the disk is the bound.
        joined: the record of nodes of other machines.
    """

    def __init__(
        self,
        data: DataFolder,
        nodes: Sequence[NodeSpec],
        measured: Collection[str] = (),
        joined: JoinedNodes | None = None,
    ) -> None:
        self._data, self._measured, self._joined = data, frozenset(measured), joined
        self._declared = {spec.name: spec for spec in nodes}
        self.on_more: Callable[[NodeName, str], None] = lambda node, text: None
        """Called with a node that claims more than was declared, and the fields; each time that these change."""
        self._told: dict[NodeName, tuple[str, ...]] = {}
        """Fields last logged of nodes that claim too much."""

    def declare(self, spec: NodeSpec) -> None:
        """Take the server's newer record of a node that it runs. Any thread."""
        self._declared[spec.name] = spec

    def is_own(self, name: NodeName) -> bool:
        """Return whether a node is one of this machine: the server's own, or added by hand in its data folder."""
        return name in self._declared or (self._data.node(name) / "agent.json").exists()

    def refusal(self, said: NodeSpec, incarnation: Incarnation) -> str:
        """Return why an agent is not taken in at all, or ''."""
        wrong = absurd(said, incarnation)
        return f"what the agent says of its node cannot be: {wrong}" if wrong else ""

    def registered(self, said: NodeSpec) -> NodeSpec:
        """Return the spec to register for a node; a claim beyond its record is logged once."""
        known = self._known(said.name)
        if known is None:
            record = self._joined.get(said.name) if self._joined is not None else None
            return bounded(said, record.node) if record is not None else said
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


class CheckedEvents:
    """Checks what agents send before the control loop gets it: a node is registered as it is known, or rejected.

    Args:
        then: gets checked events.
        censored: returns a report without the values of secrets.
        on_refused: called with a node that is rejected, and the reason.
    """

    def __init__(
        self,
        then: EngineEvents,
        admission: Admission,
        censored: Callable[[NodeReport], NodeReport],
        on_refused: Callable[[NodeName, str], None],
    ) -> None:
        self._then, self._admission, self._censored, self._on_refused = then, admission, censored, on_refused

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None:
        if refusal := self._admission.refusal(spec, incarnation):
            session.refuse(refusal)
            self._on_refused(spec.name, refusal)
            return
        self._then.on_hello(self._admission.registered(spec), incarnation, session)

    def on_report(self, report: NodeReport, session: NodeSession) -> None:
        self._then.on_report(self._censored(report), session)
