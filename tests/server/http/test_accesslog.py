"""Who was turned away is in the log: for administrators alone, without secrets, and bounded whatever is tried."""

import asyncio
import datetime as dt
import json
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from penstock.control import messages as msg
from penstock.control.metrics import MemoryMetrics
from penstock.core.model.access_events import AccessEntry, AccessNoted
from penstock.core.state.state import State
from penstock.security.keeper import CertificateKeeper
from penstock.server.http.accesslog import OTHERS, PERIOD_MS, SUBJECTS_MAX, TEXT_MAX_CHARS, USER, AccessLog
from penstock.server.http.responses import ApiError
from penstock.server.services.access_notes import AccessKeeper
from tests.server.harness import Server, cluster_file, until

API = "/api/v1"
WRONG = "pst_Rq7wPz0aaFmW"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def unix_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> AccessLog:
    return AccessLog(clock, MemoryMetrics())


def asked(method: str, user: str = "ann") -> Request:
    found = Request({"type": "http", "method": method, "headers": [], "route": SimpleNamespace(path="/api/v1/x/{y}")})
    found.scope[USER] = user
    return found


def test_attempts_alike_are_one_entry_with_their_number(log, clock):
    for _ in range(3):
        log.note("login_failed", "10.0.0.1", "the token is not valid")
        clock.now += 5
    entry = AccessEntry("10.0.0.1", "the token is not valid", 3, 1_000, 1_010)
    assert log.due() == (AccessNoted("login_failed", (entry,)),)
    assert log.due() == ()


def test_attempts_are_counted_by_their_kind(clock):
    metrics = MemoryMetrics()
    log = AccessLog(clock, metrics)
    for kind in ("login_failed", "act_refused", "login_failed"):
        log.note(kind, "10.0.0.1", "why")
    counted = {series.labels["kind"]: series.count for series in metrics.series() if series.name == "access_notes"}
    assert counted == {"act_refused": 1, "login_failed": 2}


def test_a_flood_is_one_short_record_a_minute(log, clock):
    records = []
    for number in range(10_000):
        log.note("login_failed", f"10.0.{number // 250}.{number % 250}", f"{number} " + 900 * "x")
        clock.now += 18
        records += log.due()
    records += log.due(all_kinds=True)
    assert len(records) == 10_000 * 18 // PERIOD_MS + 1
    assert max(len(record.entries) for record in records) == SUBJECTS_MAX + 1
    assert sum(one.count for record in records for one in record.entries) == 10_000
    assert {len(one.what) for record in records for one in record.entries if one.subject != OTHERS} == {TEXT_MAX_CHARS}


def test_kinds_do_not_wait_for_each_other(log):
    log.note("login_failed", "10.0.0.1", "x")
    log.due()
    log.note("act_refused", "ann", "y")
    log.note("login_failed", "10.0.0.1", "x")
    assert [event.kind for event in log.due()] == ["act_refused"]


def test_replaced_keys_are_written_each_time(log):
    for _ in range(3):
        log.replaced("authority")
        log.replaced("certificate")
        assert [event.kind for event in log.due()] == ["authority_replaced", "certificate_replaced"]


def test_a_text_is_one_line(log):
    log.note("act_refused", "an\x1b[2Jn", "two\nlines")
    (event,) = log.due()
    assert [(one.subject, one.what) for one in event.entries] == [("an?[2Jn", "two?lines")]


@pytest.mark.parametrize(("method", "noted"), [("POST", 1), ("DELETE", 1), ("PUT", 1), ("GET", 0)])
def test_only_acts_are_noted_not_what_may_not_be_read(log, method, noted):
    log.answered(asked(method), ApiError("forbidden", "you may not do it"))
    log.answered(asked(method), ApiError("not_found", "there is none"))
    found = [one for event in log.due() for one in event.entries]
    assert [(one.subject, one.what) for one in found] == [
        ("ann", f"{method} /api/v1/x/{{y}}: you may not do it")
    ] * noted


def test_a_failed_login_is_noted_by_its_network_without_the_token(log):
    request = asked("GET")
    request.scope["client"] = ("2001:db8:1:2:3::4", 5)
    log.came(request, None, WRONG, State())
    log.came(request, None, "", State())
    (event,) = log.due()
    assert [(one.subject, one.what) for one in event.entries] == [
        ("2001:db8:1:2::/64", "no token was sent"),
        ("2001:db8:1:2::/64", "the token is not valid"),
    ]


def test_what_could_not_be_written_is_written_later(log, clock):
    written = []

    async def ask(request: msg.NoteAccess) -> msg.Done:
        if not written:
            written.append(())
            raise ApiError("store_full", "no room")
        written.append(request.events)
        return msg.Done()

    keeper = AccessKeeper(SimpleNamespace(access=log, ask=ask))
    log.note("login_failed", "10.0.0.1", "x")
    with pytest.raises(ApiError):
        asyncio.run(keeper.look())
    clock.now += PERIOD_MS
    log.note("login_failed", "10.0.0.1", "x")
    asyncio.run(keeper.look())
    asyncio.run(keeper.look())
    assert written[1:] == [(AccessNoted("login_failed", (AccessEntry("10.0.0.1", "x", 2, 1_000, 61_000),)),)]


# On a real server.


@pytest.fixture
def server(tmp_path):
    users = [{"name": "vera", "role": "viewer"}, {"name": "adele", "role": "admin"}]
    with Server(tmp_path / "data", cluster_file(1, 1) | {"users": users}) as running:
        yield running


def token_of(server, user, level):
    body = json.dumps({"user": user, "level": level}).encode()
    return server.http("POST", f"{API}/tokens", body).json()["token"]


def noted(server, **headers):
    records = server.http("GET", f"{API}/events?limit=10000", **headers).json()
    events = [one["event"] for one in records if one["event"]["type"] == "AccessNoted"]
    return {(event["kind"], one["subject"], one["what"]) for event in events for one in event["entries"]}


def test_administrators_find_who_was_turned_away_and_what_was_replaced(server):
    vera, adele = token_of(server, "vera", "admin"), token_of(server, "adele", "admin")
    assert server.http("GET", f"{API}/jobs", token=WRONG).status == 401
    assert server.http("POST", f"{API}/nodes/n1/drain", token=vera).status == 403
    assert server.http("POST", f"{API}/secret-key", token=adele).status == 200
    CertificateKeeper(server.data.certificates).rotate(dt.datetime.now(dt.UTC))
    expected = {
        ("login_failed", "127.0.0.1", "the token is not valid"),
        ("act_refused", "vera", "POST /api/v1/nodes/{node}/drain: you may not close or open nodes"),
        ("secret_key_rotated", "adele", "0 secrets sealed again, 0 keys dropped"),
        ("authority_replaced", "server", "another authority"),
    }
    until(lambda: expected <= noted(server, token=adele), f"the log has {expected}")
    assert noted(server, token=vera) == set()
    assert WRONG[4:] not in server.http("GET", f"{API}/events?limit=10000").body.decode()


def test_what_was_gathered_is_written_when_the_server_ends(server):
    for _ in range(2):
        server.http("GET", f"{API}/jobs", token=WRONG)
        until(lambda: noted(server), "the first is written")
    server.http("GET", f"{API}/nodes", token="")
    server.stop()
    server.start()
    assert ("login_failed", "127.0.0.1", "no token was sent") in noted(server)
