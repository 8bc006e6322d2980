"""Mounts what the container of a replica sees where its runtime finds it, then becomes the container's keeper.

Started by the agent's gate as `python -I -S source_mounts.py PLAN KEEPER`.

Each source is opened as the program's account, and mounted by that descriptor into a folder of root's which only this
process and its children see: what an account renames meanwhile changes nothing, and the runtime is given names of ours
alone. PLAN is a file with JSON, made by `commands.py`; KEEPER is `keeper.py`. Nothing of Penstock is imported here.
"""

# root's: plan and mount points lie in the agent's folder; `send_opened` opens the account's things as the account

import ctypes
import json
import os
import socket
import stat
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

NEVER_RAN_CODE = 126
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
TEXT_MAX = 2_000

Source = Sequence[Any]
"""A path, and the folders one of which it has to lie in: None for what is not the job's to name."""


class NotMounted(OSError):
    """The node cannot mount anything: no fault of the job's."""


class NotAllowed(Exception):
    """A source cannot be opened, or lies where no job may mount anything: a fault of the job's."""


def main(path: str, keeper: str) -> NoReturn:
    """Mount the sources of a plan, and become the keeper. Does not return."""
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    try:
        mount_sources(plan["sources"], plan["user"], plan["parts"])
    except NotAllowed as refused:
        print(f"penstock: {refused}", file=sys.stderr, flush=True)
        os._exit(NEVER_RAN_CODE)
    except OSError as failure:
        descriptor = os.open(plan["unknown"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        os.write(descriptor, f"its container cannot see its folders: {failure}".encode()[:TEXT_MAX])
        os._exit(NEVER_RAN_CODE)
    os.execv(sys.executable, [sys.executable, "-I", "-S", keeper, path])  # noqa: S606 - this Python


def mount_sources(sources: Sequence[Source], user: Sequence[Any], parts: str) -> None:
    """Mount each source below `parts`, under its number. Raises: NotAllowed; OSError.

    Args:
        user: uid, gid and further groups of the account that opens them; empty: as this process.
        parts: a folder that is made; '' where the runtime mounts the paths itself, as the same user.
    """
    if parts:  # before anything is opened: only what is of these mounts can be mounted in them
        own_mounts()
        os.mkdir(parts, 0o700)
    mount_opened(sources, user, parts)


def mount_opened(sources: Sequence[Source], user: Sequence[Any], parts: str) -> None:
    """Mount what a child, which becomes the account, opens. Raises: NotAllowed; OSError."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        os._exit(send_opened([source for source, _ in sources], user, theirs))
    theirs.close()
    said = b""
    with ours:
        for number, (source, folders) in enumerate(sources):
            said, descriptors, _, _ = socket.recv_fds(ours, TEXT_MAX, 1)
            if not descriptors:
                break
            try:
                _check(source, descriptors[0], folders)
                if parts:
                    _mount_one(descriptors[0], f"{parts}/{number}")
            finally:
                os.close(descriptors[0])
    if os.waitpid(child, 0)[1]:
        raise NotAllowed(said.decode(errors="replace"))


def _check(source: str, descriptor: int, folders: Sequence[str] | None) -> None:
    """Raises: NotAllowed for what is opened outside of the folders that jobs may mount."""
    if folders is None:
        return
    there, real = os.readlink(f"/proc/self/fd/{descriptor}"), [os.path.realpath(one).rstrip("/") for one in folders]
    if not any(f"{there}/".startswith(f"{one}/") for one in real):
        raise NotAllowed(f"{source} leads to {there}, which no job may mount: expected one in {', '.join(folders)}")


def _mount_one(descriptor: int, point: str) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(point, 0o700)
    else:
        os.close(os.open(point, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _mount(f"/proc/self/fd/{descriptor}", point, MS_BIND | MS_REC)


def send_opened(paths: Sequence[str], user: Sequence[Any], answer: socket.socket) -> int:
    """Send a descriptor of each path, as a user reaches it; return 0, or 1 after the reason why one cannot be."""
    path = ""
    try:
        if user:
            os.setgroups(user[2])
            os.setresgid(user[1], user[1], user[1])
            os.setresuid(user[0], user[0], user[0])
        for path in paths:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            kind = os.fstat(opened).st_mode
            if stat.S_ISDIR(kind):
                os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened))
            elif not stat.S_ISREG(kind):
                raise OSError(0, "it is neither a folder nor a plain file")
            socket.send_fds(answer, [b"."], [opened])
            os.close(opened)
    except OSError as error:
        answer.send(f"{path} cannot be used: {error.strerror}".encode())
        return 1
    return 0


def own_mounts() -> None:
    """Let this process and its children alone see what it mounts; they see what others mount. Raises: NotMounted."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise NotMounted(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _mount("none", "/", MS_REC | MS_SLAVE)


def _mount(source: str, target: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), os.fsencode(target), None, ctypes.c_ulong(flags), None):
        raise NotMounted(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
