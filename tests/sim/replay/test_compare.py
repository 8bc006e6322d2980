"""Several policies on one trace."""

import pytest

from penstock.core.model.errors import InvalidInput
from penstock.report.simulation.numbers import MEASURES
from penstock.report.simulation.page import render
from penstock.sim.replay.compare import Interval, compare
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.variants import variant
from penstock.testing.builders import config, device, node
from penstock.traces.edit import drawn_like, with_nodes
from penstock.traces.model import CapacityChange, Outage
from tests.sim.replay.builders import HOUR, job, trace

LONG = trace(*(job(i * 1800, 3000 + 700 * (i % 5), 1 + i % 4) for i in range(400)))
"""Eight days."""


def both(**options):
    variants = [variant(words, config()) for words in ("fifo+none", "shortest_predicted+none+true")]
    return compare(lambda seed: LONG if seed == 0 else drawn_like(LONG, seed), variants, Physics(), **options)


def test_the_same_whether_in_one_process_or_in_several():
    alone, beside = both(seeds=2, processes=1), both(seeds=2, processes=2)
    assert alone == beside
    assert [(r.variant, r.seed) for r in alone] == [
        (name, seed) for name in ("fifo+none", "shortest_predicted+none+true") for seed in (0, 1)
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_goes_up_to_the_whole(processes):
    shares = []
    both(processes=processes, on_share=shares.append)
    assert shares[-1] == pytest.approx(1.0)
    assert max(shares) <= 1.0


def test_differences_are_taken_seed_by_seed():
    first, second = (both(seeds=3, processes=1)[i : i + 3] for i in (0, 3))
    wait = MEASURES[0]
    assert wait.difference(first, first).mean == wait.difference(first, first).half == 0.0
    assert wait.difference(second, first).mean == pytest.approx(wait.over(second).mean - wait.over(first).mean)


def test_the_page_is_one_file_and_the_same_each_time():
    results = both(seeds=2, processes=1)
    page = render(LONG, results)
    assert page == render(LONG, results)
    assert page.count("<svg") == 6
    assert "src=" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_names_cannot_break_the_page():
    results = compare(lambda _: LONG, [variant("as_is", config())], Physics(), processes=1)
    hostile = trace(*LONG.jobs, notes=("<script>alert(1)</script>",))
    assert "<script>alert" not in render(hostile, results)


# Traces made from traces.


def test_fewer_nodes_are_the_first_ones():
    given = trace(nodes=(node("a", 4), node("b", 2)))
    assert [spec.name for spec in with_nodes(given, "1").nodes] == ["a"]
    assert [spec.name for spec in with_nodes(given, "-1").nodes] == ["a"]


def test_other_nodes_are_noted_beside_those_of_the_source():
    given = trace(nodes=(node("a", 4), node("b", 2)), notes=("cluster: 2 nodes, from elsewhere",))
    has = "16 CPUs, 64 GiB each"
    assert with_nodes(given, "1").notes == (given.notes[0], f"nodes 1 instead: 1 node x 4 A100, {has}")
    kinds = "; ".join(f"1 node x {devices} A100, {has}" for devices in (4, 2, 1))
    assert with_nodes(given, "+1x1").notes[-1] == f"nodes +1x1 instead: {kinds}"
    many = trace(nodes=tuple(node(f"n{i}", i) for i in range(6)))
    assert with_nodes(many, "5").notes[-1] == "nodes 5 instead: 5 nodes of 5 kinds with 10 devices"


def test_what_happened_to_nodes_that_are_gone_is_gone_too():
    outages, changes = (Outage("b", 1, 2),), (CapacityChange(0, drained="b"), CapacityChange(0, drained="a"))
    fewer = with_nodes(trace(job(0, 60), nodes=(node("a", 4), node("b", 2)), outages=outages, changes=changes), "1")
    assert (fewer.outages, [change.drained for change in fewer.changes]) == ((), ["a"])


def test_more_nodes_are_copies_in_turn():
    given = trace(nodes=(node("a", 4), node("b", (device(0, model="H100"),))))
    more = with_nodes(given, "+3").nodes[2:]
    assert [(spec.name, len(spec.devices)) for spec in more] == [
        ("added-0001", 4),
        ("added-0002", 1),
        ("added-0003", 4),
    ]
    assert [spec.devices[0].model for spec in with_nodes(given, "+2xH100").nodes[2:]] == ["H100", "H100"]


@pytest.mark.parametrize("change", ["", "x", "-1", "0", "2xA100", "+1xB200", "1e3", "+99999999"])
def test_no_such_nodes(change):
    with pytest.raises(InvalidInput, match="nodes is"):
        with_nodes(trace(nodes=(node("a", 4),)), change)


def test_a_drawn_workload_is_like_the_trace_but_not_it():
    drawn = drawn_like(LONG, 1)
    assert drawn.jobs != LONG.jobs
    assert drawn == drawn_like(LONG, 1) != drawn_like(LONG, 2)
    assert abs(len(drawn.jobs) - len(LONG.jobs)) < 0.2 * len(LONG.jobs)
    assert {job.work.run_ms for job in drawn.jobs} <= {job.work.run_ms for job in LONG.jobs}
    assert [job.submit_ms for job in drawn.jobs] == sorted(job.submit_ms for job in drawn.jobs)


def test_hours_of_the_day_stay():
    assert {job.submit_ms % (24 * HOUR) // HOUR for job in drawn_like(LONG, 3).jobs} <= set(range(24))
    nightly = trace(*(job(day * 86_400 + 3600 * 2, 60) for day in range(20)))
    assert {one.submit_ms % (24 * HOUR) for one in drawn_like(nightly, 1).jobs} == {2 * HOUR}


@pytest.mark.parametrize("load", [0.5, 1.5, 3.0])
def test_load_scales_the_number_of_jobs(load):
    assert len(drawn_like(LONG, 1, load).jobs) == pytest.approx(load * len(drawn_like(LONG, 1).jobs), rel=0.15)


def test_a_trace_of_one_moment_can_be_drawn_from():
    assert len(drawn_like(trace(job(0, 60), job(0, 60)), 1).jobs) == 2
    assert drawn_like(trace(), 1).jobs == ()


def test_what_is_no_more_than_chance_is_said_so():
    wait = MEASURES[0]
    assert wait.signed(Interval(-90_000.0, 60_000.0)) == "−1 min 30 s ± 1 min 00 s"
    assert wait.signed(Interval(90_000.0, 120_000.0)) == "(+1 min 30 s ± 2 min 00 s)"
