"""Links that sign somebody in: a page asks before it uses one, and no open tab becomes that of another user."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import BrowserContext, Page, Request, Route, expect

from tests.web.browsing import login_code
from tests.web.world import OTHER

LINK = "main.login, .shell main h1"
"""What a page shows of a link: its question, or that it has signed somebody in."""


HEARD = """
const own = SharedWorker
window.heard = []
window.SharedWorker = class extends own {
    constructor(...how) {
        super(...how)
        this.port.addEventListener('message', event => heard.push(event.data))
    }
}
"""
"""Keeps what the worker says to a page."""
HEARD_OF = "heard.flatMap(said => said.changes?.jobs ?? []).map(job => job.id)"


class Tab(NamedTuple):
    page: Page
    tokens: list[str]
    """Those that its requests carried, since it was last asked who sends."""


class Tabs:
    """Tabs of one browser, and what they send."""

    def __init__(self, context: BrowserContext, world) -> None:
        self.context, self.server, self.tokens = context, world.server, world.tokens

    def open(self, address: str = "/jobs") -> Tab:
        tab = Tab(self.context.new_page(), [])
        tab.page.on("request", lambda request: self._note(tab, request))
        tab.page.goto(self.server.url + address)
        return tab

    def follow(self, role: str, page: str = "/jobs", tab: Tab | None = None) -> tuple[Tab, str]:
        """Open a link of another user, in a tab of its own; return the tab, and the code."""
        code = login_code(self.server.url, self.tokens[role], page)
        if tab is None:
            return self.open(f"/login#{code}"), code
        tab.page.goto(f"{self.server.url}/login#{code}")
        return tab, code

    def typed(self, role: str, tab: Tab, *, stay: bool = False) -> None:
        """Sign in by a token."""
        tab.page.get_by_label("Token").fill(self.tokens[role])
        tab.page.get_by_label("Stay signed in on this browser").set_checked(stay)
        tab.page.get_by_role("button", name="Sign in").click()
        expect(tab.page.locator(".viewer .who")).to_have_text(role)

    def signed_in(self, role: str, tab: Tab | None = None) -> Tab:
        tab, _ = self.follow(role, tab=tab)
        tab.page.get_by_role("button", name=f"Sign in as {role}").click()
        expect(tab.page.locator(".viewer .who")).to_have_text(role)
        return tab

    @staticmethod
    def _note(tab: Tab, request: Request) -> None:
        if token := request.headers.get("authorization", "").removeprefix("Bearer "):
            tab.tokens.append(token)

    def assert_is(self, role: str, *tabs: Tab) -> None:
        """Assert that tabs show a user, and send as this one and as no other, also once they are loaded anew."""
        for tab in tabs:
            for act in (tab.page.get_by_role("link", name="Nodes", exact=True).click, tab.page.reload):
                tab.tokens.clear()
                with tab.page.expect_response(lambda answer: "/api/v1/nodes" in answer.url):
                    act()
                expect(tab.page.locator(".viewer .who")).to_have_text(role)
                assert {user_of(self.server.url, tab.page, token) for token in tab.tokens} == {role}
            tab.page.get_by_role("link", name="Overview", exact=True).click()


def user_of(url: str, page: Page, token: str) -> str:
    answer = page.request.get(f"{url}/api/v1/me", headers={"authorization": f"Bearer {token}"})
    return str(answer.json().get("user"))


@pytest.fixture
def tabs(world, browser) -> Iterator[Tabs]:
    context = browser.new_context(locale="en-GB")
    yield Tabs(context, world)
    context.close()


def test_a_link_of_somebody_else_changes_no_open_tab_and_asks_first(tabs):
    first = tabs.signed_in("admin")
    second = tabs.open()
    tabs.assert_is("admin", first, second)
    third, code = tabs.follow("member")
    third.page.locator(LINK).first.wait_for()
    tabs.assert_is("admin", first, second)
    asked = third.page.locator("main.login")
    expect(asked).to_contain_text("Sign in as member?")
    expect(asked).to_contain_text("This browser is signed in as admin.")
    assert (third.tokens, code in third.page.url) == ([], False)


def test_a_link_that_is_declined_is_unused_and_its_user_sends_nothing(tabs):
    first = tabs.signed_in("admin")
    third, code = tabs.follow("member")
    third.page.get_by_role("button", name="Continue as admin").click()
    tabs.assert_is("admin", third, first)
    url = f"{tabs.server.url}/api/v1/logins"
    assert third.page.request.post(url, data={"code": code}).status == 200  # the first that uses it
    assert third.page.request.post(url, data={"code": code}).status == 401


def test_a_link_that_is_accepted_signs_its_own_tab_in_and_no_other(tabs):
    first = tabs.signed_in("admin")
    second = tabs.open()
    third = tabs.signed_in("member")
    tabs.assert_is("admin", first, second)
    tabs.assert_is("member", third)


def test_a_tab_may_go_over_to_another_user_and_the_other_tabs_keep_theirs(tabs):
    first = tabs.signed_in("admin")
    second = tabs.open()
    tabs.signed_in("member", second)
    tabs.assert_is("admin", first)
    tabs.assert_is("member", second)


def test_a_new_tab_asks_whose_it_is_where_two_are_signed_in(tabs):
    tabs.signed_in("admin")
    tabs.signed_in("member")
    new = tabs.open()
    expect(new.page.get_by_role("button", name="Continue as member")).to_be_visible()
    assert new.tokens == []
    new.page.get_by_role("button", name="Continue as admin").click()
    expect(new.page).to_have_url(f"{tabs.server.url}/jobs")
    tabs.assert_is("admin", new)


def test_nobody_is_signed_in_by_a_link_without_a_click(tabs):
    tab, _ = tabs.follow("member")
    tab.page.get_by_role("button", name="Cancel").click()
    expect(tab.page.get_by_label("Token")).to_be_visible()
    assert tab.tokens == []
    assert tab.page.evaluate("[sessionStorage.length, localStorage['penstock.session'] ?? null]") == [0, None]


def test_a_link_of_the_user_who_is_signed_in_needs_no_click(tabs):
    first = tabs.signed_in("admin")
    second, _ = tabs.follow("admin")
    expect(second.page.locator(".viewer .who")).to_have_text("admin")
    tabs.assert_is("admin", first, second)


def test_a_session_that_stays_is_that_of_new_tabs_and_of_no_tab_of_another_user(tabs):
    first = tabs.open()
    tabs.typed("admin", first, stay=True)
    second = tabs.signed_in("member")
    new = tabs.open()
    tabs.assert_is("admin", first, new)
    tabs.assert_is("member", second)
    new.page.get_by_role("button", name="Sign out").click()
    first.page.locator("main.login").wait_for()
    assert first.page.evaluate("[sessionStorage.length, localStorage['penstock.session'] ?? null]") == [0, None]
    tabs.assert_is("member", second)


def test_signing_out_leaves_the_tabs_of_others(tabs):
    first = tabs.signed_in("admin")
    second = tabs.signed_in("member")
    second.page.get_by_role("button", name="Sign out").click()
    second.page.get_by_role("button", name="Continue as admin").wait_for()
    tabs.assert_is("admin", first)


def test_a_link_that_was_used_before_signs_nobody_out(tabs):
    first = tabs.signed_in("admin")
    code = login_code(tabs.server.url, tabs.tokens["member"])
    first.page.request.post(f"{tabs.server.url}/api/v1/logins", data={"code": code})
    second = tabs.open(f"/login#{code}")
    expect(second.page.locator("[role=alert]")).to_contain_text("used before")
    second.page.get_by_role("button", name="Continue as admin").click()
    tabs.assert_is("admin", first, second)


def test_a_link_may_be_pasted_into_the_page_that_asks_for_a_token(tabs):
    tab = tabs.open("/login")
    tab.page.get_by_label("Token").wait_for()
    tabs.signed_in("member", tab)


def test_the_worker_of_all_tabs_gives_each_what_its_user_sees(world, tabs):
    tabs.context.add_init_script(HEARD)
    admin, member = tabs.signed_in("admin"), tabs.signed_in("member")
    for tab in (admin, member):
        tab.page.locator(".pulse.live").wait_for()
    numbers = [
        world.server.submit({"tenant": tenant, "queue": "default", "name": "seen", "command": "sleep 5"})
        for tenant in (OTHER, "lab")
    ]
    for tab, seen in ((admin, numbers), (member, numbers[1:])):
        tab.page.wait_for_function(f"id => {HEARD_OF}.includes(id)", arg=numbers[1])
        heard = tab.page.evaluate(HEARD_OF)
        assert [number for number in numbers if number in heard] == seen


def test_a_browser_without_shared_workers_asks_as_well(tabs):
    tabs.context.add_init_script("delete window.SharedWorker")
    first = tabs.open()
    tabs.typed("admin", first, stay=True)
    second, _ = tabs.follow("member")
    expect(second.page.locator("main.login")).to_contain_text("This browser is signed in as admin.")
    second.page.get_by_role("button", name="Sign in as member").click()
    tabs.assert_is("member", second)
    tabs.assert_is("admin", first, tabs.open())


def held(tab: Tab, path: str) -> list[Route]:
    """Hold the next request of a path; the later ones pass."""
    kept: list[Route] = []

    def hold(route: Route) -> None:
        kept.append(route) if not kept else route.continue_()

    tab.page.route(f"**/api/v1{path}", hold)
    return kept


def released(tab: Tab, kept: list[Route]) -> None:
    """Let the answer that was held come, and wait until the page has taken it."""
    with tab.page.expect_response(kept[0].request.url):
        kept[0].continue_()
    tab.page.evaluate("new Promise(done => setTimeout(done))")


def test_a_renewal_that_comes_late_is_nothing_to_the_next_user(tabs):
    tab = tabs.open("/login")
    tab.page.clock.install()
    tab.page.reload()
    tabs.typed("admin", tab)
    kept = held(tab, "/sessions")
    with tab.page.expect_request("**/api/v1/sessions"):
        tab.page.clock.fast_forward("07:00:00")
    tab.page.get_by_role("button", name="Sign out").click()
    tabs.typed("member", tab)
    released(tab, kept)
    tabs.assert_is("member", tab)


def test_an_answer_about_the_former_user_that_comes_late_is_not_shown(tabs):
    tab = tabs.open("/login")
    tabs.typed("admin", tab)
    kept = held(tab, "/me")
    code = login_code(tabs.server.url, tabs.server.client.create_token({"user": "admin", "level": "read"}).token)
    with tab.page.expect_request("**/api/v1/me"):
        tabs.open(f"/login#{code}")  # another session of the same user, which this tab takes up
    tab.page.get_by_role("button", name="Sign out").click()
    tabs.typed("member", tab)
    released(tab, kept)
    tabs.assert_is("member", tab)
