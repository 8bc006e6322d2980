"""`penstock mcp`: the MCP server, over standard input and output or on loopback."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import UsageError
from penstock.cli.output import say
from penstock.cli.place import client_of
from penstock.core.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.mcp.budget import Limits

PORT = 8767


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Listen on loopback; callers bring their own tokens.")] = False,
    port: Annotated[int, typer.Option("--port", help="With --http: the port.", min=0, max=65535)] = PORT,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Offer changes, too: each is shown before it is confirmed.")
    ] = False,
    writes: Annotated[int, typer.Option("--writes", help="Changes that one token may make.", min=0)] = 20,
    budget_jobs: Annotated[int, typer.Option("--budget-jobs", help="Jobs that one token may submit.", min=0)] = 20,
    budget_device_hours: Annotated[
        float, typer.Option("--budget-device-hours", help="Device-hours of these, by their time limits.", min=0)
    ] = 24.0,
) -> None:
    """Serve agents by the Model Context Protocol. Read-only unless --allow-writes is given."""
    try:
        from penstock.mcp.stdio import serve_stdio
    except ModuleNotFoundError as error:
        raise PenstockError(f"{error.name} is not installed", hint="pip install 'penstock[mcp]'") from error
    from penstock.mcp.budget import Budget, Limits
    from penstock.mcp.callers import Caller

    limits = Limits(writes, budget_jobs, budget_device_hours)
    if http:
        _serve_http(limits, port, writes=allow_writes)
        return
    client = client_of()
    me = client.me()  # a wrong token or no server is said at once, not at the first call
    client.close()
    rights = f"{me.level} token" + (f", {me.role} of the cluster" if me.role else "")
    say(f"penstock mcp: acts as {me.user} ({rights}), {'changes allowed' if allow_writes else 'read-only'}", err=True)
    serve_stdio(Caller(client_of, Budget(limits), writes=allow_writes))


def _serve_http(limits: "Limits", port: int, *, writes: bool) -> None:
    """Answer until the process is asked to end. Raises: UsageError when the port cannot be had."""
    from penstock.mcp.callers import Callers
    from penstock.mcp.http import PATH, http_server, listening

    try:
        listener = listening(port)
    except OSError as error:
        raise UsageError(
            f"--port {port} cannot be had: {error.strerror}", hint="--port 0 takes any free one"
        ) from error
    port = listener.getsockname()[1]
    say(f"http://127.0.0.1:{port}{PATH} answers MCP clients with a Penstock token; Ctrl-C ends it")
    callers = Callers(client_of, limits, writes=writes)
    try:
        http_server(callers, port=port, writes=writes).run(sockets=[listener])
    finally:
        callers.close()
