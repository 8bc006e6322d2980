"""Alerts of the last day about the maxima of queues and tenants, folded from the log."""

from collections.abc import Iterable

import msgspec

from penstock.core.model.events import QuotaNoted

PERIOD_MS = 24 * 3_600_000

Key = tuple[str, str]
"""A queue or `tenant:NAME`, and the resource."""


class QuotaSaid(msgspec.Struct, frozen=True):
    """The last alert about a maximum."""

    holder: str
    resource: str
    percent: int
    time_ms: int


class QuotaNotes:
    """A fold; `last` is never changed after it was given out."""

    def __init__(self, image: Iterable[QuotaSaid] = ()) -> None:
        self.last: dict[Key, QuotaSaid] = {(one.holder, one.resource): one for one in image}

    def image(self) -> tuple[QuotaSaid, ...]:
        return tuple(self.last.values())

    def apply(self, event: QuotaNoted, time_ms: int) -> None:
        fresh = {key: one for key, one in self.last.items() if time_ms - one.time_ms < PERIOD_MS}
        said = QuotaSaid(event.holder, event.resource, event.percent, time_ms)
        self.last = fresh | {(event.holder, event.resource): said}
