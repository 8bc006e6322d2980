"""What waits and is of another queue or priority by now is another job: quotas and order follow what the pods say."""

import asyncio

from penstock.core.model.cluster import Queue
from penstock.core.model.ids import QueueName
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster, cluster
from tests.engines.kubernetes.helpers import run, until

QUEUES = (Queue(QueueName("default")), Queue(QueueName("small"), max=(("devices", 2000),)))


def terms(c):
    return {(job.spec.name, job.spec.queue, job.spec.priority) for job in c.state.jobs.values()}


def anew(c, name, **fields):
    """Delete a pod and create another one of its name at once."""
    c.delete(name)
    c.pod(name, **fields)


async def taken(c):
    """Fill the node: half of it by the queue `small`, which is full then."""
    c.pod("first", gpus=2)
    c.pod("second", gpus=2, labels={"penstock.dev/queue": "small"})
    await until(lambda: {("first", "running"), ("second", "running")} <= set(c.jobs()))


def test_a_pod_that_is_created_anew_in_another_queue_is_held_to_its_quota():
    async def work() -> None:
        async with cluster("n1", queues=QUEUES) as c:
            await taken(c)
            c.pod("a", gpus=2)
            await until(lambda: ("a", "default", 0) in terms(c))
            anew(c, "a", gpus=2, labels={"penstock.dev/queue": "small"})
            await until(lambda: ("a", "small", 0) in terms(c))
            c.ends("first")
            await until(lambda: "queue small" in c.says("a")[1])
            assert c.where("a") == [""]
            c.ends("second")
            await until(lambda: c.where("a") == ["n1"])

    run(work)


def test_a_pod_that_is_created_anew_with_another_priority_is_ordered_by_it():
    async def work() -> None:
        async with cluster("n1", queues=QUEUES) as c:
            body = {"metadata": {"name": "high"}, "value": 1000}
            c.store.create(c.kind("priorityclasses", "scheduling.k8s.io"), "", body)
            await taken(c)
            c.pod("a", gpus=4)
            await until(lambda: ("a", "default", 0) in terms(c))
            anew(c, "a", gpus=4, priorityClassName="high")
            await until(lambda: c.where("a") == ["n1"])  # it may ask others to leave now

    run(work)


def test_the_log_knows_after_a_restart_in_which_queue_a_pod_was():
    async def work() -> None:
        async with ApiServer() as api:
            c = Cluster(api)
            c.node("n1")
            kubelets = asyncio.create_task(c.kubelets())
            async with c.serving(queues=QUEUES):
                await taken(c)
                c.pod("a", gpus=2)
                c.pod("b", gpus=2)
                await until(lambda: {("a", "default", 0), ("b", "default", 0)} <= terms(c))
                (kept,) = (job.id for job in c.state.jobs.values() if job.spec.name == "b")
            anew(c, "a", gpus=2, labels={"penstock.dev/queue": "small"})
            async with c.serving():
                await until(lambda: ("a", "small", 0) in terms(c))
                assert [job.id for job in c.state.jobs.values() if job.spec.name == "b"] == [kept]
            kubelets.cancel()

    run(work)
