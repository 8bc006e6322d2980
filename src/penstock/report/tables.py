"""HTML for tables: heads that sort, cells with the value to sort by, and bars that stand beside their number."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.report.text import esc


class Cell(NamedTuple):
    """`html` is safe already. `value` is what the column sorts by; `number` aligns to the right."""

    html: str
    value: int | str | None = None
    number: bool = False


def text(words: object) -> Cell:
    return Cell(esc(words), str(words)[:60].lower())


def number(value: int | None, shown: str = "", missing: str = "–") -> Cell:
    """Return a right-aligned cell; None sorts below every number."""
    if value is None:
        return Cell(missing, -1, True)
    return Cell(shown or f"{value:,}", value, True)


def row(cells: Iterable[Cell], attributes: str = "") -> str:
    parts = []
    for index, cell in enumerate(cells):
        tag = 'th scope="row"' if index == 0 else "td"
        css = ' class="n"' if cell.number else ""
        value = f' data-v="{esc(cell.value)}"' if cell.value is not None else ""
        parts.append(f"<{tag}{css}{value}>{cell.html}</{tag.split()[0]}>")
    return f"<tr{attributes}>{''.join(parts)}</tr>"


def table(caption: str, heads: Sequence[str], bodies: Iterable[str], css: str = "") -> str:
    """Return a table that can be sorted. Each of `bodies` is the rows of one entry: they stay together.

    A head that starts with `#` stands over numbers.
    """
    cells = "".join(
        f'<th scope="col" class="n">{_head(h[1:])}</th>' if h.startswith("#") else f'<th scope="col">{_head(h)}</th>'
        for h in heads
    )
    rows = "".join(f"<tbody>{body}</tbody>" for body in bodies)
    inner = f"<caption>{caption}</caption><thead><tr>{cells}</tr></thead>{rows}"
    scrolls = f'class="wide" tabindex="0" role="region" aria-label="{esc(caption)}"'
    return f'<div {scrolls}><table class="{css}">{inner}</table></div>'


def _head(words: str) -> str:
    return f'<button type="button">{words}</button>' if words else ""


def segment(css: str, part: int, whole: int, hint: str) -> str:
    """Return one piece of a horizontal bar, `part` of `whole` wide."""
    share = 100_000 * part // whole / 1000 if whole else 0
    return f'<i class="{css}" style="width:{share:.2f}%" title="{hint}"></i>'


def track(segments: Iterable[str]) -> str:
    """Return a bar of segments. Its numbers stand beside it as text, so it is hidden from screen readers."""
    return f'<span class="track" aria-hidden="true">{"".join(segments)}</span>'


def swatch(css: str, words: str) -> str:
    return f'<span class="key"><i class="{css}"></i>{words}</span>'
