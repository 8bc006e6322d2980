"""The page on writing a policy, played from its first block to its last: files, tests and commands as they stand."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.transcript import Shell, commands, shell
from tests.server.harness import ROOT, environment, sweep

PAGE = (ROOT / "docs/writing-a-policy.md").read_text()
FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
SEEN = {
    "penstock sim jobs.csv": (r"fifo\+none +ext:small_first\+none", "wait, mean"),
    "penstock up --cluster cluster.yaml": ("Penstock is up", "1 nodes?.* 4 devices?"),
    "penstock queue": ("default ext:small_first",),
    "penstock submit --devices 4": ("job 1",),
    "penstock whatif": ("decisions come out the same", r"ext:small_first\+easy"),
}


def install(folder: Path) -> None:
    """Do what `pip install .` leaves behind, from what pyproject.toml says: no package index is needed."""
    import tomllib

    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    described = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in named.items())
        for group, named in project["entry-points"].items()
    )
    (described / "entry_points.txt").write_text(points)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    install(tmp_path)
    return tmp_path


@pytest.fixture
def variables(folder: Path) -> dict[str, str]:
    found = environment(folder)
    return found | {"PYTHONPATH": f"{folder}:{found['PYTHONPATH']}"}


@pytest.fixture
def terminal(folder: Path, variables: dict[str, str]) -> Iterator[Shell]:
    with shell(folder, variables) as opened:
        yield opened
    sweep(folder)


def test_the_tests_of_the_page_pass(folder, variables):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_small_first.py"]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout


def test_the_commands_of_the_page_work_in_their_order(terminal):
    shown = [c for c in commands(PAGE) if not c.startswith("pip ")]
    last = [c for c in shown if c.startswith("penstock whatif")]  # it needs a log: the reader has one
    assert len(shown) == len(SEEN)
    for command in [*(c for c in shown if c not in last), "penstock logs -f 1", *last, "penstock down"]:
        seen = terminal.play(command)
        patterns = next((found for known, found in SEEN.items() if command.startswith(known)), ())
        assert seen.code == 0, seen.lines
        assert [p for p in patterns if not re.search(p, seen.text)] == [], seen.lines


def test_small_jobs_wait_less_under_the_policy_of_the_page(terminal):
    (command,) = (c for c in commands(PAGE) if c.startswith("penstock sim"))
    mean = next(line for line in terminal.play(command).lines if line.startswith("wait, mean"))
    assert mean.split() == ["wait,", "mean", "1", "h", "32", "min", "35", "min", "50", "s"]


def test_a_server_without_the_package_refuses_to_start(terminal, folder):
    for described in folder.glob("*.dist-info/*"):
        described.unlink()
    seen = terminal.play("penstock up --cluster cluster.yaml")
    assert seen.code != 0
    assert "ext:small_first" in seen.text
