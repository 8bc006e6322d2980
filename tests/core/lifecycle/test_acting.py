"""What users do with live jobs: hold, release, requeue, edit; and what each of it changes for the scheduler."""

import pytest

from penstock.core.audit.rederive import audit
from penstock.core.explain.why import explain
from penstock.core.ledger.sessions import sessions
from penstock.core.lifecycle.acting import act, why_not
from penstock.core.lifecycle.requests import submit
from penstock.core.messages.requests import NewJob, Submit
from penstock.core.model.access import User
from penstock.core.model.actions import REFUSAL_TEXT, ActionRefusal, JobChange
from penstock.core.model.cluster import Queue
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import LABELS_MAX, Dependency
from penstock.core.state.history import History
from penstock.core.state.state import State
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World, cluster

ANN = UserName("ann")


def do(w, action, *job_ids, administrator=False, **change):
    """Do one action to jobs; return what kept it from each."""
    edit = JobChange(**change)
    return [
        w.commit(lambda tx, i=i: act(tx, JobId(i), action, ANN, edit, administrator=administrator)) for i in job_ids
    ]


def test_a_held_job_waits_and_others_pass_it():
    w = cluster(1, 1)
    first, second = w.submit(1), w.submit(1)
    assert do(w, "hold", first) == [None]
    w.cycle()
    assert (w.phase(first), w.phase(second)) == ("waiting", "starting")
    assert (w.job(first).hold.by, w.state.jobs.in_queue("default", "blocked")) == (ANN, 1)


def test_a_job_submitted_held_waits_until_it_is_released():
    w = cluster(1, 1)
    submitted = w.commit(lambda tx: submit(tx, Submit((NewJob(job_spec(1), 2, held=True),), ANN), {}))
    w.cycle()
    assert [(w.phase(job), w.job(job).hold.by) for job in submitted.job_ids] == [("waiting", ANN)] * 2
    assert do(w, "release", submitted.job_ids[0]) == [None]
    w.cycle()
    assert [w.phase(job) for job in submitted.job_ids] == ["starting", "waiting"]


def test_a_released_job_has_kept_its_place():
    w = cluster(1, 1)
    first, second = w.submit(1), w.submit(1)
    do(w, "hold", first)
    do(w, "release", first)
    w.cycle()
    assert (w.phase(first), w.phase(second)) == ("starting", "waiting")


def test_a_plan_made_before_a_hold_does_not_start_the_job():
    w = cluster(1, 1)
    job = w.submit(1)
    planned = w.plan()
    do(w, "hold", job)
    assert (w.apply(planned).starts, w.phase(job)) == ((), "waiting")


def test_room_that_was_made_for_a_held_job_is_for_others():
    w = cluster(1, 1)
    victim = w.submit(1, priority=100)
    w.run(victim)
    urgent = w.submit(1, priority=900)
    w.cycle()
    assert w.phase(victim) == "stopping"
    do(w, "hold", urgent)
    w.leave(victim)
    w.cycle()
    assert (w.phase(victim), w.job(urgent).room_made) == ("starting", False)


def test_a_held_job_whose_dependency_ends_stays_held():
    w = cluster(1, 2)
    first = w.submit(1)
    second = w.submit(1, after=(Dependency(first, "after_ok"),))
    do(w, "hold", second)
    w.run(first)
    w.exit_replica(first)
    w.cycle()
    assert w.phase(second) == "waiting"


def test_a_held_job_is_held_after_a_snapshot_too():
    w = cluster(1, 1)
    job = w.submit(1)
    do(w, "hold", job)
    again = State.from_image(w.state.image())
    assert (again.jobs[job].hold, again.indexes.pending) == (w.job(job).hold, {})


def test_a_held_job_says_by_whom_and_how_it_goes_on():
    w = cluster(1, 1)
    job = w.submit(1)
    do(w, "hold", job)
    found = explain(w.state, w.job(job), w.now)
    assert (found.code, found.text.startswith("held by ann since ")) == ("held", True)
    assert found.text.endswith(f": penstock release {job}")


def test_a_held_job_can_be_cancelled():
    w = cluster(1, 1)
    job = w.submit(1)
    do(w, "hold", job)
    assert (w.cancel(job), w.phase(job)) == (True, "cancelled")


def test_a_requeued_job_waits_again_at_no_cost_of_its_retries():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    assert do(w, "requeue", job) == [None]
    assert (w.phase(job), w.attempt(job).stop.reason) == ("stopping", "requeued")
    w.leave(job)
    now = w.job(job)
    assert (now.state, now.retries_used, now.preemptions, now.infrastructure_failures) == ("waiting", 0, 0, 0)
    w.run(job)
    assert w.attempt(job).number == 2


def test_a_job_that_is_requeued_to_be_held_starts_no_attempt_in_between():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    assert do(w, "requeue_hold", job) == [None]
    assert (w.phase(job), w.job(job).hold) == ("stopping", None)
    w.leave(job)
    assert (w.phase(job), w.job(job).hold.by) == ("waiting", ANN)
    w.cycle()
    assert w.job(job).last_attempt == 1
    do(w, "release", job)
    w.run(job)
    assert w.attempt(job).number == 2


def test_a_job_that_is_released_before_it_is_held_is_not_held():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    do(w, "requeue_hold", job)
    assert (do(w, "release", job), do(w, "release", job)) == ([None], ["not_held"])
    w.leave(job)
    assert (w.phase(job), w.job(job).hold) == ("waiting", None)


def test_a_job_that_ends_otherwise_is_not_held():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    do(w, "requeue_hold", job)
    w.cancel(job)
    w.leave(job)
    assert w.phase(job) == "cancelled"


def test_a_requeue_stands_in_the_log_with_its_cause():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    do(w, "requeue", job)
    (ruling,) = [r for r in audit(w.records) if r.kind == "stop"]
    assert [(c.holds, c.text) for c in ruling.checks] == [(True, "ann asked for it to wait again")]


@pytest.mark.parametrize(
    ("state", "action", "why"),
    [
        ("waiting", "release", "not_held"),
        ("waiting", "requeue", "waiting"),
        ("waiting", "save", "not_running"),
        ("running", "hold", "not_waiting"),
        ("running", "save", "cannot_checkpoint"),
        ("stopping", "requeue", "stopping"),
        ("over", "hold", "over"),
        ("held", "hold", "held_already"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_says_why(state, action, why):
    w = cluster(1, 1)
    job = w.submit(1)
    if state in ("running", "stopping"):
        w.run(job)
    if state == "stopping":
        do(w, "requeue", job)
    if state == "over":
        w.cancel(job)
    if state == "held":
        do(w, "hold", job)
    seq = w.state.seq
    assert (do(w, action, job), w.state.seq) == ([why], seq)


def test_every_refusal_has_its_words():
    assert set(REFUSAL_TEXT) == set(ActionRefusal.__args__)


def test_a_waiting_job_is_edited_and_planned_by_its_new_values():
    w = cluster(1, 1)
    first, second = w.submit(1), w.submit(1)
    assert do(w, "edit", second, priority=900, name="urgent") == [None]
    w.cycle()
    assert (w.phase(first), w.phase(second), w.job(second).spec.name) == ("waiting", "starting", "urgent")


def test_a_queue_is_changed_with_all_that_is_counted_by_queue():
    w = cluster(1, 1, queues=(Queue("default"), Queue("other")))
    job = w.submit(1)
    assert do(w, "edit", job, queue="other") == [None]
    assert (w.state.jobs.in_queue("default", "waiting"), w.state.jobs.in_queue("other", "waiting")) == (0, 1)


def test_a_plan_made_before_an_edit_decides_nothing_about_the_job():
    w = cluster(1, 1)
    victim = w.submit(1, priority=100)
    w.run(victim)
    w.submit(1, priority=900)
    planned = w.plan()
    assert [p.victim for p in planned.preemptions] == [victim]
    do(w, "edit", victim, priority=950)
    assert (w.apply(planned).preemptions, w.phase(victim)) == ((), "running")


def test_a_time_limit_of_a_running_job_is_changed():
    w = cluster(1, 1)
    job = w.submit(1, time_limit_ms=10_000)
    w.run(job)
    do(w, "edit", job, time_limit_ms=60_000)
    w.tick(20_000)
    assert w.phase(job) == "running"
    w.tick(60_000)
    assert w.attempt(job).stop.reason == "time_limit"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"queue": "other"}, "fixed_while_running"),
        ({"preemptible": False}, "fixed_while_running"),
        ({"max_wait_ms": 5}, "fixed_while_running"),
        ({"priority": 500}, "same"),
    ],
)
def test_what_a_running_job_was_placed_by_stays(change, why):
    w = cluster(1, 1, queues=(Queue("default"), Queue("other")))
    job = w.submit(1)
    w.run(job)
    assert do(w, "edit", job, **change) == [why]


def test_a_job_that_is_being_stopped_keeps_its_values():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    do(w, "requeue", job)
    assert do(w, "edit", job, priority=900) == ["stopping"]


def test_a_full_queue_and_one_that_could_never_hold_it_take_no_job():
    full, small = Queue("full", max_waiting=1), Queue("small", max=(("devices", 1_000),))
    w = cluster(1, 2, queues=(Queue("default"), full, small))
    w.submit(1, queue="full")
    job = w.submit(2)
    assert do(w, "edit", job, queue="full") == ["queue_full"]
    assert do(w, "edit", job, queue="small") == ["never_starts"]


def test_a_move_to_another_queue_keeps_to_the_share_that_a_submission_keeps_to():
    w = World(node(), queues=(Queue("default"), Queue("small", max_waiting=6)), users=(User("ann"), User("bob")))
    jobs = w.request(job_spec(1), array=5).job_ids
    assert do(w, "edit", *jobs, queue="small") == [None, None, None, None, "share_used_up"]
    assert w.request(job_spec(1, queue="small"), user="bob").job_ids


def test_an_administrator_moves_jobs_beyond_the_share_of_their_users():
    w = World(node(), queues=(Queue("default"), Queue("small", max_waiting=6)), users=(User("ann"), User("bob")))
    jobs = w.request(job_spec(1), array=7).job_ids
    assert do(w, "edit", *jobs, administrator=True, queue="small") == [None] * 6 + ["queue_full"]


def test_a_queue_that_was_removed_since_is_unknown():
    w = cluster(1, 1)
    job = w.submit(1)
    assert do(w, "edit", job, queue="gone") == ["unknown_queue"]


def test_a_lease_keeps_a_time_limit():
    w = cluster(1, 1)
    job = w.submit(1, lease=True, time_limit_ms=1_000)
    assert do(w, "edit", job, time_limit_ms=0) == ["lease_limit"]


def test_labels_are_set_and_removed():
    w = cluster(1, 1)
    job = w.submit(1, labels=(("a", "1"), ("b", "2")))
    do(w, "edit", job, labels=(("c", "3"),), labels_removed=("a",))
    assert w.job(job).spec.labels == (("b", "2"), ("c", "3"))


def test_edits_give_a_job_no_more_labels_than_a_job_file_may():
    w = cluster(1, 1)
    many = tuple((f"l{i:02}", "x") for i in range(LABELS_MAX - 1))
    job = w.submit(1, labels=many)
    assert do(w, "edit", job, labels=(("y", "1"), ("z", "1"))) == ["too_many_labels"]
    assert do(w, "edit", job, labels=(("y", "1"), ("z", "1")), labels_removed=("l00",)) == [None]
    assert len(w.job(job).spec.labels) == LABELS_MAX


def test_a_job_of_a_former_version_with_more_labels_is_edited_while_it_gets_no_more():
    w = cluster(1, 1)
    job = w.submit(1, labels=tuple((f"l{i:03}", "x") for i in range(LABELS_MAX + 5)))
    assert do(w, "edit", job, priority=900, labels_removed=("l000",)) == [None]
    assert do(w, "edit", job, labels=(("more", "1"), ("still", "1"))) == ["too_many_labels"]


def test_an_array_that_is_edited_keeps_one_spec():
    w = cluster(1, 1)
    first, second = w.request(job_spec(1), array=2).job_ids
    do(w, "edit", first, second, priority=900)
    assert w.job(first).spec is w.job(second).spec


def test_what_ran_at_another_priority_is_accounted_apart():
    w = cluster(1, 1)
    job = w.submit(1, priority=100)
    w.run(job)
    w.now += 1_000
    do(w, "edit", job, priority=900)
    w.now += 2_000
    w.exit_replica(job)
    held = [(s.priority, s.end_ms - s.start_ms, s.ended) for s in sessions(w.records)]
    assert held == [(100, 1_000, "edited"), (900, 2_000, "released")]


def test_the_history_of_a_job_has_its_last_values():
    w = cluster(1, 1)
    job = w.submit(1, name="old")
    do(w, "edit", job, name="new")
    history = History()
    for record in w.records:
        history.take(record)
    assert history.jobs[job].submitted.spec.name == "new"


def test_counting_says_the_same_as_doing():
    w = cluster(1, 1)
    job = w.submit(1)
    empty = w.state.empty_tree()
    assert why_not(w.state, job, "hold", empty=empty) is None
    assert do(w, "hold", job) == [None]
    assert why_not(w.state, job, "hold", empty=empty) == "held_already"


def test_the_fold_of_the_log_is_the_live_state():
    w = cluster(1, 2)
    jobs = [w.submit(1) for _ in range(3)]
    do(w, "hold", jobs[0])
    w.run(jobs[1], jobs[2])
    do(w, "requeue", jobs[1])
    do(w, "edit", *jobs, priority=700)
    state = State()
    for record in w.records:
        state.apply(record)
    assert state.image() == w.state.image()
