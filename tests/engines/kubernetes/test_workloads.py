"""Workloads: how many pods of which kind they make, whether they are suspended, and how they ended."""

from typing import Any

import msgspec
import pytest

from penstock.engines.kubernetes.gangs.workloads import (
    Workload,
    of_job,
    of_job_set,
    of_ray_cluster,
    of_ray_job,
    queue_of,
    set_of,
)
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.workloads import Job, JobSet, RayCluster, RayJob

META = {"name": "w", "namespace": "ns", "uid": "u-1", "labels": {"penstock.dev/queue": "q"}}


def job(spec: Any, **status: Any) -> Workload:
    return of_job(msgspec.convert({"metadata": META, "spec": spec, "status": status}, Job))


def ended(kind: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status}]}


@pytest.mark.parametrize(
    ("spec", "status", "size"),
    [
        ({}, {}, 1),
        ({"parallelism": 4}, {}, 4),
        ({"parallelism": 4, "completions": 8}, {}, 4),
        ({"parallelism": 4, "completions": 2}, {}, 2),
        ({"parallelism": 4, "completions": 8}, {"succeeded": 6}, 2),
        ({"parallelism": 4, "completions": 8}, {"succeeded": 8}, 0),
        ({"parallelism": 0}, {}, 0),
        ({"parallelism": 4}, {"succeeded": 3}, 4),
    ],
    ids=["default", "a work queue", "in turns", "few", "the last ones", "done", "none", "a work queue goes on"],
)
def test_a_job_has_as_many_pods_as_run_at_a_time(spec: Any, status: Any, size: int) -> None:
    found = job(spec, **status)
    assert (found.size, found.completions, found.done) == (size, spec.get("completions"), status.get("succeeded", 0))


@pytest.mark.parametrize(
    ("status", "over", "succeeded"),
    [
        ({}, False, False),
        (ended("Complete"), True, True),
        (ended("Failed"), True, False),
        (ended("FailureTarget"), True, False),
        (ended("SuccessCriteriaMet"), True, False),
        (ended("Complete", "False"), False, False),
        (ended("Suspended"), False, False),
    ],
)
def test_a_job_is_over_when_its_status_says_so(status: Any, over: bool, succeeded: bool) -> None:
    found = job({"suspend": True}, **status)
    assert (found.over, found.succeeded, found.suspended) == (over, succeeded, True)


def test_pods_of_a_template_are_named_by_their_owner() -> None:
    (one,) = job({"parallelism": 2, "template": {"metadata": {"labels": {"a": "b"}}}}).sets
    meta = one.pod.metadata
    assert (meta.name, meta.namespace, meta.uid, meta.labels) == ("w#0", "ns", "u-1#0", {"a": "b"})


def part(name: str, replicas: int, parallelism: int) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": parallelism}}}


def test_a_job_set_has_the_pods_of_all_its_parts() -> None:
    spec = {"suspend": True, "replicatedJobs": [part("a", 1, 1), part("none", 0, 5), part("b", 2, 3)]}
    found = of_job_set(msgspec.convert({"metadata": META, "spec": spec}, JobSet))
    assert [(one.name, one.count) for one in found.sets] == [("a", 1), ("b", 6)]
    assert (found.size, found.suspended, found.over) == (7, True, False)
    assert found.path() == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/w"


@pytest.mark.parametrize(
    ("status", "over", "succeeded"),
    [
        ({}, False, False),
        ({"terminalState": "Completed"}, True, True),
        ({"terminalState": "Failed"}, True, False),
        (ended("Completed"), True, True),
        (ended("Failed"), True, False),
        (ended("StartupPolicyCompleted"), False, False),
    ],
)
def test_a_job_set_is_over_when_its_status_says_so(status: Any, over: bool, succeeded: bool) -> None:
    found = of_job_set(msgspec.convert({"metadata": META, "spec": {}, "status": status}, JobSet))
    assert (found.over, found.succeeded) == (over, succeeded)


RAY = {"headGroupSpec": {}, "workerGroupSpecs": [
    {"groupName": "gpu", "replicas": 2, "numOfHosts": 4}, {"groupName": "cpu", "replicas": 0}, {"groupName": "one"},
]}  # fmt: skip


def test_a_ray_cluster_has_a_head_and_all_hosts_of_its_groups() -> None:
    found = of_ray_cluster(msgspec.convert({"metadata": META, "spec": {**RAY, "suspend": True}}, RayCluster))
    assert [(one.name, one.count) for one in found.sets] == [("headgroup", 1), ("gpu", 8), ("one", 1)]
    assert (found.suspended, found.over) == (True, False)


@pytest.mark.parametrize(
    ("state", "over", "succeeded"),
    [("", False, False), ("Running", False, False), ("Complete", True, True), ("Failed", True, False)],
)
def test_a_ray_job_has_the_pods_of_its_cluster(state: str, over: bool, succeeded: bool) -> None:
    ray_job = {"metadata": META, "spec": {"rayClusterSpec": RAY}, "status": {"jobDeploymentStatus": state}}
    found = of_ray_job(msgspec.convert(ray_job, RayJob))
    assert (found.size, found.over, found.succeeded) == (10, over, succeeded)


@pytest.mark.parametrize(
    ("labels", "kueue", "queue"),
    [
        ({"penstock.dev/queue": "a"}, False, "a"),
        ({"kueue.x-k8s.io/queue-name": "b"}, False, ""),
        ({"kueue.x-k8s.io/queue-name": "b"}, True, "b"),
        ({"penstock.dev/queue": "a", "kueue.x-k8s.io/queue-name": "b"}, True, "a"),
        ({}, True, ""),
    ],
)
def test_the_queue_label_of_kueue_counts_where_no_kueue_runs(labels: Any, kueue: bool, queue: str) -> None:
    assert queue_of(labels, kueue=kueue) == queue


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({}, ""),
        ({"jobset.sigs.k8s.io/replicatedjob-name": "a"}, "a"),
        ({"ray.io/node-type": "head", "ray.io/group": "headgroup"}, "headgroup"),
        ({"ray.io/node-type": "worker", "ray.io/group": "gpu"}, "gpu"),
    ],
)
def test_a_pod_says_of_which_template_it_is(labels: Any, name: str) -> None:
    assert set_of(msgspec.convert({"metadata": {"labels": labels}}, Pod)) == name
