"""Tables as `squeue` and `sacct` print them, with a divider that nobody can know: names of jobs are users' texts."""

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Column(NamedTuple):
    """A column of `squeue -O`: its name there, and how many characters are asked for."""

    name: str
    width: int


def divider() -> str:
    """Return a divider for one call."""
    return f"~{secrets.token_hex(5)}~"


def queue_format(columns: Sequence[Column], between: str) -> str:
    """Return what `squeue -O` is given for these columns, each of which ends in `between`."""
    return ",".join(f"{one.name}:{one.width}{between}" for one in columns)


def queue_rows(text: str, columns: Sequence[Column], between: str) -> Iterator[tuple[dict[str, str], bool]]:
    """Yield rows by column, and whether a cell may have been cut: it fills its width.

    Raises: ValueError where the text is no such table.
    """
    cells = text.split(between)
    if cells.pop().strip() or len(cells) % len(columns):
        raise ValueError(f"rows of {len(columns)} columns; found {len(cells)} cells")
    for at in range(0, len(cells), len(columns)):
        row = [cell.removeprefix("\n") if not n else cell for n, cell in enumerate(cells[at : at + len(columns)])]
        cut = any(not cell.endswith(" ") for cell, one in zip(row, columns, strict=True) if one.name in _WHOLE)
        yield {one.name: _plain(cell) for one, cell in zip(columns, row, strict=True)}, cut


_WHOLE = ("NodeList", "tres-alloc")
_NOTHING = ("N/A", "NONE", "(null)", "Unknown", "None", "None assigned", "n/a")


def _plain(cell: str) -> str:
    text = cell.strip()
    return "" if text in _NOTHING else text


def account_rows(text: str, columns: Sequence[str], between: str) -> Iterator[dict[str, str]]:
    """Yield rows of `sacct -n -P` by column; a row ends at the first line feed of its last column.

    Raises: ValueError where the text is no such table.
    """
    if not text.strip():
        return
    cells = text.removesuffix("\n").split(between)
    last = len(columns) - 1
    row: list[str] = []
    for cell in cells:
        if len(row) == last:
            end, _, begin = cell.partition("\n")
            yield {name: _plain(one) for name, one in zip(columns, (*row, end), strict=True)}
            row = [begin]
        else:
            row.append(cell)
    if row != [""]:
        raise ValueError(f"rows of {len(columns)} columns; the last one has {len(row)}")
