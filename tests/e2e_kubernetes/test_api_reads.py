"""Lists in pages and watches: what the engine knows of the cluster depends on each of these."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e_kubernetes.kube import CONFIG_MAPS, PODS, QUEUES, Kube, Line, on_cluster

END = "k8s.io/initial-events-end"
STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}


async def maps(k: Kube, *names: str) -> None:
    for name in names:
        await k.make(CONFIG_MAPS, name, data={"of": name})


async def listed(k: Kube, **query: str) -> Any:
    return k.right(await k.call("GET", k.path(CONFIG_MAPS), **query))


def names(found: Any) -> list[str]:
    return [one["metadata"]["name"] for one in found["items"] if one["metadata"]["name"] != "kube-root-ca.crt"]


async def version(k: Kube) -> str:
    return str((await listed(k))["metadata"]["resourceVersion"])


async def next_of(lines: AsyncIterator[Line], kind: str = "") -> Line:
    """Return the next event of a kind, or the next one that is no bookmark."""
    async for one in lines:
        if one.type == kind or (not kind and one.type != "BOOKMARK" and one.name != "kube-root-ca.crt"):
            return one
    raise AssertionError("the watch has ended")


@on_cluster
async def test_a_list_comes_in_pages_of_one_version(k: Kube) -> None:
    await maps(k, "a", "b", "c", "d", "e")
    found, token, versions = [], "", set()
    while True:
        page = await listed(k, limit="2", **({"continue": token} if token else {}))
        assert len(page["items"]) <= 2
        found += names(page)
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert (found, len(versions)) == (["a", "b", "c", "d", "e"], 1)


@on_cluster
async def test_what_changes_between_pages_is_not_in_them(k: Kube) -> None:
    await maps(k, "a", "b", "c", "d")
    first = await listed(k, limit="2")
    await k.delete(CONFIG_MAPS, "a")
    await k.delete(CONFIG_MAPS, "d")
    await maps(k, "e")
    rest = await listed(k, limit="500", **{"continue": first["metadata"]["continue"]})
    assert names(first) + names(rest) == ["a", "b", "c", "d"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@on_cluster
async def test_a_page_says_how_many_remain(k: Kube) -> None:
    await maps(k, "a", "b", "c")
    whole = len((await listed(k))["items"])
    page = await listed(k, limit="1")
    assert page["metadata"]["remainingItemCount"] == whole - 1


@on_cluster
async def test_a_page_of_a_forgotten_version_is_expired(k: Kube) -> None:
    await maps(k, "a", "b")
    token = (await listed(k, limit="1"))["metadata"]["continue"]
    told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    old = base64.urlsafe_b64encode(json.dumps({**told, "rv": 1}).encode()).decode().rstrip("=")

    async def forgotten() -> bool:
        answer = await k.call("GET", k.path(CONFIG_MAPS), limit="1", **{"continue": old})
        return answer.said == (410, "Expired")

    await k.until(forgotten)


@on_cluster
async def test_a_continue_token_that_is_none_is_refused(k: Kube) -> None:
    answer = await k.call("GET", k.path(CONFIG_MAPS), limit="1", **{"continue": "none"})
    assert answer.said == (400, "BadRequest")


@on_cluster
async def test_a_watch_goes_on_where_a_list_ended(k: Kube) -> None:
    await maps(k, "a")
    async with k.watch(CONFIG_MAPS, resourceVersion=await version(k)) as lines:
        await maps(k, "b")
        k.right(await k.patch(CONFIG_MAPS, "b", {"data": {"of": "c"}}))
        last = (await k.delete(CONFIG_MAPS, "b")).body
        seen = [await next_of(lines) for _ in range(3)]
    assert [(one.type, one.name) for one in seen] == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    versions = [int(one.object["metadata"]["resourceVersion"]) for one in seen]
    assert versions == sorted(set(versions)), last
    assert seen[2].object["data"] == {"of": "c"}


@on_cluster
async def test_a_watch_without_a_version_begins_with_what_is_there(k: Kube) -> None:
    await maps(k, "a")
    async with k.watch(CONFIG_MAPS) as lines:
        assert (await next_of(lines))[0] == "ADDED"


@on_cluster
async def test_a_list_as_a_stream_ends_with_a_bookmark_that_says_so(k: Kube) -> None:
    await maps(k, "a", "b")
    begin = int(await version(k))
    async with k.watch(CONFIG_MAPS, **STREAM) as lines:
        seen = [await next_of(lines), await next_of(lines)]
        mark = await next_of(lines, "BOOKMARK")
        assert mark.object["metadata"]["annotations"] == {END: "true"}
        assert int(mark.object["metadata"]["resourceVersion"]) >= begin
        await maps(k, "c")
        assert (await next_of(lines)).name == "c"
    assert sorted(one.name for one in seen) == ["a", "b"]


@on_cluster
async def test_a_watch_gets_a_bookmark_before_it_ends(k: Kube) -> None:
    begin = await version(k)
    await k.pod("web")
    async with k.watch(CONFIG_MAPS, resourceVersion=begin, timeoutSeconds="3") as lines:
        mark = await next_of(lines, "BOOKMARK")
        assert mark.object["kind"] == "ConfigMap"
        assert int(mark.object["metadata"]["resourceVersion"]) >= int(begin)
        assert [one async for one in lines if one.type != "BOOKMARK"] == []


@on_cluster
async def test_a_watch_of_a_forgotten_version_is_told_so(k: Kube) -> None:
    async with k.watch(QUEUES, resourceVersion="1") as lines:
        error = await anext(lines)
        assert (error.type, error.object["code"], error.object["reason"]) == ("ERROR", 410, "Expired")
        assert [one async for one in lines] == []


@on_cluster
async def test_a_watch_with_a_selector_says_deleted_for_what_no_longer_matches(k: Kube) -> None:
    await k.pod("web", labels={"app": "web"})
    async with k.watch(PODS, resourceVersion=await version(k), labelSelector="app=web") as lines:
        k.right(await k.patch(PODS, "web", {"metadata": {"labels": {"app": "other"}}}))
        left = await next_of(lines)
        k.right(await k.patch(PODS, "web", {"metadata": {"labels": {"app": "web"}}}))
        back = await next_of(lines)
    assert [(left.type, left.name), (back.type, back.name)] == [("DELETED", "web"), ("ADDED", "web")]
    assert left.object["metadata"]["labels"] == {"app": "web"}
    assert int(left.object["metadata"]["resourceVersion"]) < int(back.object["metadata"]["resourceVersion"])


@on_cluster
async def test_a_watch_of_live_pods_says_deleted_for_one_that_ends(k: Kube) -> None:
    await k.pod("web")
    live = "status.phase!=Succeeded,status.phase!=Failed"
    async with k.watch(PODS, resourceVersion=await version(k), fieldSelector=live) as lines:
        k.right(await k.patch(PODS, "web", {"status": {"phase": "Failed"}}, "strategic", "status"))
        assert (await next_of(lines))[0] == "DELETED"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"labelSelector": "app=a"}, ["a"]),
        ({"labelSelector": "app!=a"}, ["b", "c"]),
        ({"labelSelector": "app in (a,b)"}, ["a", "b"]),
        ({"labelSelector": "app notin (a,b)"}, ["c"]),
        ({"labelSelector": "app"}, ["a", "b"]),
        ({"labelSelector": "!app"}, ["c"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "spec.nodeName=n1"}, ["c"]),
        ({"fieldSelector": "spec.nodeName=,metadata.name!=a"}, ["b"]),
        ({"fieldSelector": "spec.schedulerName=nobody", "labelSelector": "app=b"}, ["b"]),
    ],
)
@on_cluster
async def test_selectors(k: Kube, query: dict[str, str], expected: list[str]) -> None:
    await k.pod("a", labels={"app": "a"})
    await k.pod("b", labels={"app": "b"})
    await k.pod("c", nodeName="n1")
    assert [one["metadata"]["name"] for one in await k.all_of(PODS, **query)] == expected


@on_cluster
async def test_a_field_that_cannot_be_selected_is_refused(k: Kube) -> None:
    assert (await k.call("GET", k.path(PODS), fieldSelector="spec.priority=1")).said == (400, "BadRequest")


@on_cluster
async def test_what_is_served_of_a_group_can_be_asked(k: Kube) -> None:
    found = k.right(await k.call("GET", "/apis/policy/v1"))
    assert found["groupVersion"] == "policy/v1"
    assert "poddisruptionbudgets" in [one["name"] for one in found["resources"]]
    assert (await k.call("GET", "/apis/none.example.com/v1")).status == 404
    assert (await k.call("GET", "/apis/none.example.com/v1/nones")).status == 404
