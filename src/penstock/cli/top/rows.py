"""A table whose selected row is kept by its key: answers come and go, and nothing jumps under the cursor.

Drawn line by line from `Listing.table()`, which cuts and leaves out columns as the other commands do; text of others
is never markup.
"""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from penstock.cli.top.keys import moving
from penstock.cli.top.looks import Listing, Row

CURSOR = Style(reverse=True)
GONE = Style(dim=True, strike=True)
HEADING_LINES = 2
MORE = "›"


class Rows(ScrollView, can_focus=True):
    """Shows a listing. A selected row that is not in a new answer stays, struck through, until another is selected."""

    BINDINGS: ClassVar[list[BindingType]] = [*moving(sideways=16), Binding("enter", "open", "Open")]

    class Opened(Message):
        def __init__(self, row: Row) -> None:
            self.row = row
            super().__init__()

    class Sideways(Message):
        """The columns have moved; the heading has to."""

    class Beyond(Message):
        """The cursor would leave the page: 1 at its end, -1 at its begin."""

        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.listing: Listing | None = None
        self.at = 0
        self.gone = ""
        """Key of the selected row, where the last answer did not have it any more."""
        self.left = 0
        """Columns of the screen that have moved out to the left."""
        self._rows: list[Row] = []
        self._lines: list[Text] = []
        self._strips: dict[int, Strip] = {}

    @property
    def selected(self) -> Row | None:
        return self._rows[self.at] if self._rows else None

    @property
    def heading(self) -> Text:
        """The names of the columns, above them."""
        return self._lines[0][self.left :] if self._lines else Text()

    def show(self, listing: Listing, *, anew: bool = False) -> None:
        """Show an answer to the same question: the selected row stays selected, on the same line of the screen.

        Args:
            anew: the question is another one; the cursor goes to the first row.
        """
        if anew or self.listing is None:
            self.at, self.gone, self.left = 0, "", 0
            self.listing, self._rows = listing, list(listing.rows)
            self._draw()
            self.scroll_to(0, 0, animate=False, immediate=True)
            return
        place = self._anchor()
        before, was = self.selected, place - round(self.scroll_y)
        anchor = self._rows[place].key if self._rows else ""
        rows = list(listing.rows)
        keys = {row.key: at for at, row in enumerate(rows)}
        self.gone = ""
        if before is not None and before.key not in keys:
            self.gone = before.key
            rows.insert(min(self.at, len(rows)), before)
            keys = {row.key: at for at, row in enumerate(rows)}
        self.listing, self._rows = listing, rows
        self.at = keys[before.key] if before is not None else 0
        self._draw()
        if anchor in keys:
            self.scroll_to(y=max(0, keys[anchor] - was), animate=False, immediate=True, force=True)

    def clear(self) -> None:
        """Show nothing until there is another answer."""
        self.listing, self._rows, self._lines, self.at, self.gone = None, [], [], 0, ""
        self._strips.clear()
        self.virtual_size = Size(self.size.width, 0)
        self.refresh()

    def _anchor(self) -> int:
        """Return the row that keeps its line on the screen: the selected one, or the uppermost that is seen."""
        top = round(self.scroll_y)
        seen = top <= self.at < top + max(1, self.size.height)
        return self.at if seen else max(0, min(top, len(self._rows) - 1))

    def _draw(self) -> None:
        """Lay out the rows for the present width."""
        assert self.listing is not None
        shown = self.listing._replace(rows=self._rows)
        if self._rows:
            fitted, _ = shown.table().fitted(max(20, self.size.width))
            self._lines = list(fitted.split("\n", allow_blank=True))
        else:
            self._lines = []
        self._strips.clear()
        self.virtual_size = Size(self.size.width, len(self._rows))
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        if self.listing is not None:
            self._draw()
            self.follow_cursor()

    def follow_cursor(self) -> None:
        """Scroll as little as shows the selected row."""
        top, height = round(self.scroll_y), max(1, self.size.height)
        if self.at < top:
            self.scroll_to(y=self.at, animate=False, immediate=True, force=True)
        elif self.at >= top + height:
            self.scroll_to(y=self.at - height + 1, animate=False, immediate=True, force=True)

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        if not 0 <= number < len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        strip = self._strips.get(number)
        if strip is None:
            line = self._lines[number + HEADING_LINES]
            strip = Strip(line.render(self.app.console)).apply_style(self.rich_style)
            strip = self._cut(strip, self.left, self.size.width)
            self._strips[number] = strip
        if self._rows[number].key == self.gone:
            strip = strip.apply_style(GONE)
        return strip.apply_style(CURSOR) if number == self.at else strip

    def _cut(self, strip: Strip, left: int, width: int) -> Strip:
        """Return the part that is seen; a sign at its end says that there is more to the right."""
        more = strip.cell_length > left + width
        strip = strip.adjust_cell_length(max(strip.cell_length, left + width), self.rich_style)
        if not more:
            return strip.crop(left, left + width)
        return Strip([*strip.crop(left, left + width - 1), Segment(MORE, self.rich_style)], width)

    def select(self, at: int) -> None:
        """Move the cursor to a row."""
        if not self._rows:
            return
        at = max(0, min(at, len(self._rows) - 1))
        if self.gone and at != self.at:
            key = self._rows[at].key
            self._rows = [row for row in self._rows if row.key != self.gone]
            self.gone = ""
            at = next(i for i, row in enumerate(self._rows) if row.key == key)
            self.at = at
            self._draw()
        self.at = at
        self.follow_cursor()
        self.refresh()

    def action_move(self, step: int) -> None:
        if 0 <= self.at + step < len(self._rows):
            self.select(self.at + step)
        else:
            self.post_message(self.Beyond(step))

    def action_sideways(self, step: int) -> None:
        """Move along lines that are wider than the screen."""
        widest = max((line.cell_len for line in self._lines), default=0)
        self.left = max(0, min(self.left + step, widest - self.size.width))
        self._strips.clear()
        self.refresh()
        self.post_message(self.Sideways())

    def action_page(self, step: int) -> None:
        if 0 <= self.at + step < len(self._rows):
            self.select(self.at + step * max(1, self.size.height - 1))
        else:
            self.post_message(self.Beyond(step))

    def action_edge(self, step: int) -> None:
        self.select(0 if step < 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        if (row := self.selected) is not None:
            self.post_message(self.Opened(row))

    def on_click(self, event: events.Click) -> None:
        number = event.y + round(self.scroll_y)
        if not 0 <= number < len(self._rows):
            return
        key, was = self._rows[number].key, self.selected
        self.select(number)
        if was is not None and was.key == key:
            self.action_open()
