"""Addresses of servers and what to trust there: from a data folder, or from a given address."""

import contextlib
import http.client
import ipaddress
import json
import os
import select
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.client import proof
from penstock.client.errors import NotProved, NotTrusted
from penstock.core.model.errors import InvalidInput


class Endpoint(NamedTuple):
    """Where a server answers, and how it is verified: by one of `security`, `unix` and `prove`."""

    host: str
    port: int
    security: ssl.SSLContext | None = None
    server_name: str = ""
    unix: Path | None = None
    """The socket of a server on this machine, in its data folder: used instead of host and port."""
    prove: Callable[[socket.socket], None] | None = None
    """Called with a connection in the clear before anything is sent on it; raises when another answers."""

    @property
    def place(self) -> tuple[str, int, Path | None]:
        """The identity of a server."""
        return self.host, self.port, self.unix

    def __str__(self) -> str:
        return str(self.unix or f"{self.host}:{self.port}")


class Link(http.client.HTTPConnection):
    """A connection on which nothing is sent before the server is verified."""

    def __init__(self, to: Endpoint, timeout_s: float) -> None:
        super().__init__(to.host, to.port, timeout=timeout_s)
        self._to = to

    @property
    def is_dropped(self) -> bool:
        """Whether the other side has closed it since the last answer, or says what nobody asked: it cannot be used."""
        if self.sock is None:
            return False
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        return bool(waiting.poll(0))

    def connect(self) -> None:
        """Connect. Raises: OSError; ServerNotRunning; NotProved."""
        to = self._to
        if to.unix is not None:
            self.sock = proof.opened(to.unix, self.timeout)
            return
        super().connect()
        try:
            if to.security is not None:
                self.sock = to.security.wrap_socket(self.sock, server_hostname=to.server_name or to.host)
            elif to.prove is not None:
                to.prove(self.sock)
        except BaseException:
            self.close()  # the next request would take it as it is
            raise


def parsed(url: str, ca: Path | None, *, insecure: bool) -> Endpoint:
    """Return the server at an address. Raises: InvalidInput for one that cannot be used; NotTrusted."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"'{url}' is no address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise InvalidInput(f"'{url}' is no address of a server", hint="such as https://penstock.example.org:8443")
    if parts.scheme == "https":
        return Endpoint(host, port or 443, trusting(ca))
    return in_the_clear(host, port or 80, insecure=insecure)


def in_the_clear(host: str, port: int, *, insecure: bool) -> Endpoint:
    """Return a server that speaks plain HTTP: one on this machine, of the caller's or of root, unless `insecure`.

    Raises: InvalidInput for a server on another machine.
    """
    if insecure:
        return Endpoint(host, port)
    if not _is_loopback(host):
        hint = "use https, or PENSTOCK_INSECURE=1 where something else encrypts"
        raise InvalidInput(f"http://{host}:{port} would send the token unencrypted", hint=hint)
    return Endpoint(host, port, prove=proof.of_own_user)


def running_on(data: Path) -> list[dict[str, Any]]:
    """Return the announcements of the servers on a data folder, the leader's first.

    Raises: NotTrusted when others may write to the folder, or have written the leader's announcement.
    """
    try:
        owner = proof.owner_of(data)
    except OSError:
        return []
    leader = _said(data / "server.json", owner)
    found = [leader] if leader else []
    for path in sorted(data.glob("standby-*.json")):
        with contextlib.suppress(NotTrusted):
            if info := _said(path, owner):
                found.append(info)
    return found


def _said(path: Path, owner: int) -> dict[str, Any] | None:
    try:
        info = json.loads(proof.read_own(path, owner))
        known = isinstance(info["host"], str) and isinstance(info["port"], int)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return info if known else None


def endpoint_of(info: Mapping[str, Any], data: Path) -> Endpoint:
    """Return the endpoint that a server on the folder `data` announces.

    A server that listens on no Unix socket (of a former version, or on a file system that knows none) has to show a
    certificate, or is proved by its process.

    Raises: NotTrusted.
    """
    host, port, name = info["host"], info["port"], info.get("socket")
    if name:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".sock"):
            raise NotProved(f"the socket '{name}' is not in {data}: nothing was sent there")
        return Endpoint(host, port, unix=data / name)
    if info.get("tls"):
        return Endpoint(host, port, trusting(trusted_by(info)), info["server_name"])
    pid = info.get("pid")
    return Endpoint(host, port, prove=partial(proof.of_process, folder=data, pid=pid if isinstance(pid, int) else 0))


def trusted_by(info: Mapping[str, Any]) -> Path | None:
    """Return the file of the authorities to trust with a server of this announcement; None where it has none."""
    found = os.environ.get("PENSTOCK_CA") or (info.get("ca") if info.get("tls") else None)
    return Path(found) if found else None


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Return TLS settings that trust the authorities in a file, or those of the system.

    Raises: NotTrusted when the file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
    except OSError as error:
        hint = "PENSTOCK_CA names the file of the authorities to trust"
        raise NotTrusted(f"no certificate of an authority could be read from {ca}: {error}", hint=hint) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's certificate itself may be in the file
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
