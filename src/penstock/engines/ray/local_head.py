"""A Ray cluster of one node on this machine, for a server that is given no address: started once, and found again."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from ipaddress import IPv4Address
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock import tcp_table
from penstock.engines.processes import procfs
from penstock.engines.processes.ray_place import OPENED, head_port, short_path
from penstock.privatefiles import check, make_folder, open_own, write_whole

START_S = 60.0
END_S = 5.0
PREFIX = "penstock-head-"
ADDRESS = IPv4Address("127.0.0.1")
START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"


class Head(msgspec.Struct, frozen=True):
    pid: int
    ticks: int
    port: int
    folder: str = ""
    """Made for it alone, and removed with it."""

    @property
    def listens(self) -> bool:
        """Whether its own processes, and none of a stranger, have its port."""
        session = (pid for pid in procfs.all_pids() if procfs.session_of(pid) == self.pid)
        return tcp_table.held(self.port, ADDRESS, session)


def address(folder: Path) -> str:
    """Return the address of the local head, having started it where it does not live.

    Raises: OSError when none comes up, or another program listens at its port; NotPrivate.
    """
    known = _known(folder)
    if known is not None and not known.listens:
        raise OSError(f"the head of Ray (process {known.pid}) does not listen at its port {known.port}")
    return f"{ADDRESS}:{(known or _started(folder)).port}"


def end(folder: Path) -> bool:
    """End the local head with everything that it started; return whether it lived."""
    known = _known(folder)
    if known is None:
        return False
    _end(known)
    return True


def _end(head: Head) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(head.pid, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while procfs.alive(head.pid, head.ticks) and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    _remove(head)


def _remove(head: Head) -> None:
    """Remove its folder, if it is still the one that was made for it."""
    with contextlib.suppress(OSError):
        if head.folder and os.lstat(head.folder).st_uid == os.geteuid():
            shutil.rmtree(head.folder, ignore_errors=True)


def _known(folder: Path) -> Head | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        head = msgspec.json.decode((folder / "head.json").read_bytes(), type=Head)
        if procfs.alive(head.pid, head.ticks):
            return head
        _remove(head)
    return None


def _started(folder: Path) -> Head:
    make_folder(folder)
    temporary = Path(tempfile.mkdtemp(prefix=PREFIX, dir=short_path(f"{PREFIX}12345678").parent))
    check(temporary)
    log = open_own(folder / "head.log", os.O_WRONLY | os.O_APPEND)
    words = ["start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=0", "--include-dashboard=false"]
    words += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0", "--disable-usage-stats"]
    try:
        process = subprocess.Popen(  # noqa: S603 - Ray of this Python
            [sys.executable, "-P", "-c", START, *words, f"--temp-dir={temporary / OPENED}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)
    process.returncode = 0  # it outlives this process on purpose
    head = Head(process.pid, procfs.start_ticks(process.pid) or 0, 0, str(temporary))
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and procfs.alive(head.pid, head.ticks):
        head = replace(head, port=head_port(temporary / OPENED) or 0)
        if head.port and head.listens:
            write_whole(folder / "head.json", msgspec.json.encode(head))
            return head
        time.sleep(0.1)
    _end(head)
    raise OSError(f"no head of Ray came up within {START_S:.0f} s: {folder / 'head.log'}")
