"""When one job starts and how right that was, and what is known to be wrong with it, over HTTP."""

import pytest

from penstock.testing.server import InProcessServer


@pytest.fixture(scope="module")
def server():
    with InProcessServer() as running:
        yield running


def test_an_estimate_is_held_against_the_start_that_followed(server):
    held = {"command": "sleep 100", "devices": 4, "replicas": 2, "time_limit": "100s"}
    first, second = server.submit(held), server.submit({**held, "name": "waits"})
    assert server.client.job_eta(first).text.startswith("no start of this job was estimated")
    server.client.etas(0)
    server.settle()
    waits = server.client.job_eta(second)
    assert (waits.state, waits.text[:9], waits.started_ms) == ("waiting", "starts in", 0)
    assert waits.now == waits.first == waits.last
    server.advance(110)
    found = server.client.job_eta(second)
    shown = server.client.job(second)
    assert (found.started_ms, found.now, found.last) == (shown.started_ms, None, waits.last)
    assert found.off_ms == shown.started_ms - waits.last.likely_ms
    assert found.in_interval == (waits.last.early_ms < shown.started_ms <= waits.last.late_ms)
    assert found.text.startswith("started ")


def test_a_failed_job_has_a_diagnosis_with_evidence(server):
    job = server.submit({"command": "exit 127"})
    server.advance(5)
    found = server.client.diagnosis(job)
    assert (found.job, found.state, found.cause) == (job, "failed", "not_found")
    assert "exit 127" in found.summary
    records = {record["seq"]: record for record in server.client._call("GET", f"/jobs/{job}/events", list)}
    assert all(one.seq in records for one in found.evidence)
