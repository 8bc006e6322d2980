"""Planning a cycle in several ways: the best of those that no other beats is taken, and the front can be looked at."""

import msgspec

from penstock.core.cycle.alternatives import PlanChooser, facts_of, weigh
from penstock.core.cycle.planner import plan
from penstock.core.model.cluster import Pool, Tenant
from penstock.core.model.measured import Measured
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
    w = World(node("a", 2), pools=(Pool("default", speeds=(("A100", 1000, 4000),)),))
    w.submit(2)
    snapshot = take_snapshot(w.state)
    facts = facts_of(snapshot, plan(snapshot, w.now), w.now)
    assert (facts.price_per_hour, facts.device_price_max_per_hour) == (8000, 4000)


def test_the_power_of_a_plan_is_as_measured_by_model_else_as_declared():
    limited = device(2, model="X1", power_limit_mw=300_000)
    w = World(node("a", (device(0), device(1, model="H100"), limited, device(3, healthy=False))))
    w.run(w.submit(1, models=("A100",)))
    for model in ("H100", "X1"):
        w.submit(1, models=(model,))
    snapshot = msgspec.structs.replace(take_snapshot(w.state), powers={"A100": 250_000, "H100": 600_000})
    facts = facts_of(snapshot, plan(snapshot, w.now), w.now)
    assert (facts.power_mw, facts.powered_milli, facts.device_power_max_mw) == (1_150_000, 3_000, 600_000)


def test_the_limit_of_a_pool_is_a_declaration_where_it_is_lower():
    w = World(
        node("a", (device(0, power_limit_mw=700_000), device(1, model="NEW"))),
        pools=(Pool("default", device_power_limit_mw=400_000),),
    )
    w.submit(2)
    snapshot = take_snapshot(w.state)
    assert facts_of(snapshot, plan(snapshot, w.now), w.now).power_mw == 800_000


def energetic(*specs):
    w = World(
        *specs,
        candidates=("best_fit", "worst_fit"),
        objective_utilisation_milli=0, objective_response_time_milli=0, objective_fairness_milli=0,
        objective_cost_milli=0, objective_energy_milli=1_000,
    )  # fmt: skip
    w.submit(1)
    return w


def weighed(w, powers):
    snapshot = msgspec.structs.replace(take_snapshot(w.state), powers=powers)
    found = PlanChooser().plan(snapshot, w.now)
    scores = [point.scores.energy for point in found.front.points]
    return [place.node for start in found.starts for place in start.places], scores, found.front.energy


def test_plans_are_told_apart_by_what_nodes_measured():
    """Replicas that have ended on each model, with the energy that their nodes reported."""
    w = energetic(node("a", (device(0, model="HOT"),)), node("b", (device(0, model="COOL"),), cpus=64))
    w.cancel(1)
    for model, watts in (("HOT", 700), ("COOL", 300)):
        job = w.submit(1, models=(model,))
        w.run(job)
        w.now += 10_000
        w.exit_replica(job, measured=Measured(powered_ms=10_000, energy_mj=watts * 10_000))
    w.submit(1)
    places, scores, text = weighed(w, take_snapshot(w.state).powers)
    assert (places, scores) == (["b"], [0, 572])
    assert text == "energy by power measured for COOL, HOT"


def test_plans_are_told_apart_by_declared_limits_where_nothing_was_measured():
    hot, cool = device(0, model="HOT", power_limit_mw=700_000), device(0, model="COOL", power_limit_mw=350_000)
    places, scores, text = weighed(energetic(node("a", (hot,)), node("b", (cool,), cpus=64)), {})
    assert (places, scores) == (["b"], [0, 500])
    assert text == "energy by power declared for COOL, HOT"


def test_energy_is_not_compared_where_it_is_unknown_of_a_model():
    hot, other = device(0, model="HOT"), device(0, model="OTHER")
    places, scores, text = weighed(energetic(node("a", (hot,)), node("b", (other,), cpus=64)), {"HOT": 700_000})
    assert (places, scores) == (["a"], [1_000, 1_000])
    assert text == "energy is not compared: power of OTHER is neither measured nor declared"


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
