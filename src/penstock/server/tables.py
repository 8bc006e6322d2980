"""Lists of the API by tables: the orders, filters, fields and counts of each list are declared once.

All lists are filtered, sorted, paged, counted and cut to fields by this module. A cursor names the last row by its
place in the order, not by its number of rows before: rows that come and go in between neither hide nor repeat others.
"""

import base64
import binascii
import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from operator import itemgetter
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from fastapi import Depends, Query
from msgspec.structs import replace
from starlette.responses import Response

from penstock.api.types import GroupCount, PagedList
from penstock.core.config.reader import short
from penstock.core.model.errors import Problem, nearest
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import answer

LIMIT_MAX = 1_000
"""Rows of a page."""
CURSOR_MAX = 3_000
"""Characters of a cursor."""
VALUE_MAX = 100
"""Characters of a text by which a list is sorted: no name is longer, and a cursor has room for them."""
FIELDS_MAX = 1_000
"""Characters of `fields`."""
SEARCH_MAX = 100
"""Characters of a text to search for."""
GROUPS_MAX = 1_000
"""Groups that are counted one by one."""
T = TypeVar("T")
Value = int | float | str | None
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Filter(NamedTuple, Generic[T]):
    """One condition on the rows of a list."""

    kind: Any
    """Type of its parameter, as FastAPI takes it."""
    absent: Any
    """Value of the parameter where there is no such condition."""
    test: Callable[[Any], Callable[[T], bool]]
    """Makes the test of a row from the value. Raises: ApiError for a value that no row can have."""


class ListTable(NamedTuple, Generic[T]):
    """What can be asked of one list. A row that is filtered may be another value than the view that is answered."""

    key: str
    """Field of the answer that has the rows."""
    view: type[msgspec.Struct]
    """Type of the rows as they are answered: its fields can be chosen."""
    id: Callable[[T], int | str]
    """What no two rows have in common; equal values are in its order."""
    sorts: Mapping[str, Callable[[T], Value]]
    """The value of a row by the name of the order, ascending; rows without a value (None) come last."""
    filters: Mapping[str, Filter[T]]
    groups: Mapping[str, Callable[[T], str]] = MappingProxyType({})
    """What `totals_by` can name: the group of a row."""
    devices: Callable[[T], int] = lambda row: 0
    """How many devices a row counts for in its group."""
    limit: int | None = None
    """Rows of a page where none is named; None: all of them."""
    limit_max: int = LIMIT_MAX


class ListQuery(msgspec.Struct, frozen=True):
    """What a caller asks of a list, checked."""

    limit: int | None
    cursor: str
    sort: str
    """The name of an order, `-` before it turns it around; empty: the list's own order."""
    fields: tuple[str, ...]
    """Of each row; empty: all."""
    totals_by: str
    given: Mapping[str, Any]
    """Values of filters, of those that are set."""

    @property
    def question(self) -> Hashable:
        """What tells it from other queries of the same list."""
        given = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in self.given.items())
        return self.limit, self.cursor, self.sort, self.fields, self.totals_by, given


class ListCursor(msgspec.Struct, frozen=True, array_like=True):
    """The place of the last row of a page."""

    sort: str
    value: Value
    id: int | str | None
    """None: all rows have been listed but for those that follow `rest`."""
    position: _Place = 0
    """Rows before the next one, in a list's own order."""
    rest: _Place = 0
    """Place in a second part of the list."""


class Page(NamedTuple, Generic[T]):
    rows: list[T]
    cursor: str
    """Empty at the end."""
    matching: list[T]
    """Rows that match, on all pages."""


def yes_or_no(holds: Callable[[T], bool], text: str) -> Filter[T]:
    """Return a filter by whether something holds of a row: `true`, or `false` for the other rows."""
    return Filter(
        Annotated[bool | None, Query(description=text)], None, lambda wanted: lambda row: holds(row) == wanted
    )


def list_query(table: ListTable[T]) -> Any:
    """Return the dependency by which a route takes what the list can be asked for."""
    orders = [sign + name for name in table.sorts for sign in ("", "-")]
    limits = Annotated[int | None, Query(ge=1, le=table.limit_max, description="rows of a page")]
    kinds: dict[str, tuple[Any, Any]] = {
        "limit": (limits, table.limit),
        "cursor": (Annotated[str, Query(max_length=CURSOR_MAX, description="next_cursor of the page before")], ""),
        "fields": (Annotated[str, Query(max_length=FIELDS_MAX, description="only these, as id,name")], ""),
    }
    if orders:
        text = "the order of the rows; - turns it around"
        kinds["sort"] = Annotated[str, Query(max_length=40, description=text, json_schema_extra={"enum": orders})], ""
    if table.groups:
        extra = {"enum": list(table.groups)}
        text = "count what matches by this, too"
        kinds["totals_by"] = Annotated[str, Query(max_length=40, description=text, json_schema_extra=extra)], ""
    kinds |= {name: (one.kind, one.absent) for name, one in table.filters.items()}

    def asked(**values: Any) -> ListQuery:
        given = {name: values[name] for name, one in table.filters.items() if values[name] != one.absent}
        sort, totals_by = values.get("sort", ""), values.get("totals_by", "")
        _check_word("sort", sort, orders)
        _check_word("totals_by", totals_by, list(table.groups))
        fields = _fields_of(values["fields"], table.view.__struct_fields__)
        return ListQuery(values["limit"], values["cursor"], sort, fields, totals_by, given)

    asked.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in kinds.items()
        ]
    )
    return Depends(asked)


def _check_word(field: str, word: str, known: Sequence[str]) -> None:
    if word and word not in known:
        text = f"{field} is '{short(word)}': this list knows no such word"
        raise invalid([Problem(f"unknown_{field}", field, text, short(word), nearest(word, known))])


def _fields_of(text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text else ()
    for name in names:
        if name not in known:
            said = f"fields has '{short(name)}': rows of this list have no such field"
            raise invalid([Problem("unknown_field", "fields", said, short(name), nearest(name, known))])
    return names


def matcher_of(table: ListTable[T], query: ListQuery) -> Callable[[T], bool]:
    """Return the test of a row against all filters that are set. Raises: ApiError for a value that no row can have."""
    tests = [table.filters[name].test(value) for name, value in query.given.items()]
    return lambda row: all(test(row) for test in tests)


def page_of(table: ListTable[T], query: ListQuery, rows: Iterable[T], at: ListCursor | None = None) -> Page[T]:
    """Return the rows that match after a cursor, up to the limit, in their order.

    Args:
        rows: in the list's own order.
        at: the cursor, where the caller has read it already.
    Raises: ApiError for a cursor of another order, and for a filter that no row can match.
    """
    at = at if at is not None else cursor_of(query.cursor, query.sort)
    matches = matcher_of(table, query)
    matching = [row for row in rows if matches(row)] if query.given else list(rows)
    return ordered(table, query, matching, at)


def ordered(table: ListTable[T], query: ListQuery, matching: list[T], at: ListCursor | None) -> Page[T]:
    """Return the rows of a page of those that match. Raises: ApiError for a cursor of another order."""
    if not query.sort:
        return _in_own_order(table, query, matching, at)
    turned, value_of = query.sort.startswith("-"), table.sorts[query.sort.removeprefix("-")]
    valued: list[tuple[Any, Any, T]] = []
    without: list[tuple[Any, Any, T]] = []
    for row in matching:
        value = value_of(row)
        if isinstance(value, str):
            value = value[:VALUE_MAX]
        (without if value is None else valued).append((value, table.id(row), row))
    if at is not None:
        valued, without = _after(at, valued, without, turned=turned)
    found: list[tuple[Any, Any, T]] = []
    for part in (valued, without):
        found += _first(part, None if query.limit is None else query.limit + 1 - len(found), turned=turned)
    if query.limit is None or len(found) <= query.limit:
        return Page([row for *_, row in found], "", matching)
    value, last, _ = found[query.limit - 1]
    return Page([row for *_, row in found[: query.limit]], text_of(ListCursor(query.sort, value, last)), matching)


def _after(
    at: ListCursor, valued: list[tuple[Any, Any, T]], without: list[tuple[Any, Any, T]], *, turned: bool
) -> tuple[list[tuple[Any, Any, T]], list[tuple[Any, Any, T]]]:
    """Return what comes after a cursor of the rows with a value, and of those without."""

    def follows(one: Any, other: Any) -> bool:
        return bool(one < other if turned else one > other)

    try:
        if at.value is None:
            return [], [one for one in without if follows(one[1], at.id)]
        last = (at.value, at.id)
        return [one for one in valued if follows(one[:2], last)], without
    except TypeError as error:  # numbers in the place of texts
        raise _no_cursor() from error


def _first(rows: list[tuple[Any, Any, T]], count: int | None, *, turned: bool) -> list[tuple[Any, Any, T]]:
    place = itemgetter(1) if rows and rows[0][0] is None else itemgetter(0, 1)
    if count is None:
        return sorted(rows, key=place, reverse=turned)
    return (heapq.nlargest if turned else heapq.nsmallest)(max(0, count), rows, key=place)


def _in_own_order(table: ListTable[T], query: ListQuery, matching: list[T], at: ListCursor | None) -> Page[T]:
    begin = 0
    if at is not None:
        ids = [table.id(row) for row in matching]
        begin = min(at.position, len(ids))
        if at.id in ids and (begin == 0 or ids[begin - 1] != at.id):  # others have come or gone before it
            begin = ids.index(at.id) + 1
    if query.limit is None or len(matching) - begin <= query.limit:
        return Page(matching[begin:], "", matching)
    end = begin + query.limit
    return Page(matching[begin:end], text_of(ListCursor("", None, table.id(matching[end - 1]), end)), matching)


def groups_of(table: ListTable[T], query: ListQuery, matching: Iterable[T]) -> tuple[list[GroupCount], int]:
    """Return the counts of what `totals_by` names, the largest first, and the rows of groups beyond `GROUPS_MAX`."""
    if not query.totals_by:
        return [], 0
    group, counts, devices = table.groups[query.totals_by], Counter[str](), Counter[str]()
    for row in matching:
        name = group(row)
        counts[name] += 1
        devices[name] += table.devices(row)
    order = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [GroupCount(name, counts[name], devices[name]) for name in order[:GROUPS_MAX]]
    return shown, sum(counts[name] for name in order[GROUPS_MAX:])


P = TypeVar("P", bound=PagedList)


def paged(table: ListTable[T], query: ListQuery, rows: Iterable[T], made: Callable[[list[T]], P]) -> Response:
    """Return the answer with a page of rows, and what is said of all that match.

    Args:
        rows: all rows that the caller may see, in the list's own order.
        made: makes the answer from the rows of the page.
    Raises: ApiError as `page_of`.
    """
    page = page_of(table, query, rows)
    return answer_with(table, query, made(page.rows), page)


def answer_with(table: ListTable[T], query: ListQuery, found: PagedList, page: Page[T]) -> Response:
    """Return the answer with a page that is made already; its rows have only the fields that were asked for."""
    groups, left_out = groups_of(table, query, page.matching)
    said = {"next_cursor": page.cursor, "matching": len(page.matching), "groups": groups, "groups_left_out": left_out}
    found = replace(found, **said)
    if not query.fields:
        return answer(found)
    body = {name: getattr(found, name) for name in found.__struct_fields__}
    body[table.key] = [{name: getattr(row, name) for name in query.fields} for row in body[table.key]]
    return answer(body)


def cursor_of(text: str, sort: str) -> ListCursor | None:
    """Return what a cursor says; None where there is none. Raises: ApiError where it is of no list, or another."""
    if not text:
        return None
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=ListCursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise _no_cursor() from error
    if cursor.sort != sort:
        which = f"sorted by {short(cursor.sort)}" if cursor.sort else "in its own order"
        raise invalid([Problem("bad_value", "cursor", f"the cursor is of a list {which}")])
    return cursor


def _no_cursor() -> Exception:
    return invalid([Problem("bad_value", "cursor", "cursor is not one that a list has given")])


def text_of(cursor: ListCursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
