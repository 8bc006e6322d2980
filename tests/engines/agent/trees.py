"""Programs for the leak test, each of which grows a tree of processes that tries to outlive it.

Run as `python -I -S trees.py KIND NOTES MARK LEAVE_S [stubborn] [hide]`. Every process appends "number, start ticks,
word" to the file NOTES, and carries MARK in its command line. LEAVE_S: when the first process leaves by itself ("-":
never). stubborn: the first process, and so all that it forks, ignores SIGTERM. hide: some of it also does what only
control groups can hold. Imports as little as possible, because it is started thousands of times; ends by itself.
"""

import _thread
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable

LIFE_S = 90.0
_SYS_EXIT = {"x86_64": 60, "aarch64": 93}
_SLEEP = "/bin/sleep"

KIND, NOTES, MARK, LEAVE_S = sys.argv[1:5]
OPTIONS = sys.argv[5:]
_notes = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(word: str = "lives") -> None:
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    os.write(_notes, f"{os.getpid()} {ticks} {word}\n".encode())


def seconds_since_boot() -> str:
    with open("/proc/uptime", encoding="ascii") as file:
        return file.read().split()[0]


def child(run: Callable[[], object]) -> int:
    """Fork a process that notes itself, does `run` and leaves; return its number."""
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(BaseException):
        note()
        run()
    os._exit(0)


def stay() -> None:
    time.sleep(LIFE_S)


def orphan(run: Callable[[], object]) -> None:
    """Double fork: whoever does `run` has lost its parent."""
    os.waitpid(child(lambda: child(run)), 0)


def own_group() -> None:
    os.setpgid(0, 0)
    stay()


def own_session() -> None:
    os.setsid()
    stay()


def without_environment() -> None:
    os.execve(_SLEEP, [f"{MARK} sleeps", str(LIFE_S)], {})


def double_fork() -> None:
    for run in (stay, own_group, without_environment):
        orphan(run)


def setsid() -> None:
    child(own_session)

    def twice() -> None:
        os.setsid()
        orphan(own_session)
        stay()

    def unseen() -> None:
        os.setsid()
        without_environment()

    child(twice)
    orphan(own_session)
    if "hide" in OPTIONS:
        orphan(unseen)


def ignoring() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    child(stay)
    orphan(stay)

    def answering() -> None:
        """Answer each SIGTERM with one more process."""
        signal.signal(signal.SIGTERM, lambda *_: bool(child(stay)))
        until = time.monotonic() + LIFE_S
        while time.monotonic() < until:
            time.sleep(1)

    child(answering)


def holding_files() -> None:
    """Hold the output and a locked file among the checkpoints, and go on writing to both."""
    held = os.open(f"{os.environ['PENSTOCK_CHECKPOINT_DIR']}/held", os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(held, fcntl.LOCK_EX)

    def writing() -> None:
        os.setpgid(0, 0)
        for _ in range(int(LIFE_S * 20)):
            os.write(1, b"still here\n")
            os.pwrite(held, b"still here\n", 0)
            time.sleep(0.05)

    child(writing)
    orphan(writing)
    child(stay)


def grandchildren(depth: int = 3) -> None:
    for _ in range(2 if depth else 0):
        child(lambda: (grandchildren(depth - 1), stay()))


def zombies() -> None:
    """Never reap a child; some that never will be are born to a process that goes on, some to one that leaves."""
    for _ in range(4):
        child(lambda: None)

    def barren() -> None:
        for _ in range(3):
            child(lambda: None)

    child(lambda: (barren(), own_group()))
    orphan(lambda: (barren(), stay()))
    child(barren)


def threads() -> None:
    for _ in range(3):
        _thread.start_new_thread(stay, ())
    forked = _thread.allocate_lock()
    forked.acquire()

    def forking() -> None:
        """One thread forks a process that stays, then more and more that stay only for a moment."""
        child(stay)
        forked.release()
        for _ in range(int(LIFE_S * 20)):
            os.waitpid(child(lambda: time.sleep(0.03)), 0)
            time.sleep(0.02)

    _thread.start_new_thread(forking, ())
    forked.acquire()
    child(headless)
    orphan(lambda: (os.setsid(), headless()))


def headless() -> None:
    """End the first thread only: the process looks like a zombie, and its other threads go on."""
    import ctypes

    _thread.start_new_thread(stay, ())
    ctypes.CDLL(None).syscall(_SYS_EXIT[os.uname().machine], 0)


GROW = {
    "double-fork": double_fork,
    "setsid": setsid,
    "ignores-sigterm": ignoring,
    "holds-files": holding_files,
    "grandchildren": grandchildren,
    "zombies": zombies,
    "threads": threads,
}


def main() -> None:
    if "stubborn" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note()
    GROW[KIND]()
    note("complete")
    time.sleep(LIFE_S if LEAVE_S == "-" else float(LEAVE_S))
    note(f"left {seconds_since_boot()}")
    os._exit(0)


if __name__ == "__main__":
    main()
