"""`penstock eta` against a running server."""

import pytest

from penstock.api import types as api
from penstock.cli import eta
from penstock.core.model.errors import InvalidInput
from tests.server.harness import Jobs, until


def test_when_waiting_jobs_start(penstock, server):
    jobs = Jobs(server.client)
    nodes = server.client.nodes()
    held = [jobs.submit("sleep 30", devices=len(n.devices), time_limit="1m") for n in nodes]
    for job in held:
        jobs.state(job, "running")
    waiting = int(
        penstock("submit", "--devices", "1", "--name", "later", "--json", "--", "true").json()["jobs"][0]["id"]
    )
    until(lambda: server.client.job(waiting).state == "waiting", "it waits")
    told = penstock("eta", str(waiting))
    assert told.code == 0, told.err
    assert [word in told.out for word in ("later", "8 of 10 such starts", "in about")] == [True] * 3
    (one,) = penstock("eta", "--json").json()["jobs"]
    assert one["id"] == waiting
    assert one["likely_ms"] > one["submitted_ms"]
    explained = penstock("explain", str(waiting))
    assert "starts in about" in explained.out
    assert "(8 of 10 such starts: " in explained.out
    assert "at the latest, if jobs keep to their time limits" in explained.out
    early_ms, late_ms = penstock("explain", str(waiting), "--json").json()["start_interval_ms"]
    assert one["submitted_ms"] <= early_ms < late_ms
    for job in held:
        server.client.cancel(job)
    jobs.ended(waiting)
    assert "no job waits" in until(lambda: penstock("eta").out, "nothing waits")


def test_a_job_that_does_not_wait(penstock):
    told = penstock("eta", "4711")
    assert told.code == 2
    assert "job 4711 does not wait" in told.err


def test_how_right_estimates_were(penstock):
    assert penstock("eta", "--calibration").code == 0
    assert penstock("eta", "--calibration", "--json").json()["overall"]["count"] >= 0


def test_how_a_calibration_reads(capsys):
    from penstock.cli.eta import _print_score
    from tests.core.predict.test_calibration import played

    _print_score(played(400, 0.0, 1.0).score())
    out = capsys.readouterr().out
    assert "% of 400 starts came in their interval; 80 % should. 0 are open" in out
    assert "before early" in out
    assert "6h" in out


def test_jobs_that_were_not_simulated_are_counted(capsys):
    some, none = api.EtaList(0, 9, 1, [api.EtaView(3, "a", "t", "q", "u", 0, 0, 0, 0)]), api.EtaList(0, 0, 1_200, [])
    eta._print_etas((), some, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "1 later job was not simulated: too many wait"
    eta._print_etas((), none, as_json=False)
    assert capsys.readouterr().out == "1,200 later jobs were not simulated: too many wait\n"
    with pytest.raises(InvalidInput, match="job 7 has no estimate: 1 later job was not simulated: too many wait"):
        eta._print_etas((7,), some, as_json=False)
