"""The choice among candidate plans: the Pareto front, the weights, and the scores."""

import json
from itertools import count

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from penstock.core.cycle.objectives import (
    PlanFacts,
    choose_plan,
    cost_score,
    energy_score,
    fairness_score,
    response_time_score,
    score_plan,
    utilisation_score,
)
from penstock.core.model.objectives import Candidate, Scores, Weights
from tests.properties import examples

EVEN = Weights(200, 200, 200, 200, 200)


def plans(*scores):
    return [Candidate(i, Scores(*each)) for i, each in enumerate(scores)]


def test_the_best_weighted_plan_of_the_front_is_chosen():
    front = choose_plan(
        plans((900, 100, 500, 500, 500), (500, 900, 500, 500, 500), (400, 900, 500, 500, 500)), Weights()
    )
    assert [p.weighted for p in front.points] == [520_000, 600_000, 570_000]
    assert front.chosen == 1
    assert [p.index for p in front.kept] == [0, 1]
    assert front.dominated_by == {2: 1}


def test_equal_sums_fall_to_the_lower_index_and_equal_plans_do_not_dominate():
    same = (500, 500, 500, 500, 500)
    front = choose_plan(plans((400, 600, 500, 500, 500), same, same)[::-1], EVEN)
    assert front.chosen == 0
    assert front.dominated_by == {}


def test_a_plan_that_is_beaten_only_where_the_weight_is_zero_is_dropped():
    front = choose_plan(plans((500, 0, 0, 0, 0), (500, 0, 0, 0, 1)), Weights(1000, 0, 0, 0, 0))
    assert front.chosen == 1
    assert front.dominated_by == {0: 1}


def test_a_dropped_plan_names_the_best_kept_one_that_dominates_it():
    front = choose_plan(plans((1, 1, 1, 1, 1), (2, 1, 1, 1, 1), (3, 1, 1, 1, 1), (1, 9, 1, 1, 1)), Weights())
    assert front.dominated_by == {0: 3, 1: 2}


def test_a_front_is_ready_for_json():
    front = choose_plan(plans((1, 0, 0, 0, 0), (2, 0, 0, 0, 0)), Weights())
    scores = {"response_time": 0, "fairness": 0, "energy": 0, "cost": 0}
    assert json.loads(msgspec.json.encode(front)) == {
        "points": [
            {"index": 0, "scores": {"utilisation": 1, **scores}, "weighted": 300, "dominated_by": 1},
            {"index": 1, "scores": {"utilisation": 2, **scores}, "weighted": 600, "dominated_by": None},
        ],
        "chosen": 1,
        "weights": {"utilisation": 300, "response_time": 250, "fairness": 200, "energy": 150, "cost": 100},
        "energy": "",
    }


def test_no_plan_and_two_of_one_index_are_faults():
    with pytest.raises(ValueError, match="no candidate plan; expected at least one"):
        choose_plan([], Weights())
    with pytest.raises(ValueError, match=r"two candidate plans have one index: \[0, 0\]"):
        choose_plan(plans((0, 0, 0, 0, 0)) * 2, Weights())


few = st.integers(0, 4).map(lambda n: 250 * n)
scores = st.builds(Scores, few, few, few, few, few)
candidates = st.lists(scores, min_size=1, max_size=12).map(lambda each: [Candidate(*c) for c in zip(count(), each)])


@st.composite
def all_weights(draw):
    cuts = sorted(draw(st.lists(st.integers(0, 1000), min_size=4, max_size=4)))
    return Weights(*(b - a for a, b in zip([0, *cuts], [*cuts, 1000], strict=True)))


def better(a, b):
    """Say domination once more."""
    pairs = list(zip(astuple(a), astuple(b), strict=True))
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@examples(100)
@given(candidates, all_weights())
def test_the_chosen_plan_is_never_dominated_and_the_best_of_all(given, weights):
    front = choose_plan(given, weights)
    chosen = given[front.chosen].scores
    assert not any(better(c.scores, chosen) for c in given)
    assert chosen.weighted(weights) == max(c.scores.weighted(weights) for c in given)


@examples(100)
@given(candidates, all_weights())
def test_every_dropped_point_is_dominated_by_a_kept_one_and_no_kept_one_is(given, weights):
    front = choose_plan(given, weights)
    kept = {p.index for p in front.kept}
    assert kept.isdisjoint(front.dominated_by)
    assert kept.union(front.dominated_by) == set(range(len(given)))
    for index, by in front.dominated_by.items():
        assert by in kept
        assert better(given[by].scores, given[index].scores)
    assert not any(better(c.scores, given[i].scores) for i in kept for c in given)


@examples(100)
@given(candidates, all_weights(), scores)
def test_a_dominated_plan_more_never_changes_the_choice(given, weights, other):
    assume(any(better(c.scores, other) for c in given))
    before = choose_plan(given, weights)
    for index in (-1, len(given)):
        after = choose_plan([*given, Candidate(index, other)], weights)
        assert after.chosen == before.chosen
        assert after.kept == before.kept


@examples(100)
@given(candidates, all_weights(), st.randoms())
def test_the_order_of_plans_never_matters(given, weights, rnd):
    assert choose_plan(rnd.sample(given, len(given)), weights) == choose_plan(given, weights)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((300, 250, 200, 150, 101), "sum to 300 + 250 + 200 + 150 + 101 = 1001; expected 1000: take away 1"),
        ((0, 0, 0, 0, 0), "= 0; expected 1000: add 1000"),
        ((1100, 0, 0, 0, -100), "the weight of cost is -100; expected 0 to 1000"),
    ],
)
def test_weights_that_do_not_sum_to_1000_say_so(values, message):
    with pytest.raises(ValueError, match="the weight") as caught:
        Weights(*values)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [-1, 1001])
def test_scores_out_of_range_are_faults(value):
    with pytest.raises(ValueError, match=f"the score of energy is {value}; expected 0 to 1000"):
        Scores(0, 0, 0, value, 0)


def test_scores_follow_their_formulas():
    assert [utilisation_score(used, devices_total=8) for used in (0, 3, 8)] == [0, 375, 1000]
    assert [response_time_score(ms, left_wait_ms=300) for ms in (0, 100, 900)] == [0, 250, 750]
    assert [fairness_score(low, share_max_milli=600) for low in (0, 200, 600)] == [0, 333, 1000]
    assert [energy_score(mw, powered_milli=2_000, device_power_max_mw=700) for mw in (0, 700, 1500)] == [1000, 500, 0]
    assert [cost_score(p, devices_used=4, device_price_max_per_hour=250) for p in (0, 10, 1000)] == [1000, 990, 0]


def test_where_there_is_nothing_to_lose_the_score_is_full():
    assert utilisation_score(0, devices_total=0) == 1000
    assert response_time_score(0, left_wait_ms=0) == 1000
    assert fairness_score(0, share_max_milli=0) == 1000
    assert energy_score(0, powered_milli=0, device_power_max_mw=700) == 1000
    assert cost_score(5, devices_used=2, device_price_max_per_hour=0) == 1000


@pytest.mark.parametrize(("used", "total"), [(-1, 8), (1, -8)])
def test_a_negative_sum_is_a_fault(used, total):
    with pytest.raises(ValueError, match=f"{used} of {total}; expected 0 or more"):
        utilisation_score(used, devices_total=total)


facts = PlanFacts(
    devices_used=6,
    devices_total=8,
    started_wait_ms=3_000,
    left_wait_ms=1_000,
    share_min_milli=100,
    share_max_milli=250,
    power_mw=2_100,
    powered_milli=6_000,
    device_power_max_mw=700,
    price_per_hour=1_200,
    device_price_max_per_hour=1_000,
)


def test_a_plan_is_scored_from_its_facts():
    assert score_plan(facts) == Scores(utilisation=750, response_time=750, fairness=400, energy=500, cost=800)


amounts = st.integers(0, 10**9)


@examples(100)
@given(st.builds(PlanFacts, *[amounts] * len(astuple(facts))))
def test_any_facts_give_scores_within_range(each):
    assert all(0 <= score <= 1000 for score in astuple(score_plan(each)))
