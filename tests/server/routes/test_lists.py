"""The shorter lists: all of them are paged, sorted, filtered, cut to fields and counted in one way."""

from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem
from penstock.testing.server import InProcessServer

CLUSTER = {
    "nodes": [{"name": f"n{i}", "cpus": 8, "simulated_devices": {"count": 4}} for i in (1, 2)],
    "pools": ["default", "spare"],
    "tenants": ["a", "b"],
    "users": [{"name": "ann", "role": "viewer"}, {"name": "bob", "tenants": {"a": "member"}}],
    "queues": [
        {"name": "default", "max": {"devices": 8}},
        {"name": "night", "parent": "default", "policy": "fifo", "max": {"devices": 8}},
        {"name": "day", "parent": "default", "policy": "priority"},
    ],
    "billing": {"prices": [{"resource": "device", "per_hour": 2}]},
}
LISTS = {
    "queues": ("queues", "-name", "name"),
    "pools": ("pools", "-name", "name"),
    "quotas": ("quotas", "-name", "name"),
    "alerts": ("alerts", "code", "code"),
    "eta": ("jobs", "-id", "id"),
    "tokens": ("tokens", "-id", "id"),
    "secrets": ("secrets", "-name", "name"),
    "accounts": ("accounts", "-tenant", "tenant"),
    "ledger": ("entries", "-seq", "seq"),
    "invoices": ("invoices", "-number", "number"),
    "usage": ("rows", "-tenant", "tenant"),
    "waste": ("rows", "-tenant", "tenant"),
    "nodes": ("nodes", "-name", "name"),
    "jobs": ("jobs", "-id", "id"),
}
"""Each list: the field of its rows, an order, and the field by which that is."""


@pytest.fixture(scope="module")
def calm() -> Iterator[InProcessServer]:
    with InProcessServer(CLUSTER) as server:
        for tenant, queue in (("a", "night"), ("b", "day"), ("a", "day")):
            server.submit({"command": "sleep 60", "devices": 4, "tenant": tenant, "queue": queue})
        server.advance(300)
        for queue in ("night", "day", "day"):
            server.submit({"command": "sleep 6000", "devices": 4, "replicas": 2, "tenant": "a", "queue": queue})
        server.advance(5)
        for i in range(3):
            server.client.create_token({"user": "bob" if i else "ann", "level": "read", "note": f"number {i}"})
            server.client.add_credit("ab"[i % 2], {"amount": "10.00", "reference": f"transfer {i}"})
        yield server


def rows(server, path, **query):
    return server.client.listed(path, **query)[LISTS[path][0]]


@pytest.mark.parametrize("path", sorted(LISTS))
def test_pages_of_every_list_are_the_whole_list(calm, path):
    key, sort, field = LISTS[path]
    whole, cursor, pages = rows(calm, path, sort=sort, limit=1000), "", []
    for _ in range(len(whole) + 1):
        found = calm.client.listed(path, sort=sort, limit=1, cursor=cursor)
        pages += found[key]
        cursor = found["next_cursor"]
        if not cursor:
            break
    assert (pages, cursor) == (whole, "")
    values = [row[field] for row in whole]
    assert values == sorted(values, reverse=sort.startswith("-"))
    assert len(whole) >= (0 if path in ("invoices", "secrets", "alerts") else 2)


@pytest.mark.parametrize("path", sorted(LISTS))
def test_every_list_knows_its_fields_and_names_the_nearest(calm, path):
    field = LISTS[path][2]
    assert all(list(row) == [field] for row in rows(calm, path, fields=field))
    with pytest.raises(ApiProblem) as refused:
        calm.client.listed(path, fields=f"{field}s")
    assert (refused.value.problems[0].code, refused.value.problems[0].field) == ("unknown_field", "fields")


@pytest.mark.parametrize(
    ("path", "query", "field", "expected"),
    [
        ("queues", {"policy": "fifo", "max": {"devices": 8}}, "name", ["night"]),
        ("queues", {"has_waiting": "true", "name": "d*"}, "name", ["day"]),
        ("quotas", {"kind": "queue", "name": "default", "resource": "devices"}, "name", ["default"]),
        ("alerts", {"code": "no such code"}, "code", []),
        ("eta", {"queue": "night"}, "queue", []),
        ("tokens", {"user": "b*", "search": "NUMBER 2"}, "user", ["bob"]),
        ("accounts", {"held": "true"}, "tenant", []),
        ("ledger", {"account": "credit:b", "search": "transfer 1"}, "tenant", ["b"]),
        ("usage", {"tenant": "b"}, "tenant", ["b"]),
        ("usage", {"by": "queue", "sort": "-devices", "limit": 1}, "queue", ["day"]),
        ("waste", {"tenant": "a"}, "tenant", ["a"]),
    ],
)
def test_every_list_has_filters_of_its_own(calm, path, query, field, expected):
    assert [row[field] for row in rows(calm, path, **query)] == expected


def test_what_matches_is_counted_on_all_pages(calm):
    found = calm.client.listed("tokens", totals_by="user", limit=1, level="read")
    assert found["groups"] == [{"name": "bob", "count": 2, "devices": 0}, {"name": "ann", "count": 1, "devices": 0}]
    assert (found["matching"], len(found["tokens"])) == (3, 1)


def test_a_condition_on_a_dimension_that_rows_lack_is_refused(calm):
    with pytest.raises(ApiProblem) as refused:
        calm.client.listed("usage", by="queue", user="bob")
    assert refused.value.problems[0].hint == "add it: by=queue,user"


def test_events_are_found_by_kind_job_and_time(calm):
    ended = calm.client.events_of(kind="JobFinished")
    assert [record.event.job_id for record in ended] == [1, 2, 3]
    assert calm.client.events_of(kind=["JobFinished", "JobSubmitted"], job=2) == [
        record for record in calm.client.job_events(2) if type(record.event).__name__ in ("JobFinished", "JobSubmitted")
    ]
    times = sorted({record.time_ms for record in calm.client.all_events()})
    for since, until in ((times[1], times[-1]), (times[-1], times[1]), (times[-1] + 1, 0), (0, times[2])):
        query = {"since": _text(since)} | ({"until": _text(until)} if until else {})
        expected = [r.seq for r in calm.client.all_events() if r.time_ms >= since and (not until or r.time_ms < until)]
        assert [record.seq for record in calm.client.events_of(**query)] == expected


def _text(time_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def test_an_unknown_kind_of_event_is_refused_with_the_nearest(calm):
    with pytest.raises(ApiProblem) as refused:
        calm.client.events_of(kind="JobFinnished")
    assert refused.value.problems[0].hint == "did you mean 'JobFinished'?"
