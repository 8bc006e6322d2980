"""What looks back over HTTP: timelines of what was held, by scope."""

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
    "users": [{"name": "ann", "tenants": {"vision": "member"}}, {"name": "bob", "tenants": {"audio": "member"}}],
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


def followed(server, kept=None):
    backend = SimpleNamespace(log=server._store, durable_seq=server._backend.durable_seq)
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
    followed(server, kept)._look()
    seq = kept.kept[0]
    assert seq == server._backend.durable_seq
    again = followed(server, kept)
    monkeypatch.setattr(again._backend, "log", SimpleNamespace(records=lambda after, limit: [][after - seq :]))
    span = again.allocations(0, 2**60)
    assert (jobs(span), span.seq) == ([1, 2, 3], seq)


def test_what_another_version_kept_is_worked_out_anew(server):
    assert jobs(followed(server, Kept(b"\x93")).allocations(0, 2**60)) == [1, 2, 3]
