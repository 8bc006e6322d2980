"""The page of one job: events as sentences, attempts with why each ended, times of the local zone."""

import time

import pytest

from penstock.api.types import ReplicaView
from penstock.cli.story import attempts_of, checkpoints_text, clock, moment, node_part, places_text, story
from penstock.core.model import events as ev
from penstock.core.model.jobs import ExitInfo, ReplicaPlace
from penstock.core.model.progress import Gauges
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster

PLACES = (ReplicaPlace("a", "i", (0, 1)), ReplicaPlace("a", "i", (2, 3)), ReplicaPlace("b", "i", (1,)))
STOP = ev.AttemptStopRequested(1, 1, "preempted", 30_000, 9, 5, "lower_priority", 3, 4)


def record(event, time_ms=10**12):
    return ev.Record(1, time_ms, event)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.JobSubmitted(1, job_spec(), "ann"), "submitted by ann"),
        (ev.JobSubmitted(3, job_spec(), "ann", 1, 2), "submitted by ann, index 2 of array 1"),
        (
            ev.AttemptAllocated(1, 2, PLACES, basis=7, decided_ms=9),
            "attempt 2 was placed on a, devices 0-3; b, device 1",
        ),
        (STOP, "attempt 1 was asked to stop within 30s: preempted for job 9 (it has the lower priority)"),
        (ev.AttemptEnded(1, 1, "preempted", step=40), "attempt 1 was preempted at step 40"),
        (ev.AttemptEnded(1, 1, "time_limit"), "attempt 1 reached its time limit"),
        (ev.JobRequeued(1, "failed", 10**12 + 5_000, True), "waits again, for 5.0s at least: one of its retries"),
        (ev.JobFinished(1, "failed", "exit 3"), "failed: exit 3"),
        (ev.ReplicaExited(1, 1, 0, ExitInfo(3)), "replica 0 ended: exit 3"),
        (ev.CheckpointSaved(1, 1, 1200, 2**20), "checkpoint saved at step 1,200, 1 MiB"),
        (ev.JobResumed(1, 2, 40, 1), "attempt 2 resumed at step 40; 1 step lost"),
        (ev.ProgressNoted(1, 1, 5, Gauges(120, total_steps=100)), "step 5 of 100, 120 ms each"),
        (ev.JobCancelRequested(1, "bob", "no longer needed"), "bob asked to cancel it: no longer needed"),
    ],
)
def test_events_are_sentences(event, text):
    assert story(record(event)) == text


def test_no_event_of_a_job_shows_innards():
    w = cluster(1, 4)
    job = w.submit(2)
    w.run(job)
    w.drain("n0", evict=True)
    w.leave(job)
    for one in w.records:
        if getattr(one.event, "job_id", None) == job:
            assert [sign for sign in ("=", "(frozen", "None", "_") if sign in story(one)] == []


def test_attempts_are_told_with_why_each_ended():
    events = [
        record(ev.AttemptAllocated(1, 1, PLACES[2:]), 1_000),
        record(STOP, 2_000),
        record(ev.AttemptEnded(1, 1, "preempted", step=40), 3_000),
        record(ev.AttemptAllocated(1, 2, PLACES[:1]), 9_000),
    ]
    first, second = attempts_of(events)
    assert first[:4] == (1, 1_000, 3_000, "b, device 1")
    assert first.end == "was preempted at step 40: preempted for job 9 (it has the lower priority)"
    assert (second.number, second.ended_ms, second.end) == (2, 0, "")


def test_nodes_beyond_the_first_are_counted():
    places = [ReplicaPlace(f"n{i}", "i") for i in range(11)]
    assert places_text(places).endswith("n7 and 3 more nodes")
    replicas = [ReplicaView(rank, f"n{rank}", [0], "running") for rank in range(200)]
    assert places_text(replicas).endswith("n7, device 0 and 192 more nodes")
    assert node_part("a", (5, 0, 1, 2)) == "a, devices 0-2, 5"


def test_times_are_local_with_the_date_where_it_is_not_today(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert clock(10**12, 10**12 + 60_000) == "09:46:40"
        assert clock(10**12, 10**12 + 86_400_000) == "2001-09-09 09:46:40"
        assert moment(10**12, 10**12 + 65_000) == "09:46:40 (1m 5s ago)"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_checkpoints_are_counted_and_the_last_one_is_named():
    saved = [record(ev.CheckpointSaved(1, 1, step)) for step in (5, 10)]
    assert checkpoints_text([], 0) == ""
    assert checkpoints_text(saved, 10**12).startswith("2 checkpoints, the last at step 10, ")
