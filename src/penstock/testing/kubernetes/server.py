"""The HTTP face of the API server for tests."""

import asyncio
import contextlib
from typing import Any

from aiohttp import web

from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.requests import Answer, Api, Request
from penstock.sim.apiserver.requests import Fault as Fault
from penstock.sim.apiserver.requests import Seen as Seen


class ApiServer(Api):
    """A cluster's API server on loopback, in the loop that starts it.

        async with ApiServer() as server:
            Access(server.url, FixedToken())

    Args:
        options: as of `Api`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.url = ""
        self._watches: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ApiServer":
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    def cut_watches(self) -> None:
        """End every watch without a word, as a network does."""
        for task in tuple(self._watches):
            task.cancel()

    @property
    def watching(self) -> int:
        """Watches that are open."""
        return len(self._watches)

    async def _serve(self, asked: web.Request) -> web.StreamResponse:
        request = Request(
            asked.method,
            asked.path,
            asked.query,
            await asked.read() if asked.can_read_body else b"",
            asked.content_type,
            asked.headers.get("Authorization", "").removeprefix("Bearer "),
        )
        if request.method == "GET" and request.query.get("watch") in ("1", "true"):
            return await self._watch(asked, request)
        return _response(self.answer(request))

    async def _watch(self, asked: web.Request, request: Request) -> web.StreamResponse:
        try:
            kind = self.watched(request)
        except Refused as refused:
            return _response(Answer(refused.code, refused.status()))
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(asked)

        async def stream() -> None:
            async for line in self.watch(request, kind):
                await answer.write(line + b"\n")

        task = asyncio.ensure_future(stream())
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
        return answer


def _response(answer: Answer) -> web.Response:
    headers = {"Retry-After": answer.retry_after} if answer.retry_after else {}
    return web.json_response(answer.body, status=answer.status, headers=headers)
