"""README and tutorial, played word by word in a real terminal: what a reader types, and what a reader sees."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.transcript import COLUMNS, Seen, Shell, commands, shell
from tests.server.harness import ROOT, environment, sweep

ANYTHING = ("",)
LOOKS = ("ps", "show", "explain", "nodes", "queue")
PATIENCE_S = 30.0
README = {
    "penstock up --cluster examples/cluster.yaml": (
        r"Penstock is up at http://127\.0\.0\.1:\d+",
        "2 nodes?.* 8 devices?",
    ),
    "penstock ui": (r"http://127\.0\.0\.1:\d+/login#[\w-]{40,}", "works once"),
    "penstock nodes": ("node-a.*ready", "node-b.*ready", "SIM-A100"),
    "penstock run -- echo hello": ("job 1 ", r"\bhello\b"),
    "penstock submit --devices 2 --priority low -- python examples/digits_numpy.py --steps 2000 --step-ms 10": (
        r"\bjob 2\b",
    ),
    "penstock submit examples/chain.yaml": (r"\b3\b.*prepare", r"\b4\b.*train", "evaluate"),
    "penstock ps": (r"\b2 +digits_numpy\.py", r"\d+ (running|starting|waiting)"),
    "penstock explain 2": (r"\b(runs|running|starts|starting)\b",),
    "penstock logs -f 3": ("prepared",),
    "penstock show 3": (r"\bprepare\b", "succeeded"),
    "penstock drain node-a --evict": ("node-a",),
    "penstock drain node-a --off": ("node-a",),
    "penstock queue": ("default.*priority",),
    "penstock report": (r"report\.html", r"summary\.json"),
    "penstock down": ("ended the server",),
}
TUTORIAL = {
    "export PENSTOCK_HOME=$PWD/penstock-home": ANYTHING,
    "penstock up --cluster examples/cluster.yaml": README["penstock up --cluster examples/cluster.yaml"],
    "penstock nodes": README["penstock nodes"],
    "penstock submit --name longhaul": (r"\bjob 1\b",),
    "penstock ps": (r"\b1 +longhaul +(starting|running)",),
    "penstock show 1": (r"\bstep +[1-9]",),
    "penstock submit --name filler": (r"\bjob 2\b",),
    "penstock submit --name polite": (r"\bjob 3\b",),
    "penstock explain 3": ("2 devices", r"2 node.* too few devices free"),
    "penstock submit --name urgent": (r"\bjob 4\b",),
    "penstock ps 2": (r"\b4 +urgent", r"\b3 +polite", r"\b1 +longhaul +(stopping|waiting)"),
    "penstock logs -f 4": ANYTHING,
    "penstock logs -f 1": (r"starting at step [1-9]\d* of 900", "test accuracy", "final digest"),
    "penstock show 1 2": ("preempted", r"urgent|job 4", r"resumed at step [1-9]", "succeeded"),
    "penstock report": README["penstock report"],
    "penstock down": README["penstock down"],
}
"""By command, or its beginning; the second time with its number: patterns of what is seen, in any order."""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Shell]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with shell(tmp_path, environment(tmp_path)) as opened:
        yield opened
    sweep(tmp_path)


def expected(command: str, times: int, transcript: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    name = command if times == 1 else f"{command} {times}"
    found = [patterns for known, patterns in transcript.items() if name == known or name.startswith(f"{known} -")]
    assert found, f"the document shows `{name}`, and this test does not say what a reader sees of it"
    return found[0]


def played(terminal: Shell, command: str, patterns: tuple[str, ...]) -> Seen:
    """Play a command; one that only looks is repeated, as a reader does who waits for what the text says."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = terminal.play(command)
        looks = command.split()[1] in LOOKS
        if not looks or time.monotonic() > deadline or not missing(seen, patterns):
            return seen


def missing(seen: Seen, patterns: tuple[str, ...]) -> list[str]:
    return [pattern for pattern in patterns if not re.search(pattern, seen.text)]


def check(command: str, seen: Seen, patterns: tuple[str, ...]) -> None:
    shown = f"{command}\n" + "\n".join(seen.lines)
    assert seen.code == 0, shown
    for wrong in ("Traceback", "error:", "warning:"):
        assert wrong not in shown, shown
    assert missing(seen, patterns) == [], shown
    assert [line for line in seen.lines if len(line) > COLUMNS and "http" not in line and "/" not in line] == [], shown
    cut = [line for line in seen.lines if "…" in line and "…" in line.rsplit("  ", 1)[0]]
    assert cut == [], f"more than a last column of prose is cut:\n{shown}"


@pytest.mark.parametrize(
    ("document", "section", "transcript"),
    [("README.md", "Use it", README), ("docs/tutorial.md", "", TUTORIAL)],
    ids=["README", "tutorial"],
)
def test_a_document_is_true_word_by_word(terminal, document, section, transcript):
    shown = [c for c in commands((ROOT / document).read_text(), section) if not c.startswith("pip ")]
    assert len(shown) == len(transcript)
    for at, command in enumerate(shown):
        times = shown[: at + 1].count(command)
        patterns = expected(command, times, transcript)
        check(command, played(terminal, command, patterns), patterns)
