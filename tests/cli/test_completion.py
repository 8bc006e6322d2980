"""The shell completes words from a table, numbers and names by asking the server; it stays silent where it cannot."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import completion
from penstock.cli.install_completion import SCRIPTS
from tests.cli.terminals import plain
from tests.server.harness import environment, until

PROGRAM = f'#!/bin/sh\nexec {sys.executable} -P -m penstock.cli.entry "$@"\n'


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Commands of this test's process wait for the server as long as it takes: the machine may be busy."""
    monkeypatch.setattr(completion, "ASK_MAX_S", 30.0)


def completed(terminal, *words, shell="zsh"):
    told = terminal(*words, **{completion.VARIABLE: shell})
    assert (told.code, told.err) == (0, "")
    return told.out


def found(terminal, *words):
    return {line.partition("\t")[0] for line in completed(terminal, *words).splitlines()}


@pytest.fixture
def job(penstock, server):
    made = penstock.job("sleep", "60")
    until(lambda: server.client.job(made).state == "running", "it runs")
    yield str(made)
    server.client.cancel(made)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["drain", "n"], ["n1", "n2"]),
        (["submit", "--queue", "d"], {"default"}),
        (["submit", "--queue=d"], {"--queue=default"}),
        (["submit", "--queue", "=", "d"], {"default"}),
        (["ps", "--tenant", "def"], {"default"}),
        (["--data", "/nowhere", "money", "inv"], {"invoice"}),
        (["money", "inv"], {"invoice"}),
        (["money", "invoice", "s"], {"show"}),
        (["resu"], {"resume"}),
        (["--vers"], {"--version"}),
        (["ps", "--state", "wai"], {"waiting"}),
        (["ps", "-o", "ya"], {"yaml"}),
        (["ps", "--st"], {"--state"}),
        (["cancel", "--yes", "--ye"], set()),
        (["cancel", "--state", "waiting", "--stat"], {"--state"}),
        (["nodes", "n1"], {"n1"}),
        (["--data"], {"--data"}),
        (["nothing", "x"], set()),
        (["run", "--", "l"], {""}),
        (["apply", "--file", "c"], {""}),
    ],
    ids=" ".join,
)
def test_words_are_completed(penstock, words, expected):
    assert found(penstock, *words) == set(expected)


@pytest.mark.parametrize("command", ["show", "cancel", "logs", "explain", "hold", "attach", "suspend"])
def test_numbers_of_jobs_are_completed(penstock, job, command):
    assert found(penstock, command, job) == {job}


def test_names_of_jobs_are_completed_and_said_what_they_are(penstock, job):
    assert f"sleep\tjob {job}, running\n" in completed(penstock, "cancel", "--name", "sl")
    assert completed(penstock, "cancel", "--name", "sl", shell="bash") == "sleep\n"


@pytest.mark.parametrize("words", [["show", "1"], ["drain", "n"], ["submit", "--queue", "d"]], ids=" ".join)
def test_without_a_server_nothing_is_said(alone, words):
    assert completed(alone, *words) == ""


def asked_of(monkeypatch, jobs):
    monkeypatch.setattr("penstock.cli.place.client_of", lambda: SimpleNamespace(jobs=jobs))
    return completion.asked("jobs"), completion.asked("job_names")


def test_names_that_a_shell_would_run_or_not_show_are_left_out(monkeypatch):
    names = ["ok-1", "$(reboot)", "a b", "x\x1b[2J", "a;b", "训练"]
    jobs = [SimpleNamespace(id=place, name=name, state="running") for place, name in enumerate(names)]
    numbers, offered = asked_of(monkeypatch, lambda **query: SimpleNamespace(jobs=jobs))
    assert [word for word, _ in offered] == ["ok-1", "训练"]
    assert numbers[3] == ("3", "x\\x1b[2J, running")


def test_a_slow_server_is_given_up(monkeypatch):
    monkeypatch.setattr(completion, "ASK_MAX_S", 0.01)
    assert asked_of(monkeypatch, lambda **query: time.sleep(60)) == ([], [])


def test_the_parser_is_not_loaded():
    code = "import sys; from penstock.cli.entry import main; main(); print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "mon"],
        capture_output=True,
        text=True,
        env={**os.environ, completion.VARIABLE: "bash"},
    )
    assert done.stdout == "money\n"
    loaded = set(done.stderr.split())
    assert {"typer", "rich", "msgspec", "penstock.client", "penstock.cli.main"} & loaded == set()


@pytest.fixture
def home(tmp_path, server):
    """A home folder with the program on its path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "penstock").write_text(PROGRAM)
    (tmp_path / "bin" / "penstock").chmod(0o755)
    return tmp_path


def variables(home, server):
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    given = {name: value for name, value in environment(server.root).items() if not name.startswith("XDG_")}
    return {**given, "HOME": str(home), "PATH": path, "PENSTOCK_HOME": str(server.data.root), "TERM": "dumb"}


def typed(words, home, server, line, expected):
    """Type a line into an interactive shell, and return what it shows once the text that is expected is there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(home)
        os.execvpe(words[0], words, variables(home, server))
    seen, deadline, asked = "", time.monotonic() + 60, False
    try:
        while not re.search(expected, plain(seen)):
            ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
            assert ready, f"within 60 s only:\n{plain(seen)}"
            seen += os.read(terminal, 65_536).decode(errors="replace")
            if not asked and "ready>" in plain(seen):
                asked = True
                os.write(terminal, line.encode())
    finally:
        os.kill(child, 9)
        os.close(terminal)
        os.waitpid(child, 0)
    return plain(seen)


SHELLS = {
    "bash": (["bash", "-i"], ".bashrc", "PS1='ready> '\n"),
    "zsh": (["zsh", "-i"], ".zshrc", "PS1='ready> '\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_one_command_makes_a_shell_complete(penstock, server, home, shell):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    words, start, prompt = SHELLS[shell]
    (home / start).write_text(prompt)
    env = {name: value for name, value in variables(home, server).items() if name != "PENSTOCK_HOME"}
    for _ in range(2):
        told = penstock("completion", "install", shell, **env)
        assert (told.code, told.err) == (0, "")
    assert (home / start).read_text().count("completion of penstock") == 1
    typed(words, home, server, "penstock resu\t", r"resu\S*me ")
    typed(words, home, server, "penstock token \t\t", r"create .*list .*revoke|create.*\n.*list.*\n.*revoke")


def test_fish_finds_its_script_by_itself(penstock, server, home):
    told = penstock("completion", "install", "fish", HOME=str(home), XDG_CONFIG_HOME="")
    script = home / ".config/fish/completions/penstock.fish"
    assert (told.code, told.out) == (0, f"completion for fish is in {script}\n")
    if shutil.which("fish"):
        asked = ["fish", "-c", "complete -C 'penstock ps --state s'"]
        done = subprocess.run(asked, capture_output=True, text=True, env=variables(home, server), cwd=home)
        assert done.stdout.split() == ["starting", "stopping", "suspended", "succeeded"], done.stderr


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_is_one_that_its_shell_can_read(penstock, tmp_path, shell):
    (tmp_path / "script").write_text(penstock("completion", "show", shell).out)
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_that_is_not_known_is_refused(penstock):
    told = penstock("completion", "install", "bsh")
    assert (told.code, "did you mean 'bash'?" in told.err) == (2, True)


def test_the_table_of_words_is_part_of_what_is_installed():
    assert Path(completion.__file__).parent / "words.json" == completion.WORDS
    assert completion.WORDS.exists()
