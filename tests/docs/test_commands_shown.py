"""Every command that a page shows exists, with its options."""

from pathlib import Path

import pytest

from tests.docs.shown import Shown, shown, wrong

ROOT = Path(__file__).resolve().parents[2]
OF_THEIR_TIME = ("CHANGELOG.md", "docs/adr/", "docs/bugs-found.md", "docs/cli.md")
"""What was once, or might have been; cli.md is the program's own help."""
PAGES = [
    str(path.relative_to(ROOT))
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if not str(path.relative_to(ROOT)).startswith(OF_THEIR_TIME)
]


def said(markdown: str) -> list[str]:
    return [wrong(command) for command in shown(markdown)]


@pytest.mark.parametrize("page", PAGES)
def test_a_command_of_a_page_is_one(page):
    found = {str(command): wrong(command) for command in shown((ROOT / page).read_text(encoding="utf-8"))}
    assert {command: problem for command, problem in found.items() if problem} == {}


def test_most_pages_show_commands():
    assert sum(len(shown((ROOT / page).read_text(encoding="utf-8"))) for page in PAGES) > 200


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("penstock submitt job.yaml", "there is no command submitt"),
        ("penstock money bil", "there is no command money bil"),
        ("penstock admin sett queue.a.max.devices=1", "admin has no sett"),
        ("penstock ps --al", "no such option: --al"),
        ("penstock drain --off", "node is missing"),
        ("penstock status now", "now is too much"),
        ("PENSTOCK_URL=https://a.example penstock ps | penstock wat 3", "there is no command wat"),
        ("$ penstock logs 3 --tail", "requires an argument"),
    ],
)
def test_a_wrong_line_is_noticed(line, problem):
    assert problem.lower() in said(f"Text:\n\n    {line}   # why\n")[-1].lower()


@pytest.mark.parametrize(
    ("mention", "problem"),
    [
        ("`penstock explian JOB`", "there is no command explian"),
        ("`penstock money\nbil`", "there is no command money bil"),
        ("`penstock usage [--wast]`", "no option --wast"),
        ("`penstock admin show|chagne`", "admin has no chagne"),
    ],
)
def test_a_wrong_mention_is_noticed(mention, problem):
    assert problem in said(f"As {mention} says.\n")


def test_a_right_line_is_read_to_its_end():
    lines = "Text:\n\n    A=1 penstock run --devices 2 \\\n        -- python t.py --steps 3 | tee out   # and so on\n"
    assert shown(lines) == [Shown(3, ("run", "--devices", "2", "--", "python", "t.py", "--steps", "3"), typed=True)]
    assert said(lines) == [""]
