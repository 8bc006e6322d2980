"""The asynchronous client: every method of the other one, several requests at once, a cancelled one left behind."""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

import cloudpickle
import pytest

from penstock.client import AsyncClient, Client, JobFailed, ServerNotRunning, following
from penstock.core.model.errors import InvalidInput
from penstock.testing.server import InProcessServer
from tests.client.test_handles import pass_time

WAIT_S = 30
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # jobs do not find the modules of tests
NOT_AWAITED = {"at", "of", "python", "follower", "function_key", "twin", "opened", "interrupt", "interrupted"}
NOT_AWAITED |= {"address", "submit_request"}
"""What the asynchronous client does not have: `connect` is its one beginning, and the rest is how it works."""


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_it_has_every_method_with_the_same_arguments():
    own, others = public(AsyncClient), public(Client)
    missing = set(others) - set(own) - NOT_AWAITED
    assert not missing, f"each needs a line `NAME = _later(ApiClient.NAME)` in client/asynchronous.py: {missing}"
    assert set(own) - set(others) == {"run"}
    for name in set(own) & set(others) - {"connect"}:
        arguments, known = (list(inspect.signature(kind[name]).parameters) for kind in (own, others))
        assert arguments == [argument for argument in known if argument != "progress"], name


@pytest.fixture(scope="module")
def virtual() -> Iterator[InProcessServer]:
    with InProcessServer() as running:
        yield running


def run(server: Any, work: Callable[[AsyncClient], Awaitable[Any]], **options: Any) -> Any:
    """Return what `work` returns, done by a client of a server of either kind."""

    async def main() -> Any:
        where = {"url": server.url, "token": server.token} if hasattr(server, "url") else {"data": server.data.root}
        async with AsyncClient.connect(**where, **options) as client:
            return await asyncio.wait_for(work(client), WAIT_S)

    return asyncio.run(main())


async def taken(items: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in items]


def test_many_requests_go_at_once_over_few_connections(virtual):
    async def work(client):
        made = await asyncio.gather(*(client.submit("sleep 1", name=f"n{n}") for n in range(12)))
        shown = await asyncio.gather(*(client.job(job.id) for job in made))
        return [job.name for job in made], [view.name for view in shown], len(client._idle)

    names, shown, connections = run(virtual, work, connections=3)
    assert names == shown == [f"n{n}" for n in range(12)]
    assert 1 <= connections <= 3


def test_jobs_are_waited_for_together_by_one_follower(virtual):
    async def work(client):
        jobs = await client.submit("sleep 5", array=10, cpus=1)
        waiting = asyncio.create_task(jobs.wait(WAIT_S))
        while not client._client.follower._waits:
            await asyncio.sleep(0)
        await asyncio.to_thread(pass_time, virtual, 60)
        assert await waiting == ["succeeded"] * 10
        assert [job.id async for job in jobs.as_completed()] == [job.id for job in jobs]
        assert await taken(jobs.results()) == [None] * 10
        assert [view.state for view in await jobs.views()] == ["succeeded"] * 10
        return await jobs[0].status()

    assert run(virtual, work) == "succeeded"


def test_a_wait_that_is_cancelled_or_late_leaves_those_of_others(virtual):
    async def work(client):
        job = await client.submit("sleep 5")
        (end,) = await client.run(lambda one: one.follower.ended(one, [job.id]))
        with pytest.raises(TimeoutError, match=f"1 job has not ended after 0 s: {job.id}"):
            await job.wait(0)
        waiting = asyncio.create_task(job.wait())
        while not waiting.done() and len(end._done_callbacks) < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not end.cancelled()
        await asyncio.to_thread(pass_time, virtual, 10)
        return await job.wait(WAIT_S)

    assert run(virtual, work) == "succeeded"


def test_a_cancelled_job_has_no_result(virtual):
    async def work(client):
        jobs = await client.submit("sleep 600", array=2)
        await asyncio.to_thread(virtual.settle)
        assert (await jobs[0].explain()).state == "running"
        assert await jobs[0].eta() is None
        await jobs.cancel()
        await jobs[0].cancel()
        await asyncio.to_thread(pass_time, virtual, 60)
        with pytest.raises(JobFailed, match="was cancelled"):
            await jobs[1].result(WAIT_S)

    run(virtual, work)


def test_a_cancelled_request_frees_its_connection(virtual, monkeypatch):
    held = asyncio.Event()

    async def work(client):
        loop = asyncio.get_running_loop()

        def slow(one):
            loop.call_soon_threadsafe(held.set)
            return one._interrupted.wait(WAIT_S)

        task = asyncio.create_task(client.run(slow))
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.me()).level == "admin"
        return [one.interrupted for one in client._idle]

    assert run(virtual, work, connections=1) == [False]


def test_closing_ends_what_is_under_way(virtual):
    async def work(client):
        job = await client.submit("sleep 600")
        (end,) = await client.run(lambda one: one.follower.ended(one, [job.id]))
        waiting = asyncio.create_task(job.wait())
        while not end._done_callbacks:
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ServerNotRunning, match="the client was closed"):
            await waiting
        with pytest.raises(InvalidInput, match="was closed"):
            await client.me()

    run(virtual, work)


def test_the_log_and_the_output_are_followed(server):
    async def work(client):
        job = await client.submit("echo one; echo two", name="lines")
        assert await taken(job.logs(follow=True)) == ["one", "two"]
        handles = await client.handles([job.id])
        assert [one.name for one in handles] == ["lines"]
        assert (await client.handle(job.id)).id == job.id
        async with aclosing(client.all_events()) as records:
            return type((await anext(records)).event).__name__

    assert run(server, work) == "LeaderElected"


def test_functions_come_back_and_maps_keep_their_order(server, keys):
    async def work(client):
        job = await client.submit(lambda a: a * 2, 21, cpus=0.1)
        assert await job.result(WAIT_S) == 42
        return await taken(client.map(lambda a: a + 1, range(4), chunk_size=2, cpus=0.1, timeout=WAIT_S))

    assert run(server, work) == [1, 2, 3, 4]


def test_what_a_map_leaves_is_cancelled(server, keys):
    def slow(number):
        import time

        time.sleep(60 * number)
        return number

    async def work(client):
        async with aclosing(client.map(slow, range(2), cpus=0.1, grace="1s", name="slow")) as found:
            assert await anext(found) == 0
        (left,) = (await client.jobs(name="slow")).jobs[:1]
        return await (await client.handle(left.id)).wait(WAIT_S)

    assert run(server, work) == "cancelled"


def test_a_failure_of_the_follower_reaches_who_waits(virtual, monkeypatch):
    monkeypatch.setattr(following, "GIVEN_UP_S", 0.05)
    monkeypatch.setattr(following, "PAUSE_FIRST_S", 0.01)

    async def work(client):
        job = await client.submit("sleep 600")
        (end,) = await client.run(lambda one: one.follower.ended(one, [job.id]))
        waiting = asyncio.create_task(job.wait())
        while not end._done_callbacks:
            await asyncio.sleep(0)

        def gone() -> None:
            raise ServerNotRunning("gone")

        monkeypatch.setattr(client._client.follower, "_follow", gone)
        client._client.follower._client.interrupt()
        with pytest.raises(ServerNotRunning, match="gone"):
            await waiting

    run(virtual, work)
