"""Tables that fit the terminal: columns are left out in a declared order, ids and names are never cut.

At a terminal a table takes its width; into a pipe or a file everything is written. Where even the columns that always
stay are too wide, lines are longer than the terminal: what one copies or types is whole.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

from penstock.cli.rows import Rows, column_name
from penstock.core.model.foreign import one_line

if TYPE_CHECKING:
    import msgspec
    from rich.text import Text

GAP = 2
CUT_MIN = 12
"""Columns of text are not cut below this width, they are left out."""

Cell = Union[str, "Text"]
Style = tuple[int, int, str]
"""From and to which character of a cell, and how."""


class Table:
    """Rows under headings. Columns in which nothing stands are left out.

    Args:
        right: columns aligned to the right.
        drop: columns left out where the width does not suffice, in this order.
        text: columns of prose, which are cut with "…" before any column is left out; none that is typed or copied.
        of: the item of each row, whose fields have names too.
        kind: the struct that the items are of.
        key: the field, or column, that holds what one types for an item.
        whole: columns in which nothing stands are there, too.
        empty: printed in place of a table without rows.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        right: Sequence[str] = (),
        drop: Sequence[str] = (),
        text: Sequence[str] = (),
        of: Sequence[Any] | None = None,
        kind: "type[msgspec.Struct] | None" = None,
        key: str = "",
        empty: str = "",
        whole: bool = False,
    ) -> None:
        unknown = [name for name in (*right, *drop, *text) if name not in columns]
        if unknown:
            raise ValueError(f"no such columns: {', '.join(unknown)}")
        self._right, self._drop, self._prose = frozenset(right), tuple(drop), tuple(text)
        self.of, self.empty = of, empty
        self._kind, self._key = kind, key
        self._all = list(columns), rows
        used = [at for at in range(len(columns)) if whole or not rows or any(row[at] for row in rows)]
        self._used = [columns[at] for at in used]
        self._headings = [_cell(columns[at]) for at in used]
        self._rows = [[_cell(row[at]) for at in used] for row in rows]
        self._widths = {
            name: max(_width(self._headings[at][0]), *(_width(row[at][0]) for row in self._rows), 0)
            for at, name in enumerate(self._used)
        }

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Rows:
        """Return the items with their fields, and the cells of all columns."""
        columns, rows = self._all
        cells = {column_name(name): [_cell(row[at])[0] for row in rows] for at, name in enumerate(columns)}
        return Rows(self.of or (), kind=self._kind, key=self._key, columns=cells)

    def arranged(self, columns: Sequence[str], sort: str) -> "Table":
        """Return a table of these columns or fields, all where none is named, and sorted. Raises: UsageError."""
        source = self.rows()
        headings, cells = self._all
        places = {column_name(name): at for at, name in reversed(list(enumerate(headings)))}
        source.known("--columns", columns)
        order = source.order(sort) if sort else range(len(cells))
        if not columns:
            return Table(headings, [cells[at] for at in order], right=tuple(self._right), drop=self._drop,
                         text=tuple(self._prose), of=self.of, empty=self.empty)  # fmt: skip
        shown = [places.get(column_name(name)) for name in columns]
        rows = [
            [source.text(at, name) if place is None else cells[at][place]
             for name, place in zip(columns, shown, strict=True)]
            for at in order
        ]  # fmt: skip
        names = [name if place is None else headings[place] for name, place in zip(columns, shown, strict=True)]
        right = [
            name
            for at, name in enumerate(names)
            if name in self._right or (shown[at] is None and all(is_number(row[at]) for row in rows))
        ]
        prose = [name for name in names if name in self._prose]
        return Table(names, rows, right=right, text=prose, of=self.of, empty=self.empty, whole=True)

    def fitted(self, width: int | None) -> "tuple[Text, list[str]]":
        """Return the table for a width (None: any), and the columns that were left out."""
        from rich.text import Span, Text

        shown, widths, left_out = self._fitted(width)
        lines, spans, at = [], [], 0
        headings = [(plain, [(0, len(plain), "bold")]) for plain, _ in self._headings]
        places = [(self._used.index(name), widths[name], name in self._right) for name in shown]
        total = _whole([widths[name] for name in shown])
        for row in (headings, None, *self._rows):
            if row is None:
                line = "─" * min(total, width or total)
                spans.append(Span(at, at + len(line), "dim"))
            else:
                line = ""
                for place, most, right in places:
                    plain, styles = row[place]
                    plain = plain if _width(plain) <= most else _cut(plain, most)
                    padding = " " * (most - _width(plain))
                    line += padding if right else ""
                    begin, end = at + len(line), len(plain.rstrip())  # no line ends with spaces
                    spans += [Span(begin + a, begin + min(b, end), s) for a, b, s in styles if a < end]
                    line += plain + ("" if right else padding) + " " * GAP
                line = line.rstrip()
            lines.append(line)
            at += len(line) + 1
        return Text("\n".join(lines), spans=spans), left_out

    def _fitted(self, width: int | None) -> tuple[list[str], dict[str, int], list[str]]:
        """Return the columns shown, their widths, and those left out."""
        shown, widths = list(self._used), dict(self._widths)
        left_out: list[str] = []
        if width is None:
            return shown, widths, left_out
        drop = [name for name in self._drop if name in shown]
        while (over := _whole([widths[name] for name in shown]) - width) > 0:
            prose = [name for name in self._prose if name in shown and widths[name] > CUT_MIN]
            if prose:
                widest = max(prose, key=lambda name: widths[name])
                widths[widest] = max(CUT_MIN, widths[widest] - over)
            elif drop:
                name = drop.pop(0)
                shown.remove(name)
                left_out.append(name)
                widths |= {one: self._widths[one] for one in self._prose if one in self._widths}
            else:
                break
        return shown, widths, left_out


def is_number(cell: Cell) -> bool:
    """Return whether a cell is a plain number, or empty."""
    return not cell or str(cell).removeprefix("-").replace(".", "", 1).isdecimal()


def _whole(widths: list[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def _cell(what: Cell) -> tuple[str, list[Style]]:
    """Return a cell's text, in one line and without control characters, and the styles of its parts."""
    if isinstance(what, str):
        return one_line(what), []
    plain = one_line(what.plain)
    parts = what.spans if plain == what.plain else ()  # else they would be of other characters
    whole = [(0, len(plain), str(what.style))] if what.style else []
    return plain, [*whole, *((part.start, part.end, str(part.style)) for part in parts)]


def _width(text: str) -> int:
    """Return the width of a text at a terminal, where some characters take two places."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"
