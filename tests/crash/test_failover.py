"""Two servers on one PostgreSQL: whoever leads may die, stand still or lose its database, and nothing is lost.

The long version is `python -m bench.failover`.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.output import error_code
from penstock.client import ApiProblem, Client
from penstock.client.endpoints import endpoint_of
from penstock.core.model import events as ev
from penstock.core.model.errors import PenstockError
from tests import postgres
from tests.crash.cluster import until
from tests.crash.failover import LIMIT_S, Failover, Kind, planned
from tests.crash.pair import Pair, environment_is_clean
from tests.properties import LONG

ROUNDS: list[Kind] = ["killed", "paused", "database restarted", "database crashed"]


def held(failover: Failover) -> None:
    print(json.dumps([(r.kind, round(r.outage_s, 2), r.changed) for r in failover.rounds]), failover.counts)
    assert failover.findings == []
    assert all(r.changed for r in failover.rounds if r.kind in ("killed", "paused"))
    assert failover.counts["plans"] > len(failover.rounds)


def test_no_change_of_leaders_loses_or_doubles_anything(tmp_path: Path) -> None:
    with postgres.own() as database:
        failover = Failover(tmp_path, database, seed=3)
        failover.run(ROUNDS)
        held(failover)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="minutes long: set PENSTOCK_SLOW=1")
def test_fifty_leaders_die_and_nothing_is_lost(tmp_path: Path) -> None:
    with postgres.own(sync=True) as database:
        failover = Failover(tmp_path, database, seed=4)
        failover.run(planned(50))
        held(failover)
        assert max(each.outage_s for each in failover.rounds) < LIMIT_S


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path / "data", postgres.shared()) as made:
        yield made


def client_of_standby(pair: Pair, *, alone: bool = False) -> Client:
    """Return a client of the server that waits; `alone`: it knows of no other."""
    (pid,) = pair.waiting()
    info = json.loads(pair.data.standby_info(pid).read_bytes())
    client = Client.of(pair.root)
    client._at = endpoint_of(info, pair.root)
    if alone:
        client._go_elsewhere = lambda *_: False  # type: ignore[method-assign]
    return client


def test_a_server_that_waits_reads_and_names_the_leader_for_all_else(pair: Pair) -> None:
    job = pair.ask(lambda client: client.submit({"command": ["sh", "-c", "echo hello"], "name": "one"})).jobs[0].id
    leader = json.loads(pair.data.server_info.read_bytes())
    with contextlib.closing(client_of_standby(pair, alone=True)) as client:
        until(lambda: _state(client, job) == "succeeded", "it has read of the job's end")
        assert client.logs(job, 1, 0)[1] == b"hello\n"
        assert next(type(r.event) for r in client.job_events(job)) is ev.JobSubmitted
        until(lambda: client.cluster().jobs_succeeded == 1, "it has folded the job's end")
        assert len(client.nodes()) == 2
        for write in (lambda: client.submit({"command": ["true"]}), lambda: client.cancel(job), lambda: client.job(99)):
            with pytest.raises(ApiProblem) as refused:
                write()
            details = refused.value.details
            where = f"http://{leader['host']}:{leader['port']}"
            assert (details.status, details.code, details.leader) == (503, "not_leader", where)


def _state(client: Client, job: int) -> str:
    """Return the state of a job; '' where the server cannot say, which is never that there is none."""
    code = ""
    try:
        return client.job(job).state
    except PenstockError as error:
        code = error_code(error)
    assert code in ("not_leader", "server_not_running")
    return ""


def test_a_client_of_the_server_that_waits_goes_to_the_one_that_leads(pair: Pair) -> None:
    with contextlib.closing(client_of_standby(pair)) as client:
        assert client.submit({"command": ["true"]}).jobs[0].id == 1
        assert client._at.port == json.loads(pair.data.server_info.read_bytes())["port"]


def test_a_client_of_a_leader_that_died_reads_from_the_other(pair: Pair) -> None:
    with contextlib.closing(Client.of(pair.root)) as client:
        job = client.submit({"command": ["true"]}).jobs[0].id
        pair.kill_leader()
        state = until(lambda: _state(client, job), "the other server shows it")
        assert state not in ("failed", "cancelled")


def test_no_server_ever_says_that_an_accepted_job_is_not_there(pair: Pair) -> None:
    """One that only reads on is always a little behind."""
    with contextlib.closing(client_of_standby(pair)) as client:
        waits = client._at
        for _ in range(30):
            job = pair.ask(lambda c: c.submit({"command": ["true"]})).jobs[0].id
            client.close()
            client._at = waits
            assert client.job(job).id == job


def test_a_server_that_is_ended_hands_over_and_takes_no_program_with_it(pair: Pair) -> None:
    ran = pair.root / "ran"
    command = f"echo started >> {ran}; while [ ! -e {pair.root}/go ]; do sleep 0.05; done; exit 5"
    job = pair.ask(lambda client: client.submit({"command": ["sh", "-c", command]})).jobs[0].id
    until(ran.exists, "the program runs")
    former = pair.leader()
    next(server for server in pair.servers if server.pid == former).terminate()
    until(lambda: pair.leader() not in (0, former), "the other leads")
    (pair.root / "go").touch()
    view = until(lambda: _ended(pair, job), "it has ended")
    assert (view.exit_code, view.attempt or 1, ran.read_text()) == (5, 1, "started\n")


def _ended(pair: Pair, job: int):
    view = pair.asked(lambda client: client.job(job))
    return view if view is not None and view.state == "failed" else None


def test_the_password_of_the_database_is_nowhere_to_be_read(tmp_path: Path) -> None:
    secret = "s3cret-of-the-store"
    database = postgres.shared()
    pair = Pair(tmp_path / "data", database)
    pair.url = pair.url.replace("penstock@", f"penstock:{secret}@")
    with pair:
        pair.ask(lambda client: client.submit({"command": ["sleep", "30"]}))
        until(lambda: pair.processes("replica"), "the program runs")
        pids = [*pair.alive(), *pair.processes()]
        assert len(pids) > 4
        assert [pid for pid in pids if not environment_is_clean(pid, secret)] == []
        kept = pair.data.store_address
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == (pair.url + "\n", 0o600)
        told = [path for path in pair.root.rglob("*") if path.is_file() and path != kept]
        assert [path for path in told if secret.encode() in path.read_bytes()] == []
