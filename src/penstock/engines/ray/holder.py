"""The actor on a Ray node that holds resources there, and starts and ends agents outside its own process tree.

It runs in a worker of Ray, which may be killed at any moment: agents do not notice. What it knows of them lies in a
folder of the machine, so that every holder there, also one of a later cluster, finds the agents of all.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import starts
from penstock.core.model.ids import is_node_name
from penstock.engines.processes import procfs
from penstock.privatefiles import make_folder, write_whole

RECORD = "ray.json"
PORTS_FIRST, PORTS_EACH, RANGES = 21_000, 200, 150
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Of the worker's environment: what Ray sets is of the actor, and an agent would hand it to jobs."""
JOIN_S, STOP_S, SETTLE_S = 60.0, 20.0, 0.05
SUBREAPER = (
    "Ray's subreaper is on (RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper): it would kill the agent, "
    "and all jobs, with this actor; start the nodes of Ray without it"
)


class HolderActor:
    """Agents of one server on one machine. Methods return plain data.

    Args:
        base: the folder on each machine for the agents of this server; absolute.
        held: the amounts that it was made with.
    """

    def __init__(self, base: str, held: dict[str, Any]) -> None:
        self._base, self._held = Path(base), held

    def look(self) -> dict[str, Any]:
        """Return the GPUs that Ray gave this actor, and the agents on this machine."""
        return {"held": self._held, "devices": _gpus(), "agents": [_seen(folder) for folder in self._folders()]}

    def start(self, name: str, record: dict[str, Any], bundle: str, options: list[str]) -> str:
        """Start an agent, or let one that lives be that of this Ray node; return why it does not run, or ''.

        Args:
            record: of the Ray node; it is kept beside the agent.
            bundle: text of a join bundle; empty for an agent that has joined.
            options: further words for the program that joins.
        """
        if not is_node_name(name):
            return f"'{name}' is no name of a node"
        make_folder(self._base)
        with self._turn():
            folder = self._base / name
            if bundle and not _lives(folder):
                shutil.rmtree(folder, ignore_errors=True)  # of a node that was forgotten
            make_folder(folder)
            ports = _record(folder).get("ports") or self._free_ports()
            if ports is None:
                return f"{RANGES} agents run on this machine, each with its range of ports: no more are started"
            write_whole(folder / RECORD, json.dumps({**record, "ports": ports}))
            if _lives(folder) and not bundle:
                return ""  # with one it joins anew: its former key is void
            return _joined(folder, bundle, [*options, "--ports", f"{ports}-{ports + PORTS_EACH - 1}"])

    def stop(self, name: str) -> str:
        """End an agent and its jobs; return why it lives, or ''."""
        folder = self._base / name
        if not is_node_name(name) or not folder.is_dir():
            return ""
        with self._turn():
            pid = _pid(folder)
            if pid is not None:
                procfs.signal_holder(pid, _lock(folder), signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            while _lives(folder):
                if time.monotonic() > deadline:
                    return f"agent {name} (process {pid}) did not end within {STOP_S:.0f} s"
                time.sleep(SETTLE_S)
            shutil.rmtree(folder, ignore_errors=True)
        return ""

    def _folders(self) -> list[Path]:
        if not self._base.is_dir():
            return []
        return sorted(path for path in self._base.iterdir() if (path / RECORD).is_file())

    def _free_ports(self) -> int | None:
        taken = {_record(folder).get("ports") for folder in self._folders()}
        ranges = (PORTS_FIRST + number * PORTS_EACH for number in range(RANGES))
        return next((first for first in ranges if first not in taken), None)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep the holders of other Ray nodes of this machine out."""
        descriptor = os.open(self._base / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _gpus() -> list[int]:
    import ray

    return sorted(int(one) for one in ray.get_gpu_ids() if str(one).isdigit())


def _record(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / RECORD).read_text())
        if isinstance(found, dict):
            return found
    return {}


def _seen(folder: Path) -> dict[str, Any]:
    known = _record(folder)
    return {
        "name": folder.name,
        "node": known.get("node", ""),
        "lives": _lives(folder),
        "amounts": known.get("amounts", {}),
        "devices": known.get("devices", []),
    }


def _lock(folder: Path) -> Path:
    return folder / "data" / "nodes" / folder.name / "agent.lock"


def _pid(folder: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int((_lock(folder).parent / "agent.pid").read_text())
    return None


def _lives(folder: Path) -> bool:
    try:
        descriptor = os.open(_lock(folder), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _joined(folder: Path, bundle: str, options: list[str]) -> str:
    """Start the program that joins; return why the agent does not run, or ''."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    words = ["-", "--data", str(folder / "data")] if bundle else ["--data", str(folder / "data")]
    done = subprocess.run(  # noqa: S603 - this program itself
        starts.python("penstock.joining", *words, *options),
        input=bundle,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        cwd=starts.HOME,
        env=starts.environment(environment),
        timeout=JOIN_S,
    )
    if done.returncode:
        return (done.stderr or done.stdout).strip()[-500:] or f"the agent did not start (exit {done.returncode})"
    return _outside(folder)


def _outside(folder: Path) -> str:
    """Return why the agent would not outlive this worker, having ended it; '' where it will."""
    deadline = time.monotonic() + STOP_S
    while (pid := _pid(folder)) is None or not _lives(folder):
        if time.monotonic() > deadline:
            return "the agent did not take the lock of its node"
        time.sleep(SETTLE_S)
    parent = procfs.parent_of(pid)
    if parent in (os.getpid(), os.getppid(), int(os.environ.get("RAY_RAYLET_PID") or 0)):
        procfs.signal_holder(pid, _lock(folder), signal.SIGTERM)
        return SUBREAPER
    return ""
