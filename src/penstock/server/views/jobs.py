"""Jobs as the API shows them.

Reads are made on the event loop while the control thread folds: each dictionary is copied by one atomic call, each
value in it is frozen.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from penstock.api import types as api
from penstock.core.model.access import Scope
from penstock.core.model.ask_text import devices_cell, gang_text, placement_text
from penstock.core.model.cluster import Node
from penstock.core.model.events import JobSubmitted
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Attempt, Job, JobSpec, Replica, Scheduled
from penstock.core.model.measured import Measured
from penstock.core.model.plan import Plan
from penstock.core.order.ranks import own_rest_ms
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.replicas import named_ports
from penstock.core.state.usage import expected_end_ms
from penstock.ports import FinishedDetails, FinishedJob
from penstock.server.views.reads import Reads


def waiting_reason(job: Job, last: Plan | None, now_ms: int, *, shadow: bool = False) -> str:
    """Return the short code of why a waiting job waits, as the last cycle saw its class.

    Args:
        shadow: another scheduler decides, so what a cycle would do now it does not do.
    """
    if job.hold is not None:
        return "held"
    if job.unmet:
        return "dependency"
    if job.waits_turn:
        return "array_turn"
    if job.not_before_ms > now_ms:
        return "backing_off"
    if last is None:
        return ""
    if job.id in last.held:
        return "decided_elsewhere" if shadow else "making_room"
    if shadow and any(start.job_id == job.id for start in last.starts):
        return "decided_elsewhere"
    verdict = last.verdicts.get(job.class_id)
    return ("no_fit" if verdict.code == "making_room" else verdict.code) if verdict else ""


def live_job(
    job: Job,
    *,
    full: bool = False,
    waits_for: str = "",
    reached: int = 0,
    likely_ms: int = 0,
    measured: Measured | None = None,
    nodes: Mapping[NodeName, Node] = MappingProxyType({}),
) -> api.JobView:
    """Return the view of a live job; `full` adds the command and each replica.

    Args:
        waits_for: short code of why it waits, or of what is wrong with it.
        reached: step that its program has reached, where that is beyond the log.
        likely_ms: estimated start (unix ms), 0: none.
        measured: what it has used so far; shown with `full`.
        nodes: for the addresses of named ports.
    """
    attempt, spec = job.attempt, job.spec
    names = list(dict.fromkeys(r.place.node for r in attempt.replicas)) if attempt else []
    replicas = _replicas(attempt, spec, nodes) if attempt and full else []
    reason = attempt.stop.reason if attempt and attempt.stop else job.progress.hang or waits_for
    return api.JobView(
        id=job.id,
        name=spec.name,
        state=job.state,
        tenant=spec.tenant,
        queue=spec.queue,
        user=job.user,
        priority=spec.priority,
        preemptible=spec.preemptible,
        replicas=spec.ask.replica_total,
        devices=spec.ask.device_total,
        submitted_ms=job.submitted_ms,
        started_ms=job.first_started_ms,
        finished_ms=0,
        attempt=job.last_attempt,
        preemptions=job.preemptions,
        nodes=[str(n) for n in names],
        reason=reason,
        step=max(job.progress.step, reached),
        checkpoint_step=job.progress.checkpoint_step,
        array_id=job.array_id,
        array_index=job.array_index,
        replica_list=replicas,
        ends_ms=ends_ms(job),
        start_likely_ms=likely_ms,
        devices_milli=spec.ask.device_milli,
        devices_text=devices_cell(spec.ask),
        **_of_schedule(job.scheduled),
        **(_asked(spec) | _used(measured) if full else {}),
    )


def _replicas(attempt: Attempt, spec: JobSpec, nodes: Mapping[NodeName, Node]) -> list[api.ReplicaView]:
    return [
        api.ReplicaView(
            r.rank,
            r.place.node,
            list(r.place.devices),
            r.state,
            r.exit.text() if r.exit else "",
            _ports(attempt, spec, r, nodes),
        )
        for r in attempt.replicas
    ]


def _ports(attempt: Attempt, spec: JobSpec, replica: Replica, nodes: Mapping[NodeName, Node]) -> dict[str, str]:
    if not attempt.ports or not replica.holds or replica.place.node not in nodes:
        return {}
    host = nodes[replica.place.node].spec.address
    return {name: f"{host}:{port}" for name, port in named_ports(spec, attempt, replica.rank) if port}


def _of_schedule(run: Scheduled | None) -> dict[str, Any]:
    return {} if run is None else {"schedule": run.schedule, "due_ms": run.due_ms}


def _asked(spec: JobSpec) -> dict[str, Any]:
    """Return what a job was submitted with, for the page of one job."""
    return {
        "command": list(spec.command),
        "pool": spec.ask.pool,
        "asks": gang_text(spec.ask),
        "placement": placement_text(spec.ask),
        "time_limit_ms": spec.time_limit_ms,
    }


def _used(measured: Measured | None) -> dict[str, Any]:
    """Return what a job has used, for the page of one job."""
    if measured is None:
        return {}
    busy = measured.busy_ms is not None and measured.measured_ms
    return {
        "energy_mj": measured.energy_mj,
        "power_mean_mw": measured.mean_power_mw,
        "busy_milli": 1000 * (measured.busy_ms or 0) // measured.measured_ms if busy else None,
        "cpu_ms": measured.cpu_ms,
    }


def ends_ms(job: Job) -> int:
    """Return when the job is expected to end, 0 where only its time limit is known."""
    tells = told_end_ms(job) or own_rest_ms(job) or job.predicted_ms or job.spec.estimated_duration_ms
    return expected_end_ms(job) if tells else 0


def finished_job(job: FinishedJob, submitted: JobSubmitted | None = None, *, full: bool = False) -> api.JobView:
    """Return the view of a finished job; what neither its row nor its submit tells is None: unknown.

    Args:
        submitted: its submit; needed for rows of older versions, and where `full` adds the command.
    """
    spec, details = submitted.spec if submitted is not None else None, job.details
    if details is None and spec is not None:
        ask = spec.ask
        details = FinishedDetails(spec.preemptible, ask.replica_total, ask.device_milli, devices_cell(ask))
    return api.JobView(
        id=job.id,
        name=job.name,
        state=job.state,
        tenant=job.tenant,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        preemptible=details.preemptible if details is not None else None,
        replicas=details.replica_total if details is not None else job.replicas,
        devices=job.devices,
        submitted_ms=job.submitted_ms,
        started_ms=job.started_ms,
        finished_ms=job.finished_ms,
        attempt=job.attempts,
        preemptions=job.preemptions,
        nodes=list(job.nodes),
        reason=job.reason,
        step=job.step,
        checkpoint_step=job.details.checkpoint_step if job.details is not None else None,
        exit_code=job.exit.code if job.exit else None,
        exit_signal=job.exit.signal if job.exit else None,
        array_id=job.array_id,
        array_index=job.array_index,
        devices_milli=details.devices_milli if details is not None else None,
        devices_text=details.devices_text if details is not None else "",
        **_of_schedule(submitted.scheduled if submitted is not None else None),
        **(_asked(spec) if full and spec is not None else {}),
        **(_used(details.measured) if full and details is not None else {}),
    )


def finished_views(reads: Reads, jobs: Sequence[FinishedJob]) -> list[api.JobView]:
    """Return the views of finished jobs that the caller may see; submits are read for rows of older versions."""
    submits = reads.submits([job for job in jobs if job.details is None])
    return [finished_job(job, submits.get(job.id)) for job in jobs]


def job_refs(scope: Scope, reads: Reads, job_ids: tuple[JobId, ...]) -> list[api.JobRef]:
    """Return names and numbers of jobs that were accepted, wherever they are by now."""
    return [api.JobRef(job_id, name_of(scope, reads, job_id)) for job_id in job_ids]


def name_of(scope: Scope, reads: Reads, job_id: JobId) -> str:
    """Return the name of a job, or nothing where there is none that the caller sees."""
    job = reads.live_job(scope, job_id)
    ended = reads.finished_job(scope, job_id) if job is None else None
    return job.spec.name if job is not None else ended.name if ended is not None else ""
