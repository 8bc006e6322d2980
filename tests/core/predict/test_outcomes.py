"""What was estimated of starts, and when they came: the first and the last estimate of each."""

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.estimates import StartEstimate
from penstock.core.predict import outcomes as module
from penstock.core.predict.outcomes import OutcomeImage, StartOutcome, StartOutcomes, ToldTimes


def told(outcomes, made_ms, *jobs, times=(10, 20, 30)):
    found = tuple(StartEstimate(job, times, times) for job in jobs)
    outcomes.take(ev.Record(1, made_ms, ev.StartsEstimated(made_ms, found)))


def started(outcomes, job, at_ms, attempt=1):
    outcomes.take(ev.Record(1, at_ms, ev.AttemptAllocated(job, attempt, ())))


def test_the_first_and_the_last_estimate_are_kept_with_the_start():
    outcomes = StartOutcomes()
    told(outcomes, 1, 7)
    told(outcomes, 2, 7, times=(11, 21, 31))
    told(outcomes, 3, 7, times=(12, 22, 32))
    first, last = ToldTimes(1, (10, 20, 30)), ToldTimes(3, (12, 22, 32))
    assert outcomes.of(7) == StartOutcome(first, last)
    started(outcomes, 7, 25)
    assert outcomes.of(7) == StartOutcome(first, last, 25)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(outcomes.image()), type=OutcomeImage)
    assert StartOutcomes(again).of(7) == outcomes.of(7)


def test_a_job_that_waits_again_is_estimated_anew():
    outcomes = StartOutcomes()
    told(outcomes, 1, 7)
    started(outcomes, 7, 25)
    told(outcomes, 30, 7, times=(40, 50, 60))
    assert outcomes.of(7) == StartOutcome(ToldTimes(30, (40, 50, 60)), ToldTimes(30, (40, 50, 60)))
    started(outcomes, 7, 55, attempt=2)
    assert outcomes.of(7).started_ms == 55
    started(outcomes, 7, 70, attempt=3)
    assert outcomes.of(7) is None, "nothing was estimated of this start"


def test_what_is_not_known_or_ends_while_it_waits_is_not_kept():
    outcomes = StartOutcomes()
    told(outcomes, 1, 7, times=(0, 0, 0))
    assert outcomes.of(7) is None
    told(outcomes, 2, 7)
    outcomes.take(ev.Record(1, 3, ev.JobFinished(7, "cancelled")))
    assert outcomes.of(7) is None


def test_the_latest_starts_are_kept(monkeypatch):
    monkeypatch.setattr(module, "STARTED_MAX", 2)
    outcomes = StartOutcomes()
    told(outcomes, 1, 7, 8, 9)
    for job in (8, 7, 9):
        started(outcomes, job, 25)
    assert [outcomes.of(job) is not None for job in (7, 8, 9)] == [True, False, True]
