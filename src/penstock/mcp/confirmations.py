"""Changes that were shown and wait for their confirmation: each bound to one caller, for a short time, once."""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.client import Client
from penstock.mcp.budget import Cost
from penstock.mcp.errors import Refused

if TYPE_CHECKING:
    from penstock.mcp.plan_tools import LeftAlone

CONFIRM_WITHIN_S = 300.0
PENDING_MAX = 16
"""Of one caller; one more drops the oldest."""
_AGAIN = "call the tool again for a new preview"


class Made(NamedTuple):
    """What a confirmed change has done."""

    done: str
    jobs: list[int]
    left_alone: "Sequence[LeftAlone]" = ()


class Pending(NamedTuple):
    """A change that was shown, exactly as it will be made."""

    summary: str
    """What it does, in words of Penstock's own: what a person reads when asked to approve the second call."""
    cost: Cost
    make: Callable[[Client, str], Made]
    """Makes the change by a client, under an idempotency key. Raises: PenstockError."""


class Confirmations:
    """The pending changes of one caller; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, tuple[float, Pending]] = OrderedDict()

    def add(self, pending: Pending) -> str:
        """Keep a change and return its confirmation token."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._pending) >= PENDING_MAX:
                self._pending.popitem(last=False)
            self._pending[token] = (self._clock() + CONFIRM_WITHIN_S, pending)
        return token

    def take(self, token: str, summary: str) -> Pending:
        """Return the change of a token, which is used up by that, whatever comes of it.

        Args:
            summary: what the caller means to confirm: the summary of the preview, word for word.
        Raises: Refused.
        """
        with self._lock:
            until, pending = self._pending.pop(token, (0.0, None))
        if pending is None:
            text = "there is no change of yours that waits for this confirmation"
            raise Refused("not_confirmed", text, field="confirmation", hint=f"each is valid once; {_AGAIN}")
        if self._clock() > until:
            text = f"the confirmation has expired: it was valid for {CONFIRM_WITHIN_S:.0f} s"
            raise Refused("not_confirmed", text, field="confirmation", hint=_AGAIN)
        if not hmac.compare_digest(summary.strip().encode(), pending.summary.encode()):
            text = "the confirmation is of another request: its summary differs"
            raise Refused("not_confirmed", text, field="summary", hint=f"repeat the summary word for word; {_AGAIN}")
        return pending

    def __len__(self) -> int:
        return len(self._pending)
