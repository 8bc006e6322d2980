"""Progress where standard error is no terminal: a line now and then, by a clock of the test."""

import io
import sys

import pytest

from penstock.cli import progress as bars
from penstock.cli.progress import ProgressLines, progress
from tests.server.harness import Jobs, until


class Told:
    """Progress lines on a clock that the test moves."""

    def __init__(self, total: int = 1_000, noun: str = "jobs") -> None:
        self.now_s, self.lines = 100.0, list[str]()
        self.on_share = ProgressLines(total, noun, clock_s=lambda: self.now_s, print_line=self.lines.append)

    def at(self, second: float, share: float) -> list[str]:
        """Return all lines so far, after a share is told at a second since the start."""
        self.now_s = 100.0 + second
        self.on_share(share)
        return self.lines


def test_a_line_has_time_share_jobs_and_the_time_left():
    assert Told(82_247).at(10, 0.125) == ["after 10s: 12.5 % done, 10,280 of 82,247 jobs, about 1m 10s left"]


def test_short_work_says_nothing():
    told = Told()
    assert [told.at(second, second / 10) for second in (1, 5, 9.9)][-1] == []


def test_lines_never_come_more_often_than_every_ten_seconds():
    told = Told()
    said_s = []
    for tick in range(1, 1000):
        if len(told.at(tick / 10, tick / 1000)) > len(said_s):
            said_s.append(tick / 10)
    assert said_s == [10 * i for i in range(1, 10)]


def test_a_late_line_does_not_make_the_next_one_early():
    told = Told()
    assert len(told.at(17, 0.1)) == 1
    assert len(told.at(26.9, 0.2)) == 1
    assert len(told.at(27, 0.2)) == 2


def test_nothing_is_guessed_before_anything_is_done():
    assert Told().at(10, 0.0) == ["after 10s: 0.0 % done, 0 of 1,000 jobs, time left unknown"]


def test_work_that_is_not_counted_has_its_share():
    assert Told(0).at(60, 0.25) == ["after 1m 0s: 25.0 % done, about 3m 0s left"]


def test_the_end_is_not_announced():
    assert Told().at(1_000, 1.0) == []


def test_the_time_left_is_that_of_a_replay_which_began_anew():
    told = Told()
    told.at(9, 1.0)
    told.at(9.5, 0.0)
    assert told.at(19.5, 0.5) == ["after 20s: 50.0 % done, 500 of 1,000 jobs, about 10s left"]


@pytest.mark.parametrize(("quiet", "kind"), [(True, type(None)), (False, ProgressLines)])
def test_lines_take_the_place_of_the_bar_where_there_is_no_terminal(monkeypatch, quiet, kind):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("title", total=1, quiet=quiet) as on_share:
        assert type(on_share) is kind


def test_a_terminal_has_a_bar_and_no_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("title", total=1, quiet=False) as on_share:
        assert on_share is not None
        assert not isinstance(on_share, ProgressLines)


class Screen(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


def screen_of(monkeypatch):
    """Return what is standard error from now on; pytest would take it back from a fixture."""
    made = Screen()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_what_is_waited_for_is_shown_once_it_takes_longer(monkeypatch):
    screen = screen_of(monkeypatch)
    monkeypatch.setattr(bars, "WAIT_SHOWN_AFTER_S", 0.0)
    with bars.waiting("waiting for 2 jobs") as change:
        until(lambda: "waiting for 2 jobs" in screen.getvalue(), "it is shown")
        change("waiting for 1 job [bold]")
        until(lambda: "waiting for 1 job [bold]" in screen.getvalue(), "it has changed")


def test_a_short_wait_shows_nothing(monkeypatch):
    screen = screen_of(monkeypatch)
    with bars.waiting("waiting") as change:
        change("still")
    assert screen.getvalue() == ""


def test_in_a_pipe_and_for_programs_nothing_is_shown(monkeypatch):
    screen = screen_of(monkeypatch)
    monkeypatch.setattr(bars, "WAIT_SHOWN_AFTER_S", 0.0)
    with bars.waiting("waiting", quiet=True):
        pass
    assert screen.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bars.waiting("waiting"):
        pass
    assert sys.stderr.getvalue() == ""


def test_what_is_printed_meanwhile_goes_to_the_pipe_and_not_to_the_terminal(monkeypatch):
    screen = screen_of(monkeypatch)
    monkeypatch.setattr(bars, "WAIT_SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with bars.waiting("waiting"):
        until(screen.getvalue, "it is shown")
        sys.stdout.write("a line of the result\n")
    assert sys.stdout.getvalue() == "a line of the result\n"
    assert "result" not in screen.getvalue()


@pytest.mark.parametrize("total", [0, 3, 2_000])
def test_a_list_tells_its_share_as_it_is_taken(total):
    told = []
    assert list(bars.shared(range(2_000), told.append, total)) == list(range(2_000))
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert len(told) <= 2_000
    assert list(bars.shared("ab", None, 2)) == ["a", "b"]


@pytest.mark.parametrize(
    "words",
    [
        ("audit",),
        ("whatif",),
        ("report", "--out", "page"),
        ("store", "verify"),
        ("store", "backup", "log.penstock"),
    ],
    ids=["audit", "whatif", "report", "verify", "backup"],
)
def test_long_work_has_a_bar_at_a_terminal(penstock, server, words):
    made = penstock.job("true")
    Jobs(server.client).ended(made)
    told = penstock.at_terminal(*words)
    assert (told.code, "records ━" in told.out) == (0, True), told.out


def test_a_log_is_restored_with_a_bar(penstock, alone):
    assert penstock("store", "backup", str(alone.folder / "log.penstock")).code == 0
    told = alone.at_terminal("store", "restore", "log.penstock")
    assert (told.code, "restoring" in told.out) == (0, True), told.out
