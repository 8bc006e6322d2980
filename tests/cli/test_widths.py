"""Every list at terminals of 80, 100 and 140 columns: what one types is whole, and each row is one line."""

from collections.abc import Iterator
from functools import partial

import pytest

from penstock.client import Client
from tests.cli.stage import Stage, built
from tests.server.harness import until

LISTS = [
    *(
        "ps",
        "ps -a",
        "nodes",
        "nodes node-b",
        "pools",
        "queue",
        "quota",
        "alerts",
        "usage --by user,job",
        "usage --waste",
    ),
    *("eta", "token list", "secret list", "money accounts", "money invoice list", "money ledger", "money bill"),
    *("certificates", "cycle", "status", "show 1", "explain 3", "events --last 20", "whoami"),
]
NAME = "pretraining-of-the-large-language-model-with-日本語-in-its-name"
PROSE_WITHIN = {"money ledger"}
"""Lists whose column of prose is not the last."""
NOTES = ("not shown: ", "more: the same with", "estimate", "─")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    for made in built(tmp_path_factory.mktemp("widths")):
        client = made.server.client
        client.submit({"name": NAME, "tenant": "vision", "devices": 4, "replicas": 2, "command": "true"})
        client.submit({"name": NAME, "tenant": "vision", "command": "sleep 600", "array": 300, "cpus": 8})
        client.set_secret("A_SECRET_WITH_A_LONG_NAME_THAT_ONE_TYPES", "x", "vision")
        until(partial(_settled, client), "every job that has room runs")
        yield made


def _settled(client: Client) -> bool:
    """Return whether the array has started, and nothing is between two states: lists read one by one show the same."""
    states = [job.state for job in client.jobs().jobs]
    return states.count("running") > 3 and not {"starting", "stopping"} & set(states)


def firsts(text: str) -> set[str]:
    """Return the first words of the lines of a table or page."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(NOTES)]
    return {line.split()[0] for line in lines}


@pytest.mark.parametrize("line", LISTS)
def test_what_one_types_is_whole_at_any_width(stage: Stage, line: str) -> None:
    words = stage.words(f"penstock {line}")[1:]
    piped = stage.terminal()(*words)
    assert piped.code == 0, piped.err
    for columns in (80, 100, 140):
        seen = stage.terminal().at_terminal(*words, columns=columns)
        assert seen.code == 0
        cut = [row for row in seen.out.splitlines() if "…" in row.rsplit("  ", 1)[0]]
        assert cut == [] or line in PROSE_WITHIN, f"more than a last column of prose is cut at {columns} columns"
        if "─" in seen.out:
            assert {word for word in firsts(piped.out) if word.isdecimal()} <= firsts(seen.out)
        assert (NAME in piped.out) <= (NAME in seen.out), f"a name is cut at {columns} columns"
