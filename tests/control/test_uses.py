"""The measured use of devices is noted sparingly, and only as far as it can be true."""

import pytest

from penstock.control.uses import COVERED_LEAST_MS, NOTE_EVERY_MS, Uses
from penstock.core.messages.reports import NodeFigures, NodeReport, ReplicaKey, ReplicaSeen, ReplicaUse
from penstock.core.model.events import UseNoted
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.measured import Measured
from penstock.testing.builders import node
from penstock.testing.harness import World

SECOND = 1_000


class Bench:
    """Job 1 has two replicas of two devices each, on nodes a and b."""

    def __init__(self) -> None:
        self.world, self.uses = World(node("a", 2), node("b", 2)), Uses()
        self.world.run(self.world.submit(2, 2))
        self.begin_ms = self.world.now

    def figures(self, busy=500, *, measured=1000, touched=2, rank=0, on="", **exits):
        """Report what a replica has used: busy, and measured at all, for this part of its time."""
        passed_ms = 2 * (self.world.now - self.begin_ms)
        told = Measured(passed_ms * measured // 1000, passed_ms * busy // 1000, devices_touched=touched)
        key, name = ReplicaKey(1, 1, rank), on or self.world.where(1, rank)
        seen = (ReplicaSeen(key, "exited", exit=ExitInfo(0, measured=told)),) if exits else ()
        figures = NodeFigures(replicas=() if exits else (ReplicaUse(key, measured=told),))
        report = NodeReport(name, "i1", 1, False, replicas=seen, figures=figures)
        self.world.commit(lambda tx: self.uses.note(tx, report, self.world.now))

    def runs(self, ms, **figures):
        """Let time pass, with figures of both ranks every 5 s."""
        until_ms = self.world.now + ms
        while self.world.now < until_ms:
            self.world.now += 5 * SECOND
            for rank in (0, 1):
                self.figures(rank=rank, **figures)
            self.world.commit(lambda tx: self.uses.tell(tx, self.world.now))

    @property
    def notes(self):
        return [record.event for record in self.world.records if isinstance(record.event, UseNoted)]


@pytest.fixture
def bench():
    return Bench()


def test_use_is_noted_every_ten_minutes_as_it_has_grown_since(bench):
    bench.runs(2 * NOTE_EVERY_MS + 10 * SECOND, busy=250)
    assert bench.notes == [UseNoted(1, 1, NOTE_EVERY_MS, 250)] * 2


def test_what_was_not_measured_is_not_covered(bench):
    bench.runs(NOTE_EVERY_MS + 10 * SECOND, measured=500, busy=100)
    assert bench.notes == [UseNoted(1, 1, NOTE_EVERY_MS // 2, 200)]


def test_an_attempt_that_ends_is_noted_once_with_its_last_use(bench):
    bench.runs(4 * 60 * SECOND, busy=1000)
    for rank in (0, 1, 0):
        bench.figures(1000, rank=rank, ended=True)
    assert bench.notes == [UseNoted(1, 1, 4 * 60 * SECOND - 5 * SECOND, 1000)]


def test_a_short_attempt_is_not_worth_a_record(bench):
    bench.runs(COVERED_LEAST_MS - 5 * SECOND)
    bench.figures(ended=True)
    assert bench.notes == []


def test_devices_that_were_never_used_are_counted_over_all_ranks(bench):
    bench.runs(NOTE_EVERY_MS + 10 * SECOND, touched=1)
    assert [note.untouched for note in bench.notes] == [2]


def test_where_it_cannot_be_known_no_device_counts_as_never_used(bench):
    bench.runs(NOTE_EVERY_MS + 10 * SECOND, touched=None)
    assert [note.untouched for note in bench.notes] == [0]


def test_another_node_says_nothing_of_a_replica(bench):
    other = {"a": "b", "b": "a"}[bench.world.where(1, 0)]
    for _ in range(3):
        bench.world.now += NOTE_EVERY_MS
        bench.figures(on=other)
        bench.world.commit(lambda tx: bench.uses.tell(tx, bench.world.now))
    assert bench.notes == []


def test_counters_that_begin_anew_add_nothing(bench):
    bench.runs(NOTE_EVERY_MS // 2, busy=400)
    bench.begin_ms = bench.world.now
    bench.runs(NOTE_EVERY_MS // 2 + 10 * SECOND, busy=400)
    assert all(note.busy_milli <= 1000 and note.covered_ms <= NOTE_EVERY_MS for note in bench.notes)
