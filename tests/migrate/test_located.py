"""YAML keeps its lines, and no text of it means more work than it is long."""

import pytest

from penstock.migrate.errors import ImportFault
from penstock.migrate.located import DEPTH_MAX, Listing, LocatedTable, Text, documents
from penstock.migrate.report import SourcePlace


def at(line):
    return SourcePlace("f", line)


def test_every_value_has_its_line_and_its_text():
    (found,) = documents("a: 0x10\nb:\n  - 'yes'\n", "f")
    assert isinstance(found, LocatedTable)
    first, second = found.pairs
    assert (first.key, first.place, first.value) == ("a", at(1), Text(at(1), "0x10", True))
    assert second.value == Listing(at(3), (Text(at(3), "yes", False),))


def test_documents_are_several_and_empty_ones_are_left_out():
    assert [d.place.line for d in documents("---\na: 1\n---\n---\nb: 2\n", "f")] == [2, 5]


def test_an_alias_stands_for_its_anchor_and_a_merge_key_for_its_fields():
    (found,) = documents("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n", "f")
    assert isinstance(found, LocatedTable)
    merged = found.pairs[1].value
    assert isinstance(merged, LocatedTable)
    assert [(p.key, p.value.text) for p in merged.pairs if isinstance(p.value, Text)] == [("k", "3"), ("l", "2")]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\na: 2\n", 2, "each key once; it is also in line 1"),
        ("a: [1\nb: 2\n", 2, "YAML"),
        ("? [a]\n: 1\n", 1, "a key that is a text"),
        ("a: &x [*x]\n", 1, "an alias of an anchor above it"),
        ("<<: 3\n", 1, "a mapping to merge"),
        ("- " * 3 + "[" * DEPTH_MAX, 1, "at most 64 levels"),
        ('a: "\\0"\n', 1, "without NUL"),
        ("a: !!python/object:os.system 1\n\tb: 2", 2, "YAML"),
    ],
)
def test_faults_name_line_and_rule(text, line, said):
    with pytest.raises(ImportFault, match=said) as caught:
        documents(text, "f")
    assert caught.value.line == line


def test_a_bomb_of_aliases_is_refused_by_its_count():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(ImportFault, match="at most 500000 values, aliases counted"):
        documents("\n".join(lines), "f")


def test_aliases_count_in_all_documents_together():
    one = f"a: &a [{', '.join('x' * 1000)}]\nb: [{', '.join(['*a'] * 100)}]\n"
    assert len(documents("---\n".join([one] * 4), "f")) == 4
    with pytest.raises(ImportFault, match="at most 500000 values, aliases counted"):
        documents("---\n".join([one] * 6), "f")


def test_a_deep_nest_is_refused_and_does_not_crash():
    with pytest.raises(ImportFault, match="levels"):
        documents("[" * 500_000, "f")
