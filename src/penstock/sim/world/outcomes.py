"""What must be true in the end: every accepted job ended once and rightly, and nothing is left behind."""

from collections.abc import Iterator

import msgspec

from penstock.core.model.batching import REBALANCE
from penstock.core.model.events import (
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    CreditExpired,
    DeviceOpened,
    HostLoadNoted,
    InvoiceIssued,
    JobResumed,
    MoneyEvent,
    MoneyReversed,
    TenantHeld,
)
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobSpec
from penstock.ports import FinishedJob
from penstock.sim.world.clients import Clients
from penstock.sim.world.ground import Ground
from penstock.sim.world.hardware import DIED_CODE
from penstock.sim.world.programs import Behaviour
from penstock.sim.world.stages import arrays_awaited, dependency_violations


def final_violations(world: Ground, clients: Clients) -> Iterator[str]:
    """Yield every promise about the whole run that does not hold."""
    yield from world.disk.damage
    if world.server is None:
        yield "no server is left"
        return
    state = world.server.controller.state
    for job in state.jobs.values():
        yield f"stuck: job {job.id} is {job.state} (attempt {job.last_attempt}, unmet {job.unmet})"
    for name, node in world.nodes.items():
        for replica in node.processes:
            yield f"left behind: replica {replica} on {name}"
    for key in clients.asked.keys() - clients.accepted.keys() - clients.refused.keys():
        yield f"stuck: request {key} was never answered"
    if msgspec.msgpack.encode(world.folded().image()) != msgspec.msgpack.encode(state.image()):
        yield "the fold of the log differs from the live state"
    yield from _jobs(world, clients)
    yield from dependency_violations(world.disk.records)
    _count(world)


def _jobs(world: Ground, clients: Clients) -> Iterator[str]:
    given: dict[JobId, str] = {}
    specs = world.specs
    for key, job_ids in sorted(clients.accepted.items()):
        for job_id in job_ids:
            if job_id in given:
                yield f"job id {job_id} was given to requests {given[job_id]} and {key}"
            given[job_id] = key
            row = world.disk.finished.get(job_id)
            if row is None:
                yield f"accepted job {job_id} ({key}) is lost: the log does not know how it ended"
            else:
                yield from _ending(clients, row, specs[job_id])


def _ending(clients: Clients, row: FinishedJob, spec: JobSpec) -> Iterator[str]:
    """A job that was neither cancelled nor limited ends with its own program's code."""
    expected = Behaviour.of(spec.command).exit_code
    if row.state == "succeeded" and expected != 0:
        yield f"job {row.id} succeeded though its program exits with {expected}"
    late = row.reason.startswith("time limit")  # it was stopped, and its device failed in its grace
    known = (None, expected, 143, DIED_CODE) if late else (None, expected, 143)
    if row.state == "failed" and row.exit is not None and row.exit.code not in known:
        yield f"job {row.id} ended with {row.exit.code}, its program exits with {expected}"
    if row.state == "failed" and expected == 0 and not spec.time_limit_ms and "gave up" not in row.reason:
        yield f"job {row.id} failed ({row.reason}) though its program succeeds"
    if row.state == "cancelled" and not spec.after and row.id not in clients.cancelled:
        yield f"job {row.id} was cancelled by nobody ({row.reason})"


def _count(world: Ground) -> None:
    world.probes["array_awaited"] += arrays_awaited(world.disk.records)
    for record in world.disk.records:
        event = record.event
        if isinstance(event, AttemptStopRequested):
            world.probe(f"stopped_{event.reason}")
            world.probes["idle_made_room"] += event.rule == "held_idle"
            world.probes["restarted_by_round"] += event.rule == REBALANCE and event.reason == "resized"
            world.probes["paused_by_round"] += event.rule == REBALANCE and event.reason == "preempted"
        elif isinstance(event, HostLoadNoted):
            world.probe("host_load_noted")
        elif isinstance(event, DeviceOpened):
            world.probe("device_opened")
        elif isinstance(event, JobResumed):
            world.probe("resumed_from_checkpoint")
        elif isinstance(event, AttemptSuspended):
            world.probe("suspended")
        elif isinstance(event, AttemptResumed):
            world.probe("resumed_where_it_was")
        elif isinstance(event, MoneyEvent):
            _count_money(world, event)


def _count_money(world: Ground, event: MoneyEvent) -> None:
    match event:
        case TenantHeld():
            world.probe("tenant_suspended" if event.suspend else "tenant_held")
        case CreditExpired() if event.amount:
            world.probe("credit_expired")
        case InvoiceIssued():
            world.probe(f"{event.invoice.kind}_issued")
            world.probes["use_given_back"] += any(line.kind == "refund" for line in event.invoice.lines)
        case MoneyReversed():
            world.probe("money_reversed")
        case _:
            pass
