"""How `penstock mcp` begins: what is missing is said at once."""

import socket
import sys

import pytest

from penstock.cli.errors import UsageError
from penstock.cli.mcp import mcp
from penstock.core.model.errors import PenstockError


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
