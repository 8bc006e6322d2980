"""An auditor that shares no code with the ledger: recomputes the money of a run from the log alone.

Bills are summed here hold by hold and span by span, from the events of the log alone, without sessions, sweeps or
rounding on the way. Tiers are left out: no world holds even one hour.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from penstock.core.messages.money import AddCredit, MoneyDone, PayInvoice
from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank, TenantName
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.prices import Billing, Price
from penstock.sim.world.clockwork import UNIX_BEGIN_MS
from penstock.sim.world.ground import Ground
from penstock.sim.world.money import DATES, DAY_MS, MONTH_MS, QUIET_MS, Money

GIB, HOUR_MS, MINUTE_MS = 2**30, 3_600_000, 60_000
Attempt = tuple[JobId, AttemptNumber]


class Span(msgspec.Struct):
    """Resources of a hold in one interval: amounts by kind (`device`, `cpu`, `memory`) and model, start and end."""

    amounts: dict[tuple[str, str], Fraction]
    start_ms: int
    spec: JobSpec
    """As it was priced then."""
    end_ms: int = 0


class AuditedHold(msgspec.Struct):
    spec: JobSpec
    attempt: Attempt
    node: NodeName
    spans: list[Span]
    open: bool = True


class Reading:
    """Reads a log for holds and for violations."""

    def __init__(self, records: Iterable[ev.Record]) -> None:
        self.holds: list[AuditedHold] = []
        self.lost: dict[Attempt, tuple[int, int]] = {}
        """Since when an attempt's work was lost with a node, and when the loss was known."""
        self.wrong: list[str] = []
        self._specs: dict[JobId, JobSpec] = {}
        self._nodes: dict[NodeName, NodeSpec] = {}
        self._live: dict[tuple[JobId, Rank], AuditedHold] = {}
        self._safe_ms: dict[JobId, int] = {}
        self._stopped: dict[TenantName, str] = {}
        for record in records:
            self._take(record.event, record.time_ms)

    def _take(self, event: ev.AnyEvent, now_ms: int) -> None:
        match event:
            case ev.JobSubmitted():
                self._specs[event.job_id] = event.spec
            case ev.NodeRegistered():
                self._nodes[event.spec.name] = event.spec
            case ev.AttemptAllocated():
                self._begins(event, now_ms)
            case ev.CheckpointSaved():
                self._safe_ms[event.job_id] = now_ms
            case ev.AttemptSuspended() | ev.AttemptResumed():
                self._changes(event.job_id, now_ms, with_cpus=isinstance(event, ev.AttemptResumed))
            case ev.JobEdited():
                self._edited(event, now_ms)
            case ev.ReplicaExited():
                self._ends([(event.job_id, event.rank)], now_ms)
            case ev.NodeLost():
                self._ends([key for key, hold in self._live.items() if hold.node == event.node], now_ms)
            case ev.AttemptEnded():
                if event.outcome == "lost":
                    self.lost[event.job_id, event.attempt] = self._safe_ms[event.job_id], now_ms
                if any(job_id == event.job_id for job_id, _ in self._live):
                    self.wrong.append(f"attempt {event.attempt} of job {event.job_id} ended and is billed for ever")
            case ev.TenantHeld():
                self._stopped[event.tenant] = event.text
            case ev.TenantReleased():
                del self._stopped[event.tenant]
            case _:
                pass

    def _begins(self, event: ev.AttemptAllocated, now_ms: int) -> None:
        spec = self._specs[event.job_id]
        if spec.tenant in self._stopped:
            self.wrong.append(f"job {event.job_id} was started though {self._stopped[spec.tenant]}")
        self._safe_ms[event.job_id] = now_ms
        ask = spec.alternatives[event.choice - 1] if event.choice else spec.ask
        ask = ask.sized(len(event.places)) if ask.elastic else ask
        for number, place in enumerate(event.places):
            devices = self._nodes[place.node].devices
            models = Counter(devices[index].model for index in place.devices)
            span = Span(_amounts(ask, Rank(number), models), now_ms, spec)
            hold = AuditedHold(spec, (event.job_id, event.attempt), place.node, [span])
            self._live[event.job_id, Rank(number)] = hold
            self.holds.append(hold)

    def _changes(self, job_id: JobId, now_ms: int, *, with_cpus: bool) -> None:
        for hold in (hold for key, hold in self._live.items() if key[0] == job_id):
            amounts = dict(hold.spans[0].amounts)
            if not with_cpus:
                amounts.pop(("cpu", ""))
            hold.spans[-1].end_ms = now_ms
            hold.spans.append(Span(amounts, now_ms, hold.spans[-1].spec))

    def _edited(self, event: ev.JobEdited, now_ms: int) -> None:
        """Only what prices look at: the priority, and whether the job may be preempted."""
        spec, change = self._specs[event.job_id], event.change
        priority = spec.priority if change.priority is None else change.priority
        preemptible = spec.preemptible if change.preemptible is None else change.preemptible
        spec = self._specs[event.job_id] = replace(spec, priority=priority, preemptible=preemptible)
        for hold in (hold for key, hold in self._live.items() if key[0] == event.job_id):
            hold.spans[-1].end_ms = now_ms
            hold.spans.append(Span(hold.spans[-1].amounts, now_ms, spec))

    def _ends(self, keys: Iterable[tuple[JobId, Rank]], now_ms: int) -> None:
        for key in keys:
            hold = self._live.pop(key, None)
            if hold is not None:
                hold.spans[-1].end_ms, hold.open = now_ms, False


def _amounts(ask: GangAsk, rank: Rank, models: Counter[str]) -> dict[tuple[str, str], Fraction]:
    each = ask.each_of(rank)
    amounts = {("cpu", ""): Fraction(each.host.cpu_milli, 1000), ("memory", ""): Fraction(each.host.memory_bytes, GIB)}
    if each.devices is not None and models:
        one = Fraction(each.devices.milli, 1000 * models.total())
        amounts |= {("device", model): one * count for model, count in models.items()}
    return amounts


class Biller:
    """Bills of one log, in the smallest unit, rounded once each."""

    def __init__(self, reading: Reading, billing: Billing) -> None:
        self._reading, self._billing = reading, billing
        self._micro: dict[tuple[int, int, int], Fraction] = {}
        """Price of a millisecond (millionths) by hold, span and moment of a change."""

    def total(self, tenant: TenantName, from_ms: int, until_ms: int) -> int:
        """Return the bill of a tenant for [from_ms, until_ms), as known at `until_ms`."""
        micro = Fraction(0)
        for hold in self._reading.holds:
            if hold.spec.tenant == tenant and hold.spans[0].start_ms < until_ms:
                micro += self._of(hold, from_ms, until_ms)
        return int((micro / 10 ** (6 - self._billing.digits) + Fraction(1, 2)).__floor__())

    def _of(self, hold: AuditedHold, from_ms: int, until_ms: int) -> Fraction:
        least_ms = hold.spans[0].start_ms + self._minimum_ms(hold.spans[0].start_ms)
        lost_ms, known_ms = self._reading.lost.get(hold.attempt, (0, until_ms))
        micro = Fraction(0)
        for span in hold.spans:
            end_ms = span.end_ms or until_ms
            if span is hold.spans[-1] and not hold.open:
                end_ms = max(end_ms, least_ms)
            end_ms = min(end_ms, until_ms)
            micro += self._cost(hold, span, max(span.start_ms, from_ms), end_ms)
            if self._billing.refund_lost and known_ms < until_ms:
                back_ms = max(span.start_ms, lost_ms, from_ms if known_ms < from_ms else 0)
                micro -= self._cost(hold, span, back_ms, end_ms)
        return micro

    def _minimum_ms(self, at_ms: int) -> int:
        tariff = self._billing.tariff
        return [tariff.minimum_ms, *(t.minimum_ms for t in tariff.later if t.from_ms <= at_ms)][-1]

    def _cost(self, hold: AuditedHold, span: Span, start_ms: int, end_ms: int) -> Fraction:
        if start_ms >= end_ms:
            return Fraction(0)
        tariff = self._billing.tariff
        changes = {price.from_ms for price in tariff.prices} | {terms.from_ms for terms in tariff.later}
        changes |= set(range(start_ms // MINUTE_MS * MINUTE_MS, end_ms, MINUTE_MS))
        cuts = sorted({start_ms, end_ms} | {at_ms for at_ms in changes if start_ms < at_ms < end_ms})
        return sum(((end - at) * self._rate(hold, span, at) for at, end in pairwise(cuts)), Fraction(0))

    def _rate(self, hold: AuditedHold, span: Span, at_ms: int) -> Fraction:
        """Return the price of a millisecond of this, in millionths."""
        key = id(hold), id(span), at_ms
        found = self._micro.get(key)
        if found is None:
            hour = sum((n * _price(self._billing.tariff.prices, *what, at_ms) for what, n in span.amounts.items()), 0)
            found = self._micro[key] = Fraction(hour * self._factor_milli(span.spec, at_ms), 1000 * HOUR_MS)
        return found

    def _factor_milli(self, spec: JobSpec, at_ms: int) -> int:
        tariff = self._billing.tariff
        factors = [tariff.factors, *(t.factors for t in tariff.later if t.from_ms <= at_ms)][-1]
        minute = at_ms // MINUTE_MS % 1440
        for factor in factors:
            of_job = spec.priority >= factor.priority_min and factor.preemptible in (None, spec.preemptible)
            if of_job and (
                not factor.windows or any(_late(w.from_minute, w.until_minute, minute) for w in factor.windows)
            ):
                return factor.milli
        return 1000


def _late(from_minute: int, until_minute: int, minute: int) -> bool:
    return minute >= from_minute or minute < until_minute


def _price(prices: Iterable[Price], resource: str, model: str, at_ms: int) -> int:
    for wanted in (model, ""):
        begun = [p for p in prices if (p.resource, p.model) == (resource, wanted) and p.from_ms <= at_ms]
        if begun:
            return max(begun, key=lambda p: p.from_ms).micro_per_hour
    return 0


def money_violations(world: Ground, money: Money) -> Iterator[str]:
    """Yield violations in the money of a world that has come to rest."""
    reading = Reading(world.disk.records)
    yield from reading.wrong
    biller = Biller(reading, world.config.billing)
    yield from _postings(world, biller)
    yield from _expiries(world, biller)
    yield from _invoices(world, biller)
    yield from _promises(world, money)
    yield from _balances(world)


def _postings(world: Ground, biller: Biller) -> Iterator[str]:
    """Each posting brings the sum of its month to the bill up to there; no due posting is missing."""
    posted: Counter[tuple[TenantName, int]] = Counter()
    reached: Counter[tuple[TenantName, int]] = Counter()
    last_ms = UNIX_BEGIN_MS + (world.agenda.now_ms - QUIET_MS) // DAY_MS * DAY_MS
    for event in (record.event for record in world.disk.records):
        if isinstance(event, ev.UsagePosted):
            month = event.tenant, event.month_ms
            posted[month] += event.amount
            reached[month] += event.amount if event.until_ms <= last_ms else 0
            expected = biller.total(*month, event.until_ms)
            if posted[month] != expected:
                yield f"{event.tenant}: {posted[month]} are posted up to {event.until_ms}, its bill is {expected}"
                return
    for tenant in map(TenantName, world.tenants):
        for month_ms in range(UNIX_BEGIN_MS, last_ms, MONTH_MS):
            expected = biller.total(tenant, month_ms, min(month_ms + MONTH_MS, last_ms))
            if reached[tenant, month_ms] != expected:
                yield f"{tenant}: {reached[tenant, month_ms]} of {expected} are posted for the month since {month_ms}"


def _expiries(world: Ground, biller: Biller) -> Iterator[str]:
    """A credit expires at its time, after all usage until then is posted."""
    expires: dict[str, int] = {}
    posted: Counter[tuple[TenantName, int]] = Counter()
    for event in (record.event for record in world.disk.records):
        if isinstance(event, ev.CreditAdded) and event.expires_ms:
            expires[event.reference] = event.expires_ms
        elif isinstance(event, ev.UsagePosted):
            posted[event.tenant, event.month_ms] += event.amount
        elif isinstance(event, ev.CreditExpired) and event.reference in expires:
            at_ms = expires.pop(event.reference)  # a later refund to it expires by another event
            month = event.tenant, DATES.month(at_ms - 1)
            if posted[month] != biller.total(*month, at_ms):
                yield f"{event.reference} expired with {posted[month]} posted, not the bill up to {at_ms}"
        elif isinstance(event, ev.MoneyReversed):
            expires.pop(event.reference, None)
    last_ms = UNIX_BEGIN_MS + world.agenda.now_ms - QUIET_MS
    yield from (f"{name} should have expired" for name, at_ms in expires.items() if at_ms <= last_ms)


def _invoices(world: Ground, biller: Biller) -> Iterator[str]:
    counts: Counter[str] = Counter()
    billed: set[tuple[TenantName, int]] = set()
    for invoice in (r.event.invoice for r in world.disk.records if isinstance(r.event, ev.InvoiceIssued)):
        counts[invoice.kind] += 1
        prefix = "INV-" if invoice.kind == "invoice" else "CN-"
        if invoice.number != f"{prefix}{counts[invoice.kind]:06d}":
            yield f"{invoice.number} is the {counts[invoice.kind]}. {invoice.kind}"
        if not invoice.corrects:
            month = invoice.tenant, invoice.from_ms
            if month in billed:
                yield f"{invoice.tenant}: the month since {invoice.from_ms} is invoiced twice"
            billed.add(month)
            if invoice.net != biller.total(*month, invoice.until_ms) or invoice.until_ms != month[1] + MONTH_MS:
                yield f"{invoice.number} says {invoice.net} for [{invoice.from_ms}, {invoice.until_ms})"
        if invoice.lines and invoice.net != sum(line.amount for line in invoice.lines):
            yield f"the lines of {invoice.number} do not add up to {invoice.net}"
    if world.config.billing.issue == "automatic":
        last_ms = UNIX_BEGIN_MS + world.agenda.now_ms - QUIET_MS
        for tenant in map(TenantName, world.tenants):
            for month_ms in range(UNIX_BEGIN_MS, last_ms - MONTH_MS + 1, MONTH_MS):
                if (tenant, month_ms) not in billed and biller.total(tenant, month_ms, month_ms + MONTH_MS):
                    yield f"{tenant}: the month since {month_ms} has no invoice"


def _promises(world: Ground, money: Money) -> Iterator[str]:
    """Every confirmed entry is in the log, and no reference came twice to a tenant."""
    found: Counter[tuple[TenantName, str]] = Counter()
    amounts: set[tuple[str, int]] = set()
    for event in (record.event for record in world.disk.records):
        if isinstance(event, ev.CreditAdded | ev.InvoicePaid):
            found[event.tenant, event.reference] += 1
            amounts.add((event.reference, event.amount))
    yield from (f"{tenant}: {name} came {times} times" for (tenant, name), times in found.items() if times > 1)
    for key, request in money.asked.items():
        if not isinstance(request, AddCredit | PayInvoice) or not isinstance(money.answers.get(key), MoneyDone):
            continue
        if (request.reference, request.amount) not in amounts:
            yield f"{request.reference} was confirmed and is not in the log"


def _balances(world: Ground) -> Iterator[str]:
    """A balance is credits and payments, less expired credits, usage with tax (after credit notes), and reversals."""
    expected: Counter[TenantName] = Counter()
    for record in world.disk.records:
        match record.event:
            case ev.CreditAdded(tenant=tenant, amount=amount) | ev.InvoicePaid(tenant=tenant, amount=amount):
                expected[tenant] += amount
            case ev.CreditExpired(tenant=tenant, amount=amount) | ev.UsagePosted(tenant=tenant, amount=amount):
                expected[tenant] -= amount
            case ev.InvoiceIssued(invoice=invoice):
                expected[invoice.tenant] -= invoice.tax + (invoice.net if invoice.corrects else 0)
            case ev.MoneyReversed(tenant=tenant, amount=amount):
                expected[tenant] -= amount
            case _:
                pass
    assert world.server is not None
    for tenant, amount in expected.items():
        balance = world.server.controller.state.money.account(tenant).balance
        if balance != amount:
            yield f"{tenant}: its balance is {balance}, the log says {amount}"
