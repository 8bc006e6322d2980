"""Rules about replicas near each other: which nodes they leave, within a gang too, and against a count by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.affinity import NODE, AffinityRule
from penstock.core.model.cluster import OthersLoad
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.selectors import LabelRule, Taint
from penstock.core.place.gang import NoFit, place_gang, replicas_possible
from penstock.testing.builders import ask, job_spec, node
from penstock.testing.harness import World
from tests.properties import examples

ZONE = "zone"
APART, APART_IN_ZONE = AffinityRule("anti_affinity", "web"), AffinityRule("anti_affinity", "web", ZONE)
NEAR, NEAR_ON_NODE = AffinityRule("affinity", "web", ZONE), AffinityRule("affinity", "web")


def spread(most: int = 1, domain: str = ZONE, **fields: object) -> AffinityRule:
    return AffinityRule("spread", "web", domain, max_skew=most, **fields)


def ruled(*rules: AffinityRule, replicas: int = 1, selected: tuple[str, ...] = ("web",), **fields: object) -> GangAsk:
    gang = ask(0, replicas, **fields)
    return replace(gang, each=replace(gang.each, selected=selected, affinity=rules))


def zoned(*names: str, others: dict[str, OthersLoad] | None = None, **fields: object) -> World:
    """Return a world of nodes named like `a1`: the letter is the zone; `-1` is in none."""
    labels = {name: ((ZONE, name[0]),) if name[0] != "-" else () for name in names}
    w = World(*(node(name, 0, cpus=4, labels=labels[name], **fields) for name in names))
    for name, load in (others or {}).items():
        w.report(name, others=load)
    return w


def web(count: int = 1) -> OthersLoad:
    return OthersLoad(selected=(("web", count),))


def where(gang: GangAsk, w: World) -> list[str] | None:
    found = place_gang(gang, w.free())
    return None if isinstance(found, NoFit) else [place.node for place in found]


@pytest.mark.parametrize(
    ("gang", "others", "nodes"),
    [
        (ruled(APART), {"a1": web()}, ["a2"]),
        (ruled(APART_IN_ZONE), {"a1": web()}, ["b1"]),
        (ruled(APART, replicas=4), {}, ["a1", "a2", "b1", "b2"]),
        (ruled(APART, replicas=5), {}, None),
        (ruled(APART_IN_ZONE, replicas=2), {}, ["a1", "b1"]),
        (ruled(APART_IN_ZONE, replicas=3), {}, None),
        (ruled(APART, selected=()), {"a1": web(), "a2": web()}, ["b1"]),
        (ruled(APART, replicas=4, selected=()), {}, ["a1"] * 4),
        (ruled(NEAR, selected=()), {"b2": web()}, ["b1"]),
        (ruled(NEAR, selected=()), {}, None),
        (ruled(NEAR_ON_NODE, selected=()), {"b2": web()}, ["b2"]),
        (ruled(NEAR, replicas=6, cpus=1), {}, ["a1"] * 4 + ["a2"] * 2),
        (ruled(NEAR, replicas=9, cpus=1), {}, None),
        (ruled(NEAR_ON_NODE, replicas=3), {}, ["a1"] * 3),
        (ruled(NEAR_ON_NODE, replicas=5), {}, None),
        (ruled(NEAR, APART, replicas=2), {}, ["a1", "a2"]),
        (ruled(NEAR, APART, replicas=3), {}, None),
        (ruled(spread(), replicas=3), {}, ["a1", "b1", "a1"]),
        (ruled(spread(), replicas=2), {"a1": web(), "a2": web()}, ["b1", "b1"]),
        (ruled(spread(2), replicas=2), {"a1": web(2)}, ["b1", "b1"]),
        (ruled(spread(1, NODE), replicas=5), {}, ["a1", "a2", "b1", "b2", "a1"]),
        (ruled(spread(domains_min=3), replicas=2), {}, ["a1", "b1"]),
        (ruled(spread(domains_min=3), replicas=3), {}, None),
    ],
)  # fmt: skip
def test_where_replicas_may_stand(gang, others, nodes):
    assert where(gang, zoned("a1", "a2", "b1", "b2", others=others)) == nodes


def test_who_stands_there_may_keep_others_off():
    for repels, gang, nodes in (
        (((NODE, "web"),), ruled(replicas=2, cpus=3), ["a2", "b1"]),
        (((ZONE, "web"),), ruled(), ["b1"]),
        (((ZONE, "other"),), ruled(replicas=3, cpus=3), ["a1", "a2", "b1"]),
        (((ZONE, "web"),), ruled(replicas=2, cpus=3), None),
        (((ZONE, "web"),), ask(0, 3, cpus=3), ["a1", "a2", "b1"]),
    ):
        w = zoned("a1", "a2", "b1", others={"a1": OthersLoad(repels=repels)})
        found = where(gang, w)
        assert (found and sorted(found)) == nodes


def test_a_node_without_the_label_is_in_no_domain():
    w = zoned("a1", "-1", others={"a1": web()})
    assert where(ruled(APART_IN_ZONE), w) == ["-1"]
    assert where(ruled(spread()), zoned("-1")) is None
    assert where(ruled(NEAR), zoned("-1")) is None


def test_a_domain_counts_for_spread_only_where_the_replica_could_stand_by_labels_and_not_by_taints():
    only_a = ruled(spread(), replicas=2, label_terms=((LabelRule(ZONE, "in", ("a",)),),))
    assert where(only_a, zoned("a1", "b1")) == ["a1", "a1"]
    strict = replace(only_a, each=replace(only_a.each, affinity=(spread(honours_labels=False),)))
    assert where(strict, zoned("a1", "b1")) is None
    w = zoned("a1", "b1")
    w.hello(node("b1", 0, cpus=4, labels=((ZONE, "b"),), taints=(Taint("gpu"),)), ready=True)
    assert where(ruled(spread(), replicas=2), w) is None
    assert where(ruled(spread(honours_taints=True), replicas=2), w) == ["a1", "a1"]


def test_a_gang_whose_domain_is_too_small_goes_to_another():
    w = zoned("a1", "b1", "b2", others={})
    assert where(ruled(NEAR, replicas=5), w) == ["b1"] * 4 + ["b2"]


def test_workers_come_after_the_leader_that_they_have_to_stand_near():
    near_leader = AffinityRule("affinity", "leader", ZONE)
    gang = ask(0, 2)
    workers = replace(gang.each, affinity=(near_leader,))
    leader = replace(gang.each, selected=("leader",), host=replace(gang.each.host, cpu_milli=4000))
    gang = replace(gang, each=workers, others=(GroupAsk(1, leader),))
    assert where(gang, zoned("a1", "b1", "b2")) == ["b2", "b2", "b1"] or where(gang, zoned("a1", "b1", "b2")) is None
    assert where(gang, zoned("b1", "b2")) == ["b2", "b2", "b1"]


def test_jobs_of_one_cycle_see_each_other_and_so_do_later_ones():
    w = zoned("a1", "a2", "b1")
    jobs = [w.submit(gang=ruled(APART_IN_ZONE)) for _ in range(3)]
    w.cycle()
    assert [w.phase(job) for job in jobs] == ["starting", "starting", "waiting"]
    assert {w.where(job)[0] for job in jobs[:2]} == {"a", "b"}
    plain = w.submit(gang=ruled())
    w.cycle()
    assert w.phase(plain) == "waiting", "one that runs keeps it off its zone"
    w.start(*jobs[:2])
    w.exit_replica(jobs[0])
    w.cycle()
    assert [w.phase(job) for job in (jobs[2], plain)] == ["starting", "waiting"]


def test_a_victim_makes_room_only_where_the_rules_allow_it():
    w = zoned("a1", "b1", others={"b1": web()})
    low = [w.submit(gang=ask(0, cpus=4), priority=1) for _ in range(2)]
    w.run(*low)
    w.submit(gang=ruled(APART_IN_ZONE, cpus=4), priority=900)
    w.cycle()
    assert [job for job in low if w.phase(job) == "stopping"] == [job for job in low if w.where(job) == "a1"]


def test_a_plan_is_checked_against_what_others_bound_meanwhile():
    w = zoned("a1", "a2", "b1")
    job = w.submit(gang=ruled(APART_IN_ZONE))
    planned = w.plan()
    w.report("a2", others=web())
    assert w.apply(planned).starts == ()
    w.cycle()
    assert w.where(job) == "b1"


def test_the_empty_cluster_refuses_only_what_no_rule_could_ever_allow():
    w = zoned("a1", "b1")
    assert w.phase(w.submit(gang=ruled(NEAR, selected=()))) == "waiting", "its neighbour may come"
    refused = w.request(job_spec(gang=ruled(APART_IN_ZONE, replicas=3)))
    assert refused.problems[0].code == "never_fits"


def test_explain_names_the_rule():
    from penstock.core.explain.why import explain

    w = zoned("a1", "b1", others={"a1": web(), "b1": web()})
    job = w.submit(gang=ruled(APART_IN_ZONE))
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    assert found.refused == {"anti_affinity": 2}
    assert "anti_affinity" in {one.code for one in found.constraints}
    assert "2 nodes hold, or are near, replicas that it may not stand with" in found.text


# Against an oracle that knows nothing of states and shapes.

RULES = (APART, APART_IN_ZONE, NEAR, NEAR_ON_NODE, spread(), spread(1, NODE), spread(2))


def allowed(rules, selects, at: str, standing: list[tuple[str, bool, tuple]], zones: dict[str, str]) -> bool:
    """Return whether a replica may stand at a node beside what stands: (node, whether it is web, its rules)."""

    def together(rule, one, other) -> bool:
        return one == other if rule.domain == NODE else bool(zones[one]) and zones[one] == zones[other]

    for place, _, theirs in standing:
        if selects and any(r.kind == "anti_affinity" and together(r, at, place) for r in theirs):
            return False
    webs = [place for place, is_web, _ in standing if is_web]
    near = [r for r in rules if r.kind == "affinity"]
    first = selects and not any(zones[place] or rule.domain == NODE for place in webs for rule in near)
    for rule in rules:
        has_domain = rule.domain == NODE or bool(zones[at])
        beside = [place for place in webs if together(rule, at, place)]
        if rule.kind == "anti_affinity" and beside:
            return False
        if rule in near and (not has_domain or not (beside or first)):
            return False
        if rule.kind == "spread":
            keyed = all(r.domain == NODE or zones[at] for r in rules if r.kind == "spread")
            names = [n for n in zones if all(r.domain == NODE or zones[n] for r in rules if r.kind == "spread")]
            domains = {n if rule.domain == NODE else zones[n] for n in names}
            count = {d: sum((n if rule.domain == NODE else zones[n]) == d for n in webs if n in names) for d in domains}
            own = at if rule.domain == NODE else zones[at]
            if not keyed or count[own] + selects - min(count.values()) > rule.max_skew:
                return False
    return True


@given(
    st.lists(st.sampled_from("ab-"), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([(), (APART,), (APART_IN_ZONE,)])), max_size=3
    ),
    st.lists(st.sampled_from(RULES), max_size=2, unique=True),
    st.booleans(),
    st.integers(1, 3),
)
@examples(300)
def test_placements_are_those_that_a_count_by_hand_allows(letters, others, rules, selects, replicas):
    names = [f"{letter}{i}" for i, letter in enumerate(letters)]
    zones = {name: name[0].strip("-") for name in names}
    standing = [(names[i % len(names)], is_web, theirs) for i, is_web, theirs in others]
    loads = {}
    for name in names:
        here = [(is_web, theirs) for place, is_web, theirs in standing if place == name]
        webs = sum(is_web for is_web, _ in here)
        repels = {(r.domain, r.selector) for _, theirs in here for r in theirs}
        loads[name] = OthersLoad(selected=(("web", webs),) if webs else (), repels=tuple(sorted(repels)))
    w = zoned(*names, others=loads)
    gang = ruled(*rules, replicas=replicas, selected=("web",) if selects else (), cpus=1)
    found = where(gang, w)
    possible = any(_sequence(rules, selects, places, standing, zones) for places in product(names, repeat=replicas))
    assert (found is not None) == possible
    if found is not None:
        assert any(_sequence(rules, selects, order, standing, zones) for order in (found, found[::-1]))
    else:
        assert replicas_possible(gang, w.free()) < replicas


def _sequence(rules, selects, places, standing, zones) -> bool:
    now = list(standing)
    for place in places:
        if sum(n == place for n, _, _ in now[len(standing) :]) >= 4 or not allowed(rules, selects, place, now, zones):
            return False
        now.append((place, selects, tuple(rules)))
    return True
