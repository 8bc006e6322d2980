"""Nodes of other machines, as both ends know them: the bundle by which one joins, and what each side keeps of it.

A node joins with the key in its bundle, which the server has made. With its first connection it sends a request for a
key of its own; from its next connection on, the server refuses the bundle's. So a bundle lets one machine in, once.
"""

import contextlib
import os
from pathlib import Path
from typing import Self

import msgspec

from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import DEFAULT_POOL, NodeName, PoolName, is_node_name
from penstock.core.model.selectors import Taint
from penstock.engines.processes.paths import DataFolder

FORM = 1
"""Of a bundle. Raised when a reader of the former form would misunderstand it."""
BUNDLE_MAX_BYTES = 2**20
SERVERS_MAX = 64


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server may listen for agents: a host name or an address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parsed(cls, text: str, port: int | None = None) -> Self:
        """Return an address from `HOST:PORT`, or from `HOST` where `port` is given. Raises: InvalidInput."""
        host, colon, digits = text.rpartition(":")
        if (text.startswith("[") and text.endswith("]")) or not colon or (":" in host and not host.startswith("[")):
            host, digits = text, "" if port is None else str(port)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not digits.isascii() or not digits.isdigit() or not int(digits) < 2**16:
            raise InvalidInput(f"'{text}' is no address of a server, expected HOST:PORT, or [IPV6]:PORT")
        return cls(host, int(digits))


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that is registered of what a node says it has."""

    cpu_milli: int = 0
    """0: no bound; of the next two, too."""
    memory_bytes: int = 0
    storage_bytes: int = 0
    devices: int | None = None
    """Number of devices; None: no bound."""


class DeclaredNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the server says of a node of another machine before it has joined: where it belongs, and the most of it."""

    name: NodeName
    pool: PoolName = DEFAULT_POOL
    labels: tuple[tuple[str, str], ...] = ()
    zone: str = ""
    rack: str = ""
    switch: str = ""
    taints: tuple[Taint, ...] = ()
    most: Offer = Offer()
    engine: str = ""
    """What has brought the agent there, such as `ray`; empty: an administrator, by hand."""
    at: str = ""
    """Where it is, for people, such as `Slurm job 4711 on c3`."""


class JoinBundle(msgspec.Struct, frozen=True):
    """All that a machine needs to join as one node. It holds a key: whoever has it first is that node."""

    node: NodeName
    servers: tuple[ServerAddress, ...]
    """To be tried in turn; the one that leads answers."""
    trusted: str
    """Certificates (PEM) of the authorities by which the server is known."""
    certificate: str
    """Key and certificate (PEM) with which the node joins."""
    valid_until_ms: int
    """By then (unix time) it must have joined."""
    form: int = FORM

    def encoded(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class NodeLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node of another machine keeps in its data folder of how it reaches the server, and is reached."""

    node: NodeName
    servers: tuple[ServerAddress, ...]
    address: str = ""
    """What other nodes reach it by; empty: its own address of its connection to the server."""
    learned: tuple[ServerAddress, ...] = ()
    """Where servers have said that they may be found."""

    @property
    def all_servers(self) -> tuple[ServerAddress, ...]:
        return tuple(dict.fromkeys((*self.servers, *self.learned)))


class LinkState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a node's connection is at present, for whoever looks on its machine."""

    welcome: bool
    server: str = ""
    problem: str = ""
    """Why the server has refused it, or cannot be reached."""
    program: str = ""
    """That the agent runs; empty: one that did not say it."""


def decoded(text: bytes) -> JoinBundle:
    """Return the bundle in a file. Raises: InvalidInput when it is none, or one of a later form."""
    hint = "penstock node add NAME, at the server, makes one"
    try:
        form = msgspec.json.decode(text, type=dict).get("form")
        bundle = msgspec.json.decode(text, type=JoinBundle) if form in (None, FORM) else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"this is no join bundle: {error}", hint=hint) from error
    if bundle is None:
        wanted = f"this program reads form {FORM}"
        raise InvalidInput(f"this join bundle is of form {form}; {wanted}", hint="install the server's version here")
    if not is_node_name(bundle.node) or not bundle.servers:
        raise InvalidInput("this is no join bundle: it names no node, or no server", hint=hint)
    return bundle


def read_link(data: DataFolder) -> NodeLink | None:
    """Return how a data folder's node reaches its server; None in a server's own data folder."""
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(data.link.read_bytes(), type=NodeLink)
    return None


def mark_of(path: Path) -> str:
    """Return a mark of the contents of a file of certificates, '' without one."""
    import hashlib

    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return ""


def storage_id(folder: Path) -> str:
    """Return the id of a shared storage, which the node that comes first writes into its folder. Raises: OSError."""
    import secrets

    path = folder / ".penstock-storage"
    with contextlib.suppress(FileExistsError):
        own = folder / f".penstock-storage.{secrets.token_hex(8)}"
        own.write_text(secrets.token_hex(8), encoding="ascii")
        try:
            os.link(own, path)  # whole or not at all, also where several nodes come at once
        finally:
            own.unlink()
    return path.read_text(encoding="ascii")[:64]
