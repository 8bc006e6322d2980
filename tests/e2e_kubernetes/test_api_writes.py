"""Creations, patches, versions and deletions: what the engine writes is carried out once, or refused for a reason."""

from typing import Any

import pytest

from tests.e2e_kubernetes.kube import CONFIG_MAPS, JOBS, PODS, Kube, on_cluster, pod

CONFLICT, INVALID = (409, "Conflict"), (422, "Invalid")
OTHER = "00000000-0000-0000-0000-000000000001"


def scheduled(reason: str, status: str = "False") -> dict[str, Any]:
    return {"type": "PodScheduled", "status": status, "reason": reason, "message": "why"}


async def conditions(k: Kube, name: str = "web") -> list[tuple[str, str, str]]:
    found = (await k.known(PODS, name))["status"].get("conditions", ())
    return sorted((one["type"], one["status"], one.get("reason", "")) for one in found)


# Creations.


@on_cluster
async def test_what_exists_is_not_created_again(k: Kube) -> None:
    first = await k.pod("web")
    answer = await k.call("POST", k.path(PODS), {"metadata": {"name": "web"}, **pod("2")})
    assert answer.said == (409, "AlreadyExists")
    assert answer.body["message"] == 'pods "web" already exists'
    assert (await k.known(PODS, "web"))["metadata"]["uid"] == first["metadata"]["uid"]


@on_cluster
async def test_names_are_made_from_a_stem(k: Kube) -> None:
    made = [k.right(await k.call("POST", k.path(PODS), {"metadata": {"generateName": "web-"}, **pod()})) for _ in "ab"]
    found = [one["metadata"]["name"] for one in made]
    assert all(name.startswith("web-") and len(name) == len("web-") + 5 for name in found)
    assert found[0] != found[1]


@on_cluster
async def test_an_object_without_a_name_is_refused(k: Kube) -> None:
    answer = await k.call("POST", k.path(CONFIG_MAPS), {"metadata": {}})
    assert answer.said == INVALID
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


@pytest.mark.parametrize("name", ["Web", "web_1", "-web", "x" * 254])
@on_cluster
async def test_a_name_that_is_none_is_refused(k: Kube, name: str) -> None:
    answer = await k.call("POST", k.path(CONFIG_MAPS), {"metadata": {"name": name}})
    assert answer.said == INVALID
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


@on_cluster
async def test_an_object_of_another_namespace_is_refused(k: Kube) -> None:
    answer = await k.call("POST", k.path(CONFIG_MAPS), {"metadata": {"name": "web", "namespace": "other"}})
    assert answer.said == (400, "BadRequest")


@on_cluster
async def test_a_created_object_has_what_identifies_it(k: Kube) -> None:
    body = {"metadata": {"name": "web", "uid": OTHER, "creationTimestamp": "2001-01-01T00:00:00Z"}, **pod()}
    meta = k.right(await k.call("POST", k.path(PODS), body))["metadata"]
    assert meta["uid"] != OTHER
    assert meta["creationTimestamp"] > "2026"
    assert (meta["namespace"], meta["generation"]) == (k.name, 1)
    assert int(meta["resourceVersion"]) > 0


@on_cluster
async def test_a_created_pod_brings_no_status(k: Kube) -> None:
    body = {"metadata": {"name": "web"}, **pod(), "status": {"phase": "Running"}}
    assert k.right(await k.call("POST", k.path(PODS), body))["status"]["phase"] == "Pending"


@on_cluster
async def test_a_trial_creation_leaves_nothing(k: Kube) -> None:
    answer = await k.call("POST", k.path(PODS), {"metadata": {"name": "web"}, **pod()}, dryRun="All")
    assert (answer.status, answer.body["metadata"]["name"]) == (201, "web")
    assert await k.get(PODS, "web") is None


@on_cluster
async def test_a_body_that_is_no_json_is_refused(k: Kube) -> None:
    async with k._session.post(k.path(PODS), data=b"{", headers=await k.headers()) as answer:
        assert answer.status == 400


# Replacements and patches.


@on_cluster
async def test_a_replacement_of_an_old_version_is_refused(k: Kube) -> None:
    old = await k.make(CONFIG_MAPS, "web", data={"a": "1"})
    k.right(await k.call("PUT", k.path(CONFIG_MAPS, "web"), {**old, "data": {"a": "2"}}))
    answer = await k.call("PUT", k.path(CONFIG_MAPS, "web"), {**old, "data": {"a": "3"}})
    assert answer.said == CONFLICT
    assert "the object has been modified" in answer.body["message"]
    assert (await k.known(CONFIG_MAPS, "web"))["data"] == {"a": "2"}


@on_cluster
async def test_a_replacement_of_another_object_is_refused(k: Kube) -> None:
    old = await k.make(CONFIG_MAPS, "web", data={"a": "1"})
    meta = {**old["metadata"], "uid": OTHER}
    answer = await k.call("PUT", k.path(CONFIG_MAPS, "web"), {**old, "metadata": meta, "data": {"a": "2"}})
    assert answer.said == CONFLICT
    assert (await k.known(CONFIG_MAPS, "web"))["data"] == {"a": "1"}


@on_cluster
async def test_a_patch_of_an_old_version_is_refused(k: Kube) -> None:
    old = (await k.make(CONFIG_MAPS, "web"))["metadata"]["resourceVersion"]
    k.right(await k.patch(CONFIG_MAPS, "web", {"data": {"a": "1"}}))
    answer = await k.patch(CONFIG_MAPS, "web", {"metadata": {"resourceVersion": old}, "data": {"a": "2"}})
    assert answer.said == CONFLICT
    assert (await k.known(CONFIG_MAPS, "web"))["data"] == {"a": "1"}


@pytest.mark.parametrize("part", ["", "status"])
@pytest.mark.parametrize("how", ["merge", "strategic"])
@on_cluster
async def test_a_patch_of_a_pod_that_was_made_anew_is_refused(k: Kube, how: str, part: str) -> None:
    old = (await k.pod("web"))["metadata"]["uid"]
    await k.delete(PODS, "web", gracePeriodSeconds=0)
    await k.pod("web")
    patch = {"metadata": {"uid": old, "annotations": {"a": "1"}}, "status": {"message": "why"}}
    answer = await k.patch(PODS, "web", patch, how, part)
    assert answer.said == INVALID
    assert answer.body["details"]["causes"][0]["field"] == "metadata.uid"
    now = await k.known(PODS, "web")
    assert (now["metadata"].get("annotations"), now["status"].get("message")) == (None, None)


@on_cluster
async def test_a_patch_of_what_is_gone_is_refused(k: Kube) -> None:
    assert (await k.patch(PODS, "web", {"metadata": {"labels": {"a": "1"}}})).said == (404, "NotFound")


@on_cluster
async def test_a_merge_patch_takes_away_what_it_names_as_null(k: Kube) -> None:
    await k.pod("web", annotations={"a": "1", "b": "1"})
    found = k.right(await k.patch(PODS, "web", {"metadata": {"annotations": {"a": None, "c": "2"}}}))
    assert found["metadata"]["annotations"] == {"b": "1", "c": "2"}


@on_cluster
async def test_a_merge_patch_replaces_lists(k: Kube) -> None:
    await k.pod("web")
    for reason in ("A", "B"):
        body = {"status": {"conditions": [{"type": reason, "status": "True"}]}}
        k.right(await k.patch(PODS, "web", body, "merge", "status"))
    assert [one[0] for one in await conditions(k)] == ["B"]


@on_cluster
async def test_a_strategic_patch_merges_conditions_by_type(k: Kube) -> None:
    await k.pod("web")
    for one in (scheduled("Unschedulable"), {"type": "Ready", "status": "False"}, scheduled("QuotaExceeded")):
        k.right(await k.patch(PODS, "web", {"status": {"conditions": [one]}}, "strategic", "status"))
    assert await conditions(k) == [("PodScheduled", "False", "QuotaExceeded"), ("Ready", "False", "")]


@on_cluster
async def test_a_patch_that_changes_nothing_makes_no_version(k: Kube) -> None:
    await k.pod("web", annotations={"a": "1"})
    before = (await k.known(PODS, "web"))["metadata"]["resourceVersion"]
    same = k.right(await k.patch(PODS, "web", {"metadata": {"annotations": {"a": "1"}}}))
    assert same["metadata"]["resourceVersion"] == before


@on_cluster
async def test_a_patch_of_the_status_changes_nothing_else(k: Kube) -> None:
    await k.pod("web", labels={"a": "1"})
    patch = {"metadata": {"labels": {"a": "2"}}, "spec": {"priority": 7}, "status": {"message": "why"}}
    found = await k.patch(PODS, "web", patch, "merge", "status")
    assert found.status == 200
    now = await k.known(PODS, "web")
    assert (now["status"]["message"], now["spec"]["priority"], now["metadata"]["generation"]) == ("why", 0, 1)


@on_cluster
async def test_a_patch_of_an_object_leaves_its_status(k: Kube) -> None:
    await k.pod("web")
    k.right(await k.patch(PODS, "web", {"metadata": {"labels": {"a": "2"}}, "status": {"message": "why"}}))
    now = await k.known(PODS, "web")
    assert (now["metadata"]["labels"], now["status"].get("message")) == ({"a": "2"}, None)


@on_cluster
async def test_a_patch_of_an_unknown_kind_is_refused(k: Kube) -> None:
    await k.pod("web")
    answer = await k.call("PATCH", k.path(PODS, "web"), {}, "application/json")
    assert answer.said == (415, "UnsupportedMediaType")


@on_cluster
async def test_a_part_that_is_none_is_not_found(k: Kube) -> None:
    await k.pod("web")
    assert (await k.patch(PODS, "web", {}, "merge", "none")).status == 404


@on_cluster
async def test_generations_count_changes_of_what_is_wanted(k: Kube) -> None:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    made = await k.make(JOBS, "web", spec={"suspend": True, "template": template})
    assert made["metadata"]["generation"] == 1
    found = k.right(await k.patch(JOBS, "web", {"spec": {"parallelism": 2}}))
    assert found["metadata"]["generation"] == 2
    found = k.right(await k.patch(JOBS, "web", {"metadata": {"labels": {"a": "1"}}}))
    assert found["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    "patch",
    [
        {"nodeName": "n1"}, {"schedulerName": "other"}, {"priority": 7}, {"nodeSelector": {"a": "1"}},
        {"schedulingGates": [{"name": "example.com/wait"}]},
    ],
    ids=lambda patch: next(iter(patch)),
)  # fmt: skip
@on_cluster
async def test_what_never_changes_of_a_pod(k: Kube, patch: dict[str, Any]) -> None:
    before = (await k.pod("web"))["spec"]
    assert (await k.patch(PODS, "web", {"spec": patch})).said == INVALID
    assert (await k.known(PODS, "web"))["spec"] == before


# Deletions.


@on_cluster
async def test_a_pod_that_is_not_bound_is_deleted_at_once(k: Kube) -> None:
    await k.pod("web")
    assert (await k.delete(PODS, "web")).status == 200
    assert await k.get(PODS, "web") is None


@on_cluster
async def test_a_bound_pod_is_deleted_by_its_kubelet(k: Kube) -> None:
    await k.pod("web", terminationGracePeriodSeconds=12)
    await k.runs("web")
    meta = k.right(await k.delete(PODS, "web"))["metadata"]
    assert (meta["deletionGracePeriodSeconds"], "deletionTimestamp" in meta) == (12, True)
    assert await k.get(PODS, "web") is not None
    assert (await k.delete(PODS, "web", gracePeriodSeconds=0)).status == 200
    assert await k.get(PODS, "web") is None


@on_cluster
async def test_a_grace_period_becomes_shorter_alone(k: Kube) -> None:
    await k.pod("web")
    await k.runs("web")
    for seconds in (20, 10, 15):
        await k.delete(PODS, "web", gracePeriodSeconds=seconds)
    assert (await k.known(PODS, "web"))["metadata"]["deletionGracePeriodSeconds"] == 10


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
@on_cluster
async def test_a_deletion_of_another_object_or_version_is_refused(k: Kube, field: str) -> None:
    await k.make(CONFIG_MAPS, "web")
    wrong = {"uid": OTHER, "resourceVersion": "1"}[field]
    assert (await k.delete(CONFIG_MAPS, "web", preconditions={field: wrong})).said == CONFLICT
    assert await k.get(CONFIG_MAPS, "web") is not None


@on_cluster
async def test_a_finalizer_keeps_what_is_deleted(k: Kube) -> None:
    await k.make(CONFIG_MAPS, "web", finalizers=["example.com/wait"])
    k.right(await k.delete(CONFIG_MAPS, "web"))
    kept = (await k.known(CONFIG_MAPS, "web"))["metadata"]
    assert kept["deletionTimestamp"]
    k.right(await k.patch(CONFIG_MAPS, "web", {"metadata": {"finalizers": None}}))
    assert await k.get(CONFIG_MAPS, "web") is None


@on_cluster
async def test_a_finalizer_keeps_a_pod_that_was_not_bound(k: Kube) -> None:
    await k.pod("web", finalizers=["example.com/wait"])
    k.right(await k.delete(PODS, "web"))
    assert (await k.known(PODS, "web"))["metadata"]["deletionTimestamp"]
    k.right(await k.patch(PODS, "web", {"metadata": {"finalizers": None}}))
    assert await k.get(PODS, "web") is None


@on_cluster
async def test_no_finalizer_is_added_to_what_is_deleted(k: Kube) -> None:
    await k.make(CONFIG_MAPS, "web", finalizers=["example.com/wait"])
    await k.delete(CONFIG_MAPS, "web")
    more = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    assert (await k.patch(CONFIG_MAPS, "web", more)).said == INVALID


@on_cluster
async def test_what_is_owned_goes_with_its_owner(k: Kube) -> None:
    owner = (await k.make(CONFIG_MAPS, "owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    await k.make(CONFIG_MAPS, "owned", ownerReferences=[reference])
    await k.delete(CONFIG_MAPS, "owner", propagationPolicy="Background")
    await k.gone(CONFIG_MAPS, "owned")


@on_cluster
async def test_what_is_gone_cannot_be_deleted(k: Kube) -> None:
    assert (await k.delete(PODS, "web")).said == (404, "NotFound")
