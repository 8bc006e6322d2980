"""What is known of a cluster: priorities, namespaces, owners of pods, and kinds that need not be there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from penstock.engines.kubernetes.gangs.dialects import NotYet
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.view import ClusterView, Heard
from penstock.sim.apiserver.requests import Fault
from penstock.sim.apiserver.store import Kind
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import run, served, until
from tests.engines.kubernetes.scenes import JOB_SETS, RAY_CLUSTERS, RAY_JOBS, TRAIN_JOBS, template

CLASSES = ("scheduling.k8s.io", "priorityclasses")


class Seen:
    """A view of a test server, and what it said."""

    def __init__(self, server: ApiServer, view: ClusterView, workloads: list[Workload], gone: list[Workload]) -> None:
        self.server, self.view, self.workloads, self.gone = server, view, workloads, gone

    def make(self, kind: Kind | tuple[str, str], name: str, spec: Any = None, **meta: Any) -> Any:
        found = kind if isinstance(kind, Kind) else self.server.store.kind(*kind)
        body = {"metadata": {"name": name, **meta}, **({"spec": spec} if spec is not None else {})}
        return self.server.store.create(found, "default" if found.namespaced else "", body)


@contextlib.asynccontextmanager
async def viewing(*kinds: Kind, kueue: bool = False, denied: str = "") -> AsyncIterator[Seen]:
    async with served() as (server, client):
        for kind in kinds:
            server.store.kinds[kind.group, kind.plural] = kind
        if denied:
            server.faults.append(Fault("GET", denied, 403, times=10_000))
        workloads: list[Workload] = []
        gone: list[Workload] = []

        def none(*_: Any) -> None:
            """What is heard of the rest does not matter here."""

        view = ClusterView(client, Heard(workloads.append, gone.append, none, none, none, none, none), kueue=kueue)
        task = asyncio.create_task(view.run())
        try:
            await until(lambda: view.whole or task.done())
            yield Seen(server, view, workloads, gone)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def pod(labels: Any = None, owner: Any = None, **spec: Any) -> Pod:
    meta: dict[str, Any] = {"name": "p", "namespace": "default", "labels": labels or {}}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def reference(one: Any, **other: Any) -> dict[str, Any]:
    meta = one["metadata"]
    own = {"apiVersion": one["apiVersion"], "kind": one["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**own, "controller": True, **other}


def test_a_template_gets_the_priority_that_its_pods_will_get() -> None:
    async def work() -> None:
        async with viewing() as c:
            assert c.view.priority_of_pod(pod()) == 0
            for name, value, default in (("high", 900, False), ("usual", 50, True)):
                kind = c.server.store.kind(*CLASSES)
                body = {"metadata": {"name": name}, "value": value, "globalDefault": default}
                c.server.store.create(kind, "", body)
            await until(lambda: c.view.priority_of("usual") == 50)
            named = [c.view.priority_of_pod(pod(priorityClassName=name)) for name in ("high", "usual", "absent")]
            assert (named, c.view.priority_of_pod(pod())) == ([900, 50, 0], 50)
            assert c.view.priority_of("absent") is None

    run(work)


def test_the_name_of_a_namespace_is_one_of_its_labels() -> None:
    async def work() -> None:
        async with viewing() as c:
            c.make(("", "namespaces"), "red", labels={"team": "a"})
            await until(lambda: "team" in c.view.labels_of("red"))
            assert c.view.labels_of("red") == {"kubernetes.io/metadata.name": "red", "team": "a"}
            assert c.view.labels_of("unknown") == {"kubernetes.io/metadata.name": "unknown"}

    run(work)


def test_a_job_that_is_gone_owns_nothing() -> None:
    async def work() -> None:
        async with viewing() as c:
            job = c.make(("batch", "jobs"), "train", {"template": template()})
            await until(lambda: c.workloads != [])
            c.server.store.delete(c.server.store.kind("batch", "jobs"), ("default", "train"))
            await until(lambda: c.gone != [])
            assert (c.gone[0].name, c.gone[0].uid) == ("train", job["metadata"]["uid"])
            with pytest.raises(NotYet):
                c.view.workload_of(pod(owner=job))

    run(work)


def test_a_pod_is_of_the_job_that_owns_it() -> None:
    async def work() -> None:
        async with viewing() as c:
            job = c.make(("batch", "jobs"), "train", {"template": template()}, labels={"penstock.dev/queue": "q"})
            with pytest.raises(NotYet, match="Job train is not known yet"):
                c.view.workload_of(pod(owner=job))
            await until(lambda: c.workloads != [])
            found = c.view.workload_of(pod(owner=job))
            assert found is not None
            assert (found.name, c.view.queue_of(found), c.view.started_here(found)) == ("train", "q", True)
            with pytest.raises(NotYet):
                c.view.workload_of(pod(owner={**job, "metadata": {"name": "train", "uid": "of one before"}}))
            assert c.view.workload_of(pod()) is None
            assert c.view.workload_of(pod(owner={**job, "apiVersion": "apps/v1", "kind": "ReplicaSet"})) is None

    run(work)


def test_pods_are_their_own_where_jobs_may_not_be_read() -> None:
    """Least privilege: without the right to read Jobs their pods start one by one, and nothing waits for ever."""

    async def work() -> None:
        async with viewing(denied="/apis/batch/v1/jobs") as c:
            job = c.make(("batch", "jobs"), "train", {"template": template()})
            assert c.view.workload_of(pod(owner=job)) is None

    run(work)


@pytest.mark.parametrize("kueue", [False, True])
def test_the_queue_of_kueue_counts_as_ours_where_that_is_set(kueue: bool) -> None:
    async def work() -> None:
        async with viewing(kueue=kueue) as c:
            c.make(("batch", "jobs"), "train", {"template": template()}, labels={"kueue.x-k8s.io/queue-name": "q"})
            await until(lambda: c.workloads != [])
            assert (c.view.started_here(c.workloads[0]), c.view.queue_of(c.workloads[0])) == (kueue, "q" * kueue)

    run(work)


PART = {"name": "work", "replicas": 2, "template": {"spec": {"template": template()}}}


def test_a_job_set_of_a_train_job_is_started_by_that() -> None:
    async def work() -> None:
        async with viewing(JOB_SETS, TRAIN_JOBS) as c:
            owner = c.make(TRAIN_JOBS, "tune", {"suspend": True}, labels={"penstock.dev/queue": "q"})
            spec = {"replicatedJobs": [PART]}
            c.make(JOB_SETS, "tune", spec, ownerReferences=[reference(owner)])
            await until(lambda: c.workloads != [] and c.view.started_here(c.workloads[-1]))
            found = c.view.workload_of(pod({"jobset.sigs.k8s.io/jobset-name": "tune"}))
            assert found is not None
            assert (found.kind.plural, found.uid, found.size) == ("trainjobs", owner["metadata"]["uid"], 2)

    run(work)


def test_a_ray_cluster_of_a_ray_job_is_started_by_that() -> None:
    async def work() -> None:
        async with viewing(RAY_CLUSTERS, RAY_JOBS) as c:
            owner = c.make(RAY_JOBS, "batch", {}, labels={"penstock.dev/queue": "q"})
            c.make(RAY_CLUSTERS, "made", {"headGroupSpec": {}}, ownerReferences=[reference(owner)])
            c.make(RAY_CLUSTERS, "alone", {"headGroupSpec": {}})
            await until(lambda: len({one.uid for one in c.workloads}) == 2 and len(c.workloads) >= 3)
            kinds = [c.view.workload_of(pod({"ray.io/cluster": name})) for name in ("made", "alone")]
            assert [one.kind.plural for one in kinds if one is not None] == ["rayjobs", "rayclusters"]

    run(work)


def test_kinds_that_are_installed_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.kubernetes.view.LOOK_AGAIN_S", 0.02)

    async def work() -> None:
        async with viewing() as c:
            c.server.store.kinds[JOB_SETS.group, JOB_SETS.plural] = JOB_SETS
            c.make(JOB_SETS, "set", {"replicatedJobs": [PART]})
            await until(lambda: [one.name for one in c.workloads] == ["set"])

    run(work)
