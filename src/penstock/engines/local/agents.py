"""The agents of the nodes that this machine runs: started with the server, started again when they die."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.engines.local.launch import agent_pid, known_nodes, replace_agent, start_agent
from penstock.engines.processes.paths import DataFolder

log = logging.getLogger(__name__)

CHECK_S = 1.0


class LocalAgents:
    """Keeps one agent a node alive, of the program that is installed now.

    Args:
        nodes: the server's own.
        respawn: whether an agent that has died is started again.
    """

    def __init__(self, data: DataFolder, nodes: Sequence[NodeSpec], *, respawn: bool) -> None:
        self._data, self._nodes, self._respawn = data, nodes, respawn
        self._replaced: set[NodeName] = set()
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
            self._start(spec)
            if spec.name in self._without_certificate:
                replace_agent(self._data, spec.name)
        while self._respawn:
            await asyncio.sleep(CHECK_S)
            for spec in self._nodes:
                if agent_pid(self._data, spec.name) is None:
                    self._start(spec)

    def _start(self, spec: NodeSpec) -> None:
        try:
            start_agent(self._data, spec)
        except OSError as error:  # a full disk, no process left: tried again at the next check
            log.error("agent not started: %s: %s", spec.name, error)

    def replace_other(self, node: NodeName) -> None:
        """Replace an agent of another version, once: it would misunderstand this version's orders."""
        if node not in self._replaced:
            self._replaced.add(node)
            replace_agent(self._data, node)
