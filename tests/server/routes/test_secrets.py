"""Secrets of jobs, on a real server: programs get them, and nothing else shows them."""

import asyncio
import json
import sqlite3
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request

from penstock.bootstrap import RealClock
from penstock.client import ApiProblem
from penstock.control.metrics import MemoryMetrics
from penstock.core.messages.access import SecretDone, SetSecret
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import SecretSet
from penstock.core.model.secrets import Secret
from penstock.core.state.secrets import Secrets
from penstock.core.state.subscriptions import Subscriptions
from penstock.core.state.tokens import local_scope
from penstock.security.vault import Vault
from penstock.server.http.accesslog import AccessLog
from penstock.server.http.pools import Pools
from penstock.server.routes.secrets import sealing_turn, secret_routes
from tests.server.harness import Jobs, Server, until

VALUE = "tok_Zq81hPwx55"
OTHER = "tok_9m2LLaxR71"


@pytest.fixture
def kept(server):
    """A secret of whoever runs the server."""
    server.client.set_secret("TOKEN", VALUE)
    yield "TOKEN"
    server.client.remove_secret("TOKEN")


def everything(server: Server, job_id: int) -> str:
    """Return all that the API says of a job, and the whole log."""
    paths = ["", "/events", "/outputs", "/explanation", "/logs?attempt=1", "/logs?attempt=1&offset=3&limit=5"]
    texts = [server.http("GET", f"/api/v1/jobs/{job_id}{path}").body for path in paths]
    texts += [
        server.http("GET", f"/api/v1/{path}").body for path in ("events?limit=10000", "secrets", "jobs?finished=true")
    ]
    return b"\n".join(texts).decode()


def test_a_value_in_a_report_is_no_name_of_a_metric(server, kept, jobs):
    line = '{\\"kind\\":\\"progress\\",\\"step\\":1,\\"a\\":1,\\"$TOKEN\\":2}'
    job = jobs.submit(f'echo "{line}" > "$PENSTOCK_REPORT_FILE"', secrets=[kept])
    assert jobs.ended(job).state == "succeeded"
    assert [one.name for one in jobs.client.reported(job).metrics] == ["a"]
    assert VALUE not in server.http("GET", f"/api/v1/jobs/{job}/reported").body.decode()


def test_a_program_gets_the_value_and_nothing_else_shows_it(server, kept, jobs):
    proof = 'test "$TOKEN" = tok_Zq81$(echo hPwx55) && test "$AGAIN" = "$TOKEN" && echo "got $TOKEN"'
    job = jobs.submit(proof, secrets={"TOKEN": kept, "AGAIN": kept})
    assert jobs.ended(job).state == "succeeded"
    shown = everything(server, job)
    assert f"got {'*' * len(VALUE)}" in shown
    assert VALUE not in shown
    for path in [*server.data.log.glob("*"), *server.data.root.glob("nodes/*/*"), server.root / "server.log"]:
        assert VALUE.encode() not in path.read_bytes(), path
    assert not [
        event for event in server.client.events() if getattr(getattr(event.event, "secret", None), "sealed", "")
    ]


def test_what_a_program_dies_of_is_logged_without_the_value(server, kept, jobs):
    job = jobs.submit(["python3", "-c", "import os; raise ValueError('bad ' + os.environ['TOKEN'])"], secrets=[kept])
    assert jobs.ended(job).reason == f"exit 1 (ValueError: bad {'*' * len(VALUE)})"
    assert VALUE not in everything(server, job)


def test_an_output_in_small_pieces_adds_up_to_the_masked_one(server, kept, jobs):
    job = jobs.submit("printf 'a%sb%s' $TOKEN $TOKEN", secrets=[kept])
    jobs.ended(job)
    whole = server.http("GET", f"/api/v1/jobs/{job}/logs?attempt=1").body
    assert whole == b"a" + b"*" * len(VALUE) + b"b" + b"*" * len(VALUE)
    pieces = [
        server.http("GET", f"/api/v1/jobs/{job}/logs?attempt=1&offset={at}&limit=3").body
        for at in range(0, len(whole), 3)
    ]
    assert b"".join(pieces) == whole


def test_what_is_set_anew_is_what_the_next_start_gets(server, kept, jobs):
    server.client.set_secret(kept, OTHER)
    job = jobs.submit("test ${#TOKEN} = 14; case $TOKEN in tok_9m2*) exit 0; esac; exit 1", secrets=[kept])
    assert jobs.ended(job).state == "succeeded"


def test_a_job_that_needs_it_keeps_it_from_being_removed(server, kept, jobs):
    job = jobs.submit("sleep 60", secrets=[kept])
    jobs.state(job, "running")
    with pytest.raises(ApiProblem, match=f"is needed by job {job}"):
        server.client.remove_secret(kept)


def test_an_unknown_secret_is_refused_before_anything_is_submitted(server):
    with pytest.raises(ApiProblem, match="there is no secret 'NOTHING'"):
        server.client.submit({"command": "true", "secrets": ["NOTHING"]})


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("a%20b", {"value": "x"}, "name"),
        ("A" * 64, {"value": "x"}, "name"),
        ("A", {"value": ""}, "value"),
        ("A", {"value": "x\0y"}, "value"),
        ("A", {"value": "\u00e9" * 16_385}, "value"),
        ("A", {"value": 5}, "value"),
        ("A", {"value": "x", "tenant": "nowhere"}, "tenant"),
        ("A", {"valeu": "x"}, "body"),
    ],
)
def test_bad_input_names_its_field_and_leaves_nothing(server, name, body, field):
    found = server.http("PUT", f"/api/v1/secrets/{name}", json.dumps(body).encode())
    assert (found.status, [p["field"] for p in found.json()["problems"]]) == (422, [field])
    assert server.client.secrets() == []


def test_with_a_new_key_all_is_as_before_and_what_was_replaced_is_lost(server, kept, jobs):
    server.client.set_secret("GONE", OTHER, tenant="default")
    server.client.remove_secret("GONE", tenant="default")
    keys = server.data.secret_keys.read_bytes()
    done = server.client.rotate_secret_key()
    assert (done.sealed, done.dropped) == (1, 1)
    assert server.data.secret_keys.read_bytes() != keys
    job = jobs.submit("case $TOKEN in tok_Zq81*) exit 0; esac; exit 1", secrets=[kept])
    assert jobs.ended(job).state == "succeeded"


def test_secrets_outlive_the_server_and_go_into_no_copy_in_the_clear(tmp_path):
    with Server(tmp_path / "data") as server:
        server.client.set_secret("TOKEN", VALUE)
        server.client.set_secret("TEAM", OTHER, tenant="default")
        user = server.client.me().user
        server.stop()
        server.start()
        job = Jobs(server.client).submit("test ${#TOKEN} = 14 && test ${#TEAM} = 14", secrets=["TOKEN", "TEAM"])
        assert Jobs(server.client).ended(job).state == "succeeded"
        copy = sqlite3.connect(server.data.log / "log.sqlite")
        assert not [row for row in copy.iterdump() if VALUE in row or OTHER in row]
        copy.close()
        server.data.secret_keys.unlink()
        server.stop()
        server.start()
        lost = Jobs(server.client).submit("true", secrets=["TOKEN"])
        ended = until(lambda: j if (j := server.client.job(lost)).state == "failed" else None, "the job fails")
        assert ended.reason == f"exit 126 (the key of secret TOKEN of user {user} is not in secrets.key)"
        assert all(not node.draining for node in server.client.nodes())
        server.client.set_secret("TOKEN", VALUE)
        job = Jobs(server.client).submit("true", secrets=["TOKEN"])
        assert Jobs(server.client).ended(job).state == "succeeded"


def test_what_is_set_while_the_key_is_replaced_can_be_opened(tmp_path):
    vault, known = Vault(tmp_path / "secrets.key"), Secrets()
    former = vault.seal(Secret("OLD", owner="ann"), VALUE)
    known.apply(SecretSet(former))

    async def race() -> None:
        async def ask(request: object) -> SecretDone:
            """Commit; a new value only after the key was replaced, unless that waits for it."""
            if isinstance(request, SetSecret):
                await asyncio.sleep(0.5)
                known.apply(SecretSet(request.secret))
            else:
                for sealed in request.sealed:
                    known.apply(SecretSet(sealed))
            return SecretDone()

        app, state = FastAPI(), SimpleNamespace(secrets=known, subscriptions=Subscriptions(), config=ClusterConfig())
        kept = SimpleNamespace(
            vault=vault, state=state, ask=ask, access=AccessLog(RealClock(), MemoryMetrics()), pools=Pools()
        )
        secret_routes(app, kept, sealing_turn(), Any)
        routes = {route.name: route.endpoint for route in app.routes if isinstance(route, APIRoute)}
        body = json.dumps({"value": OTHER}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        request = Request({"type": "http", "method": "PUT", "headers": []}, receive)
        setting = asyncio.create_task(routes["set_secret"](request, local_scope("ann"), "NEW"))
        await asyncio.sleep(0.1)
        rotation = asyncio.create_task(routes["rotate_secret_key"](local_scope("ann")))
        assert [one.status_code for one in await asyncio.gather(setting, rotation)] == [200, 200]

    asyncio.run(race())
    assert {one.name: vault.open(one) for one in known.by_holder.values()} == {"OLD": VALUE, "NEW": OTHER}
