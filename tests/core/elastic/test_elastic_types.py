"""Device types: best speed per cost for one job, comparative advantage among several."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.types import TypedJob, assign_types, choose_type, in_order, service_of
from tests.properties import examples

HOUR = 3_600_000
NAMES = ("a100", "k80", "p100", "v100")


def test_the_best_speed_per_cost_wins():
    speeds, prices = {"v100": 1000, "p100": 700, "k80": 200}, {"v100": 248, "p100": 146, "k80": 45}
    assert choose_type(speeds, {}, speeds) == "v100"
    assert choose_type(speeds, prices, speeds) == "p100"
    assert choose_type(speeds, prices, ["k80"]) == "k80"


def test_a_type_that_the_job_does_not_accept_is_never_chosen():
    assert choose_type({"v100": 5}, {}, ["k80", "p100"]) is None
    assert choose_type({"v100": 5, "k80": 0}, {}, ["k80"]) is None


def test_equal_value_falls_to_the_faster_then_to_the_name():
    assert choose_type({"a": 10, "b": 20, "c": 20}, {"a": 1, "b": 2, "c": 2}, ["c", "b", "a"]) == "b"


def test_who_loses_least_elsewhere_moves():
    """Both are fastest on the V100, but one of them hardly minds the K80."""
    jobs = [TypedJob(1, {"v100": 1000, "k80": 900}), TypedJob(2, {"v100": 1000, "k80": 100})]
    assert assign_types(jobs, {"v100": 1, "k80": 1}) == {1: "k80", 2: "v100"}


def test_a_chain_of_moves_is_found():
    jobs = [
        TypedJob(1, {"a": 100, "b": 99}),
        TypedJob(2, {"b": 100, "c": 99}),
        TypedJob(3, {"a": 100, "c": 1}),
    ]
    assert assign_types(jobs, {"a": 1, "b": 1, "c": 1}) == {1: "b", 2: "c", 3: "a"}


def test_a_job_that_fits_only_one_type_makes_an_earlier_one_move():
    jobs = [TypedJob(1, {"v100": 10, "k80": 1}, submitted_ms=1), TypedJob(2, {"v100": 1}, submitted_ms=2)]
    assert assign_types(jobs, {"v100": 1, "k80": 1}) == {1: "k80", 2: "v100"}


def test_moving_must_pay_for_its_restart():
    running = TypedJob(1, {"v100": 100, "k80": 95}, held="k80", rest_ms=300_000)
    assert assign_types([running], {"v100": 1, "k80": 1}) == {1: "k80"}
    longer = TypedJob(1, {"v100": 100, "k80": 95}, held="k80", rest_ms=HOUR)
    assert assign_types([longer], {"v100": 1, "k80": 1}) == {1: "v100"}


def test_orders_decide_who_gets_devices_at_all():
    old = TypedJob(1, {"k80": 1}, submitted_ms=0, service_ms=9 * HOUR)
    new = TypedJob(2, {"k80": 1}, submitted_ms=5, service_ms=0)
    assert assign_types([old, new], {"k80": 1}, "fifo") == {1: "k80"}
    assert assign_types([old, new], {"k80": 1}, "las") == {2: "k80"}


def test_like_service_does_not_take_turns():
    jobs = [TypedJob(n, {"k80": 1}, submitted_ms=n, service_ms=s) for n, s in ((1, 4 * HOUR - 1), (2, 2 * HOUR))]
    assert [j.id for j in in_order(jobs, "las")] == [1, 2]


def test_service_counts_by_speed():
    assert service_of(HOUR, 500, {"v100": 1000, "k80": 500}) == HOUR // 2


def test_a_gang_takes_its_devices_on_one_type():
    jobs = [TypedJob(1, {"v100": 10, "k80": 9}, devices=4), TypedJob(2, {"k80": 1})]
    assert assign_types(jobs, {"v100": 4, "k80": 4}) == {1: "v100", 2: "k80"}
    assert assign_types(jobs[:1], {"v100": 3, "k80": 3}) == {}


@st.composite
def pools(draw, devices=(1,)):
    types = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    capacity = {t: draw(st.integers(0, 4)) for t in types}
    speeds = st.dictionaries(st.sampled_from(types), st.integers(1, 1000), min_size=1)
    made = st.builds(
        lambda s, d, held, rest: (s, d, held if held in s else "", rest),
        speeds,
        st.sampled_from(devices),
        st.sampled_from(types),
        st.integers(0, HOUR),
    )
    jobs = [
        TypedJob(n, s, d, held=held, submitted_ms=n, rest_ms=rest)
        for n, (s, d, held, rest) in enumerate(draw(st.lists(made, min_size=1, max_size=9)))
    ]
    return jobs, capacity


def value(job, device_type, capacity):
    best = max(speed for t, speed in job.speeds.items() if capacity.get(t, 0) > 0)
    full = 1_000_000 * (job.speeds[device_type] * 10**9) // (best * 10**9)
    return full * job.rest_ms // (job.rest_ms + 30_000) if job.held and job.held != device_type else full


@given(pools())
@examples(150)
def test_the_sum_is_that_of_the_linear_program(pool):
    from scipy.optimize import linprog  # takes a second to load

    jobs, capacity = pool
    found = assign_types(jobs, capacity)
    admitted = [job for job in jobs if job.id in found]
    if not admitted:
        return
    pairs = [(job, t) for job in admitted for t in job.speeds if capacity.get(t, 0) > 0]
    each = numpy.array([[float(job is one) for job, _ in pairs] for one in admitted])
    kinds = sorted(capacity)
    of_type = numpy.array([[float(t == kind) for _, t in pairs] for kind in kinds])
    best = linprog(
        [-value(job, t, capacity) for job, t in pairs],
        A_ub=of_type,
        b_ub=[capacity[k] for k in kinds],
        A_eq=each,
        b_eq=[1.0] * len(admitted),
    )
    assert sum(value(job, found[job.id], capacity) for job in admitted) == pytest.approx(-best.fun, abs=2)


@given(pools(devices=(1, 2)))
def test_types_are_accepted_and_never_overfull(pool):
    jobs, capacity = pool
    found = assign_types(jobs, capacity)
    used = dict.fromkeys(capacity, 0)
    for job in jobs:
        if job.id in found:
            assert found[job.id] in job.speeds
            used[found[job.id]] += job.devices
    assert all(used[t] <= capacity[t] for t in capacity)


@given(pools())
def test_nobody_waits_while_a_device_that_it_accepts_is_idle(pool):
    jobs, capacity = pool
    found = assign_types(jobs, capacity)
    idle = {t for t, count in capacity.items() if count > sum(1 for chosen in found.values() if chosen == t)}
    assert not any(idle & set(job.speeds) for job in jobs if job.id not in found)


@given(pools(devices=(1, 2)), st.randoms(use_true_random=False))
def test_order_of_jobs_and_types_never_matters(pool, rnd):
    jobs, capacity = pool
    shuffled = dict(rnd.sample(sorted(capacity.items()), len(capacity)))
    assert assign_types(rnd.sample(jobs, len(jobs)), shuffled) == assign_types(jobs, capacity)
