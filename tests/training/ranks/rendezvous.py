"""A port at which ranks of a test meet."""

import os
import random
import socket

FIRST, COUNT = 12_000, 6_000
"""Below those that the kernel gives to connections (from 32,768), which may be taken before rank 0 listens."""


def free_port() -> int:
    """Return a port of 127.0.0.1 at which nobody listens."""
    draw = random.Random(os.urandom(8))
    while True:
        port = draw.randrange(FIRST, FIRST + COUNT)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection in TIME_WAIT bars nobody
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
