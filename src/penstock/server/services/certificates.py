"""The server's certificates while it runs: made at the first start, renewed in time, taken up without a restart."""

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.ids import NodeName
from penstock.ports import Clock
from penstock.privatefiles import check, write_whole
from penstock.security.authority import CertificateError, IssuedCertificate, given_chain
from penstock.security.keeper import CertificateKeeper
from penstock.security.live import Live
from penstock.server.http.transport import Transport, api_context, local_host, names_of_server, stamps

log = logging.getLogger(__name__)

CHECK_S = 3.0
"""How often the files are looked at: others may have replaced them."""


class CertificateService:
    """Keeps certificates of server and nodes, and the TLS settings that come of them.

    Args:
        folder: where the authority and the server's certificate are kept.
        nodes: returns the path of each node's certificate; called at each check, for nodes may come.
        agents: makes the settings for connections of agents from the files as they are.
    Raises: CertificateError when the authority's file is spoilt; InvalidInput when a given certificate cannot be
        used, NotPrivate when others could have changed it.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Callable[[], Mapping[NodeName, Path]],
        transport: Transport,
        clock: Clock,
        agents: Callable[[], ssl.SSLContext],
    ) -> None:
        self._nodes, self._transport, self._clock = nodes, transport, clock
        self._keeper = CertificateKeeper(folder)
        self._ensure()
        self.agents = Live(agents)
        self.api = Live(self._api_context) if transport.secure else None
        self.on_change: Callable[[], None] = lambda: None
        """Called on the event loop when the trusted authorities change: agents have to reconnect."""
        self.on_replaced: Callable[[str], None] = lambda what: None
        """Called with what was replaced: `authority` or `certificate`."""
        self._seen = self._stamps()

    def announced(self, port: int) -> dict[str, object]:
        """Return the connection data of a client on this machine: address, TLS, trusted authority, server name."""
        host = local_host(self._transport.host)
        found: dict[str, object] = {"host": host, "port": port, "tls": self.api is not None}
        if self.api is not None and self._transport.certificate is not None:
            found |= {"ca": str(self._keeper.given_file), "server_name": _one_of(self._read_given().names, host)}
        elif self.api is not None:
            found |= {"ca": str(self._keeper.trusted_file), "server_name": host}
        return found

    async def keep(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.look()
            except (PenstockError, OSError) as error:  # the present ones stay in use
                log.error("certificates not renewed: %s", error)

    async def look(self) -> None:
        """Renew what is due and take up what is new. Raises: PenstockError or OSError, and changes nothing then."""
        await asyncio.to_thread(self._ensure)
        seen = self._stamps()
        if seen == self._seen:
            return
        self.agents.renew()
        if self.api is not None:
            self.api.renew()
        if seen[0] != self._seen[0]:
            self.on_change()
        self.on_replaced("authority" if seen[0] != self._seen[0] else "certificate")
        self._seen = seen
        log.info("certificates taken up")

    def _ensure(self) -> None:
        now = dt.datetime.fromtimestamp(self._clock.unix_ms() / 1000, dt.UTC)
        self._keeper.ensure(names_of_server(self._transport), self._nodes(), now)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        keeper, transport = self._keeper, self._transport
        given = [path for path in (transport.certificate, transport.key) if path is not None]
        return stamps([keeper.trusted_file, keeper.server_file, *given])

    def _api_context(self) -> ssl.SSLContext:
        given = self._transport.certificate
        if given is None:
            self._keeper.given_file.unlink(missing_ok=True)
            return api_context(self._keeper.server_file)
        for path in (given, self._transport.key):
            if path is not None:
                check(path)
        try:
            context = api_context(given, self._transport.key)
            write_whole(self._keeper.given_file, self._read_given().pem, 0o644)
        except (OSError, CertificateError) as error:
            hint = "PEM files; the certificate first, then its chain; the key without a password"
            raise InvalidInput(f"{given} and {self._transport.key} cannot be used: {error}", hint=hint) from error
        return context

    def _read_given(self) -> IssuedCertificate:
        assert self._transport.certificate is not None
        return given_chain(self._transport.certificate.read_bytes())


def _one_of(names: Sequence[str], host: str) -> str:
    """Return the name by which a certificate is checked: the address in use, else the first that it is for."""
    first = next((name for name in names if not name.startswith("*.")), names[0].replace("*", "penstock"))
    return host if host in names else first
