"""Proofs that the peer is the intended server: asked for on a connection, before anything is sent on it.

A killed server leaves its address behind, and the next process at that address would be sent a token. A live process
cannot be left behind: the kernel knows the owner of a socket, and the process that holds the server's lock.
"""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from penstock import tcp_table
from penstock.client.errors import NotProved, NotTrusted, ServerNotRunning
from penstock.tcp_table import Address, End

LOCK = "server.lock"
"""Of a data folder: held (flock) by each server on it for as long as the server lives."""
OTHERS_MAY_WRITE = 0o022
_PAUSES_S = (0.0, 0.001, 0.01, 0.1)
_PEER = struct.Struct("3i")
_TIME = struct.Struct("ll")


def owner_of(folder: Path) -> int:
    """Return the owner of a data folder (uid).

    Raises: NotTrusted when others may write to it: they could announce a server of their own.
    """
    known = os.stat(folder)
    if known.st_mode & OTHERS_MAY_WRITE:
        raise NotTrusted(
            f"others than its owner may write to {folder}: what it says of its server could be theirs",
            hint=f"chmod go-w {folder}",
        )
    return known.st_uid


def read_own(path: Path, owner: int) -> bytes:
    """Return a data folder's file. Raises: OSError; NotTrusted if others may have written it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if known.st_uid not in (owner, 0) or known.st_mode & OTHERS_MAY_WRITE:
            raise NotTrusted(
                f"{path} is not the word of the folder's owner: user {known.st_uid} has written it, or anybody may",
                hint=f"remove {path}, then start the server again: penstock down; penstock up",
            )
        return file.read()


def opened(path: Path, timeout_s: float | None) -> socket.socket:
    """Return a connection to the server that listens on a Unix socket in its data folder.

    Raises: ServerNotRunning when no server listens; NotProved when it is not a process of the folder's owner, or of
    root; OSError.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(link, f"/proc/self/fd/{folder}/{path.name}", timeout_s)  # the path itself may be too long for a socket
        _, peer, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if peer not in (os.fstat(folder).st_uid, 0):
            raise NotProved(
                f"a process of user {peer} listens on {path}, not the server of that folder: it was sent nothing",
                hint="find out who may write to the folder; penstock down and penstock up make a new socket",
            )
    except (ConnectionRefusedError, FileNotFoundError) as error:
        link.close()
        hint = "penstock up starts one"
        raise ServerNotRunning(
            f"no server runs on {path.parent}: no server listens on {path.name}", hint=hint
        ) from error
    except BaseException:
        link.close()
        raise
    finally:
        os.close(folder)
    return link


def _connect(link: socket.socket, path: str, timeout_s: float | None) -> None:
    """Connect, waiting for a place in the server's queue at most `timeout_s`."""
    if timeout_s is not None:
        whole = int(timeout_s)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(whole, int((timeout_s - whole) * 1e6)))
    try:
        link.connect(path)
    except BlockingIOError as error:
        raise TimeoutError("timed out") from error
    link.settimeout(timeout_s)


def of_process(link: socket.socket, folder: Path, pid: int) -> None:
    """Prove that a TCP connection leads to the server on a data folder, which says to be process `pid`.

    Raises: ServerNotRunning when that process is no server of the folder (any more); NotProved when another listens at
    the address, or it is unknown.
    """
    where = _shown(link)
    if pid <= 0 or not holds_lock(pid, folder / LOCK):
        text = f"no server runs on {folder}: what answers at {where} is another program, and was sent nothing"
        raise ServerNotRunning(text, hint="penstock up starts one") from ProcessLookupError(pid)
    try:
        owned = _user_of(pid) in (owner_of(folder), 0)
        proved = owned and any(_leads_to(link, pid, pause_s) for pause_s in _PAUSES_S)
    except OSError as error:
        hint = "ask as the user who runs the server, or start it again: penstock down; penstock up"
        raise NotProved(f"whether process {pid} answers at {where} is unknown: {error}", hint=hint) from error
    if not proved:
        text = f"not the server of {folder} (process {pid}) answers at {where}: it was sent nothing"
        raise NotProved(text, hint="start the server again: penstock down; penstock up")


def _user_of(pid: int) -> int:
    """Return the user of a process: its folder in /proc may still be root's."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith("Uid:")).split()[2])


def _leads_to(link: socket.socket, pid: int, pause_s: float) -> bool:
    """Return whether a process owns all sockets at the other end of a connection, after a pause.

    A process that accepts a connection at this very moment has it a little later than the kernel's table.
    """
    time.sleep(pause_s)
    ends = _ends(link)  # before the process's own, which may only have grown since
    return bool(ends) and {end.inode for end in ends} <= tcp_table.sockets_of(pid)


def of_own_user(link: socket.socket) -> None:
    """Prove that a TCP connection on this machine leads to a process of the caller's, or of root.

    Raises: NotProved when its owner is another user, or unknown.
    """
    ends, allowed = _ends(link), (os.geteuid(), 0)
    strangers = [end.uid for end in ends if end.uid not in allowed]
    if strangers or not ends:
        whose = f"a process of user {strangers[0]} answers" if strangers else "a server that cannot be verified answers"
        raise NotProved(
            f"{whose} at {_shown(link)}, unencrypted: the token was not sent",
            hint="use https, or PENSTOCK_INSECURE=1 if that is the server that you mean",
        )


def holds_lock(pid: int, lock: Path) -> bool:
    """Return whether a process lives and holds (flock) this very file."""
    try:
        wanted = os.stat(lock)
        files = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in files:
        with contextlib.suppress(OSError):
            known = os.stat(f"/proc/{pid}/fd/{number}")
            if (known.st_dev, known.st_ino) == (wanted.st_dev, wanted.st_ino):
                told = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
                if any(line.startswith("lock:") and "FLOCK" in line for line in told.splitlines()):
                    return True
    return False


def _ends(link: socket.socket) -> list[End]:
    """Return the sockets at the other end of a connection on this machine: the listening and the accepted one.

    Both are checked: a stranger could close the one once it has the other.
    """
    (host, port), own = _at(link.getpeername()), _at(link.getsockname())
    ends = [end for end in tcp_table.ends() if end.port == port]
    listening = tcp_table.listening(ends, host)
    accepted = [end for end in ends if (end.local, (end.remote, end.remote_port)) == (host, own)]
    return [*listening, *(end for end in accepted if end.inode)] if listening else []  # without an inode: not accepted


def _at(name: Iterable[object]) -> tuple[Address, int]:
    host, port, *_ = name
    return tcp_table.plain(ip_address(str(host).partition("%")[0])), int(str(port))


def _shown(link: socket.socket) -> str:
    host, port = _at(link.getpeername())
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
