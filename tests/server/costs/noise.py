"""A tenant that does its worst on every route at once, as a process of its own.

    python -m tests.server.costs.noise PORT SECONDS [NICENESS]

It has the tokens of a reader and of a member of one tenant, sends what costs most in threads, keeps streams open, and
asks hundreds of small questions at once. It says `ready` when it begins, and ends by itself, or when its standard input
does; then it prints how often it got which status (0: no answer) as one line of JSON.
"""

import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.server.costs import changes, reads, submits
from tests.server.costs.world import Sent, ask, head

CALLERS = ("reader", "member", "owner", "")
SENDERS = ("POST /jobs", "POST /jobs", "POST /plan", "GET", "", "")
"""Of which operations each of them sends."""
STREAMS, BURSTS, BURST = 64, 2, 140
BEFORE_SMALL = 0.4
"""Part of the time after which small questions begin: where they take the whole loop, nothing else gets in."""
LEFT_OUT = ("a body over 64 MiB", "mostly spaces")
"""Bodies that are only large: the noise would be busy with sending."""
SMALL = ("/jobs", "/alerts", "/queues", "/usage", "/waste", "/nodes", "/quotas", "/pools", "/eta")


class Noise:
    def __init__(self, port: int, seconds: float) -> None:
        self.port, self._seconds, self._deadline = port, seconds, 0.0
        self.statuses: Counter[int] = Counter()
        found = [*submits.cases(slow=True), *changes.cases(), *reads.cases()]
        cases = [one for one in found if one.caller in CALLERS and one.name not in LEFT_OUT]
        self._made = [(one, one.make()) for one in cases]

    def run(self) -> None:
        """Go on until the time is up, or nobody listens any more."""
        self._deadline = time.monotonic() + self._seconds
        work: list[Callable[[], None]] = [partial(self._send, at, what) for at, what in enumerate(SENDERS)]
        _begin(*work, self._follow, self._listen)
        small_from = time.monotonic() + self._seconds * BEFORE_SMALL
        while not self._over:
            time.sleep(0.1)
            if small_from and time.monotonic() > small_from:
                _begin(*[self._ask_small] * BURSTS)
                small_from = 0.0

    @property
    def _over(self) -> bool:
        return time.monotonic() > self._deadline

    def _listen(self) -> None:
        sys.stdin.read()
        self._deadline = 0.0

    def _send(self, seed: int, operations: str) -> None:
        """Send what costs most, first what is least work to send, and then in an order of its own."""
        order = random.Random(seed)
        mine = [(case, made) for case, made in self._made if case.operation.startswith(operations)]
        mine.sort(key=lambda one: sum(len(sent.body) for sent in one[1]))
        mine = mine[seed % 2 :: 2] + mine[1 - seed % 2 :: 2]
        while not self._over:
            for case, made in mine:
                for sent in made:
                    if not self._over:
                        self.statuses[ask(self.port, sent, case.caller).status] += 1
            order.shuffle(mine)

    def _ask_small(self) -> None:
        while not self._over:
            for path in SMALL:
                with contextlib.suppress(OSError):
                    self._burst(head(Sent("GET", path), "reader"))

    def _burst(self, text: bytes) -> None:
        """Ask the same on many connections before the first answer is read."""
        with contextlib.ExitStack() as stack:
            opened = []
            for _ in range(BURST):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=30))
                connection.sendall(text)
                opened.append(connection)
            for connection in opened:
                words = connection.recv(12).split()
                self.statuses[int(words[1]) if len(words) > 1 else 0] += 1
                while connection.recv(1 << 20) and not self._over:
                    pass

    def _follow(self) -> None:
        """Keep as many streams as there may be, from the first record on, and read slowly."""
        text = head(Sent("GET", "/events/stream?after=0"), "reader")
        while not self._over:
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                opened = []
                for _ in range(STREAMS):
                    connection = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=30))
                    connection.sendall(text)
                    opened.append(connection)
                for connection in opened * 10:
                    connection.recv(1 << 16)


def _begin(*work: Callable[[], None]) -> None:
    for each in work:
        threading.Thread(target=each, daemon=True).start()


def main() -> None:
    os.nice(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    noise = Noise(int(sys.argv[1]), float(sys.argv[2]))
    print("ready", flush=True)
    noise.run()
    print(json.dumps(dict(noise.statuses)), flush=True)
    os._exit(0)  # threads may wait for an answer still


if __name__ == "__main__":
    main()
