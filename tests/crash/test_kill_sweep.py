"""Kill -9 of the server and of agents at random points under load, checked against what the programs wrote themselves.

The short sweep runs everywhere; the full one (200 points) by `make soak`, or as
`python -m tests.crash.sweep --points 200 --seed 1`.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import AttemptNumber, Epoch, Incarnation, JobId, NodeName, Rank, UserName
from penstock.core.model.jobs import ExitInfo, GangAsk, JobSpec, ReplicaPlace
from penstock.core.model.resources import ReplicaAsk, Resources
from tests import postgres
from tests.crash.audit import NEVER_STARTED, NOBODY_WATCHED, Audit
from tests.crash.killer import IN_FLIGHT_MIN, Kill
from tests.crash.load import Job
from tests.crash.sweep import sweep
from tests.properties import LONG

SHORT_POINTS, DATABASE_POINTS, FULL_POINTS = 24, 10, 200


def held(figures: dict[str, Any], points: int) -> None:
    print(json.dumps(figures))
    assert figures["findings"] == []
    assert figures["kill_points"] >= points
    assert figures["in_flight_min"] >= IN_FLIGHT_MIN
    assert figures["outcomes_compared"] >= 2 * figures["jobs_accepted"] > 2 * points


def test_no_kill_loses_doubles_or_leaks_anything(tmp_path: Path) -> None:
    held(sweep(tmp_path, points=SHORT_POINTS, seed=1), SHORT_POINTS)


def test_no_kill_loses_doubles_or_leaks_anything_with_the_log_in_a_database(tmp_path: Path) -> None:
    held(sweep(tmp_path, points=DATABASE_POINTS, seed=3, store=postgres.shared().database()), DATABASE_POINTS)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="minutes long: set PENSTOCK_SLOW=1")
def test_no_kill_of_two_hundred_loses_doubles_or_leaks_anything(tmp_path: Path) -> None:
    held(sweep(tmp_path, points=FULL_POINTS, seed=2), FULL_POINTS)


# The audit itself can fail: one forged history, and one lie at a time.

NODE, LIFE, ONE, FIRST, ZERO = NodeName("n1"), Incarnation("life"), JobId(1), AttemptNumber(1), Rank(0)
JOB = Job(number=1, kind="plain", code=3, seconds=0.1)
EXIT = ExitInfo(code=3)
LEDGER = "start 1 77\nend 1 3\n"


def history(**changed: Any) -> list[ev.AnyEvent]:
    """Return the events of one job that ended rightly; a keyword replaces one of them (None leaves it out)."""
    spec = JobSpec(command=("true",), ask=GangAsk(1, ReplicaAsk(Resources(cpu_milli=1))), name=JOB.name)
    events: dict[str, Any] = {
        "elected": ev.LeaderElected(Epoch(1), "here"),
        "registered": ev.NodeRegistered(NodeSpec(NODE, Resources(cpu_milli=9)), LIFE),
        "ready": ev.NodeReady(NODE),
        "submitted": ev.JobSubmitted(ONE, spec, UserName("me")),
        "allocated": ev.AttemptAllocated(ONE, FIRST, (ReplicaPlace(NODE, LIFE),)),
        "started": ev.ReplicaStarted(ONE, FIRST, ZERO, 77),
        "exited": ev.ReplicaExited(ONE, FIRST, ZERO, EXIT),
        "ended": ev.AttemptEnded(ONE, FIRST, "failed"),
        "finished": ev.JobFinished(ONE, "failed", "exit 3", EXIT),
    }
    return [event for event in (events | changed).values() if event is not None]


def broken(folder: Path, events: list[ev.AnyEvent], *, ledger: str = LEDGER, hit: int = 76, **load: Any) -> set[str]:
    """Return the promises that the audit finds broken."""
    (folder / "1.0").write_text(ledger, encoding="ascii")
    told = {"asked": {1: JOB}, "accepted": {1: 1}, "refused": [], "folder": folder} | load
    view = SimpleNamespace(id=1, name=JOB.name, state="failed", exit_code=3, exit_signal=None)
    kills = [Kill("worker", 1_000, "n1", 60, (hit,))]
    records = [ev.Record(i, 1_000 + i, event) for i, event in enumerate(events, 1)]
    audit = Audit(SimpleNamespace(**told), kills, records)  # type: ignore[arg-type]
    audit.run([view])  # type: ignore[list-item]
    return {promise for promise, _ in audit.findings}


def test_the_audit_finds_nothing_in_a_right_history(tmp_path: Path) -> None:
    assert broken(tmp_path, history()) == set()


@pytest.mark.parametrize(
    ("promise", "changed", "load", "ledger"),
    [
        ("no accepted job is lost", {}, {"accepted": {1: 1, 2: 2}, "asked": {1: JOB, 2: JOB}}, LEDGER),
        ("no accepted job is lost", {"finished": None}, {}, LEDGER),
        ("no id is given out twice", {}, {"accepted": {1: 1, 2: 1}, "asked": {1: JOB, 2: JOB}}, LEDGER),
        ("nothing is known that nobody asked for", {}, {"asked": {1: Job(9, "plain", 3, 0)}}, LEDGER),
        ("every request is answered rightly", {}, {"refused": ["j1 got two ids"]}, LEDGER),
        ("every outcome is exact", {"finished": ev.JobFinished(ONE, "failed", "", ExitInfo(code=4))}, {}, LEDGER),
        ("every outcome is exact", {"finished": ev.JobFinished(ONE, "failed", "", ExitInfo(signal=3))}, {}, LEDGER),
        ("every outcome is exact", {"exited": ev.ReplicaExited(ONE, FIRST, ZERO, ExitInfo(problem="?"))}, {}, LEDGER),
        (
            "every outcome is exact",
            {"exited": ev.ReplicaExited(ONE, FIRST, ZERO, ExitInfo(problem=NOBODY_WATCHED))},
            {},
            LEDGER,
        ),
        (
            "what never started never ran",
            {"exited": ev.ReplicaExited(ONE, FIRST, ZERO, ExitInfo(problem=NEVER_STARTED))},
            {},
            LEDGER,
        ),
        ("an attempt starts once", {}, {}, "start 1 77\nstart 1 78\nend 1 3\n"),
        ("a job that ended has run to its end", {}, {}, "start 1 77\n"),
        ("a job that ended has run to its end", {}, {}, ""),
        ("nothing runs that is not in the log", {}, {}, "start 2 77\nend 2 3\n"),
        ("the log folds", {"submitted": None}, {}, LEDGER),
    ],
)
def test_the_audit_finds_each_broken_promise(
    tmp_path: Path, promise: str, changed: dict[str, Any], load: dict[str, Any], ledger: str
) -> None:
    assert promise in broken(tmp_path, history(**changed), ledger=ledger, **load)


def test_the_audit_finds_a_job_that_ran_twice_at_once(tmp_path: Path) -> None:
    (tmp_path / "twice").write_text("1.0 attempt 2\n", encoding="ascii")
    assert broken(tmp_path, history()) == {"no job runs twice at once"}


def test_the_audit_finds_a_replica_that_the_killer_hit_by_mistake(tmp_path: Path) -> None:
    assert broken(tmp_path, history(), hit=77) == {"the harness kills no replica"}
