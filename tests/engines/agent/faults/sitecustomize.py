"""Lets calls of an agent's own processes fail, as a plan says that a test writes; loaded by their PYTHONPATH.

Only what the kernel could refuse: writes to files, not to pipes; opens that write, or for want of descriptors; control
groups for want of memory alone. What was refused is noted with who called, so that a test can say what it has walked
over.
"""

import errno
import json
import os
import random
import stat
import sys
from typing import Any

AGENT = "penstock.engines.agent.guardian"
CALLS = (
    *("write", "pwrite", "open", "rename", "replace", "unlink", "rmdir", "mkdir", "chmod", "ftruncate", "fsync"),
    *("posix_fallocate", "fork", "posix_spawn", "execve", "pipe", "memfd_create"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Faults:
    """Stands before the functions of `os`."""

    def __init__(self, plan: str) -> None:
        self._path, self._stamp, self._plan = plan, (0, 0), {}
        self._real = {name: getattr(os, name) for name in CALLS}
        self._stat, self._open, self._read, self._close = os.stat, os.open, os.read, os.close
        for name in CALLS:
            setattr(os, name, self._wrap(name))

    def _wrap(self, name: str) -> Any:
        real = self._real[name]

        def call(*args: Any, **more: Any) -> Any:
            number = self._number(name, args)
            if number == "short":
                return real(args[0], bytes(args[1])[: len(args[1]) // 2])
            if number == "memory":
                raise MemoryError
            if number:
                raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))
            return real(*args, **more)

        return call

    def _number(self, name: str, args: tuple[Any, ...]) -> str:
        plan = self._now()
        if name not in plan.get("calls", ()) or not self._can(name, args) or self._rng.random() >= plan["rate"]:
            return ""
        found: str = self._rng.choice(plan["errors"])
        if (found == "short" and name != "write") or (found == "EMFILE" and name in ("write", "pwrite", "fork")):
            return ""
        if str(args[0] if args else "").startswith("/sys/") and found not in ("ENOMEM", "memory"):
            return ""
        line = f"{name} {found} {_caller()}\n".encode()
        log = self._open(plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._real["write"](log, line)
        self._close(log)
        return found

    def _can(self, name: str, args: tuple[Any, ...]) -> bool:
        if name == "write":
            return stat.S_ISREG(os.fstat(args[0]).st_mode)
        return name != "open" or bool(args[1] & _WRITES)

    def _now(self) -> dict[str, Any]:
        try:
            known = self._stat(self._path)
        except OSError:
            self._stamp = (0, 0)
            return {}
        if (known.st_ino, known.st_mtime_ns) != self._stamp:
            file = self._open(self._path, os.O_RDONLY)
            self._plan = json.loads(self._read(file, 65_536))
            self._close(file)
            self._stamp = (known.st_ino, known.st_mtime_ns)
            self._rng = random.Random(f"{self._plan['seed']} {os.getpid()}")
        return self._plan


def _caller() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and "/penstock/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/penstock/')[2]}:{frame.f_code.co_name}"


if AGENT in sys.orig_argv and "FAULTS_PLAN" in os.environ:
    Faults(os.environ["FAULTS_PLAN"])
