"""Orders that tell programs their batch: with the start, when it changes, and again to an agent that begins anew."""

from penstock.core.lifecycle.orders import orders_of, reconcile
from penstock.core.messages.orders import ChangeBatch
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.model.batching import BatchAsk, BatchChoice
from penstock.core.model.events import AttemptStopRequested, BatchChosen, Record
from penstock.core.model.ids import Rank
from penstock.testing.builders import device, node
from penstock.testing.harness import World
from tests.core.elastic.test_elastic_plan import elastic


def training() -> tuple[World, int]:
    w = World(*(node(f"n{i}", devices=[device(0)]) for i in range(2)))
    job = w.submit(gang=elastic(1, 2), batch=BatchAsk(32, 256, 64))
    w.run(job)
    return w, job


def change(w, job):
    """Let the job go on with another batch; return the orders that follow."""
    event = BatchChosen(job, w.attempt(job).number, BatchChoice(32, 1))
    w.emit(event)
    return orders_of(Record(1, 0, event), w.state)


def report(w, job, *, inventory):
    attempt = w.attempt(job)
    place = attempt.replicas[0].place
    seen = tuple(
        ReplicaSeen(ReplicaKey(job, attempt.number, replica.rank), "running")
        for replica in attempt.replicas
        if replica.place.node == place.node
    )
    return reconcile(w.state, NodeReport(place.node, place.incarnation, 1, inventory, seen))


def test_another_batch_is_told_to_the_first_rank_alone():
    w, job = training()
    attempt = w.attempt(job)
    key = ReplicaKey(job, attempt.number, Rank(0))
    assert change(w, job) == [(attempt.replicas[0].place.node, ChangeBatch(key, BatchChoice(32, 1)))]


def test_an_attempt_that_is_to_leave_is_told_nothing_more():
    w, job = training()
    w.emit(AttemptStopRequested(job, w.attempt(job).number, "preempted", 1_000))
    assert change(w, job) == []


def test_an_agent_that_begins_a_session_is_told_again():
    w, job = training()
    change(w, job)
    assert report(w, job, inventory=False) == []
    (order,) = report(w, job, inventory=True)
    assert isinstance(order, ChangeBatch)
    assert order.batch == BatchChoice(32, 1)
