"""A server that does not answer: a line says so, what was seen stays, and it comes back by itself."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tests.cli.top.conftest import World
from tests.cli.top.stage import opened, played


class Gate:
    """Forwards connections to a server; closed, it refuses them, and silent it takes them and answers nothing."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._links: set[asyncio.StreamWriter] = set()
        self._listens: asyncio.Server | None = None
        self._silent = False

    async def open(self) -> None:
        self._listens = await asyncio.start_server(self._forward, "127.0.0.1", self._port)

    async def close(self) -> None:
        assert self._listens is not None
        self._listens.close()
        for link in self._links:
            link.transport.abort()
        await asyncio.sleep(0)

    async def fall_silent(self) -> None:
        await self.close()
        self._silent = True
        await self.open()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._silent:
            self._links.add(writer)
            return
        far_reader, far = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._links |= {writer, far}
        await asyncio.gather(_copy(reader, far), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def gate(world: World) -> AsyncIterator[Gate]:
    made = Gate(world.server.url)
    await made.open()
    yield made
    await made.close()


def test_a_server_that_is_gone_is_named_and_its_return_is_seen(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    own.submit(name="waits", devices=4)

    async def walk() -> None:
        async with gate(own) as at, opened(own.server, token=own.ann, url=at.url, interval_s=0.05) as screen:
            await screen.shows("1 waiting", "no alerts")
            await at.close()
            await screen.shows("no answer; trying again. What you see is older", "waits")
            own.server.advance(30)
            await screen.shows("no answer from the server for 30s; trying again. What you see is older", "waits")
            await screen.press("2")
            await screen.until(lambda: "waits" not in screen.text, "no rows under the name of another view")
            await at.open()
            await screen.shows("no alerts", "1 running", "runs")

    played(walk())


def test_an_action_without_a_server_is_an_error_and_the_screen_stays(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    own.submit(name="waits", devices=4)

    async def walk() -> None:
        async with gate(own) as at, opened(own.server, token=own.ann, url=at.url) as screen:
            await screen.shows("1 waiting")
            await at.close()
            await screen.press("c")
            await screen.shows("error: the server at 127.0.0.1:")
            await at.open()
            await screen.press("c")
            await screen.shows("Cancel job 2 waits?")

    played(walk())


def test_a_token_that_is_revoked_is_said_in_the_servers_words(own: World) -> None:
    made = own.server.client.create_token({"user": "ann"})

    async def walk() -> None:
        async with opened(own.server, token=made.token) as screen:
            await screen.shows("no jobs wait")
            own.server.client.revoke_token(made.id)
            screen.app.look_now()
            await screen.shows("the token is not valid", "What you see is older")

    played(walk())


def test_keys_work_while_an_answer_is_awaited(own: World) -> None:
    """The screen is drawn while the server is silent: questions are asked beside it."""
    own.submit(name="runs", devices=4, replicas=2)
    own.submit(name="waits", devices=4)

    async def walk() -> None:
        async with gate(own) as at, opened(own.server, token=own.ann, url=at.url) as screen:
            await screen.shows("1 waiting")
            await at.fall_silent()
            await screen.press("2")
            await screen.shows("asking...")
            await screen.press("question_mark")
            await screen.shows("struck through")

    played(walk())
