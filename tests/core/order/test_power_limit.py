"""Limits of power of a pool: what devices count, what waits, what is refused, and what the explanation says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.explain import explain
from penstock.core.model import events as ev
from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.measured import Measured
from penstock.core.model.plan import QuotaExceeded
from penstock.core.order.expected_power import UNKNOWN_MW
from penstock.core.order.ranks import request_class
from penstock.core.state.snapshot import take_snapshot
from penstock.core.status.alerts import empty_cluster
from penstock.testing.builders import ask, device, job_spec, node
from penstock.testing.harness import World
from tests.properties import examples

W = 1_000


def watts(count, limit=400, *, index=0, **fields):
    return tuple(device(index + i, power_limit_mw=limit * W, **fields) for i in range(count))


def capped(limit_w, *nodes, **config):
    pools = (Pool("default", power_limit_mw=limit_w * W), Pool("other"))
    return World(*nodes or (node("a", watts(4)), node("o", watts(4), pool="other")), pools=pools, **config)


def started(found):
    return sorted(start.job_id for start in found.starts)


def blocks(found):
    return {verdict.first: verdict.quota for verdict in found.verdicts.values()}


def test_a_start_that_would_exceed_the_limit_waits_and_other_pools_go_on():
    w = capped(1_000)
    jobs = [w.submit(1, pool=pool) for pool in ("default", "default", "default", "other")]
    found = w.cycle()
    assert started(found) == [jobs[0], jobs[1], jobs[3]]
    (verdict,) = found.verdicts.values()
    assert (verdict.code, verdict.first) == ("power_cap", jobs[2])
    assert verdict.quota == QuotaExceeded("root", "default/power", 800 * W, 1_000 * W, 400 * W)


def test_a_device_without_a_limit_or_a_measurement_counts_as_one_that_draws_much():
    w = capped(2 * UNKNOWN_MW // W, node("a", 4))
    jobs = [w.submit(1) for _ in range(3)]
    assert started(w.cycle()) == jobs[:2]


def test_parts_of_devices_count_by_their_share():
    w = capped(500)
    jobs = [w.submit(1, share_milli=250) for _ in range(6)]
    assert started(w.cycle()) == jobs[:5]


def test_jobs_without_devices_never_wait_for_power():
    w = capped(1)
    job = w.submit(0)
    assert started(w.cycle()) == [job]


def measured(w, job, mean_w):
    """Let a job end of which so much power was measured."""
    w.now += 10_000
    energy = Measured(powered_ms=10_000, energy_mj=mean_w * 10_000)
    w.exit_replica(job, measured=energy)


def test_measured_power_of_a_model_counts_instead_of_its_limit():
    w = capped(1_000)
    first = w.submit(1)
    w.run(first)
    measured(w, first, 249)
    jobs = [w.submit(1) for _ in range(4)]
    assert started(w.cycle()) == jobs
    assert dict(take_snapshot(w.state).pool_powers["default"]) == {"A100": 249 * W}


def test_what_is_measured_of_running_jobs_later_stops_none_and_starts_no_more():
    w = capped(1_000)
    first, second = w.submit(1), w.submit(1)
    w.run(first, second)
    measured(w, first, 900)
    assert w.job(second).state == "running"
    third = w.submit(1)
    assert blocks(w.cycle()) == {third: QuotaExceeded("root", "default/power", 900 * W, 1_000 * W, 900 * W)}


def test_the_explanation_has_the_numbers_and_the_edit_that_starts_it():
    w = capped(1_000)
    for _ in range(2):
        w.run(w.submit(1, preemptible=False))
    job = w.submit(1)
    found = explain(w.state, w.job(job), w.now)
    text = "pool default: devices in use are expected to draw 800 W of 1000 W, this job 400 W: 200 W too much"
    assert (found.code, found.text) == ("power_cap", f"{text}; in use by job 1, 2")
    assert (found.constraints[0].distance, found.constraints[0].unit) == (200 * W, "power_mw")
    assert ("pools.default.power_limit", "1000", "1200") in [(e.path, e.old, e.new) for e in found.edits]
    assert "raise the power limit of pool default by 200 W" in [e.text for e in found.edits]


@pytest.mark.parametrize(("devices", "code"), [(2, ""), (3, "over_power_limit")])
def test_a_job_whose_devices_alone_exceed_the_limit_is_refused(devices, code):
    answer = capped(1_000).request(job_spec(devices))
    assert [problem.code for problem in getattr(answer, "problems", ())] == [code] * bool(code)


def test_the_refusal_names_the_power_the_limit_and_what_to_do():
    (problem,) = capped(1_000).request(job_spec(3)).problems
    said = "its devices are expected to draw 1200 W, and devices of pool default may draw 1000 W together"
    assert (problem.field, problem.message) == ("devices", f"{said}: it could never start")
    assert "power_limit" in problem.hint


def test_a_job_that_a_lower_limit_leaves_behind_is_an_alert():
    w = capped(2_000)
    job = w.submit(4)
    low = replace(w.state.config, pools=(Pool("default", power_limit_mw=1_000 * W), Pool("other")))
    w.emit(ev.ConfigChanged(low, "operator"))
    found = empty_cluster(w.state, w.now).never(request_class(w.job(job), w.state.config))
    assert [one.code for one in found] == ["power_never"]


def test_jobs_of_lower_priority_make_room_for_power_too():
    w = capped(800)
    low = [w.submit(1) for _ in range(2)]
    for job in low:
        w.run(job)
    high = w.submit(2, priority=900)
    found = w.cycle()
    assert sorted((p.victim, p.beneficiary) for p in found.preemptions) == [(job, high) for job in low]


def test_a_model_that_draws_less_is_counted_by_what_was_given():
    nodes = (node("a", watts(2, 700, model="H100")), node("b", watts(2, 300)))
    w = capped(1_000, *nodes)
    jobs = [w.submit(1, models=("A100",)) for _ in range(2)] + [w.submit(1, models=("H100",))]
    found = w.cycle()
    assert started(found) == jobs[:2]
    assert blocks(found)[jobs[2]].asked == 700 * W


def test_elastic_jobs_grow_within_the_limit():
    w = capped(1_300)
    job = w.submit(1, gang=replace(ask(1), replicas_max=4))
    (start,) = w.cycle().starts
    assert (start.job_id, len(start.places)) == (job, 3)


def test_devices_of_one_model_count_by_the_highest_limit_among_them():
    w = capped(1_000, node("a", (*watts(1, 600), *watts(1, 300, index=1))))
    jobs = [w.submit(1), w.submit(1)]
    assert started(w.cycle()) == jobs[:1]


@pytest.mark.parametrize(("limit_w", "rules"), [(1_000, ["grow"]), (999, [])])
def test_a_running_job_grows_only_where_any_model_that_it_may_get_keeps_to_the_limit(limit_w, rules):
    w = capped(limit_w, node("a", watts(1, 300)), node("b", watts(1, 700, model="H100")))
    held = w.submit(1, models=("H100",)) if limit_w == 1_000 else None
    job = w.submit(1, gang=replace(ask(1), replicas_max=2))
    w.run(*(one for one in (held, job) if one is not None))
    if held is not None:
        w.exit_replica(held)
    w.tick(3_600_000)
    assert [p.rule for p in w.cycle().preemptions] == rules


@pytest.mark.parametrize("limits", [(400, 400), (400, 300)])
def test_many_jobs_at_once_keep_to_the_limit_too(limits):
    nodes = [node(f"n{i}", watts(100, watt, model=f"M{i}"), cpus=200) for i, watt in enumerate(limits)]
    w = capped(400 * 150, *nodes)
    for _ in range(190):
        w.submit(1)
    found = w.cycle()
    drawn = sum(w.state.nodes[p.node].spec.devices[0].power_limit_mw for s in found.starts for p in s.places)
    assert 400 * W * 149 < drawn <= 400 * W * 150
    assert {verdict.code for verdict in found.verdicts.values()} == {"power_cap"}


def test_a_limit_that_is_set_later_counts_what_runs():
    w = World(node("a", watts(4)))
    w.run(w.submit(2, preemptible=False))
    w.emit(ev.ConfigChanged(replace(w.state.config, pools=(Pool("default", power_limit_mw=1_000 * W),)), "operator"))
    job = w.submit(1)
    assert blocks(w.cycle()) == {job: QuotaExceeded("root", "default/power", 800 * W, 1_000 * W, 400 * W)}


@pytest.mark.parametrize(("raw", "limit_mw"), [(20_000, 20_000_000), (0.5, None), (750.5, 750_500), ("much", None)])
def test_the_setting_is_read_in_watts(raw, limit_mw):
    file, problems = parse_cluster({"pools": [{"name": "p", "power_limit": raw}]})
    if limit_mw is None:
        assert [problem.field for problem in problems] == ["pools[0].power_limit"]
    else:
        assert (problems, file.config.pools[0].power_limit_mw) == ([], limit_mw)
        assert declaration(file.config)["pools"][0]["power_limit"] == limit_mw / W


@given(st.randoms(use_true_random=False))
@examples(30)
def test_whatever_happens_the_power_of_what_was_started_stays_within_the_limit(rnd: random.Random):
    limits = [rnd.choice((200, 400, 700)) for _ in range(3)]
    limit_w = rnd.randrange(300, 3_000)
    nodes = [node(f"n{i}", watts(4, watt, model=f"M{watt}")) for i, watt in enumerate(limits)]
    w = capped(limit_w, *nodes, queues=(Queue("default", policy=rnd.choice(("priority", "fair_share"))),))
    for _ in range(rnd.randrange(5, 15)):
        share = rnd.choice(({}, {}, {"share_milli": 500}))
        w.request(job_spec(1 if share else rnd.randrange(0, 4), priority=rnd.randrange(3), **share))
        if rnd.random() < 0.5:
            w.cycle()
        for job_id in list(w.state.indexes.active)[: rnd.randrange(3)]:
            w.cancel(job_id)
        drawn = sum(
            (1000 - milli) * w.state.nodes[name].spec.devices[i].power_limit_mw // 1000
            for name, free in w.state.indexes.free.items()
            for i, milli in enumerate(free.devices)
        )
        assert drawn <= limit_w * W
