"""Decisions about money: credits, payments and credit notes; bad ones are refused by their field and change nothing."""

import pytest
from msgspec.structs import replace

from penstock.core.ledger.bill import wrong_sum
from penstock.core.lifecycle.money import decide
from penstock.core.messages.money import AddCredit, CorrectInvoice, MoneyDone, PayInvoice, PostAccount, ReverseEntry
from penstock.core.messages.requests import Refusal
from penstock.core.model import events as ev
from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import Billing
from penstock.testing.harness import World
from tests.core.state.test_accounts import APRIL, DAY, MARCH, MAY, TARIFF, invoice, posted


def asked(w, request):
    return w.commit(lambda tx: decide(tx, request))


def world(**billing):
    w = World(billing=Billing(TARIFF, **billing), tenants=(Tenant("t"),))
    w.now = MAY + DAY
    return w


def issued(w, net, tax=0, granted=0):
    """Post March's use and issue its invoice; return it."""
    w.emit(posted(net, APRIL))
    tax_milli, due = w.state.config.billing.tax_milli, net + tax - granted
    made = invoice(net, due, number="", tax=tax, tax_milli=tax_milli, from_credit=0, granted=granted, total=due)
    asked(w, PostAccount("t", w.state.money.account("t").changed_seq, (made,)))
    head = list(w.state.money.invoices.values())[-1]
    return next(r.event.invoice for r in w.records if r.seq == head.seq)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (AddCredit("u", "r", 5, "payment", "op"), "tenant"),
        (AddCredit("t", "r", 0, "payment", "op"), "amount"),
        (AddCredit("t", "r", -5, "payment", "op"), "amount"),
        (AddCredit("t", "r", 10**15 + 1, "payment", "op"), "amount"),
        (AddCredit("t", "", 5, "payment", "op"), "reference"),
        (AddCredit("t", "a\nb", 5, "payment", "op"), "reference"),
        (AddCredit("t", "x" * 201, 5, "payment", "op"), "reference"),
        (AddCredit("t", "r", 5, "grant", "op", MAY + DAY), "expires"),
        (PayInvoice("INV-000009", "p", 5, "op"), "number"),
        (PayInvoice("INV-000001", "p", 0, "op"), "amount"),
        (PayInvoice("INV-000001", "", 5, "op"), "reference"),
        (PayInvoice("INV-000001", "p", 101, "op"), "amount"),
    ],
)
def test_a_bad_request_is_refused_and_named(request_, field):
    w = world()
    issued(w, 100)
    before = len(w.records)
    answer = asked(w, request_)
    assert isinstance(answer, Refusal)
    assert [problem.field for problem in answer.problems] == [field]
    assert len(w.records) == before


def test_a_payment_is_for_one_invoice_and_not_beyond_what_is_open_on_it():
    w = world()
    first = issued(w, 100)
    w.emit(ev.UsagePosted("t", APRIL, MAY, 70))
    second = invoice(70, 70, number="", from_ms=APRIL, until_ms=MAY)
    asked(w, PostAccount("t", w.state.money.account("t").changed_seq, (second,)))
    assert asked(w, PayInvoice(first.number, "p", 101, "op")).problems[0].field == "amount"
    assert asked(w, PayInvoice(first.number, "p", 60, "op")) == MoneyDone(first.number)
    assert asked(w, PayInvoice(first.number, "q", 41, "op")).problems[0].field == "amount"
    assert asked(w, PayInvoice(first.number, "q", 40, "op")) == MoneyDone(first.number)
    assert w.state.money.account("t").owed == 70


def test_a_whole_credit_note_takes_back_all_lines_and_all_tax():
    w = world(tax_milli=190, tax_name="VAT")
    made = issued(w, 105, 20)
    done = asked(w, CorrectInvoice(made, "never used", "op"))
    event = w.records[-1].event.invoice
    assert (done.number, event.net, event.tax, event.total, event.corrects) == (
        "CN-000001",
        -105,
        -20,
        -125,
        made.number,
    )
    assert w.state.money.account("t").owed == 0
    assert isinstance(asked(w, CorrectInvoice(made, "again", "op")), Refusal)


def test_parts_of_an_invoice_are_corrected_until_nothing_is_left():
    w = world(tax_milli=190, tax_name="VAT")
    made = issued(w, 100, 19)
    for net in (33, 33):
        asked(w, CorrectInvoice(made, "in part", "op", net))
    assert w.state.money.invoices[made.number].corrected == 66 + 13  # 19 % of what is corrected by now, rounded
    assert isinstance(asked(w, CorrectInvoice(made, "too much", "op", 60)), Refusal)
    asked(w, CorrectInvoice(made, "the rest", "op"))
    assert w.state.money.invoices[made.number].corrected == 119
    assert w.state.money.account("t").owed == 0


def test_a_credit_note_gives_back_money_before_grants_and_these_without_tax():
    """Of 100, a grant paid 60 and money 40 with 19 % of it: 8."""
    w = world(tax_milli=190, tax_name="VAT")
    w.now = MARCH
    w.emit(ev.CreditAdded("t", "g", 60, "grant", MAY + 9 * DAY))
    made = issued(w, 100, 8, granted=60)
    documents = []
    for net in (30, 20, 50):
        asked(w, CorrectInvoice(made, "in part", "op", net))
        found = w.records[-1].event.invoice
        documents.append((found.net, found.granted, found.tax, found.total))
    assert documents == [(-30, 0, -6, -36), (-20, -10, -2, -12), (-50, -50, 0, 0)]
    account = w.state.money.account("t")
    assert (account.owed, [(one.reference, one.left, one.kind) for one in account.lots]) == (0, [("g", 60, "grant")])


def test_a_credit_note_cannot_be_corrected_or_paid():
    w = world()
    asked(w, CorrectInvoice(issued(w, 100), "wrong", "op"))
    made = w.records[-1].event.invoice
    assert asked(w, CorrectInvoice(made, "wrong", "op")).problems[0].field == "number"
    assert asked(w, PayInvoice(made.number, "p", 5, "op")).problems[0].field == "number"


def test_a_credit_note_says_why():
    w = world()
    assert asked(w, CorrectInvoice(issued(w, 100), "", "op")).problems[0].field == "reason"


def test_a_number_that_is_taken_is_refused_and_not_given_twice():
    """Prefixes that change places would name a credit note as an invoice was named."""
    w = world()
    made = issued(w, 100)
    swapped = replace(w.state.config.billing, invoice_prefix="CN-", credit_note_prefix="INV-")
    w.emit(ev.ConfigChanged(replace(w.state.config, billing=swapped), "op"))
    answer = asked(w, CorrectInvoice(made, "wrong", "op"))
    assert isinstance(answer, Refusal)
    assert answer.problems[0].field == "billing.invoices.credit_note_prefix"


def test_a_credit_note_for_a_paid_invoice_leaves_another_one_as_open_as_it_was():
    w = world()
    first = issued(w, 100)
    asked(w, PayInvoice(first.number, "bank 1", 100, "op"))
    w.emit(ev.UsagePosted("t", APRIL, MAY, 100))
    second = invoice(100, 100, number="", from_ms=APRIL, until_ms=MAY)
    asked(w, PostAccount("t", w.state.money.account("t").changed_seq, (second,)))
    asked(w, CorrectInvoice(first, "never used", "op"))
    assert w.state.money.account("t").balance == 0
    number = list(w.state.money.invoices)[1]
    assert asked(w, PayInvoice(number, "bank 2", 100, "op")) == MoneyDone(number)


def test_the_same_reference_for_something_else_is_refused():
    w = world()
    asked(w, AddCredit("t", "r", 5, "payment", "op"))
    assert isinstance(asked(w, AddCredit("t", "r", 500, "payment", "op")), Refusal)


def test_parts_of_a_correction_add_up_to_the_net_and_the_tax_of_the_invoice():
    w = world(tax_milli=190, tax_name="VAT")
    made = issued(w, 100, 19)
    for net in (33, 33, 34, None):
        asked(w, CorrectInvoice(made, "in part", "op", net))
    notes = [r.event.invoice for r in w.records if isinstance(r.event, ev.InvoiceIssued) and r.event.invoice.corrects]
    assert (sum(one.net for one in notes), sum(one.tax for one in notes)) == (-100, -19)


def test_every_credit_note_adds_up_also_the_last_after_one_that_gave_back_nothing_but_a_grant():
    w = world()
    w.now = MARCH
    w.emit(ev.CreditAdded("t", "g", 100, "grant"))
    made = issued(w, 100, granted=100)
    for net in (33, None):
        asked(w, CorrectInvoice(made, "in part", "op", net))
    notes = [r.event.invoice for r in w.records if isinstance(r.event, ev.InvoiceIssued) and r.event.invoice.corrects]
    assert [(one.net, one.total, wrong_sum(one)) for one in notes] == [(-33, 0, ""), (-67, 0, "")]


def reversed_(w, reference, reason="typing error"):
    """Reverse the credit or payment of a reference; return the answer."""
    said = (r for r in w.records if isinstance(r.event, ev.CreditAdded | ev.InvoicePaid))
    record = next(r for r in said if r.event.reference == reference)
    return asked(w, ReverseEntry(record.seq, record.time_ms, record.event, reason, "op"))


def added(w, amount, kind="payment", reference="r", expires_ms=0):
    asked(w, AddCredit("t", reference, amount, kind, "op", expires_ms))


def standing(w):
    account = w.state.money.account("t")
    return account.credit, [(lot.reference, lot.left) for lot in account.lots], account.debt


def test_a_payment_entered_wrongly_is_taken_back_once_and_both_stay_in_the_log():
    w = world()
    added(w, 12_500)
    assert reversed_(w, "r") == MoneyDone()
    assert standing(w) == (0, [], 0)
    assert w.state.money.ledger == {"cash": 0, "credit:t": 0}
    assert reversed_(w, "r").problems[0].code == "reversed_before"
    assert (w.records[-1].event.reason, w.records[-1].event.by) == ("typing error", "op")
    assert asked(w, AddCredit("t", "r", 1_250, "payment", "op")).code == "conflict"
    added(w, 1_250, reference="r, corrected")
    assert standing(w) == (1_250, [("r, corrected", 1_250)], 0)


def test_what_was_spent_of_a_payment_that_bounced_is_taken_from_others_and_then_owed():
    w = world()
    w.now = MARCH
    added(w, 100)
    w.emit(posted(70, APRIL))
    added(w, 20, reference="later")
    reversed_(w, "r")
    assert standing(w) == (-50, [], 50)
    assert (w.state.money.account("t").balance, w.state.money.ledger["credit:t"]) == (-50, 50)
    added(w, 500, "grant", "gift")
    assert standing(w) == (450, [("gift", 500)], 50)
    added(w, 60, reference="paid")
    assert standing(w) == (510, [("gift", 500), ("paid", 10)], 0)


def test_a_grant_is_taken_back_as_far_as_it_is_left():
    w = world()
    w.now = MARCH
    added(w, 100, "grant")
    added(w, 5, reference="money")
    w.emit(posted(70, APRIL))
    assert reversed_(w, "r") == MoneyDone()
    assert (w.records[-1].event.amount, standing(w)) == (30, (5, [("money", 5)], 0))
    assert w.state.money.ledger["grants"] == 70
    assert reversed_(w, "r").problems[0].code == "reversed_before"


def test_what_a_grant_has_paid_stays_paid_and_what_expired_is_gone():
    w = world()
    w.now = MARCH
    added(w, 70, "grant")
    added(w, 9, "payment", "short", MARCH + DAY)
    w.emit(posted(70, APRIL))
    before = standing(w)
    w.now = MARCH + DAY
    assert [reversed_(w, name).problems[0].code for name in ("short", "r")] == ["expired", "spent"]
    assert standing(w) == before


def test_an_invoice_is_open_again_when_its_payment_is_reversed():
    w = world()
    made = issued(w, 100)
    asked(w, PayInvoice(made.number, "bank 1", 100, "op"))
    assert reversed_(w, "bank 1", "returned") == MoneyDone(made.number)
    head = w.state.money.invoices[made.number]
    assert (head.paid, w.state.money.account("t").owed, w.state.money.ledger["cash"]) == (0, 100, 0)
    assert asked(w, PayInvoice(made.number, "bank 2", 100, "op")) == MoneyDone(made.number)
    assert reversed_(w, "bank 1").problems[0].code == "reversed_before"


def test_a_reversal_says_why():
    w = world()
    added(w, 5)
    assert reversed_(w, "r", "").problems[0].field == "reason"


def test_no_invoice_is_issued_that_does_not_add_up():
    w = world()
    w.emit(posted(100, APRIL))
    made = invoice(100, 100, number="")
    wrong = replace(made, invoice=replace(made.invoice, lines=()))
    before = len(w.records)
    answer = asked(w, PostAccount("t", w.state.money.account("t").changed_seq, (wrong,)))
    assert answer.problems[0].message == "invoice of t: net is 100, and its lines come to 0"
    assert len(w.records) == before


def test_a_payment_that_fills_a_debt_leaves_with_its_time_all_the_same():
    w = world()
    w.now = MARCH
    added(w, 100)
    w.emit(posted(70, APRIL))
    reversed_(w, "r")
    added(w, 20, reference="short", expires_ms=MAY)
    assert standing(w) == (-50, [("short", 0)], 50)
