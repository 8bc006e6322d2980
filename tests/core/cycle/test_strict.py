"""Strict pools: nobody passes the first job that does not fit, as long as that could start once others have left."""

import pytest
from msgspec.structs import replace

from penstock.core.model.cluster import Pool, Reservation, Tenant
from penstock.core.model.events import ConfigChanged
from penstock.testing.builders import ask, node, queues
from penstock.testing.harness import cluster, finish

MINUTE, HOUR, NEVER = 60_000, 3_600_000, 10**12


def strict(**fields):
    """Return two nodes of 4 devices in a strict pool."""
    settings = {"starvation_after_ms": NEVER, "allow_waiting_for_nodes": True} | fields
    return cluster(2, 4, pools=(Pool("default", backfill="strict"),), **settings)


def started(found):
    return [s.job_id for s in found.starts]


def barred_by(w, job):
    """Return the job that no other may pass, as the last cycle says of this one."""
    verdict = w.last_plan.verdicts[w.job(job).class_id]
    return verdict.blocker if verdict.code == "kept_back" else None


@pytest.mark.parametrize(
    "fields",
    [{"devices": 5}, {"devices": 4, "replicas": 3}, {"devices": 1, "labels_wanted": (("disk", "ssd"),)}],
)
@pytest.mark.parametrize("starvation_after_ms", [MINUTE, NEVER])
def test_a_job_that_no_nodes_could_hold_bars_nobody(fields, starvation_after_ms):
    w = strict(starvation_after_ms=starvation_after_ms)
    never = w.submit(**fields, priority=900)
    w.now += 2 * MINUTE
    other = w.submit(1)
    found = w.cycle()
    assert started(found) == [other]
    assert found.verdicts[w.job(never).class_id].code == "no_fit"


@pytest.mark.parametrize("away", ["drain", "lose"])
def test_a_job_whose_nodes_are_away_bars_nobody_until_they_come_back(away):
    w = strict()
    getattr(w, away)("n0")
    wide = w.submit(4, 2, priority=900)
    other = w.submit(1)
    assert started(w.cycle()) == [other]
    if away == "drain":
        w.drain("n0", on=False)
    else:
        w.hello(node("n0", 4), "i2", ready=False)  # one that is joining will take work in a moment
    later = w.submit(1)
    assert started(w.cycle()) == []
    assert barred_by(w, later) == wide


def test_a_job_bars_nobody_while_its_nodes_are_reserved_for_another_tenant():
    kept = Reservation("r", "other", 0, 1_000_000 + HOUR, ("n0",))
    w = strict(reservations=(kept,), tenants=(Tenant("default"), Tenant("other")))
    wide, other = w.submit(4, 2, priority=900), w.submit(1)
    w.run(other)
    w.now += HOUR
    later = w.submit(1)
    assert started(w.cycle()) == []
    assert barred_by(w, later) == wide
    finish(w, other)
    assert started(w.cycle()) == [wide]


def test_a_job_that_fits_in_another_shape_some_day_bars_the_others():
    w = strict()
    w.run(w.submit(1, 2, topology="spread"))
    first = w.submit(gang=ask(5), alternatives=(ask(4),), priority=900)
    later = w.submit(1)
    assert started(w.cycle()) == []
    assert barred_by(w, later) == first


@pytest.mark.parametrize("most", [({"max": (("devices", 2_000),)}, {}), ({}, {"max": (("devices", 2_000),)})])
def test_a_job_that_asks_for_more_than_its_queue_or_tenant_may_hold_bars_nobody(most):
    of_queue, of_tenant = most
    tenants = (Tenant("default"), Tenant("other"))
    w = strict(queues=queues("a", "b"), tenants=tenants)
    w.submit(3, queue="a", priority=900)
    lowered = replace(w.state.config, queues=(*queues("a", **of_queue), *queues("b")))
    w.emit(ConfigChanged(replace(lowered, tenants=(Tenant("default", **of_tenant), tenants[1])), "op"))
    other = w.submit(1, queue="b", tenant="other")
    assert started(w.cycle()) == [other]


def test_who_bars_the_others_depends_on_the_snapshot_alone():
    """The planner keeps what it found of empty nodes: they change, and so does who bars (a world compares)."""
    w = strict()
    wide = w.submit(4, 3, priority=900)
    w.run(w.submit(1))
    later = w.submit(1)
    w.hello(node("n2", 4))
    assert started(w.cycle()) == []
    assert barred_by(w, later) == wide
    w.lose("n2")
    assert started(w.cycle()) == [later]
