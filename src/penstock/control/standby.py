"""A standby server: it folds the leader's commits, answers requests that only read, and takes over."""

import logging

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.core.model.errors import StoreError
from penstock.core.model.events import Record
from penstock.ports import Clock, Seat

log = logging.getLogger(__name__)

LOOK_MS = 200
"""Interval of reading on in the log and of trying the seat."""


class Standby:
    """Called on the control thread only."""

    def __init__(self, controller: Controller, seat: Seat, clock: Clock) -> None:
        self._controller, self._seat, self._clock = controller, seat, clock
        self._next_ms = 0
        self._failing = False

    def wait_ms(self) -> int:
        """Return how long until the next look is due."""
        return max(0, self._next_ms - self._clock.monotonic_ms())

    def look(self) -> tuple[Record, ...]:
        """Take over if no server leads, else read on; return new records. Does nothing before it is due."""
        if self.wait_ms():
            return ()
        self._next_ms = self._clock.monotonic_ms() + LOOK_MS
        try:
            found = self._controller.open() if self._seat.take() else self._controller.follow()
        except StoreError as error:
            if not self._failing:
                log.warning("the log cannot be followed: %s", error.message)
            self._failing = True
            return ()
        self._failing = False
        return found

    def answer(self, request: msg.Request) -> msg.Reply:
        """Return the answer of this standby, or the address of the leader to ask."""
        if isinstance(request, msg.TakeImage):
            return msg.ImageTaken(self._controller.state.image())
        if isinstance(request, msg.NoteEstimates):
            return msg.Done(found=False)  # the estimates hold; only the leader logs them
        return not_leading(self._seat.leader())


def not_leading(leader: str) -> msg.RequestFailed:
    """Return the answer of a server that does not lead."""
    where = f"the server at {leader} leads" if leader else "another is about to take over: come back in a moment"
    return msg.RequestFailed("not_leader", "this server does not lead", where, leader)
