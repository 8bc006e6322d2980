"""Turns the agent's signals into wishes that training looks at between two steps.

A handler only sets a flag: saving inside a signal handler could meet a half-updated state.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from penstock.training.errors import NotMainThread


class Wishes:
    """What was asked for from outside: to stop (after saving), to save (and carry on)."""

    def __init__(self) -> None:
        self.stop = False
        self.save = False
        self._owner = os.getpid()
        self._stop_signal: int | None = None
        self._before: dict[int, object] = {}

    def install(self, *, stop: signal.Signals, save: signal.Signals | None) -> None:
        """Take over the signals until `restore`. Raises: NotMainThread."""
        if threading.current_thread() is not threading.main_thread():
            raise NotMainThread(
                "a training session with signal handlers was opened in thread "
                f"{threading.current_thread().name!r}; expected the main thread. Open it there, or pass "
                "handle_signals=False and call request_stop() yourself."
            )
        self._stop_signal = stop
        for signal_number in (stop, save):
            if signal_number is not None:
                self._before[signal_number] = signal.signal(signal_number, self._received)

    def restore(self) -> None:
        """Put back the handlers that were there before."""
        for signal_number, handler in self._before.items():
            # None: set by C code; Python cannot name it, and the default is the nearest thing.
            signal.signal(signal_number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        self._before.clear()

    def _received(self, signal_number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A forked helper (a data loader's worker) inherited this handler. It has nobody to look at the
            # flag, and must still die when it is told to: otherwise the parent waits for it for ever.
            signal.signal(signal_number, signal.SIG_DFL)
            os.kill(os.getpid(), signal_number)
        elif signal_number == self._stop_signal:
            self.stop = True
        else:
            self.save = True
