"""What was submitted on past days is known, whole days only, and no more of it than is needed."""

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.predict import arrivals
from penstock.core.predict.arrivals import DAY_MS, KEPT_DAYS, Arrivals
from penstock.testing.builders import job_spec

HOUR = 3_600_000
START = 1_000 * DAY_MS


def record(at_ms, event):
    return ev.Record(1, START + at_ms, event)


def submitted(job_id, at_ms, **fields):
    return record(at_ms, ev.JobSubmitted(JobId(job_id), replace(job_spec(1), **fields), "ann"))


def attempt(job_id, from_ms, to_ms, outcome="succeeded", idle_ms=0, number=1):
    yield record(from_ms, ev.AttemptAllocated(JobId(job_id), AttemptNumber(number), ()))
    yield record(to_ms, ev.AttemptEnded(JobId(job_id), AttemptNumber(number), outcome, idle_ms=idle_ms))


def after(*records):
    known = Arrivals()
    known.observe(records)
    return known


def ids(known, at_ms):
    return [[one.job_id for one in day] for day in known.days(START + at_ms)]


def test_only_days_of_which_all_is_known_count_the_latest_first():
    known = after(submitted(1, 0), submitted(2, 5 * HOUR))
    assert ids(known, DAY_MS - 1) == []
    assert ids(known, DAY_MS) == [[1, 2]]
    known.observe([submitted(3, 30 * HOUR)])
    assert ids(known, 2 * DAY_MS) == [[3], [1, 2]]
    assert ids(known, 2 * DAY_MS + 7 * HOUR) == [[], [3]]


def test_a_job_is_as_long_as_all_its_attempts_without_suspensions():
    first, second = attempt(1, HOUR, 3 * HOUR, "preempted"), attempt(1, 5 * HOUR, 9 * HOUR, idle_ms=HOUR, number=2)
    known = after(submitted(1, 0), *first, *second)
    assert known.days(START + DAY_MS)[0][0].length_ms == 5 * HOUR


def test_its_first_prediction_is_what_the_scheduler_knew_when_it_came():
    told = [ev.RunTimesPredicted(((JobId(1), ms, 2 * ms), (JobId(9), ms, ms))) for ms in (HOUR, 7 * HOUR)]
    known = after(submitted(1, 0), *[record(1_000, event) for event in told])
    (one,) = known.days(START + DAY_MS)[0]
    assert (one.expected_ms, one.most_ms) == (HOUR, 2 * HOUR)


def test_nothing_is_kept_of_what_placement_does_not_ask_for():
    heavy = {"command": ("run", "x" * 9_000), "env": (("KEY", "v" * 9_000),), "labels": (("a", "b"),), "workdir": "/w"}
    known = after(submitted(1, 0, **heavy), submitted(2, 1, **heavy, name="other"), submitted(3, 2, name="other"))
    one, two, three = known.days(START + DAY_MS)[0]
    assert one.spec == replace(job_spec(1), command=())
    assert two.spec is three.spec


def test_days_of_which_jobs_are_forgotten_do_not_count(monkeypatch):
    monkeypatch.setattr(arrivals, "KEPT_MAX", 3)
    known = after(*[submitted(i, i * 10 * HOUR) for i in range(1, 7)])
    assert ids(known, 60 * HOUR) == [[4, 5, 6]]
    crowd = after(*[submitted(i, i) for i in range(1, 7)])
    assert ids(crowd, DAY_MS) == []


@pytest.mark.parametrize("days", [KEPT_DAYS, KEPT_DAYS + 3])
def test_a_week_is_remembered(days):
    known = after(*[record for i in range(days) for record in (submitted(i, i * DAY_MS), *attempt(i, 1, 2))])
    assert len(ids(known, days * DAY_MS)) == KEPT_DAYS
    assert ids(known, days * DAY_MS)[-1] == [days - KEPT_DAYS]
