"""Messages between server and agents, and their framing: 4 bytes of length (big-endian), then MessagePack."""

import struct
from typing import Literal

import msgspec

from penstock import __version__
from penstock.core.messages.orders import Order
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import Epoch, Incarnation
from penstock.core.model.nodes import NodeSpec

PROTOCOL_VERSION = 7
"""Raised with every field that an agent must not ignore: one unaware of accounts would run all jobs as root,
one unaware of marks would hand a job the checkpoints of another one, one unaware of snapshots would start it in an
empty folder, one unaware of what else is prepared before a start, without that,
one unaware of runtimes would run its command at every place."""
PROGRAM = f"Penstock {__version__}, protocol {PROTOCOL_VERSION}"
FRAME_MAX_BYTES = 64 * 2**20
PART_BYTES = 2**20
"""Of a snapshot in one message: what may be on its way to a node at a time, beside orders."""
WANTED_MAX = 1_024
OUTPUT_PIECE_BYTES = 2**17
"""Of an output in one message: the most that an order or a lease waits behind it."""
OutputKind = Literal["output", "report"]
HELLO_MAX_BYTES = 2**20
"""Of a frame before the agent's hello."""
_HEADER = struct.Struct(">I")


class AgentHello(msgspec.Struct, frozen=True, tag=True):
    """First message of a connection; its certificate has shown by then which node the agent may speak for."""

    version: int
    spec: NodeSpec
    incarnation: Incarnation
    program: str = ""
    """Version of Penstock that it runs."""


class OtherHello(msgspec.Struct, frozen=True, tag="AgentHello"):
    """What is understood of any version's hello."""

    version: int
    program: str = ""


class AgentReport(msgspec.Struct, frozen=True, tag=True):
    """A report within one session; one of a former session is ignored."""

    epoch: Epoch
    session: int
    report: NodeReport


class AgentFetch(msgspec.Struct, frozen=True, tag=True):
    """A request for a part of a snapshot that a replica on this node starts in; the next one follows its answer."""

    number: int
    """Of the request, which the answer repeats."""
    snapshot: str
    wanted: tuple[int, ...] = ()
    """Chunks by their numbers; none: a part of the list of files."""
    offset: int = 0
    """In the list of files (bytes)."""


class AgentRenew(msgspec.Struct, frozen=True, tag=True):
    """A request for a certificate for a joined node's own key: for the first, or because the present one ends."""

    request: str
    """PKCS #10, as PEM."""


class AgentOutput(msgspec.Struct, frozen=True, tag=True):
    """A piece of what a replica has written on another machine than the server's; the next one follows its answer."""

    number: int
    """Of the piece, which the answer repeats."""
    key: ReplicaKey
    kind: OutputKind
    offset: int
    """Where it begins (bytes); beyond what the server has where the node has given up what is between."""
    data: bytes = b""
    """None: the question how much the server has, or the end."""
    ends: bool = False
    """Nothing comes after it: the replica has ended."""


class ServerWelcome(msgspec.Struct, frozen=True, tag=True):
    epoch: Epoch
    session: int
    lease_ms: int
    heartbeat_ms: int
    trusted: str = ""
    """Mark of the authorities that are trusted now: a node of another machine has its own copy of them."""
    servers: tuple[str, ...] = ()
    """Where a node of another machine may find servers, as `HOST:PORT`."""


class ServerOrders(msgspec.Struct, frozen=True, tag=True):
    """Orders of one session, numbered; an agent takes only numbers higher than the last it took."""

    epoch: Epoch
    session: int
    seq: int
    orders: tuple[Order, ...]


class ServerTaken(msgspec.Struct, frozen=True, tag=True):
    """Report `report_seq` is in the log; the lease counts from when the agent sent it."""

    epoch: Epoch
    session: int
    report_seq: int
    accepted: bool
    servers: tuple[str, ...] = ()
    """As in `ServerWelcome`, where that has changed since it was last said."""


class ServerPart(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AgentFetch`: as many of the chunks wanted, in their order, as fit; at least one."""

    number: int
    chunks: tuple[bytes, ...] = ()
    total: int = 0
    """Of the list of files (bytes)."""
    problem: str = ""
    """Why there is nothing."""


class ServerCertificate(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AgentRenew`."""

    certificate: str = ""
    """With its chain, as PEM."""
    trusted: str = ""
    """All authorities that are trusted now, as PEM."""
    renewed_from_ms: int = 0
    """When to ask again (unix time)."""
    problem: str = ""
    """Why there is none."""


class ServerStored(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AgentOutput`."""

    number: int
    size: int = 0
    """What the server has of the file, holes included (bytes)."""
    unwanted: bool = False
    """The server knows no such replica on this node: nothing more of it shall be sent."""
    problem: str = ""
    """Why nothing can be kept now."""


class ServerRefused(msgspec.Struct, frozen=True, tag=True):
    reason: str


ToServer = AgentHello | AgentReport | AgentFetch | AgentRenew | AgentOutput
ToAgent = ServerWelcome | ServerOrders | ServerTaken | ServerPart | ServerCertificate | ServerStored | ServerRefused

_encoder = msgspec.msgpack.Encoder()
_server_decoder: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
_agent_decoder: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


class ProtocolError(PenstockError):
    code = "protocol_error"


def frame(message: ToServer | ToAgent) -> bytes:
    """Return the message as it goes over the wire."""
    body = _encoder.encode(message)
    if len(body) > FRAME_MAX_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes is over the limit of {FRAME_MAX_BYTES}")
    return _HEADER.pack(len(body)) + body


class Deframer:
    """Cuts a byte stream into message bodies."""

    def __init__(self, most_bytes: int = FRAME_MAX_BYTES) -> None:
        self.most_bytes = most_bytes
        """Bytes of a frame at most; may be changed at any time."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that are complete by now.

        Raises: ProtocolError when a frame announces more than the limit.
        """
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, start)
            if length > self.most_bytes:
                raise ProtocolError(f"a frame of {length} bytes is over the limit of {self.most_bytes}")
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return bodies


def decode_to_server(body: bytes) -> ToServer:
    """Return the message; raises ProtocolError when it is none."""
    try:
        return _server_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message to the server: {error}") from error


def other_hello(body: bytes) -> OtherHello | None:
    """Return the hello of an agent of another version, of which all else may mean anything; None: it is no such one."""
    try:
        hello = msgspec.msgpack.decode(body, type=OtherHello)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return hello if hello.version != PROTOCOL_VERSION else None


def decode_to_agent(body: bytes) -> ToAgent:
    """Return the message; raises ProtocolError when it is none."""
    try:
        return _agent_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message to an agent: {error}") from error
