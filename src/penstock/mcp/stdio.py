"""MCP over standard input and output: one caller, whose token the environment or the data folder gives."""

import anyio
from mcp.server.stdio import stdio_server

from penstock.mcp.callers import Caller
from penstock.mcp.serve import server_for


def serve_stdio(caller: Caller) -> None:
    """Answer until standard input ends."""

    async def run() -> None:
        server = server_for(lambda _: caller, writes=caller.writes)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(run)
    finally:
        caller.close()
