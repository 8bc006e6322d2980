"""Attempts that hold their places and are idle: what counts as that, what is said, and for whom they make room."""

import pytest
from msgspec.structs import replace

from penstock.core.audit.rederive import audit
from penstock.core.cycle.triggers import wakes
from penstock.core.explain.why import explain
from penstock.core.lifecycle import reports
from penstock.core.model.cluster import IdleRule, Queue
from penstock.core.model.events import (
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    CheckpointSaved,
    HangFound,
    IdleNoted,
    ReplicaFrozen,
    UseNoted,
)
from penstock.core.state.idleness import MEASURED_HOLDS_MS, SILENT_MS, idle_for_ms, idle_of, makes_room
from penstock.testing.harness import World, cluster, follow, note

MINUTE = 60_000
RULE = IdleRule(30 * MINUTE, "when_wanted")


def queue(rule=RULE, **fields):
    return (Queue("default", idle=rule, **fields),)


def time_passes(w: World, length_ms: int) -> None:
    w.now += length_ms
    w.commit(reports.on_time)


def idle_job(w: World, lasts_ms: int = 31 * MINUTE, *, wait_milli: int = 950, saves: bool = True, **fields) -> int:
    """Run a job that says every ten minutes, for so long, that it waits for data."""
    job = w.submit(1, **fields)
    w.run(job)
    if saves:
        w.emit(CheckpointSaved(job, w.job(job).attempt.number, 1))
    for step in range(1, 2 + lasts_ms // (10 * MINUTE)):
        note(w, job, step, step_ms=1_000, data_wait_milli=wait_milli)
        time_passes(w, min(10 * MINUTE, lasts_ms - (step - 1) * 10 * MINUTE))
    return job


def said(w):
    return [(r.event.job_id, r.event.cause, r.event.idle_ms) for r in w.records if isinstance(r.event, IdleNoted)]


def asked(w):
    return [(p.victim, p.beneficiary, p.rule) for p in w.cycle().preemptions]


# What counts as idle.


@pytest.mark.parametrize(("wait_milli", "cause"), [(0, None), (900, None), (901, "data"), (1_000, "data")])
def test_idle_is_who_waits_for_data_for_nine_tenths_of_the_time(wait_milli, cause):
    w = cluster(1, 1)
    job = w.job(idle_job(w, MINUTE, wait_milli=wait_milli))
    assert getattr(idle_of(job, w.now), "cause", None) == cause


def test_it_is_idle_since_the_first_note_that_said_so():
    w = cluster(1, 1)
    begun = w.now
    job = idle_job(w, 25 * MINUTE)
    assert idle_of(w.job(job), w.now).since_ms == begun
    note(w, job, 9, step_ms=1_000, data_wait_milli=100)
    assert idle_of(w.job(job), w.now) is None
    assert w.state.indexes.idle == set()
    note(w, job, 10, step_ms=1_000, data_wait_milli=950)
    assert idle_of(w.job(job), w.now).since_ms == w.now


def test_who_tells_nothing_new_for_long_is_not_known_to_be_idle():
    w = cluster(1, 1)
    job = idle_job(w, 5 * MINUTE)
    note(w, job, 7, step_ms=1_000, data_wait_milli=950)
    last = w.now
    for _ in range(3):
        w.now += 6 * MINUTE
        note(w, job, 7, step_ms=1_000, data_wait_milli=950)  # the server notes it again; the program said nothing
    assert idle_of(w.job(job), last + SILENT_MS) is not None
    assert idle_of(w.job(job), last + SILENT_MS + 1) is None


# What is measured.


def measured(w, job, busy_milli, covered_ms=10 * MINUTE, untouched=0):
    w.emit(UseNoted(job, w.attempt(job).number, covered_ms, busy_milli, untouched))


@pytest.mark.parametrize(("busy_milli", "idle"), [(0, True), (99, True), (100, False), (1_000, False)])
def test_whose_devices_are_measured_busy_for_less_than_a_tenth_of_the_time_is_idle(busy_milli, idle):
    w = cluster(1, 1)
    job = idle_job(w, 0, saves=False)
    begun = w.now
    w.now += SILENT_MS + 10 * MINUTE
    measured(w, job, busy_milli, covered_ms=15 * MINUTE)
    found = idle_of(w.job(job), w.now)
    assert (found is not None) == idle
    assert w.state.indexes.idle == {job}  # by its own last words, or as measured
    if idle:
        assert (found.cause, found.since_ms) == ("unused", begun + SILENT_MS)
        assert found.text == f"uses its devices {busy_milli // 10} % of the time, as measured"


def test_a_program_that_says_nothing_is_idle_since_its_devices_are():
    w = cluster(1, 1, queues=queue())
    job = w.submit(1)
    w.run(job)
    begun = w.now
    for _ in range(3):
        time_passes(w, 10 * MINUTE)
        measured(w, job, 20)
    assert idle_of(w.job(job), w.now).since_ms == begun
    assert said(w) == [(job, "unused", 30 * MINUTE)]
    assert "uses its devices 2 % of the time" in explain(w.state, w.job(job), w.now).text
    measured(w, job, 800)
    assert idle_of(w.job(job), w.now) is None
    for _ in range(4):
        time_passes(w, 10 * MINUTE)
        measured(w, job, 0)
    time_passes(w, 1)
    assert [one[:2] for one in said(w)] == [(job, "unused")] * 2


def test_what_a_program_says_goes_before_what_is_measured_as_long_as_it_holds():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    note(w, job, 1, step_ms=1_000)
    w.now += 10 * MINUTE
    measured(w, job, 0)
    assert idle_of(w.job(job), w.now) is None
    w.now += SILENT_MS - 10 * MINUTE + 1
    assert idle_of(w.job(job), w.now).cause == "unused"


def test_a_measurement_that_is_not_renewed_is_no_longer_known():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    measured(w, job, 0)
    assert idle_of(w.job(job), w.now + MEASURED_HOLDS_MS) is not None
    assert idle_of(w.job(job), w.now + MEASURED_HOLDS_MS + 1) is None


def test_another_attempt_is_not_idle_for_what_was_measured_of_the_last():
    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    measured(w, job, 0)
    w.exit_replica(job, code=1)
    w.now += 5 * MINUTE
    w.run(job)
    assert idle_of(w.job(job), w.now) is None
    assert w.state.indexes.idle == set()


def test_what_takes_long_steps_is_known_for_longer():
    w = cluster(1, 1)
    job = w.submit(1)
    w.run(job)
    note(w, job, 1, step_ms=60 * MINUTE, data_wait_milli=950)
    assert idle_of(w.job(job), w.now + 180 * MINUTE) is not None
    assert idle_of(w.job(job), w.now + 180 * MINUTE + 1) is None


def test_who_hangs_is_idle_since_its_last_step():
    w = cluster(1, 1)
    job = idle_job(w, MINUTE, wait_milli=0)
    w.emit(HangFound(job, 1, 1, (0,), "rank 0 waits in read", 40_000))
    idle = idle_of(w.job(job), w.now)
    assert (idle.cause, idle.since_ms) == ("hang", w.now - 40_000)
    note(w, job, 2, step_ms=1_000)
    assert idle_of(w.job(job), w.now) is None


def test_a_hang_that_a_checkpoint_ended_is_none():
    w = cluster(1, 1)
    job = idle_job(w, MINUTE, wait_milli=0)
    w.emit(HangFound(job, 1, 1, (0,), "rank 0 waits in read", 40_000))
    w.emit(CheckpointSaved(job, 1, 5))
    assert idle_of(w.job(job), w.now) is None


def test_suspended_time_is_not_idle_time():
    w = cluster(1, 1, queues=queue())
    job = w.submit(0, cpus=4, on_preempt="suspend")
    w.run(job)
    note(w, job, 1, step_ms=1_000, data_wait_milli=950)
    time_passes(w, 10 * MINUTE)
    w.emit(AttemptStopRequested(job, 1, "suspended", 1_000), ReplicaFrozen(job, 1, 0), AttemptSuspended(job, 1))
    assert idle_of(w.job(job), w.now) is None
    time_passes(w, 50 * MINUTE)
    w.emit(AttemptResumed(job, 1))
    assert idle_for_ms(w.job(job), idle_of(w.job(job), w.now), w.now) == 10 * MINUTE


def test_another_attempt_begins_anew():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w, retries_max=1)
    assert (w.job(job).progress.idle_noted, w.state.indexes.idle) == (True, {job})
    w.exit_replica(job, 0, 1)
    w.now += MINUTE
    w.run(job)
    assert (idle_of(w.job(job), w.now), w.state.indexes.idle) == (None, set())
    note(w, job, 1, step_ms=1_000, data_wait_milli=950)
    assert (idle_of(w.job(job), w.now).since_ms, w.job(job).progress.idle_noted) == (w.now, False)


# What is said.


def test_it_is_said_once_and_after_so_long():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w, 29 * MINUTE)
    assert said(w) == []
    time_passes(w, MINUTE)
    assert said(w) == [(job, "data", 30 * MINUTE)]
    time_passes(w, MINUTE)
    assert len(said(w)) == 1


def test_who_worked_in_between_is_told_again():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w)
    note(w, job, 50, step_ms=1_000, data_wait_milli=0)
    assert not w.job(job).progress.idle_noted
    note(w, job, 51, step_ms=1_000, data_wait_milli=990)
    for step in (52, 53, 54):
        time_passes(w, 10 * MINUTE)
        note(w, job, step, step_ms=1_000, data_wait_milli=990)
    time_passes(w, 1)
    assert [at[1] for at in said(w)] == ["data", "data"]


def test_nothing_is_said_where_no_queue_asks_for_it():
    w = cluster(1, 1)
    idle_job(w, 300 * MINUTE)
    assert said(w) == []


def test_a_queue_has_the_rule_of_the_one_above_it():
    tree = (Queue("a", idle=RULE), Queue("b", parent="a"), Queue("c", parent="b", idle=IdleRule(5)), Queue("d"))
    w = cluster(1, 1, queues=tree)
    assert w.state.config.idle_rules == {"a": RULE, "b": RULE, "c": IdleRule(5)}


def test_an_idle_job_is_explained():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w)
    text = explain(w.state, w.job(job), w.now).text
    assert "idle for 31m 0s: it waits for data 95 % of the time; it saves and leaves as soon as" in text


# For whom it makes room.


def test_it_makes_room_for_who_waits_and_fits_there_and_is_not_below_it():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w)
    assert asked(w) == []
    wanted = w.submit(1)
    assert asked(w) == [(job, wanted, "held_idle")]
    stop = w.job(job).attempt.stop
    assert (stop.reason, stop.grace_ms) == ("preempted", w.job(job).spec.grace_ms)
    follow(w)
    w.cycle()
    assert (w.phase(wanted), w.phase(job)) == ("starting", "waiting")


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"saves": False}, {}),
        ({"preemptible": False}, {}),
        ({"priority": 501}, {}),
        ({}, {"devices": 2}),
        ({"wait_milli": 800}, {}),
        ({"lasts_ms": 29 * MINUTE}, {}),
    ],
)
def test_it_stays_where_that_would_lose_work_or_help_nobody(fields, wanted):
    w = cluster(1, 1, queues=queue(), allow_waiting_for_nodes=True)
    idle_job(w, **fields)
    w.submit(wanted.get("devices", 1))
    assert asked(w) == []


@pytest.mark.parametrize("rule", [None, IdleRule(30 * MINUTE)])
def test_it_stays_where_its_queue_does_not_want_it_to_leave(rule):
    w = cluster(1, 1, queues=queue(rule))
    job = idle_job(w)
    w.submit(1)
    assert asked(w) == []
    assert not makes_room(w.job(job), w.state.config.idle_rules, w.now)


def test_it_stays_for_a_queue_that_asks_nobody():
    w = cluster(1, 1, queues=(Queue("default", idle=RULE), Queue("meek", preemption="never")))
    idle_job(w)
    w.submit(1, queue="meek")
    assert asked(w) == []


def test_the_idle_one_leaves_before_one_that_works_and_costs_less():
    w = cluster(1, 2, queues=queue())
    job = idle_job(w, priority=400)
    busy = w.submit(1, priority=100)
    w.run(busy)
    high = w.submit(1, priority=900)
    assert asked(w) == [(job, high, "held_idle")]


def test_what_its_queue_is_guaranteed_stays_with_it():
    owner = Queue("owner", guaranteed=(("devices", 1_000),), idle=RULE)
    w = cluster(1, 2, queues=(owner, Queue("other", guaranteed=())))
    idle_job(w, queue="owner")
    w.run(w.submit(1, queue="other"))
    w.submit(1, queue="other")
    assert asked(w) == []


def test_a_guaranteed_run_time_comes_first():
    w = cluster(1, 1, queues=queue(min_runtime_ms=40 * MINUTE))
    job = idle_job(w)
    wanted = w.submit(1)
    assert asked(w) == []
    note(w, job, 70, step_ms=1_000, data_wait_milli=950)
    w.now += 9 * MINUTE
    assert asked(w) == [(job, wanted, "held_idle")]


def test_who_became_silent_is_left_alone():
    w = cluster(1, 1, queues=queue())
    idle_job(w)
    w.now += SILENT_MS + 1
    w.submit(1)
    assert asked(w) == []


def test_nobody_starts_in_its_place_who_would_have_to_give_it_back():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w)
    wanted = w.submit(1)
    w.cycle()
    follow(w)
    for _ in range(3):
        assert asked(w) == []
        follow(w)
        w.now += MINUTE
    assert (w.phase(wanted), w.phase(job)) == ("running", "waiting")


def test_the_log_shows_that_it_was_lawful():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w)
    w.submit(1)
    w.cycle()
    (ruling,) = [one for one in audit(w.records, job) if one.kind == "stop"]
    checks = {check.rule: check.holds for check in ruling.checks}
    assert (ruling.lawful, checks) == (
        True,
        {"preemptible": True, "min_runtime": True, "held_idle": True, "needed": True},
    )
    kept = replace(w.state.config, queues=queue(IdleRule(30 * MINUTE)))
    other = [replace(r, event=replace(r.event, config=kept)) if r.seq == 1 else r for r in w.records]
    (ruling,) = [one for one in audit(other, job) if one.kind == "stop"]
    assert [check.holds for check in ruling.checks if check.rule == "held_idle"] == [False]


def test_a_cycle_is_due_when_somebody_waits_whom_it_would_let_in():
    w = cluster(1, 1, queues=queue())
    job = idle_job(w, 10 * MINUTE)
    quiet = IdleNoted(job, 1, "data", 30 * MINUTE)
    told = replace(quiet, reclaim=True)
    assert not wakes(told, w.state, w.cycle())
    w.submit(1)
    waiting = w.cycle()
    assert wakes(told, w.state, waiting)
    assert not wakes(quiet, w.state, waiting)


def test_a_job_that_is_too_large_even_then_is_told_who_could_leave():
    w = cluster(1, 2, queues=queue())
    idle_job(w)
    w.run(w.submit(1))
    wanted = w.submit(2)
    found = {c.code: c.text for c in explain(w.state, w.job(wanted), w.now).constraints}
    assert found["victims_short"] == "1 job may be asked to leave (1), and even without them it does not fit"
