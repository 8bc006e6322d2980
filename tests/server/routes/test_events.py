"""The live stream of events: nothing missing, nothing twice, whenever one comes (back)."""

import asyncio
import http.client
import json
import time
from collections.abc import Iterator

import pytest

from penstock.server.backend import Backend
from tests.server.harness import Server, until


class Stream:
    """One follower of the log, over a socket of its own."""

    def __init__(self, server: Server, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        sent = {"Authorization": f"Bearer {server.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        self._connection.request("GET", f"/api/v1/events/stream{query}", headers=sent)
        self.response = self._connection.getresponse()

    def events(self) -> Iterator[dict]:
        """Yield (id, event, data) blocks as they come."""
        block: dict[str, str] = {}
        while line := self.response.readline().decode().rstrip("\n") if not self.response.closed else "":
            block = dict([line.split(": ", 1)])
            while line := self.response.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                block[name] = value
            if "id" in block:
                yield block

    def until(self, seq: int) -> list[int]:
        """Return the numbers of the events up to `seq`."""
        found: list[int] = []
        for event in self.events():
            found.append(int(event["id"]))
            if found[-1] >= seq:
                break
        return found

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def follow(server):
    opened: list[Stream] = []

    def begin(query: str = "", **headers: str) -> Stream:
        opened.append(Stream(server, query, **headers))
        return opened[-1]

    yield begin
    for stream in opened:
        stream.close()


def test_events_come_while_they_happen(server, jobs, follow):
    stream = follow()
    assert stream.response.readline() == b": following\n"
    stream.response.readline()
    job = jobs.submit()
    event = next(stream.events())
    record = json.loads(event["data"])
    assert (event["event"], record["event"]["job_id"], str(record["seq"])) == ("JobSubmitted", job, event["id"])
    assert stream.response.headers["content-type"].startswith("text/event-stream")


def test_a_follower_sees_every_event_once_and_in_order(jobs, follow):
    jobs.ended(jobs.submit())
    stream, newest = follow("?after=0"), jobs.client.cluster().seq
    assert stream.until(newest) == list(range(1, newest + 1))


def test_a_follower_that_comes_back_goes_on_where_it_was(jobs, follow):
    jobs.ended(jobs.submit())
    newest = jobs.client.cluster().seq
    first = follow("?after=0").until(newest // 2)
    jobs.ended(jobs.submit())
    newest = jobs.client.cluster().seq
    rest = follow(Last_Event_ID=str(first[-1])).until(newest)
    assert first + rest == list(range(1, newest + 1))


def test_the_last_id_that_was_seen_outweighs_the_address(jobs, follow):
    jobs.ended(jobs.submit())
    newest = jobs.client.cluster().seq
    assert follow("?after=0", Last_Event_ID=str(newest - 1)).until(newest) == [newest]


def test_several_followers_all_see_all(jobs, follow):
    begin = jobs.client.cluster().seq
    streams = [follow(f"?after={begin}") for _ in range(4)]
    jobs.ended(jobs.submit())
    newest = jobs.client.cluster().seq
    assert [s.until(newest) for s in streams] == [list(range(begin + 1, newest + 1))] * 4


@pytest.mark.parametrize("bad", ["x", "-1", str(2**60)])
def test_a_last_id_that_is_none_is_refused(follow, bad):
    assert follow(Last_Event_ID=bad).response.status == 422


def test_followers_do_not_keep_the_server_from_ending(tmp_path):
    with Server(tmp_path / "data") as server:
        stream = Stream(server)
        server.process.terminate()
        assert server.process.wait(10) is not None
        until(lambda: stream.response.read() is not None, "the stream ends")
        stream.close()


def test_who_waits_after_the_last_wake_up_of_an_ending_server_does_not_wait():
    async def waited() -> float:
        backend = Backend(*[None] * 7)
        backend.closing.set()
        backend.committed(())
        began = time.monotonic()
        await backend.wait_for_change(30)
        return time.monotonic() - began

    assert asyncio.run(waited()) < 10
