"""The books: sessions of all tenants that may still count for a bill, folded from the log record by record.

Invoiced sessions are dropped; the rest can be stored and loaded, so that a start folds only the tail of the log.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.core.ledger.accounts import JournalLog
from penstock.core.ledger.sessions import LogImage, Loss, SessionLog, UsageInterval
from penstock.core.ledger.settlement import BilledUse
from penstock.core.model import events as ev
from penstock.core.model.answers import JournalEntry
from penstock.core.model.ids import AttemptNumber, JobId, TenantName
from penstock.core.state.accounts import MoneyImage


class BooksImage(msgspec.Struct, frozen=True):
    """The whole books, at the record that `log` has folded last."""

    log: LogImage
    ended: tuple[UsageInterval, ...]
    money: MoneyImage
    journal: tuple[JournalEntry, ...]


class UsageLog:
    """A fold of the log. For one thread."""

    def __init__(self, image: BooksImage | None = None) -> None:
        self.log = SessionLog(image.log) if image else SessionLog()
        self._ended: dict[TenantName, list[UsageInterval]] = {}
        self._journal = JournalLog(image.money, image.journal) if image else JournalLog()
        for session in image.ended if image else ():
            self._ended.setdefault(session.tenant, []).append(session)

    def image(self) -> BooksImage:
        return BooksImage(
            self.log.image(), tuple(self.all_ended()), self._journal.image(), tuple(self._journal.entries)
        )

    def journal(self) -> list[JournalEntry]:
        """Return all entries of the ledger, in order."""
        return list(self._journal.entries)

    def take(self, records: Iterable[ev.Record]) -> None:
        """Fold the next records.

        Raises: BrokenInvariant when they do not follow the last one.
        """
        for record in records:
            self._journal.take(record)
            for session in self.log.take(record):
                self._ended.setdefault(session.tenant, []).append(session)

    def all_ended(self) -> Iterator[UsageInterval]:
        """Yield the ended sessions of all tenants."""
        return (session for held in self._ended.values() for session in held)

    @property
    def ended(self) -> int:
        """How many ended sessions it holds."""
        return sum(map(len, self._ended.values()))

    def tenants(self) -> list[TenantName]:
        """Return all tenants with sessions in the books."""
        return sorted({*self._ended, *(session.tenant for session in self.log.open.values())})

    def held(self, tenant: TenantName) -> BilledUse:
        """Return the sessions and losses of a tenant."""
        found = [*self._ended.get(tenant, ()), *(s for s in self.log.open.values() if s.tenant == tenant)]
        attempts = {(session.job_id, session.attempt) for session in found}
        lost: Mapping[tuple[JobId, AttemptNumber], Loss] = {
            key: loss for key, loss in self.log.losses.items() if key in attempts
        }
        return BilledUse(found, lost)

    def reach_ms(self, tenant: TenantName, from_ms: int) -> int:
        """Return since when sessions count for bills from `from_ms` on: a node failure refunds work that was paid
        before, and the cost of that depends on all sessions of its month."""
        losses = (loss.from_ms for loss in self.held(tenant).losses.values() if loss.at_ms >= from_ms)
        return min([from_ms, *losses, *self.log.unsafe_since(tenant)])

    def drop(self, tenant: TenantName, before_ms: int, minimum_ms: int) -> None:
        """Forget a tenant's attempts that ended, minimum period included, before `before_ms`.

        An attempt is kept or dropped as a whole: its parts have one minimum together, and its loss may reach back to
        its begin.
        """
        live = {(s.job_id, s.attempt) for s in self.log.open.values()}
        kept = live | {(s.job_id, s.attempt) for s in self._ended.get(tenant, ()) if s.end_ms + minimum_ms >= before_ms}
        before = self._ended.get(tenant, [])
        self._ended[tenant] = [s for s in before if (s.job_id, s.attempt) in kept]
        for session in before:
            key = session.job_id, session.attempt
            if key not in kept:
                self.log.losses.pop(key, None)
        if not self._ended[tenant]:
            del self._ended[tenant]
