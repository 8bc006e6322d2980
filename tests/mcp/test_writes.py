"""Changes are shown first, confirmed once, by whom they were shown to, and within the budget of the token."""

from typing import Any

import pytest

from penstock.client import Client
from penstock.mcp.budget import Budget, Cost
from penstock.mcp.callers import Caller
from penstock.mcp.confirmations import CONFIRM_WITHIN_S, PENDING_MAX, Confirmations, Made, Pending
from penstock.mcp.errors import Refused
from penstock.mcp.plan_tools import RequestAsked
from penstock.mcp.write_tools import ConfirmAsked, submit
from penstock.mcp.write_tools import confirm as make
from tests.mcp.conftest import LIMITS, Answer, World

JOB = {"command": "sleep 30", "devices": 1, "time_limit": "1h", "tenant": "alpha"}


def confirm(world: World, token: str, preview: Any) -> Answer:
    return world.call(token, "confirm", confirmation=preview["confirmation"], summary=preview["summary"])


def live(world: World) -> list[int]:
    return [job.id for job in world.server.client.jobs().jobs]


def test_a_submit_is_shown_then_confirmed(world: World) -> None:
    token, before = world.token("ann"), live(world)
    preview = world.call(token, "submit", request=JOB).good
    assert (live(world), preview["plan"]["jobs"][0]["device_hours_max"]) == (before, 1.0)
    done = confirm(world, token, preview).good
    assert live(world) == [*before, *done["jobs"]]
    assert done["left"] == {"writes": 2, "jobs": 1, "device_hours": 3.0}


def test_a_confirmation_is_valid_once(world: World) -> None:
    token = world.token("ann")
    preview = world.call(token, "submit", request=JOB).good
    assert not confirm(world, token, preview).failed
    before = live(world)
    again = confirm(world, token, preview).error
    assert (again["code"], again["field"], live(world)) == ("not_confirmed", "confirmation", before)


def test_a_confirmation_is_of_one_request(world: World) -> None:
    token, before = world.token("ann"), live(world)
    one, other = (
        world.call(token, "submit", request=JOB).good,
        world.call(token, "submit", request={"jobs": [JOB, JOB]}).good,
    )
    mixed = {"confirmation": other["confirmation"], "summary": one["summary"]}
    assert confirm(world, token, mixed).error["field"] == "summary"
    assert confirm(world, token, other).error["code"] == "not_confirmed"  # the try has used it up
    assert live(world) == before


def test_a_confirmation_is_of_one_caller(world: World) -> None:
    token, before = world.token("ann"), live(world)
    preview = world.call(token, "submit", request=JOB).good
    for stranger in (world.token("ann"), world.token("bert")):
        assert confirm(world, stranger, preview).error["code"] == "not_confirmed"
    assert live(world) == before


def test_a_confirmation_expires() -> None:
    now = [0.0]
    confirmations = Confirmations(lambda: now[0])
    made: list[str] = []
    pending = Pending("cancel job 1", Cost(), lambda client, key: made.append(key) or Made("", []))
    good, late = confirmations.add(pending), confirmations.add(pending)
    now[0] = CONFIRM_WITHIN_S
    assert confirmations.take(good, "cancel job 1") is pending
    now[0] += 0.001
    with pytest.raises(Refused, match="has expired"):
        confirmations.take(late, "cancel job 1")


def test_only_the_newest_previews_wait() -> None:
    confirmations = Confirmations()
    tokens = [confirmations.add(Pending(str(i), Cost(), lambda c, k: Made("", []))) for i in range(PENDING_MAX + 1)]
    assert len(confirmations) == PENDING_MAX
    with pytest.raises(Refused, match="no change of yours"):
        confirmations.take(tokens[0], "0")
    assert confirmations.take(tokens[1], "1").summary == "1"


@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        ({"jobs": [JOB] * 3}, "jobs", "it submits 3 jobs, and 2 of 2 are left"),
        (
            {**JOB, "devices": 4, "time_limit": "90m"},
            "device_hours",
            "it may take 6.00 device-hours, and 4.00 of 4 are left",
        ),
        ({**JOB, "retries": 4}, "device_hours", "it may take 5.00 device-hours"),
        ({**JOB, "replicas": "1..8"}, "device_hours", "it may take 8.00 device-hours"),
        (
            {**JOB, "time_limit": "90m", "alternatives": [{"devices": 4}]},
            "device_hours",
            "it may take 6.00 device-hours",
        ),
        ({**JOB, "array": 3}, "jobs", "it submits 3 jobs"),
        ({k: v for k, v in JOB.items() if k != "time_limit"}, "jobs[0].time_limit", "no time limit"),
    ],
)
def test_a_submit_over_the_budget_is_refused(world: World, request_: Any, field: str, text: str) -> None:
    error = world.call(world.token("ann"), "submit", request=request_).error
    assert (error["code"], error["field"]) == ("over_budget", field)
    assert text in error["message"]


def test_previews_together_do_not_exceed_the_budget(world: World) -> None:
    token = world.token("ann")
    previews = [world.call(token, "submit", request={**JOB, "time_limit": "3h"}).good for _ in range(2)]
    assert not confirm(world, token, previews[0]).failed
    before = live(world)
    assert confirm(world, token, previews[1]).error["code"] == "over_budget"
    assert live(world) == before


def test_what_the_server_refuses_costs_nothing(world: World) -> None:
    job = world.server.client.submit({**JOB, "command": "sleep 600"}).jobs[0].id
    token = world.token("otto")
    preview = world.call(token, "cancel", jobs=[job]).good
    world.server.client.revoke_token(next(one.id for one in world.server.client.tokens() if one.user == "otto"))
    assert confirm(world, token, preview).error["code"] == "unauthenticated"
    caller = world.callers.enter(token)
    assert caller is not None
    world.callers.leave(caller)
    assert caller.budget.left.writes == 3


def test_a_change_whose_answer_is_lost_may_be_made_and_stays_spent(world: World) -> None:
    url = [world.server.url]
    caller = Caller(lambda: Client.at(url[0], token=world.server.token, insecure=True), Budget(LIMITS), writes=True)
    preview = submit(caller, RequestAsked(JOB))
    caller.close()
    url[0] = "http://127.0.0.1:9"
    with pytest.raises(Refused, match="it may be done, or not") as raised:
        make(caller, ConfirmAsked(confirmation=preview.confirmation, summary=preview.summary))
    assert (raised.value.code, caller.budget.left.jobs) == ("unknown_outcome", 1)


def test_an_action_is_made_on_the_jobs_that_were_shown(world: World) -> None:
    client, token = world.server.client, world.token("otto")
    made = [client.submit({**JOB, "name": "batch"}).jobs[0].id for _ in range(2)]
    preview = world.call(token, "edit", name="batch", priority="high").good
    assert preview["summary"] == f"edit jobs {made[0]}, {made[1]}, priority high"
    later = client.submit({**JOB, "name": "batch"}).jobs[0].id
    assert confirm(world, token, preview).good["jobs"] == made
    assert [client.job(number).priority for number in (*made, later)] == [1000, 1000, 500]


def test_many_jobs_at_once_are_refused(world: World) -> None:
    client = world.server.client
    client.submit({**JOB, "name": "many", "array": 21})
    error = world.call(world.token("otto"), "cancel", name="many").error
    assert (error["code"], error["expected"]) == ("too_many_jobs", "at most 20")
    assert world.call(world.token("otto"), "cancel").error["field"] == "jobs"


def test_nobody_acts_beyond_the_rights_of_the_token(world: World) -> None:
    own = world.server.client.submit({**JOB, "name": "own"}).jobs[0].id
    foreign = world.call(world.token("bert"), "cancel", jobs=[own]).error
    assert foreign["code"] == "not_found"
    for user, level in (("amy", "write"), ("otto", "read")):
        assert world.call(world.token(user, level), "cancel", jobs=[own]).error["code"] == "forbidden"
        assert world.call(world.token(user, level), "cancel", name="own").error["code"] == "forbidden"
    for user, level in (("ann", "write"), ("otto", "read")):
        assert world.call(world.token(user, level), "drain", node="n1").error["code"] == "forbidden"


def test_an_operator_closes_and_opens_a_node(world: World) -> None:
    token = world.token("otto")
    assert world.call(token, "drain", node="n9").error["field"] == "node"
    for on in (True, False):
        preview = world.call(token, "drain", node="n2", on=on, reason="fan").good
        assert preview["draining_now"] is not on
        assert confirm(world, token, preview).good["left"]["writes"] == (2 if on else 1)
        assert next(n for n in world.server.client.nodes() if n.name == "n2").draining is on
