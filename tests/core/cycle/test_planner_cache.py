"""A planner that remembers decides as one that does not, and nothing depends on chance orders."""

import hashlib
import os
import random
import subprocess
import sys

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.cycle import reservations
from penstock.core.cycle.planner import Planner, plan
from penstock.core.model.cluster import OthersLoad, Pool
from penstock.core.model.events import ConfigChanged, RunTimesPredicted
from penstock.core.model.resources import Resources
from penstock.core.place.backfill import earliest
from penstock.testing.builders import ask, config, device, node, queues
from penstock.testing.harness import World, cluster, cycles, finish
from tests.core.rich import Rich, boards, configs, history, jobs
from tests.properties import examples

seeds = st.integers(0, 2**32)


@examples(25)
@given(seeds)
@example(607)
def test_a_long_lived_planner_decides_as_a_fresh_one(seed):
    """Each plan of a world is compared; each that is not stale holds whole; all promises hold at each commit."""
    history(seed, 120)


@examples(25)
@given(seeds)
def test_planning_leaves_nothing_behind_in_the_planner(seed):
    w = history(seed, 40).w
    known, snapshot = Planner(), w.snapshot()
    assert known.plan(snapshot, w.now) == known.plan(snapshot, w.now) == plan(snapshot, w.now)


def of_one_kind(seed: int, order: list[int]) -> World:
    """Return a world that met its nodes in this order, and two sets of jobs with a cycle between them."""
    rnd, specs = random.Random(seed), boards()
    w = World(*[specs[i] for i in order])
    w.emit(ConfigChanged(configs(rnd), "op"))
    for _ in range(2):
        w.request(*[jobs(rnd) for _ in range(8)])
        cycles(w, 1)
    return w


@examples(40)
@given(seeds, st.permutations(range(6)))
def test_the_order_in_which_nodes_came_never_matters(seed, order):
    one, other = of_one_kind(seed, list(range(6))), of_one_kind(seed, order)
    found, same = one.plan(), other.plan()
    assert (found.starts, found.preemptions, found.held) == (same.starts, same.preemptions, same.held)
    assert (found.verdicts, found.reserved) == (same.verdicts, same.reserved)


@examples(40)
@given(seeds, st.randoms(use_true_random=False))
def test_the_order_in_which_use_was_noted_never_matters(seed, rnd):
    w = history(seed, 60).w
    snapshot = w.snapshot()
    mixed = dict(rnd.sample(sorted(snapshot.usage.items()), len(snapshot.usage)))
    assert plan(replace(snapshot, usage=mixed), w.now) == plan(snapshot, w.now)


def digest() -> str:
    said = []
    for seed in range(4):
        found = Rich(seed)
        for _ in range(60):
            found.step()
            said.append(msgspec.json.encode(found.w.plan()))
    return hashlib.sha256(b"\n".join(said)).hexdigest()


def test_plans_of_rich_histories_do_not_depend_on_the_hash_seed():
    path = os.pathsep.join(p for p in sys.path if p)
    script = "from tests.core.cycle.test_planner_cache import digest; print(digest())"
    digests = {digest()}
    for seed in ("0", "4242"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        digests.add(answer.stdout.strip())
    assert len(digests) == 1


def places(found):
    return [(s.job_id, *((p.node, p.incarnation, p.devices) for p in s.places)) for s in found.starts]


def test_a_node_that_comes_back_smaller_is_seen():
    w = cluster(2, 2)
    w.submit(2)
    assert places(w.plan()) == [(1, ("n0", "i1", (0, 1)))]
    w.lose("n0")
    assert places(w.plan()) == [(1, ("n1", "i1", (0, 1)))]
    w.hello(node("n0", 4), "i2")
    w.drain("n1")
    assert places(w.plan()) == [(1, ("n0", "i2", (0, 1)))]


def test_a_node_that_comes_later_stands_in_the_order_of_names():
    w = World(node("b", 1), node("d", 1))
    w.submit(1)
    assert places(w.plan()) == [(1, ("b", "i1", (0,)))]
    w.hello(node("a", 1))
    assert places(w.plan()) == [(1, ("a", "i1", (0,)))]


def test_devices_that_have_left_the_cluster_change_no_score():
    w = World(node("a", 0, cpus=4), node("b", 0, cpus=16), node("g", 1, cpus=64))
    w.report("b", others=OthersLoad(host=Resources(10_000)))
    w.submit(1)
    w.submit(0)
    assert ("a", "i1", ()) in [place for _, *found in places(w.plan()) for place in found]
    w.hello(node("g", 0, cpus=64), "i2")
    assert places(w.plan()) == [(2, ("b", "i1", ()))]


def test_a_rule_that_kept_others_off_a_zone_once_has_no_effect_later():
    w = World(*(node(name, 0, cpus=cpus, labels=(("zone", name),)) for name, cpus in (("a", 2), ("b", 4))))
    gang = ask(0, 3)
    w.submit(gang=replace(gang, each=replace(gang.each, selected=("web",))))
    for others, nodes in ((OthersLoad(repels=(("zone", "db"),)), ["a", "a", "b"]), (OthersLoad(), ["b"] * 3)):
        w.report("a", others=others)
        assert [node for node, *_ in places(w.plan())[0][1:]] == nodes


def test_a_changed_strategy_is_followed_at_once():
    w = World(node("a", 4), node("b", 1), pools=(Pool("default", placement="worst_fit"),))
    w.submit(1)
    assert [p[1][0] for p in places(w.plan())] == ["a"]
    w.emit(ConfigChanged(config(pools=(Pool("default", placement="best_fit"),)), "op"))
    assert [p[1][0] for p in places(w.plan())] == ["b"]


def test_a_changed_quota_is_followed_at_once():
    w = cluster(1, 2, queues=queues("default", max=(("devices", 1_000),)))
    w.submit(1)
    w.submit(1)
    assert len(w.plan().starts) == 1
    w.emit(ConfigChanged(config(queues=queues("default", max=(("devices", 2_000),))), "op"))
    assert len(w.plan().starts) == 2


def test_a_node_whose_devices_failed_hides_no_other_of_its_kind():
    w = World(node("a", (device(0, healthy=False),)), node("b", 1))
    w.submit(1)
    assert places(w.plan()) == [(1, ("b", "i1", (0,)))]


def test_a_job_whose_class_changed_while_it_waited_for_another_is_planned():
    from penstock.core.model.jobs import Dependency

    w = cluster(1, 1, queues=queues("default", policy="fifo"))
    first = w.submit(1)
    second = w.submit(1, estimated_duration_ms=50_000, after=(Dependency(first, "after_ok"),))
    w.run(first)
    w.emit(ConfigChanged(config(queues=queues("default", policy="shortest_predicted")), "op"))
    w.exit_replica(first)  # the world checks that every job is in its own class
    assert [s.job_id for s in w.plan().starts] == [second]


def test_an_opening_is_searched_for_again_only_when_capacity_or_ends_changed():
    w = cluster(2, 2, starvation_after_ms=1_000, queues=queues("default", preemption="never"))
    w.run(w.submit(1), w.submit(1, estimated_duration_ms=60_000), w.submit(1))
    starving, searches, known = w.submit(2, replicas=2), [], Planner()
    w.now += 4_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reservations, "earliest", lambda *args: searches.append(w.now) or earliest(*args))
        for happens, count in [
            (lambda: w.submit(2), 1),
            (lambda: w.submit(1), 1),
            (lambda: w.emit(RunTimesPredicted(((1, 30_000, 40_000),))), 2),
            (lambda: finish(w, 2), 3),
        ]:
            happens()
            found = known.plan(w.snapshot(), w.now)
            assert len(searches) == count
            assert [kept.job_id for kept in found.reserved] == [starving]
