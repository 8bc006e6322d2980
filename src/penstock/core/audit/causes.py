"""Causes of stops that no plan asked for, by the earlier records of the log."""

from collections.abc import Iterator

from penstock.core.audit.types import Check
from penstock.core.model import events as ev
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import Attempt
from penstock.core.model.pairing import PAIR, PART
from penstock.core.model.quantities import exact_duration
from penstock.core.share.live import pairs_to_join, pairs_to_part
from penstock.core.state.state import State
from penstock.core.state.suspension import CANNOT_FREEZE, TOO_LONG


def cause(record: ev.Record, state: State) -> Iterator[Check]:
    """Yield the check of the cause of a stop, or of a start beside another job, on the state just before it."""
    event = record.event
    if isinstance(event, ev.AttemptAllocated):
        if event.pairing is not None:
            yield _joins(event, state)
        return
    assert isinstance(event, ev.AttemptStopRequested)
    job = state.jobs[event.job_id]
    attempt = job.attempt
    assert attempt is not None
    match event.reason:
        case "cancelled":
            yield Check("cancelled", job.cancel_requested, "its cancellation was asked for")
        case "time_limit":
            limit_ms = job.spec.time_limit_ms
            ran_ms = attempt.worked_ms(record.time_ms)
            text = f"it had run for {exact_duration(ran_ms)} of {exact_duration(limit_ms)} allowed"
            yield Check("time_limit", 0 < limit_ms <= ran_ms, text)
        case "preempted" if event.rule == TOO_LONG:
            most_ms, since_ms = state.config.settings.suspended_max_ms, attempt.suspended_ms or record.time_ms
            text = f"it had been suspended for {exact_duration(record.time_ms - since_ms)} of {exact_duration(most_ms)}"
            yield Check(TOO_LONG, record.time_ms - since_ms >= most_ms, text)
        case "preempted" if event.rule == CANNOT_FREEZE:
            asked = attempt.stop.reason == "suspended" if attempt.stop is not None else attempt.suspended_ms > 0
            yield Check(CANNOT_FREEZE, asked, "it was to be suspended, and its node could not freeze it")
        case "moved" if event.rule == PAIR:
            pairs = pairs_to_join(state, record.time_ms)
            pair = next((p for p in pairs if (p.moves, p.stays) == (event.job_id, event.beneficiary)), None)
            yield Check(PAIR, pair is not None, pair.why if pair is not None else "the two are no pair")
        case "moved" if event.rule == PART:
            parting = next((p for p in pairs_to_part(state, record.time_ms) if p.leaves == event.job_id), None)
            text = parting.why if parting is not None else "the two do not slow each other down"
            yield Check(PART, parting is not None, text)
        case "requeued":
            who = attempt.requeue_by
            yield Check("requeued", bool(who), f"{who} asked for it to wait again" if who else "it was not asked for")
        case "drained":
            closed = [n for n in nodes_of(attempt) if n in state.nodes and state.nodes[n].draining]
            text = f"drained nodes that it was on: {', '.join(closed) or 'none'}"
            devices = _closed_devices(attempt, state)
            text += f"; closed devices: {', '.join(devices)}" if devices else ""
            yield Check("drained", bool(closed or devices), text)
        case "device_failed":
            devices = _closed_devices(attempt, state)
            yield Check("device_failed", bool(devices), "; ".join(devices) or "it had no device that was closed")
        case "held":
            hold = state.money.account(job.spec.tenant).hold
            yield Check("held", hold is not None, hold.text if hold is not None else "its tenant was not held")
        case "replica_failed":
            failed = [(r.rank, r.exit) for r in attempt.replicas if r.exit is not None and not r.exit.ok]
            said = "; ".join(f"replica {rank}: {how.text()}" for rank, how in failed)
            yield Check("replica_failed", bool(failed), said or "no replica had failed")
        case "node_lost":
            gone = [r for r in attempt.replicas if r.state == "lost" or (r.exit is not None and r.exit.problem)]
            said = "; ".join(f"replica {r.rank} on {r.place.node}: {r.exit.text() if r.exit else 'lost'}" for r in gone)
            yield Check("node_lost", bool(gone), said or "no replica was lost")
        case other:
            yield Check("planned", holds=False, text=f"'{other}' is for plans to ask, and no plan is named")


def _joins(event: ev.AttemptAllocated, state: State) -> Check:
    """Return the check of a start beside another job, which has given up half of its device just before."""
    assert event.pairing is not None
    other = state.jobs.get(event.pairing.other)
    theirs = other.attempt if other is not None else None
    met = theirs is not None and theirs.pairing is not None and theirs.pairing.other == event.job_id
    same = theirs is not None and theirs.replicas[0].place == event.places[0]
    return Check(PAIR, met and same, f"job {event.pairing.other} gave up half of its device: {event.pairing.why}")


def _closed_devices(attempt: Attempt, state: State) -> list[str]:
    """Return the closed devices of an attempt, and why they are closed."""
    found = []
    for replica in attempt.replicas:
        node = state.nodes.get(replica.place.node)
        for one in node.devices_closed if node is not None else ():
            if one.index in replica.place.devices:
                found.append(f"device {one.index} of {replica.place.node}: {one.reason}")
    return list(dict.fromkeys(found))


def nodes_of(attempt: Attempt) -> list[NodeName]:
    return list(dict.fromkeys(replica.place.node for replica in attempt.replicas))
