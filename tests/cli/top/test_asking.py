"""Questions beside the screen: one after the other, bounded in number, and every failure comes back to who asked."""

import asyncio
import threading

import msgspec
import pytest

from penstock.cli.top.asking import WAITING_MAX, Asker, Busy, Unreadable
from penstock.client import Client
from penstock.core.model.errors import PenstockError
from tests.cli.top.conftest import World
from tests.cli.top.stage import played


def test_there_is_a_most_of_questions_that_wait(world: World) -> None:
    go = threading.Event()

    async def walk() -> None:
        asker = Asker(lambda: Client.at(world.server.url, token=world.ann))
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(client: Client) -> bool:
            loop.call_soon_threadsafe(begun.set)
            return go.wait(20)

        waiting = [asyncio.create_task(asker.ask(hold))]
        await begun.wait()
        waiting += [asyncio.create_task(asker.ask(lambda client: client.me().user)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="under way already"):
            await asker.ask(lambda client: None)
        go.set()
        assert [(await one).value for one in waiting] == [True, *["ann"] * WAITING_MAX]
        asker.close()

    played(walk())


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (msgspec.ValidationError("Expected `int`"), Unreadable),
        (PenstockError("no"), PenstockError),
        (ZeroDivisionError(), ZeroDivisionError),
    ],
)
def test_a_failure_comes_back_to_who_asked_and_the_next_question_is_answered(
    world: World, raised: Exception, seen: type[Exception]
) -> None:
    def fail(client: Client) -> None:
        raise raised

    async def walk() -> None:
        asker = Asker(lambda: Client.at(world.server.url, token=world.ann))
        with pytest.raises(seen):
            await asker.ask(fail)
        assert (await asker.ask(lambda client: client.me().user)).value == "ann"
        asker.close()

    played(walk())
