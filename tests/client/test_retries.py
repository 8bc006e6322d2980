"""Refusals for now: tried again where nothing can have been done twice, when the server says, and not for ever."""

import socket
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from penstock.api.types import ProblemDetails
from penstock.client import ApiProblem, Client, calling

DONE = (200, b'{"ok": true}', None)


def refusal(status: int, code: str, after_s: float | None = None) -> tuple[int, bytes, float | None]:
    return status, msgspec.json.encode(ProblemDetails(code, status, code)), after_s


class Answers:
    """A server that gives these answers one after the other, and what the client does about them."""

    def __init__(self, monkeypatch, *answers, patience_s=60.0) -> None:
        self.left, self.keys, self.waits = list(answers), [], []
        self.client = Client("127.0.0.1", 1, "t")
        self.client.patience_s = patience_s
        self.now = 0.0
        monkeypatch.setattr(self.client, "_exchange", self.answer)
        monkeypatch.setattr(self.client._interrupted, "wait", self.sleep)
        monkeypatch.setattr(calling.time, "monotonic", lambda: self.now)

    def answer(self, method, url, payload, headers, *, tries):
        self.keys.append(headers.get("Idempotency-Key"))
        status, data, self.client._retry_after_s = self.left.pop(0)
        return status, data

    def sleep(self, seconds: float) -> bool:
        self.now += seconds
        self.waits.append(seconds)
        return self.client.interrupted


@pytest.mark.parametrize("refused", [refusal(429, "too_many_requests", 2), refusal(503, "overloaded", 2)])
def test_a_request_that_was_refused_undone_comes_again_when_the_server_says(monkeypatch, refused):
    server = Answers(monkeypatch, refused, refused, DONE)
    server.client.drain("n1")
    assert len(server.waits) == 2
    assert all(2 <= wait <= 3 for wait in server.waits)
    assert server.waits[0] != server.waits[1]


@pytest.mark.parametrize("after_s", [None, 0])
def test_without_a_time_the_pauses_grow(monkeypatch, after_s):
    server = Answers(monkeypatch, *[refusal(503, "overloaded", after_s)] * 4, DONE)
    server.client.drain("n1")
    assert [0.1 * 2**n <= wait <= 0.15 * 2**n for n, wait in enumerate(server.waits)] == [True] * 4


def test_what_may_have_been_done_is_not_repeated_without_a_key(monkeypatch):
    server = Answers(monkeypatch, refusal(503, "store_unavailable"), DONE)
    with pytest.raises(ApiProblem, match="store_unavailable"):
        server.client.drain("n1")
    assert server.waits == []


def test_with_a_key_it_is_repeated_under_that_key(monkeypatch):
    made = (201, b'{"jobs": []}', None)
    server = Answers(monkeypatch, refusal(503, "store_unavailable"), made)
    server.client.submit({"command": "true"})
    assert len(server.keys) == 2
    assert server.keys[0] == server.keys[1] is not None


def test_a_cancel_twice_is_one_and_may_be_repeated(monkeypatch):
    server = Answers(monkeypatch, refusal(503, "stale_epoch"), DONE)
    server.client.cancel(1)
    assert len(server.waits) == 1


@pytest.mark.parametrize(("patience_s", "tries"), [(0, 1), (30, 3)])
def test_patience_ends(monkeypatch, patience_s, tries):
    server = Answers(monkeypatch, *[refusal(429, "too_many_requests", 10)] * 9, patience_s=patience_s)
    with pytest.raises(ApiProblem, match="too_many_requests") as raised:
        server.client.jobs()
    assert raised.value.retry_after_s == 10
    assert len(server.keys) <= tries
    assert server.now <= patience_s


def test_a_client_that_is_interrupted_tries_no_more(monkeypatch):
    server = Answers(monkeypatch, refusal(429, "too_many_requests", 1), DONE)
    monkeypatch.setattr(server.client._interrupted, "wait", lambda seconds: True)
    with pytest.raises(ApiProblem, match="too_many_requests"):
        server.client.jobs()


def test_other_refusals_are_final(monkeypatch):
    server = Answers(monkeypatch, refusal(403, "forbidden"))
    with pytest.raises(ApiProblem, match="forbidden"):
        server.client.jobs()


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)])
def test_only_seconds_are_taken_from_the_answer(text, seconds):
    assert calling._seconds(text) == seconds


def test_a_connection_that_the_server_has_closed_while_it_was_idle_carries_no_request():
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as aside:
        listening.settimeout(10)

        def serve_one() -> bytes:
            with listening.accept()[0] as connection:
                asked = connection.recv(65_536)
                connection.sendall(answer)
            return asked

        client = Client.at(f"http://127.0.0.1:{listening.getsockname()[1]}", token="t", insecure=True)
        for _ in range(3):
            served = aside.submit(serve_one)
            assert client._request("POST", "/nodes/n1/drain") == b"{}"  # it may not be sent twice
            assert served.result(10).startswith(b"POST /api/v1/nodes/n1/drain")
        client.close()
