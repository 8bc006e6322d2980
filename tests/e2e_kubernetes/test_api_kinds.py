"""What single kinds fill in and refuse, and what their controllers do."""

from typing import Any

import pytest

from tests.e2e_kubernetes.kube import (
    BUDGETS,
    ELASTIC,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    POOLS,
    QUEUES,
    Kube,
    of_kind,
    on_cluster,
    pod,
)

INVALID = (422, "Invalid")
INDEX = "batch.kubernetes.io/job-completion-index"


def job(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {**pod()["spec"], "restartPolicy": "Never"}}, **spec}


async def pods_of(k: Kube, name: str, count: int) -> list[Any]:
    """Return the live pods of a Job once there are so many."""

    async def there() -> list[Any]:
        found = await k.all_of(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}")
        live = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return [live] if len(live) == count else []

    return list((await k.until(there))[0])


# Pods.


@on_cluster
async def test_what_a_pod_is_filled_up_with(k: Kube) -> None:
    made = await k.make(
        PODS, "web", spec={"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"}
    )
    spec = made["spec"]
    assert {name: spec[name] for name in ("restartPolicy", "terminationGracePeriodSeconds", "priority")} == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "priority": 0,
    }
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")
    assert [(one["key"], one["effect"], one["tolerationSeconds"]) for one in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]


@on_cluster
async def test_a_pod_without_a_scheduler_is_for_the_default_one(k: Kube) -> None:
    body = {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"e2e": "nowhere"}}
    assert (await k.make(PODS, "web", spec=body))["spec"]["schedulerName"] == "default-scheduler"


@on_cluster
async def test_requests_are_filled_up_with_limits(k: Kube) -> None:
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}
    box = {"name": "main", "image": "none", "resources": resources}
    (found,) = (await k.pod("web", containers=[box]))["spec"]["containers"]
    assert found["resources"] == {
        "limits": {"cpu": "2", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "1", "nvidia.com/gpu": "1"},
    }


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"cpu": "1", "memory": "1Gi"}, "Guaranteed"), ({"cpu": "1"}, "Burstable"), ({}, "BestEffort")],
)
@on_cluster
async def test_the_quality_of_service_of_a_pod(k: Kube, limits: dict[str, str], expected: str) -> None:
    box = {"name": "main", "image": "none", "resources": {"limits": limits}}
    assert (await k.pod("web", containers=[box]))["status"]["qosClass"] == expected


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"image": "none"}]}, "spec.containers[0].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"nodeName": "n1", "schedulingGates": [{"name": "example.com/wait"}]}, "spec.nodeName"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@on_cluster
async def test_pods_that_are_refused(k: Kube, spec: dict[str, Any], field: str) -> None:
    answer = await k.call("POST", k.path(PODS), {"metadata": {"name": "web"}, **pod(**spec)})
    assert answer.said == INVALID
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


@on_cluster
async def test_requests_of_devices_equal_their_limits(k: Kube) -> None:
    box = {"name": "main", "image": "none", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    answer = await k.call("POST", k.path(PODS), {"metadata": {"name": "web"}, **pod(containers=[box])})
    assert answer.said == INVALID


@on_cluster
async def test_a_pod_has_the_priority_of_its_class(k: Kube) -> None:
    name = await k.priority()
    spec = (await k.pod("web", priorityClassName=name))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "PreemptLowerPriority")


@on_cluster
async def test_a_class_that_never_preempts_says_so_on_its_pods(k: Kube) -> None:
    name = await k.priority(preemptionPolicy="Never")
    assert (await k.pod("web", priorityClassName=name))["spec"]["preemptionPolicy"] == "Never"


@pytest.mark.parametrize("spec", [{"priority": 7}, {"preemptionPolicy": "Never"}], ids=["priority", "policy"])
@on_cluster
async def test_a_pod_does_not_say_what_its_class_says(k: Kube, spec: dict[str, Any]) -> None:
    name = await k.priority()
    answer = await k.call("POST", k.path(PODS), {"metadata": {"name": "web"}, **pod(priorityClassName=name, **spec)})
    assert answer.said == (403, "Forbidden")


@on_cluster
async def test_a_pod_of_a_class_that_is_none_is_refused(k: Kube) -> None:
    body = {"metadata": {"name": "web"}, **pod(priorityClassName=f"{k.name}-none")}
    answer = await k.call("POST", k.path(PODS), body)
    assert answer.said == (403, "Forbidden")
    assert await k.get(PODS, "web") is None


# Jobs.


@on_cluster
async def test_what_a_job_is_filled_up_with(k: Kube) -> None:
    spec = (await k.make(JOBS, "web", spec=job(suspend=True)))["spec"]
    wanted = {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "backoffLimit": 6, "suspend": True}
    assert {name: spec[name] for name in wanted} == wanted


@on_cluster
async def test_a_suspended_job_has_no_pods_until_it_is_started(k: Kube) -> None:
    await k.make(JOBS, "web", spec=job(suspend=True, parallelism=2, completions=2, completionMode="Indexed"))

    async def suspended() -> bool:
        found = (await k.known(JOBS, "web"))["status"].get("conditions", ())
        return [(one["type"], one["status"]) for one in found] == [("Suspended", "True")]

    await k.until(suspended)
    assert await pods_of(k, "web", 0) == []
    k.right(await k.patch(JOBS, "web", {"spec": {"suspend": False}}))
    made = await pods_of(k, "web", 2)
    assert sorted(one["metadata"]["annotations"][INDEX] for one in made) == ["0", "1"]
    assert sorted(one["metadata"]["labels"][INDEX] for one in made) == ["0", "1"]
    assert sorted(one["spec"]["hostname"] for one in made) == ["web-0", "web-1"]
    (owner,) = made[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "web", True)
    k.right(await k.patch(JOBS, "web", {"spec": {"suspend": True}}))
    await pods_of(k, "web", 0)


@on_cluster
async def test_the_template_of_a_job_may_change_while_it_has_not_started(k: Kube) -> None:
    await k.make(JOBS, "web", spec=job(suspend=True))
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "1"}}}}}
    assert (await k.patch(JOBS, "web", patch)).status == 200
    k.right(await k.patch(JOBS, "web", {"spec": {"suspend": False}}))
    await pods_of(k, "web", 1)
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "2"}}}}}
    assert (await k.patch(JOBS, "web", patch)).said == INVALID


@on_cluster
async def test_a_job_counts_its_pods_and_ends(k: Kube) -> None:
    await k.make(JOBS, "web", spec=job())
    (made,) = await pods_of(k, "web", 1)
    name = made["metadata"]["name"]
    await k.runs(name)
    k.right(await k.patch(PODS, name, {"status": {"phase": "Succeeded"}}, "strategic", "status"))

    async def complete() -> bool:
        status = (await k.known(JOBS, "web"))["status"]
        done = [one["type"] for one in status.get("conditions", ()) if one["status"] == "True"]
        return "Complete" in done and status.get("succeeded") == 1 and not status.get("active")

    await k.until(complete)


@on_cluster
async def test_a_job_makes_another_pod_for_one_that_failed(k: Kube) -> None:
    await k.make(JOBS, "web", spec=job(completionMode="Indexed"))
    (first,) = await pods_of(k, "web", 1)
    name = first["metadata"]["name"]
    await k.runs(name)
    k.right(await k.patch(PODS, name, {"status": {"phase": "Failed"}}, "strategic", "status"))

    async def again() -> bool:
        found = await k.all_of(PODS, labelSelector="batch.kubernetes.io/job-name=web")
        return len([one for one in found if one["status"]["phase"] == "Pending"]) == 1

    await k.until(again)


@on_cluster
async def test_pods_of_a_deleted_job_are_deleted(k: Kube) -> None:
    await k.make(JOBS, "web", spec=job())
    (made,) = await pods_of(k, "web", 1)
    k.right(await k.delete(JOBS, "web", propagationPolicy="Background"))
    await k.gone(PODS, made["metadata"]["name"])


# Others.


@on_cluster
async def test_a_lease_is_taken_by_one_alone(k: Kube) -> None:
    made = await k.make(LEASES, "leader", spec={"holderIdentity": "a", "leaseDurationSeconds": 15})
    mine, theirs = ({**made, "spec": {**made["spec"], "holderIdentity": one}} for one in "bc")
    assert (await k.call("PUT", k.path(LEASES, "leader"), mine)).status == 200
    assert (await k.call("PUT", k.path(LEASES, "leader"), theirs)).said == (409, "Conflict")
    assert (await k.known(LEASES, "leader"))["spec"]["holderIdentity"] == "b"


@on_cluster
async def test_an_event_about_a_pod_is_kept(k: Kube) -> None:
    meta = (await k.pod("web"))["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": k.name, "name": "web", "uid": meta["uid"]}
    body = {
        "eventTime": "2026-11-25T10:00:00.000000Z",
        "type": "Warning",
        "reason": "Waiting",
        "action": "Scheduling",
        "note": "x" * 1000,
        "reportingController": "example.com/e2e",
        "reportingInstance": "e2e",
        "regarding": about,
    }
    made = await k.make(EVENTS, "web.1", **body)
    assert (made["note"], made["regarding"]["uid"]) == ("x" * 1000, meta["uid"])


@on_cluster
async def test_an_event_that_says_too_much_is_refused(k: Kube) -> None:
    about = {"kind": "Pod", "namespace": k.name, "name": "web"}
    body = {
        "eventTime": "2026-11-25T10:00:00.000000Z",
        "type": "Warning",
        "reason": "Waiting",
        "action": "Scheduling",
        "note": "x" * 1025,
        "reportingController": "example.com/e2e",
        "reportingInstance": "e2e",
        "regarding": about,
    }
    answer = await k.call("POST", k.path(EVENTS), {"metadata": {"name": "web.1"}, **body})
    assert answer.said == INVALID


@on_cluster
async def test_a_budget_says_either_how_many_remain_or_how_many_may_leave(k: Kube) -> None:
    body = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}
    assert (await k.call("POST", k.path(BUDGETS), body)).said == INVALID


@on_cluster
async def test_a_node_is_made_with_its_status_and_is_not_ready(k: Kube) -> None:
    status = {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    made = await k.make(NODES, f"{k.name}-n1", labels={"e2e": k.name}, status=status, spec={"unschedulable": True})
    assert made["status"]["allocatable"] == {"cpu": "8"}
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    found = k.right(await k.patch(NODES, f"{k.name}-n1", {"spec": {"unschedulable": None}}))
    assert "unschedulable" not in found["spec"]
    patch = {"status": {"allocatable": {"cpu": "4"}}}
    assert (
        k.right(await k.patch(NODES, f"{k.name}-n1", patch, "merge", "status"))["status"]["allocatable"]["cpu"] == "4"
    )


# Kinds of our own, as `penstock manifests` defines them.


def train(**spec: Any) -> dict[str, Any]:
    """Return the spec of an ElasticJob."""
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    return {"scaling": {"minReplicas": 1, "maxReplicas": 2}, "template": template, **spec}


async def anew(k: Kube) -> tuple[Any, Any]:
    """Return the metadata of an ElasticJob, and of the one that was made under its name."""
    first = await k.make(ELASTIC, "train", spec=train(suspend=True))
    await k.delete(ELASTIC, "train")
    return first["metadata"], (await k.make(ELASTIC, "train", spec=train(suspend=True)))["metadata"]


@on_cluster
async def test_an_elastic_job_keeps_its_status_apart(k: Kube) -> None:
    made = await k.make(ELASTIC, "train", spec=train(suspend=True), status={"phase": "Running"})
    assert "status" not in made
    found = k.right(await k.patch(ELASTIC, "train", {"status": {"phase": "Pending", "replicas": 0}}, "merge", "status"))
    assert (found["status"]["phase"], found["metadata"]["generation"]) == ("Pending", 1)
    found = k.right(await k.patch(ELASTIC, "train", {"spec": {"scaling": {"maxReplicas": 4}}}))
    assert (found["metadata"]["generation"], found["status"]["phase"]) == (2, "Pending")


@on_cluster
async def test_the_uid_in_a_status_of_ours_is_not_compared(k: Kube) -> None:
    old, _ = await anew(k)
    patch = {"metadata": {"uid": old["uid"]}, "status": {"phase": "Pending"}}
    assert (await k.patch(ELASTIC, "train", patch, "merge", "status")).status == 200
    assert (await k.patch(ELASTIC, "train", patch)).said == INVALID


@on_cluster
async def test_the_version_in_a_status_of_ours_is_compared(k: Kube) -> None:
    old, new = await anew(k)
    for version, expected in ((old["resourceVersion"], 409), (new["resourceVersion"], 200)):
        patch = {"metadata": {"resourceVersion": version}, "status": {"phase": "Pending"}}
        assert (await k.patch(ELASTIC, "train", patch, "merge", "status")).status == expected


@on_cluster
async def test_an_object_of_ours_says_of_which_kind_it_is(k: Kube) -> None:
    answer = await k.call("POST", k.path(ELASTIC), {"metadata": {"name": "train"}, "spec": train()})
    assert answer.said == (400, "BadRequest")


@on_cluster
async def test_an_elastic_job_has_the_scale_that_kubectl_sets(k: Kube) -> None:
    await k.make(ELASTIC, "train", spec=train(suspend=True))
    scale = k.right(await k.call("GET", k.path(ELASTIC, "train", "scale")))
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["replicas"]) == ("Scale", 2, 0)
    k.right(await k.patch(ELASTIC, "train", {"spec": {"replicas": 5}}, "merge", "scale"))
    found = await k.known(ELASTIC, "train")
    assert (found["spec"]["scaling"]["maxReplicas"], found["metadata"]["generation"]) == (5, 2)


@on_cluster
async def test_what_objects_of_ours_are_filled_up_with(k: Kube) -> None:
    spec = (await k.make(ELASTIC, "train", spec={"template": train()["template"]}))["spec"]
    assert (spec["suspend"], spec["scaling"]["minReplicas"], spec["scaling"]["maxReplicas"]) == (False, 1, 1)
    assert (await k.make(QUEUES, f"{k.name}-q"))["spec"]["weight"] == 1


@on_cluster
async def test_fields_that_objects_of_ours_do_not_have_are_left_out(k: Kube) -> None:
    spec = (await k.make(ELASTIC, "train", spec=train(replicas=7)))["spec"]
    assert "replicas" not in spec
    assert spec["template"]["spec"]["containers"][0]["image"] == "none"


@pytest.mark.parametrize(
    ("root", "spec"),
    [
        (ELASTIC, train(scaling={"minReplicas": 3, "maxReplicas": 2})),
        (ELASTIC, train(scaling={"minReplicas": "three"})),
        (ELASTIC, train(priority=2000)),
        (ELASTIC, {"scaling": {"minReplicas": 1}}),
        (ELASTIC, train(template={"spec": {"containers": []}})),
        (ELASTIC, train(template={"spec": {"containers": [{"name": "a"}], "schedulerName": "other"}})),
        (ELASTIC, train(pool="no/pool")),
        (QUEUES, {"weight": -1}),
        (QUEUES, {"preemptionPolicy": "Sometimes"}),
        (POOLS, {"poolType": "none", "capacity": {"total": 1}}),
        (POOLS, {"capacity": {"total": 1, "reserved": 2}}),
    ],
    ids=["range", "type", "bound", "no template", "no container", "scheduler", "name", "weight", "word", "type of pool",
         "sum"],
)  # fmt: skip
@on_cluster
async def test_objects_of_ours_that_their_definitions_refuse(k: Kube, root: str, spec: dict[str, Any]) -> None:
    answer = await k.call("POST", k.path(root), {**of_kind(root), "metadata": {"name": f"{k.name}-bad"}, "spec": spec})
    assert answer.said == INVALID
