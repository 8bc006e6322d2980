"""Turns the agent's signals into requests that training checks between two steps.

A handler only sets a flag: saving inside a signal handler could meet a half-updated state.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from penstock.training.errors import STOPPED_BY_SIGTERM, NotMainThread

CHOSEN = signal.SIGUSR1


class Wishes:
    """Requests from outside: to stop (after saving), to save (and carry on)."""

    def __init__(self) -> None:
        self.stop = False
        self.save = False
        self._owner = os.getpid()
        self._stop_signal: int | None = None
        self._before: dict[int, object] = {}
        self._say: Callable[[str], None] | None = None
        self._ends: tuple[int, int] | None = None

    def open_pipe(self) -> tuple[int, int] | None:
        """Return the ends (read, write) of a pipe that gets a byte for each signal, even while the main thread is busy.

        None where the program uses such a pipe itself (asyncio does). Call it after `install`; the caller closes the
        end to read from.
        """
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(read_end)
            os.close(write_end)
            return None
        self._ends = read_end, write_end
        # A stop signal to a forked data loader's worker must not look like one to this process.
        os.register_at_fork(after_in_child=self._deaf)
        return self._ends

    def _deaf(self) -> None:
        if self._ends is not None:
            signal.set_wakeup_fd(-1)

    def install(
        self,
        *,
        stop: signal.Signals,
        save: signal.Signals | None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Take over the signals until `restore`.

        Args:
            say: without `save`, a signal is chosen that the program leaves at its default; `say` gets its name, and ''
                in `restore`. None: none is chosen.
        Raises: NotMainThread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise NotMainThread(
                "a training session with signal handlers was opened in thread "
                f"{threading.current_thread().name!r}; expected the main thread. Open it there, or pass "
                "handle_signals=False and call request_stop() yourself."
            )
        self._stop_signal = stop
        if save is None and say is not None and signal.getsignal(CHOSEN) is signal.SIG_DFL:
            save, self._say = CHOSEN, say
        for signal_number in (stop, save):
            if signal_number is not None:
                self._before[signal_number] = signal.signal(signal_number, self._received)
        if self._say is not None:
            self._say(CHOSEN.name)

    def retake(self) -> None:
        """Reinstall the handlers of `install` where a library has replaced them since."""
        for signal_number in self._before:
            signal.signal(signal_number, self._received)

    def restore(self) -> None:
        """Put back the handlers that were there before, and end the pipe."""
        if self._ends is not None and os.getpid() == self._owner:
            signal.set_wakeup_fd(-1)
            os.close(self._ends[1])
            self._ends = None
        if self._say is not None and os.getpid() == self._owner:
            self._say("")
        self._say = None
        for signal_number, handler in self._before.items():
            # None: set by C code; Python cannot name it, and the default is the nearest thing.
            signal.signal(signal_number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        self._before.clear()

    def _received(self, signal_number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A forked helper (a data loader's worker) inherited this handler. It has no loop that checks the
            # flag, and must still die on the signal: otherwise the parent waits for it for ever.
            signal.signal(signal_number, signal.SIG_DFL)
            os.kill(os.getpid(), signal_number)
        elif signal_number == self._stop_signal:
            self.stop = True
        else:
            self.save = True


def leave_at_once() -> NoReturn:
    """End this process at once, without `finally` or `atexit`; the state is on disk."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(STOPPED_BY_SIGTERM)
