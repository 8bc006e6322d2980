"""Server-side apply: several managers of one object, their conflicts, and what is left of what one applies no more."""

from typing import Any

from tests.e2e_kubernetes.kube import CONFIG_MAPS, PODS, POOLS, Answer, Kube, on_cluster

MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
POOL = {"apiVersion": "penstock.dev/v1alpha1", "kind": "ComputePool"}


async def applied(k: Kube, who: str, data: Any, root: str = CONFIG_MAPS, **query: str) -> Answer:
    kind = MAP if root == CONFIG_MAPS else POOL
    name = "web" if root == CONFIG_MAPS else k.name
    return await k.patch(root, name, {**kind, "metadata": {"name": name}, **data}, "apply", fieldManager=who, **query)


def managers(one: Any) -> dict[tuple[str, str], Any]:
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in one["metadata"]["managedFields"]}


@on_cluster
async def test_what_is_not_there_is_created(k: Kube) -> None:
    answer = await applied(k, "a", {"data": {"color": "red"}})
    assert answer.status == 201
    assert answer.body["data"] == {"color": "red"}
    assert managers(answer.body) == {("a", "Apply"): {"f:data": {"f:color": {}}}}


@on_cluster
async def test_two_managers_have_fields_of_their_own(k: Kube) -> None:
    await applied(k, "a", {"data": {"color": "red"}})
    found = k.right(await applied(k, "b", {"data": {"size": "1"}}))
    assert found["data"] == {"color": "red", "size": "1"}
    same = k.right(await applied(k, "a", {"data": {"color": "red"}}))
    assert same["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"], "nothing has changed"
    found = k.right(await applied(k, "a", {"data": {"shape": "round"}}))
    assert found["data"] == {"shape": "round", "size": "1"}, "what it applies no more is gone"


@on_cluster
async def test_another_value_for_the_field_of_another_is_a_conflict_unless_by_force(k: Kube) -> None:
    await applied(k, "a", {"data": {"color": "red", "size": "1"}})
    answer = await applied(k, "b", {"data": {"color": "blue", "size": "1"}})
    assert answer.said == (409, "Conflict")
    assert answer.body["message"] == 'Apply failed with 1 conflict: conflict with "a": .data.color'
    (cause,) = answer.body["details"]["causes"]
    assert cause == {"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".data.color"}
    found = k.right(await applied(k, "b", {"data": {"color": "blue", "size": "1"}}, force="true"))
    assert found["data"] == {"color": "blue", "size": "1"}
    assert managers(found) == {
        ("a", "Apply"): {"f:data": {"f:size": {}}},
        ("b", "Apply"): {"f:data": {"f:color": {}, "f:size": {}}},
    }
    found = k.right(await applied(k, "b", {"data": {}}))
    assert found["data"] == {"size": "1"}, "the other one has it still"


@on_cluster
async def test_who_changes_a_field_without_applying_manages_it(k: Kube) -> None:
    await applied(k, "a", {"data": {"color": "red", "size": "1"}})
    changed = k.right(await k.patch(CONFIG_MAPS, "web", {"data": {"color": "blue"}}, fieldManager="hand"))
    assert managers(changed) == {
        ("a", "Apply"): {"f:data": {"f:size": {}}},
        ("hand", "Update"): {"f:data": {"f:color": {}}},
    }
    answer = await applied(k, "a", {"data": {"color": "red"}})
    assert answer.body["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.color'
    assert k.right(await applied(k, "a", {"data": {"color": "blue"}}))["data"] == {"color": "blue"}


@on_cluster
async def test_an_apply_says_who_applies_and_what(k: Kube) -> None:
    body = {**MAP, "metadata": {"name": "web"}}
    answer = await k.patch(CONFIG_MAPS, "web", body, "apply")
    assert answer.said == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "fieldManager"
    answer = await k.patch(CONFIG_MAPS, "web", {"metadata": {"name": "web"}}, "apply", fieldManager="a")
    assert answer.said == (400, "BadRequest")
    answer = await k.patch(CONFIG_MAPS, "other", body, "apply", fieldManager="a")
    assert answer.said == (400, "BadRequest")
    assert await k.get(CONFIG_MAPS, "web") is None


@on_cluster
async def test_conditions_of_a_pod_are_applied_one_by_one(k: Kube) -> None:
    await k.pod("web", labels={"app": "web"})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}

    async def says(who: str, **condition: str) -> Any:
        status = {"status": {"conditions": [{"status": "False", **condition}]}}
        return k.right(await k.patch(PODS, "web", {**body, **status}, "apply", "status", fieldManager=who))

    await says("a", type="example.com/a", reason="First")
    found = await says("b", type="example.com/b")
    assert sorted(one["type"] for one in found["status"]["conditions"]) == ["example.com/a", "example.com/b"]
    found = await says("a", type="example.com/c")
    assert sorted(one["type"] for one in found["status"]["conditions"]) == ["example.com/b", "example.com/c"]
    answer = await k.patch(PODS, "web", {**body, "metadata": {"name": "web", "labels": {"app": "other"}}}, "apply",
                           fieldManager="a")  # fmt: skip
    assert answer.said == (409, "Conflict")
    assert answer.body["details"]["causes"][0]["field"] == ".metadata.labels.app"


@on_cluster
async def test_lists_of_our_kinds_are_applied_by_their_keys(k: Kube) -> None:
    await k.make(POOLS, k.name, spec={})

    def quotas(*names: str) -> Any:
        return {"spec": {"quotas": [{"tenant": name, "limit": 4} for name in names]}}

    await applied(k, "a", quotas("x", "y"), POOLS)
    found = k.right(await applied(k, "b", quotas("z"), POOLS))
    assert sorted(one["tenant"] for one in found["spec"]["quotas"]) == ["x", "y", "z"]
    found = k.right(await applied(k, "a", quotas("y"), POOLS))
    assert sorted(one["tenant"] for one in found["spec"]["quotas"]) == ["y", "z"]
