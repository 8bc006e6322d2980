"""Jobs as the API shows them.

Reads are made on the event loop while the control thread folds: each dictionary is copied by one atomic call, each
value in it is frozen.
"""

from penstock.api import types as api
from penstock.core.model.access import Scope
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.model.plan import Plan
from penstock.core.state.expected_end import told_end_ms
from penstock.core.state.usage import expected_end_ms
from penstock.ports import FinishedJob
from penstock.server.views.reads import Reads


def waiting_reason(job: Job, last: Plan | None, now_ms: int) -> str:
    """Return the short code of why a waiting job waits, as the last cycle saw its class."""
    if job.unmet:
        return "dependency"
    if job.not_before_ms > now_ms:
        return "backing_off"
    if last is None:
        return ""
    if job.id in last.held:
        return "making_room"
    verdict = last.verdicts.get(job.class_id)
    return ("no_fit" if verdict.code == "making_room" else verdict.code) if verdict else ""


def live_job(job: Job, *, full: bool = False, waits_for: str = "", reached: int = 0) -> api.JobView:
    """Return the view of a live job; `full` adds the command and each replica."""
    attempt, spec = job.attempt, job.spec
    nodes = list(dict.fromkeys(r.place.node for r in attempt.replicas)) if attempt else []
    replicas = [
        api.ReplicaView(r.rank, r.place.node, list(r.place.devices), r.state, r.exit.text() if r.exit else "")
        for r in (attempt.replicas if attempt and full else ())
    ]
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
        replicas=spec.ask.replicas,
        devices=spec.ask.device_total,
        submitted_ms=job.submitted_ms,
        started_ms=job.first_started_ms,
        finished_ms=0,
        attempt=job.last_attempt,
        preemptions=job.preemptions,
        nodes=[str(n) for n in nodes],
        reason=reason,
        step=max(job.progress.step, reached),
        checkpoint_step=job.progress.checkpoint_step,
        array_id=job.array_id,
        array_index=job.array_index,
        command=list(spec.command) if full else [],
        replica_list=replicas,
        ends_ms=_ends_ms(job),
    )


def _ends_ms(job: Job) -> int:
    """Return when the job is expected to end, 0 where only its time limit is known."""
    tells = told_end_ms(job) or job.predicted_ms or job.spec.estimated_duration_ms
    return expected_end_ms(job) if tells else 0


def finished_job(job: FinishedJob) -> api.JobView:
    return api.JobView(
        id=job.id,
        name=job.name,
        state=job.state,
        tenant=job.tenant,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        preemptible=False,
        replicas=job.replicas,
        devices=job.devices,
        submitted_ms=job.submitted_ms,
        started_ms=job.started_ms,
        finished_ms=job.finished_ms,
        attempt=job.attempts,
        preemptions=job.preemptions,
        nodes=list(job.nodes),
        reason=job.reason,
        step=job.step,
        checkpoint_step=0,
        exit_code=job.exit.code if job.exit else None,
        exit_signal=job.exit.signal if job.exit else None,
        array_id=job.array_id,
        array_index=job.array_index,
    )


def job_refs(scope: Scope, reads: Reads, job_ids: tuple[JobId, ...]) -> list[api.JobRef]:
    """Return names and numbers of jobs that were accepted, wherever they are by now."""
    return [api.JobRef(job_id, name_of(scope, reads, job_id)) for job_id in job_ids]


def name_of(scope: Scope, reads: Reads, job_id: JobId) -> str:
    """Return the name of a job, or nothing where there is none that the caller sees."""
    job = reads.live_job(scope, job_id)
    ended = reads.finished_job(scope, job_id) if job is None else None
    return job.spec.name if job is not None else ended.name if ended is not None else ""
