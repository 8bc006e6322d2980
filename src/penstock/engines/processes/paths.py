"""Paths of the data folder. Jobs' folders are shared by all virtual nodes of the machine."""

import contextlib
import os
import re
from pathlib import Path

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import AttemptNumber, JobId, Rank, is_node_name

_OUTPUT = re.compile(r"attempt-([1-9]\d{0,9})\.rank-(0|[1-9]\d{0,9})\.log", re.ASCII)


class DataFolder:
    """Paths below one data folder; nothing is created by asking.

    Args:
        shared: folder below which those of jobs lie, on storage that other nodes share; None: in the data folder.
    """

    def __init__(self, root: Path, shared: Path | None = None) -> None:
        self.root, self._shared = root, shared

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def server_lock(self) -> Path:
        """Held (flock) by the server for as long as it lives."""
        return self.root / "server.lock"

    @property
    def server_info(self) -> Path:
        """Addresses of the present server; replaced whole."""
        return self.root / "server.json"

    @property
    def link(self) -> Path:
        """How the node of this folder reaches its server; there is none in a server's own folder."""
        return self.root / "link.json"

    @property
    def joined(self) -> Path:
        """The folder of the server's records of nodes of other machines."""
        return self.root / "joined"

    @property
    def agents_port(self) -> Path:
        """The port at which the server last listened for agents."""
        return self.root / "agents.port"

    def standby_info(self, pid: int) -> Path:
        """Address of a standby server; it holds the file's lock (flock) while it lives."""
        return self.root / f"standby-{pid}.json"

    @property
    def store_address(self) -> Path:
        """The database that holds the log, where that is not in this folder: then other servers may be anywhere."""
        return self.root / "store.url"

    @property
    def setup_lock(self) -> Path:
        """Held (flock) while a starting server creates missing files."""
        return self.root / "setup.lock"

    @property
    def certificates(self) -> Path:
        """The folder of the authority and of the server's own certificate."""
        return self.root / "certificates"

    @property
    def trusted(self) -> Path:
        """The authorities that server, agents and clients of this folder trust."""
        return self.certificates / "trusted.pem"

    def node_certificate(self, name: str) -> Path:
        """Key and certificate with which the node's agent speaks for it."""
        return self.node(name) / "certificate.pem"

    @property
    def folder_snapshots(self) -> Path:
        """What submitters have sent of their folders."""
        return self.root / "folders"

    def unpacked(self, name: str) -> Path:
        """Return the folder below which a node unpacks snapshots: outside its own, which programs of other accounts
        cannot pass.
        """
        return self.root / "unpacked" / self.node(name).name

    def inputs(self, name: str) -> Path:
        """Return the folder below which a node keeps inputs of jobs."""
        return self.root / "inputs" / self.node(name).name

    def environments(self, name: str) -> Path:
        """Return the folder below which a node makes environments and what setup steps make: outside its own, like
        `unpacked`.
        """
        return self.root / "environments" / self.node(name).name

    def containers(self, name: str) -> Path:
        """Return the folder in which a node tries container runtimes: outside its own, as `unpacked`."""
        return self.root / "containers" / self.node(name).name

    @property
    def user_token(self) -> Path:
        return self.root / "token"

    @property
    def secret_keys(self) -> Path:
        """The keys that seal secrets in the log. May be a link to another place."""
        return self.root / "secrets.key"

    def node(self, name: str) -> Path:
        """Return the folder of a node's agent. Raises: InvalidInput for a name that leads elsewhere."""
        if not is_node_name(name):
            raise InvalidInput(f"{name!r} cannot be the name of a node")
        return self.root / "nodes" / name

    def mps(self, name: str) -> Path:
        """Return the folder of a node's MPS daemons: outside its own, which programs of other accounts cannot pass, and
        with a short path, for sockets lie in it.
        """
        return self.root / "mps" / self.node(name).name

    def job(self, job_id: JobId) -> Path:
        return (self._shared or self.root) / "jobs" / str(job_id)

    def checkpoints(self, job_id: JobId) -> Path:
        return self.job(job_id) / "checkpoints"

    def work(self, job_id: JobId) -> Path:
        """What a job's programs may write on this machine; where they start as another account without a `workdir`."""
        return self.job(job_id) / "work"

    def output(self, key: ReplicaKey) -> Path:
        """Standard output and error of one replica of one attempt, in the order written."""
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.log"

    def report(self, key: ReplicaKey) -> Path:
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.report"

    def told(self, job_id: JobId) -> Path:
        """What the agent tells a job's running programs: theirs to read."""
        return self.job(job_id) / "told"

    def batch(self, key: ReplicaKey) -> Path:
        """The batch that an attempt is to go on with; no file: the one that it began with."""
        return self.told(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.batch"

    def never_ran(self, key: ReplicaKey) -> Path:
        """Left by the gate when the agent died before it let the program run."""
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.never-ran"

    def keeper(self, node: str, key: ReplicaKey) -> Path:
        """What the keeper of a replica's container does: there until nothing of the container is left."""
        return self.node(node) / "containers" / f"{key}.json"

    def tried_runtimes(self, node: str) -> Path:
        """Which container runtimes a node has tried; no file: none yet."""
        return self.node(node) / "containers" / "runtimes.json"

    def outputs(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, Path]]:
        """Return the output files of a job, by attempt and rank. Programs may have left any other file beside them."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.job(job_id)) as entries:
            for entry in entries:
                match = _OUTPUT.fullmatch(entry.name)
                if match is not None:
                    found.append((AttemptNumber(int(match[1])), Rank(int(match[2])), Path(entry.path)))
        return sorted(found)
