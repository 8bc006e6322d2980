"""Sessions: a fold of the log that tells who held what, and is the same however often it is made."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger.sessions import Amounts, LogImage, Loss, SessionLog, sessions
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import AttemptAllocated, CheckpointSaved, JobSubmitted, NodeLost, ReplicaExited
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import GIB, node
from penstock.testing.harness import World, cluster
from tests.core.histories import operations, play, small_world
from tests.properties import examples


def test_a_session_lasts_from_the_allocation_to_the_exit():
    w = cluster(1, 4)
    job = w.submit(2, cpus=3, memory_gib=1, name="train", priority=700, labels=(("team", "x"),))
    w.now += 100
    w.run(job)
    begun = w.now
    w.now += 5_000
    w.exit_replica(job)
    (found,) = sessions(w.records)
    assert (found.start_ms, found.end_ms, found.ended) == (begun, begun + 5_000, "released")
    assert (found.amounts, found.devices) == (Amounts((("A100", 2_000),), 3_000, GIB), (0, 1))
    assert (found.job_name, found.priority, found.user, found.labels) == ("train", 700, "ann", (("team", "x"),))


def test_one_that_lasts_has_no_end_yet():
    w = cluster(1, 4)
    w.run(w.submit(1))
    (found,) = sessions(w.records)
    assert (found.end_ms, found.ended, found.length_ms(w.now + 70)) == (0, "", 70)


def test_a_replica_that_leaves_early_holds_nothing_any_more():
    w = cluster(1, 4)
    job = w.submit(1, 2)
    w.run(job)
    w.now += 100
    w.exit_replica(job, 0)
    w.now += 200
    w.exit_replica(job, 1)
    assert [(one.rank, one.length_ms(0)) for one in sessions(w.records)] == [(0, 100), (1, 300)]


def test_parts_of_devices_count_as_their_part():
    w = World(node("a", 2))
    half = w.submit(1, share_milli=500)
    w.run(half)
    assert sessions(w.records)[0].amounts.models == (("A100", 500),)


def test_claimed_devices_count_by_their_class():
    w = World(node("a", 2))
    each = ReplicaAsk(Resources(1000, GIB), DeviceAsk(1), claimed=(("gpu.example.com", 3000),))
    one = w.submit(gang=GangAsk(2, each))
    w.run(one)
    held = [session.amounts for session in sessions(w.records)]
    assert [amounts.models for amounts in held] == [(("A100", 1000), ("gpu.example.com", 3000))] * 2
    assert w.state.indexes.charges[one].device_milli == 8000
    assert w.state.indexes.charges[one].models == (("A100", 2000), ("gpu.example.com", 6000))
    w.exit_replica(one, 0)
    assert w.state.indexes.charges[one].models == (("A100", 1000), ("gpu.example.com", 3000))
    w.exit_replica(one, 1)
    assert one not in w.state.indexes.charges


def test_members_of_other_groups_and_alternatives_count_for_what_they_are():
    w = cluster(2, 4)
    leader = ReplicaAsk(Resources(4_000, GIB), None)
    worker = ReplicaAsk(Resources(1_000), DeviceAsk(2))
    gang = GangAsk(1, leader, others=(GroupAsk(2, worker),))
    other = w.submit(gang=GangAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(99))), alternatives=(gang,))
    w.run(other)
    found = sessions(w.records)
    assert [one.amounts.device_milli for one in found] == [0, 2_000, 2_000]
    assert [one.amounts.cpu_milli for one in found] == [4_000, 1_000, 1_000]


def test_what_is_suspended_holds_its_memory_alone():
    w = World(node("a", 0, cpus=4))
    low = w.submit(0, cpus=4, memory_gib=2, priority=100, on_preempt="suspend")
    w.run(low)
    w.now += 1_000
    high = w.submit(0, cpus=4, priority=900)
    w.cycle()
    w.report("a", w.seen(low, 0, "frozen"), inventory=False)
    w.run(high)
    w.now += 2_000
    w.exit_replica(high)
    w.cycle()
    w.now += 3_000
    w.exit_replica(low)
    mine = [one for one in sessions(w.records) if one.job_id == low]
    assert [(one.length_ms(0), one.amounts.cpu_milli, one.ended, one.suspended) for one in mine] == [
        (1_000, 4_000, "suspended", False),
        (2_000, 0, "resumed", True),
        (3_000, 4_000, "released", False),
    ]
    assert {one.amounts.memory_bytes for one in mine} == {2 * GIB}


def test_a_lost_node_ends_its_sessions_and_is_named():
    w = cluster(2, 1)
    job = w.submit(1, 2)
    w.run(job)
    w.now += 100
    w.lose("n0")
    w.now += 100
    w.leave(job)
    assert [(s.node, s.length_ms(0), s.ended) for s in sessions(w.records)] == [
        ("n0", 100, "node_lost"),
        ("n1", 200, "released"),
    ]


def test_a_record_is_taken_once_and_in_order():
    w = cluster(1, 1)
    log = SessionLog()
    log.take(w.records[0])
    for wrong in (w.records[0], w.records[2]):
        with pytest.raises(BrokenInvariant, match="does not follow"):
            log.take(wrong)


@examples(60)
@given(operations)
def test_sessions_never_overlap_for_one_replica_and_agree_with_what_was_held(done):
    w = small_world()
    play(w, done)
    found = sessions(w.records)
    until_ms = w.now + 1
    by_replica = {}
    for one in found:
        by_replica.setdefault((one.job_id, one.rank), []).append((one.start_ms, one.end_ms or until_ms))
    for spans in by_replica.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    held = {(one.job_id, one.rank) for one in found if not one.end_ms}
    live = {
        (job.id, replica.rank)
        for job in w.state.jobs.values()
        if job.attempt is not None
        for replica in job.attempt.replicas
        if replica.holds
    }
    assert held == live


def recount(records, until_ms):
    """Charge replica by replica: for each, look up its end by a walk over the rest of the log."""
    specs = {r.event.job_id: r.event.spec for r in records if isinstance(r.event, JobSubmitted)}
    found = []
    for at, record in enumerate(records):
        for rank, place in enumerate(record.event.places if isinstance(record.event, AttemptAllocated) else ()):
            me = (record.event.job_id, record.event.attempt, rank)
            ends = (later.time_ms for later in records[at:] if _ends(later.event, me, place.node))
            cpu_milli = specs[me[0]].ask.each.host.cpu_milli
            found.append((*me, next(ends, until_ms) - record.time_ms, 1_000 * len(place.devices), cpu_milli))
    return sorted(found)


def _ends(event, me, node_name):
    mine = isinstance(event, ReplicaExited) and (event.job_id, event.attempt, event.rank) == me
    return mine or (isinstance(event, NodeLost) and event.node == node_name)


@examples(80)
@given(operations)
def test_sessions_equal_a_brute_force_recount(done):
    w = play(small_world(), done)
    found = [
        (s.job_id, s.attempt, s.rank, s.length_ms(w.now + 7), s.amounts.device_milli, s.amounts.cpu_milli)
        for s in sessions(w.records)
    ]
    assert sorted(found) == recount(w.records, w.now + 7)


def losses(w):
    log = SessionLog()
    for record in w.records:
        log.take(record)
    return log.losses


def test_a_failed_node_took_what_was_done_since_the_begin_or_the_last_checkpoint():
    for saves in (False, True):
        w = cluster(1, 1)
        job = w.submit(1)
        w.cycle()
        begun = w.now
        w.now += 1_000
        w.start(job)
        if saves:
            w.emit(CheckpointSaved(job, 1, 5))
        w.now += 5_000
        w.lose("n0")
        assert losses(w) == {(job, 1): Loss(begun + 1_000 * saves, begun + 6_000)}


def test_what_fails_by_itself_or_is_preempted_is_no_loss():
    w = cluster(1, 1)
    job = w.submit(1, priority=100)
    w.run(job)
    w.now += 600_000
    w.submit(1, priority=900)
    w.cycle()
    w.leave(job)
    w.run(2)
    w.exit_replica(2, 0, 1)
    assert losses(w) == {}


def test_each_attempt_has_its_own_loss():
    w = cluster(2, 1)
    job = w.submit(1)
    for name in ("n0", "n1"):
        w.run(job)
        assert w.where(job) == name
        w.now += 1_000
        w.lose(name)
    found = losses(w)
    assert list(found) == [(job, 1), (job, 2)]
    assert all(loss.at_ms - loss.from_ms == 1_000 for loss in found.values())


def test_what_a_node_could_still_take_is_known_of_what_is_held_now():
    w = cluster(1, 2)
    first, second = w.submit(1), w.submit(1)
    w.run(first, second)
    begun = w.now
    log = SessionLog()
    for record in w.records:
        log.take(record)
    assert sorted(log.unsafe_since("default")) == [begun, begun]
    assert list(log.unsafe_since("other")) == []
    w.now += 500
    w.emit(CheckpointSaved(first, 1, 5))
    w.exit_replica(second)
    for record in w.records[log.seq :]:
        log.take(record)
    assert list(log.unsafe_since("default")) == [begun + 500]


@examples(40)
@given(operations, st.integers(0, 300))
def test_a_log_goes_on_from_its_image_at_any_record(done, cut):
    w = small_world()
    play(w, done)
    whole, first = SessionLog(), SessionLog()
    ended = [session for record in w.records for session in whole.take(record)]
    before = [session for record in w.records[:cut] for session in first.take(record)]
    kept = first.image()
    again = SessionLog(msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=LogImage))
    for record in w.records[cut:]:
        first.take(record)
    after = [session for record in w.records[cut:] for session in again.take(record)]
    assert before + after == ended
    assert again.image() == whole.image() == first.image()
    assert kept.seq == min(cut, len(w.records))
