"""A server in virtual time, real receivers, and users of two tenants."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.server.services.notifying.receivers import HttpReceiver, Mailbox, http_receiver, smtp_receiver

USERS = [
    {"name": "ann", "tenants": {"vision": "member"}},
    {"name": "bob", "tenants": {"audio": "member"}},
    {"name": "tess", "tenants": {"vision": "tenant_admin"}},
    {"name": "olga", "role": "operator"},
]


class Place:
    """A server, its receivers, and a client for each user."""

    def __init__(self, server: InProcessServer, http: HttpReceiver, smtp: Mailbox, output: Path) -> None:
        self.server, self.http, self.smtp, self.output = server, http, smtp, output
        self._clients: dict[str, Client] = {}

    def of(self, user: str, **limits: Any) -> Client:
        """Return a client with a token of this user, which may do everything that the user may."""
        key = f"{user}{limits}"
        if key not in self._clients:
            made = self.server.client.create_token({"user": user, "level": "admin", **limits})
            self._clients[key] = Client.at(self.server.url, token=made.token, insecure=True)
        return self._clients[key]

    def hook(self, user: str, *events: str, name: str = "hook", **more: Any) -> Any:
        wanted = {"channel": "webhook", "to": self.http.url, "events": list(events), **more}
        return self.of(user).set_notification(name, wanted)

    def run(self, user: str, **job: Any) -> int:
        """Submit a job of a user, and return its number once a cycle has seen it."""
        made = self.of(user).submit_request({"command": "sleep 10", **job}).jobs[0].id
        self.server.settle()
        return made

    def pass_time(self, seconds: float = 0.0, *, gathered: float = 3.0) -> None:
        """Let time pass, read the log, let it gather, and send."""
        self.server.advance(seconds)
        self.server.send_notifications()
        self.server.advance(gathered)
        self.server.send_notifications()

    def titles(self) -> list[str]:
        return [got.json["title"] for got in self.http.got]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def declared(http: HttpReceiver, smtp: Mailbox, command: Path) -> dict[str, Any]:
    mail = {"host": "127.0.0.1", "port": smtp.port, "security": "none", "sender": "penstock@example.org"}
    return cluster_file(2, 4, job_account="nobody") | {
        "tenants": ["default", "vision", "audio"],
        "users": USERS,
        "notifications": {
            "server_url": "https://penstock.example.org/base",
            "email": {**mail, "domains": ["example.org"]},
            "webhooks": {"hosts": ["hooks.example.org", "*.pub.example.org", "localhost"], "internal": [http.host]},
            "commands": [
                {"name": "pager", "path": str(command), "open_to": "everyone"},
                {"name": "root", "path": "/bin/true"},
            ],
        },
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("notify")
    command, output = folder / "pager", folder / "paged.json"
    command.write_text(f"#!/bin/sh\ncat >> {output}\ntest ! -e {folder}/fail\n")
    command.chmod(0o700)
    with contextlib.ExitStack() as stack:
        http, smtp = stack.enter_context(http_receiver()), stack.enter_context(smtp_receiver())
        server = stack.enter_context(InProcessServer(declared(http, smtp, command)))
        place = Place(server, http, smtp, output)
        stack.callback(place.close)
        yield place


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The shared server without jobs and notifications of other tests."""
    yield shared
    for one in shared.server.client.notifications(everyone=True).notifications:
        shared.server.client.remove_notification(one.name, one.owner)
    shared.server.client.act("cancel", {"all": True})
    shared.server.advance(40)
    shared.server.send_notifications()
    shared.http.got.clear()
    shared.http.statuses.clear()
    shared.http.headers.clear()
    shared.smtp.mails.clear()
    shared.smtp.answers.clear()
    shared.output.unlink(missing_ok=True)
