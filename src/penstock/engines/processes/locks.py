"""Locks of files that other processes may look at: whoever asks whether one is held, holds it for a moment."""

import fcntl
import time

POLL_S = 0.005


def take(descriptor: int, wait_s: float, *, shared: bool = False) -> bool:
    """Lock a file (flock) within `wait_s`; return False when another process holds it for longer. Raises: OSError."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True
