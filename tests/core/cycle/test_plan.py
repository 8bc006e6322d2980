"""One planning cycle: who starts, and why the rest waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cycle.planner import plan
from penstock.core.model.plan import Verdict
from penstock.core.place.gang import GangPlacer, NoFit, place_gang
from penstock.testing.builders import chips, node, queues
from penstock.testing.harness import World, cluster
from tests.properties import examples

HOUR = 3_600_000


def started(found):
    return [s.job_id for s in found.starts]


def verdicts(w, found):
    """Return the code of the verdict by the first job of the class."""
    return {v.first: v.code for v in found.verdicts.values()}


def test_jobs_start_in_order_until_nothing_is_free():
    w = cluster(1, 2)
    low, high, mid = (w.submit(1, priority=p) for p in (100, 1000, 500))
    assert started(w.cycle()) == [high, mid]
    assert [w.phase(j) for j in (low, high, mid)] == ["waiting", "starting", "starting"]


def test_starts_of_one_cycle_share_nothing():
    w = cluster(1, 4)
    for _ in range(3):
        w.submit(2)
    assert [chips(*s.places) for s in w.plan().starts] == [[("n0", (0, 1))], [("n0", (2, 3))]]


def test_host_resources_bound_starts_too():
    w = cluster(1, 8, cpus=4)
    jobs = [w.submit(1, cpus=2) for _ in range(3)]
    found = w.cycle()
    assert started(found) == jobs[:2]
    assert found.verdicts == {w.job(jobs[2]).class_id: Verdict("no_fit", jobs[2])}
    assert place_gang(w.job(jobs[2]).spec.ask, w.free()) == NoFit((("cpu_short", 1),), 0)


def test_a_smaller_job_goes_past_one_that_does_not_fit():
    w = cluster(1, 4)
    w.submit(3, preemptible=False)
    w.cycle()
    big, small = w.submit(4, priority=900), w.submit(1)
    found = w.cycle()
    assert started(found) == [small]
    assert verdicts(w, found) == {big: "no_fit"}


def test_a_class_that_did_not_fit_is_not_tried_again(monkeypatch):
    w = cluster(1, 2)
    jobs = [w.submit(2) for _ in range(50)]
    tried, real = [], GangPlacer.put
    monkeypatch.setattr(GangPlacer, "put", lambda self: tried.append(self.gang) or real(self))
    found = plan(w.snapshot(), w.now)
    assert started(found) == jobs[:1]
    assert len(tried) == 2
    assert len(found.verdicts) == 1


def test_a_verdict_names_the_job_that_was_tried_and_one_can_recount_why():
    w = cluster(2, 2)
    w.submit(1, 3)
    w.cycle()
    waiting = w.submit(2)
    w.submit(2)
    found = w.cycle()
    assert found.verdicts == {w.job(waiting).class_id: Verdict("no_fit", waiting)}
    assert place_gang(w.job(waiting).spec.ask, w.free()) == NoFit((("devices_short", 2),), 0)


def test_a_start_tells_how_long_the_job_waited_this_time():
    w = cluster(1, 1)
    w.submit(1)
    w.now += 4_000
    assert [s.waited_ms for s in w.plan().starts] == [4_000]


def test_a_job_that_backs_off_waits_while_its_class_goes_on():
    w = cluster(1, 1)
    first = w.submit(1, retries_max=3)
    w.run(first)
    w.exit_replica(first, code=1)
    second = w.submit(1, retries_max=3)
    found = w.plan()
    assert started(found) == [second]
    assert verdicts(w, found)[first] == "backing_off"
    w.now += 1_000
    assert started(w.plan()) == [first]


def test_jobs_that_back_off_do_not_hide_the_rest_of_their_class():
    w = cluster(1, 1, starts_per_cycle_max=1)
    first = w.submit(1, retries_max=3)
    w.run(first)
    w.exit_replica(first, code=1)
    second = w.submit(1, retries_max=3)
    assert started(w.plan()) == [second]


def test_a_cycle_starts_no_more_than_its_limit():
    w = cluster(1, 4, starts_per_cycle_max=2)
    jobs = [w.submit(1, priority=p) for p in (500, 500, 100, 500)]
    found = w.cycle()
    assert started(found) == [jobs[0], jobs[1]]
    assert verdicts(w, found) == {jobs[2]: "cycle_full", jobs[3]: "cycle_full"}
    assert started(w.cycle()) == [jobs[3], jobs[2]]


def test_a_limit_of_no_starts_is_no_fault():
    w = cluster(1, 4, starts_per_cycle_max=0)
    w.submit(1)
    assert started(w.plan()) == []


def test_a_starving_job_holds_back_those_behind_it_in_its_pool():
    w = World(node("a", 4), node("b", 4, pool="other"), pools=pools("default", "other"), starvation_after_ms=HOUR)
    w.submit(2, preemptible=False)
    w.cycle()
    starving = w.submit(4)
    w.now += 2 * HOUR
    behind, elsewhere = w.submit(1), w.submit(1, pool="other")
    found = w.plan()
    assert started(found) == [elsewhere]
    assert verdicts(w, found) == {starving: "no_fit", behind: "kept_back"}
    assert found.verdicts[w.job(behind).class_id].blocker == starving


def test_a_job_starves_only_after_the_settled_time():
    w = cluster(1, 4, starvation_after_ms=HOUR)
    w.submit(2, preemptible=False)
    w.cycle()
    w.submit(4)
    w.now += HOUR - 1
    behind = w.submit(1)
    assert started(w.plan()) == [behind]


def test_a_job_that_can_never_fit_does_not_stop_its_pool():
    w = cluster(1, 4, allow_waiting_for_nodes=True, starvation_after_ms=HOUR)
    w.submit(8, priority=900)
    w.now += HOUR
    behind = w.submit(1)
    assert started(w.plan()) == [behind]


def test_a_job_that_fits_the_cluster_does_not_wait_for_ever():
    w = cluster(1, 2, starvation_after_ms=HOUR)
    low = w.submit(2, priority=100, preemptible=False)
    stream = [w.submit(1, priority=500), w.submit(1, priority=500)]
    w.run(*stream)
    for _ in range(40):
        w.now += HOUR
        w.exit_replica(stream.pop(0))
        stream.append(w.submit(1, priority=500))
        if low in started(w.cycle()) or w.phase(low) != "waiting":
            return
        w.start(*started(w.last_plan))
    pytest.fail("the low job never started")


def pools(*names):
    from penstock.core.model.cluster import Pool

    return tuple(Pool(name) for name in names)


submits = st.lists(
    st.fixed_dictionaries(
        {
            "devices": st.integers(0, 3),
            "replicas": st.integers(1, 3),
            "priority": st.sampled_from([100, 500, 1000]),
            "queue": st.sampled_from(["a", "b"]),
            "cpus": st.integers(1, 3),
        }
    ),
    max_size=10,
)


def busy(found):
    w = cluster(2, 4, cpus=6, queues=queues("a", "b"), allow_waiting_for_nodes=True)
    for fields in found[: len(found) // 2]:
        w.submit(**fields)
    w.cycle()
    for fields in found[len(found) // 2 :]:
        w.submit(**fields)
    return w


@examples(80)
@given(submits)
def test_nothing_is_planned_beyond_capacity(found):
    w = busy(found)
    proposed = w.plan()
    assert w.apply(proposed).dropped == 0  # the world checks all invariants at the commit


@examples(80)
@given(submits)
def test_a_cycle_leaves_nothing_that_would_fit(found):
    """Known gap: of several jobs that others leave for, the older is looked at first in the next cycle, and not the one
    that room was made for first; it may then start where room was kept for another, which takes the older one's.
    """
    w = busy(found)
    several = len({p.beneficiary for p in w.cycle().preemptions}) > 1
    kept = w.plan()
    assert kept.starts == () or kept.held or several


@examples(60)
@given(submits)
def test_equal_snapshots_give_equal_plans(found):
    w = busy(found)
    assert plan(w.snapshot(), w.now) == plan(w.snapshot(), w.now)
