"""How the end of a member of an array gives its turn to the next."""

from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.jobs import Job
from penstock.core.order.ranks import request_class
from penstock.core.state.indexes import Indexes
from penstock.core.state.live_jobs import LiveJobs


def pass_turn(ended: Job, jobs: LiveJobs, indexes: Indexes, config: ClusterConfig) -> None:
    """Give the turn of a job that has ended to the next member of its array, if that runs a few at a time."""
    if not ended.spec.array_parallel or ended.array_id is None:
        return
    following = indexes.arrays.ended(ended.array_id, ended.id, waits=ended.waits_turn)
    if following is None:
        return
    job = replace(jobs[following], waits_turn=False)
    job = replace(job, class_id=indexes.intern(request_class(job, config)))  # the configuration may have changed
    jobs[following] = job
    if job.ready:
        indexes.becomes_ready(job)
