"""Rounds over several device models: each job on the model where it brings most, moves paid for, nobody swings."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.allocate import allocate
from penstock.core.elastic.learned import LearnedSpeed
from penstock.core.elastic.model_curves import DeviceKind, ScaledCurve, curves_on_models
from penstock.core.elastic.model_rates import Rate
from penstock.core.elastic.on_models import allocate_on_models
from penstock.core.elastic.speedup import AmdahlCurve
from penstock.core.explain.why import explain
from penstock.core.model.batching import ElasticRule
from penstock.core.model.cluster import DEFAULT_POOL, Pool, Queue
from penstock.core.model.events import ConfigChanged
from penstock.core.model.matching import ModelRule
from penstock.testing.builders import config, device, node
from penstock.testing.harness import World, cycles, finish, follow, note
from tests.core.elastic.test_elastic_allocate import HOUR, applied, idle, job, nodes, room_of, rounds
from tests.core.elastic.test_elastic_plan import elastic, size
from tests.properties import examples

MINUTE = 60_000


def on(number, fast=1000, slow=1000, **fields):
    """Return a job that is this fast on models `F` and `S`, against the mean."""
    serial = fields.pop("serial", 50)
    curves = {model: ScaledCurve(AmdahlCurve(serial), rate) for model, rate in (("F", fast), ("S", slow)) if rate}
    return job(number, serial=serial, models=curves, **fields)


KINDS = {"n0": "F", "n1": "S", "n2": "F", "n3": "S"}


def models_at(found):
    return {number: {KINDS[node] for node, _ in places} for number, places in found.places.items()}


def test_who_gains_most_gets_the_faster_model():
    jobs = [on(1, 1050, 950, maximum=1), on(2, 1800, 200, maximum=1)]
    assert models_at(allocate_on_models(jobs, nodes(1, 1), KINDS)) == {1: {"S"}, 2: {"F"}}


def test_two_running_jobs_change_places_where_both_together_gain():
    jobs = [on(1, 1050, 950, maximum=1, held=(("n0", 1),)), on(2, 1800, 200, maximum=1, held=(("n1", 1),))]
    assert models_at(allocate_on_models(jobs, nodes(0, 0), KINDS)) == {1: {"S"}, 2: {"F"}}


def test_a_move_must_gain_its_restart():
    short = [
        on(1, 1050, 950, maximum=1, held=(("n0", 1),), rest_ms=60_000),
        on(2, 1100, 900, maximum=1, held=(("n1", 1),), rest_ms=60_000),
    ]
    found = allocate_on_models(short, nodes(0, 0), KINDS)
    assert (found.gain, models_at(found)) == (0, {1: {"F"}, 2: {"S"}})


def test_others_shrink_for_one_that_gains_more_on_their_model():
    jobs = [on(1, 1050, 950, maximum=4, held=(("n0", 4),)), on(2, 1900, 100, maximum=4, held=(("n1", 4),))]
    found = allocate_on_models(jobs, nodes(0, 0), KINDS)
    assert models_at(found) == {1: {"S"}, 2: {"F"}}
    assert found.sizes == {1: 4, 2: 4}


def test_a_job_goes_on_no_model_that_it_may_not_have():
    jobs = [on(1, 0, 1000, maximum=8), on(2, 1000, 0, maximum=8)]
    assert models_at(allocate_on_models(jobs, nodes(4, 4, 4, 4), KINDS)) == {1: {"S"}, 2: {"F"}}


def test_a_job_wider_than_each_model_is_placed_as_without_them():
    jobs = [on(1, 1500, 500, minimum=3, maximum=3)]
    assert allocate_on_models(jobs, nodes(2, 2), KINDS).sizes == {1: 3}


def test_a_job_on_several_models_is_as_fast_as_on_the_slowest_and_goes_on_one():
    jobs = [on(1, 1800, 200, minimum=2, maximum=2, held=(("n0", 1), ("n1", 1)))]
    assert allocate_on_models(jobs, nodes(1, 1), KINDS).places == {1: (("n0", 2),)}


@pytest.mark.parametrize(("fast", "slow", "found"), [(1800, 200, {"F"}), (1050, 950, {"F", "S"})])
def test_a_wide_job_mixes_models_only_where_it_is_nearly_as_fast_on_both(fast, slow, found):
    """Four devices at the pace of the slowest, or two at that of the faster model."""
    assert models_at(allocate_on_models([on(1, fast, slow, maximum=4)], nodes(2, 2), KINDS)) == {1: found}


@st.composite
def two_models(draw):
    jobs, free = draw(rounds(each=(1, 2)))
    found = []
    for one in jobs:
        rates = {model: draw(st.sampled_from((100, 500, 1000, 1500))) for model in ("F", "S")}
        curves = {model: ScaledCurve(one.curve, rate) for model, rate in rates.items()}
        found.append(msgspec.structs.replace(one, models=curves))
    return found, free


@given(two_models())
@examples(200)
def test_sizes_keep_bounds_fit_their_nodes_and_cost_no_more_than_no_change(given_round):
    jobs, free = given_round
    found = allocate_on_models(jobs, free, KINDS)
    used = dict.fromkeys(free, 0)
    for one in jobs:
        count = found.sizes[one.id]
        assert one.minimum <= count <= one.maximum or (count == 0 and (one.may_pause or not one.size))
        for name, replicas in found.places[one.id]:
            used[name] += replicas * one.devices_each
    assert all(used[name] <= count for name, count in room_of(jobs, free).items())
    assert found.gain >= 0


@given(two_models())
@examples(100)
def test_rounds_with_the_same_input_never_swing_back(given_round):
    jobs, free = given_round
    room = room_of(jobs, free)
    before, states = jobs, []
    for _ in range(6):
        states.append([one.held for one in before])
        after = applied(before, allocate_on_models(before, idle(before, room), KINDS))
        if [one.held for one in after] == states[-1]:
            return
        assert [one.held for one in after] not in states
        before = after


@given(rounds(each=(1, 2)))
def test_with_one_model_nothing_differs(given_round):
    jobs, free = given_round
    alike = [msgspec.structs.replace(one, models={"F": ScaledCurve(one.curve, 1000)}) for one in jobs]
    wide = any(one.minimum * one.devices_each > sum(room_of(jobs, free).values()) for one in jobs)
    found = allocate_on_models(alike, free, dict.fromkeys(KINDS, "F"))
    assert wide or found == allocate(jobs, free)


@given(two_models(), st.randoms(use_true_random=False))
def test_order_of_jobs_and_nodes_never_matters(given_round, rnd):
    jobs, free = given_round
    shuffled = dict(rnd.sample(sorted(free.items()), len(free)))
    one = allocate_on_models(jobs, free, KINDS)
    two = allocate_on_models(rnd.sample(jobs, len(jobs)), shuffled, KINDS)
    assert (one.gain, one.places, one.sizes) == (two.gain, two.places, two.sizes)


# What is known of a job on each model.

KNOWN = {"F": DeviceKind(("F",), 4), "S": DeviceKind(("S",), 4)}


def learned(alone=0, seen=0):
    return LearnedSpeed(AmdahlCurve(), None, seen, alone)


def known(rates, own=None, *, homes=(), starts=True, kinds=None):
    def told(model):
        return learned((own or {}).get(model, 0), 1)

    return curves_on_models(kinds or KNOWN, rates, {}, learned(), told, homes=homes, starts=starts)


def rates_for(*args, **fields):
    return {model: curve.rate_milli for model, curve in known(*args, **fields).models.items()}


FOUR_TIMES = {"F": Rate(1_000_000, "similar", 1), "S": Rate(250_000, "similar", 1)}


@pytest.mark.parametrize(
    ("rates", "own", "found"),
    [
        (FOUR_TIMES, {}, {"F": 1600, "S": 400}),
        (FOUR_TIMES, {"S": 300}, {"F": 1600, "S": 400}),
        (FOUR_TIMES, {"F": 600, "S": 300}, {"F": 1333, "S": 666}),
        ({"S": Rate(1_000_000, "own", 1)}, {}, {"F": 1000, "S": 1000}),
        ({}, {}, {"F": 1000, "S": 1000}),
    ],
)
def test_rates_are_against_the_mean_and_own_reports_come_first(rates, own, found):
    assert rates_for(rates, own) == found


def test_a_running_job_stays_where_nothing_is_known_of_other_models():
    assert not known({"F": Rate(1_000_000, "similar", 1)}, homes=("S",), starts=False).may_move
    assert known(FOUR_TIMES, homes=("S",), starts=False).may_move


def test_a_running_job_counts_a_model_of_which_nothing_is_known_like_its_worst():
    kinds = {**KNOWN, "X": DeviceKind(("X",), 8)}
    assert rates_for(FOUR_TIMES, homes=("S",), starts=False, kinds=kinds) == {"F": 2285, "S": 571, "X": 571}
    assert rates_for(FOUR_TIMES, kinds=kinds) == {"F": 1230, "S": 307, "X": 1230}


def test_nodes_with_several_models_are_as_fast_as_the_slowest():
    kinds = {"F": DeviceKind(("F",), 4), "F + S": DeviceKind(("F", "S"), 4)}
    assert rates_for(FOUR_TIMES, kinds=kinds) == {"F": 1600, "F + S": 400}


# In a cycle.


def mixed_pool(each=2, rule=None, **fields):
    pool = Pool(DEFAULT_POOL, elastic=ElasticRule(rebalance=True), models=rule or ModelRule(match=True, move=True))
    specs = [node(m.lower(), tuple(device(i, model=m) for i in range(each))) for m in ("K80", "V100")]
    return World(*specs, pools=(pool,), **fields)


def taught(w, **jobs):
    """Let jobs of one replica run on both models one after the other: name = (rate on K80, rate on V100)."""
    for name, told in jobs.items():
        for model, rate in zip(("K80", "V100"), told, strict=True):
            one = w.submit(gang=elastic(1, 1, models=(model,)), name=name)
            w.run(one)
            note(w, one, samples_per_s_milli=rate)
            finish(w, one)
    return w


def where(w, job_id):
    return {replica.place.node for replica in w.attempt(job_id).replicas}


def displaced(**fields):
    """An elastic job on both K80 that is ten times as fast on the V100, which have just become free."""
    w = taught(mixed_pool(**fields), picky=(1_000, 10_000))
    other = w.submit(2, models=("V100",), preemptible=False)
    w.run(other)
    picky = w.submit(gang=elastic(1, 2), name="picky")
    w.run(picky)
    assert where(w, picky) == {"k80"}
    finish(w, other)
    w.now += HOUR
    return w, picky


def test_a_round_moves_a_job_to_the_model_where_it_brings_most_and_says_so():
    w, picky = displaced()
    planned = w.cycle()
    assert [(p.victim, p.beneficiary, p.rule) for p in planned.preemptions] == [(picky, picky, "rebalance")]
    assert "it goes on with 2 replicas after 2, on v100 (V100 after K80)" in explain(w.state, w.job(picky), w.now).text
    follow(w)
    w.cycle()
    assert (where(w, picky), size(w, picky)) == ({"v100"}, 2)
    follow(w)
    assert cycles(w, 30, MINUTE) == [], "it is where it belongs"


@pytest.mark.parametrize(
    "rule", [ModelRule(), ModelRule(match=True), ModelRule(match=True, move=True, moves_per_hour=0)]
)
def test_no_round_moves_a_job_where_the_pool_does_not_say_so(rule):
    w, _ = displaced(rule=rule)
    assert cycles(w, 5, MINUTE) == []


def test_a_job_that_was_restarted_as_often_as_it_may_move_stays():
    w, picky = displaced(rule=ModelRule(match=True, move=True, moves_per_hour=2))
    told = w.job(picky)
    w.state._put(msgspec.structs.replace(told, changes_ms=(w.now - 2 * MINUTE, w.now - MINUTE)))
    assert cycles(w, 5, MINUTE) == []


def test_a_maximum_by_model_keeps_a_round_from_it():
    w, _ = displaced()
    bound = Queue("default", max=(("devices:V100", 1000),))
    w.emit(ConfigChanged(config(pools=w.state.config.pools, queues=(bound,)), "operator"))
    assert cycles(w, 5, MINUTE) == []


def test_a_job_that_starts_does_not_wait_for_a_model_that_a_maximum_keeps_from_it():
    w = taught(mixed_pool(), picky=(1_000, 10_000))
    bound = Queue("default", max=(("devices:V100", 0),))
    w.emit(ConfigChanged(config(pools=w.state.config.pools, queues=(bound,)), "operator"))
    picky = w.submit(gang=elastic(1, 2), name="picky")
    w.cycle()
    assert where(w, picky) == {"k80"}


def test_jobs_that_differ_in_what_they_gain_share_the_models_and_settle():
    w = taught(mixed_pool(), picky=(1_000, 10_000), easy=(1_000, 1_100))
    easy, picky = (w.submit(gang=elastic(1, 2), name=name) for name in ("easy", "picky"))
    w.run(easy, picky)
    asked = cycles(w, 120, MINUTE)
    assert (where(w, easy), where(w, picky)) == ({"k80"}, {"v100"})
    assert len(asked) <= 4
