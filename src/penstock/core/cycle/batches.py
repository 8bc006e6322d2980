"""The batch of each job that declares a range: with its start, and while it runs where another is notably better."""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.cycle.sizing import Sizing
from penstock.core.elastic.learned import first_batch
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.model.plan import BatchChange, Start
from penstock.core.state.snapshot import Snapshot


def with_batches(starts: Sequence[Start], batched: Mapping[JobId, Job], sizing: Sizing) -> tuple[Start, ...]:
    """Return the starts of a cycle, each with the best batch that is known for it; `batched`: jobs with a range."""
    if not batched:
        return tuple(starts)
    return tuple(
        _with_batch(start, batched[start.job_id], sizing) if start.job_id in batched else start for start in starts
    )


def _with_batch(start: Start, job: Job, sizing: Sizing) -> Start:
    assert job.spec.batch is not None
    replicas, nodes = len(start.places), len({place.node for place in start.places})
    best = sizing.learned_at(job, start.places).best_batch(replicas, nodes)
    return replace(start, batch=best[0] if best is not None else first_batch(job.spec.batch, replicas))


def batch_changes(snapshot: Snapshot, sizing: Sizing, leaving: Collection[JobId]) -> tuple[BatchChange, ...]:
    """Return the running jobs that go on with another batch where they are; not those that leave."""
    found = []
    for job_id in snapshot.elastic:
        job = snapshot.running[job_id]
        attempt = job.undisturbed
        if job.spec.batch is None or attempt is None or not attempt.running_ms or job_id in leaving:
            continue
        if attempt.choice or attempt.batch is None:
            continue
        nodes = len({replica.place.node for replica in attempt.replicas})
        better = sizing.learned(job).better_batch(attempt.batch, len(attempt.replicas), nodes)
        if better is not None:
            found.append(BatchChange(job_id, attempt.number, better))
    return tuple(found)
