"""A server with a pilot on a real Slurm."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.types import JobView
from penstock.core.model.errors import PenstockError
from tests.engines.slurm.cluster import SEARCHED, SlurmCluster
from tests.server.harness import Server, cluster_file, until

QUICK = {
    "cpus": 4, "memory_mib": 3000, "refresh_s": 1, "grow_after_s": 0, "cancel_after_s": 1, "idle_s": 600,
    "nodes_max": 4, "backoff_s": 1,
}  # fmt: skip
WAIT_S = 90.0


class Flying(Server):
    """A server whose nodes Slurm lends."""

    def __init__(self, slurm: SlurmCluster, root: Path, **settings: Any) -> None:
        declared = cluster_file(0)
        super().__init__(root, declared, slurm=True, pilot=QUICK | {"scratch": str(root / "scratch")} | settings)
        self.slurm = slurm

    def _ready(self) -> bool:
        """It answers: its nodes come when jobs need them, and are there before it where it comes back."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(PenstockError, OSError, ValueError):
            if json.loads(self.data.server_info.read_bytes())["pid"] == self.process.pid:
                return self.client.healthy()
        return False

    def allocations(self) -> dict[str, str]:
        """Return the pilot's jobs in Slurm that have not ended, and their states."""
        lines = self.slurm.run("squeue", "-h", "-o", "%i %T %j").splitlines()
        return {number: state for number, state, name in map(str.split, lines) if name.startswith("penstock-")}

    def ready(self) -> list[str]:
        return sorted(node.name for node in self.client.nodes() if node.state == "ready" and node.connected)

    def wait_ready(self, count: int) -> list[str]:
        return until(lambda: (found := self.ready()) and len(found) == count and found, f"{count} nodes", WAIT_S)

    def wait_state(self, job: int, *states: str) -> JobView:
        def seen() -> JobView | None:
            view = self.client.job(job)
            return view if view.state in states else None

        try:
            return until(seen, f"job {job} {states}", WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told(job)}") from None

    def told(self, job: int) -> str:
        """Return what is said of a job that does not come to where it should."""
        nodes = "\n".join(f"{one.name} {one.state} connected={one.connected}" for one in self.client.nodes())
        queue = self.slurm.run("squeue", "-t", "all", "-o", "%i %T %r %N %j %S")
        machines = self.slurm.run("sinfo", "-N", "-o", "%N %T %E")
        explained = self.client.explain(job)
        said = (f"{self.client.job(job)}", explained.text, explained.elsewhere, nodes, queue, machines)
        return "\n".join((*said, self.slurm.said()[-3000:], self.log()))

    def run(self, command: str, **more: Any) -> int:
        return self.client.submit({"command": command, "cpus": 1, **more}).jobs[0].id


@contextlib.contextmanager
def find(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Let commands of Slurm find this cluster, here and in servers; its jobs are ended before."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in slurm.variables.items():
            patch.setenv(name, value)
        patch.setenv("PATH", SEARCHED)
        slurm.empty()
        yield slurm


@contextlib.contextmanager
def flying(slurm: SlurmCluster, root: Path, **settings: Any) -> Iterator[Flying]:
    """Run a server; its allocations are over after."""
    server = Flying(slurm, root, **settings)
    try:
        with server:
            yield server
    finally:
        slurm.empty()
