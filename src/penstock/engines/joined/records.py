"""The server's records of nodes of other machines: what was declared of each, and by which keys its agent may speak."""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import msgspec
from msgspec.structs import replace

from penstock.core.model.ids import NodeName, is_node_name
from penstock.core.model.nodes import NodeSpec
from penstock.core.model.resources import Resources
from penstock.engines.agent.joined import DeclaredNode
from penstock.privatefiles import make_folder, write_whole

log = logging.getLogger(__name__)


class JoinedNode(msgspec.Struct, frozen=True):
    """A declared node, and how far it has joined."""

    node: DeclaredNode
    keys: tuple[str, ...]
    """Fingerprints of the keys with which its agent may speak: that of its bundle, then its own."""
    declared_ms: int
    joined_ms: int = 0
    """When it first spoke with a key of its own (unix time); 0: not yet."""


class JoinedNodes:
    """The records, one file each, so that they survive the server; the leading server alone writes them. Any thread."""

    def __init__(self, folder: Path, unix_ms: Callable[[], int]) -> None:
        self._folder, self._unix_ms, self._lock = folder, unix_ms, Lock()
        self._known: dict[NodeName, JoinedNode] = {}

    def load(self) -> None:
        """Take up the files as they are: a former leader may have written them."""
        known = {}
        for path in self._folder.glob("*.json"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=JoinedNode)
            except (OSError, msgspec.MsgspecError) as error:
                log.error("the record of a joined node cannot be read", extra={"path": path, "problem": str(error)})
                continue
            if is_node_name(record.node.name) and path == self._path(record.node.name):
                known[record.node.name] = record
        with self._lock:
            self._known = known

    def get(self, name: NodeName) -> JoinedNode | None:
        """Return the record of a node, None where it is not declared."""
        return self._known.get(name)

    def declares(self, name: NodeName) -> bool:
        """Return whether a node is declared."""
        return name in self._known

    def all(self) -> list[JoinedNode]:
        """Return all records, by name."""
        with self._lock:
            return [record for _, record in sorted(self._known.items())]

    def __len__(self) -> int:
        return len(self._known)

    def declare(self, node: DeclaredNode, key: str) -> JoinedNode:
        """Keep a record of a node that may join with a key; no former key of this name lets anybody in any more."""
        record = JoinedNode(node, (key,), self._unix_ms())
        with self._lock:
            make_folder(self._folder)
            self._write(record)
        return record

    def remove(self, name: NodeName) -> bool:
        """Forget a node; return whether it was declared."""
        with self._lock:
            if name not in self._known:
                return False
            self._path(name).unlink(missing_ok=True)
            del self._known[name]
        return True

    def admits(self, name: NodeName, key: str) -> str:
        """Return why an agent with a certificate for `name` is not heard, or ''; only its newest key is kept."""
        with self._lock:
            known = self.get(name)
            if known is None:
                return (
                    f"node '{name}' is not declared here: penstock node add {name}, at the server, makes a join bundle"
                )
            if key not in known.keys:
                again = "a machine has joined with that bundle, or there is a newer one"
                return (
                    f"this key is not that of node '{name}' any more: {again}; penstock node add {name} makes another"
                )
            if key != known.keys[0]:  # a key that it has made: those before it are over
                joined_ms = known.joined_ms or self._unix_ms()
                self._write(replace(known, keys=(key,), joined_ms=joined_ms))
        return ""

    def renew(self, name: NodeName, key: str) -> bool:
        """Let a declared node speak with another key from now on; return whether it is one."""
        with self._lock:
            known = self.get(name)
            if known is None:
                return False
            if key not in known.keys:
                self._write(replace(known, keys=(known.keys[0], key)))
        return True

    def _path(self, name: NodeName) -> Path:
        return self._folder / f"{name}.json"

    def _write(self, record: JoinedNode) -> None:
        write_whole(self._path(record.node.name), msgspec.json.encode(record))
        self._known[record.node.name] = record


def bounded(said: NodeSpec, known: DeclaredNode) -> NodeSpec:
    """Return the spec to register of a joined node: where it belongs is the server's word, what it has its own, within
    what was declared.
    """
    most, has = known.most, said.capacity
    capacity = Resources(
        cpu_milli=_least(has.cpu_milli, most.cpu_milli),
        memory_bytes=_least(has.memory_bytes, most.memory_bytes),
        storage_bytes=_least(has.storage_bytes, most.storage_bytes),
    )
    return replace(
        said,
        pool=known.pool,
        labels=known.labels,
        zone=known.zone,
        rack=known.rack,
        switch=known.switch,
        taints=known.taints,
        virtual=False,
        capacity=capacity,
        devices=said.devices if most.devices is None else said.devices[: most.devices],
        storage=said.storage or f"node:{known.name}",
        at=known.at or said.address,
        engine=known.engine,
    )


def _least(has: int, most: int) -> int:
    return min(has, most) if most else has
