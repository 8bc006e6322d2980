"""Mappings that are given out while they change: what was given out stays as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.state.copy_on_write import ByJob, ByNode, Moments
from tests.properties import examples

KEYS = st.integers(0, 2_000)
STEPS = st.lists(st.one_of(st.just("cut"), st.tuples(KEYS, st.one_of(st.none(), st.integers()))), max_size=60)


@examples(200)
@given(STEPS)
def test_jobs_are_those_of_a_dict_and_a_cut_never_changes(steps):
    values, model, cuts = ByJob(), {}, []
    for step in steps:
        if step == "cut":
            cuts.append((values.cut(), dict(model)))
        elif step[1] is None:
            if step[0] in model:
                del model[step[0]]
                values.remove(step[0])
            with pytest.raises(KeyError):
                values.remove(step[0])
        else:
            model[step[0]] = step[1]
            values.set(*step)
        assert values == model
        assert len(values) == len(model)
        assert sorted(values) == sorted(model)
        assert sorted(values.values()) == sorted(model.values())
    assert all(cut == then for cut, then in cuts)


def test_a_cut_that_is_changed_leaves_the_original_alone():
    values = ByJob()
    values.set(1, "a")
    cut = values.cut()
    cut.set(1, "b")
    assert (values[1], cut[1]) == ("a", "b")


@examples(100)
@given(st.integers(0, 200), st.lists(st.one_of(st.just("cut"), st.tuples(KEYS, st.integers())), max_size=40))
def test_nodes_keep_their_order_and_a_cut_never_changes(count, steps):
    model = {f"n{7 * i % 211:03}": i for i in range(count)}
    values, cuts = ByNode(model.items()), []
    for step in steps:
        name = "" if step == "cut" else f"n{step[0] % 211:03}"
        if step == "cut":
            cuts.append((values.cut(), dict(model)))
        elif name in model:
            model[name] = step[1]
            values.set(name, step[1])
        else:
            with pytest.raises(KeyError):
                values.set(name, step[1])
        assert list(values.items()) == list(model.items())
        assert len(values) == len(model)
    assert all(list(cut.items()) == list(then.items()) for cut, then in cuts)
    assert "no such node" not in values


@examples(100)
@given(st.lists(st.one_of(st.just("cut"), st.booleans(), KEYS), max_size=300), st.integers(0, 200))
def test_moments_are_those_of_a_sorted_list_and_a_cut_never_changes(steps, count):
    values, model, cuts = Moments(), [], []
    for step in (*range(0, 10 * count, 10), *steps):
        if step == "cut":
            cuts.append((values.cut(), sorted(model)))
        elif isinstance(step, bool):
            if model:
                values.remove(model.pop(-1 if step else len(model) // 2))
        elif (step, 1) not in model:
            model.append((step, 1))
            values.add((step, 1))
        assert list(values) == sorted(model)
    with pytest.raises(KeyError):
        values.remove((-1, 1))
    assert all(list(cut) == then for cut, then in cuts)


def test_a_cut_that_another_thread_takes_in_the_midst_of_a_change_stays_as_it_is():
    jobs, found = ByJob(), []

    class Owned(set):
        def add(self, at):
            found.append(jobs.cut())
            super().add(at)

    jobs._owned = Owned()
    for value in "ab":
        jobs.set(1, value)
    assert dict(found[0]) == {}
