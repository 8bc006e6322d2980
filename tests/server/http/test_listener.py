"""What one connection may hold, and for how long: a listener of its own with short times and a tiny application."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.server.http import listener as ln
from penstock.server.http.transport import Transport, listen

GOOD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENT = ln.ListenerBounds(100, 30, 30, 30)
BIG = b"x" * 50 * 2**20


async def echo(scope, receive, send) -> None:
    """Answer how many bytes the body had; `/big` is answered with many."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = BIG if scope["path"] == "/big" else str(size).encode()
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


class Running:
    """A listener on a loop of its own."""

    def __init__(self, bounds: ln.ListenerBounds) -> None:
        self._socket = listen(Transport())
        self.address = self._socket.getsockname()
        self._listener = ln.Listener(echo, None, bounds)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listener.serve([self._socket])))
        self._thread.start()
        while not self._listener.started:
            time.sleep(0.001)
        self.open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        self.open.append(socket.create_connection(self.address, timeout=20))
        return self.open[-1]

    def close(self) -> None:
        for link in self.open:
            link.close()
        self._listener.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    monkeypatch.setattr(ln, "SWEEP_S", 0.01)
    made: list[Running] = []

    def begin(bounds: ln.ListenerBounds = PATIENT) -> Running:
        made.append(Running(bounds))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def to_the_end(link: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := link.recv(1 << 20):
            found += data
    return found


def answer(link: socket.socket) -> bytes:
    """Read one short answer."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += link.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += link.recv(1 << 16)
    return body


def problem(data: bytes) -> tuple[int, str]:
    """Return status and code of an answer that ends its connection."""
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    found = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % found["status"])
    return found["status"], found["code"]


def test_an_honest_connection_serves_request_after_request(running):
    link = running().connect()
    for _ in range(3):
        link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
        assert answer(link) == b"5"


def test_headers_that_never_end_are_cut_off_with_an_answer(running):
    link = running(ln.ListenerBounds(100, 0.1, 30, 30)).connect()
    link.sendall(GOOD[:-2])
    assert problem(to_the_end(link)) == (408, "too_slow")


def test_headers_that_come_byte_by_byte_have_no_more_time(running):
    link = running(ln.ListenerBounds(100, 0.2, 30, 30)).connect()
    begun = time.monotonic()
    with contextlib.suppress(ConnectionError):
        link.sendall(GOOD[:-2])
        while time.monotonic() - begun < 10:
            link.sendall(b"a: b\r\n")
            time.sleep(0.02)
    assert time.monotonic() - begun < 5


def test_who_says_nothing_at_all_is_hung_up_on(running):
    assert to_the_end(running(ln.ListenerBounds(100, 0.1, 30, 30)).connect()) == b""


def test_who_sends_only_line_ends_after_an_answer_is_cut_off(running):
    link = running(ln.ListenerBounds(100, 0.2, 30, 30)).connect()
    link.sendall(GOOD)
    answer(link)
    link.sendall(b"\r\n")
    assert problem(to_the_end(link)) == (408, "too_slow")


@pytest.mark.parametrize("part", [b"", b"he"])
def test_a_body_that_stops_coming_is_cut_off(running, part):
    link = running(ln.ListenerBounds(100, 30, 0.1, 30)).connect()
    link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n" + part)
    assert problem(to_the_end(link)) == (408, "too_slow")


def test_a_body_that_comes_at_the_least_rate_is_taken(running, monkeypatch):
    monkeypatch.setattr(ln, "BODY_LEAST_BYTES_S", 1_000)
    link = running(ln.ListenerBounds(100, 30, 0.2, 30)).connect()
    link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(10):  # in a second, five times what a body has from the start
        link.sendall(b"x" * 100)
        time.sleep(0.04)
    assert answer(link) == b"1000"


def test_a_long_wait_for_the_application_is_not_the_clients_fault(running, monkeypatch):
    monkeypatch.setattr(ln, "BODY_LEAST_BYTES_S", 2**40)

    async def slow(scope, receive, send) -> None:
        await asyncio.sleep(0.5)
        await echo(scope, receive, send)

    made = running(ln.ListenerBounds(100, 0.1, 0.1, 0.1))
    made._listener.config.loaded_app = slow
    link = made.connect()
    link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
    assert answer(link) == b"300000"


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nA: " + b"x" * (ln.HEADERS_MAX_BYTES + 1),
        b"GET / HTTP/1.1\r\nA: " + b"x" * (ln.HEADERS_MAX_BYTES + 1) + b"\r\n\r\n",
        b"GET /" + b"x" * (ln.HEADERS_MAX_BYTES + 1) + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (ln.HEADERS_MAX + 1) + b"\r\n",
    ],
    ids=["no end", "one", "address", "many"],
)
def test_headers_over_the_limit_are_refused(running, head):
    link = running().connect()
    with contextlib.suppress(ConnectionError):
        link.sendall(head)
    assert problem(to_the_end(link)) == (431, "headers_too_large")


def test_headers_within_the_limit_are_taken(running):
    link = running().connect()
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * (ln.HEADERS_MAX_BYTES - 200) + b"\r\n\r\n")
    assert answer(link) == b"0"


def test_a_large_body_is_not_counted_as_headers(running):
    link = running().connect()
    link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000)
    assert answer(link) == b"3000000"


def test_the_end_of_a_body_is_not_counted_as_headers_of_the_next_request(running, monkeypatch):
    monkeypatch.setattr(ln, "HEADERS_MAX_BYTES", 1_000)
    link = running().connect()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 150000\r\n\r\n"
    link.sendall(head + b"x" * 150_000 + GOOD[:-2])
    assert answer(link) == b"150000"
    link.sendall(GOOD[-2:])
    assert answer(link) == b"0"


def test_requests_sent_ahead_are_answered_in_order_and_bounded(running):
    link = running().connect()
    link.sendall(GOOD * (ln.PIPELINED_MAX // 2))
    found = b""
    while found.count(b"HTTP/1.1 200") < ln.PIPELINED_MAX // 2:
        found += link.recv(1 << 16)
    over = running().connect()
    over.sendall(GOOD * (ln.PIPELINED_MAX + 10))
    assert b"HTTP/1.1 200" not in to_the_end(over).partition(b"431")[2]


def test_who_does_not_read_its_answer_is_dropped(running):
    link = running(ln.ListenerBounds(100, 30, 30, 0.2)).connect()
    link.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1)
    assert 0 < len(to_the_end(link)) < len(BIG)


def test_who_reads_slowly_but_steadily_gets_all_of_its_answer(running):
    link = running(ln.ListenerBounds(100, 30, 30, 0.3)).connect()
    link.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    got = 0
    begun = time.monotonic()
    while data := link.recv(1 << 21):
        got += len(data)
        if time.monotonic() - begun < 1.5:
            time.sleep(0.05)
    assert got > len(BIG)


def test_connections_over_the_limit_are_told_and_closed(running):
    made = running(ln.ListenerBounds(2, 30, 30, 30))
    kept = [made.connect(), made.connect()]
    assert problem(to_the_end(made.connect())) == (503, "overloaded")
    kept[0].close()
    until_there_is_room(made)
    kept[1].sendall(GOOD)
    assert answer(kept[1]) == b"0"


def until_there_is_room(made: Running) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        link = made.connect()
        link.sendall(GOOD)
        if b"503" not in link.recv(1 << 16):
            link.close()
            return
    raise AssertionError("no room was made")


def test_one_address_may_not_have_all_connections_but_this_machine_may():
    doors = ln.Doors(8)
    links = [object() for _ in range(20)]
    assert [doors.enter(link, "10.0.0.1") for link in links[:3]] == [True, True, False]
    doors.leave(links[2], "10.0.0.1")
    assert doors.enter(links[3], "10.0.0.2")
    assert [doors.enter(link, "127.0.0.1") for link in links[4:10]] == [True] * 5 + [False]


def test_nothing_is_kept_of_addresses_that_are_gone():
    doors = ln.Doors(8)
    doors.enter("link", "10.0.0.1")
    doors.leave("link", "10.0.0.1")
    assert (doors.open, doors._by_address) == (set(), {})


@pytest.mark.parametrize(("files", "allowed"), [(20_000, 4_096), (1_024, 768), (256, 128), (-1, 4_096)])
def test_files_are_left_for_the_log_and_the_agents(monkeypatch, files, allowed):
    monkeypatch.setattr(ln.resource, "getrlimit", lambda _: (files, files))
    assert ln.connections_allowed(4_096) == allowed


def test_what_is_no_http_is_refused(running):
    link = running().connect()
    link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert b"400" in to_the_end(link)
