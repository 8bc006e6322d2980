"""Every command in every situation: its examples, its help, wrong words, no server, no right, JSON, a closed pipe."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import commands
from penstock.cli.examples import EXAMPLES
from tests.cli.conftest import Terminal
from tests.cli.stage import ALONE, LEAVES, LOCAL, NOT_JSON, Stage, built
from tests.server.harness import Jobs


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from built(tmp_path_factory.mktemp("stage"))


def plain(told: Any) -> list[str]:
    """Return the lines of an error; there is no traceback in it."""
    assert "Traceback" not in told.err
    assert told.err.startswith("error: "), told.err
    return told.err.splitlines()


def test_every_command_has_examples():
    assert [name for name in LEAVES if not EXAMPLES.get(name)] == []
    assert [name for name in EXAMPLES if name not in LEAVES] == []


@pytest.mark.parametrize("name", LEAVES)
def test_help_shows_how_it_is_used_and_examples(stage: Stage, name: str) -> None:
    told = stage.terminal()(*name.split(), "--help")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"Usage: penstock {name} ")
    assert [line for line in EXAMPLES[name] if line not in " ".join(told.out.split())] == []


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ALONE])
def test_examples_work(stage: Stage, name: str) -> None:
    for line in EXAMPLES[name]:
        stdin, _, line = line.rpartition("| ")
        line, _, _ = line.partition(" > ")
        words = stage.words(line)
        assert words[0] == "penstock"
        if name == "requeue":  # the example before has sent the job back to wait
            Jobs(stage.server.client).state(int(stage.names["8"]), "running")
        told = stage.terminal()(*words[1:], stdin=stdin.removeprefix("echo "))
        expected = (0, 10, 11) if name in ("plan", "sizing") else (0,)
        assert told.code in expected, (line, told.err)
        assert "Traceback" not in told.err


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ALONE | NOT_JSON])
def test_json_is_json(stage: Stage, name: str) -> None:
    stdin, _, line = EXAMPLES[name][0].rpartition("| ")
    line, stdin = line.partition(" > ")[0], stdin.removeprefix("echo ")
    head, dashes, tail = line.partition(" -- ")
    told = stage.terminal()(*stage.words(f"{head} --json{dashes}{tail}")[1:], stdin=stdin)
    assert "Traceback" not in told.err
    assert json.loads(told.out or told.err) is not None


@pytest.mark.parametrize("name", sorted(commands.LISTS - {"jobs"}))
def test_every_list_has_every_form(stage: Stage, name: str) -> None:
    words = {"checkpoints": [*name.split(), stage.names["1"]]}.get(name, name.split())
    whole = stage.terminal()(*words, "-o", "csv")
    rows = list(csv.reader(io.StringIO(whole.out)))
    assert (whole.code, whole.err, {len(row) for row in rows[1:]} <= {len(rows[0])} if rows else True) == (0, "", True)
    told = stage.terminal()(*words, "-o", "yaml")
    assert (told.code, told.err, told.out != "") == (0, "", True)
    assert yaml.safe_load(told.out) is not None
    if len(rows) > 1:
        first = rows[0][0]
        told = stage.terminal()(*words, "--columns", first, "--sort", f"-{first}")
        assert (told.code, told.err, told.out.split()[0].lower()) == (0, "", first.partition("_")[0])
        assert len(stage.terminal()(*words, "--format", f"{{{first}}}").out.splitlines()) == len(rows) - 1
        assert len(stage.terminal()(*words, "-o", "name").out.splitlines()) in (0, len(rows) - 1)


@pytest.mark.parametrize("name", LEAVES)
def test_an_unknown_option_is_named_with_a_hint_that_works(stage: Stage, name: str) -> None:
    told = stage.terminal()(*name.split(), "--nonsense")
    error, hint = plain(told)
    assert (told.code, told.out, "--nonsense" in error) == (2, "", True)
    found = re.search(r"(penstock .*--help)", hint)
    assert found or "did you mean" in hint
    if found:
        assert stage.terminal()(*found[1].split()[1:]).code == 0


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in LOCAL])
def test_without_a_server_it_is_said_how_to_start_one(stage: Stage, tmp_path: Path, name: str) -> None:
    words = stage.words(EXAMPLES[name][0].rpartition("| ")[2].partition(" > ")[0])
    told = Terminal(stage.folder, tmp_path / "empty", tmp_path)(*words[1:], stdin="x")
    assert told.code == 3, told.err
    assert "no server runs on" in plain(told)[0]


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in LOCAL | {"down"}])
def test_a_wrong_token_is_refused(stage: Stage, name: str) -> None:
    words = stage.words(EXAMPLES[name][0].rpartition("| ")[2].partition(" > ")[0])
    told = stage.terminal()(*words[1:], stdin="x", PENSTOCK_TOKEN="wrong")
    assert told.code == 4, told.err
    assert "the token is not valid" in plain(told)[0]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "submit",
            "sbatch",
            "cancel",
            "hold",
            "release",
            "suspend",
            "resume",
            "requeue",
            "edit",
            "save",
            "lease",
            "drain",
        ),
        *("devices close", "devices open"),
        *("apply", "admin add", "admin set", "admin remove", "token create", "secret set", "secret remove"),
        *("money credit", "money invoice issue", "money invoice pay", "money invoice correct", "money reverse"),
    ],
)
def test_a_token_that_may_only_read_changes_nothing(stage: Stage, name: str) -> None:
    words = stage.words(EXAMPLES[name][-1].rpartition("| ")[2].partition(" > ")[0])
    told = stage.terminal()(
        *[word for word in words[1:] if word != "--dry-run"], stdin="x", PENSTOCK_TOKEN=stage.reader
    )
    assert told.code == 4, told.err
    assert len(plain(told)) <= 2


UNKNOWN = {
    **{
        name: ["999999"]
        for name in (
            "show",
            "logs",
            "attach",
            "explain",
            "wait",
            "cancel",
            "hold",
            "release",
            "suspend",
            "resume",
            "requeue",
        )
    },
    **{name: ["999999"] for name in ("save", "checkpoints", "shell", "events", "eta", "audit")},
    "exec": ["999999", "--", "true"],
    "edit": ["999999", "--priority", "high"],
    "drain": ["nowhere"],
    "devices list": ["nowhere"],
    "devices close": ["n1", "99"],
    "devices open": ["nowhere", "0"],
    "money accounts": ["nobody"],
    "money credit": ["nobody", "1.00", "-r", "x"],
    "money ledger": ["nobody"],
    "money bill": ["--tenant", "nobody"],
    "money invoice show": ["none"],
    "money invoice issue": ["nobody"],
    "money invoice pay": ["none", "1.00", "-r", "x"],
    "money invoice correct": ["none", "--reason", "x"],
    "money reverse": ["999999", "--reason", "x"],
    "token revoke": ["none"],
    "secret remove": ["NONE"],
    "admin show": ["nothing"],
    "admin remove": ["queue", "nothing", "--yes"],
    "ps": ["--tenant", "nobody"],
    "lease": ["1", "--for", "1h", "--tenant", "nobody"],
    "submit": ["--queue", "nowhere", "--", "true"],
    "plan": ["--queue", "nowhere", "--", "true"],
    "sim": ["nowhere.csv"],
    "sizing": ["nowhere.csv"],
    "apply": ["-f", "nowhere.yaml"],
    "help": ["nothing"],
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_name_that_does_not_exist_is_said_to_be_unknown(stage: Stage, name: str) -> None:
    told = stage.terminal()(*name.split(), *UNKNOWN[name])
    assert told.code in (2, 5), (told.code, told.out, told.err)
    assert len(plain(told)) <= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ps", "--state", "runing"), "did you mean 'running'?"),
        (("ps", "--sort", "color"), "expected one of newest, id, priority"),
        (("ps", "--limit", "x"), "--limit: expected a whole number"),
        (("logs", "1", "--attempt", "0"), "--attempt: expected 1 or more"),
        (("usage", "--by", "tenants"), "did you mean 'tenant'?"),
        (("wait", "1", "--timeout", "soon"), "timeout is 'soon'"),
        (("token", "create", "--level", "root"), "level"),
        (("lease", "1", "--for", "long"), "time_limit"),
        (("plan", "--within", "soon", "--", "true"), "within is 'soon'"),
        (("schema", "jobs"), "job"),
    ],
    ids=" ".join,
)
def test_a_wrong_value_of_an_option_is_named(stage: Stage, words: tuple[str, ...], said: str) -> None:
    told = stage.terminal()(*words)
    assert (told.code, said in " ".join(plain(told))) == (2, True), told.err


@pytest.mark.parametrize("name", ["ps", "events", "nodes", "schema", "help", "audit", "money ledger"])
def test_a_closed_pipe_ends_it_without_a_word(stage: Stage, name: str) -> None:
    words = stage.words(EXAMPLES[name][0].partition(" > ")[0])
    process = stage.terminal().begin(*words[1:])
    assert isinstance(process, subprocess.Popen)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) in (0, 141)
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("old", commands.FORMER)
def test_a_former_name_works_and_says_the_new_one(stage: Stage, old: str) -> None:
    told = stage.terminal()(old, "--help")
    assert (told.code, told.out.startswith(f"Usage: penstock {commands.FORMER[old]} ")) == (0, True)
    assert told.err == f"penstock: {old} is now called {commands.FORMER[old]}: penstock {commands.FORMER[old]}\n"


@pytest.mark.parametrize("word", commands.MEANINGS)
def test_a_word_of_another_tool_leads_to_the_command_here(stage: Stage, word: str) -> None:
    told = stage.terminal()(word)
    assert (told.code, word not in commands.TOP) == (2, True)
    hinted = plain(told)[1].partition("penstock ")[2].partition(":")[0].split()
    assert stage.terminal()(hinted[0], "--help").code == 0


@pytest.mark.parametrize("name", ["ps", "nodes", "queue", "pools", "quota", "alerts", "status", "usage", "show", "eta"])
def test_watched_lists_are_drawn_again(stage: Stage, name: str) -> None:
    words = stage.words(EXAMPLES[name][0])
    process = stage.terminal().begin(*words[1:], "--watch", "--json")
    assert process.stdout is not None
    documents = 0
    while documents < 2:
        line = process.stdout.readline()
        assert line, "it ended"
        documents += line in ("{\n", "[\n")
    process.terminate()
    process.wait(30)
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
