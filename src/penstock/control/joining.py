"""Nodes of other machines: declared, joined, drained and removed. What engines that bring agents to machines call."""

import datetime as dt
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from penstock.control import messages as msg
from penstock.control.inbox import InboxFull
from penstock.control.service import ControlService
from penstock.core.messages.reports import NodeReport
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.ids import NodeName, UserName
from penstock.engines.agent.joined import DeclaredNode, JoinBundle, ServerAddress, mark_of
from penstock.engines.agent.protocol import ServerCertificate
from penstock.engines.joined.records import JoinedNode, JoinedNodes
from penstock.engines.processes.paths import DataFolder
from penstock.ports import Clock
from penstock.security.authority import CertificateError, fingerprint_in
from penstock.security.keeper import CertificateKeeper

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
VALID_MS = 24 * HOUR_MS
VALID_MAX_MS = 30 * VALID_MS
NODES_MAX = 5_000
CLEARED_MAX = 1_000
"""Nodes that are taken from the list at once."""
ENGINE_USER = UserName("engine")


class Links(Protocol):
    """What of the agents' connections is needed here."""

    def connected(self) -> set[NodeName]: ...

    def drop(self, node: NodeName) -> None: ...


class Joining:
    """Declares nodes and lets their agents in. Any thread; what works on files says so.

    Args:
        is_own: whether a node is one of the server's machine: another machine cannot have its name.
        service, links: return the control loop, and the agents' connections.
    """

    def __init__(
        self,
        data: DataFolder,
        clock: Clock,
        records: JoinedNodes,
        is_own: Callable[[NodeName], bool],
        service: Callable[[], ControlService | None],
        links: Callable[[], Links],
    ) -> None:
        self._data, self._clock, self._is_own = data, clock, is_own
        self._service, self._links = service, links
        self._keeper = CertificateKeeper(data.certificates)
        self.records = records
        self.addresses: Sequence[ServerAddress] = ()
        """Where this server listens for agents; set once it does."""
        self._said: tuple[str, Sequence[ServerAddress], tuple[str, ...]] = ("", (), ())
        """What nodes are told, and what of."""

    # For administrators and engines.

    def declare(self, node: DeclaredNode, *, valid_ms: int = VALID_MS) -> JoinBundle:
        """Return a bundle with which one machine may join as `node`; a former one of this name is void. Works on files.

        Raises: InvalidInput for a name that is taken, or while this server does not listen for agents; OSError.
        """
        if self._is_own(node.name):
            raise InvalidInput(f"'{node.name}' is a node of the server's own machine", hint="give it another name")
        if not 0 < valid_ms <= VALID_MAX_MS:
            raise InvalidInput(f"a bundle is valid for up to {VALID_MAX_MS // VALID_MS} days, not for {valid_ms} ms")
        if not self.addresses:
            raise InvalidInput("this server does not listen for agents: it waits as a standby", hint="ask the leader")
        if self.records.get(node.name) is None and len(self.records) >= NODES_MAX:
            raise InvalidInput(f"{NODES_MAX} nodes are declared, no more are kept", hint="penstock node remove NAME")
        certificate, key = self._keeper.sign_join(node.name, self._now(), dt.timedelta(milliseconds=valid_ms))
        trusted = self._data.trusted.read_text(encoding="ascii")
        self.records.declare(node, key)
        log.info("a node is declared", extra={"node": node.name, "engine": node.engine})
        until_ms = self._clock.unix_ms() + valid_ms
        return JoinBundle(node.name, tuple(self.addresses), trusted, certificate.decode("ascii"), until_ms)

    def remove(self, name: NodeName) -> bool:
        """Let nobody speak for a node any more; return whether it was declared. Works on files.

        Its programs end with its lease, if they live.
        """
        removed = self.records.remove(name)
        if removed:
            self._links().drop(name)
        return removed

    def declared(self) -> list[JoinedNode]:
        """Return all declared nodes, by name."""
        return self.records.all()

    def connected(self) -> frozenset[NodeName]:
        """Return the nodes that have a session now."""
        return frozenset(self._links().connected())

    def going(self, name: NodeName, *, deadline_ms: int | None, reason: str) -> None:
        """Close a node to new work; with a deadline (unix ms) what runs there is asked to save and move at once."""
        self._ask(msg.Drain(name, True, ENGINE_USER, reason, deadline_ms is not None))

    def gone(self, name: NodeName, reason: str) -> None:
        """Let a node be lost now: it is proven that no process of it lives. Where it is not, its lease decides."""
        self._links().drop(name)
        service = self._service()
        node = service.controller.state.nodes.get(name) if service is not None else None
        if node is None or node.state == "lost" or service is None:
            return
        log.info("a node is gone: %s", reason, extra={"node": name})
        report = NodeReport(name, node.incarnation, self._clock.unix_ms() * 1_000_000, inventory=True, leaving=True)
        service.on_report(report, _NoSession())

    def clear(self, engine: str, kept: Collection[NodeName]) -> None:
        """Take from the list what an engine has brought and is lost, but `kept`: what lent these nodes is over.

        May be repeated: of those on which an attempt has a place still the list is cleared later.
        """
        service = self._service()
        nodes = service.controller.state.nodes.copy() if service is not None else {}
        lost = (name for name, node in nodes.items() if node.spec.engine == engine and node.state == "lost")
        over = tuple(name for name in lost if name not in kept)[:CLEARED_MAX]
        if over:
            self._ask(msg.RemoveNodes(over, "what has lent it is over"))

    def _ask(self, request: msg.Request) -> None:
        service = self._service()
        try:
            if service is not None:
                service.ask(request)
        except InboxFull:
            log.warning("the server is busy: a node is not drained yet")

    # For the agents' connections.

    def refusal(self, node: NodeName, certificate: bytes) -> str:
        """Return why an agent with this certificate (DER) may not speak for `node`, or ''."""
        if self._is_own(node):
            return ""
        return self.records.admits(node, fingerprint_in(certificate))

    def renewed(self, node: NodeName, request: str) -> ServerCertificate:
        """Answer a node's request for a certificate. Works on files."""
        try:
            if self._is_own(node):
                return ServerCertificate(problem="nodes of the server's machine get theirs from its data folder")
            chain, key, from_ms = self._keeper.sign_request(node, request.encode(), self._now())
            if not self.records.renew(node, key):
                return ServerCertificate(problem=f"node '{node}' is not declared here any more")
            trusted = self._data.trusted.read_text(encoding="ascii")
        except (CertificateError, OSError) as error:
            log.error("no certificate for a node: %s", error, extra={"node": node})
            return ServerCertificate(problem=error.message if isinstance(error, PenstockError) else "a fault here")
        return ServerCertificate(chain.decode("ascii"), trusted, from_ms)

    def servers(self, node: NodeName) -> tuple[str, ...]:
        """Return where a node of another machine may find servers: here, and where `agent_servers` says."""
        if not self.records.declares(node):
            return ()
        service = self._service()
        text = service.controller.state.config.settings.agent_servers if service is not None else ""
        if self._said[:2] != (text, self.addresses):
            others = text.replace(",", " ").split()
            self._said = text, self.addresses, tuple(dict.fromkeys((*map(str, self.addresses), *others)))
        return self._said[2]

    def trusted_mark(self) -> str:
        return mark_of(self._data.trusted)

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock.unix_ms() / 1000, dt.UTC)


class _NoSession:
    """Takes the answer to a report that no agent has sent."""

    def welcome(self, epoch: object, lease_ms: int, heartbeat_ms: int) -> None: ...

    def taken(self, report_seq: int, orders: object, *, accepted: bool) -> None: ...

    def refuse(self, reason: str) -> None: ...

    def close(self) -> None: ...
