"""Exchanges between device models: comparative advantage, chains, and the optimum of the linear program."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.exchange import Candidate, Exchange
from tests.properties import examples

NAMES = ("a100", "k80", "p100", "v100")


def settled(jobs, free=None):
    """Return the models of the jobs once no chain gains any more; `free` is the room on each model."""
    room = dict(free or {})
    exchange = Exchange(jobs, lambda _, model: room.get(model, 0) > 0)
    while moves := exchange.next():
        ends, begins = moves[-1][1], exchange.models[moves[0].id]
        if ends != begins:
            room[ends], room[begins] = room[ends] - 1, room.get(begins, 0) + 1
        exchange.made(moves)
    return exchange.models


def test_who_loses_least_elsewhere_moves():
    """Both are fastest on the V100, but one of them hardly minds the K80."""
    jobs = [Candidate(1, 1, "v100", {"v100": 1000, "k80": 900}), Candidate(2, 1, "k80", {"v100": 1000, "k80": 100})]
    assert settled(jobs) == {1: "k80", 2: "v100"}


def test_a_chain_over_three_models_is_found():
    jobs = [
        Candidate(1, 1, "a", {"a": 100, "b": 99}),
        Candidate(2, 1, "b", {"b": 100, "c": 99}),
        Candidate(3, 1, "c", {"a": 100, "c": 1}),
    ]
    assert settled(jobs) == {1: "b", 2: "c", 3: "a"}


def test_jobs_of_different_shapes_do_not_change_places():
    jobs = [Candidate(1, 1, "v100", {"v100": 2, "k80": 1}), Candidate(2, 4, "k80", {"v100": 9, "k80": 1})]
    assert settled(jobs) == {1: "v100", 2: "k80"}


def test_a_refused_move_is_not_proposed_again():
    exchange = Exchange([Candidate(1, 1, "k80", {"v100": 2, "k80": 1})], lambda *_: True)
    moves = exchange.next()
    assert moves == [(1, "v100")]
    exchange.refused(moves)
    assert exchange.next() == []


def test_who_is_on_several_models_leaves_them():
    jobs = [Candidate(1, 1, "", {"": 0, "v100": 2, "k80": 1})]
    assert settled(jobs, {"k80": 1}) == {1: "k80"}


@st.composite
def pools(draw):
    """Jobs with a place each, and free room."""
    models = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    values = st.fixed_dictionaries({model: st.integers(0, 1_000_000) for model in models})
    held = st.sampled_from(models)
    made = draw(st.lists(st.tuples(values, held), min_size=1, max_size=9))
    jobs = [Candidate(n, 1, here, worth) for n, (worth, here) in enumerate(made)]
    return jobs, {model: draw(st.integers(0, 2)) for model in models}


@given(pools())
@examples(150)
def test_the_sum_is_that_of_the_linear_program(pool):
    from scipy.optimize import linprog  # takes a second to load

    jobs, free = pool
    found = settled(jobs, free)
    capacity = {model: room + sum(job.held == model for job in jobs) for model, room in free.items()}
    pairs = [(job, model) for job in jobs for model in job.values]
    each = numpy.array([[float(job is one) for job, _ in pairs] for one in jobs])
    kinds = sorted(capacity)
    of_model = numpy.array([[float(model == kind) for _, model in pairs] for kind in kinds])
    best = linprog(
        [-job.values[model] for job, model in pairs],
        A_ub=of_model,
        b_ub=[capacity[k] for k in kinds],
        A_eq=each,
        b_eq=[1.0] * len(jobs),
    )
    assert sum(job.values[found[job.id]] for job in jobs) == pytest.approx(-best.fun, abs=2)


@given(pools())
def test_no_model_is_overfull(pool):
    jobs, free = pool
    found = settled(jobs, free)
    for model, room in free.items():
        held = sum(job.held == model for job in jobs)
        assert sum(chosen == model for chosen in found.values()) <= room + held
