"""What all pages of `penstock top` share: totals and alerts on top, a line for what was said last, the keys below."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from penstock.cli.top.colours import ORANGE, VERMILION
from penstock.cli.top.dialogs import Help
from penstock.client import Client
from penstock.core.model.errors import PenstockError
from penstock.core.model.foreign import one_line

if TYPE_CHECKING:
    from penstock.cli.top.app import TopApp

NOTICE_S = 6.0
Question = Callable[[Client, str, int], Any]
"""Asks with a client, for a user, at a time (unix ms); called in the thread that asks."""


class Target(NamedTuple):
    """Whom an action is about."""

    key: str
    """As `penstock cancel` takes it: `12`, or `12[]` for an array."""
    name: str
    priority: int
    states: tuple[str, ...] = ()
    """Only its jobs in these states; empty: all live ones."""

    def __str__(self) -> str:
        return f"{'array' if self.key.endswith('[]') else 'job'} {self.key} {self.name}"


class Page(Screen[None]):
    """A page asks one question again and again; `version` changes when the question does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("u", "look_now", "Update", show=False),
        Binding("escape", "back", "Back"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False),
        Binding("ctrl+z", "app.suspend_process", "Suspend", show=False),
    ]
    JOB_KEYS: ClassVar[list[BindingType]] = [
        Binding("c", "act('cancel')", "Cancel"),
        Binding("h", "act('hold')", "Hold"),
        Binding("r", "act('release')", "Release"),
        Binding("p", "act('edit')", "Prio"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self._notice_until_s = 0.0

    @property
    def top(self) -> "TopApp":
        return cast("TopApp", self.app)

    def compose(self) -> ComposeResult:
        yield Static(id="totals")
        yield Static(id="alerts")
        yield from self.body()
        yield Static(id="note")
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def question(self) -> Question:
        """Return what to ask next."""
        raise NotImplementedError

    @property
    def interval_s(self) -> float:
        """At least this long from one look to the next."""
        return 0.0

    def show(self, value: Any) -> None:
        """Show an answer to the present question."""
        raise NotImplementedError

    def target(self) -> Target | None:
        """Return the job that keys act on."""
        return None

    def failed(self, error: PenstockError) -> None:
        """Say that the question was refused."""
        self.say(sentence(error), bad=True)

    def on_mount(self) -> None:
        self.show_banner()

    def on_screen_resume(self) -> None:
        self.show_banner()
        self.top.look_now()

    def show_banner(self) -> None:
        """Show totals and alerts, or that the server is away."""
        totals, alerts = self.top.banner
        put(self.query_one("#totals", Static), Text(f"penstock  {totals}", style="bold"))
        away = self.top.away
        style = f"bold reverse {VERMILION}" if away else f"bold {ORANGE}" if alerts.startswith("!") else "dim"
        put(self.query_one("#alerts", Static), Text(one_line(away or alerts), style=style))

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a line above the keys, unless what became of an action stands there."""
        if time.monotonic() >= self._notice_until_s:
            self._put_note(text, bad=bad)

    def notice(self, text: str, *, bad: bool = False) -> None:
        """Show what became of an action for some seconds."""
        self._notice_until_s = time.monotonic() + NOTICE_S
        self._put_note(text, bad=bad)

    def _put_note(self, text: str, *, bad: bool) -> None:
        mark = "error: " if bad else ""
        style = f"bold {VERMILION}" if bad else ""
        put(self.query_one("#note", Static), Text(mark + one_line(text), style=style), wrap=True)

    def changed(self) -> None:
        """Ask anew at once: the question is another one."""
        self.version += 1
        self._notice_until_s = 0.0
        self.top.look_now()

    def action_look_now(self) -> None:
        self.top.look_now()

    def action_help(self) -> None:
        self.app.push_screen(Help())

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_quit(self) -> None:
        self.app.exit()

    def action_act(self, action: str) -> None:
        target = self.target()
        if target is None:
            self.notice("no job is selected", bad=True)
        else:
            self.top.act(self, action, target)


def sentence(error: PenstockError) -> str:
    """Return an error in one line: its first problem, with what helps."""
    first = error.problems[0] if error.problems else error
    return first.message + (f" ({first.hint})" if first.hint else "")


def put(where: Static, text: Text, *, wrap: bool = False) -> None:
    """Show a text where it differs from what is shown: an equal one costs nothing."""
    text.no_wrap, text.overflow = not wrap, "fold" if wrap else "ellipsis"
    if getattr(where, "shown", None) != (text.plain, str(text.style), text.spans):
        where.shown = (text.plain, str(text.style), text.spans)  # type: ignore[attr-defined]
        where.update(text)
