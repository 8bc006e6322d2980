"""Many starts, ends and reports at once come in slices of the agent's loop, between which it renews its lease."""

import time

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.agent import report_reader
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.agent.report_reader import ReportReader
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.builders import start
from tests.engines.processes.processes import SESSIONS


def key(job: int) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))


@pytest.fixture
def replicas(tmp_path, monkeypatch):
    """Replicas whose start takes a whole slice each."""
    gone = {}
    made = Replicas(
        "n1", DataFolder(tmp_path), SESSIONS, {}, Journal(tmp_path / "journal"), ExitBook(tmp_path / "exits"),
        lambda one, info: gone.update({one: info}),
    )  # fmt: skip
    made.gone, made.started = gone, []
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(made, "start", lambda order: made.started.append(order.key))
    return made


def test_one_turn_starts_no_more_than_its_slice_lasts(replicas):
    for job in range(1, 4):
        replicas.queue(start(key(job)))
    counts = []
    for _ in range(4):
        replicas.poll(0)
        counts.append(len(replicas.started))
    assert counts == [1, 2, 3, 3]
    assert replicas.started == [key(1), key(2), key(3)]


def test_who_waits_for_a_turn_can_be_stopped(replicas):
    replicas.queue(start(key(1)))
    assert replicas.needs_polling
    replicas.kill(key(1))
    replicas.poll(0)
    assert replicas.started == []
    assert replicas.gone[key(1)].problem == "stopped before it started"


def test_a_round_of_reports_goes_on_with_the_next_turn(tmp_path, monkeypatch):
    data, seen = DataFolder(tmp_path), []
    reader = ReportReader(data, lambda one: seen.append(one.key))
    for job in range(1, 4):
        data.job(JobId(job)).mkdir(parents=True)
        data.report(key(job)).write_text('{"kind": "checkpoint", "step": 1}\n')
        reader.follow(key(job))
    clock = iter(range(10**6))
    monkeypatch.setattr(report_reader.time, "monotonic", lambda: float(next(clock)))
    assert [reader.read(0, 1.5), reader.read(0, 1.5), reader.read(0, 1.5)] == [True, False, False]
    assert sorted(seen) == [key(1), key(2), key(3)]
    assert not reader.busy
    assert reader.read(report_reader.EVERY_MS, 1.5)
