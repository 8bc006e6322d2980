"""A Ray cluster of one node on this machine, for a server that is given no address: started once, and found again."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from penstock.engines.processes import procfs
from penstock.engines.processes.ray_place import head_port
from penstock.privatefiles import make_folder, open_own, write_whole

START_S = 60.0
END_S = 5.0
START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"


class Head(msgspec.Struct, frozen=True):
    pid: int
    ticks: int
    port: int


def address(folder: Path) -> str:
    """Return the address of the local head, having started it where it does not live. Raises: OSError."""
    known = _known(folder)
    return f"127.0.0.1:{(known or _started(folder)).port}"


def end(folder: Path) -> bool:
    """End the local head with everything that it started; return whether it lived."""
    known = _known(folder)
    if known is None:
        return False
    os.kill(known.pid, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while procfs.alive(known.pid, known.ticks) and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(known.pid, signal.SIGKILL)
    return True


def _known(folder: Path) -> Head | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        head = msgspec.json.decode((folder / "head.json").read_bytes(), type=Head)
        if procfs.alive(head.pid, head.ticks):
            return head
    return None


def _started(folder: Path) -> Head:
    make_folder(folder)
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    temporary = Path(tempfile.gettempdir()) / f"penstock-head-{mark}-{os.getpid()}"  # short: sockets lie below it
    log = open_own(folder / "head.log", os.O_WRONLY | os.O_APPEND)
    words = ["start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=0", "--include-dashboard=false"]
    words += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0", "--disable-usage-stats"]
    try:
        process = subprocess.Popen(  # noqa: S603 - Ray of this Python
            [sys.executable, "-P", "-c", START, *words, f"--temp-dir={temporary}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)
    process.returncode = 0  # it outlives this process on purpose
    ticks = procfs.start_ticks(process.pid) or 0
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and procfs.alive(process.pid, ticks):
        if port := head_port(temporary):
            head = Head(process.pid, ticks, port)
            write_whole(folder / "head.json", msgspec.json.encode(head))
            return head
        time.sleep(0.1)
    raise OSError(f"no head of Ray came up within {START_S:.0f} s: {folder / 'head.log'}")
