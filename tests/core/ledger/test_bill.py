"""Bills: lines add up to the total, and the total is the exact sum, rounded once."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger.bill import bill
from penstock.core.ledger.pricing import charges, micro_denominator
from penstock.core.model.prices import HOUR_MS, Billing, Factor, Price, Tariff
from penstock.core.model.quantities import money
from tests.core.ledger.test_pricing import session


def billed(held, tariff, digits=2, until_s=10**6):
    found = list(charges(held, tariff, [0], 0, until_s * 1000))
    return bill("t", Billing(tariff, "EUR", digits), iter(found), 0, until_s * 1000), found


def test_a_line_says_what_it_is_for():
    tariff = Tariff((Price("device", 3_600_000_000),), tiers=((1, 500),), factors=(Factor(1500, priority_min=900),))
    made, _ = billed([session(0, 7200, job=7, job_name="train", priority=1000)], tariff)
    assert [(line.job_id, line.job_name, line.resource, line.model) for line in made.lines] == [
        (7, "train", "device", "A100")
    ] * 2
    assert [(line.tier_milli, line.factor_milli, line.full, line.amount) for line in made.lines] == [
        (500, 1500, 360_000, 270_000),
        (1000, 1500, 360_000, 540_000),
    ]
    assert [line.quantity_ms for line in made.lines] == [1000 * HOUR_MS] * 2
    assert (made.total, money(made.total, 2)) == (810_000, "8,100.00")


def test_what_a_job_did_at_one_price_is_one_line():
    held = [session(0, 60, job=1, rank=0), session(0, 60, job=1, rank=1), session(100, 160, job=1, rank=0)]
    made, found = billed([*held[:2]], Tariff((Price("device", 3_600_000_000),)))
    assert len(found) == 2
    assert [line.amount for line in made.lines] == [12_000]


def test_many_parts_of_a_cent_are_not_nothing():
    tariff = Tariff((Price("device", 200_000),))  # a minute is a third of a cent
    made, _ = billed([session(0, 60, job=job) for job in range(1, 10_001)], tariff)
    assert made.total == 3_333
    assert sum(line.amount for line in made.lines) == made.total
    assert {line.amount for line in made.lines} == {0, 1}


@given(
    prices=st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
    digits=st.integers(0, 6),
    lengths=st.lists(st.integers(1, 100_000), min_size=1, max_size=8),
)
def test_lines_add_up_and_none_is_off_by_a_unit(prices, digits, lengths):
    tariff = Tariff(tuple(Price("device", price, model=f"m{i}") for i, price in enumerate(prices)))
    held = [session(0, s, job=1 + i, model=f"m{i % len(prices)}") for i, s in enumerate(lengths)]
    made, found = billed(held, tariff, digits)
    unit = 10 ** (6 - digits)
    exact = {}
    for one in found:
        share = Fraction(one.parts, micro_denominator(one.resource) * unit)
        exact[one.session.job_id] = exact.get(one.session.job_id, 0) + share
    assert all(abs(line.amount - exact[line.job_id]) < 1 for line in made.lines)
    assert abs(made.total - sum(exact.values())) <= Fraction(1, 2)
    assert made.total == sum(line.amount for line in made.lines)


@pytest.mark.parametrize(
    ("amount", "digits", "text"),
    [(0, 2, "0.00"), (5, 2, "0.05"), (123_456, 2, "1,234.56"), (-7, 2, "-0.07"), (1_234, 0, "1,234"), (1, 3, "0.001")],
)
def test_money_is_written_as_people_do(amount, digits, text):
    assert money(amount, digits) == text
