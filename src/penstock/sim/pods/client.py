"""The client of a simulated API server: requests take their time, are refused, get lost before or after."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from penstock.engines.kubernetes.api.client import Client, Method, refusal
from penstock.engines.kubernetes.api.credentials import Access, FixedToken
from penstock.engines.kubernetes.api.errors import Unavailable
from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.requests import Answer, Api, Request

ERRORS = (409, 429, 500, 503, 504)


class Trouble(NamedTuple):
    """How often what goes wrong, of all requests or events."""

    refused: float = 0.0
    lost: float = 0.0
    """Answers, after the request was carried out."""
    cut: float = 0.0
    """Watches, at an event."""
    repeated: float = 0.0
    """Events of watches."""
    latency_s: float = 0.01
    lag_s: float = 0.02
    """Of events, at most."""


CALM = Trouble()


def never(_: str) -> bool:
    return False


class MemoryClient(Client):
    """Asks an `Api` in the same loop.

    Args:
        going: while it is not set nothing is sent: the process stands still.
        leads: as that of a client.
    """

    def __init__(
        self, api: Api, draw: random.Random, going: asyncio.Event, leads: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        super().__init__(Access("http://memory", FixedToken()), leads=leads)
        self._api, self._draw, self._going = api, draw, going
        self.trouble = CALM
        self.hold: Callable[[str], bool] = never
        """Says of each write, such as `POST /path`, whether it stays on its way until the process goes on, even where
        that has ended meanwhile."""

    async def __aenter__(self) -> "MemoryClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def _answered(
        self, method: Method, path: str, body: object, query: Mapping[str, str] | None, content: str
    ) -> bytes:
        sent = b"" if body is None else msgspec.json.encode(body)
        async with self._turns:
            await self._wait()
            trouble = self.trouble
            if method != "GET" and self._draw.random() < trouble.refused:
                status = self._draw.choice(ERRORS)
                raise refusal(status, b'{"message":"a fault of the simulator"}', f"{method} {path}")
            request = Request(method, path, query or {}, sent, content)
            held = method != "GET" and self.hold(f"{method} {path}")
            answer = await asyncio.shield(self._arrives(request)) if held else self._api.answer(request)
            told = json.dumps(answer.body).encode()
            await self._wait()
            if self._draw.random() < trouble.lost:
                raise Unavailable(f"{method} {path}: the answer was lost")
            if answer.status >= 400:
                raise refusal(answer.status, told, f"{method} {path}", answer.retry_after)
            return told

    async def _arrives(self, request: Request) -> Answer:
        await self._going.wait()
        return self._api.answer(request)

    async def _wait(self) -> None:
        await asyncio.sleep(self._draw.random() * self.trouble.latency_s)
        await self._going.wait()

    async def watch(self, path: str, **query: str) -> AsyncIterator[bytes]:
        request = Request("GET", path, {**query, "watch": "1", "allowWatchBookmarks": "true"})
        await self._wait()
        try:
            kind = self._api.watched(request)
        except Refused as refused:
            raise refusal(refused.code, json.dumps(refused.status()).encode(), f"GET {path}") from None
        async for line in self._api.watch(request, kind):
            trouble = self.trouble
            if trouble.lag_s and self._draw.random() < 0.3:
                await asyncio.sleep(self._draw.random() * trouble.lag_s)
            await self._going.wait()
            yield line
            if self._draw.random() < trouble.repeated:
                yield line
            if self._draw.random() < trouble.cut:
                raise Unavailable(f"GET {path}: the watch was cut")
