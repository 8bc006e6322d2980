"""Starts that another scheduler decided: they are noted as they are, and nothing follows from them but the record.

Nobody is asked to leave for them, and no maximum is held against them: another scheduler does not know ours.
"""

from penstock.core.lifecycle.defaults import default_queue, default_tenant
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import Refusal, SeenStart, StartNoted
from penstock.core.model.access import Scope
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.events import AttemptAllocated
from penstock.core.model.ids import AttemptNumber, NodeName, UserName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import pick_devices
from penstock.core.state.state import State


def require_defaults(config: ClusterConfig) -> None:
    """Check that work which names no queue, or is of no tenant, has one all the same. Raises: InvalidInput."""
    if not default_queue(config, UserName("")):
        text = "queues: there is none for work that names no queue, expected one named 'default' or `default_queue`"
        raise InvalidInput(text, hint="add `- name: default` to the queues of the cluster file")
    if not default_tenant(config, Scope(UserName(""), "admin", level="write")):
        text = "tenants: there is none for namespaces that are no tenant, expected 'default' or `default_tenant`"
        raise InvalidInput(text, hint="add `- name: default` to the tenants of the cluster file")


def note_start(tx: Transaction, seen: SeenStart) -> StartNoted | Refusal:
    """Note where a waiting job runs by now; which devices it has there is chosen among the free ones.

    Refused is what does not fit what is known of the nodes, or is no start of a job that waits.
    """
    job = tx.state.jobs.get(seen.job_id)
    if job is None or job.state != "waiting":
        return _refused("not_waiting", f"job {seen.job_id} does not wait")
    if not len(seen.nodes) == len(seen.names) == job.spec.ask.replica_total:
        expected = job.spec.ask.replica_total
        return _refused("invalid_value", f"job {job.id} has {len(seen.nodes)} places, expected {expected}")
    places = _places(tx.state, job, seen.nodes)
    if isinstance(places, str):
        return _refused("no_fit", places)
    number = AttemptNumber(job.last_attempt + 1)
    tx.emit(
        AttemptAllocated(
            job.id,
            number,
            places,
            rule="seen",
            waited_ms=max(0, tx.now_ms - job.waiting_since_ms),
            scheduler=seen.scheduler,
            names=seen.names,
        )
    )
    return StartNoted(number, tuple(place.devices for place in places))


def _places(state: State, job: Job, nodes: tuple[NodeName, ...]) -> tuple[ReplicaPlace, ...] | str:
    """Return the places of a job on these nodes, or what is too little there."""
    after: dict[NodeName, NodeCapacity] = {}
    places = []
    for rank, name in enumerate(nodes):
        each, node = job.spec.ask.each_of(rank), state.nodes.get(name)
        free = after.get(name) or state.indexes.free.get(name)
        if node is None or free is None or node.state != "ready":
            return f"node {name} is not known as ready"
        short = each.host.shortage(free.host)
        if short is not None:
            return f"{name} has too little {short} left, as far as is known"
        picked = pick_devices(each.devices, free)
        if picked is None:
            return f"{name} has too few devices left, as far as is known"
        after[name] = free.take(each, *picked)
        places.append(ReplicaPlace(name, node.incarnation, *picked))
    return tuple(places)


def _refused(code: str, text: str) -> Refusal:
    return Refusal("conflict", (Problem(code, "job_id", text),))
