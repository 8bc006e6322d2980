"""The lists of `penstock top`: one page for all views, and one for the devices of a node."""

from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from penstock.api import types as api
from penstock.cli.top.dialogs import Ask
from penstock.cli.top.jobs import AlertPage, JobPage
from penstock.cli.top.looks import (
    JOB_VIEWS,
    SORTS,
    STATES,
    TITLES,
    VIEWS,
    Listing,
    ListWanted,
    Row,
    job_name,
    listing,
)
from penstock.cli.top.pages import Page, Question, Target, put
from penstock.cli.top.rows import Rows
from penstock.client import Client
from penstock.core.model.answers import Alert

ENDED_INTERVAL_S = 10.0
FILTER_HINTS = {
    "jobs": "text in name, user or label; user:NAME tenant: queue: label:KEY=VALUE array:N; a number opens that job",
    "nodes": "text in name, pool, rack, switch, zone, model or a label",
    "alerts": "words in the alert",
}


class Tabs(Static):
    """The views by their numbers; a click opens one."""

    def on_click(self, event: events.Click) -> None:
        at = 0
        for view in VIEWS:
            at += len(tab_text(view))
            if event.x < at:
                page = self.screen
                if isinstance(page, ListPage):
                    page.action_view(view)
                return


def tab_text(view: str) -> str:
    return f" {VIEWS.index(view) + 1} {TITLES[view]} "


class RowsPage(Page):
    """A page with rows under the names of their columns."""

    def body(self) -> ComposeResult:
        yield Tabs(id="tabs")
        yield Static(id="heading")
        yield Rows()

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(Rows).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_heading)

    def on_rows_sideways(self) -> None:
        self.show_heading()

    def show_heading(self) -> None:
        put(self.query_one("#heading", Static), self.query_one(Rows).heading)


class ListPage(RowsPage):
    """Shows one view at a time. Of many jobs only a page is asked for; the cursor leads to the next."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *Page.JOB_KEYS,
        Binding("l", "pane('log')", "Log"),
        Binding("e", "pane('why')", "Explain"),
        Binding("escape", "back", "Back", show=False),
        Binding("s", "sort", "Sort", show=False),
        Binding("a", "ended", "All", show=False),
        Binding("tab", "next(1)", "Next view", show=False),
        Binding("shift+tab", "next(-1)", "View before", show=False),
        *(Binding(str(at + 1), f"view('{view}')", TITLES[view], show=False) for at, view in enumerate(VIEWS)),
    ]

    def __init__(self, wanted: ListWanted) -> None:
        super().__init__()
        self.wanted = wanted
        self._before: list[ListWanted] = []
        """The pages before this one, of the same view and filter."""
        self._anew, self._at_end = True, False

    def on_mount(self) -> None:
        super().on_mount()
        self._show_tabs()

    def question(self) -> Question:
        return partial(_ask, self.wanted)

    @property
    def interval_s(self) -> float:
        """Jobs that have ended are read from the log: more seldom."""
        return ENDED_INTERVAL_S if self.wanted.ended else 0.0

    def show(self, value: Listing) -> None:
        rows = self.query_one(Rows)
        rows.show(value, anew=self._anew)
        if self._anew and self._at_end:
            rows.action_edge(1)
        self._anew = self._at_end = False
        self.show_heading()
        self.say(value.note)
        self._show_tabs()

    def _show_tabs(self) -> None:
        text = Text()
        for view in VIEWS:
            text.append(tab_text(view), style="bold reverse" if view == self.wanted.view else "")
        if self.wanted.filter:
            text.append("  filtered", style="bold")
        put(self.query_one("#tabs", Static), text)

    def _turn_to(self, wanted: ListWanted, before: list[ListWanted], *, at_end: bool = False) -> None:
        """Ask for another list; the rows of the same view stay until it is there."""
        if wanted.view != self.wanted.view:
            self.query_one(Rows).clear()  # rows of one view under the name of another would deceive
            put(self.query_one("#heading", Static), Text())
        self.wanted, self._before, self._anew, self._at_end = wanted, before, True, at_end
        self._show_tabs()
        self.say("asking...")
        self.changed()

    def _first(self, text: str) -> ListWanted:
        """Return the first page with another filter."""
        return self.wanted._replace(filter=text, cursor="", begin=0)

    def target(self) -> Target | None:
        row = self.query_one(Rows).selected
        if row is None or not isinstance(row.thing, api.JobView):
            return None
        states = STATES[self.wanted.view] if row.key.endswith("[]") else ()
        return Target(row.key, job_name(row.thing), row.thing.priority, states)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        self._open(event.row, "why" if self.wanted.view == "queue" else "facts")

    def _open(self, row: Row, pane: str) -> None:
        thing = row.thing
        if isinstance(thing, api.NodeView):
            self.app.push_screen(NodePage(thing.name))
        elif isinstance(thing, Alert):
            self.app.push_screen(AlertPage(thing))
        elif thing.array_counts:
            self._turn_to(self._first(f"array:{thing.array_id}"), [])
        else:
            self.app.push_screen(JobPage(thing.id, pane))

    def on_rows_beyond(self, event: Rows.Beyond) -> None:
        shown = self.query_one(Rows).listing
        if self._anew or shown is None:
            return
        if event.step > 0 and shown.cursor:
            following = self.wanted._replace(cursor=shown.cursor, begin=self.wanted.begin + len(shown.rows))
            self._turn_to(following, [*self._before, self.wanted])
        elif event.step < 0 and self._before:
            self._turn_to(self._before[-1], self._before[:-1], at_end=True)

    def action_view(self, view: str) -> None:
        if view != self.wanted.view:
            self._turn_to(ListWanted(view), [])

    def action_next(self, step: int) -> None:
        self.action_view(VIEWS[(VIEWS.index(self.wanted.view) + step) % len(VIEWS)])

    def action_sort(self) -> None:
        """Ask for the next order of the view; the filter stays."""
        orders = SORTS[self.wanted.view]
        if orders:
            following = orders[(orders.index(self.wanted.order) + 1) % len(orders)]
            self._turn_to(self.wanted._replace(sort=following, cursor="", begin=0), [])

    def action_ended(self) -> None:
        """Show your jobs that have ended, too, or no longer."""
        if self.wanted.view == "mine":
            self._turn_to(self.wanted._replace(ended=not self.wanted.ended, cursor="", begin=0), [])
        else:
            self.notice("ended jobs are listed with your own: 5, then a")

    def action_pane(self, pane: str) -> None:
        row = self.query_one(Rows).selected
        if row is not None and isinstance(row.thing, api.JobView):
            self._open(row, pane)

    def action_back(self) -> None:
        if self.wanted.filter or self._before:
            self._turn_to(self._first(""), [])

    def action_filter(self) -> None:
        view = self.wanted.view
        hint = FILTER_HINTS["jobs" if view in JOB_VIEWS else "alerts" if view == "alerts" else "nodes"]
        self.app.push_screen(Ask(f"Filter of {TITLES[view]}", self.wanted.filter, hint), self._filter)

    def _filter(self, text: str | None) -> None:
        if text is None:
            return
        if self.wanted.view in JOB_VIEWS and text.isdecimal():
            self.app.push_screen(JobPage(int(text), "facts"))
        else:
            self._turn_to(self._first(text), [])


def _ask(wanted: ListWanted, client: Client, user: str, now_ms: int) -> Listing:
    return listing(client, wanted, user, now_ms)


class NodePage(RowsPage):
    """The devices of one node with their holders; Enter opens the job."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self._anew = True

    def on_mount(self) -> None:
        super().on_mount()
        put(self.query_one("#tabs", Static), Text(f"node {self._node}", style="bold"))

    def question(self) -> Question:
        return partial(_ask, ListWanted("node", self._node))

    def show(self, value: Any) -> None:
        rows = self.query_one(Rows)
        rows.show(value, anew=self._anew)
        self._anew = False
        self.show_heading()
        self.say(value.note)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        if event.row.thing is not None:
            self.app.push_screen(JobPage(event.row.thing, "facts"))
