"""The agents of the nodes that this machine runs: started with the server, started again when they die."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.engines.local.launch import agent_pid, known_nodes, living, replace_agent, start_agent
from penstock.engines.processes import procfs
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process

log = logging.getLogger(__name__)

CHECK_S = 1.0


class LocalAgents:
    """Keeps one agent a node alive, of the program that is installed now.

    Args:
        nodes: the server's own.
        respawn: whether an agent that has died is started again.
    """

    def __init__(self, data: DataFolder, nodes: Sequence[NodeSpec], *, respawn: bool) -> None:
        self._data, self._nodes, self._respawn = data, list(nodes), respawn
        self._replaced: set[NodeName] = set()
        self._begun: dict[NodeName, Process] = {}
        """Agents that this server has started. One holds its lock only a while after: with many nodes, seconds."""
        self._without_certificate = [
            name for name, path in self.certificates().items() if not path.exists() and agent_pid(data, name)
        ]
        """Nodes with living agents of a version that had no certificates."""

    def certificates(self) -> dict[NodeName, Path]:
        """Return the certificate file of each node: the server's own, and those that were added by hand."""
        names = dict.fromkeys([*(spec.name for spec in self._nodes), *map(NodeName, known_nodes(self._data))])
        return {name: self._data.node_certificate(name) for name in names}

    async def keep(self) -> None:
        """Start the agents; look after them until cancelled, where they are to be started again."""
        for spec in self._nodes:
            grown = self._offers_fewer(spec)
            self._start(spec)
            if grown or spec.name in self._without_certificate:
                replace_agent(self._data, spec.name)
            await asyncio.sleep(0)  # hundreds of agents take a while: requests are answered between them
        while self._respawn:
            await asyncio.sleep(CHECK_S)
            for spec in self._nodes:
                if agent_pid(self._data, spec.name) is None and not self._begins(spec.name):
                    self._start(spec)

    @property
    def machine(self) -> NodeSpec | None:
        """The node that offers this machine's own devices; None where its devices are declared: they are simulated."""
        first = self._nodes[0] if self._nodes else None
        return None if first is None or any(device.simulated for device in first.devices) else first

    def offer(self, spec: NodeSpec) -> None:
        """Let a node offer more devices than before; its replicas notice nothing."""
        self._nodes = [spec if one.name == spec.name else one for one in self._nodes]
        self._start(spec)  # writes its configuration
        replace_agent(self._data, spec.name)

    def _offers_fewer(self, spec: NodeSpec) -> bool:
        """Return whether a node has devices that its living agent does not know."""
        former = living(self._data, spec.name)
        if former is None or any(device.simulated for device in (*former, *spec.devices)):
            return False
        return len(former) < len(spec.devices)

    def _start(self, spec: NodeSpec) -> None:
        try:
            begun = start_agent(self._data, spec)
        except OSError as error:  # a full disk, no process left: tried again at the next check
            log.error("agent not started: %s: %s", spec.name, error)
            return
        if begun is not None:
            self._begun[spec.name] = begun

    def _begins(self, node: NodeName) -> bool:
        begun = self._begun.get(node)
        return begun is not None and procfs.alive(begun.pid, begun.ticks)

    def replace_other(self, node: NodeName) -> bool:
        """Replace an agent of another version, once: it would misunderstand this version's orders.

        Returns: whether it is replaced; not one of another machine, nor one that is of another version again.
        """
        if node in self._replaced or agent_pid(self._data, node) is None:
            return False
        self._replaced.add(node)
        replace_agent(self._data, node)
        return True
