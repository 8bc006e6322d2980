"""Nobody gets anything without a token; made from the OpenAPI document, so that a new route is in it at once."""

import pytest

API = "/api/v1"


@pytest.fixture(scope="module")
def operations(server):
    paths = server.http("GET", f"{API}/openapi.json").json()["paths"]
    return [
        (method.upper(), path.replace("{job_id}", "1").replace("{node}", "n1"))
        for path, found in paths.items()
        for method in found
    ]


def test_the_document_lists_every_route(operations):
    assert len(operations) == 25
    assert all(path.startswith(API) for _, path in operations)


@pytest.mark.parametrize("token", ["", "pst_wrong", "\u00e9", "x" * 5_000])
def test_every_route_but_health_needs_a_token(server, operations, token):
    sent = token.encode().decode("latin-1")
    answers = {(m, path): server.http(m, path, read=False, token=sent) for m, path in operations}
    assert answers.pop(("GET", f"{API}/health")).status == 200
    assert {answer.status for answer in answers.values()} == {401}


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
    assert server.client.cluster().seq == seq


def test_tokens_are_private_and_stored_as_hashes(server):
    for name in ("token", "agent.token", "tokens.json", "server.json"):
        assert (server.data.root / name).stat().st_mode & 0o077 == 0
    assert server.token not in (server.data.root / "tokens.json").read_text()


def test_the_token_stays_the_same_over_a_restart(tmp_path):
    from penstock.server.auth import Tokens

    paths = tmp_path / "tokens.json", tmp_path / "token"
    tokens = []
    for _ in range(2):
        Tokens(paths[0]).ensure_local(paths[1])
        tokens.append(paths[1].read_text().strip())
    assert tokens[0] == tokens[1]
    assert Tokens(paths[0]).principal(tokens[0]) is not None
    assert Tokens(paths[0]).principal(tokens[0] + "x") is None
