"""Sessions of web pages: as valid as the token that they were begun with, never longer, and begun by a link once."""

import http.client
import json
from typing import Any

import pytest

from penstock.server.http.sessions import SESSION_MS, Session, Sessions, begun, renewed
from penstock.testing import builders
from penstock.testing.server import InProcessServer

NOW = 1_700_000_000_000
KEY = b"k" * 32


@pytest.fixture(scope="module")
def running():
    users = [{"name": "ann", "tenants": {"default": "member"}}, {"name": "bob", "tenants": {"default": "viewer"}}]
    with InProcessServer(builders.cluster_file(1, 2) | {"users": users}) as server:
        yield server


def asked(server: InProcessServer, method: str, path: str, token: str = "", body: Any = None) -> tuple[int, Any]:
    """Return status and answer of a request."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, "/api/v1" + path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, json.loads(data)


def token_of(server: InProcessServer, user: str, level: str = "write") -> Any:
    return server.client.create_token({"user": user, "level": level})


def test_a_link_begins_a_session_of_its_maker_once(running):
    token = token_of(running, "ann").token
    _, link = asked(running, "POST", "/login-links", token, {"path": "/jobs/3"})
    status, session = asked(running, "POST", "/logins", body={"code": link["code"]})
    assert (status, session["user"], session["path"]) == (200, "ann", "/jobs/3")
    assert asked(running, "GET", "/me", session["token"])[1]["level"] == "write"
    status, problem = asked(running, "POST", "/logins", body={"code": link["code"]})
    assert (status, problem["code"]) == (401, "unauthenticated")


def test_a_dry_run_says_whose_session_a_link_begins_and_leaves_it_unused(running):
    _, link = asked(running, "POST", "/login-links", token_of(running, "ann").token, {"path": "/jobs/3"})
    for _ in range(2):
        status, session = asked(running, "POST", "/logins", body={"code": link["code"], "dry_run": True})
        assert (status, session["user"], session["path"], session["token"]) == (200, "ann", "/jobs/3", "")
    status, session = asked(running, "POST", "/logins", body={"code": link["code"]})
    assert (status, session["token"][:4]) == (200, "pss_")
    assert asked(running, "POST", "/logins", body={"code": link["code"], "dry_run": True})[0] == 401


def test_a_session_ends_with_its_token(running):
    made = token_of(running, "bob", "read")
    _, session = asked(running, "POST", "/sessions", made.token)
    assert asked(running, "GET", "/me", session["token"])[0] == 200
    running.client.revoke_token(made.id)
    assert asked(running, "GET", "/me", session["token"])[0] == 401


def test_a_session_may_no_more_than_its_token(running):
    _, session = asked(running, "POST", "/sessions", token_of(running, "bob", "read").token)
    status, problem = asked(running, "POST", "/jobs", session["token"], {"command": "true"})
    assert (status, problem["code"]) == (403, "forbidden")
    status, problem = asked(running, "POST", "/tokens", session["token"], {"user": "bob", "level": "admin"})
    assert status == 403


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", "jobs", "/a b", ""])
def test_a_link_leads_to_a_page_of_this_server(running, path):
    status, problem = asked(running, "POST", "/login-links", running.token, {"path": path})
    assert (status, problem["problems"][0]["field"]) == (422, "path")


def test_links_of_one_user_are_bounded(running):
    token = token_of(running, "bob", "read").token
    statuses = [asked(running, "POST", "/login-links", token, {"path": "/"})[0] for _ in range(17)]
    assert statuses == [200] * 16 + [429]


def test_what_was_changed_or_signed_by_another_is_no_session():
    session = Session("", "ann", "write", NOW, NOW + 1_000)
    token = Sessions(KEY).signed(session)
    assert Sessions(KEY).read(token, NOW) == session
    head, _, mac = token.partition(".")
    other = Sessions(KEY).signed(Session("", "root", "admin", NOW, NOW + 1_000)).partition(".")[0]
    of_another = Sessions(b"x" * 32).signed(session)
    for forged in (f"{other}.{mac}", f"{head}.{mac[:-2]}AA", head, f"{head}.", "pss_.", of_another):
        assert Sessions(KEY).read(forged, NOW) is None


def test_a_session_that_has_expired_is_said_to_have():
    token = Sessions(KEY).signed(Session("", "ann", "write", NOW, NOW + 1_000))
    assert Sessions(KEY).read(token, NOW + 1_000) is None
    assert Sessions(KEY).expired(token, NOW + 1_000)
    assert not Sessions(KEY).expired(token + "x", NOW + 1_000)


def test_a_renewed_session_ends_at_last(running):
    scope = running_scope()
    session = begun("", scope, NOW)
    at = NOW
    for _ in range(100):
        at = session.expires_ms - 1
        session = renewed(session, scope, at)
    assert session.expires_ms == NOW + 7 * 86_400_000
    assert begun("", scope, NOW).expires_ms == NOW + SESSION_MS


def running_scope():
    from penstock.core.model.access import Scope

    return Scope("ann", level="write")


def test_a_key_is_kept(tmp_path):
    first = Sessions.kept(tmp_path / "session.key")
    token = first.signed(Session("", "ann", "write", NOW, NOW + 1_000))
    assert Sessions.kept(tmp_path / "session.key").read(token, NOW) is not None
    assert (tmp_path / "session.key").stat().st_mode & 0o077 == 0
    (tmp_path / "session.key").write_text("damaged")
    assert Sessions.kept(tmp_path / "session.key").read(token, NOW) is None
