"""What looks back over HTTP: timelines and series, by scope."""

import contextlib
from types import SimpleNamespace

import pytest

from penstock.client import ApiProblem, Client
from penstock.server.services import history as service
from penstock.server.services.history import HistoryService
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

CLUSTER = cluster_file(2, 4, job_account="root") | {
    "tenants": [{"name": "vision"}, {"name": "audio"}],
    "users": [
        {"name": "ann", "tenants": {"vision": "member"}},
        {"name": "bob", "tenants": {"audio": "member"}},
        {"name": "cat", "tenants": {"vision": "viewer", "audio": "viewer"}},
    ],
}


@pytest.fixture(scope="module")
def server():
    """Two minutes of a cluster: a job of each tenant, one over, and one that waited for its room."""
    with InProcessServer(CLUSTER) as running, contextlib.ExitStack() as ending:

        def of(user):
            token = running.client.create_token({"user": user}).token
            return ending.enter_context(contextlib.closing(Client.at(running.url, token=token, insecure=True)))

        running.ann, running.bob = of("ann"), of("bob")
        running.begun_ms = running.engine.clock.unix_ms()
        for client, name, tenant, devices, seconds in (
            (running.ann, "seen", "vision", 4, 60),
            (running.bob, "hidden", "audio", 4, 600),
            (running.ann, "later", "vision", 2, 600),
        ):
            client.submit({"name": name, "tenant": tenant, "command": f"sleep {seconds}", "devices": devices})
            running.settle()
        running.advance(120)
        yield running


def shown(found):
    return [(found.rows[one.row].key, one.name, one.end_ms) for one in found.bars]


def test_an_administrator_sees_each_bar_with_its_job(server):
    found = server.client.timeline()
    end_ms = server.begun_ms + 60_000
    assert shown(found) == [("n1", "seen", end_ms), ("n1", "later", None), ("n2", "hidden", None)]
    assert [(row.key, row.devices, row.bars) for row in found.rows] == [("n1", 4, 2), ("n2", 4, 1)]
    first = found.bars[0]
    assert (first.start_ms, first.devices, first.held_devices) == (server.begun_ms, [0, 1, 2, 3], 4.0)
    assert (first.outcome, first.tenant, first.user, first.attempt) == ("succeeded", "vision", "ann", 1)
    assert (found.complete, found.merged, found.since_ms) == (True, False, 0)


def test_of_jobs_of_others_a_member_sees_only_that_devices_were_held(server):
    found = server.ann.timeline()
    assert shown(found) == [("n1", "seen", server.begun_ms + 60_000), ("n1", "later", None), ("n2", "", None)]
    other = found.bars[2]
    assert (other.held, other.devices, other.start_ms) == (True, [0, 1, 2, 3], server.begun_ms)
    assert (other.job, other.attempt, other.tenant, other.user) == (0, 0, "", "")


@pytest.mark.parametrize(("by", "rows"), [("tenant", ["vision"]), ("user", ["ann"]), ("job", ["1", "3"])])
def test_rows_of_others_are_left_out(server, by, rows):
    assert [row.key for row in server.ann.timeline(by=by).rows] == rows


def test_pages_go_on_after_the_last_row(server):
    first = server.client.timeline(by="job", limit=2)
    second = server.client.timeline(by="job", limit=2, cursor=first.next_cursor)
    assert ([row.key for row in first.rows], [row.key for row in second.rows]) == (["1", "2"], ["3"])
    assert second.next_cursor == ""


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"until": "2023-11-14T00:00Z", "from": "2023-11-14T00:00Z"}, "from"),
        ({"from": "2023-10-01T00:00Z", "until": "2023-11-02T00:00Z"}, "from"),
        ({"tenant": "audio"}, "tenant"),
    ],
)
def test_bad_input_is_named(server, query, field):
    with pytest.raises(ApiProblem) as refused:
        server.ann.timeline(**query)
    assert [one.field for one in refused.value.details.problems] == [field]


def series(client, *names, **query):
    return {(one.name, *one.labels.values()): one for one in client.cluster_series(*names, **query).series}


def test_series_of_the_cluster_are_for_everybody(server):
    for client in (server.client, server.ann):
        found = series(client)
        held = found["cluster_devices_held",]
        assert (held.values[-1], held.lowest[-1], held.highest[-1], held.unit) == (6.0, 6.0, 6.0, "devices")
        assert found["cluster_devices_held", "SIM-80G"].values == held.values
        assert found["cluster_devices_free",].values[-1] == 2.0
        assert (found["cluster_jobs_running",].values[-1], found["cluster_jobs_waiting",].values[-1]) == (2.0, 0.0)


def test_other_series_are_of_the_tenants_that_the_caller_sees(server):
    def held(client, **query):
        return series(client, "devices_held", **query)["devices_held",].values[-1]

    assert (held(server.client), held(server.ann), held(server.bob)) == (6.0, 2.0, 4.0)
    assert (held(server.client, tenant="vision"), held(server.client, tenant="audio")) == (2.0, 4.0)
    starts = {user: series(getattr(server, user), "starts", "ends") for user in ("client", "ann", "bob")}
    sums = {user: [sum(filter(None, one.values)) for one in found.values()] for user, found in starts.items()}
    assert sums == {"client": [3.0, 1.0], "ann": [2.0, 1.0], "bob": [1.0, 0.0]}


def test_several_tenants_are_added_up(server):
    token = server.client.create_token({"user": "cat"}).token
    with contextlib.closing(Client.at(server.url, token=token, insecure=True)) as both:
        found = series(both, "devices_held")["devices_held",]
    assert (found.values[-1], found.lowest) == (6.0, [])


def test_why_jobs_wait_is_kept_with_its_reasons(server):
    waits = {"name": "waits", "tenant": "audio", "command": "true", "devices": 4}
    job = server.bob.submit(waits).jobs[0].id
    server.advance(60)
    server.advance(20)
    found = {user: series(getattr(server, user), "waiting_by_reason") for user in ("client", "ann", "bob")}
    server.bob.cancel(job)
    server.advance(10)
    server.advance(20)
    assert found["client"].keys() == found["bob"].keys() == {("waiting_by_reason", "no_fit")}
    assert found["bob"]["waiting_by_reason", "no_fit"].values[-1] == 1.0
    assert found["ann"] == {}
    assert series(server.bob, "waiting_by_reason")["waiting_by_reason", "no_fit"].lowest[-1] == 0.0


def test_how_long_the_server_takes_is_for_who_sees_everything(server):
    found = series(server.client, "cycle_time", "submit_latency")
    assert all(any(value and value > 0 for value in one.values) for one in found.values())
    with pytest.raises(ApiProblem) as refused:
        server.ann.cluster_series("cycle_time")
    assert refused.value.details.code == "forbidden"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"names": "devices_hold"}, "names"),
        ({"step": "often"}, "step"),
        ({"step": "91d"}, "step"),
        ({"tenant": "audio"}, "tenant"),
        ({"from": "2023-01-01T00:00Z"}, "from"),
    ],
)
def test_bad_input_of_series_is_named(server, query, field):
    with pytest.raises(ApiProblem) as refused:
        server.ann.cluster_series(**query)
    assert [one.field for one in refused.value.details.problems] == [field]


def followed(server, kept=None):
    given = server._backend
    backend = SimpleNamespace(
        log=server._store, durable_seq=given.durable_seq, clock=given.clock, state=given.state, service=given.service,
        metrics=given.metrics,
    )  # fmt: skip
    store = kept or SimpleNamespace(projection=lambda name: None)
    return HistoryService(backend, store)


def jobs(span):
    return [one.job_id for one in span.source()]


def test_a_server_that_has_just_started_says_what_it_does_not_know_yet(server, monkeypatch):
    monkeypatch.setattr(service, "BATCH", 2)
    monkeypatch.setattr(service, "REQUEST_RECORDS", 4)
    history = followed(server)
    spans = [history.allocations(0, 2**60)]
    while not spans[-1].complete:
        spans.append(history.allocations(0, 2**60))
    assert spans[0].seq == 4
    assert (jobs(spans[0]), jobs(spans[-1])) == ([], [1, 2, 3])


class Kept:
    """A store that keeps one projection."""

    def __init__(self, body=None):
        self.kept = body and (1, body)

    def save_projection(self, name, seq, body):
        self.kept = seq, body

    def projection(self, name):
        return self.kept


def test_a_start_goes_on_from_what_was_kept(server, monkeypatch):
    monkeypatch.setattr(service, "KEEP_EVERY_RECORDS", 1)
    kept = Kept()
    followed(server, kept).catch_up()
    seq = kept.kept[0]
    assert seq == server._backend.durable_seq
    again = followed(server, kept)
    monkeypatch.setattr(again._backend, "log", SimpleNamespace(records=lambda after, limit: [][after - seq :]))
    span = again.allocations(0, 2**60)
    assert (jobs(span), span.seq) == ([1, 2, 3], seq)


def test_what_another_version_kept_is_worked_out_anew(server):
    assert jobs(followed(server, Kept(b"\x93")).allocations(0, 2**60)) == [1, 2, 3]
