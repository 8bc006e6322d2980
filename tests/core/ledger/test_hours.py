"""What hours cost: each charge falls into the hours that it is of, and together they are what was billed."""

import random
from fractions import Fraction

import pytest

from penstock.control.calendar import ZoneDates
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.budgets import judge
from penstock.core.ledger.hours import hour_costs
from penstock.core.ledger.posting import TenantStanding, forget, view_of
from penstock.core.ledger.pricing import charges, micro_denominator
from penstock.core.model.accounts import Account
from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import HOUR_MS, Billing, Factor, Price, Tariff
from penstock.testing.builders import node
from penstock.testing.harness import World
from tests.core.ledger.test_pricing import session

HOUR_S = 3_600
TARIFF = Tariff((Price("device", 1_000_000), Price("memory", 500_000)))


def hours(held, count, first_s=0, tariff=TARIFF):
    found = charges(held, tariff, [0], first_s * 1_000, (first_s + count * HOUR_S) * 1_000)
    return hour_costs(found, first_s * 1_000, count, 2)


def test_a_session_costs_in_the_hours_that_it_meets():
    assert hours([session(HOUR_S // 2, 3 * HOUR_S + 900)], 5) == [50, 100, 100, 25, 0]
    assert hours([session(HOUR_S, 2 * HOUR_S)], 3) == [0, 100, 0]
    assert hours([session(10, 20), session(HOUR_S - 36, HOUR_S + 36)], 2) == [1, 1]


def test_what_is_before_and_after_is_left_out():
    assert hours([session(0, 10 * HOUR_S)], 2, first_s=4 * HOUR_S) == [100, 100]


def test_nothing_costs_nothing():
    assert hours([], 3) == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_hours_are_each_charged_by_themselves(seed):
    rng = random.Random(seed)
    held = []
    for job in range(1, 20):
        begin = rng.randrange(30 * HOUR_S)
        held.append(
            session(begin, begin + rng.choice((5, 600, HOUR_S, 20 * HOUR_S)), job=job, priority=rng.choice((1, 900)))
        )
    tariff = Tariff(TARIFF.prices, ((5, 500),), factors=(Factor(1_500, 800),))
    first = rng.randrange(10) * 1_000
    found = list(charges(held, tariff, [0], first, first + 40 * HOUR_S * 1_000))
    for at, cost in enumerate(hour_costs(iter(found), first, 40, 2)):
        begin_ms, end_ms = first + at * HOUR_S * 1_000, first + (at + 1) * HOUR_S * 1_000
        exact = Fraction(0)
        for one in found:
            length = max(0, min(one.end_ms, end_ms) - max(one.start_ms, begin_ms))
            share = Fraction(length, one.end_ms - one.start_ms)
            exact += share * one.parts / micro_denominator(one.resource) / 10**4
        assert cost == (2 * exact + 1) // 2


def test_the_treasury_knows_the_hours_before_where_the_present_one_is_dear():
    w = World(node("a", 16), billing=Billing(Tariff((Price("device", 1_000_000),))))
    w.now = 100 * 24 * HOUR_MS
    w.run(w.submit(1, cpus=0))
    w.now += 80 * HOUR_MS
    found = spending(w)
    assert (found.hour_ms, found.hour_cost, found.hours) == (w.now, 0, ())
    w.run(w.submit(12, cpus=0))
    w.now += 30 * 60_000
    found = spending(w)
    assert (found.hour_ms, found.hour_cost, found.hours) == (w.now - 30 * 60_000, 650, (100,) * 80)
    (said,) = judge(Account("default"), Tenant("default"), w.state.config.billing, found)
    assert (said.kind, said.name, said.percent) == ("unusual", "hour", 650)


def test_books_keep_the_hours_that_the_present_one_is_compared_with():
    w = World(node("a", 16), billing=Billing(Tariff((Price("device", 1_000_000),))))
    w.now = 100 * 24 * HOUR_MS
    for _ in range(2):
        job = w.submit(1, cpus=0)
        w.run(job)
        w.now += HOUR_MS
        w.exit_replica(job)
        w.now += 40 * 24 * HOUR_MS
    w.now -= 15 * 24 * HOUR_MS  # the second ended 25 days ago, the first 65
    books = UsageLog()
    books.take(w.records)
    paid = Account("default", posted_ms=w.now, invoiced_ms=w.now)
    view = TenantStanding(
        Tenant("default"), paid, books.held("default"), w.state.config.billing, ZoneDates("UTC"), w.now, 1
    )
    forget(books, view, ZoneDates("UTC"))
    assert [one.job_id for one in books.held("default").sessions] == [2]


def spending(w):
    books = UsageLog()
    books.take(w.records)
    config = w.state.config
    return view_of("default", books.held("default"), w.state.money, config, ZoneDates("UTC"), w.now).spending()
