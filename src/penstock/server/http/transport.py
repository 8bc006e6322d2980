"""Where the API listens, and by which certificate: options checked, addresses named, sockets and TLS settings made."""

import contextlib
import errno
import ipaddress
import logging
import os
import secrets
import socket
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from penstock.core.model.errors import InvalidInput
from penstock.starts import whole

log = logging.getLogger(__name__)

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
    """Plain HTTP, although others can reach it."""
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
            f"plain HTTP on {transport.host} would send tokens over the network unencrypted",
            hint="add --tls (or --certificate and --key); --insecure where something else encrypts in between",
        )
    return transport


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address, or all addresses of the name."""
    return all(ipaddress.ip_address(address).is_loopback for address in _addresses(host))


def is_unspecified(host: str) -> bool:
    """Return whether the host stands for all addresses of this machine."""
    return any(ipaddress.ip_address(address).is_unspecified for address in _addresses(host))


def local_host(host: str) -> str:
    """Return how a client on this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on


def advertised(transport: Transport, port: int) -> str:
    """Return the URL under which others are to find this server."""
    host = transport.host
    if is_unspecified(host):
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


def listen_in(folder: Path) -> tuple[socket.socket, Path] | None:
    """Return a listening Unix socket in a data folder that only its owner can use, and where it is.

    What killed servers have left there is removed: call it while no other server starts.

    Returns: None on a file system that knows no sockets, or no modes.
    """
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    name = f"api-{os.getpid()}-{secrets.token_hex(4)}.sock"
    short = _short(held, name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(folder, held)
        listener.bind(short)
        os.chmod(short, 0o600)  # no connections before it listens
        if stat.S_IMODE(os.stat(short).st_mode) != 0o600:
            raise OSError(errno.EPERM, "anybody could connect")
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(short)
        log.warning("no Unix socket in %s (%s): clients of the folder use TCP", folder, error.strerror)
        return None
    finally:
        os.close(held)
    return listener, folder / name


def _remove_stale(folder: Path, held: int) -> None:
    for path in folder.glob("api-*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.setblocking(False)
            try:
                link.connect(_short(held, path.name))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:  # it lives, and is busy
                continue


def _short(held: int, name: str) -> str:
    """Return a path in an open folder: that of the folder itself may be too long for a socket (108 bytes)."""
    return f"/proc/self/fd/{held}/{name}"


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
