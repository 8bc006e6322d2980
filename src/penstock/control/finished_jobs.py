"""The stored row of a job that has left the state: computed at its end, and again when a log is verified."""

from penstock.core.model.ask_text import devices_cell
from penstock.core.model.events import JobFinished, Record
from penstock.core.model.ids import QueueName, TenantName, UserName
from penstock.core.model.jobs import Job
from penstock.core.predict.features import JobFeatures
from penstock.core.predict.forecast import PastRun
from penstock.ports import FinishedDetails, FinishedJob


def finished_row(job: Job, record: Record) -> FinishedJob:
    """Return the row of `job` as it stood when `record` ended it."""
    event = record.event
    assert isinstance(event, JobFinished)
    return FinishedJob(
        id=job.id,
        name=job.spec.name,
        tenant=job.spec.tenant,
        queue=job.spec.queue,
        user=job.user,
        state=event.state,
        reason=event.reason,
        submitted_ms=job.submitted_ms,
        started_ms=job.first_started_ms,
        finished_ms=record.time_ms,
        attempts=job.last_attempt,
        preemptions=job.preemptions,
        replicas=job.spec.ask.replicas,
        devices=job.spec.ask.device_total,
        priority=job.spec.priority,
        step=job.progress.step,
        exit=event.exit,
        array_id=job.array_id,
        array_index=job.array_index,
        nodes=job.last_nodes,
        details=FinishedDetails(
            preemptible=job.spec.preemptible,
            replica_total=job.spec.ask.replica_total,
            devices_milli=job.spec.ask.device_milli,
            devices_text=devices_cell(job.spec.ask),
            checkpoint_step=job.progress.checkpoint_step,
            idle_ms=job.idle_ms,
            measured=job.measured,
        ),
    )


def past_run(job: FinishedJob) -> PastRun:
    """Return the input of run time prediction from a finished job."""
    features = JobFeatures(
        devices=job.devices,
        user=UserName(job.user),
        tenant=TenantName(job.tenant),
        queue=QueueName(job.queue),
        name=job.name,
    )
    whole = job.attempts == 1 and job.state in ("succeeded", "failed")
    idle_ms = job.details.idle_ms if job.details is not None else 0
    return PastRun(job.id, features, job.submitted_ms, job.started_ms, job.finished_ms, whole, idle_ms)
