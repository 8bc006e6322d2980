"""What goes before what in the threads that compute."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from penstock.core.order.turns import WaitingLimit
from penstock.server.http.precedence import APART_S, CHANGE_S, HELD_S, Precedence
from penstock.server.http.turns import Crowd, Lane, WorkerPool, for_all

PLENTY = WaitingLimit(user=100, tenant=100, total=100)
PASSES = 20
"""Of the loop, after which all has begun that does not wait for a time."""


class Threads:
    """Two pools under one precedence, at a time that the test sets; what a piece of work does ends when it is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.precedence = Precedence(lambda: self.now_s)
        self.reads, self.heavy = (
            WorkerPool(name, 2, PLENTY, Lane(Crowd(lambda: self.now_s)), self.precedence) for name in ("reads", "heavy")
        )
        self.begun: list[str] = []
        self._ends: dict[str, threading.Event] = {}

    def start(self, name: str, pool: WorkerPool) -> "asyncio.Task[bool]":
        self._ends[name] = threading.Event()
        return asyncio.create_task(pool.run(self._work, name))

    def _work(self, name: str) -> bool:
        self.begun.append(name)
        return self._ends[name].wait(10)

    def end(self, name: str) -> None:
        self._ends[name].set()

    async def settled(self) -> list[str]:
        """Return what has begun, once nothing more does by itself."""
        for _ in range(PASSES):
            await asyncio.sleep(0.001)
        return self.begun

    def look(self) -> None:
        """Look again, as the loop does by its own clock."""
        for fill in self.precedence.fills:
            fill()

    def close(self) -> None:
        for end in self._ends.values():
            end.set()
        for pool in (self.reads, self.heavy):
            pool.close()


def test_a_piece_of_work_begins_when_the_one_before_has_ended_whatever_its_pool(tried):
    async def work(threads: Threads) -> None:
        first, second = threads.start("first", threads.reads), threads.start("second", threads.heavy)
        assert await threads.settled() == ["first"]
        threads.end("first")
        assert await first
        assert await threads.settled() == ["first", "second"]
        threads.end("second")
        assert await second

    tried(work)


def test_long_work_is_not_waited_for(tried):
    async def work(threads: Threads) -> None:
        tasks = [threads.start("long", threads.heavy), threads.start("short", threads.reads)]
        assert await threads.settled() == ["long"]
        threads.now_s += APART_S
        threads.look()
        assert await threads.settled() == ["long", "short"]
        for name in ("long", "short"):
            threads.end(name)
        await asyncio.gather(*tasks)

    tried(work)


def test_the_loop_looks_again_by_itself(tried):
    async def work(threads: Threads) -> None:
        tasks = [threads.start("long", threads.heavy), threads.start("short", threads.reads)]
        assert await threads.settled() == ["long"]
        threads.now_s += APART_S
        await asyncio.sleep(2 * APART_S)
        assert await threads.settled() == ["long", "short"]
        for name in ("long", "short"):
            threads.end(name)
        await asyncio.gather(*tasks)

    tried(work)


def test_nothing_begins_while_a_change_that_has_just_come_is_answered(tried):
    async def work(threads: Threads) -> None:
        with threads.precedence.change():
            read = asyncio.create_task(in_another_request(threads, "read"))
            assert await threads.settled() == []
        assert await threads.settled() == ["read"]
        threads.end("read")
        await read

    tried(work)


@pytest.mark.parametrize("passed_s", [HELD_S, CHANGE_S])
def test_changes_hold_nothing_back_for_long(tried, passed_s):
    async def work(threads: Threads) -> None:
        with threads.precedence.change():
            read = asyncio.create_task(in_another_request(threads, "read"))
            assert await threads.settled() == []
            threads.now_s += passed_s
            threads.look()
            assert await threads.settled() == ["read"]
        threads.end("read")
        await read

    tried(work)


def test_a_long_change_holds_nothing_back(tried):
    async def work(threads: Threads) -> None:
        with threads.precedence.change():
            threads.now_s += 2 * CHANGE_S
            read = asyncio.create_task(in_another_request(threads, "read"))
            assert await threads.settled() == ["read"]
            threads.end("read")
            await read

    tried(work)


def test_what_a_change_needs_itself_waits_for_nothing(tried):
    async def work(threads: Threads) -> None:
        read = threads.start("read", threads.reads)
        assert await threads.settled() == ["read"]
        with threads.precedence.change():
            own = threads.start("own", threads.heavy)
            assert await threads.settled() == ["read", "own"]
        for name in ("read", "own"):
            threads.end(name)
        await asyncio.gather(read, own)

    tried(work)


def test_waits_of_any_length_end_by_themselves(tried):
    """Of waits under half a millisecond uvloop makes none: it calls at once."""

    async def work(threads: Threads) -> None:
        with threads.precedence.change():
            read = asyncio.create_task(in_another_request(threads, "read"))
            assert await threads.settled() == []
            for left_s in (HELD_S / 2, 1e-3, 4e-4, 3e-4, 1e-5):
                threads.now_s = 100.0 + HELD_S - left_s
                threads.look()
            threads.now_s = 100.0 + HELD_S
            assert await threads.settled() == ["read"]
            threads.end("read")
            await read

    tried(work)


async def in_another_request(threads: Threads, name: str) -> bool:
    for_all()
    return await threads.start(name, threads.reads)


@pytest.fixture(params=[uvloop, asyncio], ids=["uvloop", "asyncio"])
def tried(request: pytest.FixtureRequest) -> Callable[[Callable[[Threads], Awaitable[None]]], None]:
    loop = request.param

    def run(work: Callable[[Threads], Awaitable[None]]) -> None:
        async def whole() -> None:
            threads = Threads()
            try:
                await asyncio.wait_for(work(threads), 30)
            finally:
                threads.close()

        loop.run(whole())

    return run
