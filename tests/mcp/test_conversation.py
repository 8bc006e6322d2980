"""A conversation of the SDK's own client with `penstock mcp` over each transport is word for word that of the record.

The record is `conversation.json`; `python -m tests.mcp.test_conversation` writes it anew: read the difference.
"""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from penstock import __version__
from penstock.client import Client
from penstock.testing.server import InProcessServer
from tests.mcp.conftest import CLUSTER
from tests.server.harness import SOURCES

RECORD = Path(__file__).with_name("conversation.json")
COMMAND = [sys.executable, "-m", "penstock.cli.main", "mcp", "--allow-writes", "--budget-jobs", "1"]
JOB = {"command": "sleep 600", "name": "eval", "tenant": "alpha", "devices": 2, "time_limit": "1h"}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("whoami", {}),
    ("cluster", {}),
    ("nodes", {"name": "n1"}),
    ("jobs", {}),
    ("job", {"job": 1}),
    ("attempts", {"job": 1}),
    ("explain", {"job": 2}),
    ("eta", {"job": 2}),
    ("queues", {}),
    ("events", {"job": 2}),
    ("usage", {"by": "user"}),
    ("logs", {"job": 1}),
    ("job", {"job": 404}),
    ("plan", {"request": {**JOB, "devicez": 2}}),
    ("plan", {"request": JOB}),
    ("submit", {"request": JOB}),
    ("confirm", {}),
    ("confirm", {"confirmation": "guessed", "summary": "submit 1 job"}),
    ("submit", {"request": JOB}),
    ("dry_run", {"action": "cancel", "jobs": [2]}),
    ("cancel", {"jobs": [2]}),
    ("confirm", {}),
    ("drain", {"node": "n1"}),
]
"""Tools in order; `confirm` without arguments confirms the preview before it."""


async def conversation(client: McpClient) -> list[dict[str, Any]]:
    """Return what was asked and answered, without what differs from one time to the next."""
    tools = (await client.list_tools()).tools
    listed = {tool.name: sorted(tool.input_schema["properties"]) for tool in tools}
    said: list[dict[str, Any]] = [{"instructions": client.instructions}, {"tools": listed}]
    preview: dict[str, Any] = {}
    for name, given in STEPS:
        arguments = given or ({key: preview[key] for key in ("confirmation", "summary")} if name == "confirm" else {})
        result = await client.call_tool(name, arguments)
        said.append({"call": name, "with": arguments, "failed": bool(result.is_error)})
        said[-1]["answer"] = preview = result.structured_content
    for uri in ("penstock://jobs/1", "penstock://jobs/404", "penstock://elsewhere"):
        try:
            found = (await client.read_resource(uri)).contents[0].model_dump(exclude_none=True)
            said.append({"read": uri, "answer": json.loads(found["text"])})
        except MCPError as error:
            said.append({"read": uri, "error": error.data})
    schema = json.loads((await client.read_resource("penstock://schema/job")).contents[0].model_dump()["text"])
    said.append({"read": "penstock://schema/job", "title": schema.get("title"), "fields": "command" in str(schema)})
    prompt = await client.get_prompt("why_waits", {"job": "2"})
    return [*said, {"prompt": prompt.messages[0].content.model_dump(exclude_none=True)}]


def stable(value: Any) -> Any:
    """Return a value without random words and versions."""
    if isinstance(value, dict):
        return {name: "RANDOM" if name == "confirmation" else stable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [stable(one) for one in value]
    return value.replace(__version__, "VERSION") if isinstance(value, str) else value


@contextlib.asynccontextmanager
async def over_stdio(environment: dict[str, str]) -> AsyncIterator[McpClient]:
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=environment)
    async with McpClient(server, mode="legacy") as client:
        yield client


@contextlib.asynccontextmanager
async def over_http(environment: dict[str, str]) -> AsyncIterator[McpClient]:
    token = environment.pop("PENSTOCK_TOKEN")
    command = [*COMMAND, "--http", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False) as http,
                McpClient(streamable_http_client(url, http_client=http)) as client,
            ):
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def held(connect: Any) -> list[dict[str, Any]]:
    """Return the conversation over a transport, with a server of its own: all of its times and numbers are the same."""
    with InProcessServer(CLUSTER) as server:
        token = server.client.create_token({"user": "ann", "level": "write", "days": 1}).token
        with Client.at(server.url, token=token, insecure=True) as ann:
            for name in ("train", "second"):
                job = {"command": "sleep 86400", "name": name, "tenant": "alpha", "devices": 4, "replicas": 2}
                ann.submit(job, idempotency_key=name)
                server.settle()
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": SOURCES,
            "PENSTOCK_URL": server.url,
            "PENSTOCK_TOKEN": token,
            "PENSTOCK_INSECURE": "1",
        }

        async def run() -> list[dict[str, Any]]:
            async with connect(environment) as client:
                return await conversation(client)

        said = stable(anyio.run(run))
        assert isinstance(said, list)
        return said


@pytest.mark.parametrize("connect", [over_stdio, over_http])
def test_the_conversation_is_that_of_the_record(connect: Any) -> None:
    said, recorded = held(connect), json.loads(RECORD.read_text())
    for one, other in zip(said, recorded, strict=True):
        assert one == other


if __name__ == "__main__":
    RECORD.write_text(json.dumps(held(over_stdio), indent=1) + "\n")
