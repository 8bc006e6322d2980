"""One Penstock server in this process, its MCP server over HTTP, and clients of the SDK with the tokens of several."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from penstock.client import Client
from penstock.mcp.budget import Limits
from penstock.mcp.callers import Callers
from penstock.mcp.http import PATH, http_server, listening
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

T = TypeVar("T")
USERS = [
    {"name": "ann", "tenants": {"alpha": "member"}},
    {"name": "amy", "tenants": {"alpha": "member"}},
    {"name": "bert", "tenants": {"beta": "member"}},
    {"name": "otto", "role": "operator"},
]
CLUSTER = {**cluster_file(job_account="lab"), "tenants": [{"name": "alpha"}, {"name": "beta"}], "users": USERS}
LIMITS = Limits(writes=3, jobs=2, device_hours=4.0)


class Answer(NamedTuple):
    """The result of a call."""

    failed: bool
    value: Any
    text: str

    @property
    def error(self) -> Any:
        assert self.failed, self.value
        return self.value["error"]

    @property
    def good(self) -> Any:
        assert not self.failed, self.value
        return self.value


class World:
    """A Penstock server, and an MCP server in front of it that allows changes."""

    def __init__(self, server: InProcessServer, port: int, callers: Callers) -> None:
        self.server, self.port, self.callers = server, port, callers
        self.url = f"http://127.0.0.1:{port}{PATH}"

    def token(self, user: str, level: str = "write") -> str:
        """Return a new token of a user: each has a budget of its own."""
        return self.server.client.create_token({"user": user, "level": level, "days": 1}).token

    def talk(self, token: str, work: Callable[[McpClient], Awaitable[T]], mode: str = "auto") -> T:
        """Return what `work` returns, with a client of the SDK over HTTP."""

        async def run() -> T:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
                transport = streamable_http_client(self.url, http_client=http)
                async with McpClient(transport, mode=mode) as client:
                    return await work(client)

        return anyio.run(run)

    def call(self, token: str, tool: str, **arguments: Any) -> Answer:
        return self.talk(token, lambda client: called(client, tool, arguments))

    def post(self, token: str, method: str = "tools/list", params: Any = None, **headers: str) -> httpx2.Response:
        """Send one raw request, with other headers than a client's own."""
        sent = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"} | headers
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return httpx2.post(self.url, json=body, headers={k.replace("_", "-"): v for k, v in sent.items()})


async def called(client: McpClient, tool: str, arguments: dict[str, Any]) -> Answer:
    """Call a tool; the SDK checks a good result against the tool's schema."""
    result = await client.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    assert json.loads(text) == result.structured_content
    return Answer(bool(result.is_error), result.structured_content, text)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with InProcessServer(CLUSTER) as server:
        listener = listening(0)
        port = listener.getsockname()[1]
        callers = Callers(lambda token: Client.at(server.url, token=token, insecure=True), LIMITS, writes=True)
        served = http_server(callers, port=port, writes=True)
        thread = threading.Thread(target=lambda: asyncio.run(served.serve(sockets=[listener])), daemon=True)
        thread.start()
        try:
            yield World(server, port, callers)
        finally:
            served.should_exit = True
            thread.join(20)
            callers.close()
            listener.close()
            assert not thread.is_alive()
