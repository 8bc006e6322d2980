"""What an agent is started with."""

from pathlib import Path

import msgspec

from penstock.core.model.nodes import NodeSpec
from penstock.engines.processes.paths import DataFolder


class AgentConfig(msgspec.Struct, frozen=True):
    """Configuration of an agent."""

    data: str
    spec: NodeSpec
    box_parent: str
    """Name below which control groups of this node are made."""
    shared: str = ""
    """Folder below which those of jobs lie, on storage that other nodes share; empty: in the data folder."""

    @property
    def folder(self) -> DataFolder:
        return DataFolder(Path(self.data), Path(self.shared) if self.shared else None)
