"""Alerts about maxima of queues and tenants: one when use reaches a percentage, without repeating the last alert.

Theory. Present use goes up and down with each job, so a threshold with a band below it (hysteresis) would still alert
all day. A percentage is noted when use is seen to reach it, and then not again for a day; a higher one is noted at
once. So each maximum writes at most one line per percentage and day, and a quota that is full for a week alerts daily.
Past alerts are read from the log only: a server that starts again repeats none.
"""

from collections.abc import Iterable, Mapping

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.answers import QuotaRow
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import QuotaNoted
from penstock.core.model.quantities import format_resource, resource_text
from penstock.core.order.queues import holder_text
from penstock.core.state.quota_notes import PERIOD_MS, Key, QuotaSaid
from penstock.core.status.quotas import key_of


def due_notes(rows: Iterable[QuotaRow], last: Mapping[Key, QuotaSaid], now_ms: int) -> list[QuotaNoted]:
    """Return the notes due now, in the order of the rows: the highest percentage that each maximum has reached.

    Args:
        rows: the use of every quota, with its alert percentages.
        last: the last note of each.
    """
    found = []
    for row in rows:
        key = key_of(row)
        said = last.get(key)
        before = said.percent if said is not None and now_ms - said.time_ms < PERIOD_MS else 0
        if row.maximum is None or row.level <= before:
            continue
        used, most = (format_resource(row.resource, amount) for amount in (row.used, row.maximum))
        text = f"{holder_text(key[0])} uses {used} of {most} {resource_text(row.resource)} ({row.percent} %)"
        found.append(QuotaNoted(*key, row.level, row.used, row.maximum, text))
    return found


def note(tx: Transaction, events: Iterable[QuotaNoted]) -> int:
    """Log notes that were computed from an earlier state, without those logged since; return their number."""
    count = 0
    for event in events:
        said = tx.state.quota_notes.last.get((event.holder, event.resource))
        if said is None or tx.now_ms - said.time_ms >= PERIOD_MS or said.percent < event.percent:
            tx.emit(event)
            count += 1
    return count


def is_limited(config: ClusterConfig) -> bool:
    """Return whether any maximum with alerts is declared."""
    said = [(one.max, one.alerts) for one in config.queues] + [(one.max, one.alerts) for one in config.tenants]
    return any(most and alerts for most, alerts in said)
