"""What sessions cost."""

from fractions import Fraction

import pytest

from penstock.core.ledger.pricing import GIB, MoneyCharge, charges, micro_denominator
from penstock.core.ledger.sessions import Amounts, Loss, UsageInterval
from penstock.core.model.prices import HOUR_MS, Factor, Price, Tariff, Terms, Window

HOUR, SECOND = HOUR_MS, 1_000


def session(start_s=0, end_s=60, *, job=1, rank=0, devices=1, model="A100", cpus=0, gib=0, **fields):
    models = ((model, 1000 * devices),) if devices else ()
    end_ms = 0 if end_s is None else end_s * SECOND
    return UsageInterval(
        job,
        1,
        rank,
        "t",
        "ann",
        "q",
        "p",
        "n",
        Amounts(models, 1000 * cpus, gib * GIB),
        start_s * SECOND,
        end_ms,
        **fields,
    )


def micros(found):
    """Return the sum in millionths of the currency, exactly."""
    return sum((Fraction(charge.parts, micro_denominator(charge.resource)) for charge in found), Fraction(0))


def cost(held, tariff, from_s=0, until_s=10**6, months=(0,), **more):
    return micros(charges(held, tariff, [m * SECOND for m in months], from_s * SECOND, until_s * SECOND, **more))


ONE = (Price("device", 3_600_000_000),)
"""One unit of the currency a second."""
UNIT = 1_000_000


def test_a_device_costs_its_price_for_its_time():
    assert cost([session(0, 100, devices=2)], Tariff(ONE)) == 200 * UNIT


def test_cpus_and_memory_cost_theirs():
    tariff = Tariff((Price("cpu", 3_600_000), Price("memory", 7_200_000)))
    assert cost([session(0, 100, devices=0, cpus=3, gib=4)], tariff) == 100 * (3 * 1_000 + 4 * 2_000)


def test_a_fraction_counts_as_its_part():
    held = [session(0, 100)]
    part = [UsageInterval(1, 1, 0, "t", "a", "q", "p", "n", Amounts((("A100", 250),)), 0, 100_000)]
    assert cost(part, Tariff(ONE)) * 4 == cost(held, Tariff(ONE))


@pytest.mark.parametrize(("length_s", "billed_s"), [(1, 60), (59, 60), (60, 60), (61, 61)])
def test_a_session_that_has_ended_counts_for_the_minimum(length_s, billed_s):
    assert cost([session(0, length_s)], Tariff(ONE)) == billed_s * UNIT


def test_one_that_lasts_counts_up_to_now_and_for_no_minimum():
    assert cost([session(0, None)], Tariff(ONE), until_s=10) == 10 * UNIT


def test_parts_of_one_hold_have_one_minimum():
    held = [
        session(0, 10, devices=0, cpus=2, ended="suspended"),
        session(10, 20, devices=0, cpus=0, ended="resumed"),
        session(20, 30, devices=0, cpus=2, ended="released"),
    ]
    assert cost(held, Tariff((Price("cpu", 3_600_000_000),))) == 2 * (10 + 10 + 30) * UNIT


def test_a_new_price_changes_nothing_before_it():
    tariff = Tariff((*ONE, Price("device", 7_200_000_000, 40 * SECOND)))
    assert cost([session(0, 100)], tariff) == (40 + 2 * 60) * UNIT


def test_a_price_for_the_model_comes_before_a_later_one_for_any():
    tariff = Tariff((Price("device", 7_200_000_000, model="A100"), Price("device", 3_600_000_000, 50 * SECOND)))
    assert cost([session(0, 100)], tariff) == 200 * UNIT
    assert cost([session(0, 100, model="T4")], tariff) == 50 * UNIT


def test_each_tier_counts_for_the_hours_inside_it():
    tariff = Tariff(ONE, tiers=((1, 900), (2, 500)))
    assert cost([session(0, 3 * 3600)], tariff) == 3600 * UNIT * (1 + Fraction(9, 10) + Fraction(1, 2))


def test_sessions_side_by_side_use_the_tier_up_together():
    tariff = Tariff(ONE, tiers=((1, 500),))
    held = [session(0, 3600, job=1), session(0, 3600, job=2)]
    assert cost(held, tariff) == 2 * (1800 + 1800 * Fraction(1, 2)) * UNIT


def test_tiers_begin_anew_each_month():
    tariff = Tariff(ONE, tiers=((1, 500),))
    assert cost([session(0, 4 * 3600)], tariff, months=(0, 2 * 3600)) == 2 * 3600 * (1 + Fraction(1, 2)) * UNIT


def test_the_other_reading_gives_all_hours_the_rate_of_the_last():
    tariff = Tariff(ONE, tiers=((1, 900), (2, 500)), tier_reading="whole")
    assert cost([session(0, 3 * 3600)], tariff) == 3 * 3600 * UNIT * Fraction(1, 2)
    assert cost([session(0, 1800)], tariff) == 1800 * UNIT


def test_a_month_is_billed_for_what_lies_in_it_and_tiers_count_from_its_begin():
    tariff = Tariff(ONE, tiers=((1, 500),))
    held = [session(0, 2 * 3600)]
    first, second = cost(held, tariff, 0, 3600), cost(held, tariff, 3600, 7200)
    assert (first, second) == (3600 * UNIT, 1800 * UNIT)


def test_the_first_factor_that_matches_counts():
    tariff = Tariff(ONE, factors=(Factor(1500, priority_min=900), Factor(600, preemptible=True)))
    costs = [
        cost([session(0, 100, priority=p, preemptible=q)], tariff) for p, q in [(900, True), (500, True), (500, False)]
    ]
    assert costs == [150 * UNIT, 60 * UNIT, 100 * UNIT]


def test_months_have_to_reach_back():
    with pytest.raises(ValueError, match="months"):
        list(charges([session(0, 10)], Tariff(ONE), [5], 0, 10_000))


def test_charges_tell_how_they_came_about():
    (found,) = charges([session(0, 100)], Tariff(ONE), [0], 0, 10**6)
    assert isinstance(found, MoneyCharge)
    assert (found.resource, found.model, found.quantity, found.start_ms, found.end_ms) == (
        "device",
        "A100",
        1000,
        0,
        100_000,
    )


def test_charges_grow_with_sessions_not_with_what_runs_beside_them():
    held = [session(i, 500 + i, job=1 + i) for i in range(300)]
    tariff = Tariff((*ONE, Price("device", 5, 900_000_000, "T4")), tiers=((1, 900), (2, 800)))
    assert len(list(charges(held, tariff, [0], 0, 10**9))) <= 3 * len(held)


def test_what_comes_after_the_end_of_a_bill_changes_nothing_in_it():
    tariff = Tariff(ONE, tiers=((1, 500),), tier_reading="whole", minimum_ms=7_200_000)
    for end_s in (None, 1800, 1801, 36_000):
        assert cost([session(0, end_s)], tariff, until_s=1800) == 1800 * UNIT


NIGHT = Window(22 * 60, 6 * 60)
DAY_S = 86_400


def test_a_factor_with_hours_holds_at_those_hours_of_the_local_day():
    tariff = Tariff(ONE, factors=(Factor(500, windows=(NIGHT,)),))
    assert cost([session(0, DAY_S)], tariff) == (16 * 3600 + 8 * 1800) * UNIT
    assert cost([session(5 * 3600, 6 * 3600)], tariff, zone=((0, 3_600_000),)) == 3600 * UNIT


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins():
    thursday = Tariff(ONE, factors=(Factor(500, windows=(Window(22 * 60, 6 * 60, (3,)),)),))
    assert cost([session(0, 2 * DAY_S)], thursday) == (2 * 24 * 3600 - 8 * 1800) * UNIT


def test_an_hour_that_the_clock_repeats_counts_twice():
    tariff = Tariff(ONE, factors=(Factor(0, windows=(Window(120, 180),)),))
    zone = ((0, 7_200_000), (3_600_000, 3_600_000))  # at 3:00 it is 2:00 again
    assert cost([session(0, 3 * 3600)], tariff, zone=zone) == 3600 * UNIT


def test_later_terms_change_factors_at_once_and_tiers_with_the_next_month():
    later = Terms(1800 * SECOND, tiers=((1, 100),), factors=(Factor(2000),))
    tariff = Tariff(ONE, tiers=((1, 500),), later=(later,))
    held = [session(0, 4 * 3600)]
    hours = [cost(held, tariff, h * 3600, h * 3600 + 3600, months=(0, 2 * 3600)) / UNIT for h in range(4)]
    assert hours == [1800 + 3600, 3600 * 2 // 2, 3600 * 2, 3600 * 2 // 10]


def test_a_later_minimum_is_for_what_begins_then():
    tariff = Tariff(ONE, minimum_ms=0, later=(Terms(100 * SECOND, minimum_ms=60_000),))
    assert cost([session(95, 105, job=1), session(100, 105, job=2)], tariff) == (10 + 60) * UNIT


def test_what_a_failed_node_took_is_given_back():
    losses = {(1, 1): Loss(60 * SECOND, 130 * SECOND)}
    assert cost([session(0, 100)], Tariff(ONE), losses=losses) == 60 * UNIT


def test_a_minimum_is_not_charged_for_what_was_lost_as_a_whole():
    losses = {(1, 1): Loss(0, 20 * SECOND)}
    assert cost([session(0, 10)], Tariff(ONE), losses=losses) == 0


def test_a_loss_of_last_month_is_given_back_in_the_month_in_which_it_is_known():
    losses, held = {(1, 1): Loss(50 * SECOND, 130 * SECOND)}, [session(0, 120)]
    months = [cost(held, Tariff(ONE), *span, months=(0, 100), losses=losses) for span in ((0, 100), (100, 200))]
    assert months == [100 * UNIT, (20 - 50 - 20) * UNIT]
