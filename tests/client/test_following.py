"""Waiting for many jobs: no end is missed, and what it costs does not grow with the number of jobs."""

import threading
from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem, Client, ServerNotRunning, following
from penstock.testing.server import InProcessServer
from tests.client.test_handles import pass_time

WAIT_S = 30


@pytest.fixture(scope="module")
def virtual() -> Iterator[InProcessServer]:
    with InProcessServer() as running:
        yield running


@pytest.fixture
def client(virtual) -> Iterator[Client]:
    with Client.connect(virtual.url, token=virtual.token) as made:
        yield made


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The paths that clients ask for."""
    paths: list[str] = []
    request = Client._request

    def note(self, method, path, **more):
        paths.append(path)
        return request(self, method, path, **more)

    monkeypatch.setattr(Client, "_request", note)
    return paths


def many(client: Client, count: int, command: str = "sleep 5"):
    return client.handles(client.submit([{"command": command, "cpus": 1}] * count).jobs)


def test_many_jobs_are_waited_for_with_few_requests(client, virtual, asked):
    jobs = many(client, 60)
    asked.clear()
    waiting = threading.Thread(target=lambda: jobs.wait(WAIT_S))
    waiting.start()
    while client._follower is None or len(client._follower._waits) < 60:
        waiting.join(0.01)
    pass_time(virtual, 10)
    waiting.join(WAIT_S)
    assert {job.status for job in jobs} == {"succeeded"}
    assert len(asked) <= 4, asked


def test_jobs_that_have_ended_before_are_looked_up_by_lists(client, virtual, asked):
    jobs = many(client, 50)
    pass_time(virtual, 10)
    asked.clear()
    assert jobs.wait(WAIT_S) == ["succeeded"] * 50
    assert sorted(set(asked)) == ["/cluster", "/jobs"]
    assert len(asked) <= 4, asked


def test_an_end_before_anybody_has_waited_is_kept_for_new_jobs(client, virtual, asked):
    client.follower.begin()
    since = client.follower.mark
    job = many(client, 1)[0]
    pass_time(virtual, 10)
    while client.follower.mark == since:
        pass
    asked.clear()
    (future,) = client.follower.ended(client, [job.id], since=since)
    assert future.result(WAIT_S).state == "succeeded"
    assert asked == []


def test_where_too_many_have_ended_since_a_new_job_is_looked_up(client, virtual, monkeypatch):
    monkeypatch.setattr(following, "KEPT_MAX", 2)
    client.follower.begin()
    since = client.follower.mark
    jobs = many(client, 5)
    pass_time(virtual, 10)
    while client.follower.mark - since < 5:
        pass
    futures = client.follower.ended(client, [job.id for job in jobs], since=since)
    assert [future.result(WAIT_S).state for future in futures] == ["succeeded"] * 5


def test_a_stream_that_breaks_is_taken_up_where_it_was(client, virtual, monkeypatch):
    monkeypatch.setattr(following, "PAUSE_FIRST_S", 0.01)
    job = many(client, 1)[0]
    (future,) = client.follower.ended(client, [job.id])
    ended, follow = threading.Event(), client.follower._follow

    def later() -> None:
        ended.wait(WAIT_S)
        follow()

    monkeypatch.setattr(client.follower, "_follow", later)
    client.follower._client.interrupt()
    pass_time(virtual, 10)
    assert not future.done()
    ended.set()
    assert future.result(WAIT_S).state == "succeeded"


def test_who_waits_for_a_server_that_is_gone_gets_the_error(client, virtual, monkeypatch):
    monkeypatch.setattr(following, "PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr(following, "GIVEN_UP_S", 0.05)
    job = many(client, 1, "sleep 600")[0]
    (future,) = client.follower.ended(client, [job.id])

    def gone() -> None:
        raise ServerNotRunning("gone")

    monkeypatch.setattr(client.follower, "_follow", gone)
    client.follower._client.interrupt()
    with pytest.raises(ServerNotRunning, match="gone"):
        future.result(WAIT_S)
    monkeypatch.undo()
    job.cancel()
    pass_time(virtual, 60)
    assert job.wait(WAIT_S) == "cancelled"


def test_a_job_that_is_none_is_no_wait(client, monkeypatch):
    shared = []

    def job(job_id):
        shared.append(client.follower._waits[job_id])
        return real(job_id)

    real = client.job
    monkeypatch.setattr(client, "job", job)
    with pytest.raises(ApiProblem, match="there is no job 999999"):
        client.follower.ended(client, [999_999])
    assert client.follower._waits == {}
    assert isinstance(shared[0].exception(0), ApiProblem)  # who has come to wait for it meanwhile


def test_a_token_that_is_not_valid_is_said_at_once(virtual):
    with (
        Client.connect(virtual.url, token="wrong", patience_s=0) as stranger,
        pytest.raises(ApiProblem, match="token"),
    ):
        stranger.follower.begin()


def test_a_closed_client_lets_nobody_wait(client):
    (job,) = many(client, 1, "sleep 600")
    (future,) = client.follower.ended(client, [job.id])
    client.close()
    with pytest.raises(ServerNotRunning, match="the client was closed"):
        future.result(WAIT_S)
