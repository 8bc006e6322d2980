"""Answers about usage and waste."""

from penstock.api.types import PagedList
from penstock.core.model.answers import UsageRow, WasteRow


class UsageList(PagedList, frozen=True):
    """What was held from one time to another (unix ms), recomputed from the log."""

    from_ms: int
    until_ms: int
    rows: list[UsageRow]


class WasteList(PagedList, frozen=True):
    """What was held in [from_ms, until_ms) and how much of it was used, idle or not known, recomputed from the log."""

    from_ms: int
    until_ms: int
    currency: str
    digits: int
    priced: bool
    """Whether any price is declared: without, amounts are 0."""
    rows: list[WasteRow]
