"""Lists by tables: any order, page by page, is the same list."""

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.http.responses import ApiError
from penstock.server.tables import Filter, ListQuery, ListTable, cursor_of, groups_of, page_of


class View(msgspec.Struct, frozen=True):
    id: int
    name: str
    size: int | None


class Entry(NamedTuple):
    id: int
    name: str
    size: int | None


TABLE = ListTable[Entry](
    key="rows",
    view=View,
    id=lambda row: row.id,
    sorts={"name": lambda row: row.name, "size": lambda row: row.size, "id": lambda row: row.id},
    filters={"name": Filter(str, "", lambda text: lambda row: row.name == text)},
    groups={"name": lambda row: row.name},
    devices=lambda row: row.size or 0,
)
ORDERS = ("", "name", "-name", "size", "-size", "id", "-id")
entries = st.lists(
    st.builds(Entry, st.integers(1, 50), st.text("ab你", max_size=3), st.none() | st.integers(-2, 2)),
    unique_by=lambda row: row.id,
    max_size=12,
)


def asked(sort="", limit=None, cursor="", totals_by="", **given):
    return ListQuery(limit, cursor, sort, (), totals_by, given)


def pages(rows, sort, limit):
    """Return all rows as a client that follows the cursors gets them."""
    found, cursor = [], ""
    while True:
        page = page_of(TABLE, asked(sort, limit, cursor), rows)
        assert len(page.rows) <= limit
        found += page.rows
        assert len(found) <= len(rows), "no row comes twice"
        cursor = page.cursor
        if not cursor:
            return found


@given(entries, st.sampled_from(ORDERS), st.integers(1, 5))
def test_pages_after_one_another_are_the_whole_list(rows, sort, limit):
    assert pages(rows, sort, limit) == page_of(TABLE, asked(sort), rows).rows


@given(entries)
def test_an_order_turned_around_is_its_reverse_with_the_unknown_last(rows):
    up, down = (page_of(TABLE, asked(sort), rows).rows for sort in ("size", "-size"))
    known = [row for row in up if row.size is not None]
    assert [row.size for row in known] == sorted(row.size for row in rows if row.size is not None)
    assert down == [*reversed(known), *reversed(up[len(known) :])]


@given(entries, st.sampled_from(ORDERS[1:]), st.data())
def test_what_comes_or_goes_between_two_pages_hides_and_repeats_no_other(rows, sort, data):
    first = page_of(TABLE, asked(sort, 3), rows)
    gone = data.draw(st.sets(st.sampled_from(rows))) if rows else set()
    came = [Entry(100 + i, "a", 0) for i in range(2)]
    left = [row for row in rows if row not in gone]
    rest = page_of(TABLE, asked(sort, None, first.cursor), [*came, *left]).rows if first.cursor else []
    assert [row for row in rest if row.id < 100] == [
        row for row in page_of(TABLE, asked(sort), left).rows if row not in first.rows
    ]


def test_in_the_own_order_of_a_list_the_last_row_is_found_again_wherever_it_is_by_now():
    rows = [Entry(number, "a", 0) for number in (4, 2, 9, 1)]
    first = page_of(TABLE, asked("", 2), rows)
    for now, rest in (([7, 4, 2, 9, 1], [9, 1]), ([2, 9, 1], [9, 1]), ([4, 9, 1], [1]), ([4], [])):
        page = page_of(TABLE, asked("", None, first.cursor), [Entry(number, "a", 0) for number in now])
        assert [row.id for row in page.rows] == rest, "by its place where it has gone"


def test_groups_are_counted_over_all_pages_the_largest_first():
    rows = [Entry(1, "b", 4), Entry(2, "a", None), Entry(3, "b", 1)]
    page = page_of(TABLE, asked("id", 1, totals_by="name"), rows)
    groups, left_out = groups_of(TABLE, asked(totals_by="name"), page.matching)
    assert [(one.name, one.count, one.devices) for one in groups] == [("b", 2, 5), ("a", 1, 0)]
    assert left_out == 0


@pytest.mark.parametrize("cursor", ["x", "WzEsMl0=", "WyJpZCIsImEiLDEsMCwwXQ==", "WyJpZCIsMSwxLDAsLTFd"])
def test_a_cursor_that_no_list_gave_is_refused(cursor):
    with pytest.raises(ApiError) as refused:
        page_of(TABLE, asked("id", 1, cursor), [Entry(1, "a", 1)])
    assert refused.value.details.problems[0].field == "cursor"


def test_a_cursor_of_another_order_is_refused():
    cursor = page_of(TABLE, asked("name", 1), [Entry(1, "a", 1), Entry(2, "b", 1)]).cursor
    with pytest.raises(ApiError, match="sorted by name"):
        cursor_of(cursor, "id")
