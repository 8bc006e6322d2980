"""The full screen of `penstock top`: asks what the page on top shows, again and again, and acts on jobs."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from textual.app import App

from penstock.api.jobs import ActionAnswer
from penstock.cli.actions import DONE
from penstock.cli.top.asking import Asker, Unreadable
from penstock.cli.top.dialogs import Ask, Confirm
from penstock.cli.top.lists import ListPage
from penstock.cli.top.looks import ListWanted, banner
from penstock.cli.top.pages import Page, Question, Target, sentence
from penstock.client import ApiProblem, Client
from penstock.core.model.actions import JobAction
from penstock.core.model.answers import Alert
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.quantities import format_duration
from penstock.core.model.words import counted

INTERVAL_S = 2.0
"""From one look to the next."""
INTERVAL_MAX_S = 15.0
SHARE = 0.015
"""Looks come more seldom where they would cost more than this much of a core; up to INTERVAL_MAX_S."""
ALERTS_MS = 10_000
"""Alerts are asked for this seldom: the server looks at every job for them."""


class Seen(NamedTuple):
    banner: tuple[str, str]
    value: Any
    error: PenstockError | None
    """Why the question of the page was refused."""


class Looker:
    """Asks for totals, alerts, and what a page shows. Used in the thread that asks."""

    def __init__(self) -> None:
        self._user = ""
        self._alerts: list[Alert] = []
        self._alerts_ms: int | None = None

    def look(self, question: Question, now_ms: int, client: Client) -> Seen:
        """Return what is to be seen now. Raises: PenstockError when the server does not answer."""
        if not self._user:
            self._user = client.me().user
        cluster = client.cluster()
        if self._alerts_ms is None or now_ms - self._alerts_ms >= ALERTS_MS:
            self._alerts, self._alerts_ms = client.alerts(), now_ms
        shown = banner(cluster, self._alerts)
        try:
            return Seen(shown, question(client, self._user, now_ms), None)
        except (ApiProblem, InvalidInput) as error:
            return Seen(shown, None, error)


class TopApp(App[None]):
    """Runs until it is left.

    Args:
        connect: returns a client; each thread that asks has its own.
        wanted: the list that is shown first.
        clock_ms: the time (unix ms).
    """

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "penstock top"

    def __init__(
        self,
        connect: Callable[[], Client],
        wanted: ListWanted,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        interval_s: float = INTERVAL_S,
    ) -> None:
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")))  # only then NO_COLOR leaves no colour at all
        self._wanted, self._clock_ms, self._interval_s = wanted, clock_ms, interval_s
        self._looks, self._acts = Asker(connect), Asker(connect)
        self._looker = Looker()
        self._due = asyncio.Event()
        self._silent_since_ms: int | None = None
        self.banner = ("asking...", "")
        self.away = ""
        """That the server is away, and why; empty: it answers."""
        self.looked = 0
        """Number of looks that were answered."""

    def on_mount(self) -> None:
        self.push_screen(ListPage(self._wanted))
        self.run_worker(self._keep_looking(), group="looks")

    def on_unmount(self) -> None:
        self._looks.close()
        self._acts.close()

    @property
    def page(self) -> Page | None:
        """The page on top, below dialogs."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, Page)), None)

    def look_now(self) -> None:
        self._due.set()

    async def _keep_looking(self) -> None:
        while True:
            self._due.clear()
            cost_s = await self._look()
            least_s = self.page.interval_s if self.page is not None else 0.0
            pause_s = max(self._interval_s, least_s, min(INTERVAL_MAX_S, cost_s / SHARE))
            try:
                await asyncio.wait_for(self._due.wait(), pause_s)
            except TimeoutError:
                continue

    async def _look(self) -> float:
        """Look once; return the CPU time that it took (s)."""
        page = self.page
        if page is None:
            return 0.0
        version = page.version
        try:
            answered = await self._looks.ask(partial(self._looker.look, page.question(), self._clock_ms()))
        except PenstockError as error:
            self._silent(error)
            return 0.0
        begun_s = time.thread_time()
        seen = cast("Seen", answered.value)
        self._silent_since_ms, self.away, self.banner = None, "", seen.banner
        if page is self.page:
            page.show_banner()
            if page.version == version:
                if seen.error is not None:
                    page.failed(seen.error)
                else:
                    page.show(seen.value)
        self.looked += 1
        return answered.cpu_s + time.thread_time() - begun_s

    def _silent(self, error: PenstockError) -> None:
        """Note that the server does not answer, and show since when; what was seen before stays on the screen."""
        now_ms = self._clock_ms()
        self._silent_since_ms = now_ms if self._silent_since_ms is None else self._silent_since_ms
        silent_s = (now_ms - self._silent_since_ms) // 1000
        what = f"no answer from the server for {format_duration(1000 * silent_s)}" if silent_s else "no answer"
        if isinstance(error, ApiProblem | Unreadable):
            what = error.message
        self.away = f"{what}; trying again. What you see is older"
        if (page := self.page) is not None:
            page.show_banner()

    # Actions.

    def act(self, page: Page, action: str, target: Target) -> None:
        """Do an action with a job once it is confirmed; the page says what became of it."""
        self.run_worker(self._act(page, cast("JobAction", action), target), group="acts", exclusive=True)

    async def _act(self, page: Page, action: JobAction, target: Target) -> None:
        change: dict[str, Any] = {}
        if action == "edit":
            given = await self.push_screen_wait(
                Ask(f"New priority of {target}", str(target.priority), "low, medium, high or a number; Esc leaves it")
            )
            if not given or given == str(target.priority):
                return
            change["priority"] = int(given) if given.isdecimal() else given
        try:
            planned = await self._asked(action, target, change, dry_run=True)
            if planned.changed == 0:
                page.notice(planned.unchanged[0].text if planned.unchanged else f"{target} has ended", bad=True)
                return
            if not await self._confirmed(action, target, planned, change):
                page.notice(f"{target} stays as it was")
                return
            done = await self._asked(action, target, change)
        except PenstockError as error:
            page.notice(sentence(error), bad=True)
            return
        if not done.changed:
            page.notice(done.unchanged[0].text if done.unchanged else f"{target} has ended", bad=True)
            return
        left = f"; left as they were: {sum(one.count for one in done.unchanged):,}" if done.unchanged else ""
        which = str(target) if not target.key.endswith("[]") else f"{counted(done.changed, 'job')} of {target}"
        page.notice(DONE[action][1].format(which) + left)
        self.look_now()

    async def _confirmed(
        self, action: JobAction, target: Target, planned: ActionAnswer, change: dict[str, Any]
    ) -> bool:
        many = f" ({counted(planned.changed, 'job')})" if target.key.endswith("[]") else ""
        to = f": priority {change['priority']} instead of {target.priority}" if change else ""
        return await self.push_screen_wait(Confirm(f"{DONE[action][0]} {target}{many}{to}?"))

    async def _asked(
        self, action: JobAction, target: Target, change: dict[str, Any], *, dry_run: bool = False
    ) -> ActionAnswer:
        select: dict[str, Any] = {"ids": [target.key]}
        if target.states:
            select["states"] = list(target.states)
        answered = await self._acts.ask(lambda client: client.act(action, select, change=change, dry_run=dry_run))
        return cast("ActionAnswer", answered.value)
