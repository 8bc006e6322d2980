"""Checkpoints on storage that not every node has: where their jobs go on, why they wait, and when they start anew."""

import pytest
from msgspec.structs import replace

from penstock.core.explain import explain
from penstock.core.lifecycle.out_of_reach import ABANDONED_AFTER_MS
from penstock.core.model import events as ev
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.progress import Progress
from penstock.testing.builders import ask, job_spec, node
from penstock.testing.harness import World


def world(**storages: str) -> World:
    """Return a world of nodes with 4 devices each, on these storages."""
    return World(*(node(name, storage=storage) for name, storage in storages.items()))


def begun(w: World, devices: int = 4, **fields) -> None:
    """Let job 1 run on node a."""
    others = [name for name in w.state.nodes if name != "a"]
    for name in others:
        w.drain(name)
    assert w.submit(devices, **fields) == 1
    w.run(1)
    for name in others:
        w.drain(name, on=False)


def moved_on(w: World, *, saved_step: int = 0, code: int | None = 0, **how) -> None:
    """Let job 1 leave node a, which is closed to new work then."""
    if saved_step:
        w.emit(ev.CheckpointSaved(1, w.attempt(1).number, saved_step))
    asked = code in (0, None)
    w.drain("a", evict=asked)
    w.exit_replica(1, 0, code, stop_sent=asked, **how)
    w.now += 60_000


def binding(w: World) -> list[tuple[str, str]]:
    w.cycle()
    return [(one.code, one.text) for one in explain(w.state, w.job(1), w.now).constraints if one.code == "checkpoint"]


@pytest.mark.parametrize("fields", [{"saved_step": 40}, {}], ids=["reported", "left as it was asked to"])
def test_a_job_goes_on_where_what_it_has_saved_is_reached(fields):
    w = world(a="x", b="node:b", c="x")
    begun(w)
    moved_on(w, **fields)
    w.run(1)
    assert w.where(1) == "c"


@pytest.mark.parametrize(
    ("checkpoint", "signal", "node"),
    [(CheckpointSpec(interval_ms=5), 15, "c"), (CheckpointSpec(), 15, "b"), (CheckpointSpec(interval_ms=5), 9, "b")],
    ids=["a shell around it", "says nothing of saving", "killed"],
)
def test_a_job_that_dies_of_the_stop_signal_has_saved_if_it_says_that_it_does(checkpoint, signal, node):
    w = world(a="x", b="node:b", c="x")
    begun(w, checkpoint=checkpoint)
    moved_on(w, code=None, signal=signal)
    w.drain("c", on=node != "c")
    w.run(1)
    assert w.where(1) == node


def test_a_job_waits_for_its_checkpoint_and_says_so():
    w = world(a="node:a", b="node:b", c="node:c")
    begun(w)
    moved_on(w, saved_step=40)
    text = "2 nodes do not reach the checkpoint that it continues from and have room for 2 replicas: b, c; "
    assert binding(w) == [("checkpoint", text + "its checkpoint of step 40 is reached by a (ready)")]
    assert w.phase(1) == "waiting"
    w.drain("a", on=False)
    w.run(1)
    assert w.where(1) == "a"


def test_a_job_that_has_saved_nothing_goes_anywhere():
    w = world(a="node:a", b="node:b")
    begun(w, retries_max=1)
    moved_on(w, code=1)
    w.run(1)
    assert w.where(1) == "b"


def test_jobs_on_storage_that_all_nodes_share_go_anywhere():
    w = world(a="", b="")
    begun(w)
    moved_on(w, saved_step=40)
    w.run(1)
    assert w.where(1) == "b"


def lost_with_checkpoint() -> World:
    w = world(a="node:a", b="node:b")
    begun(w)
    w.emit(ev.CheckpointSaved(1, 1, 40))
    w.lose("a")
    w.tick(ABANDONED_AFTER_MS - 1)
    w.run()
    assert w.phase(1) == "waiting"
    return w


def test_a_job_starts_anew_once_no_node_has_reached_its_checkpoint_for_long():
    w = lost_with_checkpoint()
    assert "is reached by a (lost)" in binding(w)[0][1]
    w.tick(1)
    assert [one.event for one in w.records if isinstance(one.event, ev.CheckpointAbandoned)] == [
        ev.CheckpointAbandoned(1, 40, "node:a")
    ]
    w.run(1)
    assert (w.where(1), w.job(1).progress.checkpoint_step) == ("b", 0)


def test_a_node_that_comes_back_has_the_checkpoint():
    w = lost_with_checkpoint()
    w.hello(node("a", storage="node:a"), "i2")
    w.tick(ABANDONED_AFTER_MS)
    w.run(1)
    assert (w.where(1), w.job(1).progress.checkpoint_step) == ("a", 40)


def test_an_elastic_job_grows_onto_nodes_that_reach_what_it_saves():
    w = World(*(node(name, 1, storage=at) for name, at in (("a", "x"), ("b", "node:b"))), elastic_growth_period_ms=1)
    begun(w, gang=replace(ask(1), replicas_max=2))
    w.tick(120_000)
    w.cycle()
    assert w.attempt(1).stop is None
    w.hello(node("c", 1, storage="x"))
    w.tick(120_000)
    w.cycle()
    assert w.attempt(1).stop is not None


TWO = "the 3 nodes that it may run on keep what jobs save on 2 storages (a, c; b)"


def asked(w: World, devices: int = 1, **fields):
    return w.request(job_spec(devices, name="train", **fields))


@pytest.mark.parametrize("fields", [{}, {"devices": 0, "checkpoint": CheckpointSpec(interval_ms=5)}])
def test_who_submits_a_job_that_saves_hears_that_some_of_its_nodes_do_not_reach_it(fields):
    (text,) = asked(world(a="x", b="node:b", c="x"), **fields).warnings
    assert text.startswith(f"what job 'train' saves may be out of reach after the loss of a node: {TWO}. ")


@pytest.mark.parametrize(
    ("storages", "fields"),
    [
        ({"a": "", "b": ""}, {}),
        ({"a": "x", "b": "node:b"}, {"devices": 0}),
        ({"a": "x", "b": "node:b"}, {"preemptible": False}),
        ({"a": "x", "b": "node:b"}, {"devices": 8}),
    ],
    ids=["one storage", "no trainer", "not preemptible", "one node alone fits"],
)
def test_who_submits_another_job_hears_nothing(storages, fields):
    w = world(**storages)
    w.hello(node("big", 8, storage="x"))
    if storages["a"] == "":
        w = world(**storages)
    assert asked(w, **fields).warnings == ()


def test_a_job_that_wants_shared_storage_is_refused_where_its_nodes_share_none():
    shared = {"checkpoint": CheckpointSpec(shared=True)}
    w = world(a="x", b="node:b", c="x")
    (problem,) = asked(w, **shared).problems
    assert (problem.code, problem.field) == ("checkpoint_not_shared", "checkpoint.shared")
    assert problem.message == f"checkpoint.shared is true, but {TWO}"
    assert asked(world(a="x", c="x"), **shared).warnings == ()
    w.hello(node("b", storage="x"), "i2")  # what is known is forgotten as nodes change
    assert asked(w, **shared).warnings == ()


def test_a_former_version_knew_one_storage():
    assert Progress(checkpoint_ms=5).saved_on == ""
    assert Progress().saved_on is None
    assert Progress(checkpoint_ms=5, storage="x").saved_on == "x"
