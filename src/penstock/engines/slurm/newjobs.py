"""Jobs of Slurm as jobs of the server."""

from collections.abc import Iterable

from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import DEFAULT_TENANT, ClusterConfig
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import DEFAULT_QUEUE, PoolName, QueueName, TenantName
from penstock.core.model.jobs import JobSpec
from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.nodes import SlurmNode, pool_of

COMMAND = ("slurm", "job")
JOB_LABEL = "slurm.job"
"""On a job: its number in Slurm and the time of its submit, as `12_3@1795684219`."""
NAME_MAX = 63
SCHEDULER = "slurm"


def pools_of(nodes: Iterable[SlurmNode], config: ClusterConfig) -> dict[str, PoolName]:
    """Return the pool of each partition: that of its first node."""
    found: dict[str, PoolName] = {}
    for node in nodes:
        for partition in node.partitions:
            found.setdefault(partition, pool_of(node, config.pool_by_name))
    return found


def new_job(job: SlurmJob, label: str, ask: GangAsk, config: ClusterConfig) -> NewJob:
    """Return a job as it is submitted: the tenant is its account, the queue that of its account or partition."""
    unnamed: list[str] = []
    tenant, queue = TenantName(job.account), QueueName("")
    if tenant not in config.tenant_by_name:
        tenant = DEFAULT_TENANT
        unnamed.append("tenant")
    names = (job.account, *job.partitions)
    queue = next((QueueName(name) for name in names if name in config.queue_by_name), QueueName(""))
    if not queue:
        queue = DEFAULT_QUEUE
        unnamed.append("queue")
    labels = {JOB_LABEL: label, "slurm.partition": ",".join(job.partitions), "slurm.account": job.account,
              "slurm.qos": job.qos}  # fmt: skip
    spec = JobSpec(
        command=COMMAND,
        ask=ask,
        name=plain_name(job.name) or f"job-{job.number}",
        tenant=tenant,
        queue=queue,
        preemptible=False,
        time_limit_ms=job.limit_ms,
        labels=tuple(sorted((key, value) for key, value in labels.items() if value)),
    )
    return NewJob(spec, unnamed=tuple(unnamed))  # type: ignore[arg-type]


def plain_name(name: str) -> str:
    """Return a name without what a terminal would act on."""
    return "".join(one if one.isprintable() else "_" for one in name)[:NAME_MAX]
