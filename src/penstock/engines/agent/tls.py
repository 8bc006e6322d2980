"""Mutual TLS between server and agents: TLS 1.3 only, both sides with certificates of the server's own authority."""

import ssl
from pathlib import Path
from typing import Any

from penstock.core.model.ids import SERVER_IDENTITY, NodeName, node_named

_READ_BYTES = 1 << 16


def server_context(trusted: Path, own: Path) -> ssl.SSLContext:
    """Return the settings of the server's end: a client needs a certificate of a trusted authority.

    Raises: OSError (ssl.SSLError) when a file is missing or bad.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # a resumed session would not have its certificate checked against a new list
    context.load_verify_locations(trusted)
    context.load_cert_chain(own)
    return context


def agent_context(trusted: Path, own: Path) -> ssl.SSLContext:
    """Return the settings of an agent's end. Raises: OSError (ssl.SSLError) when a file is missing or bad."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(trusted)
    context.load_cert_chain(own)
    return context


def node_of(certificate: Any) -> NodeName | None:
    """Return the node that a peer's checked certificate (`getpeercert`) names, or None when it names none."""
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        named = node_named(value) if kind == "URI" else None
        if named is not None:
            return named
    return None


class Channel:
    """An agent's TLS connection without its socket: bytes go in, bytes come out, nothing ever waits."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=SERVER_IDENTITY)
        self._begun = False
        self._waiting = bytearray()
        self.ended = False
        """The server has said that it sends nothing more."""

    def send(self, data: bytes) -> None:
        """Take data for the server. Raises: ssl.SSLError."""
        self._waiting += data
        self._go_on()

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the wire and return the decrypted bytes. Raises: ssl.SSLError."""
        self._in.write(data)
        self._go_on()
        found = bytearray()
        while self._begun and not self.ended:
            try:
                piece = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                piece = b""
            self.ended = not piece
            found += piece
        return bytes(found)

    def to_wire(self) -> bytes:
        """Return the bytes to be sent."""
        return self._out.read()

    def _go_on(self) -> None:
        if not self._begun:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return
            self._begun = True
        while self._waiting:
            del self._waiting[: self._tls.write(self._waiting)]
