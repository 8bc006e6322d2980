"""Random worlds in which many limits bind at once: quotas, reserves, reservations, topology, models, priorities.

A seed means the same for ever: digests of plans are kept for some.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.model.cluster import DEFAULT_QUEUE, BackfillRule, NodeSpec, Pool, Queue, Reservation, Tenant
from penstock.core.model.ids import JobId, NodeName, PoolName, QueueName, TenantName
from penstock.core.model.jobs import Dependency, JobSpec
from penstock.testing.builders import ask, device, job_spec, node
from penstock.testing.harness import World

MODELS = ("A100", "H100")
POLICIES = ("priority", "fifo", "fair_share", "capacity", "least_attained", "shortest_predicted")
BACKFILL: tuple[BackfillRule, ...] = ("easy", "conservative", "none")


def crowded(seed: int) -> World:
    """Return a world after several cycles, with jobs that run, end, wait, and nodes that come and go."""
    rnd = random.Random(seed)
    w = _world(rnd)
    for _ in range(rnd.randrange(1, 4)):
        for _ in range(rnd.randrange(1, 6)):
            w.request(_job(rnd, w.state.next_job))
        w.cycle()
        _happen(w, rnd)
    w.cycle()
    return w


def cluster_of(seed: int) -> World:
    """Return a world of 1 to 4 nodes and a queue tree, without any jobs yet."""
    return _world(random.Random(seed))


def job_stream(seed: int, count: int) -> Iterator[JobSpec]:
    """Yield jobs for a world of `cluster_of`: of every size, queue, tenant and priority.

    Some depend on earlier ones, by the numbers that these get where none was refused.
    """
    rnd = random.Random(seed)
    for number in range(1, count + 1):
        yield _job(rnd, number)


def _world(rnd: random.Random) -> World:
    nodes = [_node(rnd, number) for number in range(rnd.randrange(1, 5))]
    return World(*nodes, **_config(rnd, [n.name for n in nodes]))


def _node(rnd: random.Random, number: int) -> NodeSpec:
    model = rnd.choice(MODELS)
    devices = tuple(
        device(i, model=model, memory_bytes=rnd.choice([40, 80]) * 2**30) for i in range(rnd.choice([0, 2, 4]))
    )
    return node(
        f"n{number}",
        devices,
        cpus=rnd.choice([4, 8]),
        memory_gib=rnd.choice([8, 16]),
        rack=rnd.choice(["", "r1", "r2"]),
        switch=rnd.choice(["", "s1"]),
        labels=rnd.choice([(), (("disk", "ssd"),)]),
    )


def _config(rnd: random.Random, names: Sequence[NodeName]) -> dict[str, Any]:
    def quota(low: int, high: int) -> tuple[tuple[str, int], ...]:
        return (("devices", 1000 * rnd.randrange(low, high)),) if rnd.random() < 0.4 else ()

    queues = [
        Queue(
            QueueName(name),
            parent=QueueName(parent),
            policy=rnd.choice(POLICIES),
            preemption=rnd.choice(["lower_priority", "lower_priority", "never", "reclaim"]),
            max=quota(2, 9),
            min_runtime_ms=rnd.choice([None, None, 30_000]),
        )
        for name, parent in (("a", "root"), ("b", "root"), ("b1", "b"), ("b2", "b"))
    ]
    pool = Pool(PoolName("default"), backfill=rnd.choice(BACKFILL), reserve_milli=rnd.choice([0, 0, 0, 200]))
    windows: tuple[Reservation, ...] = ()
    if rnd.random() < 0.25:
        start_ms = rnd.choice([0, 1_000_000 + 60_000])
        windows = (Reservation("w", TenantName("other"), start_ms, start_ms + 10_000_000, (rnd.choice(names),)),)
    return {
        "queues": (*queues, Queue(DEFAULT_QUEUE)),
        "pools": (pool,),
        "tenants": (Tenant(TenantName("default")), Tenant(TenantName("other"))),
        "reservations": windows,
        "starvation_after_ms": rnd.choice([20_000, 3_600_000]),
    }


def _job(rnd: random.Random, known: int) -> JobSpec:
    """Return a job; `known`: the number of the job that comes next."""
    devices = rnd.choice([0, 1, 1, 2, 2, 3, 4])
    fields: dict[str, Any] = {}
    if devices and rnd.random() < 0.25:
        fields["models"] = (rnd.choice(MODELS),)
    if rnd.random() < 0.2:
        fields |= {"topology": rnd.choice(["node", "switch", "rack", "spread"]), "required": rnd.random() < 0.8}
    if rnd.random() < 0.15:
        fields["labels_wanted"] = (("disk", "ssd"),)
    gang = ask(
        devices, rnd.choice([1, 1, 1, 2, 3]), cpus=rnd.choice([0, 1, 2]), memory_gib=rnd.choice([0, 2]), **fields
    )
    after = (Dependency(JobId(rnd.randrange(1, known)), "after_any"),) if rnd.random() < 0.05 and known > 1 else ()
    return job_spec(
        gang=gang,
        queue=rnd.choice(["a", "b1", "b2", "b", DEFAULT_QUEUE]),
        tenant=rnd.choice(["default", "default", "other"]),
        priority=rnd.choice([100, 500, 500, 900]),
        preemptible=rnd.random() < 0.8,
        time_limit_ms=rnd.choice([0, 60_000, 3_600_000]),
        retries_max=1,
        after=after,
        alternatives=(ask(1, 1),) if rnd.random() < 0.1 else (),
    )


def _happen(w: World, rnd: random.Random) -> None:
    w.now += rnd.choice([0, 5_000, 25_000])
    for job_id in sorted(w.state.indexes.active):
        job = w.state.jobs.get(job_id)
        if job is None or job.attempt is None:
            continue
        if job.state == "starting" and rnd.random() < 0.8:
            w.start(job_id)
        elif job.state == "running" and rnd.random() < 0.2:
            for replica in job.attempt.replicas:
                if job_id in w.state.jobs and w.job(job_id).attempt is not None and replica.holds:
                    w.exit_replica(job_id, replica.rank, rnd.choice([0, 1]))
    name = rnd.choice(sorted(w.state.nodes))
    if rnd.random() < 0.15:
        w.drain(name)
    elif rnd.random() < 0.05 and w.state.nodes[name].state != "lost":
        w.lose(name)
