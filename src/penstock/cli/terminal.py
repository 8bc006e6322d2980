"""Runs a program of another user in the foreground, without access to our terminal.

A program with root's terminal can push input into it that root's shell reads as typed (TIOCSTI), and go on reading from
it later. So the program is in a session of its own, with a terminal of its own in place of ours, and we relay input
and output.
"""

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import tty
from collections.abc import Callable, Iterator
from types import FrameType

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
AT_ONCE = 4096
LAST_MAX = 256
"""Largest number of pieces of output that are shown after the program has ended."""
FAILED_CODE = 126
_STANDARD = (0, 1, 2)


def run_apart(become: Callable[[int | None], None]) -> int:
    """Run a program in a child, and return its exit code: 128 and the signal when one has ended it.

    Args:
        become: called in the child with the descriptor of its terminal, if it has one; replaces the process.
    """
    terminals = [number for number in _STANDARD if os.isatty(number)]
    master, slave = os.openpty() if terminals else (None, None)
    if slave is not None:
        _copy_size(terminals[0], slave)
    child = os.fork()
    if child == 0:
        _be_apart(become, terminals, slave)
    shows = next(iter(sorted(terminals, key=(1, 2, 0).index)), 1)
    with _raw(0 in terminals), _signals(child, terminals, master):
        _relay(child, master, reads=0 in terminals, shows=shows)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for end in (master, slave):  # the slave end was kept open: the program may close all of its own, and open it again
        if end is not None:
            os.close(end)
    return code if code >= 0 else 128 - code


def _be_apart(become: Callable[[int | None], None], terminals: list[int], slave: int | None) -> None:
    """Be the program; never returns. No descriptor goes along but the standard ones, and none of our terminal."""
    try:
        os.setsid()
        if slave is not None:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for number in terminals:
                os.dup2(slave, number)
        become(slave)
    except OSError as error:
        os.write(2, f"penstock: it could not be entered: {error.strerror}\n".encode())
    finally:
        os._exit(FAILED_CODE)


def close_others() -> None:
    """Close every descriptor but the standard ones: a shell may have been given some that are not for a job."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in _STANDARD:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw(wanted: bool) -> Iterator[None]:
    """Let keys go through as they are typed; the program's terminal interprets them."""
    if not wanted:
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def _signals(child: int, terminals: list[int], master: int | None) -> Iterator[None]:
    """Pass signals on to the program, which is in no group with us."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    def resize(_: int, __: FrameType | None) -> None:
        if master is not None:
            _copy_size(terminals[0], master)

    handlers = dict.fromkeys(PASSED_ON, pass_on) | {signal.SIGWINCH: resize}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _relay(child: int, master: int | None, *, reads: bool, shows: int) -> None:
    """Relay input and output until the program has ended; processes that it left behind are not waited for."""
    ending = os.pidfd_open(child)
    watched = [ending]
    if master is not None:
        os.set_blocking(master, False)
        watched.append(master)
    typed = b""
    try:
        while True:
            wanted = [*watched, 0] if reads and not typed else watched
            ready, writable, _ = select.select(wanted, watched[1:] if typed else [], [])
            if 0 in ready:
                typed = _read(0)
                reads = bool(typed)
            if master is not None and (writable or typed):
                typed = _written(master, typed)
            for _ in range(LAST_MAX if ending in ready else 1):
                _show(shows, shown := _read(master) if master in ready or ending in ready else b"")
                if not shown:
                    break
            if ending in ready:
                return
    finally:
        os.close(ending)


def _read(descriptor: int | None) -> bytes:
    """Return the bytes that are ready to read; b'' when there are none, or the terminal is gone."""
    if descriptor is None:
        return b""
    try:
        return os.read(descriptor, AT_ONCE)
    except OSError:
        return b""


def _written(master: int, data: bytes) -> bytes:
    """Write as much as the program takes; return the rest."""
    try:
        return data[os.write(master, data) :]
    except BlockingIOError:
        return data


def _show(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a terminal that was closed: the program gets a signal for it
        while data:
            data = data[os.write(descriptor, data) :]
