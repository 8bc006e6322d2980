"""A server whose nodes are those of the tests' Ray cluster."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from penstock.engines.processes import procfs
from penstock.engines.ray.driver_options import DriverOptions
from penstock.engines.ray.ending import end
from tests.engines.ray.cluster import RayCluster
from tests.server.harness import Server, cluster_file, environment, until

READY_S = 240.0


class RayServing(Server):
    """Use as a context manager: it answers and all nodes are ready inside; nothing is left after."""

    def __init__(
        self, root: Path, cluster: RayCluster, *, shared: Path | None = None, share: float = 1.0, **more: Any
    ) -> None:
        declared = {**cluster_file(1, **more), "nodes": []}
        ray = {"address": cluster.address, "share_milli": round(share * 1000), "shared": str(shared or "")}
        super().__init__(root, declared, ray=ray)
        self.cluster, self.nodes_wanted = cluster, len(cluster.nodes)

    def start(self) -> None:
        options = {"data": str(self.data.root), "cluster_file": str(self._file), "check_invariants": True}
        options |= {"limits_file": str(self._limits), **self._options}
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.wire", json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.root, **self.cluster.variables),
            )
        until(self._ready, "the server answers and its nodes are ready", READY_S)

    def kill(self) -> None:
        """Kill the server alone."""
        assert self.process is not None
        self.hang_up()
        self.process.kill()
        self.process.wait()

    @property
    def base(self) -> Path:
        """Where the agents of this server lie on each machine."""
        return Path(DriverOptions.of(self.data.root / "ray", "x", "").base)

    def agents(self) -> dict[str, int]:
        """Return the process of the agent of each node."""
        found = {}
        for path in self.base.glob("*/data/nodes/*/agent.pid"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(path.read_text())
                if procfs.has_open(pid, path.with_name("agent.lock")):
                    found[path.parent.name] = pid
        return found

    def part_of(self, node: str) -> str:
        """Return the part of the cluster that a node is: its raylet carries the label."""
        place = json.loads((self.data.root / "ray" / "places.json").read_text())[node]
        return self.cluster.part_of(place)

    def close(self) -> None:
        """End everything as `penstock down` does."""
        try:
            super().stop()
            with contextlib.suppress(OSError, subprocess.SubprocessError, msgspec.MsgspecError):
                os.environ |= self.cluster.variables
                end(self.data.root / "ray", 60)
        finally:
            super().close()
