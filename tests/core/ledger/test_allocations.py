"""Allocations: a bar for each attempt and node, and the same ones however often the fold is interrupted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger.allocations import AllocationImage, AllocationLog, allocations
from penstock.core.ledger.sessions import sessions
from penstock.core.model.actions import JobChange
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import JobEdited
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster
from tests.core.histories import operations, play, small_world
from tests.properties import examples


def test_a_bar_lasts_from_the_allocation_to_the_end_of_the_last_replica_there():
    w = cluster(2, 2)
    job = w.submit(2, replicas=2, name="gang", user="ann")
    w.run(job)
    begun = w.now
    w.now += 1_000
    w.exit_replica(job, 0)
    w.now += 1_000
    w.exit_replica(job, 1)
    first, second = sorted(allocations(w.records), key=lambda one: one.end_ms)
    assert (first.start_ms, first.end_ms, second.end_ms) == (begun, begun + 1_000, begun + 2_000)
    assert {first.node, second.node} == {"n0", "n1"}
    assert (first.devices, first.device_milli, first.outcome) == ((0, 1), 2_000, "succeeded")
    assert (second.job_id, second.attempt, second.job_name, second.user) == (job, 1, "gang", "ann")


def test_one_that_lasts_has_no_end_and_no_outcome():
    w = cluster(1, 4)
    w.run(w.submit(1))
    (found,) = allocations(w.records)
    assert (found.end_ms, found.outcome, found.devices) == (0, "", (0,))


def test_a_lost_node_ends_what_was_there():
    w = World(node("n1", 2))
    w.run(w.submit(1))
    w.now += 5_000
    w.lose("n1")
    (found,) = allocations(w.records)
    assert (found.end_ms, found.outcome) == (w.now, "lost")


def test_a_job_that_is_renamed_is_shown_by_its_new_name():
    w = cluster(1, 4)
    job = w.submit(1, name="old")
    w.run(job)
    w.emit(JobEdited(job, JobChange(name="new"), "ann"))
    (found,) = allocations(w.records)
    assert found.job_name == "new"


def test_a_record_that_does_not_follow_is_refused():
    w = cluster(1, 1)
    with pytest.raises(BrokenInvariant, match="does not follow 0"):
        AllocationLog().take(w.records[1])


@examples(60)
@given(operations, st.integers(1, 40))
def test_bars_hold_what_sessions_hold_however_often_the_fold_goes_on_from_an_image(found, every):
    w = play(small_world(), found)
    log, done = AllocationLog(), []
    for number, record in enumerate(w.records):
        done += log.take(record)
        list(log.open())  # what it has shown once must not stand in the way of what changes
        if number % every == 0:
            log = AllocationLog(msgspec.msgpack.decode(msgspec.msgpack.encode(log.image()), type=AllocationImage))
    bars = [*done, *log.open()]
    assert sorted(bars, key=repr) == sorted(allocations(w.records), key=repr)
    held = {}
    for one in sessions(w.records):
        start_ms, end_ms, milli = held.get((one.job_id, one.attempt, one.node), (one.start_ms, 0, 0))
        milli += one.amounts.device_milli if one.start_ms == start_ms else 0
        held[one.job_id, one.attempt, one.node] = min(start_ms, one.start_ms), max(end_ms, one.end_ms or 2**62), milli
    shown = {(b.job_id, b.attempt, b.node): (b.start_ms, b.end_ms or 2**62, b.device_milli) for b in bars}
    assert shown == held
