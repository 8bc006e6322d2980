"""The command around the screen: what it prints without a terminal, and what it says where it cannot open."""

import io
import sys

import pytest
from msgspec.structs import replace

from penstock.api.types import JobView
from penstock.cli import main
from penstock.cli.errors import UsageError
from penstock.cli.top import command
from penstock.cli.top.looks import ListWanted, bar, job_query, listing
from penstock.core.model.errors import InvalidInput
from tests.cli.top.conftest import World


@pytest.fixture
def printed(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Return what `penstock top ...` prints."""
    monkeypatch.setenv("PENSTOCK_URL", world.server.url)
    monkeypatch.setenv("PENSTOCK_TOKEN", world.ann)

    def run(*words: str) -> list[str]:
        main.load("top")(list(words), standalone_mode=False)
        return capsys.readouterr().out.splitlines()

    return run


def test_without_a_terminal_one_view_is_printed(printed) -> None:  # type: ignore[no-untyped-def]
    lines = printed("nodes", "--filter", "n3")
    assert lines[0] == "nodes 2/3 ready  devices 8/12 █████░░░  2 running  12 waiting"
    assert lines[1].startswith("! 1 alert: fits only on nodes that take no work now")
    assert [line.split()[0] for line in lines[3:6]] == ["node", lines[4].split()[0], "n3"]
    assert lines[-1] == "filter n3: 1 node: 1 draining; SIM-80G 0 of 4 held"


def test_an_unknown_view_names_the_nearest(printed) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match="view is 'node', expected one of queue, running, nodes") as told:
        printed("node")
    assert told.value.hint == "did you mean 'nodes'?"


def test_without_textual_it_is_said_how_to_get_it(printed, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in [name for name in sys.modules if name.startswith("penstock.cli.top.") and name != command.__name__]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(UsageError, match="needs Textual, which is not installed") as told:
        printed()
    assert "pip install 'penstock[top]'" in told.value.hint


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ("usr:ann", "the filter has 'usr:', expected one of name, user, tenant, queue, label, array"),
        ("array:x", "the filter has 'array:x', expected array:NUMBER"),
        ("user:", "the filter has 'user:', expected user:TEXT"),
        ("label:x", "the filter has 'label:x', expected label:NAME=VALUE"),
        ("queue:a queue:b", "the filter has queue: twice"),
    ],
)
def test_a_filter_that_cannot_be_read_names_what_was_expected(typed: str, wrong: str) -> None:
    with pytest.raises(InvalidInput) as told:
        job_query(ListWanted("queue", typed), "ann")
    assert told.value.message == wrong


def test_my_jobs_say_where_jobs_of_a_user_are_filtered() -> None:
    with pytest.raises(InvalidInput) as refused:
        job_query(ListWanted("mine", "user:ann"), "ann")
    assert (refused.value.message, refused.value.hint) == (
        "My jobs has no filter user:",
        "filter Running or Queue by user:",
    )


def test_a_filter_becomes_a_query() -> None:
    query = job_query(ListWanted("queue", "big train user:ann label:a=1 label:b=2"), "ann")
    assert query == {
        "state": ("waiting",),
        "sort": "priority",
        "search": "big train",
        "user": "ann",
        "label": ["a=1", "b=2"],
        "fold_arrays": "true",
    }


def test_only_nothing_is_an_empty_bar_and_only_all_a_full_one() -> None:
    assert [bar(used, 1000, 4) for used in (0, 1, 500, 999, 1000)] == ["░░░░", "█░░░", "██░░", "███░", "████"]


def test_an_estimated_start_is_shown_where_there_is_one(world: World) -> None:
    class Client:
        """Answers as a server that has estimates."""

        def jobs(self, **query: object) -> object:
            found = world.client().jobs(**query)
            first: JobView = found.jobs[0]
            return replace(found, jobs=[replace(first, start_likely_ms=90_000), *found.jobs[1:]])

    shown = listing(Client(), ListWanted("queue"), "ann", 30_000)  # type: ignore[arg-type]
    at = shown.columns.index("starts")
    assert [row.cells[at] for row in shown.rows] == ["~1m 0s", "", "", ""]
