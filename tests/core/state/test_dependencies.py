"""Jobs that wait for other jobs."""

import msgspec
import pytest

from penstock.core.lifecycle import requests
from penstock.core.lifecycle.ending import dependency_met
from penstock.core.model.dependencies import compacted
from penstock.core.model.jobs import Dependency
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster


def after(*job_ids, kind="after_ok"):
    return tuple(Dependency(i, kind) for i in job_ids)


def end(w, job_id, how):
    if how == "cancelled":
        w.cancel(job_id)
    else:
        w.run(job_id)
        w.exit_replica(job_id, 0, 0 if how == "succeeded" else 1)
    assert w.ended[job_id] == how


TABLE = [
    ("after_ok", "succeeded", True),
    ("after_ok", "failed", False),
    ("after_ok", "cancelled", False),
    ("after_any", "succeeded", True),
    ("after_any", "failed", True),
    ("after_any", "cancelled", True),
    ("after_failed", "succeeded", False),
    ("after_failed", "failed", True),
    ("after_failed", "cancelled", True),
]


@pytest.mark.parametrize(("kind", "how", "runs"), TABLE)
def test_a_dependent_starts_or_is_cancelled_with_the_reason(kind, how, runs):
    w = cluster(1, 1)
    first = w.submit(1)
    second = w.submit(1, after=after(first, kind=kind))
    assert w.job(second).unmet == (first,)
    end(w, first, how)
    if runs:
        assert [s.job_id for s in w.cycle().starts] == [second]
    else:
        assert (w.ended[second], w.reasons[second]) == (
            "cancelled",
            f"dependency {kind} {first} cannot be met: job {first} {how}",
        )


@pytest.mark.parametrize(("kind", "how", "runs"), TABLE)
def test_a_dependency_on_a_job_that_has_ended_is_settled_at_submit(kind, how, runs):
    w = cluster(1, 1)
    first = w.submit(1)
    end(w, first, how)
    second = w.submit(1, after=after(first, kind=kind))
    assert w.phase(second) == ("waiting" if runs else "cancelled")
    if runs:
        assert w.job(second).unmet == ()
    else:
        assert w.reasons[second] == f"dependency {kind} {first} cannot be met: job {first} {how}"


@pytest.mark.parametrize(("kind", "how", "runs"), TABLE)
def test_the_table_of_dependencies_is_the_one_of_the_specification(kind, how, runs):
    assert dependency_met(kind, how) == runs


def test_a_dependent_waits_for_all_it_names():
    w = cluster(1, 2)
    one, two = w.submit(1), w.submit(1)
    last = w.submit(1, after=(*after(one), *after(two, kind="after_any")))
    end(w, one, "succeeded")
    assert w.job(last).unmet == (two,)
    assert w.plan().starts == ()
    end(w, two, "failed")
    assert w.job(last).unmet == ()


def test_a_failed_job_takes_the_whole_chain_with_it():
    w = cluster(1, 1)
    chain = [w.submit(1)]
    for _ in range(4):
        chain.append(w.submit(1, after=after(chain[-1])))
    end(w, chain[0], "failed")
    assert [w.ended[j] for j in chain] == ["failed"] + ["cancelled"] * 4
    assert w.reasons[chain[3]] == f"dependency after_ok {chain[2]} cannot be met: job {chain[2]} cancelled"
    assert w.state.jobs == {}


def test_a_diamond_is_cancelled_once():
    w = cluster(1, 1)
    top = w.submit(1)
    left, right = w.submit(1, after=after(top)), w.submit(1, after=after(top))
    bottom = w.submit(1, after=after(left, right))
    end(w, top, "failed")
    assert [w.ended[j] for j in (left, right, bottom)] == ["cancelled"] * 3
    assert w.state.finished_bad == 4


def test_a_clean_up_job_runs_when_the_chain_breaks():
    w = cluster(1, 1)
    first = w.submit(1)
    second = w.submit(1, after=after(first))
    clean = w.submit(1, after=after(second, kind="after_failed"))
    end(w, first, "failed")
    assert (w.ended[second], w.phase(clean)) == ("cancelled", "waiting")
    assert [s.job_id for s in w.cycle().starts] == [clean]


def test_one_blocked_job_at_the_head_does_not_stop_the_queue():
    w = cluster(1, 2)
    first = w.submit(1)
    w.submit(1, after=after(first), priority=1000)
    free = w.submit(1, priority=100)
    assert [s.job_id for s in w.plan().starts] == [first, free]


def test_a_job_that_does_not_exist_cannot_be_waited_for():
    w = cluster(1, 1)
    answer = w.request(job_spec(after=after(99)))
    assert [(p.code, p.field) for p in answer.problems] == [("unknown_job", "after_ok")]


def test_entries_of_one_request_may_wait_for_each_other_by_name():
    w = cluster(1, 4)
    entries = (
        requests.NewJob(job_spec(name="prepare"), array=3),
        requests.NewJob(job_spec(name="train"), after_names=(("prepare", "after_ok"),)),
    )
    found = w.commit(lambda tx: requests.submit(tx, requests.Submit(entries, "ann"), {}))
    assert found.job_ids == (1, 2, 3, 4)
    assert (w.job(4).unmet, w.job(4).spec.after) == ((1,), (Dependency(1, "after_ok", 3),))
    assert [(w.job(i).array_id, w.job(i).array_index) for i in (1, 2, 3, 4)] == [(1, 0), (1, 1), (1, 2), (None, 0)]


def test_a_request_on_a_failed_job_is_cancelled_with_all_that_follows_in_it():
    w = cluster(1, 4)
    dead = w.submit(1)
    end(w, dead, "failed")
    entries = (
        requests.NewJob(job_spec(name="a", after=after(dead)), array=2),
        requests.NewJob(job_spec(name="b"), after_names=(("a", "after_ok"),)),
    )
    found = w.commit(lambda tx: requests.submit(tx, requests.Submit(entries, "ann"), w.ended))
    assert [w.ended[i] for i in found.job_ids] == ["cancelled"] * 3


# Arrays.


def two_arrays(count, kind="after_ok", last=None):
    """Return a world with jobs 1 to `count` of one array, and as many (or `last`) that wait for all of them."""
    w = cluster(1, 0, cpus=100)
    entries = (
        requests.NewJob(job_spec(0, name="a"), array=count),
        requests.NewJob(job_spec(0, name="b"), array=last or count, after_names=(("a", kind),)),
    )
    w.commit(lambda tx: requests.submit(tx, requests.Submit(entries, "ann"), {}))
    return w


def test_an_array_that_waits_for_an_array_is_one_value():
    w = two_arrays(50)
    assert [w.job(i).spec.after for i in (51, 100)] == [(Dependency(1, "after_ok", 50),)] * 2
    assert {w.job(i).unmet for i in range(51, 101)} == {(1,)}
    assert list(w.state.indexes.dependants.awaited) == [(1, 50)]
    assert max(len(msgspec.msgpack.encode(r)) for r in w.records[-100:]) < 500


def test_an_end_touches_no_dependant_before_it_is_the_last():
    w = two_arrays(3)
    w.run(1, 2, 3)
    before = [w.job(i) for i in (4, 5, 6)]
    w.exit_replica(2)
    w.exit_replica(3)
    assert all(w.job(job.id) is job for job in before)
    w.exit_replica(1)
    assert [w.job(job.id).unmet for job in before] == [()] * 3
    assert [s.job_id for s in w.cycle().starts] == [4, 5, 6]


@pytest.mark.parametrize(
    ("kind", "ends", "left"),
    [
        ("after_ok", "010", ["cancelled"] * 2),
        ("after_any", "010", ["waiting"] * 2),
        ("after_failed", "111", ["waiting"] * 2),
        ("after_failed", "101", ["cancelled"] * 2),
    ],
)
def test_all_jobs_of_an_array_have_to_end_as_the_dependency_says(kind, ends, left):
    w = two_arrays(3, kind, last=2)
    w.run(1, 2, 3)
    for job_id, code in enumerate(ends, start=1):
        w.exit_replica(job_id, 0, int(code))
    assert [w.phase(i) for i in (4, 5)] == left


def test_dependants_of_an_array_are_cancelled_with_its_first_job_that_ends_otherwise():
    w = two_arrays(3)
    w.run(1, 2, 3)
    w.exit_replica(2, 0, 1)
    assert sorted(w.state.jobs) == [1, 3]
    assert w.reasons[6] == "dependency after_ok 2 cannot be met: job 2 failed"
    assert w.state.indexes.dependants.awaited == {}


def test_whoever_is_cancelled_before_is_no_dependant_any_more():
    w = two_arrays(3)
    for job_id in (5, 4, 6):
        w.cancel(job_id)
    assert (w.state.indexes.dependants.awaited, w.state.indexes.dependants.runs) == ({}, {})


def test_entries_of_one_name_are_waited_for_whether_or_not_they_stand_together():
    w = cluster(1, 4)
    names = [("x", 2), ("x", 0), ("y", 0), ("x", 3)]
    entries = [requests.NewJob(job_spec(name=name), array=array) for name, array in names]
    last = requests.NewJob(job_spec(name="z"), after_names=(("x", "after_any"), ("y", "after_ok")))
    w.commit(lambda tx: requests.submit(tx, requests.Submit((*entries, last), "ann"), {}))
    assert w.job(8).spec.after == (
        Dependency(1, "after_any", 3),
        Dependency(5, "after_any", 3),
        Dependency(4, "after_ok"),
    )
    assert w.job(8).unmet == (1, 4, 5)


def test_numbers_that_follow_one_another_are_one_value():
    found = compacted((*after(3, 4, 5, 9), *after(6, 7, kind="after_any"), Dependency(8, "after_any", 2), *after(10)))
    assert found == (
        Dependency(3, "after_ok", 3),
        Dependency(9, "after_ok"),
        Dependency(6, "after_any", 2),
        Dependency(8, "after_any", 2),
        Dependency(10, "after_ok"),
    )
    assert compacted(found) is found


def test_a_cascade_goes_through_arrays_and_cancels_each_job_once():
    w = cluster(1, 0, cpus=9)
    entries = [requests.NewJob(job_spec(0, name="s0"), array=5)]
    entries += [
        requests.NewJob(job_spec(0, name=f"s{i}"), array=5, after_names=((f"s{i - 1}", "after_ok"),))
        for i in range(1, 5)
    ]
    w.commit(lambda tx: requests.submit(tx, requests.Submit(tuple(entries), "ann"), {}))
    w.cancel(3)
    assert sorted(w.state.jobs) == [1, 2, 4, 5]
    assert w.state.finished_bad == 21


def test_a_long_list_of_dependencies_is_shortened_when_half_of_it_has_ended():
    w = cluster(1, 0, cpus=200)
    entries = [requests.NewJob(job_spec(0, name="xy"[i % 2])) for i in range(200)]
    last = requests.NewJob(job_spec(0, name="z"), after_names=(("x", "after_any"),))
    w.commit(lambda tx: requests.submit(tx, requests.Submit((*entries, last), "ann"), {}))
    sizes = []
    for job_id in range(1, 200, 2):
        sizes.append(len(w.job(201).unmet))
        w.cancel(job_id)
    assert sizes == [100] * 50 + [50] * 25 + list(range(25, 0, -1))
    assert w.job(201).unmet == ()
