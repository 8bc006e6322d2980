"""`penstock audit` on a log of a cluster, and on a running one."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from tests.cli.test_simulate import penstock as bare
from tests.core.audit.test_audit import preempted_log
from tests.server.harness import Jobs


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.json"
    path.write_bytes(msgspec.json.encode(preempted_log(name="long")))
    return path


def test_the_whole_log(log):
    done = bare("audit", "--log", log)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 decisions in " in done.stdout
    assert "4 come out the same again; 4 of 4 are lawful" in done.stdout


def test_one_job_and_who_took_its_place(log):
    done = bare("audit", "1", "--log", log)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("job 1 'long' of ann, queue default, priority 100; submitted 2000-01-01")
    assert any("attempt 1 asked to leave (preempted) for job 2" in line for line in lines)
    assert "    holds  priority: its priority 100 is below 900 of job 2" in lines
    assert lines[-1].endswith("3 come out the same again; 3 of 3 are lawful")


def test_for_programs(log):
    found = json.loads(bare("audit", "2", "--log", log, "--json").stdout)
    assert (found["job"], found["lawful"], len(found["rulings"])) == (2, True, 2)
    assert {check["rule"] for check in found["rulings"][0]["checks"]} >= {"priority", "min_runtime", "needed"}


def test_what_does_not_come_out_again_ends_with_1(log, tmp_path):
    records = [
        replace(r, event=replace(r.event, cost=r.event.cost + 1)) if isinstance(r.event, ev.AttemptStopRequested) else r
        for r in preempted_log()
    ]
    path = tmp_path / "changed.json"
    path.write_bytes(msgspec.json.encode(records))
    done = bare("audit", "--log", path)
    assert done.returncode == 1
    assert "DIFFERS  again: from the same inputs it leaves for job 2 by lower_priority" in done.stdout
    assert "3 of 4 are lawful" in done.stdout


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (lambda records: records[3:], "record 1 is expected, and 4 comes there"),
        (lambda _: 5, "cannot be read as a log"),
    ],
)
def test_a_log_that_is_none(tmp_path, cut, said):
    path = tmp_path / "part.json"
    path.write_bytes(msgspec.json.encode(cut(preempted_log())))
    done = bare("audit", "--log", path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_job_that_the_log_does_not_have(log):
    done = bare("audit", "77", "--log", log)
    assert done.returncode == 2
    assert "the log has no job 77" in done.stderr


def test_decisions_of_a_running_server_come_out_again(penstock, server):
    jobs = [penstock.job("sh", "-c", f"sleep 0.{i}") for i in range(6)]
    for job in jobs:
        Jobs(server.client).ended(job)
    told = penstock("audit", "--json").json()
    starts = [r for r in told["rulings"] if r["kind"] == "start"]
    assert told["lawful"]
    assert len(starts) >= 6
    assert all(r["same"] and r["basis"] and r["version"] for r in starts)
