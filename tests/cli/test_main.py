"""Commands are imported when they are called; help and completion know them by a table."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from penstock.cli import commands, main
from penstock.cli.shape import JobShape, shaped

LOCAL = (
    *("server", "control", "store", "sim", "report", "traces", "migrate", "security", "training", "extensions"),
    *("engines.local", "engines.agent", "wire", "devices"),
)
"""Parts of Penstock that a command which talks to a server does without."""
NOTHING_SAID = JobShape()
BARE = {"penstock", "penstock.cli", "penstock.cli.commands", "penstock.cli.helping", "penstock.cli.main"}
MODULES_MAX = 78
"""Modules of Penstock that such a command loads: 43 are the client, 18 the command line, 10 look whose the data
folder is."""
SAY_MODULES = "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), sep='\\n', file=sys.stderr)); "


def modules_of(code: str, **variables: str) -> set[str]:
    """Return the modules of Penstock that a fresh interpreter has loaded at the end of `code`."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SAY_MODULES + code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    return {line for line in done.stderr.splitlines() if line.partition(".")[0] == "penstock"}


def below(modules: set[str], parts: tuple[str, ...]) -> list[str]:
    names = [f"penstock.{part}" for part in parts]
    return sorted(m for m in modules if any(m == name or m.startswith(f"{name}.") for name in names))


def program(*words: str) -> str:
    return f"from penstock.cli.main import main; sys.argv = {['penstock', *words]!r}; main()"


NAMES = [*commands.TOP, *(f"{group} {name}" for group, members in commands.GROUPS.items() for name in members)]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_the_command_says_of_itself(name):
    entry, command = main.entry_of(name), main.load(name)
    assert (command.name, command.hidden) == (name.split()[-1], entry.hidden)
    assert command.get_short_help_str(1000) == entry.summary


def test_help_imports_no_command():
    assert modules_of(program("--help")) == BARE


def test_completion_imports_no_command():
    done = subprocess.run(
        [sys.executable, "-P", "-c", SAY_MODULES + program("c")],
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_COMPLETE": "bash"},
    )
    loaded = {line for line in done.stderr.splitlines() if line.partition(".")[0] == "penstock"}
    assert loaded == {*BARE, "penstock.cli.completion"}
    assert {"cancel", "checkpoints", "certificates"} <= set(done.stdout.split())


def test_declarations_load_nothing_that_works_on_this_machine():
    code = f"from penstock.cli.main import load; [load(name) for name in {NAMES!r}]"
    loaded = modules_of(code)
    assert "penstock.cli.simulate" in loaded
    assert below(loaded, LOCAL) == []


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("nodes",),
        ("queue",),
        ("pools",),
        ("quota",),
        ("usage",),
        ("money", "accounts"),
        ("plan", "--", "true"),
    ],
)
def test_what_talks_to_a_server_loads_the_client_alone(server, words):
    loaded = modules_of(program(*words), PENSTOCK_HOME=str(server.data.root))
    assert "penstock.client.http" in loaded
    assert below(loaded, LOCAL) == []
    assert {name.split(".")[2] for name in loaded if name.startswith("penstock.core.")} <= {"model", "messages"}
    assert len(loaded) <= MODULES_MAX, sorted(loaded)


def test_an_unknown_command_names_the_nearest(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["penstock", "cancle"])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert "did you mean 'cancel'?" in capsys.readouterr().err


def test_a_defect_is_no_message(monkeypatch):
    def broken() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        main.main()


def test_a_command_takes_the_options_of_a_shape():
    seen = []

    @shaped(without=("array",))
    def command(
        what: Annotated[str, typer.Argument()],
        out: Path | None = None,
        shape: JobShape = NOTHING_SAID,
        json: bool = False,
    ) -> None:
        """Declared."""
        seen.append((what, out, shape, json))

    app = typer.Typer()
    app.command()(command)
    made = typer.main.get_command(app)
    names = [parameter.name for parameter in made.params]
    shape = [field for field in JobShape._fields if field != "array"]
    assert names[: len(shape) + 3] == ["what", "out", *shape, "json"]
    made(["x", "-g", "2", "--env", "A=1", "--json"], standalone_mode=False)
    assert seen == [("x", None, JobShape(devices="2", env=["A=1"]), True)]
