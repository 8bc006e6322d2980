"""What is made of the body of a submit before the control loop is asked."""

from types import SimpleNamespace

import pytest

from penstock.core.lifecycle.requests import submit
from penstock.core.messages.requests import Refusal
from penstock.core.model.access import Scope, User
from penstock.core.model.cluster import Queue, Tenant
from penstock.core.state.idempotency import IDEMPOTENCY_KEPT_MS
from penstock.server import submitting
from penstock.server.http.limits import Limits, RateGate
from penstock.server.http.parsing import jobs_of
from penstock.server.http.responses import ApiError
from penstock.server.submitting import _submit, adopted
from penstock.testing.builders import config, node
from penstock.testing.harness import World

ANN = Scope("ann", tenants={"default": "member"}, level="write")


class Here:
    """A server over a world whose clock goes only when it is told to."""

    def __init__(self) -> None:
        self.world = World(node(), job_account="jobs")
        self.state, self.clock, self.reads = self.world.state, self, SimpleNamespace()
        self.gate = RateGate(Limits(), self)
        self.not_kept = lambda spec: None
        self.snapshots = SimpleNamespace()

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


# Jobs that name no tenant or queue.

TEAMS = (Tenant("research"), Tenant("speech"), Tenant("vision"))
MEMBER = Scope("ann", tenants={"speech": "member", "vision": "member"}, level="write")
ADMIN = Scope("ops", "admin", level="admin", local=True)


def names(body: bytes, scope: Scope, **fields) -> list[tuple[str, str]]:
    return [(one.spec.tenant, one.spec.queue) for one in adopted(jobs_of(body), scope, config(**fields))]


def refused(body: bytes, scope: Scope, **fields) -> list[tuple[str, str, str, str]]:
    with pytest.raises(ApiError) as found:
        names(body, scope, **fields)
    return [(one.code, one.field, one.message, one.hint) for one in found.value.details.problems]


def test_jobs_get_the_defaults_of_what_they_do_not_name():
    body = b'[{"command": "a"}, {"command": "b", "tenant": "speech"}, {"command": "c", "queue": "low"}]'
    queues = (Queue("low"), Queue("high"))
    found = names(body, ADMIN, tenants=TEAMS, queues=queues, default_tenant="vision", default_queue="high")
    assert found == [("vision", "high"), ("speech", "high"), ("vision", "low")]


def test_defaults_are_worked_out_for_jobs_that_name_none_alone(monkeypatch):
    monkeypatch.setattr(submitting, "default_tenant", None)
    monkeypatch.setattr(submitting, "default_queue", None)
    body = b'{"command": "a", "tenant": "speech", "queue": "low"}'
    assert names(body, MEMBER, tenants=TEAMS, queues=(Queue("low"),)) == [("speech", "low")]


def test_a_named_tenant_is_never_replaced_by_a_default():
    with pytest.raises(ApiError, match="tenant is 'default': you may not submit jobs for it") as found:
        names(b'{"command": "a", "tenant": "default"}', MEMBER, tenants=TEAMS, default_tenant="vision")
    assert found.value.details.hint == "known: speech, vision"


def test_without_a_default_the_tenants_that_one_may_use_are_named_and_how_to_set_one():
    assert refused(b'{"command": "a"}', MEMBER, tenants=TEAMS) == [
        (
            "missing_field",
            "tenant",
            "the job names no tenant, and there is no default: you may submit jobs for speech, vision",
            "--tenant speech; or ask an administrator for a default (default_tenant)",
        )
    ]
    assert refused(b'[{"command": "a"}]', ADMIN, tenants=TEAMS) == [
        (
            "missing_field",
            "jobs[0].tenant",
            "jobs[0] names no tenant, and there is no default: you may submit jobs for research, speech, vision",
            "--tenant research; a default for all: penstock admin set settings.default_tenant=research",
        )
    ]


def test_a_declared_administrator_may_set_their_own_default():
    (problem,) = refused(b'{"command": "a"}', ADMIN, tenants=TEAMS, users=(User("ops", "admin"),))
    assert problem[3].endswith("=research; for you: penstock admin set user.ops.default_tenant=research")


def test_without_a_default_queue_the_queues_are_named():
    problems = refused(b'{"command": "a"}', ADMIN, queues=(Queue("low"), Queue("high")))
    assert [problem[:3] for problem in problems] == [
        ("missing_field", "queue", "the job names no queue, and there is no default: there are low, high")
    ]


def test_jobs_alike_share_one_spec():
    entries = jobs_of(b'{"command": "a"}')
    made = adopted(entries * 3, ADMIN, config(tenants=TEAMS, default_tenant="vision"))
    assert len({id(one.spec) for one in made}) == 1
