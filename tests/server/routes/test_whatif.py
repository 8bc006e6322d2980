"""The what-if lab over HTTP: the server's own log under other rules, one after the other, beside it."""

import contextlib

import pytest

from penstock.client import ApiProblem, Client
from penstock.engines.processes.procfs import all_pids
from penstock.server.services import whatif as service
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.server.harness import until

BUSY = ("sleep", "600")
FOUR = {"set": ["queue.default.max.devices=4"]}
PRICES = {"billing": {"prices": [{"resource": "device", "per_hour": 2}]}}
CLUSTER = cluster_file(2, 4, job_account="root", predict_run_times=False) | PRICES | {
    "users": [
        {"name": "ann", "tenants": {"default": "tenant_admin"}},
        {"name": "vera", "role": "viewer"},
        {"name": "adele", "role": "admin"},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    """A busy minute: 24 jobs of two devices for ten seconds, submitted at once, four of which run at a time."""
    with InProcessServer(CLUSTER) as running, contextlib.ExitStack() as ending:

        def of(user):
            token = running.client.create_token({"user": user, "level": "admin"}).token
            return ending.enter_context(contextlib.closing(Client.at(running.url, token=token, insecure=True)))

        running.ann, running.vera, running.adele = of("ann"), of("vera"), of("adele")
        running.submit({"name": "work", "command": "sleep 10", "devices": 2, "array": 24})
        running.advance(70)
        yield running


@pytest.fixture
def busy(server, monkeypatch):
    """A lab whose work never ends by itself; at the end nothing is left of it."""
    monkeypatch.setattr(server._lab, "_command", BUSY)
    yield server
    for one in server.adele.whatifs():
        if one.state in ("queued", "running"):
            server.adele.cancel_whatif(one.id)
    until(lambda: not any(lab.process for lab in server._lab._labs.values()), "the processes are gone")
    server._lab._labs.clear()


def ended(client, begun):
    return until(lambda: one if (one := client.whatif(begun.id)).state not in ("queued", "running") else None, "an end")


@pytest.fixture(scope="module")
def quota(server):
    return ended(server.vera, server.vera.begin_whatif({**FOUR, "policies": ["as_is", "fifo"]}))


def test_a_quota_that_halves_the_devices_doubles_the_makespan(quota):
    before, (first, second) = quota.result.before, quota.result.after
    assert (before.makespan_ms, before.whole.wait_p50_ms, before.whole.wait_p95_ms) == (60_000, 30_000, 50_000)
    assert (first.outcome.makespan_ms, first.outcome.whole.wait_p95_ms) == (120_000, 110_000)
    assert (first.outcome.name, second.outcome.name) == (FOUR["set"][0], f"fifo, {FOUR['set'][0]}")
    assert (first.sooner, first.later, first.outcome.whole.starts, quota.result.jobs) == (0, 22, 24, 24)
    assert (first.outcome.whole.cost, first.outcome.by_tenant["default"].cost) == ("1.60", "1.60")
    assert (before.utilisation, first.outcome.utilisation) == (1.0, 0.5)


def test_the_replay_of_the_rules_in_force_is_what_happened(quota):
    result = quota.result
    assert (result.before.whole.wait_p50_ms, result.before.whole.wait_p95_ms) == (
        result.waited_p50_ms,
        result.waited_p95_ms,
    )


def test_the_jobs_that_are_affected_most_are_named(server, quota):
    affected = quota.result.after[0].most_affected
    by_ms = [one.wait_after_ms - one.wait_before_ms for one in affected]
    assert by_ms == sorted(by_ms, reverse=True)
    worst = server.client.job(affected[0].job)
    assert (worst.name, worst.user, worst.started_ms - worst.submitted_ms) == (
        affected[0].name,
        affected[0].user,
        affected[0].wait_before_ms,
    )


def test_the_rules_that_were_tried_can_be_handed_to_an_administrator(server, quota):
    handed = {"set": quota.rules[1].set, "base": quota.base, "dry_run": True}
    planned = server.adele.configure(handed)
    assert [one.text for one in planned.changes] == quota.rules[1].changes
    assert {one.path: one.new for one in planned.changes}["queues.default.policy"] == "fifo"


def test_more_nodes_shorten_it(server):
    found = ended(server.vera, server.vera.begin_whatif({"nodes": "+2"}))
    assert found.result.after[0].outcome.makespan_ms == 30_000
    assert found.rules[0].set == []


def test_what_nothing_was_submitted_in_fails_with_a_reason(server):
    found = ended(server.vera, server.vera.begin_whatif({**FOUR, "since": "1s"}))
    assert (found.state, found.result) == ("failed", None)
    assert found.problem == "no job was submitted in this time; ask for a longer one"


def test_of_a_long_log_the_newest_records_are_replayed(server, monkeypatch):
    first = server.submit({"name": "new", "command": "sleep 10", "devices": 4, "array": 2})
    server.advance(15)
    monkeypatch.setattr(service, "RECORDS_MAX", 14)
    found = ended(server.vera, server.vera.begin_whatif(FOUR))
    assert (found.result.jobs, found.result.after[0].later) == (2, 1)
    assert [one.job for one in found.result.after[0].most_affected] == [first + 1]
    assert "only its newest records" in found.result.notes[0]


def test_a_change_is_simulated_before_it_is_made(server):
    planned = server.adele.configure({**FOUR, "dry_run": True, "simulate": True})
    assert (planned.applied, len(planned.changes)) == (False, 1)
    found = ended(server.adele, server.adele.whatif(planned.whatif))
    assert found.result.after[0].outcome.makespan_ms > found.result.before.makespan_ms
    with pytest.raises(ApiProblem) as refused:
        server.adele.configure({**FOUR, "simulate": True})
    assert [one.field for one in refused.value.details.problems] == ["simulate"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.begin_whatif(FOUR),
        lambda client: client.whatifs(),
        lambda client: client.whatif("none"),
        lambda client: client.cancel_whatif("none"),
    ],
)
def test_it_is_for_who_sees_all_tenants(server, call):
    with pytest.raises(ApiProblem) as refused:
        call(server.ann)
    assert (refused.value.details.code, "POST /plan" in refused.value.details.hint) == ("forbidden", True)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"set": ["queue.nobody.weight=2"]}, "set"),
        ({"policies": ["fair_shard"]}, "policy"),
        ({"nodes": "-x"}, "nodes"),
        ({**FOUR, "since": "yesterday"}, "since"),
        ({"policies": ["fifo"] * 5}, "policies"),
        ({}, "set"),
        ({"sett": []}, "body"),
    ],
)
def test_bad_input_is_named_and_nothing_begins(server, asked, field):
    before = len(server.vera.whatifs())
    with pytest.raises(ApiProblem) as refused:
        server.vera.begin_whatif(asked)
    assert field in refused.value.details.problems[0].field
    assert len(server.vera.whatifs()) == before


def running(server, begun):
    return until(lambda: server._lab._labs[begun.id].process, "it runs").pid


def test_one_runs_and_the_others_wait_each_user_with_a_share(busy):
    first, second = busy.vera.begin_whatif(FOUR), busy.vera.begin_whatif(FOUR)
    running(busy, first)
    assert [busy.vera.whatif(one.id).state for one in (first, second)] == ["running", "queued"]
    with pytest.raises(ApiProblem) as refused:
        busy.vera.begin_whatif(FOUR)
    assert (refused.value.details.code, refused.value.details.title) == (
        "too_many_requests",
        "2 of your what-ifs are not done yet",
    )
    assert busy.adele.begin_whatif(FOUR).state == "queued"


def test_one_that_is_cancelled_ends_and_the_next_begins(busy):
    first, second = busy.vera.begin_whatif(FOUR), busy.vera.begin_whatif(FOUR)
    pid = running(busy, first)
    assert busy.vera.cancel_whatif(first.id).state == "cancelled"
    until(lambda: pid not in all_pids(), "its process is gone")
    running(busy, second)
    assert busy.vera.whatif(first.id).state == "cancelled"


def test_only_its_user_and_administrators_cancel_it(busy):
    mine = busy.adele.begin_whatif(FOUR)
    with pytest.raises(ApiProblem, match="another user's"):
        busy.vera.cancel_whatif(mine.id)
    theirs = busy.vera.begin_whatif(FOUR)
    assert busy.adele.cancel_whatif(theirs.id).state == "cancelled"


def test_a_process_that_dies_is_said(busy, monkeypatch):
    monkeypatch.setattr(busy._lab, "_command", ("false",))
    found = ended(busy.vera, busy.vera.begin_whatif(FOUR))
    assert (found.state, found.problem.partition(";")[0]) == (
        "failed",
        "it took more time or memory than a what-if may",
    )


def test_results_are_kept_for_an_hour_and_not_too_many(busy, monkeypatch):
    monkeypatch.setattr(busy._lab, "_command", ("false",))
    monkeypatch.setattr(service, "KEPT_MAX", 2)
    monkeypatch.setattr(service, "KEPT_MS", 5_000)
    made = [ended(busy.vera, busy.vera.begin_whatif(FOUR)).id for _ in range(3)]
    assert [one.id for one in busy.vera.whatifs()] == [made[2], made[1]]
    busy.advance(6)
    assert busy.vera.whatifs() == []
    with pytest.raises(ApiProblem, match="there is no what-if"):
        busy.vera.whatif(made[2])
