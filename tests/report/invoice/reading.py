"""Reads a page back: its tags, its tables, its amounts."""

import re
from html.parser import HTMLParser

_VOID = {"meta", "col", "rect"}


class Read(HTMLParser):
    """Tables as (class, rows of cell texts), and all tags in their order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.headings: list[str] = []
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.style = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        if tag == "table":
            self.tables.append((dict(attrs).get("class") or "", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        elif tag == "h3":
            self.headings.append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            self.style += data
            return
        self.text += data
        if "td" in self._open or "th" in self._open:
            self.tables[-1][1][-1][-1] += data
        elif "h3" in self._open:
            self.headings[-1] += data + "|"

    def rows(self, kind: str) -> list[list[str]]:
        """Return all rows of the tables of a class, in their order."""
        return [row for name, rows in self.tables if kind in name.split() for row in rows]


def smallest(text: str, digits: int) -> int:
    """Return an amount as it is shown (`-€1,234.50`) in the smallest unit; it has to have exactly so many decimals."""
    match = re.fullmatch(r"(-?)[^0-9-]*([0-9]{1,3}(?:,[0-9]{3})*)(?:\.([0-9]+))?", text.strip())
    assert match, text
    assert len(match[3] or "") == digits, text
    return int(match[1] + match[2].replace(",", "") + (match[3] or ""))
