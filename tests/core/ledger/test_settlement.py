"""What is due: whenever somebody looks, postings are bills, bills are invoices, and each month is invoiced once."""

import itertools
import random
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from penstock.control.calendar import calendar, months, offsets
from penstock.core.ledger.bill import bill
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.pricing import charges
from penstock.core.ledger.sessions import sessions
from penstock.core.ledger.settlement import Calendar, bill_for, closed_month, due_events, invoice_of
from penstock.core.model import events as ev
from penstock.core.model.accounts import CreditPart
from penstock.core.model.cluster import Tenant
from penstock.core.model.jobs import ExitInfo, ReplicaPlace
from penstock.core.model.prices import Billing, Factor, Price, Tariff, Terms, Window
from penstock.core.state.accounts import Accounts
from penstock.core.state.credits import undone
from penstock.testing.builders import job_spec, node

HOUR, DAY = 3_600_000, 86_400_000
SETTLED_MS = 10_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe")
TENANTS = ("a", "b")


def at(text):
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


BEGIN, END = at("2026-02-20"), at("2026-06-10")


# Histories: (time, event) of jobs that start, save, are suspended, end, or lose their nodes.


def history(rng, jobs=16):
    found = []
    for job in range(1, jobs + 1):
        begin_ms = rng.randrange(BEGIN, END - 20 * DAY)
        length_ms = round(min(45 * DAY, 60_000 * 10 ** rng.uniform(-1, 5)))
        found += _job(rng, job, begin_ms, begin_ms + length_ms, END)
    return sorted(found, key=lambda one: one[0])


def _job(rng, job, begin_ms, end_ms, last_ms):
    width, cpus = rng.choice((1, 1, 2)), rng.choice((1, 4))
    suspends = rng.random() < 0.2
    devices = 0 if suspends else rng.choice((1, 1, 2))
    spec = job_spec(
        devices, width, cpus=cpus, memory_gib=rng.choice((0, 2)), tenant=rng.choice(TENANTS),
        priority=rng.choice((100, 900)), preemptible=rng.random() < 0.5,
    )  # fmt: skip
    names = [f"n{job}-{rank}" for rank in range(width)]
    places = tuple(ReplicaPlace(name, "i1", tuple(range(devices))) for name in names)
    yield BEGIN, ev.JobSubmitted(job, spec, "ann")
    yield from ((BEGIN, ev.NodeRegistered(node(name, 2, cpus=8), "i1")) for name in names)
    yield begin_ms, ev.AttemptAllocated(job, 1, places)
    for _ in range(rng.choice((0, 0, 1, 3))):
        yield rng.randrange(begin_ms, end_ms), ev.CheckpointSaved(job, 1, 5)
    if suspends:
        middle_ms = rng.randrange(begin_ms, end_ms)
        yield middle_ms, ev.AttemptSuspended(job, 1)
        yield rng.randrange(middle_ms, end_ms), ev.AttemptResumed(job, 1)
    if end_ms >= last_ms:
        return
    lost = rng.random() < 0.4
    if lost:
        yield end_ms, ev.NodeLost(names[0], "gone")
    for rank in range(1 if lost else 0, width):
        yield end_ms, ev.ReplicaExited(job, 1, rank, ExitInfo(0))
    if lost:
        yield end_ms, ev.AttemptEnded(job, 1, "lost", "gone")
    yield end_ms, ev.JobFinished(job, "succeeded", "")


def billing_of(rng, **fields):
    window = Window(22 * 60, 6 * 60, tuple(sorted(rng.sample(range(7), 4))))
    tariff = Tariff(
        (
            Price("device", 1_234_567),
            Price("device", 2_000_001, BEGIN + rng.randrange(60) * DAY),
            Price("cpu", 10_007),
            Price("memory", 3_001),
        ),
        rng.choice(((), ((50, 900), (400, 500)))),
        rng.choice(("marginal", "whole")),
        rng.choice(((), (Factor(1500, 800), Factor(700, preemptible=True, windows=(window,))))),
        rng.choice((0, 60_000, 3_600_000)),
        rng.choice(((), (Terms(BEGIN + 40 * DAY + 5, ((20, 800),), "marginal", (), 90_000),))),
    )
    given = {"refund_lost": rng.random() < 0.8, "tax_milli": 190, "tax_name": "VAT", "digits": rng.choice((0, 2, 6))}
    return Billing(tariff, time_zone=rng.choice(ZONES), **given | fields)


class Desk:
    """Looks at a history at some moments, and does what a server does: posts what is due, and drops what is paid."""

    def __init__(self, billing, told, *, drops=True):
        self.billing, self._told, self._drops = billing, list(told), drops
        self.books, self.accounts, self.records = UsageLog(), Accounts(), []

    def take(self, time_ms, event):
        record = ev.Record(len(self.records) + 1, time_ms, event)
        self.records.append(record)
        self.books.take([record])
        if isinstance(event, ev.CreditAdded | ev.UsagePosted | ev.InvoiceIssued | ev.CreditExpired):
            self.accounts.apply(event, record.seq, time_ms)

    def calendar_of(self, name, held, now_ms):
        account = self.accounts.account(name)
        first_ms = min((s.start_ms for s in held.sessions), default=now_ms)
        posted_ms = account.posted_ms or first_ms
        begins = [month.begin_ms for month in account.months]
        begins += [lot.expires_ms - 1 for lot in account.lots if lot.expires_ms]
        return calendar(self.billing.time_zone, min([first_ms, posted_ms, *begins]), posted_ms, now_ms)

    def bill(self, name, now_ms):
        held = self.books.held(name)
        found = self.calendar_of(name, held, now_ms)
        return lambda from_ms, until_ms: bill_for(name, held, self.billing, found, from_ms, until_ms)

    def feed(self, now_ms):
        while self._told and self._told[0][0] <= now_ms:
            self.take(*self._told.pop(0))

    def look(self, now_ms):
        """Post what is due; return what was written."""
        self.feed(now_ms)
        found = []
        for name in TENANTS:
            held = self.books.held(name)
            account, settled_ms = self.accounts.account(name), now_ms - SETTLED_MS
            begins = self.calendar_of(name, held, now_ms)
            due = due_events(account, Tenant(name), self.billing, begins, self.bill(name, now_ms), settled_ms)
            for event in due:
                self.take(now_ms, self._numbered(event))
            found += due
            if self._drops:
                self._drop(name, now_ms)
        return found

    def _numbered(self, event):
        if not isinstance(event, ev.InvoiceIssued):
            return event
        kind = event.invoice.kind
        number = self.accounts.next_number(kind, "INV-" if kind == "invoice" else "CN-")
        return replace(event, invoice=replace(event.invoice, number=number, issued_ms=0))

    def _drop(self, name, now_ms):
        account = self.accounts.account(name)
        needed_ms = account.months[0].begin_ms if account.months else account.invoiced_ms
        reach_ms = self.books.reach_ms(name, needed_ms)
        kept_ms = months(self.billing.time_zone, reach_ms, reach_ms)[0]
        self.books.drop(name, kept_ms, self.billing.tariff.minimum_max_ms)

    def invoices(self):
        made = (r.event.invoice for r in self.records if isinstance(r.event, ev.InvoiceIssued))
        return {(one.tenant, one.from_ms): one for one in made}

    def postings(self):
        sums = {}
        for record in self.records:
            if isinstance(record.event, ev.UsagePosted):
                key = record.event.tenant, record.event.month_ms
                sums[key] = sums.get(key, 0) + record.event.amount
        return sums


def straight(billing, told, tenant, begins, zone, span):
    """Return the bill of a month from the whole history, cut at nothing and with nothing dropped."""
    records = [ev.Record(seq, *one) for seq, one in enumerate(told, 1)]
    books = UsageLog()
    books.take(records)
    held = [one for one in sessions(records) if one.tenant == tenant]
    losses = books.log.losses if billing.refund_lost else {}
    return bill(tenant, billing, charges(held, billing.tariff, begins, *span, zone=zone, losses=losses), *span)


def moments(rng, kind):
    if kind == "daily":
        return [*range(BEGIN, END, DAY), END + 30 * DAY]
    count = {"seldom": 4, "often": 60}[kind]
    return [*sorted(rng.randrange(BEGIN, END) for _ in range(count)), END + 30 * DAY]


@pytest.mark.parametrize("seed", range(12))
def test_postings_are_bills_and_bills_are_invoices_whenever_somebody_looks(seed):
    rng = random.Random(seed)
    told, billing = history(rng), billing_of(rng)
    desk = Desk(billing, told)
    for now_ms in moments(rng, rng.choice(("seldom", "often", "daily"))):
        desk.look(now_ms)
        assert desk.look(now_ms) == []
    begins = months(billing.time_zone, BEGIN, END + 60 * DAY)
    zone = offsets(billing.time_zone, begins[0], END + 60 * DAY)
    invoiced, posted = desk.invoices(), desk.postings()
    for tenant in TENANTS:
        for span in itertools.pairwise(begins[:6]):
            made = straight(billing, told, tenant, begins, zone, span)
            assert posted.get((tenant, span[0]), 0) == made.total
            issued = invoiced.get((tenant, span[0]))
            assert (issued is None) == (made.total == 0)
            if issued is not None:
                assert (issued.net, issued.lines, issued.until_ms) == (made.total, made.lines, span[1])
                assert sum(line.amount for line in issued.lines) == issued.net
    documents = [r.event.invoice for r in desk.records if isinstance(r.event, ev.InvoiceIssued)]
    assert all((one.kind == "credit_note") == (one.net < 0) for one in documents)
    for kind, prefix in (("invoice", "INV-"), ("credit_note", "CN-")):
        numbers = [one.number for one in documents if one.kind == kind]
        assert numbers == [f"{prefix}{i + 1:06d}" for i in range(len(numbers))]
    assert sum(desk.accounts.ledger.values()) == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_moments_of_looking_change_no_invoice_and_nothing_dropped_is_missed(seed):
    rng = random.Random(1000 + seed)
    told, billing = history(rng), billing_of(rng)
    made = []
    for kind, drops in (("seldom", False), ("often", True), ("daily", True)):
        desk = Desk(billing, told, drops=drops)
        for now_ms in moments(rng, kind):
            desk.look(now_ms)
        made.append(({k: (i.net, i.tax, i.lines) for k, i in desk.invoices().items()}, desk.accounts.of))
    assert made[0][0] == made[1][0] == made[2][0]
    balances = [{name: account.balance for name, account in of.items()} for _, of in made]
    assert balances[0] == balances[1] == balances[2]


@pytest.mark.parametrize("seed", range(6))
def test_credits_that_expire_or_not_pay_what_was_used_before(seed):
    """At any moment: what is there is what was paid in, less what expired, less all that was used and its tax."""
    rng = random.Random(2000 + seed)
    told, billing = history(rng), billing_of(rng, digits=2)
    desk, added, expiries = Desk(billing, told), 0, {}
    for count, now_ms in enumerate(sorted(rng.randrange(BEGIN, END) for _ in range(60))):
        desk.look(now_ms)
        if rng.random() < 0.5:
            expires_ms = now_ms + rng.randrange(1, 20 * DAY) if rng.random() < 0.7 else 0
            amount = rng.randrange(1, 20_000)
            desk.take(now_ms, ev.CreditAdded("a", f"c{count}", amount, "grant", expires_ms))
            expiries[f"c{count}"] = expires_ms
            added += amount
    desk.look(END + 30 * DAY)
    mine = [r.event for r in desk.records if hasattr(r.event, "tenant") and r.event.tenant == "a"]
    gone = [one for one in mine if isinstance(one, ev.CreditExpired)]
    assert {one.reference for one in gone} == {name for name, expires_ms in expiries.items() if expires_ms}
    used = sum(one.amount for one in mine if isinstance(one, ev.UsagePosted))
    tax = sum(one.tax for (name, _), one in desk.invoices().items() if name == "a")
    assert desk.accounts.account("a").balance == added - sum(one.amount for one in gone) - used - tax
    assert not any(lot.expires_ms for lot in desk.accounts.account("a").lots)


def test_a_calendar_that_does_not_reach_back_is_said():
    """Not by StopIteration: a task that waits for a thread that raised it waits for ever."""
    with pytest.raises(ValueError, match="no later than 4"):
        Calendar((5,), (5, 9)).month_of(4)
    assert [Calendar((5,), (5, 9)).month_of(at_ms) for at_ms in (5, 8, 9)] == [5, 5, 9]


# Examples.

ONE = Tariff((Price("device", 3_600_000_000),), minimum_ms=0)
"""One unit of the currency a second, and 100 cents."""
PLACE = (ReplicaPlace("n", "i1", (0,)),)


def job(begin_ms, end_ms, number=1, *, lost=False, tenant="a", saved_ms=0):
    found = [
        (begin_ms, ev.NodeRegistered(node("n", 2), "i1")),
        (begin_ms, ev.JobSubmitted(number, job_spec(1, tenant=tenant), "ann")),
        (begin_ms, ev.AttemptAllocated(number, 1, PLACE)),
    ]
    if saved_ms:
        found.append((saved_ms, ev.CheckpointSaved(number, 1, 5)))
    if end_ms:
        found.append((end_ms, ev.NodeLost("n", "gone") if lost else ev.ReplicaExited(number, 1, 0, ExitInfo(0))))
        found += [(end_ms, ev.AttemptEnded(number, 1, "lost", "gone"))] if lost else []
    return found


def looked(told, *moments_, **fields):
    desk = Desk(Billing(ONE, **fields), sorted(told, key=lambda one: one[0]))
    for now_ms in moments_:
        desk.look(now_ms)
    return desk


def nets(desk):
    return {
        (tenant, datetime.fromtimestamp(f / 1000, UTC).date().isoformat()): i.net
        for (tenant, f), i in desk.invoices().items()
    }


MARCH, APRIL, MAY = at("2026-03-01"), at("2026-04-01"), at("2026-05-01")
SECOND = 1_000


def test_a_session_over_the_border_is_split_at_it():
    desk = looked(job(APRIL - 100 * SECOND, APRIL + 50 * SECOND), MAY + DAY)
    assert nets(desk) == {("a", "2026-03-01"): 10_000, ("a", "2026-04-01"): 5_000}


def test_one_that_runs_on_is_billed_up_to_the_end_of_the_month():
    desk = looked(job(APRIL - 100 * SECOND, 0), APRIL + DAY)
    assert nets(desk) == {("a", "2026-03-01"): 10_000}
    assert desk.accounts.account("a").posted_ms == APRIL


def test_the_border_is_midnight_where_the_bills_are_made():
    told = job(at("2026-03-28T23:00"), at("2026-03-31T23:00"))
    assert nets(looked(told, MAY + DAY, time_zone="Europe/Berlin")) == {
        ("a", "2026-02-28"): 71 * 3600 * 100,
        ("a", "2026-03-31"): 3600 * 100,
    }


def test_a_minimum_that_reaches_over_the_border_is_billed_on_both_sides_of_it():
    tariff = Tariff(ONE.prices, minimum_ms=60 * SECOND)
    desk = Desk(Billing(tariff), job(APRIL - 20 * SECOND, APRIL - 10 * SECOND))
    for now_ms in (APRIL - SECOND, APRIL + HOUR, MAY + DAY):
        desk.look(now_ms)
    assert nets(desk) == {("a", "2026-03-01"): 2_000, ("a", "2026-04-01"): 4_000}


def test_nothing_is_posted_for_the_last_seconds_yet():
    """The log may still get records of them."""
    told = job(MARCH + 5, 0)
    assert looked(told, MARCH + DAY + SETTLED_MS - 1).records[3:] == []
    assert len(looked(told, MARCH + DAY + SETTLED_MS).records[3:]) == 1


def test_a_loss_is_given_back_in_the_month_in_which_it_is_known():
    told = job(APRIL - 100 * SECOND, APRIL + 50 * SECOND, lost=True)
    assert nets(looked(told, MAY + DAY)) == {("a", "2026-03-01"): 10_000, ("a", "2026-04-01"): -10_000}
    assert nets(looked(told, MAY + DAY, refund_lost=False))["a", "2026-04-01"] == 5_000
    saved = job(APRIL - 100 * SECOND, APRIL + 50 * SECOND, lost=True, saved_ms=APRIL + 20 * SECOND)
    assert nets(looked(saved, MAY + DAY))["a", "2026-04-01"] == 2_000


def test_a_loss_is_given_back_at_the_tier_that_was_paid_though_that_month_is_invoiced():
    """Who else held devices in that month decides the tier: it must not be forgotten while the attempt lives."""
    tariff = Tariff(ONE.prices, tiers=((1, 500),), minimum_ms=0)
    other = job(MARCH + HOUR, MARCH + 3 * HOUR, 1)
    lost = job(APRIL - 1000 * SECOND, APRIL + 5 * DAY, 2, lost=True)
    given = Billing(tariff)
    for drops in (True, False):
        desk = Desk(given, sorted(other + lost, key=lambda one: one[0]), drops=drops)
        for now_ms in range(MARCH, MAY + 2 * DAY, DAY):
            desk.look(now_ms + HOUR)
        assert nets(desk) == {("a", "2026-03-01"): (3600 + 1800 + 500) * 100, ("a", "2026-04-01"): -50_000}


def test_the_reading_of_whole_volumes_bills_the_month_again_when_a_tier_is_reached():
    tariff = Tariff(ONE.prices, tiers=((30, 500),), tier_reading="whole", minimum_ms=0)
    desk = Desk(Billing(tariff), job(MARCH, MARCH + 2 * DAY))
    desk.look(MARCH + DAY + HOUR)
    desk.look(MARCH + 2 * DAY + HOUR)
    amounts = [r.event.amount for r in desk.records if isinstance(r.event, ev.UsagePosted)]
    assert amounts == [DAY // 10, 0] or amounts == [DAY // 10]
    assert desk.postings() == {("a", MARCH): DAY // 10}


def test_a_credit_that_expires_within_a_month_pays_for_what_was_used_before_and_no_more():
    desk = looked(job(MARCH, MARCH + 10 * DAY), MARCH + HOUR)
    expires_ms = MARCH + 2 * DAY + 5 * HOUR
    desk.take(MARCH + 2 * HOUR, ev.CreditAdded("a", "g", 10**9, "grant", expires_ms))
    desk.look(MAY)
    used = (expires_ms - MARCH) // 10
    gone = [r.event for r in desk.records if isinstance(r.event, ev.CreditExpired)]
    assert gone == [ev.CreditExpired("a", "g", 10**9 - used)]
    assert desk.invoices()["a", MARCH].granted == used


def test_months_wait_for_somebody_to_issue_them_and_go_in_order():
    told = job(MARCH, MARCH + 10 * SECOND) + job(APRIL, APRIL + 20 * SECOND, 2)[1:]
    desk = looked(told, MAY + DAY, issue="manual")
    assert desk.invoices() == {}
    for expected in ((MARCH, APRIL, 1_000), (APRIL, MAY, 2_000)):
        begins = desk.calendar_of("a", desk.books.held("a"), MAY + DAY)
        account = desk.accounts.account("a")
        span = closed_month(account, begins)
        made = invoice_of(account, Tenant("a"), desk.billing, desk.bill("a", MAY + DAY)(*span), 0)
        desk.take(MAY + DAY, desk._numbered(ev.InvoiceIssued(made)))
        assert (*span, made.net) == expected
    assert closed_month(desk.accounts.account("a"), begins) is None


def test_a_month_that_came_to_nothing_needs_no_invoice():
    told = job(MARCH, MARCH + 10 * SECOND) + job(MAY, MAY + 20 * SECOND, 2)[1:]
    desk = looked(told, at("2026-06-02"))
    assert nets(desk) == {("a", "2026-03-01"): 1_000, ("a", "2026-05-01"): 2_000}


def test_who_was_away_for_months_is_billed_when_they_come_back():
    told = job(MARCH, MARCH + 10 * SECOND) + job(at("2026-06-03"), at("2026-06-03") + 20 * SECOND, 2)[1:]
    desk = looked(told, MARCH + DAY + HOUR, APRIL + HOUR, MAY + HOUR, at("2026-06-02"), at("2026-07-02"))
    assert nets(desk) == {("a", "2026-03-01"): 1_000, ("a", "2026-06-01"): 2_000}


def test_an_invoice_names_whom_it_is_for_and_adds_tax_half_up():
    desk = looked(job(MARCH, MARCH + 1), MARCH + HOUR, tax_name="VAT", tax_milli=190)
    made = desk.bill("a", MARCH + HOUR)(MARCH, MARCH + HOUR)
    assert made.total == 0  # a tenth of a cent
    desk = looked(job(MARCH, MARCH + 500), APRIL + HOUR, tax_name="VAT", tax_milli=190)
    (made,) = desk.invoices().values()
    assert (made.net, made.tax, made.total, made.due) == (50, 10, 60, 60)
    assert (made.customer.name, made.tax_name) == ("a", "VAT")


def test_bills_see_nothing_of_other_tenants():
    told = job(MARCH, MARCH + 10 * SECOND) + job(MARCH, MARCH + 20 * SECOND, 2, tenant="b")[1:]
    assert nets(looked(told, APRIL + HOUR)) == {("a", "2026-03-01"): 1_000, ("b", "2026-03-01"): 2_000}


def test_a_grant_that_came_and_went_pays_the_same_whenever_somebody_looks():
    balances = []
    for moments_ in ((MARCH + DAY + HOUR, MARCH + 6 * DAY), (MARCH + 6 * DAY,)):
        desk = Desk(Billing(ONE), job(MARCH, MARCH + 10 * SECOND))
        for now_ms in moments_[:-1]:
            desk.look(now_ms)
        desk.feed(MARCH + 3 * DAY)
        desk.take(MARCH + 3 * DAY, ev.CreditAdded("a", "g", 5_000, "grant", MARCH + 4 * DAY))
        desk.look(moments_[-1])
        balances.append(desk.accounts.account("a").balance)
    assert balances[0] == balances[1]


# What is given back, and what grants have to do with tax. Computed by hand.


def note_of(desk, month_ms):
    made = desk.invoices()["a", month_ms]
    return made.kind, made.net, made.granted, made.tax, made.total, made.from_credit, made.due


def lots(desk):
    return [(lot.reference, lot.left, lot.kind, lot.expires_ms) for lot in desk.accounts.account("a").lots]


def desk_of(told, *credits_, **fields):
    """Return a desk that has credits from the begin of March on: (reference, amount, kind, expires)."""
    given = [(MARCH, ev.CreditAdded("a", *one)) for one in credits_]
    return Desk(Billing(ONE, tax_name="VAT", tax_milli=190, **fields), [*given, *sorted(told, key=lambda one: one[0])])


def test_a_grant_is_a_discount_and_money_paid_in_advance_a_payment():
    """300.00 of use: 100.00 granted, 19 % of 200.00 are 38.00, and of these 238.00 money pays 230.00."""
    desk = desk_of(job(MARCH, MARCH + 300 * SECOND), ("g", 10_000, "grant", APRIL + DAY), ("p", 23_000, "payment", 0))
    desk.look(APRIL + HOUR)
    assert note_of(desk, MARCH) == ("invoice", 30_000, 10_000, 3_800, 23_800, 23_000, 800)
    assert lots(desk) == [("g", 0, "grant", APRIL + DAY)]


def test_no_tax_is_on_what_grants_paid_and_grants_pay_no_tax():
    desk = desk_of(job(MARCH, MARCH + 300 * SECOND), ("g", 50_000, "grant", 0))
    desk.look(APRIL + HOUR)
    assert note_of(desk, MARCH) == ("invoice", 30_000, 30_000, 0, 0, 0, 0)
    assert lots(desk) == [("g", 20_000, "grant", 0)]


def test_what_is_given_back_within_a_month_goes_back_to_the_credits_that_paid():
    """A day is used, and in the end all of it is lost: the grant that paid has it again, until its own end."""
    used = DAY // 10
    told, expires_ms = job(MARCH, MARCH + 2 * DAY, lost=True), MARCH + 20 * DAY
    desk = desk_of(told, ("g", used // 2, "grant", expires_ms), ("p", used // 4, "payment", 0))
    desk.look(MARCH + DAY + HOUR)
    assert lots(desk) == [("g", 0, "grant", expires_ms)]
    desk.look(MARCH + 3 * DAY + HOUR)
    assert lots(desk) == [("g", used // 2, "grant", expires_ms), ("p", used // 4, "payment", 0)]
    desk.look(APRIL + HOUR)
    assert [r.event.amount for r in desk.records if isinstance(r.event, ev.CreditExpired)] == [used // 2]
    assert (lots(desk), desk.invoices()) == ([("p", used // 4, "payment", 0)], {})


def test_what_is_given_back_to_a_grant_whose_time_is_over_expires_at_once():
    told, expires_ms = job(MARCH, MARCH + 3 * DAY, lost=True), MARCH + DAY + HOUR
    desk = desk_of(told, ("g", 5_000, "grant", expires_ms))
    for now_ms in range(MARCH + DAY, MARCH + 6 * DAY, DAY):
        desk.look(now_ms + 2 * HOUR)
    gone = [r.event.amount for r in desk.records if isinstance(r.event, ev.CreditExpired)]
    assert (gone, lots(desk), desk.accounts.account("a").balance) == ([0, 5_000], [], 0)
    assert desk.accounts.ledger["expired"] == -5_000


def test_a_month_in_which_more_is_given_back_than_used_ends_with_a_credit_note():
    """March 100.00: 60.00 granted, 40.00 and 7.60 of tax owed. All of it is lost in April."""
    expires_ms = MAY + 9 * DAY
    desk = desk_of(job(APRIL - 100 * SECOND, APRIL + 50 * SECOND, lost=True), ("g", 6_000, "grant", expires_ms))
    desk.look(APRIL + 20_000)
    desk.look(MAY + HOUR)
    assert note_of(desk, MARCH) == ("invoice", 10_000, 6_000, 760, 4_760, 0, 4_760)
    assert note_of(desk, APRIL) == ("credit_note", -10_000, -6_000, -760, -4_760, 0, -4_760)
    made = desk.invoices()["a", APRIL]
    assert (made.number, made.corrects, made.reason) == ("CN-000001", "", "more was given back than used")
    assert sum(line.amount for line in made.lines) == -10_000
    assert lots(desk) == [("g", 6_000, "grant", expires_ms), ("CN-000001", 4_760, "payment", 0)]
    assert desk.accounts.account("a").balance == 6_000


def test_credit_of_a_credit_note_pays_the_next_invoice():
    told = job(APRIL - 100 * SECOND, APRIL + 50 * SECOND, lost=True) + job(MAY, MAY + 30 * SECOND, 2)[1:]
    desk = desk_of(told)
    for now_ms in (APRIL, MAY, at("2026-06-01")):
        desk.look(now_ms + HOUR)
    assert note_of(desk, APRIL) == ("credit_note", -10_000, 0, -1_900, -11_900, 0, -11_900)
    assert note_of(desk, MAY) == ("invoice", 3_000, 0, 570, 3_570, 3_570, 0)
    assert lots(desk) == [("CN-000001", 11_900 - 3_570, "payment", 0)]


def test_grants_pay_no_tax_though_something_is_left_of_them():
    credits_ = ("p", 10_000, "payment", APRIL + DAY), ("g", 50_000, "grant", 0)
    desk = desk_of(job(MARCH, MARCH + 100 * SECOND), *credits_)
    desk.look(APRIL + HOUR)
    assert note_of(desk, MARCH) == ("invoice", 10_000, 0, 1_900, 11_900, 10_000, 1_900)
    assert lots(desk)[-1] == ("g", 50_000, "grant", 0)


def test_what_is_given_back_goes_to_money_before_grants_and_to_what_lasts_longest_first():
    parts = tuple(
        CreditPart(name, 10, kind, expires_ms)
        for name, kind, expires_ms in (
            ("g5", "grant", 5),
            ("p6", "payment", 6),
            ("g7", "grant", 7),
            ("p0", "payment", 0),
        )
    )
    left, back = undone(parts, 35)
    assert [(one.reference, one.amount) for one in back] == [("p0", 10), ("p6", 10), ("g7", 10), ("g5", 5)]
    assert [(one.reference, one.amount) for one in left] == [("g5", 5)]


def test_what_a_credit_note_by_hand_gives_back_to_a_grant_whose_time_is_over_expires_at_the_next_look():
    expires_ms = MARCH + 20 * DAY
    desk = desk_of(job(MARCH, MARCH + 100 * SECOND), ("g", 10_000, "grant", expires_ms))
    desk.look(APRIL + HOUR)
    made = desk.invoices()["a", MARCH]
    changes = {
        "kind": "credit_note",
        "corrects": made.number,
        "number": "CN-000001",
        "net": -10_000,
        "granted": -10_000,
    }
    desk.take(APRIL + HOUR, ev.InvoiceIssued(replace(made, **changes)))
    assert lots(desk) == [("g", 10_000, "grant", expires_ms)]
    assert desk.look(APRIL + 2 * HOUR) == [ev.CreditExpired("a", "g", 10_000)]
    assert lots(desk) == []
