"""Usage over HTTP: recomputed from a log that goes back months, as JSON and as tables."""

import csv
import importlib.util
import io
import time
from urllib.parse import urlencode

import msgspec
import pytest

from penstock.core.model.answers import ModelUsage, UsageRow
from penstock.server.routes.usage import COLUMNS, _lines, _summed
from tests.server.services.test_billing import DAY, PIECES, past_server

HOURS = {tenant: 24 * sum((a - b) * n for a, b, n in pieces) for tenant, pieces in PIECES.items()}


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    server, now_ms = past_server(tmp_path_factory.mktemp("usage"))
    with server:
        server.begun_ms = now_ms
        yield server


def get(server, **query):
    return server.http("GET", f"/api/v1/usage?{urlencode(query)}")


def table(server, **query):
    return list(csv.DictReader(io.StringIO(get(server, format="csv", **query).body.decode())))


def iso(time_ms):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def hours(rows, key="tenant"):
    return {getattr(row, key): row.device_milli_ms / 3_600_000_000 for row in rows}


def test_device_hours_are_those_that_were_held(past):
    assert hours(past.client.usage().rows) == pytest.approx(HOURS, abs=0.01)
    assert [row.tenant for row in past.client.usage().rows] == sorted(PIECES)


def test_other_dimensions_add_up_to_the_same(past):
    whole = sum(HOURS.values())
    for by in ("user", "queue", "pool", "job", "node", "job,user", "node,tenant"):
        assert sum(hours(past.client.usage(by).rows, by.split(",")[0]).values()) <= whole + 0.01
        rows = past.client.usage(by).rows
        assert sum(row.device_milli_ms for row in rows) / 3_600_000_000 == pytest.approx(whole, abs=0.01)
    assert sorted(row.job for row in past.client.usage("job").rows) == [1, 2, 3, 4]
    (row,) = past.client.usage("pool").rows
    assert (row.tenant, row.jobs) == ("", 4)


def test_a_span_is_cut_out(past):
    since, until = past.begun_ms - 60 * DAY, past.begun_ms - 50 * DAY
    rows = past.client.usage(since=iso(since), until=iso(until)).rows
    assert hours(rows) == pytest.approx({"vision": 240, "audio": 12}, abs=0.01)


def test_a_span_can_begin_some_time_ago(past):
    ago = past.client.usage(since="60d")
    assert past.begun_ms - 60 * DAY - 3_600_000 <= ago.from_ms <= past.begun_ms - 59 * DAY
    assert ago.from_ms % 3_600_000 == 0, "in whole hours, so that it stays the same question"
    assert ago.rows == past.client.usage(since=iso(ago.from_ms)).rows
    assert 0 < hours(ago.rows)["vision"] < HOURS["vision"]
    assert past.client.usage(since="99999d").rows == past.client.usage().rows


def test_the_row_of_one_job_is_that_of_all_jobs(past):
    rows = {row.job: row for row in past.client.usage("job").rows}
    for job, row in rows.items():
        assert get(past, by="job", job=job).json()["rows"] == msgspec.to_builtins([row])
    assert get(past, by="job", job=99).json()["rows"] == []


def test_tables_say_the_same(past):
    found = {row["tenant"]: float(row["device_hours"]) for row in table(past)}
    assert found == pytest.approx(HOURS, abs=0.01)
    columns = set(table(past, by="job,node")[0])
    assert {"job", "node", "model", "device_hours", "gib_hours"} <= columns
    assert not {"tenant", "user"} & columns


def test_each_line_of_a_table_has_its_model_alone_so_that_columns_add_up():
    a = ModelUsage("A100", 3_600_000_000, 7_200_000_000, 0, 3_600_000_000, 1_800_000_000, 1, 1)
    b = ModelUsage("H100", 7_200_000_000, 3_600_000_000, 0, jobs=2, attempts=3)
    row = UsageRow("vision", job=7, models=[a, b])
    names = ("model", "device_hours", "measured_device_hours", "used_device_hours", "cpu_hours", "jobs", "attempts")
    found = [dict(zip(COLUMNS, line, strict=True)) for line in _lines([row])]
    assert [[line[name] for name in names] for line in found] == [
        ["A100", 1.0, 1.0, 0.5, 2.0, 1, 1],
        ["H100", 2.0, 0.0, 0.0, 1.0, 2, 3],
    ]
    assert [line["tenant"] for line in found] == ["vision", "vision"]


def test_models_are_joined_where_the_tenant_was_not_asked_for():
    rows = [UsageRow(tenant, models=[ModelUsage("A100", 1, 2, 3, 4, 5, 1, 2)]) for tenant in "ab"]
    (row,) = _summed(rows, ("pool",))
    assert row.models == [ModelUsage("A100", 2, 4, 6, 8, 10, 2, 4)]


def test_json_and_tables_have_the_same_figures_by_model(past):
    (row, _) = past.client.usage("tenant").rows
    (line, _) = table(past, by="tenant")
    (one,) = row.models
    assert (line["model"], float(line["cpu_hours"])) == (one.model, pytest.approx(one.cpu_milli_ms / 3.6e9))
    assert (row.device_milli_ms, row.cpu_milli_ms) == (one.device_milli_ms, one.cpu_milli_ms)


@pytest.mark.parametrize("by", ["tenant", "user"])
def test_device_time_by_model_is_that_of_the_models(past, by):
    rows = past.client.usage(by).rows
    assert [row.by_model for row in rows] == [{"A100": row.device_milli_ms} for row in rows]


def test_parquet_needs_its_library(past):
    answer = get(past, format="parquet")
    if importlib.util.find_spec("pyarrow") is None:
        assert (answer.status, "pyarrow" in answer.json()["title"]) == (501, True)
    else:
        assert answer.body.startswith(b"PAR1")


@pytest.mark.parametrize(
    ("query", "field"),
    [({"by": "tennant"}, "by"), ({"by": ""}, "by"), ({"since": "yesterday"}, "since"), ({"until": "2026"}, "until")],
)
def test_bad_input_is_named(past, query, field):
    answer = get(past, **query)
    assert (answer.status, [one["field"] for one in answer.json()["problems"]]) == (422, [field])


def test_a_wrong_dimension_is_told_the_nearest(past):
    assert get(past, by="tennant").json()["problems"][0]["hint"] == "did you mean 'tenant'?"


def test_an_unknown_format_is_refused(past):
    assert get(past, format="xml").status == 422


def test_a_span_that_ends_before_it_begins_has_nothing(past):
    since, until = past.begun_ms - 50 * DAY, past.begun_ms - 60 * DAY
    assert past.client.usage(since=iso(since), until=iso(until)).rows == []


def test_a_page_may_have_what_was_worked_out_before(past):
    def asked(**headers):
        return past.http("GET", "/api/v1/usage?since=30d", **headers)

    kept = {"Cache-Control": "max-stale=3600"}
    asked()
    past.client.submit({"name": "later", "command": "true"})
    before = asked(**kept)
    assert before.headers["age"].isdigit()
    now = asked()
    assert "age" not in now.headers
    assert before.json()["until_ms"] < now.json()["until_ms"]
