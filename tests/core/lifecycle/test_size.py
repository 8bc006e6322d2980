"""What a request stands for is worked out before anything is done, and bounded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle import size
from penstock.core.lifecycle.requests import NewJob, Submit, submit
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.jobs import Dependency
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster
from tests.properties import examples


def entry(name="a", array=0, after=(), numbers=(), **fields):
    spec = job_spec(name=name, after=tuple(Dependency(i, "after_ok") for i in numbers), **fields)
    return NewJob(spec, array, tuple((other, "after_any") for other in after), "jobs[0]")


def mixed(count):
    """Return twice `count` entries with two names in turn."""
    return [entry("xy"[i % 2]) for i in range(2 * count)]


def test_an_array_is_one_dependency_of_each_job_that_waits_for_it():
    found = size.size_of([entry("a", 1_000), entry("b", 500, after=("a",))])
    assert (found.jobs, found.dependencies, found.dependencies_of_all) == (1_500, 1, 500)


def test_jobs_of_one_name_count_once_for_each_run_of_them():
    found = size.size_of([*mixed(3), entry("z", 10, after=("x", "y"))])
    assert (found.dependencies, found.dependencies_of_all, found.largest) == (6, 60, (6, "jobs[0]"))


def test_numbers_count_one_by_one_once_and_as_runs_for_the_other_jobs_of_an_array():
    found = size.size_of([entry(array=3, numbers=(1, 2, 3, 7))])
    assert (found.numbers, found.dependencies, found.dependencies_of_all) == (4, 4, 4 + 2 * 2)


@pytest.mark.parametrize(
    ("limit", "least", "jobs"),
    [
        ("jobs", 12, [entry(array=5), entry(array=7)]),
        ("dependencies_of_job", 3, [*mixed(3), entry("z", after=("x",))]),
        ("numbers", 4, [entry(numbers=(1, 2)), entry(numbers=(1, 2))]),
        ("dependencies", 4, [*mixed(2), entry("v", after=("x",)), entry("z", after=("y",))]),
        ("dependencies_of_all", 8, [*mixed(2), entry("z", 4, after=("x",))]),
    ],
)
def test_a_request_may_stand_for_as_much_as_a_limit_and_no_more(limit, least, jobs):
    assert size.over_size(size.size_of(jobs), size.RequestBounds(**{limit: least})) is None
    problem = size.over_size(size.size_of(jobs), size.RequestBounds(**{limit: least - 1}))
    assert problem.code in ("too_many_jobs", "too_many_dependencies")
    assert str(least - 1) in problem.message
    assert str(least) in problem.message


def test_what_stands_for_too_much_is_refused_where_jobs_are_made_and_nothing_is_done():
    w = cluster(1, 1)
    seq = w.state.seq
    wanted = Submit((*mixed(4), entry("z", after=("x",))), "ann")
    found = w.commit(lambda tx: submit(tx, wanted, {}, size.RequestBounds(dependencies=3)))
    assert isinstance(found, Refusal)
    assert [p.code for p in found.problems] == ["too_many_dependencies"]
    assert w.state.seq == seq


def test_a_shared_spec_weighs_once_and_its_dependencies_what_they_become():
    large = entry(env=(("A", "x" * 1_000),), array=10)
    one = size.weight_of([large]).log_bytes
    assert 1_000 + 10 * size.RECORD_BYTES < one < 1_300 + 10 * size.RECORD_BYTES
    assert size.weight_of([large, large]).log_bytes == one + 10 * size.RECORD_BYTES
    named = [*mixed(5), entry("z", after=("x",))]
    without = [*mixed(5), entry("z")]
    assert size.weight_of(named).log_bytes - size.weight_of(without).log_bytes == 5 * size.DEPENDENCY_BYTES


def test_a_request_that_nobody_has_weighed_is_weighed_where_jobs_are_made():
    w, jobs, bounds = cluster(1, 1), (entry(env=(("A", "x" * 1_000),)),), size.RequestBounds(log_bytes=1_000)
    found = w.commit(lambda tx: submit(tx, Submit(jobs, "ann"), {}, bounds))
    assert isinstance(found, Refusal)
    assert [(p.code, p.field) for p in found.problems] == [("too_large", "jobs")]
    weighed = Submit(jobs, "ann", log_bytes=1)
    assert isinstance(w.commit(lambda tx: submit(tx, weighed, {}, bounds)), Submitted)


def test_weighing_stops_where_it_is_too_much():
    bounds = size.RequestBounds(log_bytes=10_000)
    jobs = [entry(name=str(i), env=(("A", "x" * 1_000),)) for i in range(1_000)]
    found = size.weight_of(jobs, bounds)
    assert 10_000 < found.log_bytes < 12_000
    assert size.over_weight(found, 1_000, bounds).code == "too_large"


@examples(50)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_the_log_never_has_more_of_a_request_than_was_said_before(shapes):
    jobs, known = [], set()
    for name, array, waits in shapes:
        jobs.append(entry(name, array, after=sorted(known - {name}) if waits else ()))
        known.add(name)
    order = [new for new in jobs if not new.after_names] + [new for new in jobs if new.after_names]
    if any(new.after_names and new.spec.name in {n for o in order for n, _ in o.after_names} for new in order):
        return  # a name that is waited for comes last: the graph would have said so
    w = cluster(1, 1)
    said, weight = size.size_of(order), size.weight_of(order)
    before = len(w.records)
    assert isinstance(w.commit(lambda tx: submit(tx, Submit(tuple(order), "ann"), {})), Submitted)
    made = [r.event for r in w.records[before:]]
    assert len(made) == said.jobs
    assert sum(len(event.spec.after) for event in made) <= said.dependencies_of_all
    specs = {id(event.spec): len(msgspec.msgpack.encode(event.spec)) for event in made}
    rest = sum(len(msgspec.msgpack.encode(r)) - specs[id(r.event.spec)] for r in w.records[before:])
    assert sum(specs.values()) + rest <= weight.log_bytes
