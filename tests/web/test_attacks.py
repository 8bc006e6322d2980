"""Attacks on viewers of the pages, each tried: none reaches a token, runs a script, or acts in a viewer's name."""

import contextlib
import http.client
import json
from email.message import Message
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

from tests.web.browsing import PAGES, follow_link, login_code
from tests.web.world import HOSTILE, OTHER


class Fetched(NamedTuple):
    status: int
    headers: Message
    body: bytes


def fetched(url: str, path: str, **headers: str) -> Fetched:
    with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return Fetched(answer.status, answer.headers, answer.read())


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil.example"]
)
def test_a_name_that_leads_here_by_dns_rebinding_gets_no_page(world, host):
    answer = fetched(world.server.url, "/", host=host)
    assert answer.status == 421
    assert json.loads(answer.body)["code"] == "wrong_host"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_get_pages(world, host):
    assert fetched(world.server.url, "/jobs", host=host).status == 200


def test_pages_cannot_be_framed_and_run_own_scripts_alone(world):
    headers = fetched(world.server.url, "/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_a_framed_page_stays_empty(world, browser):
    page = browser.new_page()
    page.set_content(f"<iframe src='{world.server.url}/' id=victim></iframe>")
    page.wait_for_timeout(500)
    frame = next((one for one in page.frames if one != page.main_frame), None)
    assert frame is None or frame.locator("#app").count() == 0
    page.context.close()


def test_answers_of_the_api_are_never_documents(world):
    answer = fetched(world.server.url, "/api/v1/health")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_another_site_cannot_act_for_a_viewer(world, viewer, browser):
    """No cookie is set, so a form or a script of another site comes without rights; and it may not read answers."""
    one = viewer("admin")
    assert one.context.cookies() == []
    number = world.server.submit({"tenant": "lab", "name": "victim", "command": "sleep 900"})
    foreign = one.context.new_page()
    foreign.goto("data:text/html,<form method=post id=f></form>")
    said = foreign.evaluate(
        """url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include'})
        .then(answer => answer.type, () => 'refused')""",
        f"{world.server.url}/api/v1/jobs/{number}/cancel",
    )
    assert said in ("opaque", "refused")
    assert world.server.client.job(number).state != "cancelled"
    read = foreign.evaluate(
        "url => fetch(url).then(r => r.text(), e => 'refused')", f"{world.server.url}/api/v1/health"
    )
    assert read == "refused"
    one.problems.clear()
    world.server.client.cancel(number)


def test_no_token_stands_in_an_address_a_title_or_the_page(viewer):
    one = viewer("admin")
    addresses: list[str] = []
    one.page.on("request", lambda asked: addresses.append(asked.url))
    for page in PAGES.values():
        one.open(page)
    session = one.page.evaluate("JSON.parse(sessionStorage.getItem('penstock.session')).token")
    assert session.startswith("pss_")
    assert not [address for address in addresses if session in address or "pst_" in address]
    assert session not in one.page.content()
    assert "pst_" not in one.page.content()
    assert one.page.evaluate("localStorage.getItem('penstock.session')") is None


def test_the_code_of_a_link_is_gone_from_the_address_and_works_once(world, browser):
    code = login_code(world.server.url, world.tokens["member"])
    first, second = browser.new_context(), browser.new_context()
    page = first.new_page()
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.url))
    follow_link(page, world.server.url, code)
    page.locator(".shell main h1").first.wait_for()
    assert code not in page.url
    assert not [url for url in sent[1:] if code in url]
    other = second.new_page()
    other.goto(f"{world.server.url}/login#{code}")
    other.locator("[role=alert]:has-text('used before')").wait_for()
    first.close()
    second.close()


def test_signing_out_takes_the_session_from_all_tabs(world, viewer):
    one = viewer("member")
    other = one.context.new_page()
    other.goto(f"{world.server.url}/jobs")
    other.locator(".shell main h1").wait_for()
    one.page.get_by_role("button", name="Sign out").click()
    one.page.locator("main.login").wait_for()
    other.locator("main.login").wait_for()


def test_a_revoked_token_ends_the_session_of_its_pages(world, browser):
    made = world.server.client.create_token({"user": "viewer", "level": "read"})
    page = browser.new_page()
    follow_link(page, world.server.url, login_code(world.server.url, made.token))
    page.locator(".shell main h1").first.wait_for()
    world.server.client.revoke_token(made.id)
    page.locator("main.login").wait_for(timeout=10_000)
    page.context.close()


@pytest.mark.parametrize("page", ["jobs", "nodes", "node_list", "audit", "health", "alerts", "queues"])
def test_markup_in_names_labels_and_reasons_stays_text(viewer, page):
    one = viewer("admin")
    one.page.on("dialog", lambda dialog: one.problems.append(f"a script ran: {dialog.message}"))
    one.open(PAGES[page] if page != "jobs" else "/jobs?search=onerror")
    if page in ("health", "jobs"):
        expect(one.page.locator("main")).to_contain_text(HOSTILE)
    assert one.page.locator("main img, main script, main svg[onload]").count() == 0


@pytest.mark.parametrize(
    "attack",
    [
        "const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s)",
        "document.body.innerHTML = '<img src=x onerror=\\'window.hit = 1\\'>'",
        "const d = document.createElement('div'); d.setAttribute('onclick', 'window.hit = 1'); d.click()",
        "const s = document.createElement('script'); s.src = 'https://evil.example/x.js'; document.body.append(s)",
    ],
)
def test_a_script_put_into_the_page_does_not_run(viewer, attack):
    one = viewer("admin")
    one.page.evaluate(f"() => {{ try {{ {attack} }} catch {{ }} }}")
    one.page.wait_for_timeout(100)
    assert one.page.evaluate("window.hit") is None
    one.problems.clear()


@pytest.mark.parametrize("role", ["member", "tenant_admin"])
def test_a_members_browser_gets_no_byte_of_another_tenant(world, viewer, role):
    one = viewer(role)
    for page in (
        *PAGES.values(),
        "/jobs/1",
        "/jobs/1?tab=record",
        "/jobs/26",
        "/timeline?by=tenant&range=7d",
        "/jobs?search=train",
    ):
        one.open(page)
    number = world.server.submit({"tenant": OTHER, "queue": "default", "name": f"{OTHER}-late", "command": "sleep 5"})
    world.server.advance(10)
    one.page.wait_for_timeout(1_500)
    one.open("/")
    assert len(one.traffic) > 30
    leaks = [text[:300] for text in one.traffic if OTHER in text]
    assert leaks == []
    assert OTHER not in one.page.content()
    assert f"/jobs/{number}" not in one.page.content()
