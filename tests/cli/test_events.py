"""What `penstock events` prints where nothing of the log is the caller's."""

from types import SimpleNamespace

import pytest

from penstock.cli import events


@pytest.fixture
def silent(monkeypatch):
    """A server with a log of 700 events, none of which the caller may see."""
    client = SimpleNamespace(
        cluster=lambda: SimpleNamespace(seq=700), events=lambda after: [], job_events=lambda job: []
    )
    monkeypatch.setattr(events, "client_of", lambda: client)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none of the last 50 events is yours: --last N looks further back\n"),
        ({"last": 700}, "none of the last 700 events is yours\n"),
        ({"last": 0}, ""),
        ({"job": 7}, "no events of job 7\n"),
    ],
    ids=["some", "all", "none asked", "job"],
)
def test_a_log_of_others_is_not_called_empty(silent, capsys, given, said):
    events.events(**{"job": None, "follow": False, "last": 50, "json": False, **given})
    assert capsys.readouterr() == ("", said)
