"""Nodes of other machines as the API declares and shows them."""

from typing import Annotated

import msgspec

from penstock.api.types import PagedList

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Text = Annotated[str, msgspec.Meta(max_length=253)]


class NewJoinedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of another machine that may join: where it belongs, and the most of it that is used."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    pool: Text = "default"
    labels: Annotated[dict[Text, Text], msgspec.Meta(max_length=64)] = {}
    zone: Text = ""
    rack: Text = ""
    switch: Text = ""
    cpu_milli: Amount = 0
    """0: all that the machine has; of memory, too."""
    memory_bytes: Amount = 0
    devices: Annotated[int, msgspec.Meta(ge=0, le=128)] | None = None
    """None: all that the machine has."""
    at: Text = ""
    """Where it is, for people."""
    valid_hours: Annotated[int, msgspec.Meta(ge=1, le=720)] = 24
    """For how long its machine may join with the bundle."""


class JoinBundleAnswer(msgspec.Struct, frozen=True):
    """A bundle with which one machine may join. It holds a key, and is not shown again."""

    name: str
    bundle: str
    """The file's text."""
    valid_until_ms: int
    servers: list[str]
    """Addresses at which the node will look for this server."""


class JoinedNodeView(msgspec.Struct, frozen=True):
    """A declared node of another machine."""

    name: str
    pool: str
    engine: str
    """What has brought its agent there; empty: an administrator, by hand."""
    at: str
    """Where it is."""
    connected: bool
    declared_ms: int
    joined_ms: int
    """0: it has not joined yet."""


class JoinedNodeList(PagedList, frozen=True):
    nodes: list[JoinedNodeView]
