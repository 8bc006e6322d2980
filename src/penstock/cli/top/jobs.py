"""Pages of one job (facts, explanation, log) and of one alert."""

from collections import deque
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from penstock.api import types as api
from penstock.cli.explain import explanation_lines
from penstock.cli.output import marked
from penstock.cli.show import request_facts, state_facts
from penstock.cli.top.colours import state_cell
from penstock.cli.top.dialogs import Ask
from penstock.cli.top.logtail import LogPiece, LogTail
from penstock.cli.top.looks import job_name
from penstock.cli.top.pages import Page, Question, Target, put
from penstock.cli.top.prose import Prose
from penstock.client import Client
from penstock.core.model.answers import Alert
from penstock.core.model.explanation import Explanation
from penstock.core.model.jobs import FINAL_STATES

PANES = ("facts", "why", "log")
TITLES = {"facts": "Job", "why": "Explain", "log": "Log"}
EXPLAINED_MS = 10_000
"""An explanation is asked for again after this time: the server plans for it."""
NAME_WIDTH = 11
LINES_MAX = 5_000
"""Lines of a log that are kept."""


class JobSeen(NamedTuple):
    """An answer about a job; of what its pane does not show, nothing."""

    job: api.JobView
    why: Explanation | None
    piece: LogPiece | None
    now_ms: int


class JobPage(Page):
    """One job, by three panes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Find", key_display="/"),
        *Page.JOB_KEYS,
        Binding("l", "pane('log')", "Log"),
        Binding("e", "pane('why')", "Explain"),
        Binding("i", "pane('facts')", "Job", show=False),
        Binding("tab", "next(1)", "Next pane", show=False),
        Binding("shift+tab", "next(-1)", "Pane before", show=False),
        Binding("n", "search(-1)", "Earlier match", show=False),
        Binding("N", "search(1)", "Later match", show=False),
    ]

    def __init__(self, job_id: int, pane: str) -> None:
        super().__init__()
        self._job_id, self._pane = job_id, pane
        self._job: api.JobView | None = None
        self._why: Explanation | None = None
        self._why_ms = 0
        self._tail = LogTail(job_id)
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._unfinished: list[str] = []
        self._seen: JobSeen | None = None
        self._said = ""

    def body(self) -> ComposeResult:
        yield Static(id="tabs")
        yield Prose(id="facts")
        yield Prose(wrap=False, follow=True, id="log")

    def on_mount(self) -> None:
        super().on_mount()
        self._show_pane()
        self.say("asking...")

    def question(self) -> Question:
        pane = self._pane

        def ask(client: Client, user: str, now_ms: int) -> JobSeen:
            job = client.job(self._job_id)
            if pane == "log":
                return JobSeen(job, None, self._tail.step(client), now_ms)
            live = job.state not in FINAL_STATES
            return JobSeen(job, self._explained(client, job, now_ms) if live else None, None, now_ms)

        return ask

    def _explained(self, client: Client, job: api.JobView, now_ms: int) -> Explanation | None:
        """Return the explanation, asked for anew when the job's state is another or some time has passed."""
        known = self._why is not None and self._why.state == job.state and now_ms - self._why_ms < EXPLAINED_MS
        if not known:
            self._why, self._why_ms = client.explain(self._job_id), now_ms
        return self._why

    def show(self, value: JobSeen) -> None:
        self._job, self._seen = value.job, value
        self._show_title()
        if value.piece is not None:
            self._show_log(value.piece)
        else:
            self._show_text(value)
            self.say("")

    def _show_text(self, seen: JobSeen) -> None:
        prose = self.query_one("#facts", Prose)
        if self._pane == "facts":
            prose.show(_facts(seen), hang=NAME_WIDTH + 1)
        else:
            prose.show(_why(seen))

    def _show_log(self, piece: LogPiece) -> None:
        dropped = max(0, len(self._lines) + len(piece.lines) - LINES_MAX)
        self._lines.extend(piece.lines)
        prose = self.query_one("#log", Prose)
        if piece.lines or piece.unfinished != self._unfinished or not prose.given:
            self._unfinished = piece.unfinished
            prose.show([Text(line) for line in (*self._lines, *piece.unfinished)], dropped=dropped)
        match = f", {self._said}" if self._said else ""
        self.say(f"{piece.note}, {len(self._lines):,} lines{match}" if self._lines else piece.note)

    def _show_title(self) -> None:
        text = Text()
        for pane in PANES:
            text.append(f" {TITLES[pane]} ", style="bold reverse" if pane == self._pane else "")
        text.append(f"  job {self._job_id} ", style="bold")
        if self._job is not None:
            text.append_text(marked("{}  {}", job_name(self._job), state_cell(self._job.state)))
        put(self.query_one("#tabs", Static), text)

    def _show_pane(self) -> None:
        self._show_title()
        log = self._pane == "log"
        self.query_one("#log", Prose).display = log
        self.query_one("#facts", Prose).display = not log
        self.query_one("#log" if log else "#facts", Prose).focus()

    def target(self) -> Target | None:
        return Target(str(self._job_id), job_name(self._job), self._job.priority) if self._job is not None else None

    def action_pane(self, pane: str) -> None:
        self._pane = pane
        self._show_pane()
        if self._seen is not None and pane != "log":
            self._show_text(self._seen)
            self.query_one("#facts", Prose).action_edge(-1)
        self.changed()

    def action_next(self, step: int) -> None:
        self.action_pane(PANES[(PANES.index(self._pane) + step) % len(PANES)])

    def action_filter(self) -> None:
        if self._pane != "log":
            self.action_pane("log")
        pattern = self.query_one("#log", Prose).pattern
        self.app.push_screen(Ask("Search in the log", pattern, "n: earlier match, N: later match"), self._search)

    def _search(self, text: str | None) -> None:
        if text is not None:
            self._said = self.query_one("#log", Prose).search(text)
            self.say(self._said)

    def action_search(self, step: int) -> None:
        prose = self.query_one("#log", Prose)
        if self._pane == "log" and prose.pattern:
            self._said = prose.search(prose.pattern, step)
            self.say(self._said)


def _facts(seen: JobSeen) -> list[Text]:
    pairs = (*state_facts(seen.job, seen.why, seen.now_ms), *request_facts(seen.job))
    return [marked("[dim]{}[/] {}", f"{name:<{NAME_WIDTH}}", value) for name, value in pairs if value]


def _why(seen: JobSeen) -> list[Text]:
    if seen.why is not None:
        return explanation_lines(seen.why, seen.now_ms)
    reason = f": {seen.job.reason}" if seen.job.reason else ""
    return [marked("[bold]job {}[/] {}{}", seen.job.id, state_cell(seen.job.state), reason)]


class AlertPage(Page):
    """One alert in full, as it was when it was opened."""

    def __init__(self, alert: Alert) -> None:
        super().__init__()
        self._alert = alert

    def body(self) -> ComposeResult:
        yield Static(id="tabs")
        yield Prose()

    def on_mount(self) -> None:
        super().on_mount()
        one = self._alert
        jobs = ", ".join(map(str, one.job_ids)) + (", ..." if one.count > len(one.job_ids) else "")
        put(self.query_one("#tabs", Static), marked("[bold]alert {}[/]", one.code))
        lines = [Text(one.text), Text(""), marked("[dim]to resolve it:[/] {}", one.resolve)]
        prose = self.query_one(Prose)
        prose.show([*lines, Text(""), marked("[dim]jobs:[/] {}", jobs)] if jobs else lines)
        prose.focus()

    def question(self) -> Question:
        return lambda client, user, now_ms: None

    def show(self, value: Any) -> None:
        self.say("as it was when it was opened")
