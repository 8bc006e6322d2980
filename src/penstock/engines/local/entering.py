"""Entering a running job: its first process is verified, and its environment is read only as its own account.

A job can write anything into its environment, working directory and name. So root trusts the agent's journal,
which the job cannot write: process number, start time, account. A folder of /proc stays that of one process, also
when another one gets its number: it is opened once, and everything is read through it.
"""

import contextlib
import os
import pwd
from pathlib import Path

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import PenstockError
from penstock.engines.agent.journal import JournalReplica, replay
from penstock.engines.local.launch import known_nodes, node_config
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import ENVIRONMENT_MAX_BYTES
from penstock.engines.processes.run_as import pairs

CGROUPS = Path("/sys/fs/cgroup")
_JOB = b"PENSTOCK_JOB_ID"
_START_TICKS = 19


class NotEntered(PenstockError):
    """A replica has no process here, or its number is of an unverified process."""

    code = "not_entered"


class JournalledReplica(msgspec.Struct, frozen=True):
    """The agent's notes of a replica, and the agent's user."""

    known: JournalReplica
    box: str
    """Path of its control groups, below each controller."""
    agent: int
    """User of the agent."""


class ProcessHandle(msgspec.Struct, frozen=True):
    """The first process of a replica, held by its folder in /proc; `close` it."""

    folder: int
    """Descriptor."""
    uid: int
    account: str
    """Empty: it runs as its agent does."""
    box: str

    def read(self, name: str) -> bytes:
        """Return a file of its folder, or its beginning. Raises: OSError when this process may not, or it has ended."""
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder), "rb") as file:
            return file.read(ENVIRONMENT_MAX_BYTES)

    def environment(self) -> dict[bytes, bytes]:
        """Return its initial environment, to be read as its account. Raises: OSError."""
        return pairs(self.read("environ"))

    def change_to_its_folder(self) -> None:
        """Work where it works; stay where that is not allowed."""
        with contextlib.suppress(OSError):
            where = os.open("cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
            try:
                os.fchdir(where)
            finally:
                os.close(where)

    def join(self) -> None:
        """Enter its control groups: its limits hold here, and its end. Only root may. Raises: OSError."""
        for path in groups(self.read("cgroup").decode(), self.box):
            path.write_text(str(os.getpid()), encoding="ascii")

    def close(self) -> None:
        os.close(self.folder)


def prove(data: DataFolder, key: ReplicaKey, *, pid: int, account: str) -> ProcessHandle:
    """Return the first process of a replica on this machine, once verified.

    Args:
        pid: as the server's log has it: trusted alone only where no journal can be read, by non-root callers.
        account: as the log has it, for journals of versions that noted none.
    Raises: NotEntered.
    """
    noted = noted_by_agents(data, key)
    if noted is not None and noted.known.pid != pid:
        noted = None  # the folder of another server, with a job of the same number
    if noted is None and os.geteuid() == 0:
        raise NotEntered(f"no agent of {data.root} has started replica {key}", hint="--data names the server's folder")
    account = (noted.known.account if noted else "") or account
    found = _held(noted.known.pid if noted else pid, account, noted.box if noted else "")
    try:
        if noted is not None:
            _compare(found, noted, key)
        elif found.uid != os.geteuid():
            raise NotEntered(f"replica {key} is a process of user {found.uid}", hint="only that user and root enter it")
        elif found.environment().get(_JOB) != str(key.job_id).encode():
            raise NotEntered(f"process {pid} is not that of replica {key}")
    except OSError as error:
        found.close()
        raise NotEntered(f"the process of replica {key} cannot be looked at: {error.strerror}") from error
    except NotEntered:
        found.close()
        raise
    return found


def noted_by_agents(data: DataFolder, key: ReplicaKey) -> JournalledReplica | None:
    """Return what the agents of a folder have noted of a replica that runs; None where nothing may be read."""
    with contextlib.suppress(PermissionError):
        for node in known_nodes(data):
            journal = data.node(node) / "journal"
            known = replay(journal).get(key)
            if known is not None and known.pid and known.exit is None:
                parent = node_config(data.node(node) / "agent.json").box_parent
                return JournalledReplica(known, f"{parent}/{node}.{key}", journal.stat().st_uid)
    return None


def groups(text: str, box: str) -> list[Path]:
    """Return the files that take a process into the groups of a `/proc/PID/cgroup` that belong to a box."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        base = CGROUPS / controllers.removeprefix("name=") if controllers else CGROUPS
        if box and f"{path}/".find(f"/{box}/") >= 0 and ".." not in Path(path).parts:
            found.append(base / path.lstrip("/") / "cgroup.procs")
    return found


def _held(pid: int, account: str, box: str) -> ProcessHandle:
    """Raises: NotEntered when there is no such process."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotEntered("it is not on this machine, or has just ended") from error
    held = ProcessHandle(folder, 0, account, box)
    try:
        users = _users(held)
        if len(users) != 1:
            raise NotEntered(f"process {pid} has rights of more than one user: {sorted(users)}")
    except OSError as error:
        held.close()
        raise NotEntered("it has just ended") from error
    except NotEntered:
        held.close()
        raise
    return ProcessHandle(folder, users.pop(), account, box)


def _users(held: ProcessHandle) -> set[int]:
    """Return the user ids of a process: real, effective, saved, file."""
    for line in held.read("status").decode().splitlines():
        if line.startswith("Uid:"):
            return set(map(int, line.split()[1:]))
    return set()


def _compare(held: ProcessHandle, noted: JournalledReplica, key: ReplicaKey) -> None:
    """Raises: NotEntered when a process is not what the agent has noted; OSError when it has ended."""
    text = held.read("stat").decode(errors="replace")
    ticks = int(text[text.rindex(")") + 2 :].split()[_START_TICKS])
    if ticks != noted.known.ticks:
        raise NotEntered(f"replica {key} has ended: another process has its number {noted.known.pid}")
    try:
        wanted = pwd.getpwnam(held.account).pw_uid if held.account else noted.agent
    except KeyError:
        raise NotEntered(f"the machine has no account '{held.account}', as which replica {key} was started") from None
    if held.uid != wanted:
        who = held.account or f"user {wanted}"
        raise NotEntered(f"replica {key} was started as {who}, and its process is one of user {held.uid} now")
