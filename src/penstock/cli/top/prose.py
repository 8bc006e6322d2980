"""Lines of text that scroll: an explanation, a node, a job's output. What they say is never markup."""

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from penstock.cli.top.keys import moving

MATCH, PRESENT = Style(underline=True, bold=True), Style(reverse=True)


class Prose(ScrollView, can_focus=True):
    """Shows lines, wrapped at words unless they are a program's output.

    Args:
        wrap: lines are broken at the width; else left and right move along them.
        follow: as long as the end is shown it stays shown when lines are added.
    """

    BINDINGS: ClassVar[list[BindingType]] = moving(sideways=8)

    def __init__(self, *, wrap: bool = True, follow: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._wrap, self._follow = wrap, follow
        self.given: list[Text] = []
        self._hang = self._left = 0
        self._lines: list[Text] = []
        self._widest = 0
        self.pattern = ""
        """Searched for, letters of either case alike; empty: nothing."""
        self._match = -1

    def show(self, lines: Sequence[Text], *, hang: int = 0, dropped: int = 0) -> None:
        """Show lines instead of those before.

        Args:
            hang: column where a wrapped line goes on, if that is not where it begins.
            dropped: lines at the begin that are not there any more; what is seen stays where it is.
        """
        end = self._at_end()
        top = round(self.scroll_y)
        self.given, self._hang = list(lines), hang
        self._match = max(-1, self._match - dropped)
        self._layout()
        if self._follow and end:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True, force=True)
        elif dropped:
            self.scroll_to(y=max(0, top - dropped), animate=False, immediate=True, force=True)
        self.call_after_refresh(self._move_bar)

    def _move_bar(self) -> None:
        """Show the place in a scroll bar that was not there yet when the place changed."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = self.scroll_y

    def _at_end(self) -> bool:
        return round(self.scroll_y) >= len(self._lines) - self.size.height

    def _layout(self) -> None:
        width = max(10, self.size.width)
        self._lines = self.given
        if self._wrap:
            self._lines = []
            for line in self.given:
                indent = self._hang or len(line.plain) - len(line.plain.lstrip(" "))
                pieces = line.wrap(self.app.console, width - indent) if len(line.plain) > width else [line]
                for number, piece in enumerate(pieces):
                    self._lines.append(piece if not number else Text(" " * indent).append_text(piece))
        self._widest = max((line.cell_len for line in self._lines), default=0)
        self.virtual_size = Size(width, len(self._lines))
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        end = self._at_end()
        top, before = round(self.scroll_y), max(1, len(self._lines))
        self._layout()
        if self._follow and end:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True, force=True)
        elif self._wrap and top:
            self.scroll_to(y=top * len(self._lines) // before, animate=False, immediate=True, force=True)

    def render_line(self, y: int) -> Strip:
        number, left, width = y + round(self.scroll_y), self._left, self.size.width
        if not 0 <= number < len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[number]
        if self.pattern and self.pattern in line.plain.lower():
            line = line.copy()
            line.stylize(PRESENT if number == self._match else MATCH)
        strip = Strip(line.render(self.app.console)).apply_style(self.rich_style)
        return strip.adjust_cell_length(max(width + left, strip.cell_length), self.rich_style).crop(left, left + width)

    def search(self, pattern: str, step: int = -1) -> str:
        """Go to the next line with a text, from the end at first; return what to say of it."""
        if pattern.lower() != self.pattern:
            self.pattern, self._match = pattern.lower(), -1
        if not self.pattern:
            self.refresh()
            return ""
        hits = [at for at, line in enumerate(self._lines) if self.pattern in line.plain.lower()]
        if not hits:
            self.refresh()
            return f"nothing matches in these {len(self._lines):,} lines"
        if self._match < 0:
            self._match = hits[-1] if step < 0 else hits[0]
        else:
            later = [at for at in hits if (at - self._match) * step > 0]
            self._match = (later[0] if step > 0 else later[-1]) if later else (hits[0] if step > 0 else hits[-1])
        self.scroll_to(y=max(0, self._match - self.size.height // 2), animate=False, immediate=True, force=True)
        self.refresh()
        return f"match {hits.index(self._match) + 1} of {len(hits):,}"

    def action_move(self, step: int) -> None:
        self.scroll_to(y=max(0, round(self.scroll_y) + step), animate=False, immediate=True)

    def action_sideways(self, step: int) -> None:
        self._left = 0 if self._wrap else max(0, min(self._left + step, self._widest - self.size.width))
        self.refresh()

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 1))

    def action_edge(self, step: int) -> None:
        self.scroll_to(y=0 if step < 0 else len(self._lines), animate=False, immediate=True)
