"""Each refusal of the API server is an error that says what follows from it; no answer is read without a bound."""

import asyncio
from pathlib import Path

import pytest

from penstock.engines.kubernetes.api import client as module
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.credentials import Access, FixedToken, TokenFile
from penstock.engines.kubernetes.api.errors import (
    Busy,
    Conflict,
    Denied,
    Expired,
    KubernetesError,
    Missing,
    ReadOnly,
    Rejected,
    Unavailable,
)
from penstock.engines.kubernetes.objects.answers import Status
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import PODS, pod, put_pod, run, served

A = PODS.path("default", "a")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Rejected), (401, Denied), (403, Denied), (404, Missing), (409, Conflict), (410, Expired), (413, Rejected),
        (422, Rejected), (429, Busy), (500, Unavailable), (503, Unavailable), (504, Unavailable),
    ],
)  # fmt: skip
def test_a_refusal_says_what_follows_from_it(status, error):
    async def work() -> None:
        async with served() as (server, client):
            server.faults.append(Fault("GET", "/pods/a", status))
            with pytest.raises(error, match=f"GET {A}: a fault") as caught:
                await client.get(A, Pod)
            assert type(caught.value) is error
            assert caught.value.status == status

    run(work)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_client_for_reading_sends_no_write(method):
    async def work() -> None:
        async with served() as (server, _):
            put_pod(server, "a")
            async with Client(Access(server.url, FixedToken()), read_only=True) as client:
                with pytest.raises(ReadOnly, match=f"{method} {A}: this client only reads"):
                    await client.request(method, A, body={})
                assert (await client.get(A, Pod)).metadata.name == "a"
            assert [seen.method for seen in server.seen] == ["GET"]

    run(work)


def test_the_server_says_how_long_to_wait():
    async def work() -> None:
        async with served() as (server, client):
            server.faults.append(Fault("POST", "/pods", 429, retry_after="3"))
            with pytest.raises(Busy) as caught:
                await client.write("POST", PODS.path("default"), pod("a"), Pod)
            assert caught.value.retry_after_s == 3

    run(work)


def test_objects_are_created_read_changed_and_deleted():
    async def work() -> None:
        async with served() as (server, client):
            made = await client.write("POST", PODS.path("default"), pod("a"), Pod)
            assert made.metadata.uid
            assert made.spec.termination_grace_period_seconds == 30
            changed = await client.patch(A, {"metadata": {"labels": {"x": "y"}}}, Pod, "strategic")
            assert (await client.get(A, Pod)) == changed
            assert changed.metadata.labels == {"x": "y"}
            await client.write("DELETE", A, {"preconditions": {"uid": made.metadata.uid}}, Pod)
            with pytest.raises(Missing):
                await client.get(A, Pod)
            assert not server.store.all_of("pods")

    run(work)


def test_a_server_that_is_not_there_is_unavailable():
    async def work() -> None:
        async with ApiServer() as server:
            url = server.url
        async with Client(Access(url, TokenFile(Path("/dev/null")))) as client:
            with pytest.raises(Unavailable, match=A):
                await client.get(A, Pod)

    run(work)


def test_an_answer_has_a_bound(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_MAX_BYTES", 2_000)

    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a", labels={f"label-{i}": "x" * 60 for i in range(40)})
            with pytest.raises(Rejected, match="2,000 bytes"):
                await client.get(A, Pod)

    run(work)


def test_an_event_of_a_watch_has_a_bound(monkeypatch):
    monkeypatch.setattr(module, "LINE_MAX_BYTES", 2_000)

    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a", labels={f"label-{i}": "x" * 3_000 for i in range(40)})
            with pytest.raises(Unavailable, match="2,000 bytes"):
                async for _ in client.watch(PODS.path(), resourceVersion="0"):
                    pass

    run(work)


def test_an_answer_of_another_shape_is_no_object():
    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a")
            server.store.all_of("pods")["default", "a"]["spec"]["priority"] = "high"
            with pytest.raises(Unavailable, match="no Pod"):
                await client.get(A, Pod)

    run(work)


def test_a_token_that_was_refused_is_read_anew(tmp_path):
    path = tmp_path / "token"
    path.write_text("old\n")

    async def work() -> None:
        async with ApiServer() as server, Client(Access(server.url, TokenFile(path))) as client:
            put_pod(server, "a")
            server.tokens = {"old"}
            await client.get(A, Pod)
            server.tokens = {"new"}
            path.write_text("new\n")
            with pytest.raises(Denied, match="Unauthorized"):
                await client.get(A, Pod)
            assert (await client.get(A, Pod)).metadata.name == "a"

    run(work)


def test_only_so_many_requests_are_under_way():
    async def work() -> None:
        under_way: list[int] = []

        class Slow:
            """A token that takes its time; it is asked for within a request's turn."""

            def __init__(self) -> None:
                self.now = 0

            async def token(self) -> str:
                self.now += 1
                under_way.append(self.now)
                await asyncio.sleep(0.01)
                self.now -= 1
                return ""

            def refused(self) -> None:
                raise AssertionError

        async with ApiServer() as server, Client(Access(server.url, Slow()), connections=2) as client:
            await asyncio.gather(*(client.write("POST", PODS.path("default"), pod(f"p{i}"), Pod) for i in range(8)))
            assert len(server.store.all_of("pods")) == 8
        assert max(under_way) == 2

    run(work)


def test_a_lost_answer_does_not_say_whether_the_write_was_carried_out():
    async def work() -> None:
        async with served() as (server, client):
            server.faults.append(Fault("POST", "/pods", 504, carried_out=True))
            with pytest.raises(KubernetesError) as caught:
                await client.write("POST", PODS.path("default"), pod("a"), Status)
            assert isinstance(caught.value, Unavailable)
            assert len(server.store.all_of("pods")) == 1

    run(work)
