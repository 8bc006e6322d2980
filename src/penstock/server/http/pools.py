"""The server's threads, by the kind of their work. Each kind has its own, so that no kind waits for another."""

from penstock.core.order.turns import WaitingLimit
from penstock.server.http.precedence import Precedence
from penstock.server.http.turns import Crowd, Lane, WorkerPool

ASIDE = "penstock-aside"
"""How the names of these threads begin."""


class Pools:
    """Lives on the event loop.

    All threads share one interpreter: two that compute slow each other, and the loops, down. So there are few, the
    last of each kind is never the same tenant's as the others, and while several tenants call, each of them has one
    thread for short work and one for long work.
    """

    def __init__(self) -> None:
        self.crowd, self.precedence = Crowd(), Precedence()
        before = self.precedence
        short, long = Lane(self.crowd), Lane(self.crowd)
        self.reads = WorkerPool(f"{ASIDE}-reads", 3, WaitingLimit(user=256, tenant=512, total=4_096), short, before)
        """Work of some milliseconds: pages, rows of the log, pieces of outputs."""
        self.heavy = WorkerPool(f"{ASIDE}-heavy", 2, WaitingLimit(user=8, tenant=16, total=128), long, before)
        """Work that may take seconds: folds of the whole log, documents."""

        self.intake = WorkerPool(f"{ASIDE}-intake", 1, WaitingLimit(user=4, tenant=8, total=64), long)
        """Large requests, which take seconds to read."""
        self.files = WorkerPool(f"{ASIDE}-files", 2, WaitingLimit(user=8, tenant=16, total=128), long)
        """Snapshots of folders that are being sent: hashed, and written to the disk."""
        self.explain = WorkerPool(f"{ASIDE}-explain", 1, WaitingLimit(user=16, tenant=32, total=256), long)
        """Explanations: one thread, for they share an index."""

    def close(self) -> None:
        for pool in (self.reads, self.heavy, self.intake, self.files, self.explain):
            pool.close()
