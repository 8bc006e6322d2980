"""Two servers under load, of which the leader is killed, or paused and continued, or whose database is restarted.

What the clients were told is compared with the log and with what the programs wrote down; a trigger in the database
notes which process wrote each record, so that a word of a former leader would be seen.
"""

import contextlib
import random
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import psycopg

from penstock.api.types import SubmitAnswer
from penstock.client import Client
from penstock.client.endpoints import endpoint_of
from penstock.core.model import events as ev
from penstock.core.model.errors import PenstockError
from tests.crash.audit import Audit
from tests.crash.cluster import until
from tests.crash.load import Job, Load
from tests.crash.pair import Pair
from tests.postgres import Postgres

Kind = Literal["killed", "paused", "database restarted", "database crashed"]
LIMIT_S = 5.0
WAIT_S = 40.0
IN_FLIGHT, IN_FLIGHT_MIN = 40, 15
DRAIN_WAIT_S = 120.0
_WITNESS = (
    "CREATE TABLE witness (seq bigint, writer text)",
    """CREATE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness SELECT seq, current_setting('application_name') FROM added; RETURN NULL; END $$""",
    """CREATE TRIGGER note_writer AFTER INSERT ON events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION note_writer()""",
)


class Round(msgspec.Struct):
    """One disturbance: how long no write was possible, and whether another server led after it."""

    kind: Kind
    outage_s: float
    changed: bool


class TimedLoad(Load):
    """Notes for each accepted submit when it was begun and when it was answered (monotonic)."""

    def __init__(self, pair: Pair, *, seed: int) -> None:
        super().__init__(pair, seed=seed, target=IN_FLIGHT)
        self.accepted_s: list[tuple[float, float]] = []

    def _twice(self, client: Client, job: Job, request: Any, key: str) -> tuple[SubmitAnswer, SubmitAnswer]:
        begin_s = time.monotonic()
        answer = super()._twice(client, job, request, key)
        self.accepted_s.append((begin_s, time.monotonic()))
        return answer

    def first_after(self, moment_s: float) -> float | None:
        """Return when the first submit was answered that was begun after a moment."""
        return min((end for begin, end in list(self.accepted_s) if begin > moment_s), default=None)


class Failover:
    """Makes rounds and judges what became of everything. Use `run` once."""

    def __init__(self, folder: Path, database: Postgres, *, seed: int) -> None:
        self.pair = Pair(folder / "data", database)
        self.load = TimedLoad(self.pair, seed=seed)
        self._chance = random.Random(seed)
        self.rounds: list[Round] = []
        self.findings: list[tuple[str, str]] = []
        self.counts: dict[str, int] = {}

    def run(self, kinds: list[Kind]) -> None:
        """Do the rounds in this order under load, let everything end, and judge."""
        try:
            with self.pair:
                self._database(*_WITNESS)
                self.load.start()
                for kind in kinds:
                    self._round(kind)
                self.load.finish()
                until(lambda: self._live() == 0, "every job has ended", DRAIN_WAIT_S)
                self._judge()
        finally:
            self.load.stop()

    def _database(self, *statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.pair.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _live(self) -> int:
        shown = self.pair.asked(Client.cluster)
        return shown.jobs_waiting + shown.jobs_active if shown else -1

    def _round(self, kind: Kind) -> None:
        begin_s = time.monotonic()
        load = self.load
        until(lambda: load.seen_s > begin_s and load.in_flight >= IN_FLIGHT_MIN, "there is a load", WAIT_S)
        until(lambda: len(self.pair.waiting()) == 1, f"one server waits\n{self.pair.server_log()}", WAIT_S)
        time.sleep(self._chance.uniform(0, 0.3))  # the random moment: not a wait for anything
        former = until(self.pair.leader, "a server leads")
        if kind == "killed":
            moment_s = time.monotonic()
            self.pair.kill_leader()
        elif kind == "paused":
            moment_s = time.monotonic()
            self.pair.pause_leader()
        else:
            self.pair.database.restart(signal.SIGINT if kind == "database restarted" else signal.SIGQUIT)
            moment_s = time.monotonic()
        answered_s = until(lambda: load.first_after(moment_s), f"writes are possible\n{self.pair.server_log()}", WAIT_S)
        assert answered_s is not None
        if kind in ("killed", "paused"):
            until(lambda: self.pair.leader() not in (0, former), "another server leads", WAIT_S)
        leads = until(self.pair.leader, "a server leads")
        self.rounds.append(Round(kind, answered_s - moment_s, leads != former))
        if kind == "killed":
            self.pair.add_server()
        elif kind == "paused":
            time.sleep(self._chance.uniform(0, 0.5))
            self.pair.go_on(former)
        if len(self.pair.alive()) != 2:
            self.findings.append(("a server ends only when it is killed", f"{kind}: {self.pair.server_log()[-500:]}"))

    def _judge(self) -> None:
        records = self.pair.ask(lambda client: list(client.all_events()))
        views = self.pair.ask(lambda client: [client.job(job_id) for job_id in self.load.accepted.values()])
        audit = Audit(self.load, [], records)
        audit.run(views)
        self.findings += audit.findings
        self.counts = {"terms": audit.counts["terms"], "records": audit.counts["events"]}
        self._former_leaders(records)
        self._nodes(records)

    def _former_leaders(self, records: list[ev.Record]) -> None:
        """Look for records that another process wrote than the one whose term it was, and plans made before it."""
        writers = dict(self._database("SELECT seq, writer FROM witness"))
        elected = [record for record in records if isinstance(record.event, ev.LeaderElected)]
        self.counts["plans"] = sum(isinstance(record.event, ev.AttemptAllocated) for record in records)
        for one, following in pairwise([*elected, None]):
            assert one is not None
            assert isinstance(one.event, ev.LeaderElected)
            last = following.seq if following is not None else len(records) + 1
            for record in records[one.seq - 1 : last - 1]:
                writer = writers.get(record.seq, f"penstock {one.event.server}")
                if writer != f"penstock {one.event.server}":
                    text = f"record {record.seq} of term {one.event.epoch} is by {writer}"
                    self.findings.append(("a former leader commits nothing", text))
                if isinstance(record.event, ev.AttemptAllocated) and record.event.basis < one.seq:
                    text = f"record {record.seq} of term {one.event.epoch} rests on record {record.event.basis}"
                    self.findings.append(("a former leader plans nothing", text))

    def _nodes(self, records: list[ev.Record]) -> None:
        """No node may be lost over a change of leaders: its programs would be ended."""
        for record in records:
            if isinstance(record.event, ev.NodeLost):
                self.findings.append(("no node is lost", f"record {record.seq}: {record.event}"))

    def broken(self, *promises: str) -> int:
        """Return how many findings there are of these promises."""
        return sum(promise in promises for promise, _ in self.findings)


def planned(rounds: int) -> list[Kind]:
    """Return so many kills, with a pause and a restart of the database after every fifth, at least one of each."""
    found: list[Kind] = []
    for number in range(rounds):
        found.append("killed")
        if number % 5 == 0:
            found += ["paused", "database restarted" if number % 10 == 0 else "database crashed"]
    return found


def asked_of_standby(pair: Pair) -> str:
    """Return the code of what a waiting server answers to a write; '' when it takes it."""
    import json

    (pid,) = pair.waiting()
    info = json.loads(pair.data.standby_info(pid).read_bytes())
    client = Client.of(pair.root)
    client._at = endpoint_of(info, pair.root)
    client._go_elsewhere = lambda *_: False  # type: ignore[method-assign]
    with contextlib.closing(client):
        try:
            client.submit({"command": ["true"]})
        except PenstockError as error:
            return str(getattr(error, "details", error).code)
    return ""
