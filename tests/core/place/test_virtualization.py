"""Which parts of devices a pool gives out: held at placement, at commit, at submit, and told."""

import pytest
from msgspec.structs import replace

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.explain import explain
from penstock.core.model.cluster import Pool
from penstock.core.model.events import ConfigChanged
from penstock.core.state.state import State
from penstock.testing.builders import device, job_spec, node
from penstock.testing.harness import World

KINDS = {"whole": {}, "fraction": {"share_milli": 500}, "profile": {"profile": "2g.20gb"}}
GIVEN = {
    "any": {"whole", "fraction", "profile"},
    "none": {"whole"},
    "time_slicing": {"whole", "fraction"},
    "mps": {"whole", "fraction"},
    "mig": {"whole", "profile"},
}


def world(virtualization, **settings):
    pools = (Pool("default", virtualization=virtualization),)
    return World(node("a", (device(0, mig=True), device(1, mig=True))), pools=pools, **settings)


def declare(w, virtualization):
    w.emit(ConfigChanged(replace(w.state.config, pools=(Pool("default", virtualization=virtualization),)), "ann"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("virtualization", GIVEN)
def test_a_pool_gives_out_what_its_strategy_says_and_nothing_else(virtualization, kind):
    w = world(virtualization, allow_waiting_for_nodes=True)
    w.submit(1, **KINDS[kind])
    assert len(w.plan().starts) == (kind in GIVEN[virtualization])


@pytest.mark.parametrize("kind", ["fraction", "profile"])
def test_what_a_pool_never_gives_out_is_refused_at_submit(kind):
    (problem,) = world("none").request(job_spec(1, **KINDS[kind])).problems
    assert problem.code == "never_fits"
    assert "1 node does not give out such parts of devices" in problem.message


def test_a_job_that_waits_for_such_a_part_is_told_so():
    w = world("mig", allow_waiting_for_nodes=True)
    job = w.submit(1, share_milli=500)
    w.cycle()
    found = explain(w.state, w.state.jobs[job], w.now)
    (one,) = (c for c in found.constraints if c.code == "virtualization")
    assert one.text == "pool default does not give out such parts of devices: its virtualization is mig"
    assert found.refused == {"virtualization": 1}


def test_another_strategy_holds_from_the_next_start_on_and_what_runs_goes_on():
    w = world("any", allow_waiting_for_nodes=True)
    running = w.submit(1, share_milli=500)
    w.run(running)
    waiting = w.submit(1, share_milli=600)
    declare(w, "none")
    third = w.submit(1)
    assert [s.job_id for s in w.cycle().starts] == [third]
    assert w.phase(running) == "running"
    assert State.from_image(w.state.image()).indexes.free == w.state.indexes.free
    declare(w, "time_slicing")
    w.exit_replica(running)
    assert [s.job_id for s in w.cycle().starts] == [waiting]


def test_a_plan_made_before_a_strategy_changed_starts_nothing_that_it_forbids():
    w = world("any", allow_waiting_for_nodes=True)
    w.submit(1, share_milli=500)
    stale = w.plan()
    declare(w, "mig")
    assert w.apply(stale).starts == ()


def test_a_strategy_is_read_and_written_exactly():
    raw = {"pools": [{"name": "p", "virtualization": "mig"}, "q"]}
    file, problems = parse_cluster(raw)
    assert (problems, [pool.virtualization for pool in file.config.pools]) == ([], ["mig", "any"])
    assert parse_cluster(declaration(file.config))[0].config == file.config


@pytest.mark.parametrize(("word", "code"), [("vgpu", "not_supported"), ("migg", "bad_value")])
def test_what_cannot_be_held_is_refused(word, code):
    (problem,) = parse_cluster({"pools": [{"name": "p", "virtualization": word}]})[1]
    assert (problem.code, problem.field) == (code, "pools[0].virtualization")
    assert "expected one of any, none, time_slicing, mps, mig" in problem.message
