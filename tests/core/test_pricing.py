"""What sessions cost, against a biller that knows nothing of it and goes second by second."""

import random
from fractions import Fraction

import numpy as np
import pytest

from penstock.core.ledger.pricing import GIB, Charge, charges, micro_denominator
from penstock.core.ledger.sessions import Amounts, Session
from penstock.core.model.prices import HOUR_MS, Factor, Price, Tariff

HOUR, SECOND = HOUR_MS, 1_000


def session(start_s=0, end_s=60, *, job=1, rank=0, devices=1, model="A100", cpus=0, gib=0, **fields):
    models = ((model, 1000 * devices),) if devices else ()
    end_ms = 0 if end_s is None else end_s * SECOND
    return Session(
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


def cost(held, tariff, from_s=0, until_s=10**6, months=(0,)):
    return micros(charges(held, tariff, [m * SECOND for m in months], from_s * SECOND, until_s * SECOND))


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
    part = [Session(1, 1, 0, "t", "a", "q", "p", "n", Amounts((("A100", 250),)), 0, 100_000)]
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


# Against brute force.

MODELS = ("A100", "T4", "H100")


def history(rng):
    """Return sessions, a tariff and months at whole seconds, over some hours."""
    end_s = rng.choice((600, 7_200, 20_000))
    held = []
    for job in range(rng.randint(1, 7)):
        at_s = rng.randrange(end_s)
        for part in range(rng.choice((1, 1, 1, 3))):
            last_s = at_s + rng.choice((0, 1, 30, 59, 60, 61, rng.randrange(1, end_s)))
            lasts = rng.random() < 0.15
            held.append(
                session(
                    at_s,
                    None if lasts else last_s,
                    job=job,
                    devices=rng.choice((0, 1, 1, 3, 7)) if part != 1 else 0,
                    model=rng.choice(MODELS),
                    cpus=rng.choice((0, 1, 5)),
                    gib=rng.choice((0, 2)),
                    priority=rng.choice((100, 500, 1000)),
                    preemptible=rng.random() < 0.5,
                )
            )
            at_s = last_s
            if lasts:
                break
    prices = [
        Price(
            rng.choice(("device", "device", "cpu", "memory")),
            rng.choice((0, 1, 999_999, 12_345_678)),
            rng.choice((0, 0, rng.randrange(end_s))) * SECOND,
            rng.choice(("", *MODELS)),
        )
        for _ in range(rng.randint(1, 6))
    ]
    prices = [p if p.resource == "device" else Price(p.resource, p.micro_per_hour, p.from_ms) for p in prices]
    tiers = tuple(zip(sorted(rng.sample(range(1, 12), rng.randint(0, 3))), (900, 800, 700), strict=False))
    tariff = Tariff(
        tuple(prices),
        tiers,
        rng.choice(("marginal", "marginal", "whole")),
        rng.choice(((), (Factor(1250, 900), Factor(700, preemptible=True)))),
        rng.choice((0, 60_000, 90_000)),
    )
    months = [0, *sorted(rng.sample(range(1, 2 * end_s), rng.randint(0, 2)))]
    until_s = rng.choice((end_s, 2 * end_s, 10))
    from_s = rng.choice((0, *(m for m in months if m < until_s)))
    return held, tariff, months, from_s, until_s


def brute_force(held, tariff, months, from_s, until_s):
    """Go second by second; within the second in which a tier is reached, millisecond by millisecond."""
    last_s = max([until_s, *(s.end_ms // SECOND for s in held)]) + tariff.minimum_ms // SECOND + 1
    on = np.zeros((len(held), last_s), dtype=bool)
    holds = {}
    for at, one in enumerate(held):
        holds.setdefault(one.job_id, []).append(at)
    for parts in holds.values():
        for at in parts:
            one = held[at]
            end_s = one.end_ms // SECOND if one.end_ms else until_s
            if at == parts[-1] and one.end_ms:
                end_s = max(end_s, (held[parts[0]].start_ms + tariff.minimum_ms) // SECOND)
            on[at, one.start_ms // SECOND : end_s] = True
    on[:, until_s:] = False
    milli = np.array([one.amounts.device_milli for one in held])
    rate = milli @ on
    month_of = np.searchsorted(months, np.arange(last_s), side="right") - 1
    total, whole = Fraction(0), {}
    spent = np.zeros(last_s, dtype=np.int64)
    for month in range(len(months)):
        of = month_of == month
        used = np.cumsum(rate[of]) * SECOND
        spent[of] = used - rate[of] * SECOND
        whole[month] = int(used[-1]) if len(used) else 0

    def tier(used):
        return [1000, *(milli for hours, milli in tariff.tiers if used >= hours * HOUR * 1000)][-1]

    for second in range(from_s, min(until_s, last_s)):
        running = np.flatnonzero(on[:, second])
        if not len(running):
            continue
        if tariff.tier_reading == "whole":
            tiers = {tier(whole[month_of[second]]): 1000}
        else:
            first, last = (tier(int(spent[second]) + k * int(rate[second])) for k in (0, 999))
            tiers = {first: 1000}
            if first != last:
                tiers = {}
                for k in range(1000):
                    at = tier(int(spent[second]) + k * int(rate[second]))
                    tiers[at] = tiers.get(at, 0) + 1
        for at in running:
            one = held[at]
            factor = [1000, *(f.milli for f in reversed(tariff.factors) if fits(f, one))][-1]
            for resource, model, amount in [
                *(("device", m, Fraction(q, 1000)) for m, q in one.amounts.models),
                ("cpu", "", Fraction(one.amounts.cpu_milli, 1000)),
                ("memory", "", Fraction(one.amounts.memory_bytes, GIB)),
            ]:
                price = price_of(tariff.prices, resource, model, second * SECOND)
                for tier_milli, ms in tiers.items():
                    rated = tier_milli if resource == "device" else 1000
                    total += amount * Fraction(price * ms, HOUR) * Fraction(rated * factor, 1_000_000)
    return total


def fits(factor, one):
    return one.priority >= factor.priority_min and factor.preemptible in (None, one.preemptible)


def price_of(prices, resource, model, at_ms):
    for wanted in (model, ""):
        begun = [p for p in prices if p.resource == resource and p.model == wanted and p.from_ms <= at_ms]
        if begun:
            latest = max(p.from_ms for p in begun)
            return next(p.micro_per_hour for p in begun if p.from_ms == latest)
    return 0


@pytest.mark.parametrize("block", range(4))
def test_random_histories_cost_what_they_cost_second_by_second(block):
    for seed in range(block * 10, block * 10 + 10):
        given = history(random.Random(seed))
        held, tariff, months, from_s, until_s = given
        assert cost(held, tariff, from_s, until_s, months) == brute_force(*given), seed


def test_charges_tell_how_they_came_about():
    (found,) = charges([session(0, 100)], Tariff(ONE), [0], 0, 10**6)
    assert isinstance(found, Charge)
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
