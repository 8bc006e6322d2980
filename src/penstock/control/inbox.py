"""The control loop's queue: reports of agents first, then requests, callers in turn.

A lease depends on its reports, so they wait only for the group that is being committed; and the work of a group takes
no more than a fraction of a lease.
"""

import threading
from collections import deque
from collections.abc import Callable

from penstock.control import messages as msg
from penstock.core.lifecycle.requests import Submit
from penstock.core.model.errors import PenstockError
from penstock.core.order.turns import FairQueue, Submitter, TooManyWaiting, WaitingLimit

GROUP_MAX = 512
"""Requests decided and committed together."""
GROUP_JOBS_MAX = 1_000
"""A group that submits or changes more jobs takes no further request."""
REPORTS_MAX = 20_000
"""Reports that may wait; an agent whose report is refused says hello again."""
SHARE = WaitingLimit(user=2_000, tenant=5_000, total=20_000)
SERVER = Submitter("\0server", "")
"""The server's own requests: plans, estimates, the books."""

OnReply = Callable[[msg.Reply], None]
Item = tuple[msg.Request, OnReply | None]


class InboxFull(PenstockError):
    code = "overloaded"


class Inbox:
    """Any thread puts, one thread collects."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports: deque[Item] = deque()
        self._requests: FairQueue[Item] = FairQueue(SHARE)
        self.ending = False
        """Whether the end was asked for."""

    def put(self, request: msg.Request, on_reply: OnReply | None, caller: Submitter = SERVER) -> None:
        """Queue a request. Raises: InboxFull, or TooManyWaiting when the caller's share is used up."""
        with self._changed:
            if isinstance(request, msg.FROM_NODES):
                if len(self._reports) >= REPORTS_MAX:
                    raise InboxFull("too many reports wait to be committed")
                self._reports.append((request, on_reply))
            else:
                try:
                    self._requests.put(caller, (request, on_reply))
                except TooManyWaiting as error:
                    if error.own:
                        raise
                    raise InboxFull("too many requests wait to be committed", hint=error.hint) from error
            self._changed.notify()

    def end(self) -> None:
        """Let `collect` say that it is over, once everything was collected."""
        with self._changed:
            self.ending = True
            self._changed.notify()

    def collect(self, wait_s: float) -> tuple[list[Item], bool]:
        """Return the next group, reports first, and whether it is the last; waits for its first request."""
        with self._changed:
            if not self._reports and not self._requests and not self.ending:
                self._changed.wait(wait_s)
            group: list[Item] = []
            while self._reports and len(group) < GROUP_MAX:
                group.append(self._reports.popleft())
            jobs = 0
            while self._requests and len(group) < GROUP_MAX and jobs < GROUP_JOBS_MAX:
                item = self._requests.take()
                group.append(item)
                jobs += _jobs_of(item[0])
            return group, self.ending and not self._reports and not self._requests


def _jobs_of(request: msg.Request) -> int:
    if isinstance(request, msg.ChangeJobs):
        return len(request.job_ids)
    return sum(max(1, new.array) for new in request.jobs) if isinstance(request, Submit) else 0
