"""Device models in a cycle: who gets which at the start, who moves, and what is never touched."""

import pytest

from penstock.core.explain.why import explain
from penstock.core.lifecycle.orders import stop_reason
from penstock.core.model.cluster import Pool, Queue, Tenant
from penstock.core.model.events import ConfigChanged, SaveSignalNoted
from penstock.core.model.jobs import GangAsk
from penstock.core.model.matching import ModelRule
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.state.state import fold
from penstock.testing.builders import config, device, node
from penstock.testing.harness import World, finish, follow, note

MINUTE, HOUR = 60_000, 3_600_000
MOVES = ModelRule(match=True, move=True)


def mixed(each=1, rule=None, pool=None, **fields):
    """Return a world with nodes k80 and v100 of one pool, with `each` devices."""
    pool = pool or Pool("default", models=rule or MOVES)
    nodes = [node(m, tuple(device(i, model=m.upper()) for i in range(each))) for m in ("k80", "v100")]
    return World(*nodes, pools=(pool,), **fields)


def taught(w, **jobs):
    """Let jobs run on both models one after the other: name = (step on K80, step on V100)."""
    for name, steps in jobs.items():
        for model, step_ms in zip(("K80", "V100"), steps, strict=True):
            job = w.submit(name=name, models=(model,))
            w.run(job)
            note(w, job, step_ms=step_ms)
            finish(w, job)
    return w


def learned(**fields):
    """`picky` is ten times as fast on a V100, `easy` hardly faster."""
    return taught(mixed(**fields), picky=(1000, 100), easy=(110, 100))


def go(w, job):
    """Report a started job as running, with a program that can save."""
    w.start(job)
    w.emit(SaveSignalNoted(job, w.attempt(job).number, "SIGUSR1"))
    note(w, job, step_ms=0)


def rules(plan):
    return [(p.victim, p.beneficiary, p.rule) for p in plan.preemptions]


def test_who_loses_least_gets_the_slower_model():
    w = learned()
    easy, picky = w.submit(name="easy"), w.submit(name="picky")
    w.cycle()
    assert (w.where(easy), w.where(picky)) == ("k80", "v100")


def test_models_of_a_pool_are_those_of_its_nodes_now_whatever_other_pools_have():
    """The V100 of another pool, whose name comes first, is of the same kind."""
    w = learned()
    picky, easy = w.submit(name="picky"), w.submit(name="easy")
    w.hello(node("a", (device(0, model="V100"),), pool="q"))
    w.cycle()
    assert (w.where(easy), w.where(picky)) == ("k80", "v100")


def test_a_pool_that_does_not_match_is_blind():
    w = learned(rule=ModelRule())
    picky = w.submit(name="picky")
    w.cycle()
    assert w.where(picky) == "k80"


def test_cost_counts_beside_speed():
    """A V100 that costs twenty times as much is not worth ten times the speed."""
    dear = Pool("default", speeds=(("K80", 1000, 1000), ("V100", 1000, 20_000)), models=ModelRule(match=True))
    w = taught(mixed(pool=dear), picky=(1000, 100))
    picky = w.submit(name="picky")
    w.cycle()
    assert w.where(picky) == "k80"


def test_what_is_declared_counts_where_nothing_was_measured():
    fast = Pool("default", speeds=(("K80", 1000, 1000), ("V100", 5000, 1000)), models=ModelRule(match=True))
    w = mixed(pool=fast)
    job = w.submit()
    w.cycle()
    assert w.where(job) == "v100"


def test_a_job_gets_no_model_that_it_does_not_accept():
    w = learned()
    picky = w.submit(name="picky", models=("K80",))
    w.cycle()
    assert w.where(picky) == "k80"


def test_nobody_gets_a_slower_model_for_another_tenant():
    w = learned(tenants=(Tenant("default"), Tenant("other")))
    easy = w.submit(name="easy")
    w.run(easy)
    go(w, easy)
    taught_to_bob = Pool("default", speeds=(("K80", 1000, 1000), ("V100", 9000, 1000)), models=MOVES)
    w.emit(ConfigChanged(config(pools=(taught_to_bob,), tenants=w.state.config.tenants), "operator"))
    other = w.submit(name="picky", tenant="other", user="bob")
    w.cycle()
    go(w, other)
    w.now += HOUR
    assert (w.where(easy), w.where(other)) == ("v100", "k80")
    assert rules(w.cycle()) == []


def test_a_maximum_by_model_is_kept():
    w = learned()
    bound = Queue("default", max=(("devices:V100", 0),))
    w.emit(ConfigChanged(config(pools=w.state.config.pools, queues=(bound,)), "operator"))
    picky = w.submit(name="picky")
    w.cycle()
    assert w.where(picky) == "k80"


def displaced(**fields):
    """A picky job on the K80 since an hour, and the V100 free by now."""
    w = learned(**fields)
    other = w.submit(name="other", models=("V100",))
    w.run(other)
    picky = w.submit(name="picky")
    w.cycle()
    go(w, picky)
    assert w.where(picky) == "k80"
    finish(w, other)
    w.now += HOUR
    return w, picky


def test_a_running_job_moves_where_that_pays_and_comes_back_there():
    w, picky = displaced()
    planned = w.cycle()
    assert rules(planned) == [(picky, picky, "model")]
    assert stop_reason(planned.preemptions[0]) == "moved"
    follow(w)
    w.cycle()
    assert (w.where(picky), w.job(picky).preemptions) == ("v100", 0)
    assert w.job(picky).room == ()


def test_no_other_job_takes_the_place_where_a_job_is_to_go_on():
    w, picky = displaced()
    w.cycle()
    late = w.submit(name="late", priority=100)
    w.cycle()
    assert w.job(late).state == "waiting"
    w.leave(picky)
    w.cycle()
    assert (w.where(picky), w.where(late)) == ("v100", "k80")


def test_two_jobs_change_places():
    w = learned()
    easy = w.submit(name="easy", models=())
    w.run(easy)
    go(w, easy)
    assert w.where(easy) == "v100"
    picky = w.submit(name="picky")
    w.cycle()
    go(w, picky)
    w.now += HOUR
    assert sorted(rules(w.cycle())) == [(easy, easy, "model"), (picky, picky, "model")]
    w.leave(picky)
    w.cycle()
    assert w.job(picky).state == "waiting"  # it waits for the V100, and the K80 is kept for the other one
    w.leave(easy)
    w.cycle()
    assert (w.where(easy), w.where(picky)) == ("k80", "v100")


def test_who_changes_places_waits_for_its_place_though_another_is_free():
    w = learned()
    w.hello(node("k80-more", (device(0, model="K80"),)))
    easy = w.submit(name="easy")
    w.run(easy)
    go(w, easy)
    picky = w.submit(name="picky")
    w.cycle()
    go(w, picky)
    w.now += HOUR
    assert sorted(rules(w.cycle())) == [(easy, easy, "model"), (picky, picky, "model")]
    w.leave(picky)
    w.cycle()
    assert w.job(picky).state == "waiting"
    w.leave(easy)
    w.cycle()
    assert w.where(picky) == "v100"


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("the pool only matches", {"rule": ModelRule(match=True)}),
        ("no moves in an hour", {"rule": ModelRule(match=True, move=True, moves_per_hour=0)}),
    ],
)
def test_a_running_job_stays_where_it_may_not_move(why, change):
    w, _ = displaced(**change)
    assert rules(w.cycle()) == []


def test_a_job_that_cannot_save_stays():
    w, picky = displaced()
    w.emit(SaveSignalNoted(picky, w.attempt(picky).number, ""))
    assert rules(w.cycle()) == []


def test_a_job_that_must_not_be_preempted_stays():
    w = learned()
    other = w.submit(name="other", models=("V100",))
    w.run(other)
    picky = w.submit(name="picky", preemptible=False)
    w.cycle()
    go(w, picky)
    finish(w, other)
    w.now += HOUR
    assert rules(w.cycle()) == []


def test_moves_of_an_hour_are_bounded_and_the_plan_names_the_moment():
    w, picky = displaced()
    w.now -= HOUR - 5 * MINUTE
    planned = w.cycle()
    assert rules(planned) == []
    assert planned.again_ms == w.attempt(picky).running_ms + 15 * MINUTE


def test_a_move_must_gain_its_restart():
    w, picky = displaced()
    note(w, picky, step=999, step_ms=1_000, total_steps=1_000)
    assert rules(w.cycle()) == []


def test_a_gang_goes_on_one_model_where_one_has_room():
    w = taught(mixed(each=2), wide=(100, 50))
    w.run(w.submit(name="other", models=("K80",)))
    wide = w.submit(1, 2, name="wide")
    w.cycle()
    assert {w.where(wide, 0), w.where(wide, 1)} == {"v100"}


def test_a_gang_of_which_nothing_is_known_goes_on_one_model_too():
    w = mixed(each=2)
    w.run(w.submit(name="first", models=("K80",)), w.submit(name="second", models=("K80",)))
    finish(w, 1)
    wide = w.submit(1, 2)
    w.cycle()
    assert {w.where(wide, 0), w.where(wide, 1)} == {"v100"}


def test_the_guaranteed_run_time_of_the_queue_is_kept():
    w, picky = displaced(queues=(Queue("default", min_runtime_ms=2 * HOUR),))
    planned = w.cycle()
    assert rules(planned) == []
    assert planned.again_ms == w.attempt(picky).running_ms + 2 * HOUR


def test_the_log_alone_gives_the_same_state():
    w, picky = displaced()
    w.cycle()
    again = fold(w.records)
    assert again.jobs[picky] == w.job(picky)
    assert again.indexes.model_speeds.image() == w.state.indexes.model_speeds.image()


def test_explain_says_where_it_runs_and_who_says_so():
    w, picky = displaced()
    text = explain(w.state, w.job(picky), w.now).text
    assert text == (
        "attempt 1 is running on k80; it runs on K80, and is 10 times as fast on V100 as on K80 (measured on 1 "
        "run like it): it moves when it gets room there that pays for its restart, and that others do not need more"
    )
    w.cycle()
    follow(w)
    w.run(picky)
    text = explain(w.state, w.job(picky), w.now).text
    assert "it runs on V100, 10 times as fast on V100 as on K80" in text


def test_explain_says_what_a_waiting_job_would_gain():
    w = learned()
    others = [w.submit(name="other") for _ in range(2)]
    w.run(*others)
    picky = w.submit(name="picky")
    w.cycle()
    text = explain(w.state, w.job(picky), w.now).text
    assert text.endswith("; it is 10 times as fast on V100 as on K80 (measured on 1 run like it)")


def test_explain_is_silent_about_models_where_the_pool_does_not_match():
    w, picky = displaced(rule=ModelRule())
    assert "K80" not in explain(w.state, w.job(picky), w.now).text


def gang_on(*nodes, pool=None, **speeds):
    """Return a world with these (name, model, devices), and jobs named `wide` of one replica known as this fast."""
    specs = [node(name, tuple(device(i, model=model) for i in range(count))) for name, model, count in nodes]
    w = World(*specs, pools=(pool or Pool("default", models=MOVES),))
    for model, step_ms in speeds.items():
        job = w.submit(name="wide", models=(model,))
        w.run(job)
        note(w, job, step_ms=step_ms)
        finish(w, job)
    return w


def models_of(w, job):
    return sorted(w.state.nodes[r.place.node].spec.devices[0].model for r in w.attempt(job).replicas)


def test_a_gang_counts_its_own_devices_when_it_goes_on_one_model():
    """Three V100 and one K80 are the tightest places: the fourth V100 leaves a node with room."""
    w = gang_on(("a", "V100", 3), ("b", "V100", 2), ("c", "K80", 1), V100=100, K80=1000)
    wide = w.submit(1, 4, name="wide")
    w.cycle()
    assert models_of(w, wide) == ["V100"] * 4


def test_no_model_is_given_to_a_gang_that_is_slower_than_the_slowest_it_has():
    w = gang_on(("a", "V100", 2), ("b", "P100", 1), ("c", "K80", 3), V100=100, P100=120, K80=1000)
    wide = w.submit(1, 3, name="wide")
    w.cycle()
    assert models_of(w, wide) == ["P100", "V100", "V100"]


def test_a_gang_that_names_one_model_waits_for_it():
    w = gang_on(("a", "V100", 2), ("b", "K80", 2), V100=100, K80=110)
    w.run(w.submit(name="other", models=("V100",)))
    wide = w.submit(1, 2, name="wide", models=("V100",))
    assert w.cycle().starts == ()
    assert w.job(wide).state == "waiting"


def mixed_gang():
    """A gang of two on a V100 and a K80 since an hour; the other V100 is another job's."""
    w = gang_on(("a", "V100", 1), ("b", "V100", 1), ("c", "K80", 1), V100=100, K80=1000)
    other = w.submit(name="other", models=("V100",))
    w.run(other)
    wide = w.submit(1, 2, name="wide")
    w.cycle()
    go(w, wide)
    w.now += HOUR
    return w, other, wide


def test_a_gang_that_must_be_mixed_is_told_what_that_costs():
    w, _, wide = mixed_gang()
    assert rules(w.cycle()) == []
    text = explain(w.state, w.job(wide), w.now).text
    assert text.endswith(
        "; it runs on 1 K80 and 1 V100, as fast as on K80 alone: it is 10 times as fast on V100 as on K80 (measured "
        "on 1 run like it), but V100 has room for 1 of its 2 replicas, with those that it has there"
    )


def test_a_mixed_gang_moves_to_one_model_once_that_pays():
    w, other, wide = mixed_gang()
    finish(w, other)
    assert rules(w.cycle()) == [(wide, wide, "model")]
    follow(w)
    w.cycle()
    assert models_of(w, wide) == ["V100", "V100"]
    w.now += HOUR
    assert rules(w.cycle()) == [], "it is where it belongs"


def test_a_mixed_gang_that_soon_ends_stays():
    w, other, wide = mixed_gang()
    finish(w, other)
    note(w, wide, step=999, step_ms=1_000, total_steps=1_000)
    assert rules(w.cycle()) == []


# Elastic jobs in pools without rounds: in those with them see `tests/core/elastic/test_on_models.py`.


def elastic(least, most):
    return GangAsk(least, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=most)


def test_an_elastic_job_grows_on_its_model_alone():
    w = gang_on(("a", "V100", 2), ("b", "K80", 4), V100=100, K80=1000)
    job = w.submit(gang=elastic(1, 6), name="wide")
    w.cycle()
    assert models_of(w, job) == ["V100", "V100"]


def test_an_elastic_job_moves_at_its_size():
    w = gang_on(("a", "V100", 2), ("b", "K80", 2), V100=100, K80=1000)
    other = w.submit(2, name="other", models=("V100",))
    w.run(other)
    job = w.submit(gang=elastic(1, 2), name="wide")
    w.cycle()
    go(w, job)
    assert models_of(w, job) == ["K80", "K80"]
    finish(w, other)
    w.now += HOUR
    assert rules(w.cycle()) == [(job, job, "model")]
    follow(w)
    w.cycle()
    assert models_of(w, job) == ["V100", "V100"]
