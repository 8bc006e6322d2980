"""The stream of changed views: the latest of what the caller sees, resumed where it was, encoded once for all."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.model.cluster import Tenant
from penstock.server.services import changes
from penstock.testing import builders
from penstock.testing.harness import World
from penstock.testing.server import InProcessServer
from tests.server.harness import until


@pytest.fixture(scope="module")
def running():
    users = [{"name": name, "tenants": {name: "member"}} for name in ("red", "blue")]
    tenants = [{"name": name} for name in ("red", "blue")]
    file = builders.cluster_file(2, 2) | {"users": users, "tenants": tenants}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "GATHER_S", 0.02)
        patch.setattr(changes, "REASONS_EVERY_S", 0.0)
        with InProcessServer(file) as server:
            yield server


@pytest.fixture(autouse=True)
def all_over(running):
    yield
    if running.client.jobs().jobs:
        running.client.act("cancel", {"all": True})
        running.advance(60)


def asked(server: InProcessServer, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {server.token}"})
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


class Follower:
    """One open stream."""

    def __init__(self, server: InProcessServer, token: str = "", topics: str = "jobs,nodes,counts", after: str = ""):
        self._connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
        headers = {"Authorization": f"Bearer {token or server.token}"} | ({"Last-Event-ID": after} if after else {})
        self._connection.request("GET", f"/api/v1/changes?topics={topics}", headers=headers)
        self.response = self._connection.getresponse()
        self.text = ""

    def messages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        number = ""
        while line := self.response.readline().decode():
            self.text += line
            if line.startswith("id: "):
                number = line[4:].strip()
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])

    def job(self, job_id: int, state: str) -> dict[str, Any]:
        """Return the first view of a job in a state."""
        for _, message in self.messages():
            for view in message.get("jobs", ()):
                if (view["id"], view["state"]) == (job_id, state):
                    return view
        raise AssertionError("the stream has ended")

    def __enter__(self) -> "Follower":
        assert self.response.status == 200, self.response.read()
        next(self.messages())
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def job(tenant: str, name: str = "train", devices: int = 1, seconds: int = 10) -> dict[str, Any]:
    return {"name": name, "tenant": tenant, "command": f"sleep {seconds}", "devices": devices}


def test_a_job_is_followed_from_its_submit_to_its_end(running):
    with Follower(running) as stream:
        number = running.submit(job("red"))
        assert stream.job(number, "running")["nodes"]
        running.advance(11)
        assert stream.job(number, "succeeded")["finished_ms"]


def test_a_node_is_sent_when_its_devices_change_hands(running):
    with Follower(running, topics="nodes") as stream:
        number = running.submit(job("red", devices=2))
        held = next(
            node
            for _, message in stream.messages()
            for node in message.get("nodes", ())
            if any(device["job"] == number for device in node["devices"])
        )
        running.advance(11)
        for _, message in stream.messages():
            nodes = {node["name"]: node for node in message.get("nodes", ())}
            if held["name"] in nodes and not any(d["held"] for d in nodes[held["name"]]["devices"]):
                break


def test_waiting_jobs_are_counted_by_their_reason(running):
    with Follower(running, topics="counts") as stream:
        for _ in range(4):
            running.submit(job("red", devices=2))
        for _, message in stream.messages():
            counts = message["counts"]["jobs"]
            if counts["by_reason"].get("no_fit") == 2:
                break
        assert counts["by_state"]["waiting"] == 2
        assert set(counts["by_reason"]) == {"no_fit"}


def test_jobs_that_no_cycle_looks_at_are_counted_apart(running):
    first = running.submit(job("red"))
    running.submit(job("red") | {"after_ok": first})
    running.settle()
    assert asked(running, "/counts")["jobs"]["by_reason"] == {"not_in_line": 1}


class Looked(dict[int, Any]):
    """A mapping that lists the keys that were looked up in it."""

    def __init__(self, known: Any) -> None:
        super().__init__(known)
        self.looked: list[int] = []

    def get(self, key: int, default: Any = None) -> Any:
        self.looked.append(key)
        return super().get(key, default)


class Unread(list[Any]):
    """A list whose entries nobody may look at."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("its jobs are looked at")

    copy = __getitem__ = __iter__  # type: ignore[assignment]


def test_counting_by_reason_looks_at_no_job_and_at_no_class_of_a_tenant_that_is_not_seen():
    w = World(builders.node("a", 2), tenants=(Tenant("red"), Tenant("blue")))
    w.run(w.submit(1, tenant="red"))
    for priority in range(50):
        w.submit(2, tenant="red", priority=priority)
        w.submit(2, tenant="red", priority=priority)
    blue = w.job(w.submit(2, tenant="blue")).class_id
    classes, verdicts = w.state.indexes.pending, Looked(w.plan().verdicts)
    for pending in classes.values():
        pending.jobs = Unread(pending.jobs)
    assert changes.waiting_by_reason(classes, verdicts, {"blue"}) == {"no_fit": 1}
    assert verdicts.looked == [blue]
    assert changes.waiting_by_reason(classes, verdicts, None) == {"no_fit": 101}


def test_a_member_gets_no_byte_of_another_tenant(running):
    token = running.client.create_token({"user": "blue"}).token
    with Follower(running, token) as stream:
        other = running.submit(job("red", "of-red", devices=2))
        own = running.submit(job("blue", "of-blue", devices=1))
        stream.job(own, "running")
        assert "of-red" not in stream.text
        assert f'"job":{other}' not in stream.text
        assert '"red"' not in stream.text


def test_who_was_away_for_a_moment_misses_nothing(running):
    with Follower(running, topics="jobs") as stays:
        with Follower(running, topics="jobs") as leaves:
            first = running.submit(job("red"))
            known = next(
                n for n, message in leaves.messages() if any(j["id"] == first for j in message.get("jobs", ()))
            )
        second = running.submit(job("red"))
        stays.job(second, "running")
        comes_back = Follower(running, topics="jobs", after=known)
        assert comes_back.job(second, "running")["name"] == "train"
        comes_back.__exit__()
        running.advance(11)


def test_who_comes_back_after_nobody_followed_asks_anew(running, monkeypatch):
    monkeypatch.setattr(changes, "KEEPALIVE_S", 0.01)
    with Follower(running, topics="jobs") as stream:
        number = running.submit(job("red"))
        sent = ((at, message.get("jobs", ())) for at, message in stream.messages())
        known = next(at for at, jobs in sent if any(view["id"] == number for view in jobs))
    until(lambda: not [one for one in asyncio_tasks(running) if "ChangeFeed._turn" in one], "the feed rests")
    running.submit(job("red"))
    stream = Follower(running, topics="jobs", after=known)
    _, message = next(stream.messages())
    assert message["jobs_anew"]
    stream.__exit__()


def asyncio_tasks(server: InProcessServer) -> list[str]:
    return [repr(task.get_coro()) for task in asyncio.all_tasks(server._loop.loop)]


@pytest.mark.parametrize("after", ["deadbeef-3", "x", "-", "deadbeef-99999999999"])
def test_who_comes_with_an_unknown_number_asks_anew(running, after):
    stream = Follower(running, topics="jobs", after=after)
    _, message = next(stream.messages())
    assert message["jobs_anew"]
    assert "nodes_anew" not in message
    stream.__exit__()


def test_more_changes_than_are_listed_are_said_to_be(running, monkeypatch):
    monkeypatch.setattr(changes, "JOBS_MAX", 3)
    with Follower(running, topics="jobs") as stream:
        running.submit_all({"jobs": [job("red", seconds=1)] * 8})
        for _, message in stream.messages():
            assert len(message.get("jobs", ())) <= 3
            if message.get("jobs_anew"):
                break


def test_a_stream_ends_when_its_token_is_revoked(running):
    made = running.client.create_token({"user": "red", "level": "read"})
    with Follower(running, made.token, topics="counts") as stream:
        running.client.revoke_token(made.id)
        for _ in stream.messages():
            pass


def test_a_topic_that_there_is_not_is_named(running):
    stream = Follower(running, topics="jobs,node")
    problem = json.loads(stream.response.read())
    assert problem["problems"][0]["field"] == "topics"
    assert "nodes" in problem["problems"][0]["hint"]
    stream.__exit__()


def test_followers_of_equal_sight_share_the_work(running, monkeypatch):
    made = []
    known = changes.ChangeFeed._encode
    monkeypatch.setattr(
        changes.ChangeFeed, "_encode", lambda self, *given: made.append(given[1]) or known(self, *given)
    )
    streams = [Follower(running, topics="jobs") for _ in range(5)]
    for stream in streams:
        stream.__enter__()
    number = running.submit(job("red"))
    for stream in streams:
        stream.job(number, "running")
        stream.__exit__()
    assert len(made) == len(set(made))
    running.advance(11)
