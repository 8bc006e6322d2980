"""Maps and the executor: results in order, jobs submitted together, nothing left running that nobody waits for."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, as_completed
from itertools import count

import cloudpickle
import pytest

from penstock.client import Client, PenstockExecutor, bulk
from penstock.core.model.errors import InvalidInput
from tests.client.test_functions import client as client

WAIT_S = 30
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # jobs do not find the modules of tests


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """How many jobs each request has submitted."""
    sizes: list[int] = []
    submit = Client.submit_request

    def note(self, request, **more):
        sizes.append(len(request))
        return submit(self, request, **more)

    monkeypatch.setattr(Client, "submit_request", note)
    return sizes


def square(number: int) -> int:
    return number * number


def test_a_map_gives_results_in_order_from_jobs_of_several_items(client, sent):
    found = client.map(lambda a, b: a * b, range(5), range(10, 20), chunk_size=2, cpus=0.1, timeout=WAIT_S)
    assert sent == [3]
    assert list(found) == [0, 11, 24, 39, 56]


def test_a_map_submits_no_further_ahead_than_it_may(client, sent):
    taken = []
    found = client.map(square, (taken.append(n) or n for n in count()), ahead=2, cpus=0.1, timeout=WAIT_S)
    assert (sent, len(taken)) == ([1, 1], 2)
    assert [next(found) for _ in range(3)] == [0, 1, 4]
    assert len(taken) == 5
    found.close()


def test_what_a_map_leaves_is_cancelled(client):
    def picky(number):
        if number == 0:
            raise ValueError("zero")
        time.sleep(60)

    found = client.map(picky, range(2), cpus=0.1, grace="1s", name="picky", timeout=WAIT_S)
    with pytest.raises(ValueError, match="zero"):
        next(found)
    left = [job for job in client.jobs(name="picky").jobs if job.state not in ("succeeded", "failed", "cancelled")]
    client.handles([job.id for job in left]).wait(WAIT_S)
    assert {client.job(job.id).state for job in left} <= {"cancelled"}


@pytest.mark.parametrize("wrong", [{"chunk_size": 0}, {"ahead": 0}])
def test_a_map_that_cannot_be_is_refused(client, wrong):
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} is 0, expected at least 1"):
        client.map(square, [1], **wrong)
    with pytest.raises(InvalidInput, match="nothing to map over"):
        client.map(square)


def test_a_map_shows_how_far_it_is(client, capsys):
    assert list(client.map(square, [1, 2], chunk_size=2, progress=True, cpus=0.1, timeout=WAIT_S)) == [1, 4]
    assert "2/2" in capsys.readouterr().err


def test_an_empty_map_submits_nothing(client, sent):
    assert list(client.map(square, [])) == []
    assert sent == []


def test_requests_are_bounded_in_jobs_and_bytes(client, monkeypatch):
    calls = [bulk.prepared(client, square, [n], {}, None) for n in range(7)]
    monkeypatch.setattr(bulk, "REQUEST_JOBS", 3)
    assert [len(batch) for batch in bulk.batches(calls)] == [3, 3, 1]
    monkeypatch.setattr(bulk, "REQUEST_BYTES", 2 * calls[0].size_bytes + 100)
    assert [len(batch) for batch in bulk.batches(calls)] == [2, 2, 2, 1]


@pytest.fixture
def executor(client) -> Iterator[PenstockExecutor]:
    with PenstockExecutor(client, cpus=0.1, grace="1s") as made:
        yield made


def test_an_executor_gives_values_and_exceptions(executor):
    futures = {executor.submit(square, number=n): n for n in range(3)}
    assert {futures[future]: future.result(WAIT_S) for future in as_completed(futures, WAIT_S)} == {0: 0, 1: 1, 2: 4}
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result(WAIT_S)
    assert list(executor.map(square, [3, 4], timeout=WAIT_S)) == [9, 16]


def test_calls_that_come_while_a_request_is_on_its_way_go_together(client, sent, monkeypatch):
    go, submit = threading.Event(), bulk.submitted
    monkeypatch.setattr("penstock.client.executor.submitted", lambda *given: (go.wait(WAIT_S), submit(*given))[1])
    with PenstockExecutor(client, cpus=0.1) as executor:
        futures = [executor.submit(square, 1)]
        while not executor._queue.empty():
            pass
        futures += [executor.submit(square, n) for n in range(2, 6)]
        go.set()
        assert [future.result(WAIT_S) for future in futures] == [1, 4, 9, 16, 25]
    assert sent == [1, 4]


def test_a_cancelled_future_cancels_its_job(client, executor):
    future = executor.submit(time.sleep, 60)
    while future.job is None:
        pass
    assert future.cancel()
    assert future.job.wait(WAIT_S) == "cancelled"
    with pytest.raises(CancelledError):
        future.result()
    done = executor.submit(square, 2)
    assert done.result(WAIT_S) == 4
    assert not done.cancel()


def test_a_shutdown_cancels_what_is_asked_and_takes_no_more(client):
    executor = PenstockExecutor(client, cpus=0.1, grace="1s")
    future = executor.submit(time.sleep, 60)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    assert client.healthy()


def test_a_shutdown_waits_for_what_was_submitted(client):
    executor = PenstockExecutor(client, cpus=0.1)
    future = executor.submit(square, 5)
    executor.shutdown(wait=False)
    executor.shutdown()
    assert future.result(0) == 25


def test_a_refused_submit_is_the_error_of_its_calls(client):
    with PenstockExecutor(client, queue="none-such") as executor:
        with pytest.raises(Exception, match="none-such"):
            executor.submit(square, 1).result(WAIT_S)
        with pytest.raises(InvalidInput, match="cannot be pickled"):
            executor.submit(print, (x for x in ()))
