"""Jobs that share a device: putting two together, parting them, and giving a device back to the one that stays.

Theory. The job that is cheaper to move is asked to save and leave (`moved`, by the rule `pair`). In the very group of
events in which it has left, the other one gives up half of its device and it takes that half: no plan ever sees the
half as free, so a device never gets a third job. Where that is not possible any more, it waits like any job that was
moved. When one of the two leaves, the other has the whole device again at once. If the one was preempted, its half may
be for the job that it was preempted for: the other gets it back when no such job waits any more.
"""

from penstock.core.lifecycle.ports import free_port, free_ports
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import AttemptAllocated, AttemptStopRequested, DeviceShared, DeviceShareEnded
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.jobs import Attempt, GangAsk, Job, ReplicaPlace
from penstock.core.model.pairing import PAIR, PART
from penstock.core.share.live import beside, lonely, pairs_to_join, pairs_to_part
from penstock.core.state.state import State


def share_devices(tx: Transaction) -> None:
    """Ask jobs to leave their devices that are to join another one, or to be parted from it."""
    state = tx.state
    if not state.indexes.shareable:
        return
    for job, attempt in list(lonely(state)):
        tx.emit(DeviceShareEnded(job.id, attempt.number))
    for parting in pairs_to_part(state, tx.now_ms):
        if parting.leaves is not None:
            first, second = parting.jobs
            _ask(tx, parting.leaves, second if parting.leaves == first else first, PART)
    for pair in pairs_to_join(state, tx.now_ms)[:1]:  # one at a time: the next follows from what is then
        _ask(tx, pair.moves, pair.stays, PAIR)


def _ask(tx: Transaction, job_id: JobId, other: JobId, rule: str) -> None:
    job = tx.state.jobs[job_id]
    assert job.attempt is not None, "it shares its device, or is to"
    tx.emit(AttemptStopRequested(job_id, job.attempt.number, "moved", job.spec.grace_ms, other, rule=rule))


def give_back(tx: Transaction, job: Job, ended: Attempt) -> None:
    """Give the whole device to the job that shared it with an attempt that has just ended.

    Args:
        job: whose attempt it was.
    """
    if ended.pairing is None or (ended.stop is not None and ended.stop.reason == "preempted"):
        return
    other = tx.state.jobs.get(ended.pairing.other)
    theirs = other.attempt if other is not None else None
    if other is None or theirs is None or theirs.pairing is None or theirs.pairing.other != job.id:
        return
    if theirs.replicas[0].holds:
        tx.emit(DeviceShareEnded(other.id, theirs.number))


def join(tx: Transaction, job_id: JobId, ended: Attempt) -> None:
    """Start a job beside the one for which its attempt has just left its device, if that is still possible."""
    job, stop = tx.state.jobs.get(job_id), ended.stop
    if job is None or job.state != "waiting" or stop is None or stop.rule != PAIR or stop.beneficiary is None:
        return
    ask = job.spec.alternatives[ended.choice - 1] if ended.choice else job.spec.ask
    found = beside(tx.state, job, ask, stop.beneficiary, tx.now_ms)
    if found is None or not _within_maxima(tx.state, job, ask, found.place):
        return
    stayer = tx.state.jobs[stop.beneficiary]
    assert stayer.attempt is not None
    tx.emit(DeviceShared(stayer.id, stayer.attempt.number, found.stayer))
    tx.emit(
        AttemptAllocated(
            job.id,
            AttemptNumber(job.last_attempt + 1),
            (found.place,),
            port := free_port(tx.state, found.place.node),
            rule=PAIR,
            waited_ms=max(0, tx.now_ms - job.waiting_since_ms),
            choice=ended.choice,
            pairing=found.mover,
            ports=free_ports(tx.state, (found.place,), len(job.spec.ports), port),
        )
    )


def _within_maxima(state: State, job: Job, ask: GangAsk, place: ReplicaPlace) -> bool:
    """Return whether no maximum keeps the job from starting: it had all of it before, but limits may be lower now."""
    tree = state.queue_tree()
    account = tree.account(job.spec.queue, job.spec.tenant)
    return account is not None and tree.exceeded(account, tree.demand_of(ask, (place,), state.nodes)) is None
