"""The server as the engine sees it; `control/ray.py` is what stands behind it. Any thread; calls may work on files."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.engines.ray.records import Amounts, KnownNode, RayNode


class RayServer(Protocol):
    """What the engine needs of the server."""

    def known(self) -> Mapping[str, KnownNode]:
        """Return the nodes that this engine has declared, by name."""
        ...

    def has_joined(self, name: str) -> bool:
        """Return whether an agent has spoken for a node with a key of its own."""
        ...

    def declare(self, name: str, node: RayNode, amounts: Amounts, gpus: int) -> str:
        """Declare a node and return the text of the bundle with which it joins. Raises: PenstockError, OSError."""
        ...

    def close(self, name: str, deadline_ms: int | None, reason: str) -> None:
        """Close a node to new work; with a deadline (unix ms) its jobs are asked to save and move."""
        ...

    def open(self, name: str) -> None:
        """Open a node that this engine has closed."""
        ...

    def forget(self, name: str) -> None:
        """Let nobody speak for a node any more."""
        ...

    def missing(self) -> Sequence[Amounts]:
        """Return what waiting jobs lack, one entry a replica."""
        ...

    def local_only(self) -> bool:
        """Return whether only agents of this machine can reach this server."""
        ...
