"""Reading over HTTP: what is there is shown exactly, what is not is a 404, and pages neither skip nor repeat."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from penstock.client import ApiProblem, Client
from penstock.core.model import events as ev
from penstock.core.model.access import Scope
from penstock.core.state.live_jobs import LiveJobs
from penstock.core.state.state import fold
from penstock.core.state.tokens import local_scope
from penstock.server.views.reads import Reads
from tests.server.harness import until
from tests.store.builders import records

API = "/api/v1"


@pytest.mark.parametrize("path", ["", "/explanation", "/events", "/outputs", "/logs?attempt=1"])
def test_an_unknown_job_is_not_found(server, path):
    answer = server.http("GET", f"{API}/jobs/999999{path}")
    assert (answer.status, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["title"] == "there is no job 999999"


@pytest.mark.parametrize("path", ["/jobs/999999/cancel", "/jobs/999999/checkpoint", "/nodes/nowhere/drain"])
def test_nothing_can_be_done_to_what_does_not_exist(server, path):
    assert server.http("POST", API + path).status == 404


@pytest.mark.parametrize(
    "path", ["/nothing", "/jobs/1/nothing", "/jobs/x", "/jobs/0", "/jobs?limit=0", "/events?after=-1"]
)
def test_a_wrong_path_or_parameter_is_a_problem_of_the_request(server, path):
    answer = server.http("GET", API + path)
    assert answer.status in (404, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_wrong_method_is_said_to_be_one(server):
    answer = server.http("DELETE", f"{API}/jobs")
    assert (answer.status, answer.json()["code"]) == (405, "method_not_allowed")


def test_a_wrong_method_is_told_the_right_ones(server):
    assert server.http("DELETE", f"{API}/jobs").headers["allow"]


def test_a_job_is_shown_with_all_that_was_asked(jobs):
    shown = jobs.ended(jobs.submit(["sh", "-c", "exit 3"], name="three", priority="high", devices=2))
    assert (shown.name, shown.state, shown.reason, shown.exit_code) == ("three", "failed", "exit 3", 3)
    assert (shown.priority, shown.devices, shown.replicas, shown.attempt) == (1000, 2, 1, 1)
    assert shown.submitted_ms <= shown.started_ms <= shown.finished_ms


def test_an_ended_job_is_shown_with_its_command_and_what_it_asked_for(jobs):
    job = jobs.submit(["true", "x"], devices=0.25, preemptible=False)
    shown = jobs.ended(job)
    assert (shown.command, shown.preemptible, shown.checkpoint_step) == (["true", "x"], False, 0)
    assert (shown.devices_text, shown.pool) == ("0.25", "default")
    (listed,) = [one for one in jobs.client.jobs(finished="true").jobs if one.id == job]
    assert (listed.devices_text, listed.command) == ("0.25", [])


def test_a_running_job_is_shown_with_its_replicas(jobs):
    job = jobs.submit("sleep 60", replicas=2, devices=4, topology="spread")
    shown = jobs.state(job, "running")
    assert [(r.rank, r.devices, r.state) for r in shown.replica_list] == [
        (0, [0, 1, 2, 3], "started"),
        (1, [0, 1, 2, 3], "started"),
    ]
    assert sorted(shown.nodes) == ["n1", "n2"]


def test_nodes_show_who_holds_what(jobs):
    job = jobs.submit("sleep 60", devices=3, cpus=2, memory="1GiB")
    (name,) = jobs.state(job, "running").nodes
    node = next(n for n in jobs.client.nodes() if n.name == name)
    assert [d.job for d in node.devices] == [job, job, job, None]
    assert (node.cpu_held_milli, node.memory_held_bytes, node.jobs) == (2_000, 2**30, [job])
    assert (node.virtual, node.connected, node.state) == (True, True, "ready")


def test_a_waiting_job_is_explained_with_numbers(jobs):
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=4), "running")
    job = jobs.submit(devices=2)
    found = until(lambda: e if (e := jobs.client.explain(job)).code == "no_fit" else None, "the cycle has seen it")
    assert sum(found.refused.values()) == 2
    assert "needs 1 x 2 devices; 0 free in all" in found.text
    first = found.constraints[0]
    assert (first.code, first.distance, first.unit) == ("devices_short", 2_000, "device_milli")
    assert jobs.client.explain(jobs.submit(after_ok=job)).blockers == (job,)


def test_an_edit_that_is_proposed_can_be_written_into_the_request(jobs):
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=3), "running")
    waiting = jobs.submit("sleep 60", devices=2)
    found = until(lambda: jobs.client.explain(waiting).edits, "the cycle has seen it")[0]
    assert (found.kind, found.path, found.old, found.new) == ("request", "devices.count", 2, 1)
    assert jobs.state(jobs.submit("sleep 60", devices={"count": found.new}), "running")


def test_what_can_never_start_is_an_alert(jobs):
    assert jobs.client.alerts() == []
    job = jobs.submit("true", devices=4, replicas=2)
    for name in ("n1", "n2"):
        jobs.client.drain(name)
    try:
        waiting = jobs.submit("true")
        found = until(lambda: [a for a in jobs.client.alerts() if waiting in a.job_ids], "it is noticed")
        assert found[0].code == "nodes_away"
        assert found[0].text == "fits only on nodes that take no work now: n1 (draining), n2 (draining)"
    finally:
        for name in ("n1", "n2"):
            jobs.client.drain(name, on=False)
    assert jobs.ended(waiting).state == jobs.ended(job).state == "succeeded"


@pytest.mark.parametrize("moment", ["before jobs are looked at", "before those that end are"])
def test_a_job_that_ends_while_jobs_are_listed_is_among_them(moment):
    """The control thread moves it from the state to those that are ending: it is in one of them, or in both."""
    job = fold(records(1, 1)).jobs[1]
    state, ending = SimpleNamespace(jobs=LiveJobs()), []
    state.jobs[job.id] = job

    def ends():
        ending.append((job, None))
        del state.jobs[job.id]

    class Controller:
        @property
        def state(self):
            if moment == "before jobs are looked at":
                ends()
            return state

        @property
        def ending(self):
            if moment == "before those that end are":
                ends()
            return ending

    reads = Reads(SimpleNamespace(controller=Controller()), None, lambda: 10**9)
    assert [one.id for one in reads.live_page(local_scope("ann"), 0, 10)] == [job.id]


def test_a_finished_job_is_explained_by_its_end(jobs):
    job = jobs.submit("exit 4")
    jobs.ended(job)
    assert jobs.client.explain(job).text == "failed: exit 4"


def test_queues_show_who_is_next_in_order(jobs):
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=4), "running")
    low, high = jobs.submit(devices=1, priority="low"), jobs.submit(devices=1, priority=400)
    (queue,) = jobs.client.queues()
    assert [ref.id for ref in queue.next_jobs] == [high, low]
    assert (queue.name, queue.waiting, queue.active) == ("default", 2, 2)


def test_usage_grows_with_what_was_held(jobs):
    def device_seconds() -> float:
        return sum(row.device_milli_ms / 1e6 for row in jobs.client.usage().rows if row.tenant == "default")

    before = device_seconds()
    shown = jobs.ended(jobs.submit("sleep 0.2", devices=2))
    assert shown.state == "succeeded"
    assert 0.4 <= device_seconds() - before <= 2 * (shown.finished_ms - shown.submitted_ms) / 1000 + 0.001


def test_finished_jobs_are_listed_page_by_page_without_gap_or_double(jobs):
    made = [jobs.submit() for _ in range(7)]
    for job in made:
        jobs.ended(job)
    page = jobs.client.jobs(finished="true", limit=3)
    found = [job.id for job in page.jobs]
    while page.next_before is not None:
        page = jobs.client.jobs(finished="true", limit=3, before=page.next_before)
        assert len(page.jobs) <= 3
        found += [job.id for job in page.jobs]
    assert found == sorted(set(found), reverse=True)
    assert found[:7] == sorted(made, reverse=True)


def test_a_page_full_of_live_jobs_is_not_the_last(jobs):
    done = jobs.submit()
    jobs.ended(done)
    jobs.state(jobs.submit("sleep 60"), "running")
    page = jobs.client.jobs(finished="true", limit=1)
    assert page.next_before is not None


def test_jobs_are_filtered_by_state_and_tenant(jobs):
    job = jobs.submit("sleep 60")
    jobs.state(job, "running")
    assert [j.id for j in jobs.client.jobs(state="running").jobs] == [job]
    assert jobs.client.jobs(state="waiting").jobs == []
    with pytest.raises(ApiProblem, match="there is no tenant 'nobody'"):
        jobs.client.jobs(tenant="nobody")


def test_output_is_read_from_any_offset(server, jobs):
    job = jobs.submit("printf 0123456789")
    jobs.ended(job)
    path = f"{API}/jobs/{job}/logs?attempt=1&rank=0"
    pieces = [server.http("GET", f"{path}&offset={at}&limit=4") for at in (0, 4, 8, 10, 99)]
    assert [p.body for p in pieces] == [b"0123", b"4567", b"89", b"", b"0123"], "beyond its end it has begun anew"
    assert [p.headers["x-penstock-offset"] for p in pieces] == ["0", "4", "8", "10", "0"]


def test_output_of_another_attempt_or_rank_is_not_found(server, jobs):
    job = jobs.submit("echo x")
    jobs.ended(job)
    assert [(o.attempt, o.rank, o.size_bytes) for o in jobs.client.outputs(job)] == [(1, 0, 2)]
    for query in ("attempt=2", "attempt=1&rank=1"):
        assert server.http("GET", f"{API}/jobs/{job}/logs?{query}").status == 404


def test_output_need_not_be_text(jobs):
    job = jobs.submit(["printf", r"\000\377\n"])
    jobs.ended(job)
    assert jobs.client.logs(job, 1, 0) == (0, b"\x00\xff\n")


def test_the_log_of_events_is_gapless_and_can_be_read_in_pieces(server, jobs):
    job = jobs.submit()
    jobs.ended(job)
    whole = list(jobs.client.all_events())
    assert [r.seq for r in whole] == list(range(1, len(whole) + 1))
    assert [r.seq for r in jobs.client.events(after=2, limit=3)] == [3, 4, 5]
    assert jobs.client.job_events(job) == [r for r in whole if getattr(r.event, "job_id", None) == job]


def test_the_state_shown_is_the_fold_of_the_events_shown(jobs):
    from penstock.core.state.state import fold

    jobs.ended(jobs.submit())
    state, shown = fold(list(jobs.client.all_events())), jobs.client.cluster()
    assert (state.finished_ok, state.finished_bad) == (shown.jobs_succeeded, shown.jobs_not_succeeded)


def test_health_needs_no_token(server):
    client = Client("127.0.0.1", server.port, "")
    assert client.healthy()
    client.close()


def test_a_log_of_others_is_looked_through_in_parts_and_what_is_ones_own_is_found():
    class Log:
        """Of 50,000 records the 45,000th is about a tenant, all others are about nobody."""

        def records(self, after: int, limit: int) -> list[ev.Record]:
            numbers = range(after + 1, min(after + limit, 50_000) + 1)
            own = ev.CreditAdded("mine", "ref", 1, "payment")
            return [ev.Record(n, 1, own if n == 45_000 else ev.RunTimesPredicted(())) for n in numbers]

    reads, scope = Reads(None, Log(), lambda: 0), Scope("ann", tenants={"mine": "viewer"})
    looked, found = [0], []
    while not looked[1:] or looked[-1] != looked[-2]:
        some, at = reads.records(scope, looked[-1], 10)
        found += some
        looked.append(at)
    assert [record.seq for record in found] == [45_000]
    assert looked[-1] == 50_000
    assert max(b - a for a, b in pairwise(looked)) <= 20_000


def test_a_page_of_rare_records_is_as_long_as_was_asked():
    class Log:
        def records(self, after: int, limit: int) -> list[ev.Record]:
            own = ev.CreditAdded("mine", "ref", 1, "payment")
            numbers = range(after + 1, min(after + limit, 2_000) + 1)
            return [ev.Record(n, 1, own if n % 7 == 0 else ev.RunTimesPredicted(())) for n in numbers]

    scope = Scope("ann", tenants={"mine": "viewer"})
    found, looked = Reads(None, Log(), lambda: 0).records(scope, 3, 100)
    assert [record.seq for record in found] == list(range(7, 701, 7))
    assert looked == 700
