"""Replicas that are alike are placed, counted, given back and kept together: the same as one after the other."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.ids import PoolName
from penstock.core.model.jobs import GangAsk, GroupAsk, ReplicaPlace
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.place.backfill import Release, earliest
from penstock.core.place.fit import capacity, needs_of, put_on
from penstock.core.place.gang import GangPlacer, choose_node
from penstock.core.place.holds import FOREVER_MS, CapacityHold, Holds, lesser, without
from penstock.core.place.index import ClusterIndex, PlacementStrategy
from penstock.testing.builders import ask, node
from penstock.testing.harness import World
from tests.core.strategies import gangs
from tests.properties import examples

STRATEGIES = ("fragmentation", "best_fit", "worst_fit", "dot_product", "host_load", "first_fit", "random")
seeds = st.integers(0, 2**32)


def crowd(seed, strategy="fragmentation", *, devices=True):
    """Return a cluster of a few kinds of nodes, some of them partly taken, others closed."""
    rnd = random.Random(seed)
    kinds = [(rnd.choice([0, 0, 2, 4]) if devices else 0, rnd.choice([1, 2, 3, 8])) for _ in range(3)]
    w = World(*(node(f"n{i:02}", d, cpus=c) for i, (d, c) in enumerate(rnd.choices(kinds, k=rnd.randint(1, 24)))))
    for name in rnd.sample(sorted(w.state.nodes), len(w.state.nodes) // 8):
        w.drain(name)
    cluster = ClusterIndex({PoolName("default"): PlacementStrategy(strategy)})
    cluster.sync(w.state.indexes.nodes, w.state.indexes.free)
    for i in rnd.sample(range(len(cluster.names)), len(cluster.names) // 2):
        free = cluster.free_of(i)
        if free.cpu_milli > 1_000:
            cluster.change(i, free.take(ReplicaAsk(Resources(1_000))))
    return cluster


def content(cluster):
    """Return everything that a choice depends on."""
    states = [cluster.free_of(i) for i in range(len(cluster.names))]
    used = [[cluster.nodes_in(s) for s in cluster.states_in_use(rich=rich)] for rich in (True, False)]
    counts = [cluster.count(s) for s in cluster.states_in_use(rich=False)]
    first = [cluster.lowest_node(s) for s in cluster.states_in_use(rich=False)]
    return states, used, counts, first, {pool: milli for pool, milli in cluster.free_milli.items() if milli}


def one_after_the_other(gang, cluster):
    """Place a gang of one group that may be anywhere: fill the nodes that hold most, the rest goes to the best node."""
    (need, missing), strategy = needs_of(gang)[0], gang.placement
    whole = choose_node(cluster, cluster.view(need, missing, strategy))
    nodes = [n for s in cluster.fitting_states(cluster.view(need, 1, strategy)) for n in cluster.nodes_in(s)]
    held = {n: capacity(need, cluster.free_of(n), missing) for n in nodes}
    if whole is None and sum(held.values()) < missing:
        return None
    places = []
    for n in [] if whole is not None else sorted(nodes, key=lambda n: -held[n]):
        if missing <= held[n]:
            break
        places += put_one(cluster, need, n, held[n])
        missing -= held[n]
    best = whole if whole is not None else choose_node(cluster, cluster.view(need, missing, strategy))
    return tuple(places + put_one(cluster, need, best, missing))


def put_one(cluster, need, n, count):
    after, picked = put_on(need, cluster.free_of(n), count)
    cluster.change(n, after)
    return [ReplicaPlace(cluster.names[n], cluster.nodes[n].incarnation, *one) for one in picked]


@examples(300)
@given(seeds, st.lists(gangs(), min_size=1, max_size=4), st.integers(1, 9), st.sampled_from(STRATEGIES))
def test_alike_replicas_are_placed_as_one_after_the_other(seed, asked, times, strategy):
    together, apart = crowd(seed, strategy), crowd(seed, strategy)
    before, mark = content(together), together.mark()
    for gang in asked:
        plain = GangAsk(gang.replicas * times, gang.each, labels_wanted=gang.labels_wanted)
        assert GangPlacer(plain, together).put() == one_after_the_other(plain, apart)
        assert content(together) == content(apart)
    together.rollback(mark)
    assert content(together) == before


@examples(200)
@given(seeds, gangs(), st.integers(1, 9), st.integers(0, 3))
def test_a_gang_fits_exactly_when_it_can_be_placed(seed, gang, times, rest):
    cluster = crowd(seed)
    others = (GroupAsk(1, ReplicaAsk(Resources(2_500 * rest))),) if rest else ()
    asked = GangAsk(gang.replicas * times, gang.each, topology=gang.topology, others=others)
    before, known = content(cluster), (cluster.version, cluster.draws)
    fits = GangPlacer(asked, cluster).fits()
    assert (content(cluster), (cluster.version, cluster.draws)) == (before, known)
    assert fits == (GangPlacer(asked, cluster).put() is not None)


@examples(200)
@given(seeds, gangs(), st.integers(1, 9), st.integers(0, 2))
def test_places_are_taken_and_given_back_as_one_after_the_other(seed, gang, times, rest):
    together, apart = crowd(seed), crowd(seed)
    others = (GroupAsk(rest, ReplicaAsk(Resources(500))),) if rest else ()
    asked = GangAsk(gang.replicas * times, gang.each, others=others)
    places = GangPlacer(asked, together).put()
    if places is None:
        return
    taken = content(together)
    together.put_back(asked, enumerate(places))
    assert content(together) == content(apart)
    together.take(asked, places)
    for rank, place in enumerate(places):
        n = apart.index[place.node]
        apart.change(n, apart.free_of(n).take(asked.each_of(rank), place.devices, place.slots))
    assert content(together) == content(apart) == taken


class PlainHolds:
    """What `Holds` is for, node by node."""

    def __init__(self, cluster):
        self.cluster, self.real, self.claims = cluster, {}, {}

    def claim(self, n, start_ms, then, job_id):
        self.real.setdefault(n, self.cluster.free_of(n))
        self.claims.setdefault(n, []).append(CapacityHold(start_ms, then, job_id))
        self.show(lambda claim: True)

    def show(self, binds):
        for n, claims in self.claims.items():
            free = self.real[n]
            for claim in claims:
                free = lesser(free, claim.then) if binds(claim) else free
            self.cluster.change(n, free)

    def less(self, gang, places, of, *, real):
        for rank, place in enumerate(places):
            n, each = self.cluster.index[place.node], gang.each_of(rank)
            if n in self.claims:
                if real:
                    self.real[n] = self.real[n].take(each, place.devices, place.slots)
                self.claims[n] = [c._replace(then=without(c.then, each, place)) if of(c) else c for c in self.claims[n]]
        self.show(lambda claim: True)


def both(seed):
    """Return two equal clusters whose nodes are partly kept for two jobs and a window, with and without grouping."""
    rnd = random.Random(seed)
    together, apart = crowd(seed, devices=False), crowd(seed, devices=False)
    holds, plain = Holds(together), PlainHolds(apart)
    for job_id, start_ms in ((7, 100), (8, 200), (None, 150)):
        nodes = [n for n in rnd.sample(range(len(apart.names)), len(apart.names) // 2) if apart.free_of(n).cpu_milli]
        beside = {}
        for n in nodes:
            then = apart.free_of(n)._replace(cpu_milli=rnd.choice([0, 500]))
            beside.setdefault(together.table.id_of(then), []).append(n)
            plain.claim(n, start_ms, then, job_id)
        holds.claim_all(beside, start_ms, job_id)
    return together, apart, holds, plain


def room_in(cluster, gang):
    return sum(capacity(needs_of(gang)[0][0], cluster.free_of(n), 99) for n in range(len(cluster.names)))


@examples(200)
@given(seeds, st.sampled_from([0, 100, 101, 150, 151, 201, FOREVER_MS]), st.integers(1, 12), st.booleans())
def test_nodes_are_kept_together_as_one_by_one(seed, end_ms, replicas, whole):
    together, apart, holds, plain = both(seed)
    assert content(together) == content(apart)
    gang = ask(0, replicas, cpus=1) if whole else GangAsk(replicas, ReplicaAsk(Resources(500)))
    room = holds.room(GangPlacer(gang, together).single, end_ms)
    holds.lift(end_ms)
    plain.show(lambda claim: claim.start_ms < end_ms)
    assert content(together) == content(apart)
    assert room == room_in(apart, gang)
    found = GangPlacer(gang, together).put()
    assert (found is not None) == (room >= replicas)
    if found is not None:
        apart.take(gang, found)
        holds.taken(gang, found, end_ms)
        plain.less(gang, found, lambda c: c.start_ms < end_ms, real=True)
    holds.lower()
    plain.show(lambda claim: True)
    assert content(together) == content(apart)
    assert holds.blocker() == min((c.job_id for k in plain.claims.values() for c in k if c.job_id), default=None)


@examples(100)
@given(seeds, st.sampled_from([(100, 101), (120, 160), (150, 300)]), st.sets(st.sampled_from([7, 8])))
def test_bookings_and_what_is_lifted_for_some_are_the_same(seed, span, jobs):
    together, apart, holds, plain = both(seed)
    names = sorted(together.index[name] for name in together.names)[:5]
    gang = GangAsk(len(names), ReplicaAsk(Resources(500)))
    places = [ReplicaPlace(together.names[n], together.nodes[n].incarnation) for n in names]
    single = GangPlacer(GangAsk(1, gang.each), together).single
    assert holds.room(single, 160) >= 0
    holds.booked(gang, places, *span)
    plain.less(gang, places, lambda c: c.job_id is not None and span[0] <= c.start_ms < span[1], real=False)
    assert content(together) == content(apart)
    plain.show(lambda claim: claim.start_ms < 160)
    assert holds.room(single, 160) == room_in(apart, gang)
    holds.lift_all_of(jobs)
    plain.show(lambda claim: claim.job_id not in jobs)
    assert content(together) == content(apart)
    for n in range(len(apart.names)):
        assert holds.real(n) == plain.real.get(n, apart.free_of(n))


def test_room_is_counted_anew_after_a_booking_that_only_short_jobs_see():
    cluster = World(node("a", 0, cpus=2)).free()
    holds, single = Holds(cluster), GangPlacer(ask(0), cluster).single
    for start_ms, left, job_id in ((100, 1_000, 7), (200, 0, 8)):
        holds.claim(0, CapacityHold(start_ms, cluster.free_of(0)._replace(cpu_milli=left), job_id))
    assert (holds.room(single, 100), holds.room(single, 150), holds.room(single, 300)) == (2, 1, 0)
    version = cluster.version
    holds.booked(ask(0), [ReplicaPlace("a", "i1")], 100, 101)
    assert (holds.room(single, 100), holds.room(single, 150), holds.room(single, 300)) == (2, 0, 0)
    assert cluster.version == version, "any job sees what it saw"


def gone(w, *job_ids, end_ms=100):
    return [Release(end_ms + i, w.job(job_id), w.job(job_id).ask) for i, job_id in enumerate(job_ids)]


def test_an_opening_is_looked_for_anew_when_what_it_depends_on_changes():
    w = World(*(node(f"n{i}", 0, cpus=1) for i in range(4)))
    jobs = [w.submit(0, cpus=1) for _ in range(4)]
    w.run(*jobs)
    cluster = w.free()
    placer = GangPlacer(ask(0, 2, cpus=1), cluster)

    def after_the_first(releases, change=lambda: None):
        first = earliest(placer, cluster, gone(w, *jobs))
        assert (first.start_ms, [p.node for p in first.places]) == (101, ["n0", "n1"])
        change()
        found = earliest(placer, cluster, releases)
        return found and (found.places is first.places, found.start_ms, [p.node for p in found.places])

    assert after_the_first(gone(w, *jobs)) == (True, 101, ["n0", "n1"])
    assert after_the_first(gone(w, *jobs[:2])) == (True, 101, ["n0", "n1"]), "the others are not needed"
    assert after_the_first(gone(w, *jobs, end_ms=200)) == (True, 201, ["n0", "n1"])
    assert after_the_first(gone(w, *jobs[2:])) == (False, 101, ["n2", "n3"])
    assert after_the_first(gone(w, jobs[0])) is None
    free = [(0, w.attempt(jobs[3]).replicas[0].place)]
    less = after_the_first(gone(w, *jobs), lambda: cluster.put_back(ask(0, cpus=1), free))
    assert less == (False, 100, ["n0", "n3"])


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_a_former_opening_takes_as_many_releases_as_a_search(replicas):
    w = World(*(node(f"n{i}", 0, cpus=1) for i in range(8)))
    jobs = [w.submit(0, cpus=1) for _ in range(8)]
    w.run(*jobs)
    placer = GangPlacer(ask(0, replicas, cpus=1), w.free())

    def left():
        releases = iter(gone(w, *jobs))
        assert earliest(placer, placer.cluster, releases) is not None
        return len(list(releases))

    assert left() == left()
