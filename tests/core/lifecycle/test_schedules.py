"""Decisions about schedules: what is due runs once, whoever leads; nothing is lost, and nothing passes in silence."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.lifecycle import schedules
from penstock.core.lifecycle.declaring import declared
from penstock.core.lifecycle.schedules import CATCH_UP_MAX, OWN_MAX, RUNS_LIVE_MAX, decide, fire_due
from penstock.core.messages.requests import NewJob, Refusal
from penstock.core.messages.schedules import ActOnSchedule, RemoveSchedule, ScheduleDone, SetSchedule
from penstock.core.model import events as ev
from penstock.core.model.access import User
from penstock.core.model.jobs import Dependency
from penstock.core.model.schedule_rule import ScheduleRule
from penstock.core.model.schedules import Schedule
from penstock.core.state.image import Image
from penstock.core.state.state import State, fold
from penstock.testing.builders import job_spec, node, queues
from penstock.testing.harness import World

MINUTE = 60_000
ANN = User("ann", tenants=(("default", "member"),))


class Every:
    """A calendar in which each of these moments is due: every `step_ms`."""

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms

    def following(self, rule: ScheduleRule, after_ms: int) -> int:
        found = (after_ms // self.step_ms + 1) * self.step_ms
        return 0 if rule.end_ms and found >= rule.end_ms else found

    def passed(self, rule: ScheduleRule, since_ms: int, until_ms: int, most: int) -> tuple[int, ...]:
        last = until_ms // self.step_ms
        first = max(-(-since_ms // self.step_ms), last - most + 1)
        return tuple(at * self.step_ms for at in range(first, last + 1))


TIMES = Every(MINUTE)


def world(**fields) -> World:
    return World(node(), **({"users": (ANN,)} | fields))


def schedule(name: str = "nightly", *jobs: NewJob, owner: str = "ann", **rule) -> Schedule:
    jobs = jobs or (NewJob(job_spec(name="train")),)
    return Schedule(name, owner, ScheduleRule("* * * * *", name=name, **rule), jobs, "default")


def put(w: World, one: Schedule, *, administrator: bool = False) -> str:
    reply = w.commit(lambda tx: decide(tx, SetSchedule(one, administrator), TIMES))
    return reply.problems[0].code if isinstance(reply, Refusal) else "done"


def act(w: World, action: str, name: str = "nightly"):
    return w.commit(lambda tx: decide(tx, ActOnSchedule("ann", name, action, "ann"), TIMES))


def fire(w: World, after_ms: int = MINUTE, times: Every = TIMES) -> list[ev.ScheduleFired]:
    """Let time pass, and return what fires then."""
    w.now += after_ms
    before = len(w.records)
    w.commit(lambda tx: fire_due(tx, times))
    return [one.event for one in w.records[before:] if isinstance(one.event, ev.ScheduleFired)]


def known(w: World, name: str = "nightly") -> Schedule:
    return w.state.schedules.by_key["ann", name]


def test_each_run_is_an_ordinary_job_that_names_its_schedule():
    w = world()
    put(w, schedule(overlap="allow"))
    (first,), (second,) = fire(w), fire(w)
    assert [(one.first, one.count, one.due_ms, one.next_ms) for one in (first, second)] == [
        (1, 1, 17 * MINUTE, 18 * MINUTE),
        (2, 1, 18 * MINUTE, 19 * MINUTE),
    ]
    job = w.job(1)
    assert (job.user, job.spec.name, job.scheduled.schedule, job.scheduled.due_ms) == (
        "ann",
        "train",
        "nightly",
        first.due_ms,
    )
    assert (known(w).run_total, [run.first for run in known(w).runs]) == (2, [1, 2])


def test_nothing_fires_before_its_time_nor_twice():
    w = world()
    put(w, schedule())
    assert fire(w, 0) == []
    assert len(fire(w, MINUTE)) == 1
    assert fire(w, 0) == []


@given(st.lists(st.sampled_from(["fire", "snapshot", "pause", "resume"]), max_size=12), st.data())
def test_a_server_that_takes_over_goes_on_where_the_other_stopped(steps, data):
    w = world()
    put(w, schedule(overlap="allow"))
    for step in steps:
        if step == "fire":
            fire(w, data.draw(st.integers(0, 3 * MINUTE)))
        elif step == "snapshot":
            encoded = msgspec.msgpack.encode(w.state.image())
            w.state = State.from_image(msgspec.msgpack.decode(encoded, type=Image))
        else:
            act(w, step)
    again = fold(w.records)
    assert again.schedules.by_key == w.state.schedules.by_key
    assert again.schedules.live == w.state.schedules.live
    due = [one.event.due_ms for one in w.records if isinstance(one.event, ev.ScheduleFired)]
    assert due == sorted(set(due))


def test_jobs_of_a_run_and_its_firing_are_in_one_commit():
    w = world()
    put(w, schedule("nightly", NewJob(job_spec(), array=3)))
    before = len(w.records)
    (fired,) = fire(w)
    made = [type(one.event).__name__ for one in w.records[before:]]
    assert (made, fired.first, fired.count) == (["JobSubmitted"] * 3 + ["ScheduleFired"], 1, 3)


@pytest.mark.parametrize(
    ("catch_up", "runs", "missed"),
    [("last", [30, 40], 1), ("none", [40], 1), ("all", [20, 30, 40], 0)],
)
def test_missed_times_are_made_up_for_as_the_rule_says(catch_up, runs, missed):
    w, times = world(), Every(10 * MINUTE)
    w.commit(lambda tx: decide(tx, SetSchedule(schedule(catch_up=catch_up, overlap="allow")), times))
    assert fire(w, 35 * MINUTE - w.now, times)
    for _ in range(3):
        fire(w, 0, times)
    fire(w, 40 * MINUTE - w.now, times)
    fired = [one.event for one in w.records if isinstance(one.event, ev.ScheduleFired)]
    assert [one.due_ms // MINUTE for one in fired if one.first] == runs
    assert sum(one.missed for one in fired) == missed
    assert [one.skipped for one in fired if not one.first] == (
        ["no server ran at 1970-01-01T00:30:00Z, when it was due (catch_up: none)"] if catch_up == "none" else []
    )
    assert known(w).skipped_total == 3 - len(runs)


def test_no_more_than_a_bounded_number_of_missed_times_is_made_up_for():
    w = world()
    put(w, schedule(catch_up="all", overlap="allow"))
    w.now += 10 * CATCH_UP_MAX * MINUTE
    fired = []
    while more := fire(w, 0):
        fired += more
    assert len(fired) == CATCH_UP_MAX
    assert fired[-1].due_ms == w.now // MINUTE * MINUTE


def test_a_run_that_is_not_over_keeps_the_next_from_starting():
    w = world()
    put(w, schedule(overlap="skip"))
    fire(w)
    (skipped,) = fire(w)
    assert (skipped.first, skipped.skipped) == (0, "its run of job 1 is not over (overlap: skip)")
    w.cancel(1)
    assert fire(w)[0].first == 2


def test_a_run_waits_for_all_jobs_of_the_one_before():
    w = world()
    put(w, schedule("nightly", NewJob(job_spec(), array=2), overlap="queue"))
    fire(w)
    fire(w)
    assert [(one.job_id, one.kind, one.count) for one in w.job(3).spec.after] == [(1, "after_any", 2)]
    w.cancel(1)
    assert w.job(3).unmet
    w.cancel(2)
    assert not w.job(3).unmet


def test_the_runs_that_are_not_over_are_bounded(monkeypatch):
    monkeypatch.setattr(schedules, "RUNS_LIVE_MAX", 2)
    w = world()
    put(w, schedule(overlap="allow"))
    assert [one.first for one in fire(w) + fire(w) + fire(w)] == [1, 2, 0]
    assert isinstance(act(w, "run"), Refusal)
    assert RUNS_LIVE_MAX == 100


def test_a_run_out_of_turn_leaves_the_next_time_as_it_is():
    w = world()
    put(w, schedule())
    next_ms = known(w).next_ms
    reply = act(w, "run")
    assert (reply.run.first, reply.run.by, known(w).next_ms) == (1, "ann", next_ms)


def test_a_paused_schedule_is_not_due_and_goes_on_with_the_next_time():
    w = world()
    put(w, schedule())
    act(w, "pause")
    assert fire(w, 5 * MINUTE) == []
    act(w, "resume")
    assert fire(w, 0) == []
    assert fire(w)[0].missed == 0


def test_a_schedule_that_is_set_again_goes_on_after_its_runs():
    w = world()
    put(w, schedule())
    fire(w)
    put(w, schedule("nightly", NewJob(job_spec(name="other"))))
    (skipped,) = fire(w)
    assert (known(w).run_total, "job 1" in skipped.skipped) == (1, True)
    w.cancel(1)
    fire(w)
    assert w.job(2).spec.name == "other"


def test_a_removed_schedule_leaves_its_jobs():
    w = world()
    put(w, schedule())
    fire(w)
    remove = RemoveSchedule("ann", "nightly", "ann")
    assert [w.commit(lambda tx: decide(tx, remove, TIMES)) for _ in range(2)] == [ScheduleDone(), ScheduleDone(False)]
    assert (w.state.schedules.by_key, w.state.schedules.of_user("ann"), w.phase(1)) == ({}, [], "waiting")
    assert fire(w) == []
    w.cancel(1)
    assert w.state.schedules.live == {}


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ((replace(ANN, disabled=True),), "user ann is disabled"),
        ((replace(ANN, tenants=(("default", "viewer"),)),), "user ann may not submit jobs for tenant default any more"),
    ],
)
def test_rights_are_those_of_the_moment_of_the_run(users, why):
    w = world()
    put(w, schedule())
    w.commit(lambda tx: declared(tx, replace(w.state.config, users=users), "root"))
    (fired,) = fire(w)
    assert (fired.first, fired.skipped, known(w).skipped) == (0, why, why)


def test_a_removed_user_or_tenant_pauses_schedules_and_it_is_said():
    w = world()
    put(w, schedule())
    w.commit(lambda tx: declared(tx, replace(w.state.config, users=()), "root"))
    assert (known(w).paused, known(w).paused_by, known(w).paused_why) == (True, "root", "user ann was removed")
    assert fire(w) == []


def test_quotas_are_those_of_the_moment_of_the_run():
    w = world(queues=queues("default", max_waiting=1))
    w.submit()
    put(w, schedule())
    assert "holds 1 of at most 1 waiting jobs" in fire(w)[0].skipped


def test_jobs_need_a_machine_account_where_they_are_run_under_one():
    w = world()
    put(w, schedule())
    w.now += MINUTE
    w.commit(lambda tx: fire_due(tx, TIMES, switches=True))
    assert known(w).skipped == "ann has no account of the machines to run jobs as"
    w.commit(lambda tx: declared(tx, replace(w.state.config, users=(replace(ANN, account="ann1"),)), "root"))
    w.now += MINUTE
    w.commit(lambda tx: fire_due(tx, TIMES, switches=True))
    assert w.job(1).account == "ann1"


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (schedule(end_ms=1), "never_due"),
        (schedule("n", NewJob(job_spec(tenant="nowhere"))), "unknown_tenant"),
        (schedule("n", NewJob(job_spec(devices=9))), "never_fits"),
        (schedule("n", NewJob(job_spec(), array=10_001)), "too_many_jobs"),
        (schedule("n", NewJob(job_spec(), array=1_000)), "too_large"),
        (schedule("n", NewJob(job_spec(env=(("A", "x" * 70_000),)))), "too_large"),
        (schedule("n", NewJob(job_spec(secrets=(("A", "KEY"),)))), "unknown_secret"),
    ],
)
def test_what_could_never_run_is_refused_when_it_is_set(one, code):
    w = world()
    assert (put(w, one), w.state.schedules.by_key) == (code, {})


def test_jobs_of_a_schedule_wait_for_no_numbers():
    w = world()
    before = w.submit()
    waiting = job_spec(after=(Dependency(before, "after_ok"),))
    assert put(w, schedule("n", NewJob(waiting))) == "bad_value"


def test_a_user_has_a_bounded_number(monkeypatch):
    w = world()
    assert [put(w, schedule(f"n{i}")) for i in range(OWN_MAX + 1)] == ["done"] * OWN_MAX + ["too_many_schedules"]
    assert put(w, schedule("n0")) == "done"
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", OWN_MAX + 3)
    monkeypatch.setattr(schedules, "RESERVE", 1)
    bob = [put(w, schedule(f"n{i}", owner="bob")) for i in range(3)]
    assert bob == ["done", "share_used_up", "share_used_up"]
    roots = [put(w, schedule(f"n{i}", owner="root"), administrator=True) for i in range(4)]
    assert roots == ["done", "done", "done", "too_many_schedules"]


def test_many_at_once_are_started_in_groups_the_longest_due_first(monkeypatch):
    monkeypatch.setattr(schedules, "FIRED_AT_ONCE", 2)
    w = world()
    for i in range(5):
        put(w, schedule(f"n{i}"))
    w.now += MINUTE
    groups = [[one.name for one in fire(w, 0)] for _ in range(4)]
    assert groups == [["n0", "n1"], ["n2", "n3"], ["n4"], []]
    monkeypatch.setattr(schedules, "JOBS_AT_ONCE", 1)
    for job_id in list(w.state.jobs):
        w.cancel(job_id)
    assert [one.name for one in fire(w)] == ["n0"]
