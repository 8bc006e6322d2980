"""MIG instances in the scheduler: only where allowed, where they may lie, and the device is whole again at the end."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.events import DeviceClosed
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place import mig
from penstock.core.place.capacity import empty, shape_of
from penstock.core.place.fit import Need, capacity, devices_free, put_on
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.place.holds import lesser
from penstock.testing.builders import GIB, ask, device, node
from penstock.testing.harness import World, finish, follow
from tests.properties import examples

SMALL = 40 * GIB  # an A100 of 40 GB: 7 compute and 8 memory slices


def workspace(*cut):
    """Return devices of which those with True may be cut up."""
    return tuple(device(i, memory_bytes=SMALL, mig=allowed) for i, allowed in enumerate(cut))


def where(found):
    return [(s.job_id, [(p.devices, p.slots) for p in s.places]) for s in found.starts]


def held(w):
    """Return the instances on each device, counted from specs and places alone."""
    found = {}
    for job in w.state.jobs.values():
        for replica in job.attempt.replicas if job.attempt else ():
            wanted = job.ask.each_of(replica.rank).devices
            if replica.holds and wanted is not None and wanted.profile:
                place = replica.place
                found.setdefault((place.node, place.devices[0]), []).append((wanted.profile, place.slots[0]))
    return found


def test_instances_lie_beside_each_other_as_the_device_allows():
    w = World(node("a", workspace(True)))
    jobs = [w.submit(1, profile="3g.20gb") for _ in range(3)]
    found = where(w.cycle())
    assert found == [(jobs[0], [((0,), (4,))]), (jobs[1], [((0,), (0,))])]
    assert {v.code for v in w.plan().verdicts.values()} == {"no_fit"}


def test_a_device_that_is_not_meant_for_it_is_never_cut_up():
    w = World(node("a", workspace(False, True)))
    w.submit(1, profile="1g.5gb")
    assert where(w.plan())[0][1][0][0] == (1,)
    assert place_gang(ask(1, profile="1g.5gb"), World(node("a", workspace(False))).free()) == NoFit(
        (("profile", 1),), 0
    )


def test_a_profile_that_the_model_does_not_offer_is_told_as_such():
    free = World(node("a", workspace(True))).free()
    assert place_gang(ask(1, profile="3g.40gb"), free) == NoFit((("profile", 1),), 0)


def test_no_room_for_another_instance_is_told_as_such():
    w = World(node("a", workspace(True)))
    w.run(w.submit(1, profile="7g.40gb"))
    assert place_gang(ask(1, profile="1g.5gb"), w.free()) == NoFit((("profile_short", 1),), 0)


def test_a_device_that_is_cut_up_already_goes_before_a_whole_one():
    w = World(node("a", workspace(True, True)), node("b", workspace(True)))
    w.run(w.submit(1, profile="2g.10gb"))
    first = w.job(1).attempt.replicas[0].place
    w.submit(1, profile="1g.5gb")
    second = w.plan().starts[0].places[0]
    assert (second.node, second.devices) == (first.node, first.devices)


def test_a_device_is_in_one_mode_at_a_time_and_whole_when_idle():
    w = World(node("a", workspace(True)))
    cut = w.submit(1, profile="1g.5gb")
    w.run(cut)
    whole = w.submit(1)
    assert w.cycle().starts == ()
    finish(w, cut)
    assert where(w.cycle()) == [(whole, [((0,), ())])]
    w.submit(1, profile="1g.5gb")
    assert w.cycle().starts == ()


def test_a_gang_of_instances_may_share_a_device():
    places = place_gang(ask(1, 7, profile="1g.5gb"), World(node("a", workspace(True))).free())
    assert sorted(p.slots[0] for p in places) == list(range(7))
    assert isinstance(place_gang(ask(1, 8, profile="1g.5gb"), World(node("a", workspace(True))).free()), NoFit)


def test_a_stale_plan_lays_no_instance_upon_another():
    w = World(node("a", workspace(True)))
    w.submit(1, profile="3g.20gb")
    stale = w.plan()
    w.cancel(1)
    other = w.submit(1, profile="4g.20gb")
    w.cycle()
    assert w.phase(other) == "starting"
    assert w.apply(stale).starts == ()


def test_an_instance_at_a_slice_where_it_may_not_begin_is_refused():
    free = World(node("a", workspace(True))).free().free_of(0)
    wanted = DeviceAsk(1, profile="3g.20gb")
    assert devices_free(wanted, free, ((0,), (4,)))
    assert not devices_free(wanted, free, ((0,), (1,)))
    assert not devices_free(wanted, free, ((0,), ()))
    full = free.take(ReplicaAsk(Resources(), DeviceAsk(1)), (0,))
    assert not devices_free(wanted, full, ((0,), (4,)))


def test_an_instance_leaves_for_one_of_higher_priority():
    w = World(node("a", workspace(True)))
    low = [w.submit(1, profile="3g.20gb", priority=p) for p in (200, 100)]
    w.run(*low)
    w.submit(1, profile="2g.10gb", priority=900)
    assert [p.victim for p in w.cycle().preemptions] == [low[1]]


# What two claims leave of a device that is cut up.


def cut_free(*instances):
    free = empty(shape_of(World(node("a", workspace(True))).state.nodes["a"]))
    for name, start in instances:
        free = free.take(ReplicaAsk(Resources(), DeviceAsk(1, profile=name)), (0,), (start,))
    return free


def test_equal_cuts_stay_as_they_are():
    one = cut_free(("3g.20gb", 4))
    assert lesser(one, one).mig == one.mig


def test_unlike_cuts_leave_nothing_even_when_what_is_there_leaves():
    for other in (cut_free(), cut_free(("2g.10gb", 0)), cut_free(("7g.40gb", 0))):
        left = lesser(cut_free(("3g.20gb", 4)), other)
        gone = left.put_back(ReplicaAsk(Resources(), DeviceAsk(1, profile="3g.20gb")), (0,), (4,))
        for profile in ("1g.5gb", "3g.20gb"):
            need = Need(ReplicaAsk(Resources(), DeviceAsk(1, profile=profile)), "default")
            assert capacity(need, gone, 1) == 0
        assert capacity(Need(ReplicaAsk(Resources(), DeviceAsk(1)), "default"), gone, 1) == 0


# Histories.

PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "")


@examples(40)
@given(st.integers(0, 2**32))
def test_instances_are_legal_and_no_device_is_in_two_modes(seed):
    rnd = random.Random(seed)
    w = World(node("a", workspace(True, True)), node("b", workspace(True, False)))
    for _ in range(25):
        w.now += 10_000
        for _ in range(rnd.randint(0, 3)):
            profile, priority = rnd.choice(PROFILES), rnd.choice([100, 500, 900])
            wanted = {"profile": profile} if profile else {"share_milli": rnd.choice([500, 1_000])}
            length_ms = rnd.choice([0, 15_000])
            w.submit(1, rnd.randint(1, 2), priority=priority, estimated_duration_ms=length_ms, **wanted)
        w.cycle()
        for (name, index), instances in held(w).items():
            spec = w.state.nodes[name].spec.devices[index]
            assert spec.mig
            assert mig.illegal(mig.geometry_of(spec.model, spec.memory_bytes), instances) == ""
            assert w.state.indexes.free[name].devices[index] == 0
        follow(w)
        for job_id in sorted(w.state.indexes.active):
            if w.phase(job_id) == "running" and rnd.random() < 0.3:
                finish(w, job_id)


@examples(60)
@given(st.lists(st.sampled_from(PROFILES[:4]), max_size=6), st.sampled_from(PROFILES[:4]), st.integers(1, 8))
def test_as_many_instances_fit_as_are_counted(before, profile, most):
    free = empty(shape_of(World(node("a", workspace(True, True))).state.nodes["a"]))
    for name in before:
        put = put_on(Need(ReplicaAsk(Resources(), DeviceAsk(1, profile=name)), "default"), free, 1)
        free = put[0] if put else free
    need = Need(ReplicaAsk(Resources(), DeviceAsk(1, profile=profile)), "default")
    count = capacity(need, free, most)
    assert put_on(need, free, count) is not None
    assert count == most or put_on(need, free, count + 1) is None


def test_a_planned_instance_is_not_given_out_on_a_device_that_was_closed_meanwhile():
    w = World(node("a", workspace(True)))
    w.run(w.submit(1, profile="1g.5gb"))
    w.submit(1, profile="1g.5gb")
    proposed = w.plan()
    assert len(proposed.starts) == 1
    w.emit(DeviceClosed("a", 0, "xid", "Xid 79", "penstock"))
    assert w.apply(proposed).starts == ()
