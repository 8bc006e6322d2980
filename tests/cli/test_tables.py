"""Tables at a terminal of any width: ids and names are whole, the rest gives way in a declared order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT
from msgspec.structs import fields
from rich.cells import cell_len

from penstock.api.types import JobView
from penstock.cli import ps
from penstock.cli.output import marked, styled
from penstock.cli.tables import Table
from tests.properties import examples

COLUMNS = ("job", "name", "state", "nodes", "why")
NAME = "pretraining-of-the-large-model"
ROWS = [
    ("12345", NAME, styled("waiting"), "", "no room on any of the nodes of its pool"),
    ("7", "日本語", styled("running"), "node-a,node-b", ""),
]


def shown(width, **settings):
    settings = {"right": ("job",), "drop": ("nodes", "state", "why"), "text": ("why",)} | settings
    made, left_out = Table(COLUMNS, ROWS, **settings).fitted(width)
    return made.plain.splitlines(), left_out


def test_without_a_width_everything_is_shown():
    lines, left_out = shown(None)
    assert left_out == []
    assert lines[2].split("  ")[-1].strip() == "no room on any of the nodes of its pool"


def test_columns_line_up_with_wide_characters():
    lines, _ = shown(None)
    at = lines[0].index("state")
    assert [cell_len(line[: line.index(word)]) for line, word in ((lines[2], "waiting"), (lines[3], "running"))] == [
        at,
        at,
    ]


def test_prose_is_cut_first():
    lines, left_out = shown(90)
    assert left_out == []
    assert lines[2].endswith("…")
    assert max(map(cell_len, lines)) <= 90


def test_columns_are_left_out_in_their_order():
    assert [shown(width)[1] for width in (80, 65, 55, 40)] == [
        [],
        ["nodes"],
        ["nodes", "state"],
        ["nodes", "state", "why"],
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 100, 140])
def test_names_and_numbers_are_never_cut(width):
    text = "\n".join(shown(width)[0])
    assert NAME in text
    assert "12345" in text
    assert "日本語" in text


def test_columns_in_which_nothing_stands_are_not_there():
    made, _ = Table(("job", "step"), [("1", ""), ("2", "")]).fitted(None)
    assert made.plain == "job\n───\n1\n2"


def test_a_column_that_does_not_exist_is_a_defect():
    with pytest.raises(ValueError, match="no such columns: jib"):
        Table(("job",), [], right=("jib",))


def test_control_characters_are_escaped_and_take_their_width():
    made, _ = Table(("a", "b"), [("x\x1b[2J\n", "y")]).fitted(None)
    assert "x\\x1b[2J\\n  y" in made.plain


def test_styles_stay_with_their_text():
    made, _ = Table(("job", "state"), [("1", styled("failed"))]).fitted(None)
    assert [made.plain[span.start : span.end] for span in made.spans if span.style == "red"] == ["failed"]


words = st.text(st.characters(exclude_categories=("C", "Z")), max_size=30)


@given(st.lists(st.tuples(words, words, words, words), max_size=5), st.integers(1, 150))
@examples(100)
def test_a_table_fits_or_shows_only_what_always_stays(rows, width):
    made, left_out = Table(("a", "b", "c", "d"), rows, drop=("b", "c"), text=("c",)).fitted(width)
    lines = made.plain.splitlines()
    widest = max(cell_len(line) for line in lines)
    kept = [name for name in ("b", "c") if name not in left_out and any(row["abcd".index(name)] for row in rows)]
    assert widest <= width or not rows or not kept
    for row in rows:
        assert any(row[0] in line and row[3] in line for line in lines)


@pytest.mark.parametrize(("width", "styled_part"), [(None, "damaged"), (24, "damaged"), (12, "damaged"[:11])])
def test_parts_of_a_cell_keep_their_styles(width, styled_part):
    verdict = marked("[red]damaged[/]: {}", "a hash differs, and the file is short")
    made, _ = Table(("step", "state"), [("1", verdict)], right=("step",), text=("state",)).fitted(width)
    assert [made.plain[s.start : s.end] for s in made.spans if s.style == "red"] == [styled_part]


@given(st.integers(1, 60), st.text(max_size=40), st.text(max_size=20))
def test_styles_stay_within_their_cell(width, before, word):
    cell = marked("{}[red]{}[/]", before, word)
    made, _ = Table(("a", "b"), [(cell, "end")], text=("a",)).fitted(width)
    assert all(0 <= s.start <= s.end <= len(made.plain) for s in made.spans)
    assert "end" not in "".join(made.plain[s.start : s.end] for s in made.spans if s.style == "red") or "end" in word


def test_an_array_is_counted_by_states_also_by_one_that_is_not_known_here():
    empty = {field.name: field.default for field in fields(JobView) if field.default is not NODEFAULT}
    given = {field.name: 0 for field in fields(JobView) if field.required}
    counts = {"succeeded": 1, "frozen": 2, "waiting": 3, "running": 4}
    job = JobView(**{**given, **empty, "array_counts": counts, "array_id": 7, "nodes": [], "state": "running"})
    assert ps._row(job, 0)[2] == "4 running, 3 waiting, 1 succeeded, 2 frozen"
