"""Extended resources: counted on nodes, in asks, refusals, explanations and refused submits, by their names."""

from msgspec.structs import replace

from penstock.core.explain.why import explain
from penstock.core.lifecycle.registering import absurd
from penstock.core.model.cluster import OthersLoad
from penstock.core.model.ids import Incarnation
from penstock.core.model.refused import refused_text
from penstock.core.model.resources import Resources
from penstock.core.place.fit import capacity, needs_of, refusal
from penstock.core.place.holds import lesser
from penstock.testing.builders import ask, job_spec, node
from penstock.testing.harness import World

FPGA = "example.com/fpga"


def having(name: str, **amounts: int):
    spec = node(name, 0, cpus=4)
    return replace(spec, capacity=replace(spec.capacity, extended=tuple(sorted(amounts.items()))))


def wanting(replicas: int = 1, **amounts: int):
    gang = ask(0, replicas)
    host = replace(gang.each.host, extended=tuple(sorted(amounts.items())))
    return replace(gang, each=replace(gang.each, host=host))


def test_amounts_add_up_and_come_back():
    two, one = Resources(extended=(("a", 2),)), Resources(extended=(("a", 1), ("b", 1)))
    assert (two + one).extended == (("a", 3), ("b", 1))
    assert (two - one).extended == (("a", 1), ("b", -1))
    assert (one * 3).extended == (("a", 3), ("b", 3))
    assert (two + one - one) == two
    assert one.times_within(Resources(extended=(("a", 5), ("b", 2)))) == 2
    assert one.shortage(two) == "b"


def test_a_node_holds_as_many_replicas_as_its_scarcest_resource_allows():
    w = World(having("a", fpga=3, pods=9))
    (need, _), *_ = needs_of(wanting(1, fpga=1, pods=1))
    free = w.free().free_of(0)
    assert capacity(need, free, 9) == 3
    taken = free.take(need.each).take(need.each)
    assert taken.extended == (("fpga", 1), ("pods", 7))
    assert taken.put_back(need.each).put_back(need.each) == free
    assert lesser(free, taken).extended == (("fpga", 1), ("pods", 7))


def test_a_refusal_names_the_resource():
    w = World(having("a", fpga=1), having("b"))
    (need, _), *_ = needs_of(wanting(1, fpga=2))
    assert [refusal(need, w.free().free_of(n)) for n in range(2)] == ["extended_short:fpga"] * 2
    assert refused_text([("extended_short:fpga", 2)]) == "2 nodes have too little fpga free"
    assert refused_text([("extended_short:fpga", 1)], emptied=True) == "1 node has too little fpga"


def test_a_gang_gets_what_all_its_replicas_ask_for_and_gives_it_back():
    w = World(having("a", fpga=2), having("b", fpga=1))
    first, second = w.submit(gang=wanting(3, fpga=1)), w.submit(gang=wanting(1, fpga=1))
    w.cycle()
    assert [w.phase(job) for job in (first, second)] == ["starting", "waiting"]
    w.start(first)
    for rank in range(3):
        w.exit_replica(first, rank)
    w.cycle()
    assert w.phase(second) == "starting"


def test_what_others_hold_is_not_free_and_what_a_node_does_not_have_is_no_debt():
    w = World(having("a", fpga=2))
    w.report("a", others=OthersLoad(Resources(extended=(("fpga", 2), ("other", 1)))))
    job = w.submit(gang=wanting(1, fpga=1))
    w.cycle()
    assert w.phase(job) == "waiting"
    found = explain(w.state, w.job(job), w.now)
    assert found.refused == {"extended_short:fpga": 1}
    short = next(one for one in found.constraints if one.code == "extended_short")
    assert (short.text, short.distance, short.unit, short.where) == (
        "needs 1 x 1 fpga; best node a has 0 free; short by 1 on a", 1, "units", "a",
    )  # fmt: skip


def test_what_no_node_ever_has_is_refused_with_what_there_is():
    w = World(having("a", fpga=2), having("b", fpga=4))
    refused = w.request(job_spec(gang=wanting(1, fpga=5)))
    (problem,) = refused.problems
    assert problem.code == "never_fits"
    assert "2 nodes have too little fpga" in problem.message
    assert "the largest node of pool 'default' is b, with 4 CPUs, 4 x fpga" in problem.hint


def test_a_node_with_absurd_amounts_or_too_many_names_is_not_believed():
    many = having("a", **{f"r{i}": 1 for i in range(300)})
    assert absurd(many, Incarnation("i")) == "it has 300 extended resources, 256 are allowed"
    assert "not between" in absurd(having("a", fpga=-1), Incarnation("i"))
    assert absurd(having("a", fpga=1), Incarnation("i")) == ""
