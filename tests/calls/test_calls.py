"""Calls and results: what is carried comes out whole, and nothing that another has made comes out."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import calls
from tests.properties import examples

KEY, OTHER, CALL = "k" * 64, "o" * 64, "0123abcd"
NOISE = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b" ") + b"\n"), max_size=5)


def gathered(output: bytes, key: str = KEY, call_id: str = CALL) -> calls.Found | None:
    return calls.Gathering(key, call_id).add(output)


@examples(50)
@given(st.binary(max_size=20_000), st.sampled_from("VET"), NOISE, st.randoms(use_true_random=False))
def test_a_result_comes_whole_out_of_any_output(data, kind, noise, random):
    lines = calls.lines_of(KEY, CALL, kind, data)
    random.shuffle(lines)
    for line in noise:
        lines.insert(random.randint(0, len(lines)), line)
    assert gathered(b"".join(lines)) == calls.Found(kind, data)


def test_a_result_in_the_middle_of_an_unfinished_line_is_found():
    (line,) = calls.lines_of(KEY, CALL, "V", b"x")
    assert gathered(b"no line feed" + line) == calls.Found("V", b"x")
    forged = calls.MARK + f"{CALL} 0 1 mac AAAA".encode()
    assert gathered(forged + line) == calls.Found("V", b"x")


@pytest.mark.parametrize("forger", [(OTHER, CALL), (KEY, "other"), ("", CALL)], ids=["key", "call", "no key"])
def test_a_result_of_another_key_or_call_is_none(forger):
    lines = calls.lines_of(*forger, "V", b"evil" * 2_000)
    assert gathered(b"".join(lines)) is None
    renamed = b"".join(lines).replace(forger[1].encode(), CALL.encode())
    assert gathered(renamed) is None


def test_a_result_with_another_kind_or_piece_is_none():
    first, *rest = calls.lines_of(KEY, CALL, "T", b"text" * 2_000)
    head, piece = first.rsplit(b" ", 1)
    as_value = calls.lines_of(OTHER, CALL, "V", b"text" * 2_000)[0].rsplit(b" ", 1)[1]
    assert piece != as_value
    assert gathered(b"".join([head + b" " + as_value, *rest])) is None


def test_forged_lines_take_bounded_memory_and_do_not_hide_the_result():
    gathering = calls.Gathering(KEY, CALL)
    forged = b"".join(calls.MARK + f"{CALL} 0 2 {number} AAAA\n".encode() for number in range(1_000))
    assert gathering.add(forged) is None
    assert len(gathering._sets) == calls.Gathering.SETS_MAX
    assert gathering.add(b"".join(calls.lines_of(KEY, CALL, "V", b"x"))) == calls.Found("V", b"x")


@pytest.mark.parametrize("words", ["0 99999 m A", "2 1 m A", "-1 1 m A", "0 1 m", "x y m A", "0 1 m !!!!"])
def test_a_line_that_makes_no_sense_is_passed_over(words):
    assert gathered(calls.MARK + f"{CALL} {words}\n".encode()) is None


def carried(data: bytes, key: str = KEY) -> dict[str, str]:
    return calls.variables_of(key, CALL, data, python="3.11", paths=["/a"])


def test_a_call_comes_whole_out_of_the_variables():
    data = bytes(range(256)) * 600
    variables = carried(data)
    assert all(len(value) <= 65_536 for value in variables.values())
    about, found = calls.call_in(variables, KEY)
    assert (about.call_id, about.python, about.paths, found) == (CALL, "3.11", ["/a"], data)


@pytest.mark.parametrize(
    "change",
    [
        {"SDK_CALL_0": "AAAA"},
        {"SDK_CALL": carried(b"x")["SDK_CALL"].replace("/a", "/b")},
        {"SDK_CALL": "{}"},
        {"SDK_CALL": "no JSON"},
        carried(b"evil", OTHER),
    ],
    ids=["piece", "paths", "empty", "text", "key"],
)
def test_a_call_that_another_has_made_or_changed_is_refused(change):
    with pytest.raises(ValueError, match="call of a function"):
        calls.call_in(carried(b"data") | change, KEY)


def test_what_unpacks_to_more_than_the_bound_is_refused(monkeypatch):
    monkeypatch.setattr(calls, "PLAIN_MAX_BYTES", 1_000)
    assert calls.unpacked(calls.packed(b"x" * 999)) == b"x" * 999
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        calls.unpacked(calls.packed(b"x" * 1_001))


@pytest.mark.parametrize("data", [b"", b"text", zlib.compress(b"x" * 100)[:-3]])
def test_what_was_not_packed_is_refused(data):
    with pytest.raises(ValueError, match=r"cannot be unpacked|is cut off"):
        calls.unpacked(data)
