"""What has begun of prices and terms cannot change any more; what lies ahead can."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.ledger.past import past_problems
from penstock.core.ledger.pricing import charges
from penstock.core.lifecycle.requests import config_problems
from penstock.core.model.prices import HOUR_MS, Billing, Factor, Price, Tariff, Terms
from penstock.testing.harness import World
from tests.core.ledger.test_pricing import session
from tests.properties import examples

NOW = 1_000_000
BEGUN, AHEAD = Price("device", 5, 10), Price("device", 7, NOW + 1)
TERMS, NEXT = Terms(NOW - 5, minimum_ms=1), Terms(NOW + 5, minimum_ms=2)
BEFORE = Billing(Tariff((BEGUN, AHEAD), tiers=((1, 900),), factors=(Factor(500),), later=(TERMS, NEXT)))


def tariff(**fields):
    return replace(BEFORE, tariff=replace(BEFORE.tariff, **fields))


def problems(after, before=BEFORE, now_ms=NOW):
    return [(one.code, one.field) for one in past_problems(before, after, now_ms)]


PRICE, TERM = ("past_price", "billing.prices"), ("past_terms", "billing")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (tariff(prices=(replace(BEGUN, micro_per_hour=6), AHEAD)), [PRICE, PRICE]),
        (tariff(prices=(replace(BEGUN, from_ms=11), AHEAD)), [PRICE, PRICE]),
        (tariff(prices=(AHEAD,)), [PRICE]),
        (tariff(prices=()), [PRICE]),
        (tariff(prices=(BEGUN, AHEAD, Price("cpu", 1))), [PRICE]),
        (tariff(prices=(BEGUN, AHEAD, Price("cpu", 1, NOW))), [PRICE]),
        (tariff(tiers=((1, 901),)), [TERM]),
        (tariff(tiers=()), [TERM]),
        (tariff(tier_reading="whole"), [TERM]),
        (tariff(factors=()), [TERM]),
        (tariff(minimum_ms=0), [TERM]),
        (tariff(later=()), [("past_terms", "billing.later")]),
        (tariff(later=(replace(TERMS, minimum_ms=3), NEXT)), [("past_terms", "billing.later")]),
        (tariff(later=(TERMS, Terms(NOW, minimum_ms=2))), [("past_terms", "billing.later")]),
        (replace(BEFORE, currency="CNY"), [("past_unit", "billing.currency")]),
        (replace(BEFORE, digits=3), [("past_unit", "billing.digits")]),
        (replace(BEFORE, time_zone="Europe/Berlin"), [("past_unit", "billing.time_zone")]),
        (replace(BEFORE, refund_lost=False), [("past_unit", "billing.refund_lost")]),
    ],
)
def test_what_has_begun_cannot_change(after, expected):
    found = problems(after)
    assert [code for code, _ in found] == [code for code, _ in expected]
    assert {field for _, field in found} <= {field for _, field in expected} | {"billing"}


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        tariff(prices=(AHEAD, BEGUN)),
        tariff(prices=(BEGUN,)),
        tariff(prices=(BEGUN, replace(AHEAD, micro_per_hour=8), Price("cpu", 1, NOW + 1))),
        tariff(later=(TERMS,)),
        tariff(later=(TERMS, replace(NEXT, minimum_ms=9), Terms(NOW + 9))),
        replace(BEFORE, tax_milli=190, at_zero="suspend", issue="manual"),
    ],
)
def test_what_lies_ahead_can_change(after):
    assert problems(after) == []


def test_the_first_prices_may_begin_at_any_time_with_any_terms():
    unpriced = Billing(Tariff((AHEAD,)))
    assert problems(replace(BEFORE, currency="CNY"), before=unpriced) == []


def test_a_price_begins_with_its_very_millisecond():
    after = replace(BEFORE, tariff=replace(BEFORE.tariff, prices=(BEGUN,)))
    assert problems(after, now_ms=AHEAD.from_ms - 1) == []
    assert problems(after, now_ms=AHEAD.from_ms) == [PRICE]


def test_a_refusal_says_what_has_begun_and_what_to_do():
    (found,) = past_problems(BEFORE, tariff(prices=(AHEAD,)), NOW)
    assert "has begun" in found.message
    assert "from a later time on" in found.hint
    (found,) = past_problems(BEFORE, tariff(minimum_ms=0, tiers=()), NOW)
    assert "minimum" in found.message
    assert "tiers" in found.message


def test_a_new_configuration_is_refused_by_it():
    w = World(billing=BEFORE)
    after = replace(w.state.config, billing=tariff(prices=(AHEAD,)))
    assert [one.code for one in config_problems(w.state, after, NOW)] == ["past_price"]


hours = st.integers(0, 12).map(lambda n: n * HOUR_MS)
prices = st.builds(Price, st.sampled_from(["device", "cpu"]), st.integers(0, 3), hours)
terms = st.builds(
    Terms, hours.filter(bool), st.sampled_from([(), ((2, 500),)]), st.sampled_from(["marginal", "whole"]),
    st.sampled_from([(), (Factor(500),)]), st.sampled_from([0, 5 * HOUR_MS]),
)  # fmt: skip


@st.composite
def tariffs(draw):
    found = {(p.resource, p.from_ms): p for p in draw(st.lists(prices, max_size=3))}
    later = {one.from_ms: one for one in draw(st.lists(terms, max_size=2))}
    base = draw(terms)
    return Tariff(
        tuple(found.values()), base.tiers, base.tier_reading, base.factors, base.minimum_ms,
        tuple(later[at] for at in sorted(later)),
    )  # fmt: skip


def held(start_h, end_h, job):
    return session(3600 * start_h, None if end_h is None else 3600 * end_h, job=job, cpus=job)


HELD = [held(0, None, 1), held(0, 1, 2), held(3, 9, 3)]


@examples(150)
@given(before=tariffs(), changes=st.data(), now=hours)
def test_what_is_not_refused_leaves_every_bill_up_to_now_as_it_was(before, changes, now):
    other = changes.draw(tariffs())
    fields = changes.draw(st.sets(st.sampled_from(Tariff.__struct_fields__), min_size=1, max_size=2))
    after = replace(before, **{name: getattr(other, name) for name in fields})
    begun = any(p.from_ms <= now for p in before.prices)
    if begun and not past_problems(Billing(before), Billing(after), now):
        was, is_now = (list(charges(HELD, one, [0], 0, now)) for one in (before, after))
        assert was == is_now
