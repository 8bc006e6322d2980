"""The copy of a kind is what the server has, whatever happens to the watch."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.engines.kubernetes.api import reflector as module
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.reflector import Reflector
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import PODS, drop_pod, label_pod, put_pod, run, served, until


class Heard:
    """What a sink hears, as text."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lists = 0

    def changed(self, old: Pod | None, new: Pod) -> None:
        self.said.append(f"{'+' if old is None else '~'}{new.metadata.name}")

    def removed(self, old: Pod) -> None:
        self.said.append(f"-{old.metadata.name}")

    def listed(self) -> None:
        self.lists += 1


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF_S", (0.01, 0.05))


@contextlib.asynccontextmanager
async def reflected(client: Client, **options: object) -> AsyncIterator[tuple[Reflector[Pod], Heard]]:
    heard = Heard()
    copy = Reflector(client, PODS, Pod, heard, draw=random.Random(1), **options)
    task = asyncio.create_task(copy.run())
    try:
        await until(lambda: copy.whole)
        yield copy, heard
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(copy: Reflector[Pod]) -> list[str]:
    return sorted(name for _, name in copy.objects)


def same(server: ApiServer, copy: Reflector[Pod]) -> bool:
    """Whether the copy has every object in the server's version, and no other."""
    has = {key: int(one.metadata.resource_version) for key, one in copy.objects.items()}
    return has == {key: int(one["metadata"]["resourceVersion"]) for key, one in server.store.all_of("pods").items()}


@pytest.mark.parametrize("options", [{}, {"streams": False}, {"old_etcd": True}], ids=["streams", "none", "old etcd"])
def test_it_lists_then_follows(options):
    async def work() -> None:
        async with served(**options) as (server, client):
            put_pod(server, "a")
            async with reflected(client) as (copy, heard):
                assert (names(copy), heard.said, heard.lists) == (["a"], ["+a"], 1)
                put_pod(server, "b")
                label_pod(server, "a", team="vision")
                drop_pod(server, "b")
                await until(lambda: len(heard.said) == 4)
                assert heard.said == ["+a", "+b", "~a", "-b"]
                assert same(server, copy)

    run(work)


def test_a_list_comes_in_pages(monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.api.client.PAGE_ITEMS", 2)

    async def work() -> None:
        async with served(streams=False) as (server, client):
            for i in range(5):
                put_pod(server, f"p{i}")
            async with reflected(client) as (copy, _):
                assert len(copy.objects) == 5
            pages = [seen for seen in server.seen if "limit" in seen.query]
            assert len(pages) == 3

    run(work)


@pytest.mark.parametrize("streams", [True, False])
def test_what_happened_behind_a_compacted_watch_is_found_by_comparing(streams):
    async def work() -> None:
        async with served(streams=streams) as (server, client):
            put_pod(server, "a")
            put_pod(server, "b")
            async with reflected(client) as (copy, heard):
                server.faults.append(Fault("GET", "/pods", 503, times=2))
                server.cut_watches()
                drop_pod(server, "a")
                drop_pod(server, "b")
                again = put_pod(server, "b")
                server.store.compact()
                await until(lambda: same(server, copy) and server.watching == 1)
                assert copy.lists == 2
                assert sorted(heard.said[2:]) == ["+b", "-a", "-b"], "a lost delete would leave a ghost"
                assert copy.objects["default", "b"].metadata.uid == again["metadata"]["uid"]
                asked = [seen.query.get("sendInitialEvents") for seen in server.seen if seen.query.get("watch")]
                assert streams or asked.count("true") == 1, "it has refused once"

    run(work)


def test_a_cut_watch_goes_on_where_it_stopped():
    async def work() -> None:
        async with served() as (server, client), reflected(client) as (copy, heard):
            server.cut_watches()
            put_pod(server, "a")
            await until(lambda: names(copy) == ["a"])
            assert copy.lists == 1
            assert heard.said == ["+a"]

    run(work)


def test_bookmarks_carry_a_watch_over_the_changes_of_others():
    mine = {"fieldSelector": "spec.schedulerName=penstock"}

    async def work() -> None:
        async with served(bookmark_s=0.02) as (server, client), reflected(client, query=mine) as (copy, heard):
            for i in range(3):
                put_pod(server, f"other-{i}")
            await until(lambda: copy.version == server.store.version)
            assert heard.said == []
            server.store.compact()
            server.cut_watches()
            put_pod(server, "mine", schedulerName="penstock")
            await until(lambda: names(copy) == ["mine"])
            assert copy.lists == 1, "without its bookmarks it had to list anew"

    run(work)


def test_an_object_that_no_longer_matches_leaves():
    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a", labels={"queue": "x"})
            async with reflected(client, query={"labelSelector": "queue"}) as (copy, heard):
                label_pod(server, "a")
                await until(lambda: not copy.objects)
                assert heard.said == ["+a", "-a"]

    run(work)


@pytest.mark.parametrize("streams", [True, False])
def test_an_object_that_cannot_be_read_stays_as_it_was_known_and_keeps_nothing_from_the_others(streams):
    def spoil(one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "status": {"phase": ["none"]}}

    async def work() -> None:
        async with served(streams=streams) as (server, client):
            put_pod(server, "a", terminationGracePeriodSeconds="long")
            put_pod(server, "b")
            async with reflected(client) as (copy, heard):
                server.store.update(server.store.kind("", "pods"), ("default", "b"), spoil)
                put_pod(server, "c")
                await until(lambda: "c" in names(copy))
                assert heard.said == ["+b", "+c"]
                drop_pod(server, "b")
                await until(lambda: names(copy) == ["c"])

    run(work)


def test_an_own_write_is_known_before_the_watch_repeats_it():
    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a")
            async with reflected(client) as (copy, heard):
                body = {"metadata": {"labels": {"mine": "yes"}}}
                answer = await client.patch(PODS.path("default", "a"), body, Pod)
                copy.wrote(answer)
                assert copy.objects["default", "a"].metadata.labels == {"mine": "yes"}
                put_pod(server, "b")
                await until(lambda: "+b" in heard.said)
                assert heard.said == ["+a", "~a", "+b"], "and it is told once"

    run(work)


def test_an_answer_that_comes_after_the_delete_raises_no_ghost():
    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a")
            async with reflected(client) as (copy, _):
                late = await client.patch(PODS.path("default", "a"), {"metadata": {"labels": {"x": "y"}}}, Pod)
                drop_pod(server, "a")
                await until(lambda: not copy.objects)
                copy.wrote(late)
                assert not copy.objects

    run(work)


def test_it_waits_as_long_as_a_busy_server_asks(monkeypatch):
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(wait_s: float) -> None:
        slept.append(wait_s)
        await sleep(0)

    async def work() -> None:
        async with served() as (server, client):
            server.faults.append(Fault("GET", "/pods", 429, retry_after="7"))
            monkeypatch.setattr(module.asyncio, "sleep", noted)
            async with reflected(client):
                assert 3.5 <= max(slept) <= 7

    run(work)


@pytest.mark.parametrize("seed", range(6))
def test_the_copy_is_the_servers_whatever_happens(seed):
    """Random writes, cuts, compactions and faults: in the end the copy is exact, and what was heard adds up to it."""

    async def work() -> None:
        draw = random.Random(seed)
        async with (
            served(streams=seed % 2 == 0, bookmark_s=0.01) as (server, client),
            reflected(client) as (copy, heard),
        ):
            for step in range(150):
                name = f"p{draw.randrange(8)}"
                there = ("default", name) in server.store.all_of("pods")
                match draw.randrange(8):
                    case 0 | 1 | 2 if there:
                        label_pod(server, name, step=str(step))
                    case 3 if there:
                        drop_pod(server, name)
                    case 4:
                        server.cut_watches()
                    case 5 if draw.random() < 0.3:
                        server.store.compact()
                    case 6 if draw.random() < 0.3:
                        server.faults.append(Fault("GET", "/pods", draw.choice((429, 500, 410, 503))))
                    case _ if not there:
                        put_pod(server, name)
                if draw.random() < 0.3:
                    await asyncio.sleep(0.002)
            server.faults.clear()
            await until(lambda: same(server, copy))
            alive: set[str] = set()
            for said in heard.said:
                if said[0] == "-":
                    alive.remove(said[1:])
                else:
                    assert (said[1:] in alive) == (said[0] == "~")
                    alive.add(said[1:])
            assert alive == set(names(copy))

    run(work)
