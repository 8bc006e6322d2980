"""Starting many at once decides as looking at one after the other does."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.cycle import bulk
from penstock.core.cycle.planner import plan
from penstock.core.model.cluster import Pool, Queue
from penstock.testing.builders import ask, node, queues
from penstock.testing.harness import World, cluster
from tests.core.rich import history
from tests.properties import examples


@pytest.fixture
def bounds(monkeypatch):
    """Set how few and how many jobs make a wave."""

    def to(least, most=16_384):
        monkeypatch.setattr(bulk, "WAVE_MIN", least)
        monkeypatch.setattr(bulk, "WAVE_MAX", most)

    return to


def outcome(w):
    """Return who starts, and what is said of the rest."""
    found = plan(w.snapshot(), w.now)
    said = {class_id: (v.code, v.first) for class_id, v in found.verdicts.items()}
    return sorted(s.job_id for s in found.starts), said, found.reserved


def both(w, bounds, most=16_384):
    bounds(10**9)
    one_by_one = outcome(w)
    bounds(1, most)
    return one_by_one, outcome(w)


def test_waves_happen(bounds, monkeypatch):
    w = cluster(4, 8)
    for _ in range(30):
        w.submit(1)
    sizes, real = [], bulk._place
    monkeypatch.setattr(bulk, "_place", lambda workspace, wave: sizes.append(len(wave)) or real(workspace, wave))
    bounds(4)
    assert len(plan(w.snapshot(), w.now).starts) == 30
    assert sizes == [16, 8, 4]  # half of what is free each time: more might not fit as they stand


def test_jobs_without_devices_make_no_wave_where_few_of_them_fit(bounds, monkeypatch):
    """Their devices are always free, so to speak: what hosts have left decides how many go into a wave."""
    w = World(node("a", 4, cpus=16), node("b", 4, cpus=16))
    w.run(*(w.submit(0, cpus=2) for _ in range(10)))
    for _ in range(30):
        w.submit(0, cpus=2)
    sizes, real = [], bulk._place
    monkeypatch.setattr(bulk, "_place", lambda workspace, wave: sizes.append(len(wave)) or real(workspace, wave))
    bounds(2)
    assert len(plan(w.snapshot(), w.now).starts) == 6
    assert sizes == [3]


def crowded(rnd, uniform):
    """Return a world with far more room than one job needs, and jobs of many classes."""
    nodes = [node(f"n{i}", 8, cpus=64) for i in range(6)]
    tree = (
        Queue("p", policy=rnd.choice(["fair_share", "capacity", "priority"])),
        Queue("a", "p", policy=rnd.choice(["fifo", "fair_share"]), max=(("devices", 1_000 * rnd.randint(4, 40)),)),
        Queue("b", "p", weight=2),
        Queue("c", policy="least_attained"),
        Queue("d", policy="shortest_predicted", max=(("jobs", 5),)),
    )
    w = World(
        *nodes, queues=tree, pools=(Pool("default", reserve_milli=rnd.choice([0, 200])),), root_policy="fair_share"
    )
    for _ in range(rnd.randint(10, 60)):
        w.submit(
            1 if uniform else rnd.choice([1, 1, 2]),
            1 if uniform else rnd.choice([1, 1, 2]),
            queue=rnd.choice("abcd"),
            priority=rnd.choice([100, 500, 900]),
            preemptible=rnd.random() < 0.7,
            estimated_duration_ms=rnd.choice([0, 60_000]),
            alternatives=(ask(2),) if rnd.random() < 0.1 else (),
        )
    return w


@examples(50)
@given(st.integers(0, 2**32), st.sampled_from([4, 16, 16_384]))
def test_waves_start_exactly_the_jobs_that_one_by_one_would(seed, most):
    rnd = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:

        def to(least, most=16_384):
            patch.setattr(bulk, "WAVE_MIN", least)
            patch.setattr(bulk, "WAVE_MAX", most)

        one_by_one, at_once = both(crowded(rnd, uniform=rnd.random() < 0.5), to, most)
        assert at_once == one_by_one


@examples(30)
@given(st.integers(0, 2**32))
def test_a_history_that_goes_in_waves_breaks_no_promise(seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "WAVE_MIN", 2)
        patch.setattr(bulk, "WAVE_MAX", 8)
        history(seed, 80)


def test_the_limit_of_a_cycle_holds_for_waves(bounds):
    w = cluster(2, 8, starts_per_cycle_max=5)
    for _ in range(10):
        w.submit(1)
    bounds(1)
    assert len(plan(w.snapshot(), w.now).starts) == 5


def test_a_maximum_that_is_reached_in_a_wave_is_kept(bounds):
    w = cluster(2, 8, queues=queues("default", max=(("devices", 3_000),)))
    for _ in range(10):
        w.submit(1)
    one_by_one, at_once = both(w, bounds)
    assert at_once == one_by_one
    assert len(at_once[0]) == 3


def test_what_starts_in_a_wave_is_expected_to_end_again(bounds):
    w = World(node("a", 8), queues=queues("default", policy="fifo", preemption="never"))
    for _ in range(4):
        w.submit(1, estimated_duration_ms=8_192)
    blocked = w.submit(8)
    w.submit(1)
    one_by_one, at_once = both(w, bounds)
    assert at_once == one_by_one
    assert [(r.job_id, r.start_ms) for r in at_once[2]] == [(blocked, w.now + 8_192)]


def test_a_wave_in_which_one_does_not_fit_never_was(bounds):
    fifo, spread = queues("default", policy="fifo", preemption="never"), (Pool("default", placement="worst_fit"),)
    w = World(*(node(f"n{i}", 2) for i in range(4)), queues=fifo, pools=spread)
    w.run(*[w.submit(1) for _ in range(4)])
    for _ in range(2):
        w.submit(2)
    small = [w.submit(1, cpus=2) for _ in range(2)]
    one_by_one, at_once = both(w, bounds, 4)
    assert at_once == one_by_one
    assert set(small) <= set(at_once[0])
