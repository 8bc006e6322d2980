"""The same events give the same money: replayed from anywhere, offered twice, or in any order that the log allows.

Which orders it allows. A session, what a node took of it and its checkpoints are one job's, and only its own events
change them; an account is one tenant's, and only its own entries change it; and neither is read by the other. So two
neighbouring records of one moment may change places if they are about different jobs, different tenants, or one is
about a job and the other about money. They may not if one is about a node (it gives devices their model, and takes
what several jobs hold) or the configuration, nor if both issue invoices: their numbers say in which order.
"""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.settlement import Calendar, bill_for
from penstock.core.model import events as ev
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import MoneyEvent
from penstock.core.model.prices import Billing, Factor, Price, Tariff
from penstock.core.state.accounts import Accounts, tenant_of
from penstock.core.state.state import State, fold
from penstock.sim.world.auditor import Biller, Reading
from tests.core.histories import operations, play, small_world
from tests.core.ledger.test_settlement import BEGIN, DAY, END, Desk, billing_of, history
from tests.properties import examples

PRICED = Billing(
    Tariff(
        (Price("device", 3_600_000_001), Price("cpu", 17_000_003), Price("memory", 1_000_000)),
        factors=(Factor(1_250, 300), Factor(700, preemptible=True)),
        minimum_ms=2_500,
    )
)
orders = st.integers(0, 2**32).map(random.Random)


def about(event):
    """Return whose record it is; None: everybody's."""
    if isinstance(event, MoneyEvent):
        return "tenant", tenant_of(event)
    job_id = getattr(event, "job_id", None)
    return ("job", job_id) if job_id is not None else None


def may_change_places(one, other):
    of_one, of_other = about(one.event), about(other.event)
    if one.time_ms != other.time_ms or None in (of_one, of_other) or of_one == of_other:
        return False
    return not isinstance(one.event, ev.InvoiceIssued) or not isinstance(other.event, ev.InvoiceIssued)


def shuffled(records, rng):
    """Return the records in another order that the log allows, numbered anew: many exchanges of neighbours."""
    found = list(records)
    for _ in range(4):
        for at in rng.sample(range(len(found) - 1), len(found) - 1) if len(found) > 1 else ():
            if rng.random() < 0.7 and may_change_places(found[at], found[at + 1]):
                found[at : at + 2] = found[at + 1], found[at]
    return [replace(record, seq=seq) for seq, record in enumerate(found, 1)]


def bills(books, until_ms):
    dates = Calendar((0,), (0, 2**50))
    return [bill_for(name, books.held(name), PRICED, dates, 0, until_ms) for name in books.tenants()]


def folded(records, books=None):
    books = books or UsageLog()
    books.take(records)
    return books


def pairs(records):
    return sum(may_change_places(one, other) for one, other in itertools.pairwise(records))


@examples(40)
@given(operations, orders)
def test_a_bill_does_not_depend_on_the_order_of_a_moment(found, rng):
    w = play(small_world(), found)
    records, until_ms = w.records, w.now + 10_000
    expected = bills(folded(records), until_ms)
    for _ in range(3):
        other = shuffled(records, rng)
        assert bills(folded(other), until_ms) == expected
        reading = Reading(other)
        assert reading.wrong == []
        for made in expected:
            assert Biller(reading, PRICED).total(made.tenant, 0, until_ms) == made.total


@examples(40)
@given(operations, orders)
def test_a_fold_that_goes_on_from_anywhere_gives_the_same_bill(found, rng):
    w = play(small_world(), found)
    expected = bills(folded(w.records), w.now)
    assert bills(folded(w.records), w.now) == expected
    for _ in range(3):
        at = rng.randint(0, len(w.records))
        kept = folded(w.records[:at])
        assert bills(folded(w.records[at:], UsageLog(kept.image())), w.now) == expected
        image = fold(w.records[:at]).image()
        assert fold(w.records[at:], State.from_image(image)).money.image() == w.state.money.image()


@examples(40)
@given(operations, orders)
def test_a_record_that_comes_twice_is_refused_and_changes_nothing(found, rng):
    w = play(small_world(), found)
    books, state, expected = folded(w.records), fold(w.records), bills(folded(w.records), w.now)
    before = state.image()
    for record in rng.choices(w.records, k=3):
        with pytest.raises(BrokenInvariant, match=f"record {record.seq} does not follow"):
            books.log.take(record)
        with pytest.raises(BrokenInvariant, match=f"record {record.seq} does not follow"):
            state.apply(record)
    assert bills(books, w.now) == expected
    assert state.image() == before


# With credits, postings and invoices.


def told_coarsely(rng):
    """Return a history of which many things happen at one moment, with credits."""
    told = [(time_ms - (time_ms - BEGIN) % (2 * DAY), event) for time_ms, event in history(rng, 30)]
    for number in range(12):
        time_ms = BEGIN + rng.randrange((END - BEGIN) // (2 * DAY)) * 2 * DAY
        expires_ms = time_ms + rng.choice((0, 9 * DAY + 5, 40 * DAY))
        credit = ev.CreditAdded(
            rng.choice("ab"), f"c{number}", rng.randint(1, 9_000), "grant", expires_ms if expires_ms > time_ms else 0
        )
        told.append((time_ms, credit))
    return sorted(told, key=lambda one: one[0])


def kept_books(billing, told):
    desk = Desk(billing, told)
    for now_ms in (*range(BEGIN, END, 5 * DAY), END + 30 * DAY):
        desk.look(now_ms)
    return desk


@pytest.mark.parametrize("seed", range(8))
def test_postings_invoices_and_balances_do_not_depend_on_the_order_of_a_moment(seed):
    rng = random.Random(7_000 + seed)
    told, billing = told_coarsely(rng), billing_of(rng)
    records = [ev.Record(seq, *one) for seq, one in enumerate(told, 1)]
    assert pairs(records) > 5
    expected = kept_books(billing, told)
    other = kept_books(billing, [(record.time_ms, record.event) for record in shuffled(records, rng)])
    assert other.invoices() == expected.invoices()
    assert other.postings() == expected.postings()
    assert other.accounts.ledger == expected.accounts.ledger
    assert sum(other.accounts.ledger.values()) == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_log_of_money_may_be_shuffled_and_replayed(seed):
    """What was decided is in the log: whoever folds it gets the same accounts, in any order that it allows."""
    rng = random.Random(8_000 + seed)
    told, billing = told_coarsely(rng), billing_of(rng)
    desk = kept_books(billing, told)
    assert pairs(desk.records) > 20
    for _ in range(3):
        accounts = Accounts()
        for record in shuffled(desk.records, rng):
            if isinstance(record.event, MoneyEvent):
                accounts.apply(record.event, record.seq, record.time_ms)
        assert sum(accounts.ledger.values()) == 0
        assert accounts.ledger == desk.accounts.ledger
        assert list(accounts.invoices) == list(desk.accounts.invoices)
        found = {name: replace(account, changed_seq=0) for name, account in accounts.of.items()}
        assert found == {name: replace(account, changed_seq=0) for name, account in desk.accounts.of.items()}


@pytest.mark.parametrize("kind", [ev.CreditAdded, ev.UsagePosted, ev.InvoiceIssued])
def test_an_entry_that_comes_twice_is_refused_even_under_another_number(kind):
    rng = random.Random(9_000)
    desk = kept_books(billing_of(rng), told_coarsely(rng))
    for record in desk.records:
        if isinstance(record.event, kind):
            accounts = Accounts(desk.accounts.image())
            with pytest.raises(BrokenInvariant):
                accounts.apply(record.event, len(desk.records) + 1, record.time_ms)
            assert accounts.image() == desk.accounts.image()
