"""YAML of users: every text gives a value or an error, and none ends the process."""

import pytest

from penstock.core.model.errors import InvalidInput
from penstock.yamltext import VALUES_MAX, jsonable, loaded, read_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "nested too deep"),
        ("".join(" " * n + "a:\n" for n in range(2_000)), "nested too deep"),
        ("a: 2026-13-45", "month must be in 1..12"),
        ("a: 1\nb: [1\n", "line 3, column 1"),
        ("&a [*a]", "nested too deep"),
        ("a: !!int ''", "not what its tag says"),
        ("a: !!bool x", "not what its tag says"),
        ("a: !!timestamp x", "not what its tag says"),
        ("a: 0x" + "f" * 5_000, "line 1, column 4: a number has 5,002 characters, expected 1,000 at most"),
        ("[" + "1:" * 5_000 + "1]", "a number has 10,001 characters"),
        (
            "\n".join([f"a0: &a0 [{'1, ' * 100}]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 100}]" for n in range(1, 9))]),
            "more than",
        ),
    ],
    ids=[
        "lists",
        "mappings",
        "date",
        "mark",
        "itself",
        "int",
        "bool",
        "timestamp",
        "hexadecimal",
        "of base 60",
        "repeated",
    ],
)
def test_a_text_that_cannot_be_a_request_is_refused(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr("penstock.yamltext.VALUES_MAX", 10_000)
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_yaml(str(path), "the file")


@pytest.mark.parametrize("text", ["{a: 1, b: 2, a: 3}", "- a: {b: 1}\n  c: [b, b]\n  a: 2", "a: 1\n'a': 2"])
def test_a_key_that_stands_twice_is_refused_where_that_is_wanted(text):
    assert loaded(text)
    with pytest.raises(ValueError, match="the key 'a' stands there twice"):
        loaded(text, doubles=False)


@pytest.mark.parametrize("text", ["{a: {a: a}, b: a}", "[{a: 1}, {a: 1}, a, a]", "a: [b, b]\nb: {b: b}\nc: b", "a"])
def test_keys_of_different_mappings_may_be_the_same(text):
    assert loaded(text, doubles=False) == loaded(text)


def test_keys_and_times_become_texts():
    value = loaded("{7: 2026-01-02, true: [2026-01-02 03:04:05, 1.5, null, !!binary aGk=]}")
    assert jsonable(value) == {"7": "2026-01-02", "True": ["2026-01-02T03:04:05", 1.5, None, "b'hi'"]}


def test_a_long_list_of_values_is_no_repetition():
    assert VALUES_MAX >= 16 * 2**20 / 2
