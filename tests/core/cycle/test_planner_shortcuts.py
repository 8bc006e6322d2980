"""What a cycle leaves out because its answer is known: each shortcut finds what the long way finds."""

import random
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.cycle.bulk import SingleJobPlanner
from penstock.core.cycle.cycle import Cycle
from penstock.core.cycle.planner import Planner, plan
from penstock.core.cycle.workspace import Workspace
from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.events import ConfigChanged
from penstock.core.model.resources import Resources
from penstock.core.place.gang import GangPlacer
from penstock.core.place.index import ClusterIndex
from penstock.core.preempt.preemptor import Preemptor
from penstock.testing.builders import ask, config, job_spec, queues
from penstock.testing.harness import cluster, finish, follow, running
from tests.core.rich import history
from tests.properties import examples

seeds = st.integers(0, 2**32)
MINUTE = 60_000


@contextmanager
def without(where, name, answer):
    """Let a shortcut never be taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, answer)
        yield


def crowds(seed):
    """Yield a world in which many jobs of few shapes and many lengths wait for few nodes, before each of its cycles."""
    rnd = random.Random(seed)
    one_of = rnd.choice
    w = cluster(one_of([2, 3]), 4, starvation_after_ms=one_of([30, 10**6]) * MINUTE)
    names, stays = one_of([("default",), ("default", "other")]), rnd.random() < 0.5
    kept = one_of([(), (("devices", 4_000),)])
    rule, placement = one_of(["easy", "easy", "conservative", "none", "strict"]), one_of(["fragmentation", "random"])
    tree = queues(*names, policy=one_of(["fifo", "fair_share"]), guaranteed=kept, preemption="reclaim")
    pools = (Pool("default", backfill=rule, placement=placement),)
    w.emit(ConfigChanged(replace(config(queues=tree if kept else queues(*names)), pools=pools), "op"))
    shapes = [ask(one_of([1, 1, 2, 3, 4]), one_of([1, 1, 2])) for _ in range(3)]
    if rnd.random() < 0.2:
        shapes.append(replace(ask(1), replicas_max=3))
    for _ in range(4):
        for _ in range(one_of([1, 8, 16])):
            length_ms = one_of([0, *range(1, 60)]) * MINUTE
            spec = replace(job_spec(), ask=one_of(shapes), queue=one_of(names), estimated_duration_ms=length_ms)
            w.request(replace(spec, preemptible=not stays, priority=one_of([500, 500, 900])))
        yield w
        w.apply(w.plan())
        follow(w)
        for job_id in sorted(running(w)):
            if rnd.random() < 0.3:
                finish(w, job_id)
        w.now += one_of([1, 10]) * MINUTE


def crowds_of_replicas(seed):
    """Yield a world in which gangs of one-CPU replicas, of many sizes, wait for few CPUs, before each of its cycles."""
    rnd = random.Random(seed)
    one_of = rnd.choice
    nodes, cpus = one_of([(12, 1), (12, 1), (4, 3)])
    w = cluster(nodes, 0, cpus=cpus, starvation_after_ms=one_of([5, 30, 10**6]) * MINUTE)
    names, most = one_of([("default",), ("default", "other")]), one_of([(), (("cpus", 8_000),)])
    rule, placement = one_of(["easy", "easy", "conservative", "none", "strict"]), one_of(["fragmentation", "random"])
    policies = ["fifo", "fifo", "fair_share", "least_attained"]
    tree = tuple(Queue(name, policy=one_of(policies), max=most) for name in names)
    pools = (Pool("default", backfill=rule, placement=placement),)
    w.emit(ConfigChanged(replace(config(queues=tree), settings=w.state.config.settings, pools=pools), "op"))
    lengths = one_of([[0], [0, 1, 7, 8, 9, 59], [4, 40]])
    for _ in range(6):
        for _ in range(one_of([1, 6, 12])):
            gang = ask(0, rnd.randint(1, 13), topology=one_of([None] * 9 + ["spread"]))
            priority = one_of([500, 500, 500, 500, 900])
            spec = job_spec(gang=gang, queue=one_of(names), estimated_duration_ms=one_of(lengths) * MINUTE)
            others = (ask(0, rnd.randint(1, 13)),) if rnd.random() < 0.1 else ()
            w.request(replace(spec, priority=priority, preemptible=one_of([True, False]), alternatives=others))
        yield w
        w.apply(w.plan())
        follow(w)
        for job_id in sorted(running(w)):
            if rnd.random() < 0.4:
                finish(w, job_id)
        w.now += one_of([1, 10]) * MINUTE


def put_and_undone(placer):
    with placer.cluster.tentatively():
        return placer.put() is not None


@examples(100)
@given(seeds)
def test_counts_say_what_placing_says(seed):
    for w in crowds_of_replicas(seed):
        found = plan(w.snapshot(), w.now)
        with (
            without(Workspace, "counted", lambda workspace, key: None),
            without(GangPlacer, "fits", put_and_undone),
            without(ClusterIndex, "room", lambda cluster, view: 10**6),
        ):
            known = plan(w.snapshot(), w.now)
        assert (known, list(known.verdicts)) == (found, list(found.verdicts))


@examples(60)
@given(seeds)
def test_what_waits_because_another_does_waits_by_itself_too(seed):
    for w in crowds_of_replicas(seed):
        found = plan(w.snapshot(), w.now)
        with without(Cycle, "_waits_too", lambda cycle, cursor: False):
            known = plan(w.snapshot(), w.now)
        assert (known, list(known.verdicts)) == (found, list(found.verdicts))


@pytest.mark.parametrize(("length_ms", "starts"), [(30 * MINUTE, True), (50 * MINUTE, False)])
def test_one_that_would_delay_a_reserved_job_does_not_keep_back_a_shorter_one(length_ms, starts):
    w = cluster(6, 0, cpus=1, pools=(Pool("default", backfill="easy"),))
    w.run(w.submit(0, 3, estimated_duration_ms=40 * MINUTE))
    for replicas, minutes in ((6, 9), (1, 5), (1, 59)):
        w.submit(0, replicas, estimated_duration_ms=minutes * MINUTE)
    last = w.submit(0, 2, estimated_duration_ms=length_ms)
    found = w.plan()
    assert [s.job_id for s in found.starts] == [last - 2, *([last] if starts else [])]
    assert [r.job_id for r in found.reserved] == [last - 3]


def test_one_that_waits_in_another_queue_does_not_keep_from_a_right_to_preempt():
    w = cluster(4, 0, cpus=1, queues=(Queue("a"), Queue("b", policy="least_attained")))
    w.run(w.submit(0, 4, queue="b"))
    w.now += 10_000 * MINUTE
    waits, takes = (w.submit(0, 4, queue=queue) for queue in ("a", "b"))
    found = w.plan()
    assert [(p.victim, p.beneficiary) for p in found.preemptions] == [(1, takes)]
    assert [(v.first, v.code) for v in found.verdicts.values()] == [(waits, "no_fit"), (takes, "making_room")]


@examples(60)
@given(seeds)
def test_what_did_not_fit_is_tried_again_only_when_something_changed(seed):
    for w in crowds(seed):
        found = plan(w.snapshot(), w.now)
        with without(Workspace, "_only", lambda workspace, shapes: None):
            assert plan(w.snapshot(), w.now) == found


@examples(25)
@given(seeds)
def test_shortcuts_hold_in_rich_worlds_too(seed):
    w = history(seed, 60).w
    snapshot = w.snapshot()
    found = plan(snapshot, w.now)
    with (
        without(Workspace, "_only", lambda workspace, shapes: None),
        without(Preemptor, "may_ask", lambda room, cursor: True),
    ):
        assert plan(snapshot, w.now) == found


@examples(60)
@given(seeds)
def test_jobs_that_are_kept_back_are_those_that_fit_where_claims_are_lifted(seed):
    for w in (*crowds(seed), history(seed, 20).w):
        found = plan(w.snapshot(), w.now)
        with without(Workspace, "fits_unkept", lambda workspace, key: workspace.fits_lifted(key, 0)):
            assert plan(w.snapshot(), w.now) == found


@examples(60)
@given(seeds)
def test_nobody_is_asked_who_was_ruled_out(seed):
    for w in crowds(seed):
        found = plan(w.snapshot(), w.now)
        with without(Preemptor, "may_ask", lambda room, cursor: True):
            assert plan(w.snapshot(), w.now) == found


@examples(40)
@given(seeds)
def test_a_job_that_waits_alone_starts_as_in_a_whole_cycle(seed):
    for w in crowds(seed):
        for class_id, key, jobs in w.snapshot().classes:
            alone = replace(w.snapshot(), classes=((class_id, key, jobs[:1]),), beneficiaries=())
            found = Planner().plan(alone, w.now)
            with without(SingleJobPlanner, "plan", lambda *_: None):
                assert Planner().plan(alone, w.now) == found


def test_a_job_that_backs_off_does_not_start_because_it_is_alone():
    w = cluster(1, 1)
    job_id = w.submit(1)
    (class_id, key, (job,)) = w.snapshot().classes[0]
    later = replace(w.snapshot(), classes=((class_id, key, [replace(job, not_before_ms=w.now + 1)]),))
    found = plan(later, w.now)
    assert (found.starts, found.verdicts[class_id].code, found.again_ms) == ((), "backing_off", w.now + 1)
    assert [s.job_id for s in plan(later, w.now + 1).starts] == [job_id]


@pytest.mark.parametrize(
    "changed",
    [
        {"queues": (Queue("default", parent="nowhere"),)},
        {"queues": (Queue("default", max=(("devices", 0),)),)},
        {"queues": (Queue("default", policy="least_attained"),)},
        {"pools": (Pool("default", reserve_milli=1000),)},
        {"root_policy": "ext:none"},
    ],
)
def test_a_job_for_which_more_than_room_matters_is_left_to_a_whole_cycle(changed):
    tree = ("root",) if changed.get("queues", (Queue("default"),))[0].parent == "nowhere" else ("root", "default")
    w = cluster(1, 1)
    w.submit(1, preemptible=False)
    lone = SingleJobPlanner(replace(config(), **changed), tree)
    assert lone.plan(w.snapshot(), w.now, lambda *_: pytest.fail("it was placed"), None) is None
    planner = Planner()
    assert [s.job_id for s in planner.plan(w.snapshot(), w.now).starts] == [1]


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(["take", "mark", "back", "draw", "sync"]), st.integers(0, 2)), max_size=30))
def test_one_version_of_a_cluster_has_one_content(steps):
    w = cluster(3, 4)
    free, seen, marks = w.free(), {}, []
    assert isinstance(free, ClusterIndex)
    for step, node in steps:
        if step == "take" and free.free_of(node).cpu_milli:
            free.change(node, free.free_of(node).take(ask(0).each))
        elif step == "mark":
            marks.append(free.mark())
        elif step == "back" and marks:
            free.rollback(marks.pop())
        elif step == "draw":
            free.draw()
        elif step == "sync":
            marks.clear()
            free.sync(w.snapshot().nodes, w.snapshot().free)
        content = ([free.free_of(n) for n in range(3)], free.draws)
        assert seen.setdefault(free.version, content) == content


def test_attempts_with_a_time_limit_are_known():
    w = cluster(1, 4)
    for minutes in (0, 1, 2):
        w.submit(1, time_limit_ms=minutes * MINUTE)
    assert w.state.indexes.time_limited == set()
    w.run(1, 2, 3)
    assert w.state.indexes.time_limited == {2, 3}
    w.exit_replica(2)
    assert w.state.indexes.time_limited == {3}


@examples(200)
@given(*[st.lists(st.integers(-1, 3), min_size=4, max_size=4)] * 2)
def test_a_shortage_is_the_first_amount_that_is_not_there(asked, free):
    one, other = Resources(*asked), Resources(*free)
    names = ("cpu_milli", "memory_bytes", "storage_bytes", "bandwidth_bps")
    short = [n for n in names if 0 < getattr(one, n) > getattr(other, n)]
    assert one.shortage(other) == (short[0] if short else None)
