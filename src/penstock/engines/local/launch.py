"""Starting and ending the agents of this machine's (virtual) nodes. Agents outlive the server on purpose."""

import contextlib
import fcntl
import hashlib
import os
import signal
from pathlib import Path

import msgspec

from penstock import starts
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import is_node_name
from penstock.core.model.resources import Device
from penstock.engines.agent.worker import AgentConfig
from penstock.engines.processes import procfs
from penstock.engines.processes.accounts import private
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import Process
from penstock.privatefiles import open_own, write_whole


def write_config(data: DataFolder, spec: NodeSpec, shared: str = "") -> Path:
    """Write the configuration of the node's agent, anew at each start, and return where.

    Args:
        shared: folder below which those of jobs lie, on storage that other nodes share; empty: in the data folder.
    """
    folder = data.node(spec.name)
    private(folder.parent)
    private(folder)
    mark = hashlib.sha256(str(data.root.resolve()).encode()).hexdigest()[:8]
    config = AgentConfig(str(data.root.resolve()), spec, f"penstock-{mark}-{spec.name}", shared)
    path = folder / "agent.json"
    write_whole(path, msgspec.json.encode(config), synced=False)
    return path


def start_agent(data: DataFolder, spec: NodeSpec, shared: str = "") -> Process | None:
    """Start the node's agent, in a session of its own; return its process, None where one runs already.

    Args:
        shared: as `write_config` takes it.
    """
    folder, path = data.node(spec.name), write_config(data, spec, shared)
    if agent_pid(data, spec.name) is not None:
        return None
    log = open_own(folder / "agent.log", os.O_WRONLY | os.O_APPEND)
    try:
        agent = starts.begin("penstock.engines.agent.guardian", str(path), output=log)
        agent.returncode = 0  # it outlives this process on purpose
        return Process(agent.pid, procfs.start_ticks(agent.pid) or 0)
    finally:
        os.close(log)


def agent_pid(data: DataFolder, node: str) -> int | None:
    """Return the process number of the node's agent when one lives: it holds the node's lock."""
    folder = data.node(node)
    try:
        descriptor = os.open(folder / "agent.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "agent.pid").read_text(encoding="ascii"))
        return -1
    else:
        return None
    finally:
        os.close(descriptor)


def stop_agent(data: DataFolder, node: str) -> None:
    """Ask the node's agent to end its replicas and leave."""
    pid = agent_pid(data, node)
    if pid is not None and pid > 0:
        procfs.signal_holder(pid, data.node(node) / "agent.lock", signal.SIGTERM)


def replace_agent(data: DataFolder, node: str) -> None:
    """Let a living agent go on with the program that is installed now; its replicas notice nothing.

    Its guardian is killed: the worker becomes the guardian in its place, by starting the program anew, and starts a
    worker of the new program. Nothing is done where no agent lives.
    """
    pid = agent_pid(data, node)
    if pid is not None and pid > 0:
        procfs.signal_holder(pid, data.node(node) / "agent.lock", signal.SIGKILL)


def known_nodes(data: DataFolder) -> list[str]:
    """Return the names of nodes that ever had an agent in this data folder."""
    folder = data.root / "nodes"
    if not folder.exists():
        return []
    return sorted(p.name for p in folder.iterdir() if is_node_name(p.name) and p.is_dir() and not p.is_symlink())


def node_config(path: Path) -> AgentConfig:
    return msgspec.json.decode(path.read_bytes(), type=AgentConfig)


def living(data: DataFolder, node: str) -> tuple[Device, ...] | None:
    """Return the devices that a node's living agent was started with; None where none lives."""
    if agent_pid(data, node) is None:
        return None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return node_config(data.node(node) / "agent.json").spec.devices
    return None
