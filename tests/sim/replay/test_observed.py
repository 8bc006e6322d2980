"""What happened in a log is counted as the replay that made the log counted it."""

from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.sim.replay.measures import measure
from penstock.sim.replay.observed import observed, schedulers_of
from penstock.testing.builders import node
from penstock.traces.ownlog import trace_of
from tests.sim.replay.builders import job, ran, trace


def test_a_log_is_counted_as_the_replay_that_made_it():
    records = []
    jobs = (job(i * 20, 200 + 10 * (i % 7), 1 + i % 4) for i in range(40))
    real = ran(trace(*jobs, nodes=(node("a", 4), node("b", 4))), on_records=records.extend)
    seen = observed(records, trace_of(records))
    about = [
        [
            (life.started_ms, life.ended_ms, life.state, life.attempts, life.held_device_ms, life.alone_ms)
            for life in ran.lives
        ]
        for ran in (real, seen)
    ]
    assert about[0] == about[1]
    assert measure(seen).whole == measure(real).whole
    assert seen.busy_device_ms == real.busy_device_ms


def test_what_runs_at_the_end_of_a_log_ends_with_it():
    records = []
    ran(trace(job(0, 100), job(10, 100), job(20, 100), nodes=(node("a", 1),)), on_records=records.extend)
    until = next(at for at, one in enumerate(records) if isinstance(one.event, ev.AttemptEnded))
    begun = next(at for at, one in enumerate(records) if at > until and isinstance(one.event, ev.ReplicaStarted))
    seen = observed(records[: begun + 1], trace_of(records[: begun + 1]))
    assert [(life.state, life.attempts) for life in seen.lives] == [("succeeded", 1), ("succeeded", 1), ("waiting", 0)]
    assert seen.lives[1].ended_ms == records[begun].time_ms
    assert seen.lives[2].ended_ms == 0, "it never started"


def test_schedulers_are_named_once_each():
    records = []
    ran(trace(job(0, 100), job(10, 100), job(20, 9), nodes=(node("a", 2),)), on_records=records.extend)
    assert schedulers_of(records) == ()
    names = iter(("volcano", "default-scheduler", "volcano"))
    theirs = [
        replace(one, event=replace(one.event, scheduler=next(names)))
        if isinstance(one.event, ev.AttemptAllocated)
        else one
        for one in records
    ]
    assert schedulers_of(theirs) == ("default-scheduler", "volcano")
