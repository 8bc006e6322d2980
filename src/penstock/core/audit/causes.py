"""Causes of stops that no plan asked for, by the earlier records of the log."""

from collections.abc import Iterator

from penstock.core.audit.types import Check
from penstock.core.model import events as ev
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import Attempt
from penstock.core.model.quantities import exact_duration
from penstock.core.state.state import State
from penstock.core.state.suspension import CANNOT_FREEZE, TOO_LONG


def cause(record: ev.Record, state: State) -> Iterator[Check]:
    """Yield the check of the stop's cause, on the state just before it."""
    event = record.event
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
