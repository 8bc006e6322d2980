"""Every page, as every role, light and dark, wide and narrow: no error, no violation, nothing wider than the window."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Route, expect

from penstock.testing.server import InProcessServer
from tests.server.harness import until
from tests.web.browsing import PAGES, Viewer, follow_link, login_code
from tests.web.world import HOSTILE, ROLES

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
SLOW = bool(os.environ.get("PENSTOCK_SLOW"))
LOOKS = [(role, dark, narrow) for role in ROLES for dark in (False, True) for narrow in (False, True)]
FEW = [("admin", False, False), ("member", True, True), ("viewer", False, True), ("operator", True, False)]
"""In CI: each role but one, each width and theme; all twenty with PENSTOCK_SLOW."""
SHOWN = PAGES | {
    "job": "/jobs/1",
    "job_log": "/jobs/1?tab=log",
    "job_metrics": "/jobs/1?tab=metrics",
    "job_record": "/jobs/1?tab=record",
    "job_waiting": "/jobs/77",
}
TAB_IN_SIGHT = """(chosen => !chosen || chosen.getBoundingClientRect().right <= innerWidth)(
    document.querySelector("main [aria-selected=true]"))"""
IMPACTS = ("serious", "critical")
COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe that ask for colours: all that may differ between light and dark."""


@pytest.mark.parametrize(("role", "dark", "narrow"), LOOKS if SLOW else FEW)
def test_every_page_is_shown_without_an_error(viewer, role, dark, narrow):
    one = viewer(role, dark=dark, narrow=narrow)
    wide, hidden = [], []
    for name, page in SHOWN.items():
        one.open(page)
        one.shot(f"{name}-{role}-{'dark' if dark else 'light'}-{'390' if narrow else '1440'}")
        if one.overflow() > 0:
            wide.append(name)
        if not one.page.evaluate(TAB_IN_SIGHT):
            hidden.append(name)
        fault = one.page.locator("text=This page has a fault")
        assert fault.count() == 0, name
    assert (wide, hidden) == ([], [])


def test_axe_finds_nothing_serious(viewer):
    if not AXE.exists():
        from tests.web.browsing import needed

        needed("axe-core (make ui/node_modules)")
    one = viewer("admin")
    one.page.evaluate(AXE.read_text())
    serious = {}
    for name, page in SHOWN.items():
        for theme, rules in (("light", {}), ("dark", {"runOnly": COLOURS})):
            one.page.emulate_media(color_scheme=theme)
            one.page.locator(f"html[data-theme={theme}]").wait_for()
            if theme == "light":
                one.open(page)
            answer = one.page.evaluate("how => axe.run(document, how)", {"resultTypes": ["violations"]} | rules)
            bad = [issue for issue in answer["violations"] if issue["impact"] in IMPACTS]
            if bad:
                serious[name, theme] = [f"{issue['id']}: {issue['nodes'][0]['html'][:200]}" for issue in bad]
    assert serious == {}


def test_chinese_is_shown_where_the_browser_asks_for_it(viewer):
    one = viewer("admin", language="zh-CN")
    one.page.locator("main h1:has-text('概览')").wait_for()
    assert one.page.locator("main h1").inner_text() == "概览"
    one.open("/jobs")
    one.shot("jobs-zh")
    one.page.get_by_label("语言").select_option("en")
    expect(one.page.locator("main h1")).to_have_text("Jobs")


def test_times_are_those_of_the_viewer_and_of_utc_on_demand(viewer):
    one = viewer("admin", "/jobs/1")
    at = one.page.locator("dt:has-text('Submitted') + dd time").first
    here = at.inner_text()
    one.page.get_by_role("button", name="UTC").click()
    expect(at).not_to_have_text(here)
    assert here.split(", ")[-1][3:] == at.inner_text().split(", ")[-1][3:]


def test_keys_lead_to_pages_and_to_the_search(viewer):
    one = viewer("admin")
    one.page.keyboard.press("g")
    one.page.keyboard.press("j")
    one.page.locator("h1:has-text('Jobs')").wait_for()
    one.page.locator("[data-row]").first.wait_for()
    one.page.keyboard.press("/")
    one.page.keyboard.type("sweep-3")
    one.page.wait_for_url("**/jobs?search=sweep-3")
    one.page.locator("[data-row]:has-text('sweep-3')").first.wait_for()
    one.page.keyboard.press("Escape")
    one.page.locator("main").click(position={"x": 5, "y": 5})
    one.page.keyboard.press("?")
    one.page.locator("dialog[open] dl.keys").wait_for()


def test_a_deep_link_survives_signing_in(viewer):
    one = viewer("member", "/jobs?state=waiting&sort=-devices")
    assert one.page.url.endswith("/jobs?state=waiting&sort=-devices")
    states = one.page.locator("[data-row] .state")
    states.first.wait_for()
    assert {text.strip("◌") for text in states.all_inner_texts()} == {"waiting"}


def test_who_has_signed_in_is_not_told_that_there_is_no_such_page(world, browser):
    """Not even while the page that they wanted is still on its way."""
    one, held = Viewer(browser, world.server, world.tokens["member"]), list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    one.page.route("**/assets/admin-*.js", hold)
    follow_link(one.page, world.server.url, login_code(world.server.url, one.token, "/admin"))
    until(lambda: held or one.page.wait_for_timeout(20), "the page is asked for")
    one.page.locator(".shell main").wait_for(state="attached")
    assert one.page.locator("main h1").count() == 0
    held[0].continue_()
    expect(one.page.locator("main h1")).to_have_text("Administration")
    one.close()


def test_pages_work_behind_a_path_of_a_proxy(world, browser):
    from tests.web.proxy import behind_prefix

    with behind_prefix(world.server.url, "/cluster") as address:
        code = login_code(world.server.url, world.tokens["admin"], "/jobs")
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        follow_link(page, address, code)
        page.locator("[data-row]").first.wait_for()
        assert page.url == f"{address}/jobs"
        page.locator("[data-row] a").first.click()
        page.locator("h1:has-text('#')").wait_for()
        page.reload()
        page.locator("h1:has-text('#')").wait_for()
        page.context.close()
    assert errors == []


def test_changes_arrive_without_asking_again(world, viewer):
    one = viewer("admin")
    one.open("/jobs?search=live-one")
    number = world.server.submit({"tenant": "lab", "name": "live-one", "command": "sleep 5"})
    one.page.locator(f"[data-row='{number}'], .fresh").first.wait_for()
    if one.page.locator(".fresh").count():
        one.page.locator(".fresh").first.click()
    row = one.page.locator(f"[data-row='{number}']")
    row.wait_for()
    world.server.advance(10)
    row.locator("text=succeeded").wait_for()


def test_changes_out_of_sight_are_counted_up_to_a_bound(browser):
    with InProcessServer({"nodes": [{"name": "n1", "cpus": 1}]}) as server:
        one = Viewer(browser, server, server.token)
        one.sign_in("/jobs?search=another")
        one.page.locator(".pulse.live").wait_for()
        first = server.submit({"name": "first", "command": "sleep 600"})  # what waits for it is in no plan
        one.page.locator(".fresh:text-is('1 change: show')").wait_for()
        for text in ("401 changes: show", "801 changes: show", "1,000 changes or more: show"):
            server.submit_all({"name": "many", "command": "true", "array": "0-399", "after_ok": first})
            one.page.locator(f".fresh:text-is('{text}')").wait_for()
        one.close()


def test_a_node_says_what_has_brought_it_and_what_cannot_be_promised_there(browser):
    server = InProcessServer({"nodes": [{"name": "n1", "cpus": 1}, {"name": "n2", "cpus": 1}]})
    lent = server.engine._nodes["n1"]
    lent.spec = replace(lent.spec, engine="slurm")
    with server:
        one = Viewer(browser, server, server.token)
        one.sign_in("/nodes?tab=list&node=n1")
        one.page.locator(".aside li:has-text('memory of a job')").wait_for()
        expect(one.page.locator(".aside dd:text-is('lent by Slurm')")).to_have_count(1)
        expect(one.page.locator("tbody span:text-is('lent by Slurm')")).to_have_count(1)
        one.open("/nodes?tab=list&node=n2")
        one.page.locator(".aside h2:text-is('n2')").wait_for()
        assert one.page.locator(".aside h3:text-is('Cannot be promised here')").count() == 0
        one.close()


def test_seven_tabs_of_one_browser_all_load(world, viewer):
    one = viewer("admin")
    pages = [one.page]
    for _ in range(8):
        page = one.context.new_page()
        one.watch(page)
        page.goto(f"{world.server.url}/queues")
        page.locator("main h1").wait_for(timeout=10_000)
        pages.append(page)
    number = world.server.submit({"tenant": "lab", "name": "seen-by-all", "command": "sleep 1000"})
    for page in pages:
        page.locator(".pulse.live").wait_for(timeout=10_000)
    world.server.client.cancel(number)


def test_names_of_others_are_text(viewer):
    one = viewer("admin")
    one.open("/jobs?search=onerror")
    one.page.locator("[data-row]").first.wait_for()
    assert one.page.locator("[data-row] a").nth(1).inner_text() == HOSTILE
    assert one.page.locator("main img, main svg script").count() == 0
