"""Schedules over HTTP, in a whole server whose time passes as the test says."""

import contextlib
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.client import ApiProblem, Client
from penstock.core.model.errors import PenstockError
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

PEOPLE = {
    "tenants": [{"name": "red"}, {"name": "blue"}],
    "users": [
        {"name": "ann", "tenants": {"red": "member"}},
        {"name": "abe", "tenants": {"red": "member"}},
        {"name": "ada", "tenants": {"red": "tenant_admin"}},
        {"name": "bob", "tenants": {"blue": "member"}},
    ],
}


@pytest.fixture(scope="module")
def server():
    with InProcessServer({**cluster_file(job_account="nobody"), **PEOPLE}) as running:
        yield running


@contextlib.contextmanager
def _client(server, user):
    with Client.at(server.url, token=server.client.create_token({"user": user}).token, insecure=True) as client:
        yield client


@pytest.fixture(scope="module")
def ann(server):
    with _client(server, "ann") as client:
        yield client


def job(cron: str = "@daily", **fields):
    rule = {"cron": cron, "zone": "Europe/Berlin"} | fields.pop("rule", {})
    return {"name": "train", "command": "sleep 60", "tenant": "red", "schedule": rule, **fields}


def test_a_schedule_submits_its_jobs_in_time_and_each_names_it(server, ann):
    made = ann.set_schedule("nightly", job("*/3 * * * *"))
    local = datetime.fromtimestamp(made.next_ms / 1000, ZoneInfo("Europe/Berlin"))
    assert (local.minute % 3, made.next_local) == (0, local.isoformat())
    assert (made.coming[0], len(made.coming), made.job_names) == (made.next_local, 5, ["train"])
    server.advance((made.next_ms - made.set_ms) / 1000 + 90)
    shown = ann.schedule("nightly")
    (run,) = shown.runs
    ann.remove_schedule("nightly")
    assert (shown.run_total, run.due_ms, run.count, run.live) == (1, made.next_ms, 1, 0)
    ran = ann.job(run.first)
    assert (ran.state, ran.user, ran.schedule, ran.due_ms) == ("succeeded", "ann", "nightly", made.next_ms)


def test_a_live_job_names_its_schedule(server, ann):
    ann.set_schedule("now", job("@yearly"))
    started = ann.act_on_schedule("now", "run").runs[-1]
    assert (started.by, started.live) == ("ann", 1)
    assert ann.job(started.first).schedule == "now"
    ann.cancel(started.first)


def test_who_may_see_and_act_on_a_schedule(server, ann):
    ann.set_schedule("mine", job("@yearly"))
    with _client(server, "bob") as bob, _client(server, "abe") as abe, _client(server, "ada") as ada:
        assert [one.name for one in bob.schedules(everyone=True)] == []
        with pytest.raises(ApiProblem, match="there is no schedule 'mine' of ann"):
            bob.schedule("mine", "ann")
        assert abe.schedule("mine", "ann").owner == "ann"
        with pytest.raises(ApiProblem, match="may not pause schedule 'mine'"):
            abe.act_on_schedule("mine", "pause", "ann")
        assert ada.act_on_schedule("mine", "pause", "ann").paused_by == "ada"
        ada.remove_schedule("mine", "ann")
        with pytest.raises(ApiProblem, match="there is no schedule 'mine'"):
            ann.schedule("mine")


def test_a_schedule_is_changed_paused_and_removed(server, ann):
    first = ann.set_schedule("changed", job("@yearly"))
    again = ann.set_schedule("changed", job("@hourly", rule={"paused": True}))
    assert (first.cron, again.cron, again.paused, again.paused_by, again.next_ms) == (
        "@yearly",
        "@hourly",
        True,
        "ann",
        0,
    )
    assert ann.act_on_schedule("changed", "resume").next_ms > 0
    ann.remove_schedule("changed")
    assert "changed" not in [one.name for one in ann.schedules()]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (job("0 3 * *"), "schedule.cron is '0 3 [*] [*]' .wrong number of fields."),
        (job(rule={"zone": "Europe/Berln"}), "schedule.zone is 'Europe/Berln', and there is no such time zone"),
        (job(rule={"catch_up": "all"}), "with overlap skip no missed run could follow another"),
        ({"command": "true", "tenant": "red"}, "schedule is missing, expected one"),
        ({"jobs": [job(), job("@hourly")]}, "these jobs have 2 different schedules"),
        (job(tenant="blue"), "you may not submit jobs for it"),
        (job(devices=999), "even when empty"),
        (job(rule={"crn": "x"}), "schedule.crn is not a field"),
    ],
)
def test_a_bad_schedule_is_refused_with_what_was_expected(server, ann, request_, said):
    with pytest.raises(PenstockError, match=said):
        ann.set_schedule("bad", request_)
    assert "bad" not in [one.name for one in ann.schedules()]


def test_a_name_has_letters(ann):
    with pytest.raises(ApiProblem, match="name is 'a b'"):
        ann.set_schedule("a b", job())


def test_jobs_with_a_schedule_are_not_submitted_at_once(ann):
    with pytest.raises(ApiProblem, match="schedule is given: jobs with a schedule are not submitted now"):
        ann.submit_request(job())


def test_a_request_of_several_jobs_is_one_run(server, ann):
    jobs = [{"name": "prep", "command": "true"}, {"name": "train", "command": "true", "after_ok": "prep", "array": 2}]
    request = {"jobs": jobs, "defaults": {"tenant": "red", "schedule": {"cron": "@yearly"}}}
    made = ann.set_schedule("both", request)
    assert (made.jobs, made.job_names) == (3, ["prep", "train"])
    (run,) = ann.act_on_schedule("both", "run").runs
    assert run.count == 3
    server.advance(60)
    assert [ann.job(run.first + i).state for i in range(3)] == ["succeeded"] * 3


def test_a_removed_user_is_said_and_starts_nothing(server, ann):
    with _client(server, "abe") as abe:
        abe.set_schedule("often", job("* * * * *"))
    server.client.configure({"remove": ["user.abe"]})
    server.advance(60)
    one = server.client.schedule("often", "abe")
    assert (one.paused, one.paused_why, one.run_total) == (True, "user abe was removed", 0)


def test_events_tell_of_schedules_to_those_who_see_the_tenant(server, ann):
    ann.set_schedule("told", job("@yearly"))
    ann.act_on_schedule("told", "pause")
    kinds = [type(one.event).__name__ for one in ann.all_events()]
    assert {"ScheduleSet", "SchedulePaused"} <= set(kinds)
    with _client(server, "bob") as bob:
        assert not any(type(one.event).__name__.startswith("Schedule") for one in bob.all_events())
