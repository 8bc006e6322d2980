"""Nobody gets anything without a token; made from the OpenAPI document, so that a new route is in it at once."""

import asyncio
import re
from types import SimpleNamespace

import pytest

from penstock.core.model import events as ev
from penstock.core.model.access import Scope, Token, User
from penstock.core.model.cluster import ClusterConfig
from penstock.core.state.state import State
from penstock.server.http.auth import LocalTokens, digest_of, refused_title, scope_for
from penstock.server.http.door import AT_ONCE, Door, scope_at_door, scope_of_token
from penstock.server.http.pools import Pools
from penstock.server.views.cluster import token_alerts

API = "/api/v1"

PUBLIC = {"GET /health": 200, "GET /oidc": 200, "POST /logins": 400, "POST /oidc/start": 400, "POST /oidc/finish": 400}
"""What needs no token, with the status of a request without a body."""


@pytest.fixture(scope="module")
def operations(server):
    paths = server.http("GET", f"{API}/openapi.json").json()["paths"]
    return [(method.upper(), re.sub("{[a-z_]+}", "1", path)) for path, found in paths.items() for method in found]


def test_the_document_lists_every_route(operations):
    """Which ones these are is held against the table of `test_tenants.py`."""
    assert len(operations) >= 40
    assert all(path.startswith(API) for _, path in operations)


@pytest.mark.parametrize("token", ["", "pst_wrong", "\u00e9", "x" * 5_000])
def test_every_route_but_health_and_those_that_begin_a_session_need_a_token(server, operations, token):
    sent = token.encode().decode("latin-1")
    answers = {f"{m} {path}": server.http(m, path, read=False, token=sent).status for m, path in operations}
    assert {what.replace(API, ""): status for what, status in answers.items() if status != 401} == PUBLIC


@pytest.mark.parametrize(("token", "title"), [("", "a token is needed"), ("no", "the token is not valid")])
def test_a_refusal_says_how_to_do_it_right(server, token, title):
    answer = server.http("GET", f"{API}/jobs", token=token)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert (found["code"], found["title"], found["status"]) == ("unauthenticated", title, 401)
    assert found["hint"] == "send 'Authorization: Bearer TOKEN'"


@pytest.mark.parametrize("header", ["Basic dXNlcjpwYXNz", "Bearer", "Token abc", "bearer "])
def test_other_ways_to_say_who_one_is_are_refused(server, header):
    assert server.http("GET", f"{API}/jobs", token="", Authorization=header).status == 401


def test_nothing_was_done_without_a_token(server):
    seq = server.client.cluster().seq
    server.http("POST", f"{API}/jobs", b'{"command": "true"}', token="")
    server.http("POST", f"{API}/nodes/n1/drain", token="")
    since = server.http("GET", f"{API}/events?after={seq}").json()
    assert {one["event"]["type"] for one in since} <= {"AccessNoted"}


def test_tokens_are_private_and_stored_as_hashes(server):
    for name in ("token", "tokens.json", "server.json", "certificates/authority.pem", "certificates/server.pem"):
        assert (server.data.root / name).stat().st_mode & 0o077 == 0
    assert server.token not in (server.data.root / "tokens.json").read_text()


def test_the_token_stays_the_same_over_a_restart(tmp_path):
    paths = tmp_path / "tokens.json", tmp_path / "token"
    tokens = []
    for _ in range(2):
        LocalTokens(paths[0]).ensure_local(paths[1])
        tokens.append(paths[1].read_text().strip())
    assert tokens[0] == tokens[1]
    assert LocalTokens(paths[0]).user_of(tokens[0]) is not None
    assert LocalTokens(paths[0]).user_of(tokens[0] + "x") is None


NOW = 1_000
SECRET = "pst_secret"


def known(tmp_path, token=None, **user):
    """Return a server's token file without a token, and a state in which ann has one."""
    state = State()
    config = ClusterConfig(users=(User("ann", "", (("a", "member"),), **user),))
    issued = token or Token("t", digest_of(SECRET), "ann", "read")
    for seq, event in enumerate((ev.ConfigChanged(config, "root"), ev.TokenIssued(issued)), 1):
        state.apply(ev.Record(seq, NOW, event))
    return LocalTokens(tmp_path / "tokens.json"), state


def test_a_token_speaks_for_its_user_as_they_are_declared_now(tmp_path):
    local, state = known(tmp_path)
    assert scope_for(SECRET, local, state, NOW) == Scope("ann", "", {"a": "member"}, "read")
    state.apply(ev.Record(3, NOW, ev.ConfigChanged(ClusterConfig(users=(User("ann", "admin"),)), "root")))
    assert scope_for(SECRET, local, state, NOW) == Scope("ann", "admin", {}, "read")
    state.apply(ev.Record(4, NOW, ev.ConfigChanged(ClusterConfig(), "root")))
    assert scope_for(SECRET, local, state, NOW) is None


@pytest.mark.parametrize(
    ("by", "role", "delegated"),
    [("ann", "", False), ("otto", "admin", False), ("root", None, False), ("eve", "", True), ("eve", "viewer", True)],
)
def test_a_token_of_a_former_version_that_a_member_made_for_another_is_delegated(tmp_path, by, role, delegated):
    _, state = known(tmp_path)
    users = (User("ann", "", (("a", "member"),)), *((User(by, role),) if role is not None and by != "ann" else ()))
    state.apply(ev.Record(3, NOW, ev.ConfigChanged(ClusterConfig(users=users), "root")))
    state.apply(ev.Record(4, NOW, ev.TokenIssued(Token("t2", digest_of("pst_2"), "ann", by=by))))
    assert scope_for("pst_2", LocalTokens(tmp_path / "tokens.json"), state, NOW).delegated is delegated


def test_the_user_of_a_delegated_token_is_told_until_it_is_revoked_and_its_bearer_is_not(tmp_path):
    _, state = known(tmp_path)
    state.apply(ev.Record(3, NOW, ev.TokenIssued(Token("t2", digest_of("pst_2"), "ann", by="eve", delegated=True))))
    own, lent = (scope_for(token, LocalTokens(tmp_path / "x"), state, NOW) for token in (SECRET, "pst_2"))
    (told,) = token_alerts(state, own, NOW)
    assert (told.code, told.resolve) == ("token_made_for_you", "penstock token revoke t2")
    assert "eve made a token that speaks for you" in told.text
    assert token_alerts(state, lent, NOW) == []
    state.apply(ev.Record(4, NOW, ev.TokenRevoked("t2")))
    assert token_alerts(state, own, NOW) == []


def test_a_token_of_a_disabled_user_and_a_revoked_one_speak_for_nobody(tmp_path):
    assert scope_for(SECRET, *known(tmp_path, disabled=True), NOW) is None
    local, state = known(tmp_path)
    state.apply(ev.Record(3, NOW, ev.TokenRevoked("t")))
    assert scope_for(SECRET, local, state, NOW) is None


def test_whoever_holds_an_expired_token_is_told_when_it_was(tmp_path):
    local, state = known(tmp_path, Token("t", digest_of(SECRET), "ann", expires_ms=NOW))
    assert scope_for(SECRET, local, state, NOW - 1) is not None
    assert scope_for(SECRET, local, state, NOW) is None
    assert refused_title(SECRET, state, NOW).startswith("the token has expired, 1970-01-01T00:00:01")
    assert refused_title("pst_other", state, NOW) == "the token is not valid"


def test_a_stream_goes_on_for_as_long_as_its_token_is_good(tmp_path):
    local, state = known(tmp_path, Token("t", digest_of(SECRET), "ann", expires_ms=NOW))
    times = [NOW - 1, NOW]
    backend = SimpleNamespace(tokens=local, state=state, clock=SimpleNamespace(unix_ms=lambda: times.pop(0)))
    assert scope_of_token(backend, SECRET) is not None
    assert scope_of_token(backend, SECRET) is None


def test_a_token_that_is_revoked_while_its_request_waits_for_its_turn_is_not_taken(tmp_path):
    local, state = known(tmp_path)
    seen: list[Scope | None] = []

    async def app(scope, receive, send):
        seen.append(scope_at_door(scope))

    async def ask() -> None:
        clock = SimpleNamespace(unix_ms=lambda: NOW)
        door = Door(app, SimpleNamespace(tokens=local, state=state, clock=clock, pools=Pools()))
        request = {"type": "http", "method": "GET", "headers": [(b"authorization", f"Bearer {SECRET}".encode())]}
        asking = [asyncio.create_task(door(dict(request), None, None)) for _ in range(AT_ONCE + 1)]
        await asyncio.sleep(0)  # the last of them waits
        state.apply(ev.Record(3, NOW, ev.TokenRevoked("t")))
        await asyncio.gather(*asking)

    asyncio.run(ask())
    assert [scope is not None for scope in seen] == [True] * AT_ONCE + [False]
