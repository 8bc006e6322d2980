"""A server with jobs in all states, which tests of screens share."""

import time
from collections.abc import Iterator

import pytest

from penstock.client import Client
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.cli.top.stage import Printed

USERS = [{"name": "ann", "role": "admin"}, {"name": "ben", "tenants": {"vision": "member"}}]
TENANTS = [{"name": "default"}, {"name": "vision"}]


class World:
    """The server, Ann's and Ben's clients, and what programs have printed."""

    def __init__(self, server: InProcessServer, printed: Printed) -> None:
        self.server, self.printed = server, printed
        self.ann, self.ben = (server.client.create_token({"user": name}).token for name in ("ann", "ben"))
        """Tokens: Ann administers the cluster, Ben is a member of vision."""
        self._clients: dict[str, Client] = {}

    def client(self, token: str = "") -> Client:
        token = token or self.ann
        if token not in self._clients:
            self._clients[token] = Client.at(self.server.url, token=token, insecure=True)
        return self._clients[token]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def submit(self, token: str = "", **job: object) -> int:
        """Submit a job and return its number, or that of its first member."""
        made = self.client(token).submit({"command": "sleep 90000", **job}).jobs[0].id
        self.server.settle()
        return made


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are shown in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    """Nothing changes it: tests that act have a server of their own."""
    printed = Printed()
    cluster = {**cluster_file(3, 4, job_account="nobody"), "users": USERS, "tenants": TENANTS}
    with InProcessServer(cluster, outputs=printed) as server:
        made = World(server, printed)
        server.client.drain("n3", reason="new disk")
        made.submit(name="pretrain", devices=4, time_limit="30h")
        made.submit(made.ben, name="segment", devices=2, tenant="vision")
        server.advance(600)
        made.submit(made.ben, name="tune", devices=4, array=9, tenant="vision")
        made.submit(name="urgent-eval", devices=4, priority=700, preemptible=False, time_limit="1h")
        made.submit(name="wide", devices=4, replicas=3)
        held = made.submit(name="later", devices=1)
        server.client.act("hold", {"ids": [str(held)]})
        server.advance(90)
        yield made
        made.close()


@pytest.fixture
def own() -> Iterator[World]:
    """A server that a test may change: two nodes of four devices."""
    printed = Printed()
    declared = {**cluster_file(2, 4, job_account="nobody"), "users": USERS, "tenants": TENANTS}
    with InProcessServer(declared, outputs=printed) as server:
        made = World(server, printed)
        yield made
        made.close()
