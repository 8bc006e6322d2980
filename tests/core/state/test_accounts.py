"""Accounts: whatever happens in whatever order, the ledger balances, and nothing is paid twice or from what expired."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from penstock.control.calendar import calendar
from penstock.core.ledger.accounts import JournalLog
from penstock.core.ledger.settlement import closed_month, closing, due_events
from penstock.core.lifecycle.money import decide
from penstock.core.messages.money import AddCredit, CorrectInvoice, MoneyDone, PayInvoice, PostAccount, ReverseEntry
from penstock.core.messages.requests import Refusal
from penstock.core.model import events as ev
from penstock.core.model.accounts import Account, CreditPart, Lot, Spent
from penstock.core.model.answers import Bill
from penstock.core.model.cluster import Tenant
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.invoices import Invoice, InvoiceLine
from penstock.core.model.prices import Billing, Price, Tariff
from penstock.core.state.accounts import Accounts, MoneyImage, moved, tenant_of
from penstock.core.state.credits import spend
from penstock.core.state.state import Image, State, fold
from penstock.testing.harness import World
from tests.properties import examples

HOUR, DAY = 3_600_000, 86_400_000
TARIFF = Tariff((Price("device", 1),))
NAMES = ("a", "b")


def at(text):
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class Purse:
    """A tenant's events replayed in a naive way, cent by cent: each knows from which credit it came."""

    def __init__(self, events):
        self.held, self.months, self.invoices, self.debt, self.paid = [], {}, {}, 0, []
        for time_ms, event in events:
            self.take(time_ms, event)

    def come(self, lot, cents=1):
        for _ in range(cents):
            if lot["kind"] == "payment" and self.debt:
                self.debt -= 1
                continue
            if not lot["left"] and not lot["expires"]:  # it was gone
                self.held = [one for one in self.held if one is not lot]
            if not any(one is lot for one in self.held):
                self.held.append(lot)
            lot["left"] += 1

    def new(self, cents, name, expires, added, kind="payment"):
        self.come({"reference": name, "kind": kind, "expires": expires, "added": added, "left": 0}, cents)

    def pay(self, until_ms, kinds=("payment", "grant")):
        """Return the credit that a cent is paid from; None: there is none."""
        for one in sorted(self.held, key=lambda lot: lot["expires"] or 2**62):
            early = one["added"] > until_ms
            if one["left"] and one["kind"] in kinds and not early and not 0 < one["expires"] < until_ms:
                one["left"] -= 1
                self.paid.append((one["reference"], one["expires"], until_ms))
                return one
        return None

    def give_back(self, cents, count):
        """Give back so many of these: payments first, what lasts longest first."""
        order = sorted(cents, key=lambda lot: (lot["kind"] == "grant", -(lot["expires"] or 2**62)))
        for lot in order[: max(0, count)]:
            cents.remove(lot)
            self.come(lot)

    def take(self, time_ms, event):
        match event:
            case ev.CreditAdded():
                self.new(event.amount, event.reference, event.expires_ms, time_ms, event.kind)
            case ev.CreditExpired():
                gone = next(
                    one for one in self.held if (one["reference"], one["left"]) == (event.reference, event.amount)
                )
                gone["left"] = 0
            case ev.UsagePosted():
                month = self.months.setdefault(event.month_ms, {"use": 0, "by": []})
                month["use"] += event.amount
                for _ in range(event.amount):
                    self.from_credit(month, event.until_ms)
                self.give_back(month["by"], len(month["by"]) - max(0, month["use"]))
            case ev.InvoiceIssued(invoice=made) if made.corrects:
                self.correct(made)
            case ev.InvoiceIssued(invoice=made):
                self.close(made)
            case ev.InvoicePaid():
                self.invoices[event.number]["owed"] -= event.amount
            case ev.MoneyReversed():
                self.undo(event)
            case _:
                pass

    def from_credit(self, month, until_ms, kinds=("payment", "grant")):
        lot = self.pay(until_ms, kinds)
        month["by"] += [lot] if lot else []
        return lot is not None

    def close(self, made):
        month = self.months.pop(made.from_ms)
        while len(month["by"]) < month["use"] and self.from_credit(month, made.until_ms):
            pass
        grants = sum(lot["kind"] == "grant" for lot in month["by"])
        if month["use"] < 0:
            grants = -sum(map(self.grants_back, self.newest_first(-month["use"])))
        tax = (abs(month["use"] - grants) * made.tax_milli + 500) // 1000
        tax = tax if month["use"] >= grants else -tax
        while (
            month["use"] >= 0
            and len(month["by"]) < month["use"] + tax
            and self.from_credit(month, made.until_ms, ["payment"])
        ):
            pass
        total = month["use"] - grants + tax
        if month["use"] >= 0:
            kept = [lot for lot in month["by"] if lot["expires"] or lot["kind"] == "grant"]
            plain = total - sum(lot["kind"] == "payment" for lot in kept)
            owed = month["use"] + tax - len(month["by"])
            self.invoices[made.number] = {
                "taxed": month["use"] - grants,
                "plain": plain,
                "by": kept,
                "owed": owed,
                "due": owed,
            }
        else:
            self.invoices[made.number] = {"taxed": 0, "plain": 0, "by": [], "owed": 0, "due": total}
            assert total == made.total
            self.money_back(made, reversed(self.invoices.values()))

    def newest_first(self, back):
        """Take what was taxed off the latest invoices, and yield each with what is left for its grants."""
        self.left = back
        for one in reversed(self.invoices.values()):
            taxed = min(self.left, one["taxed"])
            one["taxed"] -= taxed
            self.left -= taxed
            yield one

    def grants_back(self, one):
        grants = [lot for lot in one["by"] if lot["kind"] == "grant"]
        count = min(self.left, len(grants))
        self.left -= count
        for lot in sorted(grants, key=lambda lot: -(lot["expires"] or 2**62))[:count]:
            one["by"].remove(lot)
            self.come(lot)
        return count

    def money_back(self, made, invoices, off=0):
        """Give back money of invoices, what never expires first; `off` of it is not credit."""
        left, back = -made.total, []
        for one in invoices:
            plain = min(left, one["plain"])
            one["plain"] -= plain
            paid = [lot for lot in one["by"] if lot["kind"] == "payment"]
            found = sorted(paid, key=lambda lot: -lot["expires"])[: left - plain]
            for lot in found:
                one["by"].remove(lot)
            left, back = left - plain - len(found), back + found
        back = sorted(back, key=lambda lot: -lot["expires"])[: -made.total - off]
        for lot in back:
            self.come(lot)
        at_ms = made.issued_ms if made.corrects else made.until_ms
        self.new(-made.total - off - len(back), made.number, 0, at_ms)

    def correct(self, made):
        one = self.invoices[made.corrects]
        one["taxed"] -= min(made.granted - made.net, one["taxed"])
        self.left = -made.granted
        found = self.grants_back(one)
        self.new(-made.granted - found, made.number, 0, made.issued_ms, "grant")  # a month's note has given back
        off = min(-made.total, one["owed"])
        one["owed"] -= off
        self.money_back(made, [one], off)

    def undo(self, event):
        if event.number:
            self.invoices[event.number]["owed"] += event.amount
            return
        named = [lot for lot in self.held if (lot["reference"], lot["added"]) == (event.reference, event.added_ms)]
        latest = self.held[::-1]
        lasting = sorted(latest, key=lambda lot: -(lot["expires"] or 2**62))
        others = [lot for lot in lasting if lot["kind"] == "payment" and event.kind == "payment"]
        for _ in range(event.amount):
            lot = next((lot for lot in (*named, *others) if lot["left"]), None)
            if lot is not None:
                lot["left"] -= 1
            else:
                self.debt += 1

    @property
    def credit(self):
        return sum(lot["left"] for lot in self.held) - self.debt


def counted(events):
    """Return what a tenant has in all, from nothing but its events."""
    total = 0
    for event in events:
        match event:
            case ev.CreditAdded() | ev.InvoicePaid():
                total += event.amount
            case ev.CreditExpired() | ev.UsagePosted() | ev.MoneyReversed():
                total -= event.amount
            case ev.InvoiceIssued(invoice=made):
                total -= made.total + made.granted if made.corrects else made.tax
            case _:
                pass
    return total


class Bookkeeping(RuleBasedStateMachine):
    """Two tenants, months of use, credits, invoices, payments and credit notes, with restarts in between."""

    @initialize(
        issue=st.sampled_from(["automatic", "manual"]),
        tax=st.sampled_from([0, 77, 190]),
        zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    )
    def begin(self, issue, tax, zone):
        self.billing = Billing(TARIFF, issue=issue, tax_milli=tax, tax_name="VAT" if tax else "", time_zone=zone)
        self.w = World(billing=self.billing, tenants=tuple(map(Tenant, NAMES)))
        self.w.now = at("2026-03-27T05:00")
        self.begun = self.w.now
        self.used = {name: [] for name in NAMES}
        self.invoices = {}
        self.count = 0

    def account(self, name):
        return self.w.state.money.account(name)

    def ask(self, request):
        before = len(self.w.records)
        reply = self.w.commit(lambda tx: decide(tx, request))
        for record in self.w.records[before:]:
            if isinstance(record.event, ev.InvoiceIssued):
                self.invoices[record.event.invoice.number] = record.event.invoice
        return reply

    def calendar_of(self, name):
        return calendar(self.billing.time_zone, self.begun, self.account(name).posted_ms or self.begun, self.w.now)

    def bill(self, name):
        def up(from_ms, until_ms):
            total = sum(amount for time_ms, amount in self.used[name] if from_ms <= time_ms < until_ms)
            return Bill(name, "EUR", 2, from_ms, until_ms, (line(total),), total)

        return up

    def events(self, name):
        found = (r.event for r in self.w.records if isinstance(r.event, MoneyEvent))
        return [event for event in found if tenant_of(event) == name]

    @rule(hours=st.sampled_from([1, 7, 24, 24, 200, 800]))
    def time_passes(self, hours):
        self.w.now += hours * HOUR

    @rule(name=st.sampled_from(NAMES), amount=st.integers(-40, 300), back=st.integers(0, 10 * DAY))
    def use(self, name, amount, back):
        first = max(self.account(name).posted_ms, self.begun)
        if self.w.now > first:
            self.used[name].append((max(first, self.w.now - 1 - back), amount))

    @rule(
        name=st.sampled_from(NAMES),
        amount=st.integers(1, 500),
        kind=st.sampled_from(["payment", "grant"]),
        expires=st.sampled_from([0, 0, 5 * HOUR, 3 * DAY + 1, 40 * DAY]),
    )
    def credit(self, name, amount, kind, expires):
        self.count += 1
        expires_ms = self.w.now + expires if expires else 0
        wanted = AddCredit(name, f"r{self.count}", amount, kind, "op", expires_ms)
        assert self.ask(wanted) == MoneyDone()
        before = self.w.state.money.image()
        assert self.ask(wanted) == MoneyDone(repeated=True)
        assert self.w.state.money.image() == before

    @rule(name=st.sampled_from(NAMES))
    def settle(self, name):
        account, tenant = self.account(name), Tenant(name)
        found = due_events(account, tenant, self.billing, self.calendar_of(name), self.bill(name), self.w.now)
        self.ask(PostAccount(name, account.changed_seq, tuple(found)))
        account = self.account(name)
        assert not due_events(account, tenant, self.billing, self.calendar_of(name), self.bill(name), self.w.now)
        stale = PostAccount(name, account.changed_seq - 1, tuple(found))
        assert self.ask(stale) == MoneyDone(repeated=True)

    @rule(name=st.sampled_from(NAMES), amount=st.integers(-300, 300))
    def month(self, name, amount):
        self.use(name, amount, 0)
        self.time_passes(800)
        self.settle(name)

    @precondition(lambda self: self.billing.issue == "manual")
    @rule(name=st.sampled_from(NAMES))
    def issue(self, name):
        account = self.account(name)
        span = closed_month(account, calendar(self.billing.time_zone, self.begun, self.begun, self.w.now))
        if span is not None:
            made = closing(account, Tenant(name), self.billing, self.bill(name)(*span), self.w.now)
            assert self.ask(PostAccount(name, account.changed_seq, (made,))).number

    @rule(pick=st.integers(0, 99), part=st.integers(1, 4))
    def pay(self, pick, part):
        heads = [head for head in self.w.state.money.invoices.values() if head.kind == "invoice"]
        if not heads:
            return
        head = heads[pick % len(heads)]
        left = self.account(head.tenant).open_on(head.number)
        self.count += 1
        wanted = PayInvoice(head.number, f"p{self.count}", max(1, left // part), "op")
        answer = self.ask(wanted)
        assert isinstance(answer, Refusal) == (left <= 0)
        if left > 0:
            assert self.ask(wanted) == MoneyDone(repeated=True)
            assert isinstance(self.ask(replace(wanted, reference="more", amount=left + 1)), Refusal)

    @rule(pick=st.integers(0, 99), net=st.one_of(st.none(), st.integers(1, 200)))
    def correct(self, pick, net):
        heads = [head for head in self.w.state.money.invoices.values() if head.kind == "invoice"]
        if heads:
            head = heads[pick % len(heads)]
            answer = self.ask(CorrectInvoice(self.invoices[head.number], "wrong", "op", net))
            after = self.w.state.money.invoices[head.number]
            assert 0 <= after.corrected <= max(0, head.total)
            assert (after.corrected_net > head.corrected_net) == isinstance(answer, MoneyDone)
            if net is None:
                assert after.corrected == max(0, head.total)

    @rule(pick=st.integers(0, 99))
    def reverse(self, pick):
        found = [r for r in self.w.records if isinstance(r.event, ev.CreditAdded | ev.InvoicePaid)]
        if not found:
            return
        record = found[pick % len(found)]
        wanted = ReverseEntry(record.seq, record.time_ms, record.event, "bounced", "op")
        before = self.account(record.event.tenant)
        if isinstance(self.ask(wanted), MoneyDone):
            after = self.account(record.event.tenant)
            assert 0 < before.balance - after.balance <= record.event.amount
            whole = before.balance - after.balance == record.event.amount
            assert whole or record.event.kind == "grant"
        else:
            assert self.account(record.event.tenant) == before
        assert isinstance(self.ask(wanted), Refusal)

    @rule(name=st.sampled_from(NAMES))
    def hold_or_release(self, name):
        held = self.account(name).hold is None
        self.w.emit(ev.TenantHeld(name, "balance", "none left") if held else ev.TenantReleased(name))
        assert (name in self.w.state.money.holds()) == held

    @rule()
    def restart(self):
        before = self.w.state.image()
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=Image)
        self.w.state = State.from_image(again)
        assert self.w.state.money.image() == before.money
        assert self.w.state.money.holds() == {a.tenant: a.hold for a in before.money.accounts if a.hold}

    @invariant()
    def all_balances_are_zero_together(self):
        if hasattr(self, "w"):
            ledger = self.w.state.money.ledger
            assert sum(ledger.values()) == 0
            for name in NAMES:
                account = self.account(name)
                kept = [ledger.get(f"{kind}:{name}", 0) for kind in ("credit", "unbilled", "owed")]
                assert kept == [-account.credit, account.unbilled, account.owed]
                assert all(lot.left >= 0 for lot in account.lots)
                assert not (account.debt and any(lot.left for lot in account.lots if lot.kind == "payment"))
                assert account.owed >= 0

    @invariant()
    def what_a_tenant_has_is_what_its_events_add_up_to(self):
        if hasattr(self, "w"):
            for name in NAMES:
                assert self.account(name).balance == counted(self.events(name))

    @invariant()
    def numbers_have_no_gaps(self):
        if hasattr(self, "w"):
            for kind, prefix in (("invoice", "INV-"), ("credit_note", "CN-")):
                numbers = [head.number for head in self.w.state.money.invoices.values() if head.kind == kind]
                assert numbers == [f"{prefix}{i + 1:06d}" for i in range(len(numbers))]

    def teardown(self):
        if not hasattr(self, "w"):
            return
        w, log = self.w, JournalLog()
        for record in w.records:
            log.take(record)
        assert all(sum(p.amount for p in entry.postings) == 0 for entry in log.entries)
        sums = {}
        for posting in (p for entry in log.entries for p in entry.postings):
            sums[posting.account] = sums.get(posting.account, 0) + posting.amount
        assert sums == w.state.money.ledger
        folded = fold(w.records).money.image()
        assert folded == w.state.money.image()
        assert replace(folded, priced_ms=0) == log.image()
        for name in NAMES:
            self._used_as_it_should(name)

    def _used_as_it_should(self, name):
        mine = [r for r in self.w.records if isinstance(r.event, MoneyEvent) and tenant_of(r.event) == name]
        purse = Purse((r.time_ms, r.event) for r in mine)
        lots = sorted((lot.reference, lot.expires_ms, lot.left) for lot in self.account(name).lots if lot.left)
        assert lots == sorted((lot["reference"], lot["expires"], lot["left"]) for lot in purse.held if lot["left"])
        owed = sum(one["owed"] for one in purse.invoices.values())
        assert (purse.credit, owed) == (self.account(name).credit, self.account(name).owed)
        assert all(not expires or until_ms <= expires for _, expires, until_ms in purse.paid)
        for number, one in purse.invoices.items():
            assert self.invoices[number].due == one["due"]
        issued = [r.event.invoice for r in mine if isinstance(r.event, ev.InvoiceIssued)]
        made = [one for one in issued if not one.corrects]
        assert [one.from_ms for one in made] == sorted({one.from_ms for one in made})
        for one in made:
            use = sum(amount for time_ms, amount in self.used[name] if one.from_ms <= time_ms < one.until_ms)
            total = use - one.granted + one.tax
            assert (one.net, one.total, one.due) == (use, total, total - one.from_credit)
            assert (one.kind == "credit_note") == (use < 0)


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = examples(40, stateful_step_count=40, suppress_health_check=list(HealthCheck))


# Examples.


def fold_all(*events, tenant="t"):
    accounts = Accounts()
    for seq, event in enumerate(events, 1):
        accounts.apply(event, seq, 1_000 * seq)
    return accounts, accounts.account(tenant)


MARCH, APRIL, MAY = at("2026-03-01"), at("2026-04-01"), at("2026-05-01")


def posted(amount, until_ms=MARCH + DAY, month_ms=MARCH):
    return ev.UsagePosted("t", month_ms, until_ms, amount)


def line(amount):
    return InvoiceLine("q", "ann", 1, "j", "device", "", 0, 0, 1000, 1000, amount, amount)


def credit(amount, reference="r", expires_ms=0, kind="payment"):
    return ev.CreditAdded("t", reference, amount, kind, expires_ms)


def invoice(net, due, number="INV-000001", tax=0, **fields):
    given = {"from_ms": MARCH, "until_ms": APRIL, "from_credit": net + tax - due} | fields
    return ev.InvoiceIssued(
        Invoice(
            number=number, kind=given.pop("kind", "invoice"), tenant="t", issued_ms=0, time_zone="UTC", currency="EUR",
            digits=2, lines=(line(net),), net=net, tax=tax, total=given.pop("total", net + tax), due=due, **given,
        )
    )  # fmt: skip


def note(total, corrects="INV-000001", number="CN-000001"):
    return invoice(-total, -total, number, kind="credit_note", corrects=corrects)


def test_use_is_paid_from_credit_and_the_rest_is_owed_with_the_invoice():
    accounts, account = fold_all(credit(100), posted(130), posted(0, APRIL), invoice(130, 30))
    assert (account.credit, account.unbilled, account.owed, account.balance) == (0, 0, 30, -30)
    assert accounts.ledger == {"cash": 100, "credit:t": 0, "unbilled:t": 0, "income": -130, "owed:t": 30}


def test_what_expires_first_pays_first_and_what_never_expires_last():
    lots = [credit(10, "never"), credit(10, "late", MARCH + 9 * DAY), credit(10, "soon", MARCH + 2 * DAY)]
    _, account = fold_all(*lots, posted(15))
    assert [(lot.reference, lot.left) for lot in account.lots] == [("soon", 0), ("late", 5), ("never", 10)]


def test_what_has_expired_pays_nothing_and_one_that_expires_then_still_pays():
    lots = (Lot("r", 10, "grant", 1_000),)
    assert spend(lots, 4, 1_000) == ((Lot("r", 6, "grant", 1_000),), (CreditPart("r", 4, "grant", 1_000),))
    assert spend(lots, 4, 1_001) == (lots, ())


def test_credit_that_comes_later_covers_what_is_open_when_it_is_invoiced():
    _, account = fold_all(posted(130, APRIL), credit(100), invoice(130, 30))
    assert (account.credit, account.owed) == (0, 30)


def test_what_was_given_back_beyond_the_use_of_a_month_becomes_credit():
    _, account = fold_all(posted(-30, APRIL), invoice(-30, -30))
    assert (account.credit, account.owed, account.balance) == (30, 0, 30)


def test_what_former_versions_wrote_means_what_it_meant():
    """They gave back nothing to grants, and had them in what was paid from credit."""
    events = (credit(100, kind="grant", expires_ms=MAY), posted(130), posted(-50, APRIL), invoice(80, -20), note(80))
    accounts, account = fold_all(*events)
    found = [(lot.reference, lot.left, lot.kind, lot.expires_ms) for lot in account.lots]
    assert found == [("r", 0, "grant", MAY), ("INV-000001", 20, "payment", 0), ("CN-000001", 80, "payment", 0)]
    assert accounts.ledger["credit:t"] == -100


def test_what_expired_is_not_income_from_use():
    accounts, account = fold_all(
        credit(50, expires_ms=MARCH + DAY, kind="grant"), posted(20), ev.CreditExpired("t", "r", 30)
    )
    assert (account.credit, accounts.ledger["grants"], accounts.ledger["expired"]) == (0, 50, -30)
    assert accounts.ledger["income"] == -20


def test_a_credit_that_expires_leaves_another_of_the_same_name_alone():
    """The credit that an invoice gives back is named after it, and so may be one that an operator grants."""
    granted = credit(7, "INV-000001", APRIL + DAY)
    _, account = fold_all(posted(-30, APRIL), granted, invoice(-30, -30), ev.CreditExpired("t", "INV-000001", 7))
    assert [(lot.left, lot.expires_ms) for lot in account.lots] == [(30, 0)]


def test_a_credit_note_is_taken_off_what_is_owed_and_the_rest_is_credit():
    issued = (posted(130, APRIL), invoice(130, 130), ev.InvoicePaid("t", "INV-000001", "p", 100))
    accounts, account = fold_all(*issued, note(50))
    assert (account.owed, account.credit, account.balance) == (0, 20, 20)
    head = accounts.invoices["INV-000001"]
    assert (head.paid, head.corrected, head.due) == (100, 50, 130)


@pytest.mark.parametrize(
    "wrong",
    [
        posted(1, MARCH + DAY),
        posted(1, MARCH),
        credit(1, "r"),
        ev.CreditExpired("t", "r", 9),
        ev.CreditExpired("t", "s", 10),
        ev.InvoicePaid("t", "INV-000001", "r", 5),
        invoice(31, 31),
        invoice(30, 30, until_ms=MAY),
        invoice(30, 20, from_ms=APRIL, until_ms=MAY),
    ],
)
def test_what_cannot_follow_is_refused(wrong):
    _accounts, account = fold_all(credit(10), posted(30))
    with pytest.raises(BrokenInvariant):
        moved(account, wrong, 0)


def test_months_are_invoiced_in_order_and_once():
    events = [posted(10, APRIL), posted(20, MAY, APRIL)]
    second = invoice(20, 20, "INV-000001", from_ms=APRIL, until_ms=MAY)
    accounts, account = fold_all(*events)
    with pytest.raises(BrokenInvariant, match="in order"):
        moved(account, second, 0)
    accounts, account = fold_all(*events, invoice(10, 10))
    with pytest.raises(BrokenInvariant, match="says 10"):
        moved(account, invoice(10, 10, "INV-000002"), 0)
    with pytest.raises(BrokenInvariant, match="was issued before"):
        accounts.apply(second, 9, 0)


def test_old_use_is_never_posted_into_a_month_that_is_invoiced():
    _, account = fold_all(posted(10, APRIL), invoice(10, 10))
    with pytest.raises(BrokenInvariant, match="posted already"):
        moved(account, posted(1, APRIL + 1, MARCH), 0)


def test_an_account_keeps_days_up_to_its_limit():
    _, account = fold_all(*(posted(i, MARCH + i) for i in range(1, 900)))
    assert (len(account.days), account.days[0]) == (800, Spent(MARCH + 100, 100))


def test_an_unknown_tenant_has_an_empty_account():
    accounts = Accounts(MoneyImage())
    assert accounts.account("nobody") == Account("nobody")
    assert accounts.holds() == {}
