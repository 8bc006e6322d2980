"""How `penstock wait` asks for many jobs: at a bounded rate, and each that has ended at once."""

from types import SimpleNamespace

import pytest

from penstock.cli import wait
from penstock.cli.errors import JobsFailed, TimedOut


class Jobs:
    """A client of jobs that end at given times of a clock, which sleeping moves on."""

    def __init__(self, monkeypatch, ends: dict[int, float], final: str = "succeeded") -> None:
        self.ends, self.final, self.now_s = ends, final, 0.0
        self.asked: list[int] = []
        monkeypatch.setattr(wait, "client_of", lambda: self)
        monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def job(self, number: int):
        self.asked.append(number)
        state = self.final if self.now_s >= self.ends[number] else "running"
        return SimpleNamespace(id=number, name="x", state=state, reason="")


def test_many_jobs_are_asked_for_at_a_bounded_rate(monkeypatch, capsys):
    jobs = Jobs(monkeypatch, dict.fromkeys(range(1, 301), 60.0))
    wait.wait(list(jobs.ends), until="ended", timeout=None, json=False)
    assert 60 <= jobs.now_s < 64
    assert len(jobs.asked) < 300 + 60 * wait.REQUESTS_PER_S * 1.2 + 300
    assert len(capsys.readouterr().out.splitlines()) == 300


def test_jobs_are_named_as_they_end(monkeypatch, capsys):
    Jobs(monkeypatch, {1: 30.0, 2: 0.0, 3: 15.0})
    wait.wait([1, 2, 3, 2], until="ended", timeout=None, json=False)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["2", "3", "1"]


@pytest.mark.parametrize(
    ("numbers", "until", "said"),
    [
        ([1], "ended", "timeout of 2s reached: 1 job has not ended: 1"),
        ([3, 1, 2], "ended", "timeout of 2s reached: 3 jobs have not ended: 1, 2, 3"),
    ],
)
def test_a_timeout_names_the_jobs_that_are_left(monkeypatch, numbers, until, said):
    Jobs(monkeypatch, dict.fromkeys(numbers, 9.0))
    with pytest.raises(TimedOut) as timed_out:
        wait.wait(numbers, until=until, timeout="2s", json=False)
    assert timed_out.value.message == said


def test_a_failure_ends_with_the_same_code_for_people_and_programs(monkeypatch):
    Jobs(monkeypatch, {1: 0.0}, final="failed")
    with pytest.raises(JobsFailed):
        wait.wait([1], until="ended", timeout=None, json=False)
    monkeypatch.setattr(wait, "print_json", lambda shown: None)
    with pytest.raises(SystemExit, match="1"):
        wait.wait([1], until="ended", timeout=None, json=True)
