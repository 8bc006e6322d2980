"""Requests by idempotency key: kept for a while, so that a repeated request has no second effect."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId

IDEMPOTENCY_KEPT_MS = 24 * 3_600_000
IDEMPOTENCY_KEPT_MAX = 100_000


class IdempotencyEntry(msgspec.Struct, frozen=True):
    """The jobs that a request made: `count` from `first_job` on."""

    first_job: JobId
    count: int
    digest: str
    time_ms: int


class Remembered(dict[str, IdempotencyEntry]):
    """The jobs that requests made, by `USER/KEY`, oldest first; only `[]=` and `del` change it."""

    def __init__(self, entries: Mapping[str, IdempotencyEntry] = MappingProxyType({})) -> None:
        super().__init__()
        self._of_user: dict[str, dict[str, None]] = {}
        for key, entry in entries.items():
            self[key] = entry

    def __setitem__(self, key: str, entry: IdempotencyEntry) -> None:
        super().__setitem__(key, entry)
        self._of_user.setdefault(_user(key), {})[key] = None

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        own = self._of_user[_user(key)]
        del own[key]
        if not own:
            del self._of_user[_user(key)]

    def oldest_of_most(self) -> str:
        """Return the oldest key of the user with most keys: no user displaces the keys of users with fewer."""
        most = max(self._of_user, key=lambda user: len(self._of_user[user]))
        return next(iter(self._of_user[most]))


def remember(entries: Remembered, event: JobSubmitted, time_ms: int, *, most: int = 0) -> None:
    """Keep the jobs of a request; forget entries beyond the kept time, or number (`most`, where given)."""
    entries[event.idempotency_key] = IdempotencyEntry(event.job_id, event.batch, event.digest, time_ms)
    while entries:
        oldest = next(iter(entries))
        if time_ms - entries[oldest].time_ms < IDEMPOTENCY_KEPT_MS:
            break
        del entries[oldest]
    while len(entries) > (most or IDEMPOTENCY_KEPT_MAX):
        del entries[entries.oldest_of_most()]


def _user(key: str) -> str:
    return key.partition("/")[0]
