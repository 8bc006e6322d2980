"""One request acts on many jobs: those of a selection, that the caller may act on, each once."""

import json
from types import SimpleNamespace

import pytest

from penstock.api.jobs import ActionRequest, JobSelection
from penstock.client import ApiProblem
from penstock.core.lifecycle.acting import NO_CHANGE
from penstock.core.model.access import Scope, User
from penstock.core.model.actions import JobChange
from penstock.core.model.cluster import Queue
from penstock.server.http.responses import ApiError
from penstock.server.routes import job_actions
from penstock.server.selecting import named_by
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World, cluster
from tests.server.harness import until

ACTIONS = "/api/v1/jobs/actions"
WAITS = {"devices": 4, "replicas": 2}
"""Waits for a job that holds a device, and fits the cluster when that is gone."""


@pytest.fixture
def busy(jobs):
    """A job that holds a device, so that others wait."""
    first = jobs.submit("sleep 600", devices=1, preemptible=False)
    jobs.state(first, "running")
    return first


def post(server, body: object, **headers: str):
    return server.http("POST", ACTIONS, json.dumps(body).encode(), **headers)


def test_all_jobs_of_a_selection_are_cancelled_by_one_request(server, jobs, busy):
    made = [jobs.submit(name=name, **WAITS) for name in ("bulk-a", "bulk-b", "other")]
    found = jobs.client.act("cancel", {"name": "bulk-*"})
    assert (found.matched, found.changed, found.jobs, found.unchanged) == (2, 2, made[:2], [])
    assert [jobs.client.job(job).state for job in made] == ["cancelled", "cancelled", "waiting"]
    assert jobs.client.job(made[0]).reason == f"cancelled by {jobs.client.me().user}"


def test_a_selection_is_counted_without_changing_anything(server, jobs, busy):
    made = [jobs.submit(name="counted", **WAITS) for _ in range(2)]
    seq = jobs.client.cluster().seq
    found = jobs.client.act("cancel", {"name": "counted"}, dry_run=True)
    assert (found.matched, found.changed, found.jobs) == (2, 2, made)
    assert [jobs.client.job(job).state for job in made] == ["waiting", "waiting"]
    assert not [r for r in jobs.client.events(seq) if type(r.event).__name__ == "JobCancelRequested"]


def test_arrays_are_selected_whole_and_by_their_indexes(server, jobs, busy):
    first = jobs.submit(array=6, **WAITS)
    assert jobs.client.act("cancel", {"ids": [f"{first}[1-2,5]"]}).jobs == [first + 1, first + 2, first + 5]
    assert jobs.client.act("cancel", {"ids": [str(first)]}).jobs == [first]
    assert jobs.client.act("cancel", {"ids": [f"{first}[]"]}).jobs == [first + 3, first + 4]


def test_a_range_selects_its_live_jobs(server, jobs, busy):
    over = jobs.submit()
    jobs.ended(over)
    waiting = [jobs.submit(**WAITS) for _ in range(2)]
    found = jobs.client.act("cancel", {"ids": [f"{over}-{waiting[-1] + 50}"]})
    assert (found.changed, found.jobs, found.unchanged) == (2, waiting, [])


def test_a_job_that_is_over_stays_so_and_its_state_is_said(server, jobs):
    over = jobs.submit()
    jobs.ended(over)
    found = jobs.client.act("cancel", {"ids": [str(over)]})
    (left,) = found.unchanged
    assert (found.matched, found.changed, left.code, left.jobs) == (1, 0, "over", [over])
    assert left.text == f"job {over} is over (succeeded)"


def test_one_unknown_number_is_not_found_and_one_of_several_is_listed(server, jobs, busy):
    with pytest.raises(ApiProblem) as refused:
        jobs.client.act("cancel", {"ids": ["999999"]})
    assert (refused.value.details.status, refused.value.details.title) == (404, "there is no job 999999")
    made = jobs.submit(**WAITS)
    found = jobs.client.act("cancel", {"ids": [str(made), "999999"]})
    assert (found.matched, found.changed, [(u.code, u.jobs) for u in found.unchanged]) == (
        2,
        1,
        [("not_found", [999999])],
    )


def test_another_number_of_jobs_than_expected_changes_nothing(server, jobs, busy):
    made = jobs.submit(name="expected", **WAITS)
    with pytest.raises(ApiProblem) as refused:
        jobs.client.act("cancel", {"name": "expected"}, expect=2)
    assert refused.value.details.code == "conflict"
    assert jobs.client.job(made).state == "waiting"


def test_the_same_request_under_one_key_has_its_effect_once(server, jobs, busy):
    jobs.submit(name="once", **WAITS)
    body = {"action": "cancel", "select": {"name": "once"}}
    first, again = (post(server, body, Idempotency_Key="a-once") for _ in range(2))
    assert first.json() == again.json()
    assert first.json()["changed"] == 1
    other = post(server, {**body, "dry_run": True}, Idempotency_Key="a-once")
    assert (other.status, other.json()["code"]) == (409, "conflict")


def test_running_jobs_are_asked_to_save_together(server, jobs):
    traps = "trap 'echo asked' USR1; echo traps; while :; do sleep 0.05; done"
    job = jobs.submit(["bash", "-c", traps], checkpoint={"request_signal": "SIGUSR1"}, name="saves")
    silent = jobs.submit("sleep 600", name="saves")
    for one in (job, silent):
        jobs.state(one, "running")
    jobs.said(job, "traps")  # before that the signal ends it
    assert jobs.client.act("save", {"name": "saves"}).changed == 1
    jobs.said(job, "asked")
    (left,) = jobs.client.act("save", {"ids": [str(silent)]}).unchanged
    assert left.code == "cannot_checkpoint"


def test_held_jobs_are_shown_as_held_and_start_when_they_are_released(server, jobs):
    first = jobs.submit("sleep 600", devices=4)
    jobs.state(first, "running")
    made = [jobs.submit("sleep 600", devices=4, replicas=2, name="held") for _ in range(2)]
    assert jobs.client.act("hold", {"name": "held"}).changed == 2
    assert [job.reason for job in jobs.client.jobs().jobs if job.id in made] == ["held", "held"]
    assert jobs.client.explain(made[0]).text.endswith(f"penstock release {made[0]}")
    jobs.client.cancel(first)
    jobs.ended(first)
    assert jobs.client.job(made[0]).state == "waiting"
    assert jobs.client.act("release", {"ids": [str(made[0])]}).changed == 1
    jobs.state(made[0], "running")


def test_a_requeued_job_runs_again(server, jobs):
    job = jobs.submit("sleep 600")
    jobs.state(job, "running")
    assert jobs.client.act("requeue", {"ids": [str(job)]}).changed == 1
    until(lambda: jobs.client.job(job).attempt == 2, "the second attempt")


def test_a_job_requeued_to_be_held_waits_until_it_is_released(server, jobs):
    job = jobs.submit("sleep 600")
    jobs.state(job, "running")
    assert jobs.client.act("requeue_hold", {"ids": [str(job)]}).changed == 1
    jobs.state(job, "waiting")
    assert (jobs.client.job(job).attempt, jobs.client.act("release", {"ids": [str(job)]}).changed) == (1, 1)
    until(lambda: jobs.client.job(job).attempt == 2, "the second attempt")


def test_jobs_are_edited_by_the_names_of_a_job_file(server, jobs, busy):
    job = jobs.submit(labels={"a": "1", "b": "2"}, **WAITS)
    change = {"priority": "high", "time_limit": "2h", "name": "renamed", "labels": {"a": None, "c": "3"}}
    assert jobs.client.act("edit", {"ids": [str(job)]}, change=change).changed == 1
    shown = jobs.client.job(job)
    assert (shown.priority, shown.name) == (1000, "renamed")
    assert jobs.client.act("edit", {"labels": {"c": "3", "b": "2"}}, change={"priority": 5}, dry_run=True).changed == 1


@pytest.mark.parametrize(
    ("action", "change", "field"),
    [
        ("edit", {}, "set"),
        ("edit", {"priority": "hihg"}, "set.priority"),
        ("edit", {"devices": 3}, "set.devices"),
        ("edit", {"queue": "nowhere"}, "set.queue"),
        ("edit", {"labels": {f"l{i}": "x" * 50 for i in range(50)}}, "set"),
        ("cancel", {"priority": 1}, "set"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_meant_is_refused(server, action, change, field):
    answer = post(server, {"action": action, "select": {"all": True}, "set": change})
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("select", "code", "hint"),
    [
        ({}, "empty_selection", "name jobs by number, or give a condition; all: true selects every live job"),
        ({"ids": ["1"], "all": True}, "empty_selection", ""),
        ({"ids": ["x"]}, "bad_id", None),
        ({"ids": ["1"] * 2_001}, "too_many_ids", ""),
        ({"ids": ["1-1000000"]}, "too_many_ids", None),
        ({"states": ["runing"]}, "unknown_state", "did you mean 'running'?"),
        ({"tenant": "defualt"}, "unknown_tenant", "did you mean 'default'?"),
        ({"queue": "defualt"}, "unknown_queue", "did you mean 'default'?"),
        ({"name": "*" * 9}, "too_long", ""),
        ({"name": "n" * 201}, "too_long", ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_selection_that_cannot_be_meant_is_refused(server, select, code, hint):
    answer = post(server, {"action": "cancel", "select": select})
    problem = answer.json()["problems"][0]
    assert (answer.status, problem["code"]) == (422, code)
    assert hint is None or problem.get("hint", "") == hint


def test_an_action_that_there_is_not_names_those_that_there_are(server):
    answer = post(server, {"action": "kill", "select": {"all": True}})
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, "action")


ADMIN = Scope("ann", "admin", level="admin")


def chosen(w: World, asked: ActionRequest, change: JobChange = NO_CHANGE, who: Scope = ADMIN):
    """Return the jobs to change of all in a world, and what is known of the others."""
    reads = SimpleNamespace(live_page=lambda who, after, limit, tenant=None: w.state.jobs.page(after, limit))
    backend = SimpleNamespace(reads=reads, state=w.state)
    return job_actions.chosen(backend, who, asked, named_by([]), change)


def test_more_jobs_than_one_request_may_change_are_refused(monkeypatch):
    monkeypatch.setattr(job_actions, "ACTION_JOBS_MAX", 1)
    w = cluster(1, 1)
    w.submit(1), w.submit(1)
    with pytest.raises(ApiError) as refused:
        chosen(w, ActionRequest("cancel", JobSelection(all=True)))
    assert refused.value.details.title == "2 jobs match, one request may act on 1"


def test_counting_what_an_edit_would_change_leaves_the_caches_of_the_control_loop_alone():
    w = cluster(1, 1, queues=(Queue("default"), Queue("other")))
    job = w.submit(1)
    w.state.indexes.trees_config = None  # as after a new configuration
    _, outcome = chosen(w, ActionRequest("edit", JobSelection(all=True), dry_run=True), JobChange(queue="other"))
    assert (outcome.changed, w.state.indexes.trees_config) == ([job], None)


def test_shares_of_a_queue_count_for_all_but_administrators():
    w = World(node(), queues=(Queue("default"), Queue("small", max_waiting=2)), users=(User("ann"), User("bob")))
    w.request(job_spec(), job_spec(queue="small"))
    asked, change = ActionRequest("edit", JobSelection(all=True), dry_run=True), JobChange(queue="small")
    member = Scope("ann", tenants={"default": "member"}, level="write")
    counts = [chosen(w, asked, change, who)[1].answer() for who in (ADMIN, member)]
    assert [(a.changed, [u.code for u in a.unchanged]) for a in counts] == [
        (1, ["same"]),
        (0, ["share_used_up", "same"]),
    ]


@pytest.mark.parametrize(
    ("code", "one", "two"),
    [
        ("over", "job 3 is over", "2 jobs are over"),
        ("no_right", "job 3 belongs to another user: you may not act on it", ("2 jobs belong to other users: "
         "you may not act on them")),
        ("not_found", "there is no job 3", "2 of the numbers are of no job"),
    ],
)  # fmt: skip
def test_what_is_said_has_the_right_plural(code, one, two):
    assert [job_actions.unchanged_text(code, jobs) for jobs in ([3], [3, 4])] == [one, two]
