"""Machines that share nothing with the server but a cable: network namespaces, each with a data folder of its own.

They need root and the programs `ip` and `nsenter`. Where these are missing a test is skipped, with the reason; in CI
(CI=true) it fails.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.api.joined import JoinBundleAnswer
from penstock.core.model.errors import PenstockError
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.paths import DataFolder
from tests.server.harness import Server, cluster_file, environment, sweep, until

LONG = {"lease_ttl": "60s", "lease_margin": "5s"}
"""Longer than a server needs to start: nodes elsewhere cannot see that it has died, and would end their jobs."""
SHORT = {"lease_ttl": "6s", "lease_margin": "2s"}
"""Shorter than a cable stays cut; long enough for the other node to keep its own on a loaded machine."""


def require_namespaces() -> None:
    """Skip a test where no namespaces can be made; fail in CI."""
    missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    reason = f"{', '.join(missing)} not installed" if missing else "" if os.geteuid() == 0 else "needs root"
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Network:
    """A switch with the server at `.1` and machines at `.11`, `.12`, ..."""

    def __init__(self) -> None:
        self._name = f"pst{os.getpid() % 100_000}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.server = f"{self._net}.1"
        self._count = 0
        run("ip", "link", "add", self._name, "type", "bridge")
        run("ip", "addr", "add", f"{self.server}/24", "dev", self._name)
        run("ip", "link", "set", self._name, "up")

    def machine(self) -> tuple[str, str]:
        """Add a machine; return the name of its namespace, and its address."""
        self._count += 1
        name, address = f"{self._name}-{self._count}", f"{self._net}.{10 + self._count}"
        cable = self.cable(name)
        run("ip", "netns", "add", name)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", cable, "master", self._name, "up")
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", link, "up")
        return name, address

    def cable(self, name: str) -> str:
        return f"{self._name}v{name.rpartition('-')[2]}"

    def close(self) -> None:
        for number in range(1, self._count + 1):
            subprocess.run(["ip", "netns", "del", f"{self._name}-{number}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], check=False, capture_output=True)


class DistantMachine:
    """One machine with two simulated devices, and its node."""

    def __init__(self, network: Network, root: Path, name: str) -> None:
        self.name, self.root, self._network = name, root, network
        self.namespace, self.address = network.machine()
        self.data = DataFolder(root)

    def join(self, made: JoinBundleAnswer | None = None, *options: str) -> dict[str, Any]:
        """Join by a bundle, or start the agent again; return once the server has let it in."""
        words = [sys.executable, "-P", "-m", "penstock.joining", *(["-"] if made is not None else [])]
        words += ["--data", str(self.root), "--simulated", "2", "--cpus", "8", "--wait", "60", *options]
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.namespace}", *words],
            input=made.bundle.encode() if made is not None else b"",
            stdout=subprocess.PIPE,
            check=True,
            env=environment(self.root),
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def pid(self) -> int | None:
        """Process of the agent's guardian."""
        return agent_pid(self.data, self.name)

    def plug(self, *, into: bool) -> None:
        """Connect the machine's cable, or pull it out."""
        run("ip", "link", "set", self._network.cable(self.namespace), "up" if into else "down")

    def close(self) -> None:
        sweep(self.root)


class Site(Server):
    """A server whose own machine has no devices, and two machines that have two each."""

    def __init__(self, root: Path) -> None:
        self.network = Network()
        super().__init__(root / "server", cluster_file(1, 0, **LONG), listen_agents=self.network.server)
        self.machines = [DistantMachine(self.network, root / name, name) for name in ("away1", "away2")]

    def __enter__(self) -> "Site":
        try:
            self.start()
            for machine in self.machines:
                machine.join(self.client.declare_node({"name": machine.name, "rack": "r9"}))
            self.all_ready()
        except BaseException:
            self.close()
            raise
        return self

    def all_ready(self) -> None:
        until(lambda: self.client.cluster().nodes_ready == 1 + len(self.machines), "all nodes are ready")

    def kill(self) -> None:
        self.hang_up()
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def start(self, **options: Any) -> None:
        self._options |= options
        super().start()

    def restart(self, **settings: str) -> None:
        """Kill the server, and start it with other settings."""
        self.kill()
        self.declared = cluster_file(1, 0, **settings)
        self._file.write_text(json.dumps(self.declared), encoding="utf-8")
        self.start()
        self.all_ready()

    def _ready(self) -> bool:
        """Return whether it answers; nodes of other machines may be ready, too."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(PenstockError, OSError, ValueError):
            if json.loads(self.data.server_info.read_bytes())["pid"] == self.process.pid:
                return self.client.cluster().nodes_ready >= 1
        return False

    def close(self) -> None:
        try:
            for machine in self.machines:
                machine.close()
        finally:
            super().close()
            self.network.close()
