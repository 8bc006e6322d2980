"""What is made of the body of a submit before the control loop is asked."""

from types import SimpleNamespace

import pytest

from penstock.core.lifecycle.requests import submit
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.server.http.limits import Limits, RateGate
from penstock.server.http.responses import ApiError
from penstock.server.submitting import _submit
from penstock.testing.builders import node
from penstock.testing.harness import World

ANN = Scope("ann", tenants={"default": "member"}, level="write")


class Here:
    """A server over a world whose clock goes only when it is told to."""

    def __init__(self) -> None:
        self.world = World(node(), job_account="jobs")
        self.state, self.clock, self.reads = self.world.state, self, SimpleNamespace()
        self.gate = RateGate(Limits(), self)

    def unix_ms(self) -> int:
        return self.world.now

    monotonic_ms = unix_ms

    def asked(self, body: bytes):
        return _submit(self, body, ANN, "key")

    def decided(self, request):
        return self.world.commit(lambda tx: submit(tx, request, {}))


def codes(refusal: Refusal) -> list[str]:
    return [problem.code for problem in refusal.problems]


def test_names_under_a_key_whose_time_is_over_are_looked_at():
    here = Here()
    here.decided(here.asked(b'{"command": "true"}'))
    here.world.now += IDEMPOTENCY_KEPT_MS
    with pytest.raises(ApiError, match="there is no queue 'none'"):
        here.asked(b'{"command": "true", "queue": "none"}')


def test_names_under_a_key_that_is_forgotten_meanwhile_are_looked_at_where_the_jobs_are_made():
    here = Here()
    here.decided(here.asked(b'{"command": "true"}'))
    again = here.asked(b'{"command": "true", "queue": "none"}')
    del here.state.idempotency["ann/key"]
    assert codes(here.decided(again)) == ["unknown_queue"]


def test_a_request_that_is_repeated_makes_nothing():
    here = Here()
    made = here.decided(here.asked(b'{"command": "true"}'))
    again = here.decided(here.asked(b'{"command": "true"}'))
    assert (again.job_ids, again.repeated) == (made.job_ids, True)
