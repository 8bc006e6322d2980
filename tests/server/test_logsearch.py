"""Outputs searched from their end: the same lines as a plain look at all of them, whatever the pieces are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server import logsearch
from penstock.server.http.responses import ApiError
from penstock.server.logsearch import finder, search, tail

outputs = st.lists(st.sampled_from(["", "ab", "Error: x", "b" * 9, "error", "你好 error", "a\rb"]), max_size=12).map(
    lambda lines: "\n".join(lines).encode()
)


def reader(data: bytes, gap: int = 0):
    """Return what reads an output of which the first bytes were given up."""

    def read(offset: int, limit: int) -> tuple[int, bytes]:
        offset = 0 if offset > len(data) else offset
        begin = max(offset, gap)
        return begin, data[begin : begin + limit]

    return read


def found_in(data, text, limit=5, **how):
    """Return (offset, text) of all lines that match, as a client that goes on gets them."""
    make = finder(text, regex=how.get("regex", False), ignore_case=how.get("ignore_case", False))
    lines, before = [], len(data)
    while before:
        found = search(reader(data, how.get("gap", 0)), make, before, limit)
        assert found.before < before
        lines += [(line.offset, line.text) for line in found.lines]
        before = found.before
    return lines


def lines_of(data):
    """Return (offset, text) of all lines, the last first."""
    lines, at = [], 0
    for line in data.split(b"\n"):
        lines.append((at, line.decode().removesuffix("\r")))
        at += len(line) + 1
    return lines[::-1]


@given(outputs, st.sampled_from(["error", "b", "好"]), st.integers(1, 3))
def test_a_search_finds_every_line_that_has_the_text_the_last_first(data, text, limit):
    expected = [(at, line) for at, line in lines_of(data) if text in line]
    assert found_in(data, text, limit) == expected


@given(outputs, st.integers(24, 60), st.integers(1, 3))
def test_pieces_of_any_length_find_the_same(data, length, limit):
    whole = found_in(data, "rror")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logsearch, "PIECE_BYTES", length)
        patch.setattr(logsearch, "PIECES_MAX", 2)
        assert found_in(data, "rror", limit) == whole


@given(outputs)
def test_an_expression_sees_lines_alone(data):
    expected = [(at, line) for at, line in lines_of(data) if line.lower().startswith("error")]
    assert found_in(data, r"^error[^a]*$|^error.*", regex=True, ignore_case=True) == expected


def test_an_expression_that_would_take_for_ever_elsewhere_takes_as_long_as_the_text():
    data = b"a" * 20_000 + b"\n"
    assert found_in(data, r"(a*)*b", regex=True) == []


def test_what_was_given_up_of_an_output_is_not_searched():
    data = b"error 1\nerror 2\nerror 3\n"
    assert found_in(data, "error", gap=8) == [(16, "error 3"), (8, "error 2")]


def test_of_a_long_line_the_part_around_the_match_is_shown():
    data = b"x" * 5_000 + b"error" + b"y" * 5_000 + b"\n"
    (line,) = search(reader(data), finder("error", regex=False, ignore_case=False), len(data), 9).lines
    assert (line.offset, line.cut, len(line.text), line.text[line.begin : line.end]) == (0, True, 1_000, "error")


@pytest.mark.parametrize(("text", "regex"), [("a(", True), ("a\nb", False), ("(" * 150 + "a" + "){50}" * 5, True)])
def test_what_cannot_be_searched_for_is_refused(text, regex):
    with pytest.raises(ApiError) as refused:
        finder(text, regex=regex, ignore_case=False)
    assert (refused.value.details.code, refused.value.details.problems[0].field) == ("invalid_input", "q")


@given(outputs, st.integers(1, 6))
def test_a_tail_is_the_last_lines(data, count):
    where, piece = tail(reader(data), len(data), count, 10**6)
    ended = data.endswith(b"\n")
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    assert piece == b"\n".join(lines[-count:]) + (b"\n" if ended else b"")
    assert data[where:] == piece


def test_tails_before_one_another_are_the_whole_output():
    data, before, pieces = b"one\ntwo\n\nthree\nfour", 19, []
    while before:
        before, piece = tail(reader(data), before, 2, 10)
        pieces.append(piece)
    assert pieces == [b"three\nfour", b"two\n\n", b"one\n"]
