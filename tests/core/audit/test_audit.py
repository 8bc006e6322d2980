"""Decisions made again from a log: the same inputs give the same, and whatever was changed afterwards shows."""

import random
from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from penstock.core.audit import audit
from penstock.core.model import events as ev
from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import LeaderElected
from penstock.core.model.ids import Epoch
from penstock.sim.replay.replay import ORIGIN_MS
from penstock.sim.world.world import World
from penstock.testing.builders import config, node
from tests.sim.replay.builders import MINUTE, SECOND, job, ran, trace
from tests.sim.replay.test_many_rules import replayed


@cache
def replayed_log(seed):
    records = []
    replayed(seed, on_records=records.extend)
    return tuple(records)


def log_of(seed):
    return list(replayed_log(seed))


def told(*jobs, **fields):
    records = []
    ran(trace(*jobs, **fields), on_records=records.extend)
    return records


def checks(ruling):
    return {check.rule: check for check in ruling.checks}


@pytest.mark.parametrize("seed", range(40))
def test_every_decision_comes_out_again_and_is_lawful(seed):
    rulings = list(audit(log_of(seed)))
    assert rulings
    assert [r for r in rulings if not r.lawful] == []
    assert all(r.same for r in rulings if r.planned)


def noticed(records):
    try:
        return any(not ruling.lawful for ruling in audit(records))
    except InvalidInput:
        return True


@pytest.mark.parametrize("seed", range(40))
def test_what_was_changed_afterwards_shows(seed):
    r, records = random.Random(seed), log_of(seed)
    at = r.choice([i for i, record in enumerate(records) if isinstance(record.event, ev.AttemptAllocated)])
    event = records[at].event
    changes = [{"rule": "worst_fit"}, {"waited_ms": event.waited_ms + 1}]
    place = event.places[-1]
    if place.devices:
        moved = replace(place, devices=tuple((i + 1) % 4 for i in place.devices))
        changes.append({"places": (*event.places[:-1], moved)})
    changed = replace(event, **r.choice(changes))
    records[at] = replace(records[at], event=changed)
    assert noticed(records)


def test_a_log_that_does_not_follow_is_refused():
    records = log_of(1)
    at = next(i for i, record in enumerate(records) if isinstance(record.event, ev.JobSubmitted))
    records[at] = replace(records[at], event=ev.NodeReady(records[2].event.node))
    with pytest.raises(InvalidInput, match=r"record \d+ \(\w+\) does not follow from those before it"):
        list(audit(records))


def preempted_log(**fields):
    """Return a log in which job 2, of higher priority, takes the place of job 1."""
    low = job(0, 1000, 4, priority=100, saves=True, **fields)
    return told(low, job(300, 60, 2, priority=900), rules=config(min_runtime_before_preemption_ms=MINUTE))


def test_whom_a_job_left_for_and_by_what_right():
    (stop,) = [r for r in audit(preempted_log(), 1) if r.kind == "stop"]
    assert (stop.beneficiary, stop.rule, stop.same, stop.lawful) == (2, "lower_priority", True, True)
    found = checks(stop)
    assert found["priority"].text == "its priority 100 is below 900 of job 2"
    assert found["min_runtime"].text == "it had run for 5m; 1m are guaranteed"
    assert found["needed"].text == "left alone: job 2 keeps waiting"


def test_a_job_is_told_who_left_for_it():
    rulings = list(audit(preempted_log(), 2))
    assert [(r.kind, r.job_id) for r in rulings] == [("stop", 1), ("start", 2)]
    assert [(r.kind, r.job_id) for r in audit(preempted_log(), 1)] == [("start", 1), ("stop", 1), ("start", 1)]


@pytest.mark.parametrize(
    ("field", "value", "broken"),
    [
        ("priority", 950, "priority"),
        ("preemptible", False, "preemptible"),
    ],
)
def test_a_stop_that_was_not_lawful_is_named(field, value, broken):
    """The log is made to tell of a victim that nobody may ask: the stop does not come out again, and says why."""
    records = [
        replace(r, event=replace(r.event, spec=replace(r.event.spec, **{field: value})))
        if isinstance(r.event, ev.JobSubmitted) and r.event.job_id == 1
        else r
        for r in preempted_log()
    ]
    (stop,) = [r for r in audit(records, 1) if r.kind == "stop"]
    assert (stop.same, stop.lawful) == (False, False)
    assert not checks(stop)[broken].holds
    assert stop.instead == "it is not asked to leave"


def test_a_stop_before_the_guaranteed_run_time_is_named():
    records = preempted_log()
    longer = config(min_runtime_before_preemption_ms=10 * MINUTE)
    records[0] = replace(records[0], event=replace(records[0].event, config=longer))
    (stop,) = [r for r in audit(records, 1) if r.kind == "stop"]
    assert not checks(stop)["min_runtime"].holds
    assert checks(stop)["min_runtime"].text == "it had run for 5m; 10m are guaranteed"


@pytest.mark.parametrize(("turn_milli", "lawful"), [(1_000, True), (20_000, False)])
def test_a_stop_for_less_service_says_how_long_the_victim_waited_and_ran(turn_milli, lawful):
    las, step = (Queue("default", policy="least_attained"),), {"least_attained_step_device_ms": MINUTE}
    jobs = (job(0, 120, 4, preemptible=False), job(1, 1000, 4, saves=True), job(300, 60, 4))
    records = told(*jobs, rules=config(queues=las, min_runtime_before_preemption_ms=0, **step))
    longer = config(queues=las, min_runtime_before_preemption_ms=0, **step, least_attained_turn_milli=turn_milli)
    records[0] = replace(records[0], event=replace(records[0].event, config=longer))
    (stop,) = [r for r in audit(records, 2) if r.kind == "stop"]
    assert (stop.rule, stop.lawful) == ("less_service", lawful)
    assert checks(stop)["turn"].text == "it had waited 1m59s for its place and run for 3m"
    assert checks(stop)["turn"].holds == lawful


def test_a_guarantee_that_is_taken_back_is_told_in_numbers():
    queues = (Queue("a", guaranteed=(("devices", 4_000),), preemption="reclaim"), Queue("b"))
    jobs = (job(0, 1000, 4, queue="b", saves=True), job(1, 1000, 4, queue="b", saves=True), job(200, 60, 2, queue="a"))
    rules = config(queues=queues, min_runtime_before_preemption_ms=0)
    records = told(*jobs, nodes=(node("n", 8),), rules=rules)
    (stop,) = [r for r in audit(records, 3) if r.kind == "stop"]
    assert stop.rule == "reclaim"
    assert checks(stop)["borrowed"].text == "queue b holds 8 devices, 0 guaranteed"
    assert stop.lawful


def test_a_maximum_is_told_with_the_start():
    rules = config(queues=(Queue("q", max=(("devices", 3_000),)),))
    (one, two) = audit(told(job(0, 60, 1, queue="q"), job(0, 60, 2, queue="q"), rules=rules))
    assert checks(one)["maximum"].text == "queue q: devices 1 of at most 3 used, with it"
    assert checks(two)["maximum"].text == "queue q: devices 3 of at most 3 used, with it"


def test_whom_a_start_passed_is_told():
    jobs = (job(0, 600, 3, estimated_duration_ms=600 * SECOND), job(1, 60, 4), job(2, 60, 1, time_limit_ms=MINUTE))
    rules = config(pools=(Pool("default", backfill="easy"),))
    (start,) = audit(told(*jobs, rules=rules), 3)
    assert checks(start)["passed"].text == "older jobs that keep waiting: no_fit: 1 (2)"


def test_the_scores_show_the_chosen_node_among_others():
    nodes = (node("a", 8), node("b", 4), node("c", 8))
    (_, start) = audit(told(job(0, 600, 2), job(10, 60, 2), nodes=nodes))
    assert start.scores == ()  # of all jobs: too much to show
    (start,) = audit(told(job(0, 600, 2), job(10, 60, 2), nodes=nodes), 2)
    chosen = [score for score in start.scores if score.chosen]
    assert [score.node for score in chosen] == [start.text.rsplit(maxsplit=1)[-1]]
    assert start.scores[0] == chosen[0]
    assert sum(1 + score.alike for score in start.scores) == 3


def test_the_digest_tells_one_state_from_another():
    one, again = (next(audit(preempted_log(), 1)) for _ in range(2))
    other = next(audit(preempted_log(name="other"), 1))
    assert len(one.digest) == 64
    assert one.digest == again.digest != other.digest


def test_what_follows_from_what_happened_needs_no_plan():
    records = told(job(0, 600, 1, time_limit_ms=MINUTE))
    (_, stop) = audit(records, 1)
    assert (stop.planned, stop.same, stop.lawful) == (False, None, True)
    assert checks(stop)["time_limit"].text == "it had run for 1m of 1m allowed"


def test_a_log_from_before_decisions_said_what_they_were_made_on():
    records = [
        replace(r, event=replace(r.event, basis=0, decided_ms=0)) if hasattr(r.event, "basis") else r
        for r in preempted_log()
    ]
    rulings = list(audit(records))
    assert {r.same for r in rulings} == {None}
    assert all(r.planned and not r.lawful for r in rulings)


def test_decisions_are_told_with_time_and_basis():
    (start,) = audit(told(job(5, 60)))
    assert (start.decided_ms, start.time_ms) == (ORIGIN_MS + 5 * SECOND,) * 2
    assert start.basis == start.seq - 1
    assert msgspec.json.decode(msgspec.json.encode(start))["same"] is True


def test_who_would_have_left_instead_is_told_with_the_cost():
    low = (job(0, 1000, 4, priority=100, saves=True), job(60, 1000, 4, priority=100, saves=True))
    records = told(*low, job(300, 60, 2, priority=900), nodes=(node("a", 4), node("b", 4)))
    (stop,) = [r for r in audit(records, 2) if r.kind == "stop"]
    assert checks(stop)["needed"].text == (
        "left alone: job 1 would leave instead, which costs 27m 28s of device time; this costs 23m 28s"
    )


@pytest.mark.parametrize("seed", range(25))
def test_what_was_decided_amid_faults_is_lawful(seed):
    """Logs of the fault simulator: plans are committed on newer states, nodes and servers die in between."""
    world = World(seed)
    world.run()
    rulings = list(audit(list(world.disk.records)))
    assert [r for r in rulings if not r.lawful] == []


@pytest.mark.parametrize("change", [{"grace_ms": 0}, {"reason": "drained"}, {"basis": 0}, {"basis": 10**6}])
def test_a_stop_that_was_changed_afterwards_shows(change):
    elected = LeaderElected(Epoch(1), "s", "0.1.0")
    records = [replace(r, seq=r.seq + 1) for r in preempted_log()]
    records = [replace(records[0], seq=1, event=elected), *(moved(r) for r in records)]
    assert all(r.lawful for r in audit(records))
    at = next(i for i, r in enumerate(records) if isinstance(r.event, ev.AttemptStopRequested))
    records[at] = replace(records[at], event=replace(records[at].event, **change))
    assert [r.seq for r in audit(records) if not r.lawful] == [records[at].seq]


def moved(record):
    """Return a record whose decision was made one record later, as its number says."""
    if getattr(record.event, "basis", 0):
        return replace(record, event=replace(record.event, basis=record.event.basis + 1))
    return record


def test_a_decision_that_was_left_out_shows():
    records = told(job(0, 60, 1), job(0, 60, 1), job(0, 60, 1))
    at = max(i for i, r in enumerate(records) if isinstance(r.event, ev.AttemptAllocated))
    assert at
    records = [replace(r, seq=i) for i, r in enumerate(records[:at], start=1)]
    assert not any(r.lawful for r in audit(records))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: replace(e, job_id=99),
        lambda e: replace(e, places=(replace(e.places[0], devices=(77,)),)),
        lambda e: replace(e, places=(replace(e.places[0], node="nowhere"),)),
    ],
)
def test_records_that_cannot_be_are_an_error_and_no_traceback(spoil):
    records = told(job(0, 60, 1))
    at = next(i for i, r in enumerate(records) if isinstance(r.event, ev.AttemptAllocated))
    records[at] = replace(records[at], event=spoil(records[at].event))
    with pytest.raises(InvalidInput, match="does not follow"):
        list(audit(records))
