"""The Python client: what it does when the connection, the server or the user breaks in."""

import http.client
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from penstock.client import ApiProblem, Client, ServerNotRunning
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.events import LeaderElected, Record


@pytest.fixture
def client(server):
    made = Client.of(server.data.root)
    yield made
    made.close()


def broken(monkeypatch, error: BaseException, *, times: int) -> list[str]:
    """Let the next answers be lost; return the methods of requests that were sent."""
    sent: list[str] = []
    request, real = http.client.HTTPConnection.request, http.client.HTTPConnection.getresponse

    def note(self, method, *rest, **more):
        sent.append(method)
        return request(self, method, *rest, **more)

    def lose(self):
        if len(sent) <= times:
            raise error
        return real(self)

    monkeypatch.setattr(http.client.HTTPConnection, "request", note)
    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", lose)
    return sent


def test_a_submit_whose_answer_was_lost_is_repeated_and_made_once(client, jobs, monkeypatch):
    broken(monkeypatch, ConnectionResetError(), times=1)
    answer = client.submit({"command": "true"})
    monkeypatch.undo()
    assert (answer.repeated, len(answer.jobs)) == (True, 1)
    assert jobs.ended(answer.jobs[0].id).state == "succeeded"


def test_a_read_is_repeated_once_and_then_given_up(client, monkeypatch):
    sent = broken(monkeypatch, http.client.RemoteDisconnected("gone"), times=9)
    with pytest.raises(ServerNotRunning, match="does not answer: gone"):
        client.jobs()
    assert sent == ["GET", "GET"]


def test_what_has_no_key_is_not_repeated(client, monkeypatch):
    sent = broken(monkeypatch, ConnectionResetError(), times=9)
    with pytest.raises(ServerNotRunning):
        client.drain("n1", on=False)
    assert sent == ["POST"]


def test_an_interrupted_request_does_not_spoil_the_next(client, monkeypatch):
    broken(monkeypatch, KeyboardInterrupt(), times=1)
    with pytest.raises(KeyboardInterrupt):
        client.jobs()
    monkeypatch.undo()
    with pytest.raises(ApiProblem, match="there is no job 999999"):
        client.cancel(999_999)


def test_a_folder_without_a_server_is_named(tmp_path):
    with pytest.raises(ServerNotRunning, match=f"no server runs on {tmp_path}"):
        Client.of(tmp_path)


def test_a_folder_whose_token_cannot_be_read_is_named(tmp_path):
    (tmp_path / "server.json").write_text('{"host": "127.0.0.1", "port": 1}')
    with pytest.raises(PenstockError, match=r"the token .* cannot be read"):
        Client.of(tmp_path)


def log_of(monkeypatch, client, *, own: set[int], events: int, page: int) -> list[int]:
    """Let the server have a log of which few events are the caller's; return the positions that are asked for."""
    asked: list[int] = []

    def exchange(method, url, payload, headers, *, tries):
        query = parse_qs(urlsplit(url).query)
        after = int(query["after"][0])
        asked.append(after)
        client._looked = min(after + page, events)
        seen = [Record(seq, 0, LeaderElected(seq, "x")) for seq in range(after + 1, client._looked + 1) if seq in own]
        return 200, msgspec.json.encode(seen)

    monkeypatch.setattr(client, "_exchange", exchange)
    return asked


def test_events_of_others_are_looked_through_once(monkeypatch):
    client = Client("127.0.0.1", 1, "t")
    asked = log_of(monkeypatch, client, own={3, 25}, events=60, page=10)
    assert [record.seq for record in client.all_events()] == [3, 25]
    assert asked == [0, 10, 20, 30, 40, 50, 60]


def test_a_follower_continues_where_the_server_looked_to(monkeypatch):
    client = Client("127.0.0.1", 1, "t")
    asked = log_of(monkeypatch, client, own={3}, events=30, page=10)
    assert [record.seq for record in client.events_after(0)[0]] == [3]
    assert client.events_after(10) == ([], 30)
    assert client.events_after(30) == ([], 30)
    assert asked == [0, 10, 20, 30, 30]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"command": "true", "cpus": float("nan")}, "cpus is nan, expected a number"),
        ([{"command": "true"}, {"devices": {"count": float("inf")}}], r"jobs\[1\]\.devices\.count is inf, expected"),
        ({"jobs": [{"checkpoint": {"x": [1.0, float("-inf")]}}]}, r"jobs\[0\]\.checkpoint\.x\[1\] is -inf, expected"),
    ],
)
def test_a_number_that_json_does_not_know_is_refused(body, said):
    with pytest.raises(InvalidInput, match=said) as refused:
        Client("127.0.0.1", 1, "t").submit(body)
    assert refused.value.problems[0].code == "invalid_value"
