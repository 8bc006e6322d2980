"""Planning a cycle in several ways: the best of those that no other beats is taken, and the front can be looked at."""

import msgspec

from penstock.core.cycle.alternatives import PlanChooser, facts_of, weigh
from penstock.core.cycle.planner import plan
from penstock.core.model.cluster import Tenant
from penstock.core.model.objectives import Front
from penstock.core.state.snapshot import take_snapshot
from penstock.testing.builders import device, node
from penstock.testing.harness import World, cluster


def chosen(w: World):
    return PlanChooser().plan(take_snapshot(w.state), w.now)


def crowded(**fields):
    """Two big nodes; best fit keeps one of them whole for the job of four, worst fit does not."""
    w = World(node("a", 4), node("b", 4), candidates=("best_fit", "worst_fit"), **fields)
    w.now += 1_000
    for _ in range(2):
        w.submit(1, priority=900)
    w.submit(4, priority=100)
    w.now += 60_000
    return w


def test_the_plan_that_starts_more_is_taken():
    found = chosen(crowded())
    assert [s.job_id for s in found.starts] == [1, 2, 3]
    assert found.front is not None
    assert found.front.chosen == 0
    assert found.front.points[1].dominated_by == 0


def test_without_candidates_there_is_no_front():
    w = cluster(1, 2)
    w.submit(1)
    found = chosen(w)
    assert found.front is None
    assert found == plan(take_snapshot(w.state), w.now)


def test_the_front_is_data():
    found = chosen(crowded())
    assert msgspec.json.decode(msgspec.json.encode(found.front), type=Front) == found.front


def test_equal_plans_fall_to_the_first_candidate():
    w = World(node("a", 4), candidates=("best_fit", "worst_fit"))
    w.submit(1)
    assert chosen(w).front.chosen == 0


def test_facts_count_what_would_be_in_use():
    w = crowded()
    snapshot = take_snapshot(w.state)
    facts = facts_of(snapshot, plan(snapshot, w.now), w.now)
    assert (facts.devices_used, facts.devices_total) == (6, 8)
    assert (facts.started_wait_ms, facts.left_wait_ms) == (3 * 60_000, 0)
    assert (facts.share_min_milli, facts.share_max_milli) == (6_000, 6_000)


def test_prices_of_models_count():
    from penstock.core.model.cluster import Pool

    w = World(node("a", 2), pools=(Pool("default", speeds=(("A100", 1000, 4000),)),))
    w.submit(2)
    snapshot = take_snapshot(w.state)
    facts = facts_of(snapshot, plan(snapshot, w.now), w.now)
    assert (facts.price_per_hour, facts.device_price_max_per_hour) == (8000, 4000)


def test_the_power_of_a_plan_is_as_measured_by_model_and_the_most_where_a_model_was_not():
    w = World(node("a", (device(0), device(1, model="H100"), device(2, model="X1"), device(3, healthy=False))))
    w.run(w.submit(1, models=("A100",)))
    for model in ("H100", "X1"):
        w.submit(1, models=(model,))
    snapshot = take_snapshot(w.state)
    wanted = plan(snapshot, w.now)
    assert len(wanted.starts) == 2
    unknown = facts_of(snapshot, wanted, w.now)
    assert (unknown.power_watts, unknown.device_power_max_watts) == (0, 0)
    known = msgspec.structs.replace(snapshot, powers={"A100": 250_000, "H100": 600_000})
    facts = facts_of(known, wanted, w.now)
    assert (facts.power_watts, facts.device_power_max_watts) == (250 + 600 + 600, 600)


def test_of_two_models_a_plan_takes_the_one_that_draws_less():
    w = World(
        node("a", (device(0, model="HOT"),)),
        node("b", (device(0, model="COOL"),), cpus=64),
        candidates=("best_fit", "worst_fit"),
        objective_utilisation_milli=0, objective_response_time_milli=0, objective_fairness_milli=0,
        objective_cost_milli=0, objective_energy_milli=1_000,
    )  # fmt: skip
    w.submit(1)
    snapshot = msgspec.structs.replace(take_snapshot(w.state), powers={"HOT": 700_000, "COOL": 300_000})
    found = PlanChooser().plan(snapshot, w.now)
    assert [place.node for start in found.starts for place in start.places] == ["b"]


def test_weights_decide_among_plans_that_none_beats():
    w = crowded()
    snapshot = take_snapshot(w.state)
    plans = [plan(snapshot, w.now), plan(snapshot, w.now)]
    assert weigh(snapshot, plans, w.now).chosen == 0


def test_a_planner_that_is_kept_decides_as_a_fresh_one():
    w, kept = crowded(), PlanChooser()
    for _ in range(3):
        snapshot = take_snapshot(w.state)
        found = kept.plan(snapshot, w.now)
        assert found == PlanChooser().plan(snapshot, w.now)
        w.apply(found)
        w.now += 1_000
        w.submit(1)


def test_a_tenant_that_used_something_once_has_no_share():
    w = World(node("a", 2), tenants=(Tenant("default"), Tenant("gone")), fair_share_half_life_ms=60_000)
    w.run(w.submit(1, tenant="gone"))
    w.exit_replica(1)
    w.run(w.submit(1))
    snapshot = w.snapshot()
    facts = facts_of(snapshot, plan(snapshot, w.now), w.now)
    assert (facts.share_min_milli, facts.share_max_milli) == (1_000, 1_000)
