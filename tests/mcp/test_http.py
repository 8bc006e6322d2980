"""Who gets in over HTTP, and that nobody crowds out others."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.shared.exceptions import MCPError

from penstock.client import Client
from penstock.mcp import callers as callers_module
from penstock.mcp import http, tools
from penstock.mcp.budget import Cost
from penstock.mcp.callers import CALLS_AT_ONCE, Caller, Callers
from penstock.mcp.errors import Refused
from tests.mcp.conftest import LIMITS, Answer, World, called


def test_a_request_without_a_token_is_refused_here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.callers, "admit", lambda token: pytest.fail("the server was asked"))
    for given in ("", "Bearer", "Basic cGVuOnN0b2Nr", "Bearer " + "x" * 2_000):
        assert world.post("", Authorization=given).status_code == 401


def test_a_request_without_a_valid_token_is_refused(world: World) -> None:
    for given in ("", "Bearer", "Bearer wrong", "Basic wrong", "Bearer " + "x" * 2_000):
        answer = world.post("", Authorization=given)
        assert answer.status_code == 401, given
        assert answer.json()["error"]["code"] == "unauthenticated"
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "evil.example:{port}", 421),
        ("Host", "127.0.0.1:1", 421),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:{port}", 403),
    ],
)
def test_a_page_that_rebinds_its_name_is_refused(world: World, header: str, value: str, status: int) -> None:
    token = world.token("ann")
    assert world.post(token).status_code == 200
    answer = world.post(token, **{header: value.format(port=world.port)})
    assert (answer.status_code, "tools" in answer.text) == (status, False)


def test_the_host_is_checked_before_any_token(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.callers, "admit", lambda token: pytest.fail("the token was looked at"))
    assert world.post("unknown", Host="evil.example").status_code == 421


def test_there_is_no_session_to_take_over_or_to_fill_up(world: World) -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    answer = world.post(world.token("ann"), "initialize", params)
    assert answer.json()["result"]["serverInfo"]["name"] == "penstock"
    assert "mcp-session-id" not in answer.headers


def test_only_posts_are_answered(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.token('ann')}", "Accept": "text/event-stream"}
    for method in ("GET", "DELETE"):
        assert httpx2.request(method, world.url, headers=headers).status_code == 405


def test_a_large_request_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_MAX_BYTES", 20)
    answer = world.post(world.token("ann"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_slow_request_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_S", 0.01)
    head = (
        f"POST {http.PATH} HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\nAuthorization: Bearer {world.token('ann')}\r\n"
    )
    with socket.create_connection(("127.0.0.1", world.port), timeout=20) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert b" 408 " in connection.recv(1_000).splitlines()[0]


def test_each_caller_sees_what_is_theirs(world: World) -> None:
    secret = world.server.client.submit({"command": "true", "tenant": "beta", "name": "velmoctad"}).jobs[0].id
    token = world.token("ann")
    calls = [("jobs", {}), ("jobs", {"finished": True}), ("queues", {}), ("events", {"limit": 200}), ("alerts", {})]
    calls += [("nodes", {}), ("nodes", {"name": "n1"}), ("usage", {"by": "tenant,job"}), ("eta", {}), ("quotas", {})]
    for tool, arguments in calls:
        answer = world.call(token, tool, **arguments)
        assert not answer.failed
        assert "velmoctad" not in answer.text
    for tool in ("job", "explain", "logs", "events"):
        error = world.call(token, tool, job=secret).error
        assert (error["code"], "velmoctad" in str(error)) == ("not_found", False)

    async def read(client: McpClient) -> str:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(f"penstock://jobs/{secret}")
        return str(raised.value.data)

    assert "velmoctad" not in world.talk(token, read)


def test_one_caller_fills_its_own_places_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, other, released = world.token("ann"), world.token("amy"), threading.Event()
    caller = world.callers.admit(busy)
    real = tools.BY_NAME["whoami"]

    def slow(who: Caller, asked: Any) -> Any:
        assert who is not caller or released.wait(30)
        return real.call(who, asked)

    monkeypatch.setitem(tools.BY_NAME, "whoami", real._replace(call=slow))
    answers: list[Answer] = []

    async def work(client: McpClient) -> dict[str, Any]:
        async def ask() -> None:
            answers.append(await called(client, "whoami", {}))

        async with anyio.create_task_group() as group:
            for _ in range(CALLS_AT_ONCE):
                group.start_soon(ask)
            while caller.running < CALLS_AT_ONCE:
                await anyio.sleep(0.005)
            refused = (await called(client, "whoami", {})).error
            others = await anyio.to_thread.run_sync(lambda: world.call(other, "whoami"))
            assert others.good["user"] == "amy"
            assert answers == []
            released.set()
        return refused

    refused = world.talk(busy, work)
    world.callers.leave(caller)
    assert (refused["code"], refused["retry_after"]) == ("too_many_requests", 1)
    assert [answer.good["user"] for answer in answers] == ["ann"] * CALLS_AT_ONCE
    assert (caller.running, caller.present) == (0, 0)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_clients_of_both_protocols_are_answered(world: World, mode: str) -> None:
    answer = world.talk(world.token("ann"), lambda client: called(client, "whoami", {}), mode)
    assert answer.good["user"] == "ann"


@pytest.fixture
def narrow(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    """Callers of whom one is known at a time."""
    monkeypatch.setattr(callers_module, "CALLERS_MAX", 1)
    made = Callers(lambda token: Client.at(world.server.url, token=token, insecure=True), LIMITS, writes=True)
    yield made
    made.close()


def test_a_budget_outlives_its_caller(world: World, narrow: Callers) -> None:
    first, second = world.token("ann"), world.token("ann")
    for token, writes in ((first, 2), (second, 2), (first, 1)):
        caller = narrow.admit(token)
        caller.budget.take(Cost())
        assert caller.budget.left.writes == writes
        narrow.leave(caller)
    assert narrow.enter(second) is None


def test_nobody_takes_the_place_of_a_caller_who_is_heard(world: World, narrow: Callers) -> None:
    first, second = world.token("ann"), world.token("ann")
    caller = narrow.admit(first)
    with pytest.raises(Refused, match="1 tokens are in use"):
        narrow.admit(second)
    narrow.leave(caller)
    caller.begin()
    with pytest.raises(Refused, match="1 tokens are in use"):
        narrow.admit(second)
    caller.end()
    narrow.leave(narrow.admit(second))


def test_a_penstock_server_that_is_gone_is_said(world: World) -> None:
    async def ask() -> httpx2.Response:
        callers = Callers(
            lambda token: Client.at("http://127.0.0.1:9", token=token, insecure=True), LIMITS, writes=True
        )
        transport = httpx2.ASGITransport(app=http.app_for(callers, port=80, writes=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            headers = {"Authorization": "Bearer x", "Host": "127.0.0.1:80"}
            return await client.post(http.PATH, json={}, headers=headers)

    answer = anyio.run(ask)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_not_running")
