"""How `penstock mcp` begins: what is missing is said at once."""

import socket
import sys

import anyio
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters

from penstock.cli.errors import UsageError
from penstock.cli.mcp import mcp
from penstock.core.model.errors import PenstockError
from tests.mcp.conftest import Answer, called
from tests.server.conftest import server as server
from tests.server.harness import Server, environment


def test_the_server_on_the_data_folder_is_asked(server: Server) -> None:
    given = environment(server.root, PENSTOCK_HOME=str(server.data.root))
    command = StdioServerParameters(command=sys.executable, args=["-m", "penstock.cli.main", "mcp"], env=given)

    async def run() -> tuple[Answer, Answer]:
        async with McpClient(command) as client:
            return await called(client, "cluster", {}), await called(client, "drain", {"node": "n1"})

    cluster, drain = anyio.run(run)
    assert cluster.good["nodes_ready"] == 2
    assert drain.error["code"] == "read_only"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("penstock.mcp.serve", "penstock.mcp.stdio"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    with pytest.raises(PenstockError, match=r"mcp.* is not installed") as raised:
        mcp()
    assert raised.value.hint == "pip install 'penstock[mcp]'"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port} cannot be had: Address already in use"):
            mcp(http=True, port=port)
