"""Questions of `penstock top`: a confirmation that names the job, a line of text, and the help."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from penstock.core.model.foreign import one_line

HELP = """\
move      arrows, j k, PgUp PgDn, g G (first, last); or the mouse
views     1-6, Tab, Shift-Tab; or click
open      Enter: a job, an array's members, a node, an alert
back      Esc: closes a page, then the filter
filter    /  text in a name, user, label; or user:NAME tenant: queue:
             name:PATTERN label:K=V array:N. A number opens that job.
sort      s: the view's next order, as the line above the keys says
finished  a, in My jobs: adds finished jobs
log       l; / searches in what is loaded, n N go to the next match
explain   e: why a job waits, what would let it start
cancel c  hold h  release r  priority p: each asks first
refresh   u now; else every 2 s, less often if that is costly
quit      q

A row that is struck through has left the list since you selected it.
Bars and device maps: numbers say the same as colours.
"""


class Confirm(ModalScreen[bool]):
    """Asks yes or no; no is what Esc, n and Enter mean."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(one_line(self._question)))
            yield Static(Text("y yes   n no (Esc)", style="bold"), classes="answers")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Ask(ModalScreen[str | None]):
    """Asks for a line of text; None when it is left by Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(one_line(self._question)))
            yield Input(self._value, max_length=200, compact=True)
            yield Static(Text(one_line(self._hint), style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "leave", "Back")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog help"):
            yield Static(Text(HELP))

    def action_leave(self) -> None:
        self.dismiss(None)
