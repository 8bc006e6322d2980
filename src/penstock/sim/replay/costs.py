"""Costs of a replay at the declared prices: its events folded into the usage log that real bills are made from.

Work lost with failed nodes is not refunded: a replay does not record when programs saved.
"""

from collections.abc import Collection, Iterable
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from penstock.control.calendar import calendar
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.settlement import bill_for
from penstock.core.model import events as ev
from penstock.core.model.ids import JobId, TenantName
from penstock.core.model.prices import Billing
from penstock.core.model.quantities import money
from penstock.traces.model import Trace


class Costs(msgspec.Struct, frozen=True):
    """Sums of bills, in the smallest unit of the currency."""

    currency: str
    digits: int
    total: int
    by_tenant: dict[str, int]

    def of(self, tenant: str | None) -> str:
        """Return the formatted amount that a tenant owes, or (None) the sum of all."""
        return money(self.total if tenant is None else self.by_tenant.get(tenant, 0), self.digits)


def declared_billing(trace: Trace) -> Billing:
    """Return the prices that were declared last in the trace's log."""
    declared = [change.config for change in trace.changes if change.config is not None]
    return (declared[-1] if declared else trace.config).billing


class CostMeter:
    """Folds the records of a replay, then sums its costs. Without prices it does nothing."""

    def __init__(self, billing: Billing) -> None:
        self._billing = replace(billing, refund_lost=False)
        self._books = UsageLog()

    def take(self, records: Iterable[ev.Record]) -> None:
        if self._billing.tariff.prices:
            self._books.take(records)

    def costs(self, jobs: Collection[JobId], ended_ms: int) -> Costs | None:
        """Return the costs of `jobs`, the minimum of each hold included; None where there are no prices.

        Use of other jobs counts for tiers. Months are billed one by one, as they would be invoiced.

        Args:
            ended_ms: when the replay ended.
        """
        billing = self._billing
        if not billing.tariff.prices:
            return None
        until_ms = ended_ms + billing.tariff.minimum_max_ms
        sums: dict[str, int] = {tenant: self._of(tenant, jobs, until_ms) for tenant in self._books.tenants()}
        return Costs(billing.currency, billing.digits, sum(sums.values()), sums)

    def _of(self, tenant: TenantName, jobs: Collection[JobId], until_ms: int) -> int:
        held = self._books.held(tenant)
        first_ms = min(session.start_ms for session in held.sessions)
        dates = calendar(self._billing.time_zone, first_ms, first_ms, until_ms)
        lines = (
            line
            for begin_ms, end_ms in pairwise(dates.months)
            for line in bill_for(tenant, held, self._billing, dates, begin_ms, min(end_ms, until_ms)).lines
        )
        return sum(line.amount for line in lines if line.job_id in jobs)
