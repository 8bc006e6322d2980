"""`penstock plan`: told before it is submitted, on a real server."""

import json

import pytest

from tests.server.harness import Jobs, until


def ids(penstock):
    return [job["id"] for job in penstock("ps", "--all", "--json").json()["jobs"]]


@pytest.mark.parametrize("words", [("plan",), ("submit", "--dry-run")], ids=" ".join)
def test_what_starts_now_is_said_and_nothing_is_submitted(penstock, words):
    before = ids(penstock)
    told = penstock(*words, "--devices", "2", "--cpus", "1", "--", "true")
    assert (told.code, told.err) == (0, "")
    assert "starts now" in told.out
    assert "on n" in told.out
    assert ids(penstock) == before


def test_what_waits_is_told_for_how_long_and_what_would_help(penstock, server):
    blockers = [
        penstock("submit", "--json", "-g", "4", "-c", "1", "--priority", "900", "-t", "1h", "--", "sleep", "60")
        for _ in range(2)
    ]
    numbers = [told.json()["jobs"][0]["id"] for told in blockers]
    jobs = Jobs(server.client)
    try:
        for number in numbers:
            until(lambda number=number: server.client.job(number).state == "running", f"job {number} runs")
        told = penstock("plan", "--devices", "2", "--cpus", "1", "--", "true")
        assert told.code == 10
        assert "waits: starts in about" in told.out
        assert "(8 of 10 such starts: " in told.out
        assert "at the latest, if jobs keep to their time limits" in told.out
        assert "devices_short" in told.out
        assert penstock("plan", "-g", "2", "-c", "1", "--within", "1d", "--", "true").code == 0
        found = json.loads(penstock("plan", "-g", "2", "-c", "1", "--json", "--", "true").out)["jobs"][0]
        assert (found["starts_now"], found["samples"]) == (False, 50)
        assert 0 < found["start_p10_ms"] <= found["start_p50_ms"] <= found["start_p90_ms"]
    finally:
        penstock("cancel", *map(str, numbers))
        for number in numbers:
            jobs.ended(number)


def test_what_a_submit_would_refuse_is_refused(penstock):
    told = penstock("plan", "--devices", "99", "--", "true")
    assert told.code == 2
    assert "could never start" in told.err or "no node" in told.err


def test_a_time_that_is_none_is_refused(penstock):
    told = penstock("plan", "--within", "soon", "--", "true")
    assert (told.code, "within is 'soon'" in told.err) == (2, True)
