"""The waste ledger over HTTP: recomputed from a log, with what it cost, and adding up to the bill."""

import csv
import importlib.util
import io
import time
from urllib.parse import urlencode

import pytest

from penstock.core.config.cluster import parse_cluster
from penstock.core.model import events as ev
from penstock.engines.processes.paths import DataFolder
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import node
from penstock.testing.harness import World, note
from tests.server.harness import Server
from tests.server.services.test_billing import DAY, declared

HOUR = 3_600_000
EURO_AN_HOUR = 3600


def write_log(folder, given, now_ms):
    """Write a log that ended yesterday: two tenants, programs that wait for data, one that hangs."""
    w = World(node("old", 4))
    w.now = now_ms - 60 * DAY
    w.emit(ev.ConfigChanged(parse_cluster(given)[0].config, "operator"))
    for days_ago, tenant, wait_milli in ((50, "vision", 1_000), (2, "vision", 250), (1.5, "audio", 0)):
        w.now = now_ms - round(days_ago * DAY)
        job = w.submit(1, cpus=0, tenant=tenant)
        w.run(job)
        note(w, job, 1, step_ms=HOUR, data_wait_milli=wait_milli)
        w.now += 2 * HOUR
        if tenant == "audio":
            w.emit(ev.HangFound(job, 1, 1, (), "hangs", HOUR))
            w.now += HOUR
        w.exit_replica(job)
    w.lose("old")
    store = SqliteStore(folder)
    store.append(w.records, (), store.acquire_epoch())
    store.close()


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    root, now_ms = tmp_path_factory.mktemp("waste"), round(time.time() * 1000)
    given = declared(prices=[{"per_hour": EURO_AN_HOUR}])
    write_log(DataFolder(root).log, given, now_ms)
    with Server(root, given) as server:
        server.begun_ms = now_ms
        yield server


def iso(time_ms):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def since(server, days):
    return {"since": iso(server.begun_ms - days * DAY)}


def test_rows_say_what_was_idle_and_why_and_what_it_cost(past):
    found = past.client.waste("tenant,job", **since(past, 10))
    euros = {
        row.tenant: (row.used_cost, row.data_cost, row.hang_cost, row.unknown_cost, row.cost) for row in found.rows
    }
    assert euros == {
        "vision": (540_000, 180_000, 0, 0, 720_000),
        "audio": (360_000, 0, 720_000, 0, 1_080_000),
    }
    assert [(row.job, row.data_milli_ms, row.hang_milli_ms) for row in found.rows] == [
        (3, 0, 1_000 * 2 * HOUR),
        (2, 1_000 * HOUR // 2, 0),
    ]
    assert (found.currency, found.digits, found.priced) == ("EUR", 2, True)


def test_without_the_tenant_rows_of_several_are_one(past):
    (row,) = past.client.waste("user", **since(past, 10)).rows
    assert (row.tenant, row.user, row.data_cost, row.hang_cost) == ("", "ann", 180_000, 720_000)


def test_costs_are_those_of_the_bill_of_the_present_month(past):
    bills = {one.tenant: one.total for one in past.client.bills().bills}
    found = past.client.waste()
    assert {row.tenant: row.cost for row in found.rows if row.cost} == bills


def test_older_waste_is_read_from_the_log(past):
    older = past.client.waste("job", **since(past, 55)).rows
    assert [(row.job, row.data_cost) for row in older] == [(1, 720_000), (2, 180_000), (3, 0)]


def test_tables_say_the_same(past):
    answer = past.http("GET", f"/api/v1/waste?{urlencode({'format': 'csv', 'by': 'job', **since(past, 10)})}")
    lines = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [(line["job"], line["data_cost"], line["hang_device_hours"]) for line in lines] == [
        ("2", "1800.00", "0.0"),
        ("3", "0.00", "2.0"),
    ]
    answer = past.http("GET", "/api/v1/waste?format=parquet")
    missing = importlib.util.find_spec("pyarrow") is None
    assert answer.status == 501 if missing else answer.body.startswith(b"PAR1")


@pytest.mark.parametrize(("query", "field"), [("by=tennant", "by"), ("since=yesterday", "since"), ("until=1", "until")])
def test_bad_input_is_named(past, query, field):
    answer = past.http("GET", f"/api/v1/waste?{query}")
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, field)
