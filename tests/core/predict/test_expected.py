"""Expected lengths of jobs that have not started: each step of the estimate counts only while it helps."""

import random

import pytest

from penstock.core.predict import expected
from penstock.core.predict.expected import CROWD_MS, ENDED_MIN, ExpectedLengths
from penstock.core.predict.features import JobFeatures

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Runs:
    """Submits, starts and ends in the order of time."""

    def __init__(self):
        self.lengths, self.now, self.next = ExpectedLengths(), 10 * DAY, 1

    def submit(self, devices=1, **features):
        job, self.next = self.next, self.next + 1
        self.lengths.submitted(job, JobFeatures(devices=devices, **features), self.now)
        return job

    def run(self, length_ms, devices=1, leaves=True, **features):
        """Run a job that is alone; the next comes an hour after its end."""
        job = self.submit(devices, **features)
        self.lengths.started(job, self.now)
        self.now += length_ms
        self.lengths.ended(job, self.now, leaves=leaves)
        self.lengths.left(job)
        self.now += HOUR
        return job

    def of(self, job):
        return self.lengths.mean_ms(job, self.now)


def test_nothing_is_expected_before_enough_has_ended():
    runs = Runs()
    for count in range(ENDED_MIN):
        assert (runs.of(runs.submit()) > 0) is (count >= ENDED_MIN)
        runs.run(MINUTE)
    assert runs.of(runs.submit()) == pytest.approx(MINUTE, rel=0.01)
    assert runs.of(10**6) == 0


def test_a_size_is_expected_to_run_as_long_as_jobs_of_that_size():
    runs = Runs()
    for _ in range(60):
        runs.run(MINUTE, devices=1)
        runs.run(10 * HOUR, devices=8)
    runs.now += DAY
    assert runs.of(runs.submit(1)) < HOUR / 2
    assert runs.of(runs.submit(8)) > 7 * HOUR
    between = runs.of(runs.submit(64))  # of that size nothing is known
    assert HOUR < between < 9 * HOUR


def test_a_job_of_a_crowd_is_expected_to_be_shorter_where_crowds_were():
    runs = Runs()
    for _ in range(40):
        runs.run(10 * HOUR)
        crowd = [runs.submit() for _ in range(6)]
        for job in crowd:
            runs.lengths.started(job, runs.now)
        runs.now += MINUTE
        for job in crowd:
            runs.lengths.ended(job, runs.now, leaves=True)
            runs.lengths.left(job)
        runs.now += DAY
    alone = runs.submit()
    first_ms = runs.of(alone)
    runs.now += CROWD_MS
    others = [runs.submit() for _ in range(5)]
    assert first_ms > 5 * HOUR
    assert runs.of(others[-1]) < HOUR
    assert runs.of(alone) < HOUR, "its crowd came after it"
    assert runs.lengths.scores()["crowd"] < 0


def test_owners_and_names_count_where_they_are_known():
    runs = Runs()
    for _ in range(30):
        runs.run(MINUTE, user="ann", name="eval-1")
        runs.run(5 * HOUR, user="ann", name="train-1")
        runs.run(20 * HOUR, user="bob")
    runs.now += DAY
    short = runs.of(runs.submit(user="ann", name="eval-77"))
    long = runs.of(runs.submit(user="ann", name="train-78"))
    other = runs.of(runs.submit(user="bob"))
    assert short < 2 * HOUR < long < 9 * HOUR < other


@pytest.mark.parametrize("apart_ms", [0, MINUTE])
def test_siblings_that_ended_shortly_make_a_job_short(apart_ms):
    runs = Runs()
    for _ in range(20):
        runs.run(20 * HOUR)
        runs.now += DAY
    sibling = runs.submit()
    runs.now += apart_ms
    job = runs.submit()
    before_ms = runs.of(job)
    runs.lengths.started(sibling, runs.now)
    runs.now += MINUTE
    runs.lengths.ended(sibling, runs.now, leaves=True)
    assert runs.of(job) < before_ms / 2


def test_a_sibling_that_still_runs_makes_a_job_longer_the_longer_it_runs():
    runs = Runs()
    for _ in range(20):
        runs.run(MINUTE)
        runs.now += DAY
    sibling, job = runs.submit(), runs.submit()
    runs.lengths.started(sibling, runs.now)
    found = [runs.of(job)]
    for _ in range(3):
        runs.now += 5 * HOUR
        found.append(runs.of(job))
    assert found == sorted(found)
    assert found[-1] > 10 * HOUR


def test_a_run_that_was_stopped_or_is_not_the_first_has_no_length():
    runs = Runs()
    for _ in range(ENDED_MIN):
        runs.run(MINUTE)
    known = runs.of(runs.submit())
    for _ in range(9):
        runs.run(50 * HOUR, leaves=False)
        again = runs.submit()
        runs.lengths.started(again, runs.now)
        runs.lengths.ended(again, runs.now + HOUR, leaves=False)
        runs.lengths.started(again, runs.now + HOUR)
        runs.lengths.ended(again, runs.now + 90 * HOUR, leaves=True)
        runs.lengths.left(again)
        runs.now += 90 * HOUR
    assert runs.of(runs.submit()) == known


def test_a_step_that_does_worse_is_left_out_and_comes_back_when_it_helps():
    """Single jobs are long and crowds short; from one day on it is the other way round."""
    runs, used = Runs(), []
    for turn in range(2_000):
        for count in (1, 5):
            jobs = [runs.submit() for _ in range(count)]
            for job in jobs:
                runs.lengths.started(job, runs.now)
            runs.now += MINUTE if (count == 5) == (turn < 300) else 20 * HOUR
            for job in jobs:
                runs.lengths.ended(job, runs.now, leaves=True)
                runs.lengths.left(job)
            runs.now += 5 * DAY
        used.append(runs.lengths.used("crowd"))
    assert all(used[:300])
    assert not all(used)
    assert used[-1]
    assert runs.lengths.scores()["crowd"] < 0


def test_nothing_grows_without_bound(monkeypatch):
    for name, most in (("KINDS_MAX", 5), ("GROUPS_MAX", 7), ("OPEN_MAX", 9), ("REMEMBERED_MAX", 4)):
        monkeypatch.setattr(expected, name, most)
    runs = Runs()
    for count in range(200):
        runs.run(MINUTE, devices=1 + count % 13, user=f"u{count}", name=f"{'x' * (count % 30)}")
        runs.submit(devices=1 + count % 3)
    lengths = runs.lengths
    assert len(lengths._kinds) <= 5
    assert len(lengths._groups) <= 7
    assert len(lengths._open) <= 9
    assert all(len(kind.runs) <= 4 for kind in lengths._kinds.values())


def test_the_same_history_gives_the_same_lengths():
    def told():
        draw, runs, found = random.Random(3), Runs(), []
        for _ in range(100):
            found.append(runs.of(runs.submit(draw.choice((1, 2, 8)), user=draw.choice("ab"))))
            runs.run(draw.randrange(1, DAY), devices=draw.choice((1, 2, 8)), user=draw.choice("ab"))
        return found

    assert told() == told()


def test_a_suspension_makes_no_run_longer():
    runs, plain = Runs(), Runs()
    for _ in range(ENDED_MIN):
        plain.run(HOUR)
        job = runs.submit()
        runs.lengths.started(job, runs.now)
        runs.lengths.suspended(job, runs.now + HOUR // 2)
        runs.lengths.resumed(job, runs.now + 9 * HOUR)
        runs.lengths.suspended(job, runs.now + 9 * HOUR + HOUR // 2)
        runs.now += 20 * HOUR
        runs.lengths.ended(job, runs.now, leaves=True)
        runs.now += HOUR
    assert runs.of(runs.submit()) == plain.of(plain.submit())
