"""What people ask for: submit, repeat, cancel, drain."""

import pytest

from penstock.core.messages import requests
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.cluster import Queue
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.testing.builders import GIB, job_spec, node
from penstock.testing.harness import World, cluster


def codes(answer):
    assert isinstance(answer, Refusal)
    return [(p.code, p.field) for p in answer.problems]


def test_job_numbers_count_from_one_without_gaps():
    w = cluster(1, 1)
    assert [w.submit(1) for _ in range(3)] == [1, 2, 3]
    assert w.request(job_spec(), array=3).job_ids == (4, 5, 6)


def test_a_refused_request_leaves_nothing_behind():
    w = cluster(1, 1)
    seq = w.state.seq
    answer = w.request(job_spec(), job_spec(queue="nowhere"), key="k")
    assert codes(answer) == [("unknown_queue", "queue")]
    assert (w.state.seq, w.state.jobs, w.state.idempotency) == (seq, {}, {})


def test_all_that_is_wrong_is_said_at_once():
    answer = cluster(1, 1).request(job_spec(queue="defualt", tenant="nobody", pool="p"), job_spec(queue="x"))
    assert codes(answer) == [
        ("unknown_queue", "queue"),
        ("unknown_tenant", "tenant"),
        ("unknown_pool", "pool"),
        ("unknown_queue", "queue"),
    ]
    assert answer.problems[0].hint == "did you mean 'default'?"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"devices": 5}, "2 nodes have too few devices"),
        ({"devices": 4, "replicas": 3}, "2 fit at most"),
        ({"memory_gib": 65}, "2 nodes have too little memory"),
        ({"devices": 2, "replicas": 3, "topology": "node"}, "n0, the largest, holds 2"),
        ({"labels_wanted": (("gpu", "fast"),)}, "2 nodes do not have the labels wanted"),
    ],
)
def test_what_no_empty_cluster_could_hold_is_refused_at_once(fields, words):
    w = cluster(2, 4)
    w.submit(4)
    w.cycle()
    answer = w.request(job_spec(**fields))
    assert codes(answer)[0][0] == "never_fits"
    assert words in answer.problems[0].message


def test_a_request_that_fits_when_empty_may_wait_for_room_and_for_lost_nodes():
    w = cluster(2, 4)
    w.submit(4, 2)
    w.cycle()
    w.lose("n1")
    assert isinstance(w.request(job_spec(3, 2)), Submitted)


def test_a_new_node_makes_possible_what_was_not():
    w = cluster(1, 4)
    assert isinstance(w.request(job_spec(8)), Refusal)
    w.hello(node("big", 8))
    assert isinstance(w.request(job_spec(8)), Submitted)


def test_an_operator_can_let_requests_wait_for_nodes():
    w = cluster(1, 4, allow_waiting_for_nodes=True)
    assert isinstance(w.request(job_spec(8)), Submitted)


def test_without_nodes_nothing_fits():
    assert codes(World().request(job_spec(1)))[0][0] == "never_fits"


def test_a_queue_holds_no_more_than_its_limit():
    w = cluster(1, 1, queues=(Queue("default", max_waiting=2),))
    w.submit(1)
    assert codes(w.request(job_spec(), job_spec())) == [("queue_full", "queue")]
    w.submit(1)
    assert codes(w.request(job_spec())) == [("queue_full", "queue")]
    w.cycle()
    assert isinstance(w.request(job_spec()), Submitted)


def test_a_request_makes_no_more_jobs_than_the_limit():
    answer = cluster(1, 1).request(job_spec(), array=requests.JOBS_MAX + 1)
    assert codes(answer) == [("too_many_jobs", "jobs")]


def test_a_repeated_request_gives_the_same_jobs():
    w = cluster(1, 4)
    first = w.request(job_spec(), job_spec(), key="k", digest="d")
    seq = w.state.seq
    again = w.request(job_spec(), job_spec(), key="k", digest="d")
    assert (again.job_ids, again.repeated, first.repeated) == (first.job_ids, True, False)
    assert w.state.seq == seq


def test_a_repeated_request_is_known_after_its_jobs_have_ended():
    w = cluster(1, 4)
    first = w.request(job_spec(), key="k", digest="d")
    w.cancel(1)
    assert w.request(job_spec(), key="k", digest="d").job_ids == first.job_ids


def test_another_request_under_the_same_key_is_a_conflict():
    w = cluster(1, 4)
    w.request(job_spec(), key="k", digest="d")
    answer = w.request(job_spec(2), key="k", digest="e")
    assert (answer.code, codes(answer)) == ("conflict", [("idempotency_key_reused", "Idempotency-Key")])


def test_requests_without_a_key_are_never_taken_for_repeats():
    w = cluster(1, 4)
    assert w.request(job_spec()).job_ids != w.request(job_spec()).job_ids


def test_remembered_keys_expire():
    w = cluster(1, 4)
    w.request(job_spec(), key="old", digest="d")
    w.now += IDEMPOTENCY_KEPT_MS - 1
    w.request(job_spec(), key="young", digest="d")
    assert list(w.state.idempotency) == ["old", "young"]
    w.now += 1
    w.request(job_spec(), key="new", digest="d")
    assert list(w.state.idempotency) == ["young", "new"]


def test_an_expired_key_is_free_whether_or_not_others_submit():
    w = cluster(1, 4)
    w.request(job_spec(), key="k", digest="d")
    w.now += IDEMPOTENCY_KEPT_MS
    assert isinstance(w.request(job_spec(2), key="k", digest="e"), Submitted)


def test_remembered_keys_have_a_maximum(monkeypatch):
    monkeypatch.setattr("penstock.core.state.idempotency.IDEMPOTENCY_KEPT_MAX", 3)
    w = cluster(1, 4)
    for i in range(5):
        w.request(job_spec(), key=f"k{i}", digest="d")
    assert list(w.state.idempotency) == ["k2", "k3", "k4"]


def test_cancel_ends_a_waiting_job_at_once():
    w = cluster(1, 1)
    job = w.submit(1)
    assert w.cancel(job)
    assert (w.ended[job], w.reasons[job]) == ("cancelled", "cancelled by ann")
    assert not w.cancel(job)


@pytest.mark.parametrize("phase", ["starting", "running", "stopping"])
def test_cancel_stops_a_job_that_holds_places_and_ends_it_when_they_are_free(phase):
    w = cluster(1, 1)
    job = w.submit(1, grace_ms=4_000)
    w.cycle()
    if phase != "starting":
        w.start(job)
    if phase == "stopping":
        w.drain("n0", evict=True)
    assert w.phase(job) == phase
    assert w.cancel(job)
    stop = w.job(job).attempt.stop
    assert (w.phase(job), stop.reason, stop.grace_ms) == ("stopping", "cancelled", 4_000)
    w.exit_replica(job, 0, 0, stop_sent=True)
    assert w.ended[job] == "cancelled"


def test_cancel_twice_is_once():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    w.cancel(job)
    seq = w.state.seq
    assert w.cancel(job)
    assert w.state.seq == seq


def test_cancel_of_a_job_that_backs_off_ends_it():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    w.exit_replica(job, 0, 1)
    assert w.cancel(job)
    assert w.ended[job] == "cancelled"


def test_a_drained_node_keeps_its_work_and_gets_no_more():
    w = cluster(2, 1)
    job = w.submit(1)
    w.run(job)
    assert w.drain("n0")
    assert w.phase(job) == "running"
    w.submit(1)
    assert [s.places[0].node for s in w.plan().starts] == ["n1"]


def test_a_drain_with_eviction_moves_the_work():
    w = cluster(2, 1)
    job = w.submit(1)
    w.run(job)
    w.drain("n0", evict=True)
    assert w.job(job).attempt.stop.reason == "drained"
    w.leave(job)
    assert (w.job(job).retries_used, w.job(job).preemptions) == (0, 0)
    assert [s.places[0].node for s in w.cycle().starts] == ["n1"]


def test_a_drain_asks_each_job_once_and_outlives_a_rebirth():
    w = cluster(1, 4)
    w.submit(1, 3)
    w.cycle()
    w.drain("n0", evict=True)
    seq = w.state.seq
    w.drain("n0", evict=True)
    assert w.state.seq == seq
    w.hello(w.state.nodes["n0"].spec, "i2")
    assert (w.state.nodes["n0"].draining, w.state.nodes["n0"].drain_reason) == (True, "repair")


def test_a_drain_can_be_taken_back():
    w = cluster(1, 1)
    w.submit(1)
    w.drain("n0")
    assert w.plan().starts == ()
    assert w.drain("n0", on=False)
    assert len(w.plan().starts) == 1
    assert not w.drain("nowhere")


def test_the_refusal_of_an_impossible_request_names_the_size():
    answer = cluster(2, 4).request(job_spec(5, 2, cpus=2, memory_gib=3))
    problem = answer.problems[0]
    assert problem.value == "2 replicas of 5 devices, 2 CPUs and 3 GiB of memory"
    assert problem.field == "devices"
    assert job_spec(memory_gib=3).ask.each.host.memory_bytes == 3 * GIB
