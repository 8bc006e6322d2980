"""Jobs that wait for other jobs."""

import pytest

from penstock.core.lifecycle import requests
from penstock.core.lifecycle.ending import dependency_met
from penstock.core.model.jobs import Dependency
from tests.core.builders import cluster, job_spec


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
    assert w.job(4).unmet == (1, 2, 3)
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
