"""The shell completes numbers and names by asking the server, and stays silent where there is none."""

from types import SimpleNamespace

import pytest

from penstock.cli import completion
from tests.server.harness import until


def completed(terminal, words, at):
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": f"penstock {words}", "COMP_CWORD": str(at)}
    return terminal(**asked)


@pytest.fixture
def job(penstock, server):
    made = penstock.job("sleep", "60")
    until(lambda: server.client.job(made).state == "running", "it runs")
    yield str(made)
    server.client.cancel(made.real)


@pytest.mark.parametrize(
    ("words", "at", "found"),
    [
        ("drain n", 2, {"n1", "n2"}),
        ("submit --queue d", 3, {"default"}),
        ("ps --tenant def", 3, {"default"}),
        ("money inv", 2, {"invoice"}),
        ("nodes n1", 2, {"n1"}),
    ],
)
def test_names_are_completed(penstock, words, at, found):
    told = completed(penstock, words, at)
    assert (told.code, set(told.out.split())) == (0, found)


@pytest.mark.parametrize("command", ["show", "cancel", "logs", "explain", "hold"])
def test_numbers_of_jobs_are_completed(penstock, job, command):
    assert job in completed(penstock, f"{command} {job}", 2).out.split()


@pytest.mark.parametrize("words", ["show 1", "drain n", "submit --queue d"])
def test_without_a_server_nothing_is_said(alone, words):
    told = completed(alone, words, len(words.split()))
    assert (told.code, told.out.strip(), told.err) == (0, "", "")


def test_the_newest_jobs_are_completed_within_a_short_time(monkeypatch):
    asked = []

    class Slow:
        timeout_s = 60.0

        def jobs(self, **query):
            asked.append((self.timeout_s, query))
            return SimpleNamespace(jobs=[SimpleNamespace(id=7, name="a", state="running")])

    monkeypatch.setattr(completion, "client_of", Slow)
    assert completion.complete_jobs("7") == [("7", "a, running")]
    assert asked == [(completion.TIMEOUT_S, {"sort": "newest", "limit": completion.JOBS_MAX})]
    assert completion.TIMEOUT_S <= 2
