"""Chromium as a user has it: one context a viewer, everything that goes wrong noted, all traffic kept."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright
from playwright.sync_api import TimeoutError as NoneInTime

from penstock.client import Client
from penstock.testing.server import InProcessServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = os.environ.get("PENSTOCK_SHOTS", "")
"""The folder for screenshots, such as build/shots; by default none are taken."""
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PAGES = {
    "overview": "/", "jobs": "/jobs", "nodes": "/nodes", "node_list": "/nodes?tab=list", "queues": "/queues",
    "timeline": "/timeline?range=6h", "usage": "/usage", "waste": "/usage?tab=waste", "money": "/money",
    "bill": "/money?tab=bill", "invoices": "/money?tab=invoices", "whatif": "/whatif", "submit": "/submit",
    "schedules": "/schedules",
    "admin": "/admin", "tenants": "/admin?tab=tenants", "users": "/admin?tab=users", "quotas": "/admin?tab=quotas",
    "config": "/admin?tab=config", "health": "/admin?tab=health", "tokens": "/admin?tab=tokens",
    "secrets": "/admin?tab=secrets", "notifications": "/admin?tab=notifications",
    "audit": "/audit", "alerts": "/alerts",
}  # fmt: skip
EXPECTED = re.compile(r"status of (403|404|409|412|422)")
"""What the browser itself says of a request that the server refuses: the page says it in its own words."""


def needed(what: str) -> None:
    """Skip the test for lack of something; in CI it fails."""
    reason = f"{what} is needed: scripts/install-system-packages.sh"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Give a browser without a window."""
    if CHROMIUM is None:
        needed("chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


GO = """page => new Promise(done => {
    if (new URL(page, location).pathname !== location.pathname) {
        for (const shown of document.querySelectorAll('main :is(h1, .empty, .problem)')) shown.dataset.former = '1';
    }
    history.pushState(null, '', page);
    dispatchEvent(new PopStateEvent('popstate'));
    requestAnimationFrame(() => requestAnimationFrame(done));
})"""
"""Shows a page as a link does, and marks what the page before it shows: only another path has other headings."""
VIOLATIONS = """
addEventListener('securitypolicyviolation', e => console.error(`CSP ${e.violatedDirective} ${e.blockedURI}`))
"""


def login_code(url: str, token: str, page: str = "/") -> str:
    """Return the code of a one-time link."""
    with Client.at(url, token=token, insecure=True) as client:
        return client.login_link(page).code


def follow_link(page: Page, address: str, code: str) -> None:
    """Sign in by a one-time link, in a browser in which nobody is signed in: the page asks before it uses the code."""
    page.goto(f"{address}/login#{code}")
    page.locator("main.login > p > button").first.click()


class Viewer:
    """One signed-in viewer with a page.

    `problems` is what went wrong: errors of scripts, of the console, violations of the policy, requests to elsewhere.
    """

    def __init__(
        self,
        browser: Browser,
        server: InProcessServer,
        token: str,
        *,
        dark: bool = False,
        narrow: bool = False,
        language: str = "en-GB",
    ) -> None:
        self.url, self.problems, self.traffic = server.url, list[str](), list[str]()
        self.token = token
        self.context: BrowserContext = browser.new_context(
            viewport=NARROW if narrow else WIDE,
            color_scheme="dark" if dark else "light",
            locale=language,
            timezone_id="Europe/Berlin",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.watch(self.page)

    def watch(self, page: Page) -> None:
        page.on("console", lambda said: said.type == "error" and self._noted(said.text))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda asked: asked.url.startswith((self.url, "blob:", "data:")) or
                self.problems.append(f"left the server: {asked.url}"))  # fmt: skip
        page.on("response", self._kept)

    def _noted(self, text: str) -> None:
        if EXPECTED.search(text) is None:
            self.problems.append(f"console: {text}")

    def _kept(self, response: Response) -> None:
        if "/api/" in response.url and "event-stream" not in response.headers.get("content-type", ""):
            with contextlib.suppress(Exception):
                self.traffic.append(f"{response.url}\n{response.text()}")

    def sign_in(self, page: str = "/") -> None:
        """Sign in by a one-time link of the viewer's token."""
        follow_link(self.page, self.url, login_code(self.url, self.token, page))
        self.page.locator(".shell main h1").first.wait_for()

    def open(self, page: str) -> None:
        """Go to a page as a link does, and wait until it has loaded what it shows."""
        self.page.evaluate(GO, page)
        self.settle()

    def settle(self) -> None:
        self.page.locator("main :is(h1, .empty, .problem):not([data-former])").first.wait_for()
        self.page.locator("main .loading").first.wait_for(state="detached", timeout=20_000)

    def quiet(self) -> None:
        """Wait until what has happened so far is shown: changes come within half a second, and are asked for then."""
        for _ in range(100):
            try:
                self.page.wait_for_event("request", timeout=1_500)
            except NoneInTime:
                return
        raise AssertionError("the page goes on asking")

    def shot(self, name: str) -> None:
        """Let canvases be drawn, and keep a screenshot where there is a folder for it."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        found: Any = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return int(found)

    def close(self) -> None:
        self.context.close()
