"""What of a log is worth a message, and in which words."""

import pytest

from penstock.core.explain.notices import (
    NAME_MAX,
    JobFacts,
    NoticeFold,
    notice_of,
    notice_of_job,
    plain,
)
from penstock.core.model import events as ev
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.notifications import JOB_EVENTS, NODE_EVENTS, TENANT_EVENTS
from penstock.testing.builders import job_spec

PLACES = (ReplicaPlace("n1", "i"), ReplicaPlace("n2", "i"))
JOB = JobFacts(7, job_spec(name="train"), "ann")


def follow(*events: ev.AnyEvent) -> list[tuple[str, object]]:
    """Return what a fold of these events says of job 7, by event and title."""
    fold, found = NoticeFold(), []
    for seq, event in enumerate(events, 1):
        fold = NoticeFold(*fold.image())  # a server may begin anew after each record
        taken = fold.take(ev.Record(seq, 1_000 * seq, event))
        if taken is not None:
            happening, start = taken
            made = notice_of(happening) if happening.job_id is None else notice_of_job(happening, JOB, start, False)
            assert made.event == happening.event
            assert made.event in {**JOB_EVENTS, **TENANT_EVENTS, **NODE_EVENTS}
            found.append((happening.event, made.title))
    return found


def allocated(attempt: int = 1) -> ev.AttemptAllocated:
    return ev.AttemptAllocated(7, attempt, PLACES, waited_ms=60_000)


def started(rank: int, attempt: int = 1) -> ev.ReplicaStarted:
    return ev.ReplicaStarted(7, attempt, rank)


def test_a_gang_has_started_when_all_of_it_has():
    assert follow(allocated(), started(0)) == []
    assert follow(allocated(), started(0), started(1)) == [("start", "job 7 'train' started")]


def test_a_late_report_of_a_former_attempt_starts_nothing():
    assert follow(allocated(2), started(0, 1), started(1, 1)) == []


def test_an_attempt_that_ended_while_it_started_has_not_started():
    assert follow(allocated(), started(0), ev.AttemptEnded(7, 1, "lost"), started(1)) == []


@pytest.mark.parametrize("reason", ["resized", "moved"])
def test_a_job_that_goes_on_elsewhere_at_once_is_not_told_of(reason):
    again = [ev.AttemptEnded(7, 1, reason), ev.JobRequeued(7, reason), allocated(2), started(0, 2), started(1, 2)]
    assert follow(allocated(), started(0), started(1), *again) == [("start", "job 7 'train' started")]
    later = [ev.AttemptEnded(7, 2, "preempted"), ev.JobRequeued(7, "preempted"), allocated(3)]
    found = follow(*again, *later, started(0, 3), started(1, 3))
    assert found == [("start", "job 7 'train' started again, as attempt 3")]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ev.JobFinished(7, "succeeded"), ("success", "job 7 'train' succeeded")),
        (ev.JobFinished(7, "failed", "exit 3"), ("failure", "job 7 'train' failed: exit 3")),
        (ev.JobFinished(7, "cancelled", "by ann"), ("cancelled", "job 7 'train' cancelled: by ann")),
        (
            ev.AttemptStopRequested(7, 1, "preempted", 30_000, 8, rule="reclaim"),
            ("preempted", "job 7 'train' is preempted"),
        ),
        (ev.AttemptStopRequested(7, 1, "suspended", 0, 8), ("preempted", "job 7 'train' is suspended")),
        (
            ev.JobRequeued(7, "lost"),
            ("requeued", "job 7 'train' waits again: a node or a device that it ran on failed"),
        ),
        (
            ev.JobRequeued(7, "failed", 5_000, counts_as_retry=True),
            ("requeued", "job 7 'train' waits again: its program failed"),
        ),
        (ev.SpendingNoted("red", "budget", "month", 0, 80, "80 % is spent"), ("budget", "80 % is spent")),
        (ev.QuotaNoted("tenant:red", "devices", 90, 9, 10, "9 of 10"), ("budget", "9 of 10")),
        (ev.TenantHeld("red", "balance", "no credit left"), ("exhausted", "no credit left")),
        (ev.TenantReleased("red"), ("exhausted", "jobs of tenant red start again")),
        (ev.NodeLost("n1", "no heartbeat"), ("node_lost", "node n1 is lost: no heartbeat")),
        (
            ev.NodeDrainChanged("n1", True, "otto", "new disk"),
            ("node_closed", "node n1 takes no new work: closed by otto"),
        ),
    ],
)
def test_each_event_is_said(event, expected):
    assert follow(event) == [expected]


@pytest.mark.parametrize(
    "event",
    [
        ev.JobRequeued(7, "preempted"),
        ev.AttemptStopRequested(7, 1, "time_limit", 0),
        ev.QuotaNoted("research", "devices", 90, 9, 10, "9 of 10"),
        ev.NodeDrainChanged("n1", False, "otto"),
        ev.JobHeld(7, "ann"),
    ],
)
def test_other_events_are_not_sent(event):
    assert follow(event) == []


def test_texts_of_others_are_one_printable_line_of_bounded_length():
    assert plain("a\r\nb\x1b[2J\u202ec") == "a  b [2J c"
    assert len(plain("x" * 10_000)) == 500
    long = JobFacts(7, job_spec(name="n" * 200), "ann")
    (happening, _) = NoticeFold().take(ev.Record(1, 1, ev.JobFinished(7, "failed", "r" * 5_000)))
    made = notice_of_job(happening, long, None, False)
    assert len(made.title) < 3 * NAME_MAX
    assert len(made.text) < 600
