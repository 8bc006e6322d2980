"""What a Binding does, and when it is refused: the start of a replica depends on each of these."""

import pytest

from tests.e2e_kubernetes.kube import PODS, Kube, on_cluster

CONFLICT = (409, "Conflict")


async def bound_to(k: Kube, name: str = "web") -> str:
    return str((await k.known(PODS, name))["spec"].get("nodeName", ""))


@on_cluster
async def test_a_binding_with_uid_and_version_assigns_that_very_pod(k: Kube) -> None:
    meta = (await k.pod("web"))["metadata"]
    answer = await k.bind("web", "n1", uid=meta["uid"], resourceVersion=meta["resourceVersion"])
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    assert await bound_to(k) == "n1"


@on_cluster
async def test_a_binding_says_on_the_pod_that_it_is_scheduled(k: Kube) -> None:
    await k.pod("web")
    await k.bind("web")
    (found,) = (await k.known(PODS, "web"))["status"]["conditions"]
    assert (found["type"], found["status"], found.get("reason")) == ("PodScheduled", "True", None)
    assert found["lastTransitionTime"]


@on_cluster
async def test_a_binding_carries_annotations_to_the_pod(k: Kube) -> None:
    await k.pod("web", annotations={"own": "1", "both": "1"})
    await k.bind("web", annotations={"both": "2", "theirs": "2"})
    assert (await k.known(PODS, "web"))["metadata"]["annotations"] == {"own": "1", "both": "2", "theirs": "2"}


@on_cluster
async def test_a_binding_keeps_the_labels_of_the_pod(k: Kube) -> None:
    await k.pod("web", labels={"own": "1"})
    await k.bind("web", annotations={"theirs": "2"})
    assert (await k.known(PODS, "web"))["metadata"]["labels"] == {"own": "1"}


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
@on_cluster
async def test_a_binding_for_another_pod_or_version_is_refused(k: Kube, field: str) -> None:
    await k.pod("web")
    wrong = {"uid": "00000000-0000-0000-0000-000000000001", "resourceVersion": "1"}[field]
    answer = await k.bind("web", **{field: wrong})
    assert answer.said == CONFLICT
    assert await bound_to(k) == ""


@on_cluster
async def test_a_binding_is_refused_once_the_pod_has_changed(k: Kube) -> None:
    old = (await k.pod("web"))["metadata"]["resourceVersion"]
    await k.patch(PODS, "web", {"metadata": {"annotations": {"withdrawn": "1"}}})
    assert (await k.bind("web", resourceVersion=old)).said == CONFLICT
    assert await bound_to(k) == ""


@on_cluster
async def test_an_assigned_pod_is_not_assigned_again(k: Kube) -> None:
    await k.pod("web")
    await k.bind("web", "n1")
    again, other = await k.bind("web", "n1"), await k.bind("web", "n2")
    assert (again.said, other.said) == (CONFLICT, CONFLICT)
    assert "already assigned to node" in other.body["message"]
    assert await bound_to(k) == "n1"


@on_cluster
async def test_a_gated_pod_is_not_bound_until_its_gates_are_lifted(k: Kube) -> None:
    made = await k.pod("web", schedulingGates=[{"name": "example.com/wait"}])
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    answer = await k.bind("web")
    assert answer.said == CONFLICT
    assert "schedulingGates" in answer.body["message"]
    k.right(await k.patch(PODS, "web", {"spec": {"schedulingGates": None}}))
    assert (await k.bind("web")).status == 201


@on_cluster
async def test_a_pod_that_is_being_deleted_is_not_bound(k: Kube) -> None:
    await k.pod("web", finalizers=["example.com/wait"])
    await k.delete(PODS, "web")
    answer = await k.bind("web")
    assert answer.said == CONFLICT
    assert "is being deleted" in answer.body["message"]


@on_cluster
async def test_a_pod_that_is_gone_is_not_bound(k: Kube) -> None:
    answer = await k.bind("web")
    assert answer.said == (404, "NotFound")
    assert answer.body["message"] == 'pods "web" not found'


@on_cluster
async def test_a_pod_that_is_made_with_its_node_is_assigned(k: Kube) -> None:
    await k.pod("web", nodeName="n1")
    assert (await k.bind("web", "n2")).said == CONFLICT
    assert await bound_to(k) == "n1"
