"""The state is a fold of its log: an image, a replay and the state itself say the same."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.lifecycle.orders import check_orders
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.reports import NodeCheck
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import DeviceOpened, LeaderElected, Record, ReplicaExited, ReplicaStarted
from penstock.core.model.ids import Rank
from penstock.core.model.jobs import ExitInfo, GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk
from penstock.core.state import invariants
from penstock.core.state.state import Image, State, fold
from penstock.testing.builders import ask, job_spec, node
from penstock.testing.harness import World, cluster
from tests.core.histories import operations, play, small_world
from tests.core.strategies import gangs
from tests.properties import examples


def facts(state):
    """Return everything of a state that a reader can see; classes by what they are, not by their number."""
    indexes, key = state.indexes, state.indexes.class_ids
    keys = {number: k for k, number in key.items()}
    return {
        "plain": (state.seq, state.time_ms, state.epoch, state.next_job, state.next_port, state.config),
        "finished": (state.finished_ok, state.finished_bad),
        "nodes": state.nodes,
        "jobs": {i: (msgspec.structs.replace(j, class_id=0), keys[j.class_id]) for i, j in state.jobs.items()},
        "idempotency": list(state.idempotency.items()),
        "pending": {
            p.key: (keys[c] == p.key, [j.id for j in p.jobs], all(j == state.jobs[j.id] for j in p.jobs))
            for c, p in indexes.pending.items()
        },
        "loads": {
            n: ({i: sorted(held) for i, held in x.devices.items()}, x.replicas)
            for n, x in indexes.loads.items()
            if x.replicas or x.devices
        },
        "free": list(indexes.free.items()),
        "dependants": (
            indexes.dependants.each(state.jobs),
            indexes.dependants.runs,
            indexes.dependants.open,
            {r: x.left for r, x in indexes.dependants.awaited.items()},
        ),
        "stopping": indexes.stopping,
        "waiting": {q: n for q, n in indexes.waiting_by_queue.items() if n},
        "sets": (indexes.ports, indexes.wait_limited, indexes.time_limited, indexes.beneficiaries),
        "active": sorted(indexes.active),
        "use": indexes.usage,
        "ahead": (list(indexes.ends), list(indexes.unending), indexes.evictable),
    }


def reloaded(state):
    """Return the state made from its image after a way through bytes."""
    stored = msgspec.msgpack.encode(state.image())
    return State.from_image(msgspec.msgpack.decode(stored, type=Image))


def busy() -> World:
    w = cluster(2, 2)
    jobs = [w.submit(1, priority=100, max_wait_ms=99) for _ in range(4)]
    w.run(*jobs)
    w.request(*[w.job(jobs[0]).spec] * 2, key="k", digest="d")
    w.submit(2, priority=900)
    w.cycle()
    w.cancel(jobs[-1])
    w.exit_replica(jobs[1], 0, 1)
    return w


def test_a_state_comes_back_from_its_image():
    w = busy()
    assert facts(reloaded(w.state)) == facts(w.state)


def test_a_state_comes_back_from_its_log():
    w = busy()
    stored = msgspec.msgpack.encode(w.records)
    assert facts(fold(msgspec.msgpack.decode(stored, type=list[Record]))) == facts(w.state)


def test_an_image_does_not_move_with_the_state():
    w = busy()
    image = w.state.image()
    before = msgspec.msgpack.encode(image)
    w.request(w.job(1).spec, key="another")
    w.cycle()
    assert msgspec.msgpack.encode(image) == before


def test_a_log_with_a_gap_or_a_double_is_refused():
    w = busy()
    with pytest.raises(BrokenInvariant, match="record 3 does not follow 1"):
        fold([w.records[0], w.records[2]])
    with pytest.raises(BrokenInvariant, match="record 1 does not follow 1"):
        fold([w.records[0], w.records[0]])


@examples(100)
@given(gangs(), st.integers(1, 9), st.sampled_from([None, 0.5]), st.lists(st.integers(0, 36), max_size=9, unique=True))
def test_replicas_that_change_together_are_folded_as_one_by_one(gang, times, share, early):
    w = World(*(node(f"n{i}", 16, cpus=32) for i in range(9)), fair_share_half_life_ms=99)
    others = (GroupAsk(2, ask(1).each), GroupAsk(3, ask(0, cpus=2).each))
    asked = GangAsk(gang.replicas * times, gang.each, others=others)
    if share and asked.each.devices:
        asked = replace(asked, each=replace(asked.each, devices=DeviceAsk(1, share_milli=500)))
    w.request(job_spec(gang=asked))
    assume(w.cycle().starts)
    (job,) = w.state.jobs
    number, ranks = w.attempt(job).number, range(asked.replica_total)
    first = [rank for rank in ranks if rank in early]
    states = [fold(list(w.records)), fold(list(w.records))]
    how = ExitInfo(1)
    steps = [
        [ReplicaStarted(job, number, Rank(rank)) for rank in ranks],
        [ReplicaExited(job, number, Rank(rank), how) for rank in first],
        [ReplicaExited(job, number, Rank(rank), ExitInfo()) for rank in ranks if rank not in first],
    ]
    for now, events in enumerate(steps, w.now + 1):
        apart, together = (Transaction(state, now) for state in states)
        for event in events:
            apart.emit(event)
        together.emit_alike(events)
        assert together.records == apart.records
        assert facts(states[0]) == facts(states[1])
        assert states[0].indexes.charges == states[1].indexes.charges
        assert set(states[0].indexes.changes) == set(states[1].indexes.changes)


def test_a_change_that_a_lifecycle_forbids_is_refused_among_others():
    w = cluster(1, 0)
    job = w.submit(0, 3)
    w.run(job)
    again = [ReplicaStarted(job, w.attempt(job).number, Rank(rank)) for rank in (1, 2)]
    with pytest.raises(BrokenInvariant, match="a replica in state 'started' cannot take 'started'"):
        Transaction(w.state, w.now).emit_alike(again)


def test_time_never_goes_back():
    state = fold([Record(1, 500, LeaderElected(1, "a")), Record(2, 400, LeaderElected(2, "b"))])
    assert (state.time_ms, state.epoch) == (500, 2)


def test_events_about_an_old_attempt_never_get_into_the_fold():
    from penstock.core.model.events import AttemptAllocated, ReplicaStarted

    w = cluster(1, 1)
    job = w.submit(1, retries_max=1)
    w.run(job)
    for event in (ReplicaStarted(job, 2, 0), AttemptAllocated(job, 1, ()), ReplicaStarted(9, 1, 0)):
        with pytest.raises(BrokenInvariant):
            w.state.apply(Record(w.state.seq + 1, w.now, event))
        w.state.seq -= 1


def test_one_device_is_never_folded_into_two_hands():
    from penstock.core.model.events import AttemptAllocated
    from penstock.core.model.jobs import ReplicaPlace

    w = World(node("a", 2))
    one, two = w.submit(1), w.submit(1)
    w.emit(AttemptAllocated(one, 1, (ReplicaPlace("a", "i1", (0,)),)))
    with pytest.raises(BrokenInvariant, match=f"device 0 of a given to job {two}, held by {one}"):
        w.emit(AttemptAllocated(two, 1, (ReplicaPlace("a", "i1", (0,)),)))


def drained_of_work(w):
    """Let the world go on without faults: bring nodes back, start, stop and finish whatever there is."""
    for n in ("n0", "n1"):
        w.drain(n, on=False)
        w.hello(w.state.nodes[n].spec_said, f"fresh{n}")
        for closed in w.state.nodes[n].devices_closed:
            w.emit(DeviceOpened(n, closed.index, "op"))
    for _ in range(60):
        w.tick(10_000)
        for name, _ in check_orders(w.state, w.now):
            w.report(name, check=NodeCheck(True))
        w.cycle()
        for job in [j for j in list(w.state.jobs.values()) if j.attempt]:
            if job.state == "starting":
                w.start(*[job.id] * any(r.state == "allocated" for r in job.attempt.replicas))
            for replica in w.state.jobs[job.id].attempt.replicas if job.id in w.state.jobs else ():
                if replica.holds:
                    w.exit_replica(job.id, replica.rank, 0, stop_sent=job.state == "stopping")
        if not w.state.jobs:
            return


@examples(150)
@given(operations)
def test_no_history_breaks_a_promise_and_every_history_can_be_reloaded(found):
    w = play(small_world(), found)  # a world checks all invariants at each commit
    assert facts(reloaded(w.state)) == facts(w.state)
    assert facts(fold(w.records)) == facts(w.state)


@examples(100)
@given(operations)
def test_a_reloaded_state_plans_as_the_first_one(found):
    w = play(small_world(), found)
    first = w.plan()
    w.state = reloaded(w.state)
    second = w.plan()
    assert (second.starts, second.preemptions, second.held) == (first.starts, first.preemptions, first.held)


@examples(100)
@given(operations)
def test_after_the_faults_everything_that_can_run_runs(found):
    w = play(small_world(), found)
    drained_of_work(w)
    assert w.state.jobs == {}
    assert all(not load.replicas for load in w.state.indexes.loads.values())
    assert invariants.violations(w.state) == []
