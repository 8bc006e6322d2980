"""Where the API listens, and by which certificate: options checked, addresses named, sockets and TLS settings made."""

import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from penstock.core.errors import InvalidInput
from penstock.starts import whole

LOOPBACK = ("127.0.0.1", "::1")
BACKLOG = 1024
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all sound."""


class Transport(msgspec.Struct, frozen=True):
    """How the API is reached."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    insecure: bool = False
    """Plain HTTP is wished for although others can reach it."""
    certificate: Path | None = None
    """A certificate (with its chain) given from outside; else the server's own authority signs one."""
    key: Path | None = None
    names: tuple[str, ...] = ()
    """Further names and addresses that clients use."""

    @property
    def secure(self) -> bool:
        return self.tls or self.certificate is not None


def transport_of(raw: Mapping[str, Any]) -> Transport:
    """Return the transport that the options of a server process describe."""
    return Transport(
        host=raw.get("host", "127.0.0.1"),
        port=raw.get("port", 0),
        tls=raw.get("tls", False),
        insecure=raw.get("insecure", False),
        certificate=whole(raw["certificate"]) if raw.get("certificate") else None,
        key=whole(raw["key"]) if raw.get("key") else None,
        names=tuple(raw.get("names", ())),
    )


def checked(transport: Transport) -> Transport:
    """Return the transport if it may be used.

    Raises: InvalidInput when it would send tokens in the clear over a network, or contradicts itself.
    """
    if (transport.certificate is None) != (transport.key is None):
        raise InvalidInput(
            "a certificate needs its key, and a key its certificate", hint="give --certificate and --key"
        )
    if transport.secure and transport.insecure:
        raise InvalidInput("--insecure and --tls contradict each other", hint="leave one of them out")
    if not transport.secure and not transport.insecure and not is_loopback(transport.host):
        raise InvalidInput(
            f"plain HTTP on {transport.host} would send tokens over the network for everybody to read",
            hint="add --tls (or --certificate and --key); --insecure where something else encrypts in between",
        )
    return transport


def is_loopback(host: str) -> bool:
    """Return whether nobody outside this machine reaches the address, or any that the name stands for."""
    return all(ipaddress.ip_address(address).is_loopback for address in _addresses(host))


def local_host(host: str) -> str:
    """Return how a client on this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on


def advertised(transport: Transport, port: int) -> str:
    """Return the URL under which others are to find this server."""
    host = transport.host
    if any(ipaddress.ip_address(address).is_unspecified for address in _addresses(host)):
        host = next(iter(transport.names), socket.gethostname())
    return f"{'https' if transport.secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def names_of_server(transport: Transport) -> list[str]:
    """Return names and addresses that clients may use, those that were asked for first."""
    addresses = _addresses(transport.host)
    found = [*transport.names, *([] if _is_address(transport.host) else [transport.host])]
    found += [socket.gethostname(), "localhost"]
    if any(ipaddress.ip_address(address).is_unspecified for address in addresses):
        addresses = [a.address for each in psutil.net_if_addrs().values() for a in each if _is_address(a.address)]
    for address in (*LOOPBACK, *addresses):
        if not ipaddress.ip_address(address).is_link_local:
            found.append(address)
    return list(dict.fromkeys(str(ipaddress.ip_address(n)) if _is_address(n) else n for n in found))


def listen(transport: Transport) -> socket.socket:
    """Return a listening socket. Raises: InvalidInput when the address cannot be taken."""
    where = f"{transport.host}:{transport.port}"
    try:
        family, kind, protocol, _, address = _resolved(transport.host, transport.port)[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY by the protocol
    except OSError as error:
        raise InvalidInput(f"cannot listen on {where}: {error.strerror}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise InvalidInput(f"cannot listen on {where}: {error.strerror}", hint="--port 0 takes a free one") from error
    listener.listen(BACKLOG)
    return listener


def api_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Return the TLS settings of the API: 1.2 at least, with forward secrecy.

    Args:
        key: in a file of its own, or None when the certificate's file has it.
    Raises: OSError (ssl.SSLError) when a file is missing or bad, or its key has a password.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.load_cert_chain(certificate, key, password=lambda: "")  # never ask at the terminal
    return context


def stamps(files: Sequence[Path]) -> tuple[tuple[int, int], ...]:
    """Return something that differs once one of the files was replaced or written."""
    found = []
    for file in files:
        try:
            known = os.stat(file)
            found.append((known.st_ino, known.st_mtime_ns))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def _resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
    return [(family, kind, proto, name, (str(to[0]), int(to[1]))) for family, kind, proto, name, to in found]


def _addresses(host: str) -> list[str]:
    """Return the addresses that a host stands for. Raises: InvalidInput when there are none."""
    try:
        return [address[0].partition("%")[0] for *_, address in _resolved(host, 0)]
    except OSError as error:
        raise InvalidInput(f"'{host}' is no address of a machine: {error.strerror}") from error


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
