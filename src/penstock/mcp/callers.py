"""Who calls: each Penstock token has its own clients, budget and pending changes, and few calls at a time."""

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from penstock.client import Client
from penstock.mcp.budget import Budget, Limits
from penstock.mcp.confirmations import Confirmations
from penstock.mcp.errors import Refused

CALLS_AT_ONCE = 4
"""Of one caller."""
PATIENCE_S = 2.0
"""For which a refusal for now is tried again here; then the agent is asked to come back."""
CALLERS_MAX = 32
"""Callers that are known at a time."""
SPENT_MAX = 10_000
"""Callers that are gone, and whose spent budgets are kept."""


class Caller:
    """One token: what may be called with it at a time, and what its changes may still come to."""

    def __init__(self, connect: Callable[[], Client], budget: Budget, *, writes: bool) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self.running = 0
        """Calls that are being answered."""
        self.present = 0
        """Requests that are being heard: see `Callers.enter`."""
        self.budget = budget
        self.confirmations = Confirmations()
        self.writes = writes
        """Whether changes are allowed at all."""

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a client with the caller's token, for one thread."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = self._connect()
            client.patience_s = PATIENCE_S
        try:
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def begin(self) -> None:
        """Count a call. Raises: Refused for one too many."""
        with self._lock:
            if self.running >= CALLS_AT_ONCE:
                text = f"{CALLS_AT_ONCE} of your calls are being answered"
                raise Refused("too_many_requests", text, hint="wait for them", retry_after_s=1)
            self.running += 1

    def end(self) -> None:
        with self._lock:
            self.running -= 1

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()


class Callers:
    """Finds the caller of a token. Where a new one has no room, the one unused for longest leaves.

    A spent budget stays spent: it is kept when its caller leaves, and comes back with the token.
    """

    def __init__(self, connect: Callable[[str], Client], limits: Limits, *, writes: bool) -> None:
        self._connect, self._limits, self._writes = connect, limits, writes
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        self._spent: dict[bytes, Budget] = {}

    def enter(self, token: str) -> Caller | None:
        """Return the caller of a token that the server has accepted before, who stays until `leave`."""
        with self._lock:
            return self._entered(_digest(token))

    def _entered(self, digest: bytes) -> Caller | None:
        caller = self._known.get(digest)
        if caller is not None:
            self._known.move_to_end(digest)
            caller.present += 1
        return caller

    def leave(self, caller: Caller) -> None:
        with self._lock:
            caller.present -= 1

    def admit(self, token: str) -> Caller:
        """Return the caller of a token, who stays until `leave`, once the server accepts it.

        Raises: PenstockError when the server refuses the token, or does not answer; Refused when there is no room.
        """
        client = self._connect(token)
        try:
            client.me()
        finally:
            client.close()
        digest = _digest(token)
        with self._lock:
            if digest not in self._known:
                self._make_room()
                budget = self._spent.pop(digest, None) or Budget(self._limits)
                self._known[digest] = Caller(lambda: self._connect(token), budget, writes=self._writes)
            caller = self._entered(digest)
            assert caller is not None
            return caller

    def _make_room(self) -> None:
        if len(self._known) < CALLERS_MAX:
            return
        for digest, caller in self._known.items():
            spent = not caller.budget.untouched
            if caller.running == 0 and caller.present == 0 and not (spent and len(self._spent) >= SPENT_MAX):
                if spent:
                    self._spent[digest] = caller.budget
                del self._known[digest]
                caller.close()
                return
        raise Refused("overloaded", f"{CALLERS_MAX} tokens are in use", hint="try again later", retry_after_s=10)

    def close(self) -> None:
        with self._lock:
            for caller in self._known.values():
                caller.close()
            self._known.clear()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
