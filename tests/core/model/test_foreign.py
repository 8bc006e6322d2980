"""Text of others in a table for spreadsheets: none is run, numbers stay numbers, and what is read back is the same."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core.model.foreign import csv_text, from_cell, in_cell


@pytest.mark.parametrize(
    "text",
    ["=HYPERLINK(1)", "+1", "@SUM(1)", "-2+3+cmd|'/C calc'!A0", " =1", "\u3000=1", "\uff1d1", "-a", "'=1", "-1;"],
)
def test_a_formula_is_text(text):
    assert csv_text([[text]]).strip('"\n') == f"'{text}"


def test_a_cell_that_a_semicolon_would_end_begins_no_formula():
    assert csv_text([["a; =1;b", "\t=1", "\r=1", "a\n=1"]]) == "a;' =1;b,\\t=1,\\r=1,a\\n=1\n"


@pytest.mark.parametrize("text", ["-5", "-1,234.50", "-1.5e-07", "12", "-", "", "a-b", "预训练", "1=1", "it's"])
def test_numbers_and_ordinary_names_stay_as_they_are(text):
    assert in_cell(text) == text


def test_values_that_are_no_text_stay_as_they_are():
    assert csv_text([["n", "x"], [-5, -0.5], [None, True]]) == "n,x\n-5,-0.5\n,True\n"


@given(st.text("=+-@'; 1a.,\uff1d", max_size=12))
def test_what_was_written_is_read_again(text):
    assert from_cell(in_cell(text)) == text


def test_every_table_is_written_here():
    source = Path(penstock.__file__).parent
    found = {path.name for path in source.rglob("*.py") if re.search(r"csv\.(DictW|w)riter", path.read_text())}
    assert found == {"foreign.py", "plain_writer.py"}
