"""What programs write to a terminal."""

import os
import re
import select
import time
from collections.abc import Iterator

_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")


def plain(text: str) -> str:
    """Return what a reader sees: without styles, and with lines that end as in a file."""
    return _ESCAPE.sub("", text).replace("\r\n", "\n")


def written(terminal: int, command: str, timeout_s: float) -> Iterator[str]:
    """Yield all that was written so far, whenever there is more, until the program has ended.

    Raises: AssertionError when nothing ends it in time.
    """
    found, deadline = b"", time.monotonic() + timeout_s
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        text = found.decode(errors="replace")
        assert ready, f"{command} did not end within {timeout_s} s; so far:\n{text}"
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the end of a terminal whose program has ended
            return
        if not piece:
            return
        found += piece
        yield found.decode(errors="replace")
