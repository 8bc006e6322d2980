"""Elastic jobs in a cycle: they grow into what is idle, and give it back before anybody is evicted."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import GangAsk, Topology
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import config, device, node, queues
from penstock.testing.harness import World, cluster, cycles, finish, follow, use
from tests.properties import examples

MINUTE = 60_000


def elastic(least, most, devices=1, **fields):
    return GangAsk(least, ReplicaAsk(Resources(), DeviceAsk(devices, **fields)), replicas_max=most)


def size(w, job_id):
    return len(w.job(job_id).attempt.replicas)


def asked(found):
    return [(p.victim, p.beneficiary, p.rule) for p in found.preemptions]


def test_an_elastic_job_starts_at_any_size_from_its_minimum():
    w = cluster(1, 4)
    w.run(w.submit(2, preemptible=False))
    job = w.submit(gang=elastic(1, 4))
    w.run(job)
    assert size(w, job) == 2
    assert w.job(job).ask == elastic(1, 4).sized(2)


def test_below_its_minimum_it_waits():
    w = cluster(1, 4)
    w.run(w.submit(2, preemptible=False))
    w.submit(gang=elastic(3, 4))
    assert w.cycle().starts == ()


def test_it_grows_no_further_than_its_maximum():
    w = cluster(1, 8)
    job = w.submit(gang=elastic(1, 3))
    w.run(job)
    assert size(w, job) == 3


def test_whoever_waits_comes_before_growth():
    w = cluster(1, 4)
    job, other = w.submit(gang=elastic(1, 4), priority=900), w.submit(3)
    w.run(job, other)
    assert (size(w, job), size(w, other)) == (1, 1)


@pytest.mark.parametrize("limit", [(("devices", 3_000),), (("devices:A100", 3_000),)])
def test_growth_keeps_within_the_maximum_of_its_queue(limit):
    w = cluster(1, 8, queues=queues("default", max=limit))
    w.submit(gang=elastic(1, 8))
    assert w.cycle().dropped == 0
    assert use(w, "default") == 3


def test_a_running_job_grows_as_far_as_the_host_allows():
    w = cluster(1, 8, cpus=6)
    other = w.submit(6)
    w.run(other)
    job = w.submit(gang=GangAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(1)), replicas_max=8))
    w.run(job)
    assert size(w, job) == 2
    w.now += 100 * 60_000
    finish(w, other)
    assert asked(w.cycle()) == [(job, job, "grow")]
    w.leave(job)
    w.run()
    assert size(w, job) == 6


def test_two_that_grow_share_what_the_queue_has_left():
    w = cluster(1, 8, queues=queues("default", max=(("devices", 5_000),)))
    w.submit(gang=elastic(1, 8))
    w.submit(gang=elastic(1, 8))
    assert w.cycle().dropped == 0
    assert use(w, "default") <= 5


def test_growth_onto_another_model_counts_as_that_model():
    new, old = tuple(device(i, model="H100") for i in range(4)), tuple(device(i) for i in range(2))
    w = World(node("a", old), node("b", new), queues=queues("default", max=(("devices:H100", 1_000),)))
    w.submit(gang=elastic(2, 4))
    assert w.cycle().dropped == 0
    assert w.state.indexes.usage["default", "default"].now.amount("devices:H100") <= 1_000


def grown(least=1, most=4, **fields):
    """Return a cluster of 4 devices that one elastic job fills."""
    w = cluster(1, 4)
    job = w.submit(gang=elastic(least, most), **fields)
    w.run(job)
    assert size(w, job) == 4
    return w, job


def test_it_shrinks_for_whoever_waits():
    w, job = grown()
    other = w.submit(2)
    assert asked(w.cycle()) == [(job, other, "shrink")]
    assert w.job(job).attempt.stop.reason == "resized"
    follow(w)
    w.run(other)
    assert (size(w, other), w.job(other).state) == (1, "running")
    assert w.job(job).state in ("starting", "running")
    assert size(w, job) in (1, 2)


def test_shrinking_comes_before_evicting_even_at_higher_cost():
    w = cluster(1, 4)
    low = w.submit(1, priority=100)
    w.run(low)
    w.now += 1
    job = w.submit(gang=elastic(1, 3), priority=500)
    w.run(job)
    other = w.submit(1, priority=900)
    assert asked(w.cycle()) == [(job, other, "shrink")]


def test_who_is_at_the_minimum_already_is_not_asked():
    w, _ = grown(least=4)
    w.submit(1)
    assert asked(w.cycle()) == []


def test_nobody_shrinks_when_that_makes_no_room():
    w, _ = grown(least=3)
    w.submit(2)
    assert asked(w.cycle()) == []


def test_nobody_shrinks_for_a_job_that_fits_anyway():
    w = cluster(2, 4)
    job = w.submit(gang=elastic(1, 4))
    w.run(job)
    w.submit(4)
    assert asked(w.cycle()) == []


def test_only_as_many_shrink_as_are_needed():
    w = cluster(2, 4)
    for _ in range(2):
        w.submit(gang=elastic(1, 4))
    cycles(w, 1)
    assert use(w, "default") == 8
    w.submit(1)
    assert len(asked(w.cycle())) == 1


def test_a_job_that_shrinks_goes_on_within_a_cycle_of_leaving():
    w, job = grown()
    w.submit(3, priority=100)
    w.cycle()
    follow(w)
    w.cycle()
    assert w.job(job).attempt is not None
    assert size(w, job) == 1


def test_no_change_of_size_goes_to_and_fro():
    w, job = grown()
    other = w.submit(2, preemptible=False)
    cycles(w, 3, MINUTE)
    assert w.phase(other) == "running"
    assert cycles(w, 20, MINUTE) == []
    assert size(w, job) in (1, 2)


def test_it_grows_again_when_that_is_worth_its_restart():
    w = cluster(1, 4)
    w.run(w.submit(3, estimated_duration_ms=MINUTE))
    job = w.submit(gang=elastic(1, 4), estimated_duration_ms=100 * MINUTE)
    w.run(job)
    w.now += 2 * MINUTE
    finish(w, 1)
    assert asked(w.cycle()) == [(job, job, "grow")]
    follow(w)
    w.run(job)
    assert size(w, job) == 4


@pytest.mark.parametrize(("rest_ms", "grows"), [(5 * MINUTE, False), (60 * MINUTE, True)])
def test_it_grows_only_when_the_rest_of_its_run_pays_for_the_restart(rest_ms, grows):
    w = cluster(1, 4, restart_cost_ms=10 * MINUTE)
    w.run(w.submit(3, estimated_duration_ms=MINUTE))
    job = w.submit(gang=elastic(1, 4), estimated_duration_ms=2 * MINUTE + rest_ms)
    w.run(job)
    w.now += 2 * MINUTE
    finish(w, 1)
    assert asked(w.cycle()) == ([(job, job, "grow")] if grows else [])


@examples(40)
@given(st.integers(0, 2**32))
def test_sizes_stay_within_bounds_and_no_shrinking_is_needless(seed):
    """Each attempt has from minimum to maximum replicas, and without any one of those asked the others do not do."""
    rnd = random.Random(seed)
    w = cluster(2, 4)
    for _ in range(25):
        w.now += MINUTE
        for _ in range(rnd.randint(0, 2)):
            least = rnd.randint(1, 2)
            if rnd.random() < 0.6:
                w.submit(gang=elastic(least, least + rnd.randint(1, 4)), estimated_duration_ms=30 * MINUTE)
            else:
                w.submit(rnd.randint(1, 3), priority=rnd.choice([100, 500, 900]))
        found = w.plan()
        shrunk = {p.beneficiary for p in found.preemptions if p.rule == "shrink"}
        evicted = {p.beneficiary for p in found.preemptions if p.rule not in ("shrink", "grow")}
        assert not shrunk & evicted
        assert all(w.job(p.victim).attempt.stop is None for p in found.preemptions)
        w.apply(found)
        for job in w.state.indexes.active.values():
            ask = job.spec.ask
            assert ask.replicas <= len(job.attempt.replicas) <= max(ask.replicas, ask.replicas_max)
        follow(w)
        for job_id in sorted(w.state.indexes.active):
            if w.phase(job_id) == "running" and rnd.random() < 0.2:
                finish(w, job_id)


def test_nobody_is_asked_to_grow_into_devices_for_which_the_host_is_short():
    w = World(node("a", 4, cpus=2), elastic_growth_period_ms=MINUTE)
    job = w.submit(gang=GangAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(1)), replicas_max=2))
    w.run(w.submit(0, cpus=1, priority=900), job)
    assert size(w, job) == 1
    w.now += MINUTE
    assert asked(w.plan()) == []
    w.exit_replica(2)
    assert asked(w.plan()) == [(job, job, "grow")]


def test_a_job_whose_queue_is_gone_stays_as_large_as_it_is():
    w = cluster(1, 4, queues=queues("default", "old"), elastic_growth_period_ms=MINUTE)
    other, job = w.submit(2, preemptible=False), w.submit(gang=elastic(1, 4), queue="old")
    w.run(other, job)
    w.exit_replica(other)
    w.now += MINUTE
    assert asked(w.plan()) == [(job, job, "grow")]
    w.emit(ConfigChanged(config(elastic_growth_period_ms=MINUTE), "op"))
    assert asked(w.plan()) == []


def test_nobody_is_asked_to_grow_across_nodes_that_it_may_not_span():
    w = World(node("a", 1), node("b", 1), elastic_growth_period_ms=MINUTE)
    alone = replace(elastic(1, 2), topology=Topology("node"))
    job, other = w.submit(gang=alone), w.submit(1)
    w.run(job, other)
    w.exit_replica(other)
    w.now += MINUTE
    assert asked(w.plan()) == []
