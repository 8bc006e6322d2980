"""Answers about the present that callers of equal sight share, where they accept one from a second ago."""

import http.client
import json
import threading
from collections import Counter
from urllib.parse import urlsplit

import pytest

from penstock.client import Client
from penstock.server.http.listener import Connection
from penstock.server.routes import cluster, history, jobs, nodes, quotas
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

CLUSTER = cluster_file(2, 4, job_account="root") | {
    "tenants": [{"name": "vision"}, {"name": "audio"}],
    "users": [
        {"name": "ann", "tenants": {"vision": "member"}},
        {"name": "amy", "tenants": {"vision": "viewer"}},
        {"name": "bob", "tenants": {"audio": "member"}},
        {"name": "cat", "tenants": {"vision": "viewer", "audio": "viewer"}},
        {"name": "tia", "tenants": {"vision": "tenant_admin"}},
    ],
}
TOTALS = "/nodes?limit=1&fields=name"
WORKED_OUT = {
    "/nodes": (nodes, "_listed"),
    TOTALS: (nodes, "_listed"),
    "/jobs?sort=newest&limit=8&finished=true&fields=id,name,tenant": (jobs.JobViews, "page"),
    "/alerts": (cluster, "alerts"),
    "/queues": (cluster, "queue_views"),
    "/quotas": (quotas, "holders"),
    "/timeline": (history, "_timeline"),
    "/cluster": (cluster, "cluster_view"),
}
"""What works out the answer to each question."""
OF_TENANTS = [path for path in WORKED_OUT if path not in (TOTALS, "/cluster")]
BY_VERSION = [path for path in WORKED_OUT if path != "/timeline"]
SHARED = {"Cache-Control": "max-stale=1"}


class Asked:
    """A server, a token of each user, and how often each answer was worked out."""

    def __init__(self, server: InProcessServer) -> None:
        self.server, self.count = server, Counter()
        self.tokens = {user: server.client.create_token({"user": user}).token for user in ("ann", "amy", "bob", "cat")}
        self.tokens["admin"] = server.token

    def get(self, path: str, user: str, shared: bool = True, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = self.connection()
        connection.request("GET", f"/api/v1{path}", headers=self.headers(user) | (SHARED if shared else {}) | headers)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=30)

    def headers(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    def submit(self, tenant: str = "vision") -> None:
        self.server.submit({"name": f"of-{tenant}", "tenant": tenant, "command": "sleep 600", "devices": 1})


@pytest.fixture(scope="module")
def running():
    with InProcessServer(CLUSTER) as server:
        yield Asked(server)


@pytest.fixture
def asked(running, monkeypatch):
    """Answers of former tests are too old for anybody."""
    running.count.clear()
    for job in running.server.client.jobs().jobs:
        running.server.client.cancel(job.id)
    running.submit("vision")
    running.submit("audio")
    running.server.advance(20)
    for path, (place, name) in WORKED_OUT.items():
        if path != TOTALS:
            monkeypatch.setattr(place, name, counting(running.count, name, getattr(place, name)))
    return running


def counting(count, name, function):
    def counted(*args, **kwargs):
        count[name] += 1
        return function(*args, **kwargs)

    return counted


@pytest.mark.parametrize("path", WORKED_OUT)
def test_callers_of_equal_sight_share_an_answer_that_they_accept(asked, path):
    first = asked.get(path, "ann")
    asked.submit()
    second = asked.get(path, "amy")
    assert (first[0], second[0], second[2]) == (200, 200, first[2])
    assert asked.count == {WORKED_OUT[path][1]: 1}


@pytest.mark.parametrize("path", BY_VERSION)
def test_an_answer_from_before_a_change_says_so(asked, path):
    headers = [asked.get(path, "ann")[1], asked.get(path, "amy")[1]]
    asked.submit()
    headers.append(asked.get(path, "amy")[1])
    assert [one.get("age") for one in headers] == [None, None, "0"]


@pytest.mark.parametrize("path", BY_VERSION)
def test_an_answer_is_shared_for_a_second(asked, path):
    asked.get(path, "ann")
    asked.submit()
    asked.server.advance(1)
    assert "age" not in asked.get(path, "amy")[1]
    assert asked.count == {WORKED_OUT[path][1]: 2}


@pytest.mark.parametrize("path", OF_TENANTS)
@pytest.mark.parametrize("others", [("ann", "bob"), ("bob", "cat"), ("cat", "admin"), ("admin", "ann")])
def test_callers_of_another_sight_get_an_answer_of_their_own(asked, path, others):
    first, second = others
    asked.get(path, first)
    shared = asked.get(path, second)
    times = 1 if path == "/quotas" else 2  # of quotas each gets their part of the whole
    assert asked.count == {WORKED_OUT[path][1]: times}
    if path != "/timeline":
        assert shared[2] == asked.get(path, second, shared=False)[2]


@pytest.mark.parametrize("path", OF_TENANTS)
def test_no_word_of_another_tenant_is_in_a_shared_answer(asked, path):
    for user in ("admin", "ann", "cat"):
        asked.get(path, user)
    assert b"of-vision" not in asked.get(path, "bob")[2]


def test_sums_of_nodes_are_the_same_for_all(asked):
    bodies = {asked.get(TOTALS, user)[2] for user in ("ann", "bob", "admin")}
    assert (len(bodies), asked.count) == (1, {"_listed": 1})
    assert json.loads(bodies.pop())["nodes"] == [{"name": "n1"}]


@pytest.mark.parametrize("path", ["/jobs?sort=newest", "/nodes", "/cluster", "/queues"])
def test_who_accepts_no_stale_answer_sees_what_they_have_just_changed(asked, path):
    before = asked.get(path, "ann")
    asked.submit()
    exact = asked.get(path, "ann", shared=False)
    assert exact[2] != before[2]
    assert "age" not in exact[1]


@pytest.mark.parametrize("path", ["/jobs?sort=newest", "/nodes", "/cluster"])
def test_who_accepts_no_stale_answer_gets_what_is_in_no_log_as_it_is(asked, path):
    for _ in range(2):
        asked.get(path, "ann", shared=False)
    assert sum(asked.count.values()) == 2


def test_a_further_page_is_not_shared(asked):
    cursor = json.loads(asked.get("/jobs?sort=newest&limit=1", "admin")[2])["next_cursor"]
    for _ in range(2):
        asked.get(f"/jobs?sort=newest&limit=1&cursor={cursor}", "admin")
    assert asked.count == {"page": 3}


def test_alerts_about_own_tokens_are_for_their_user_alone(asked):
    tia = asked.server.client.create_token({"user": "tia", "level": "admin"}).token
    with Client.at(asked.server.url, token=tia, insecure=True) as manager:
        made = manager.create_token({"user": "ann", "level": "read"})
        bodies = [asked.get("/alerts", user)[2] for user in ("amy", "ann", "amy")]
        manager.revoke_token(made.id)
    assert [b"token_made_for_you" in body for body in bodies] == [False, True, False]
    assert asked.count == {"alerts": 2}


def test_a_shared_answer_that_the_caller_has_already_is_not_sent_again(asked):
    tag = asked.get("/nodes", "ann")[1]["etag"]
    asked.submit()
    status, headers, body = asked.get("/nodes", "amy", **{"If-None-Match": tag})
    assert (status, headers["age"], body, asked.count) == (304, "0", b"", {"_listed": 1})


def test_nothing_is_worked_out_for_a_client_that_has_disconnected(asked, monkeypatch, caplog):
    free, began, left, limits = threading.Event(), threading.Event(), threading.Event(), []
    listed, lost = nodes._listed, Connection.connection_lost

    def slow(*args):
        limits.append(args[-1].limit)
        began.set()
        free.wait(30)
        return listed(*args)

    def noted(self, error):
        lost(self, error)
        left.set()

    monkeypatch.setattr(nodes, "_listed", slow)
    busy = threading.Thread(target=asked.get, args=("/nodes?limit=1", "ann", False))
    busy.start()
    assert began.wait(30)
    monkeypatch.setattr(Connection, "connection_lost", noted)
    for limit in (2, 3):  # two more than the tenant has threads
        leaving = asked.connection()
        leaving.request("GET", f"/api/v1/nodes?limit={limit}", headers=asked.headers("ann"))
        leaving.close()
        assert left.wait(30)
        left.clear()
    free.set()
    busy.join()
    asked.get("/nodes?limit=4", "ann", shared=False)
    assert limits in ([1, 4], [1, 2, 4])
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
