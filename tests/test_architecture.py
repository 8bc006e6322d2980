"""What docs/architecture.md names exists, so that a newcomer finds it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "penstock"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w/.]+\.py|[a-z]+(?:/[a-z_]+)+)(?::[\w.]+)?`", TEXT)))
NAMES = sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", TEXT)))


def test_there_is_something_to_check():
    assert len(PATHS) > 40
    assert len(NAMES) > 3


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_is_named_exists(path):
    assert (SOURCES / path).exists() or (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_a_function_that_is_named_is_there(path, name):
    text = (SOURCES / path).read_text()
    assert all(re.search(rf"^ *(def|class) {part}\b", text, re.MULTILINE) for part in name.split("."))


def test_every_package_has_a_line_in_the_map():
    rooms = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}`" not in TEXT} == set()
