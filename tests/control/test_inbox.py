"""What waits for the control loop: leases first, callers in turn, and groups of a bounded amount of work."""

import pytest

from penstock.control import inbox as module
from penstock.control import messages as msg
from penstock.control.inbox import Inbox, InboxFull
from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.model.ids import JobId, UserName
from penstock.core.order.turns import Submitter, TooManyWaiting, WaitingLimit
from penstock.testing.builders import job_spec
from tests.control.rig import Rig

ANN, EVE = Submitter("red", "ann"), Submitter("blue", "eve")


def cancel(number: int) -> msg.Cancel:
    return msg.Cancel(JobId(number), UserName("ann"))


def collected(inbox: Inbox) -> list[msg.Request]:
    return [request for request, _ in inbox.collect(0)[0]]


def test_reports_come_before_all_requests_that_were_there_first():
    rig, inbox = Rig("a"), Inbox()
    requests = [cancel(1), cancel(2)]
    for request in requests:
        inbox.put(request, None, ANN)
    report = rig.message("a")
    inbox.put(report, None)
    assert collected(inbox) == [report, *requests]


def test_callers_are_collected_in_turn():
    inbox = Inbox()
    for number in range(5):
        inbox.put(cancel(number), None, ANN)
    inbox.put(cancel(99), None, EVE)
    assert [request.job_id for request in collected(inbox)] == [0, 99, 1, 2, 3, 4]


def test_a_group_takes_nothing_more_after_many_jobs():
    inbox = Inbox()
    for _ in range(3):
        inbox.put(Submit((NewJob(job_spec(), array=module.GROUP_JOBS_MAX),), UserName("ann")), None, ANN)
    inbox.put(cancel(1), None, EVE)
    assert [len(collected(inbox)) for _ in range(4)] == [1, 2, 1, 0]


def test_a_group_takes_nothing_more_after_many_changes():
    inbox = Inbox()
    many = tuple(JobId(i) for i in range(module.GROUP_JOBS_MAX))
    for _ in range(2):
        inbox.put(msg.ChangeJobs("cancel", many, UserName("ann")), None, ANN)
    inbox.put(cancel(1), None, EVE)
    assert [len(collected(inbox)) for _ in range(3)] == [1, 2, 0]


def test_what_one_caller_may_have_waiting_leaves_room_for_another(monkeypatch):
    monkeypatch.setattr(module, "SHARE", WaitingLimit(2, 2, 3))
    inbox = Inbox()
    for number in range(2):
        inbox.put(cancel(number), None, ANN)
    with pytest.raises(TooManyWaiting):
        inbox.put(cancel(3), None, ANN)
    inbox.put(cancel(4), None, EVE)
    with pytest.raises(InboxFull):
        inbox.put(cancel(5), None, Submitter("green", "joe"))


def test_it_ends_after_all_was_collected(monkeypatch):
    monkeypatch.setattr(module, "GROUP_MAX", 1)
    inbox = Inbox()
    for number in range(2):
        inbox.put(cancel(number), None, ANN)
    inbox.end()
    assert [inbox.collect(0)[1] for _ in range(2)] == [False, True]
