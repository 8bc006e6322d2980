"""Sign-in by a real identity provider, as a person does it: from the login page, to the provider, and back."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.web.browsing import VIOLATIONS
from tests.web.provider import SECRET, provider

GROUPS = {"ann": ["ml"], "gone": ["ml"], "stranger": ["ml"], "bob": ["sales"]}
USERS = [
    {"name": "ann", "tenants": {"default": "member"}},
    {"name": "gone", "tenants": {"default": "member"}, "disabled": True},
    {"name": "bob", "tenants": {"default": "member"}},
]


@pytest.fixture(scope="module")
def signing(tmp_path_factory) -> Iterator[InProcessServer]:
    secret = Path(tmp_path_factory.mktemp("oidc")) / "secret"
    secret.write_text(SECRET + "\n", encoding="ascii")
    secret.chmod(0o600)
    with provider(GROUPS) as issuer:
        declared = {"issuer": issuer, "client_id": "penstock", "client_secret_file": str(secret), "name": "the lab"}
        with InProcessServer(cluster_file(1, 1) | {"users": USERS, "oidc": declared | {"groups": ["ml"]}}) as server:
            yield server


@pytest.fixture
def context(browser) -> Iterator[BrowserContext]:
    made = browser.new_context(locale="en-GB")
    made.add_init_script(VIOLATIONS)
    made.route(lambda url: urlsplit(url).hostname != "127.0.0.1", lambda route: route.abort())
    yield made
    made.close()


def sign_in(page: Page, server: InProcessServer, user: str, begin: str = "/jobs") -> None:
    """Go the whole way: the page, the provider's login and consent, and back."""
    begin_sign_in(page, server, user, begin)
    page.get_by_role("button", name="Continue").click()


def begin_sign_in(page: Page, server: InProcessServer, user: str, begin: str = "/jobs") -> None:
    """Go as far as the provider's consent."""
    page.goto(server.url + begin)
    page.get_by_role("button", name="Sign in with the lab").click()
    page.locator("input[name=login]").fill(user)
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()


def test_a_declared_user_signs_in_and_comes_back_to_the_page_they_wanted(signing, context):
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda said: said.type == "error" and signing.url in page.url and problems.append(said.text))
    sign_in(page, signing, "ann", "/jobs?state=waiting")
    expect(page.locator(".viewer .who")).to_have_text("ann")
    expect(page).to_have_url(f"{signing.url}/jobs?state=waiting")
    page.reload()
    expect(page.locator(".viewer .who")).to_have_text("ann")
    assert page.evaluate("sessionStorage.getItem('penstock.signin')") is None
    assert [text for text in problems if "status of 401" not in text] == []


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("stranger", "you are 'stranger' there, but there is no user 'stranger' here"),
        ("gone", "you are 'gone' there, but the user 'gone' is disabled"),
        ("bob", "'bob' is in none of the groups that may sign in"),
    ],
)
def test_who_is_no_enabled_user_of_an_allowed_group_is_refused_with_the_reason(signing, context, user, why):
    page = context.new_page()
    sign_in(page, signing, user)
    expect(page.locator(".problem")).to_contain_text(why)
    expect(page).to_have_url(f"{signing.url}/login")


def test_an_answer_that_this_tab_did_not_ask_for_signs_nobody_in(signing, context):
    """Else a link of an attacker would sign people in as the attacker."""
    page, asked = context.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{signing.url}/login/callback?code=of-another&state=pso_x.y")
    expect(page.locator(".problem")).to_contain_text("does not belong to a sign-in that this tab has begun")
    assert not [url for url in asked if "/oidc/finish" in url]


def test_an_answer_to_a_sign_in_of_another_browser_signs_nobody_in(signing, browser, context):
    """Also one that is whole and unused, and where this tab has begun a sign-in of its own."""
    page, attacker = context.new_page(), browser.new_context(locale="en-GB")
    theirs = attacker.new_page()
    begin_sign_in(theirs, signing, "ann")
    theirs.route("**/assets/*", lambda route: route.abort())  # what comes back is kept for somebody else
    theirs.get_by_role("button", name="Continue").click()
    theirs.wait_for_url("**/login/callback?*")
    begin_sign_in(page, signing, "ann")
    page.goto(theirs.url)
    expect(page.locator(".problem")).to_contain_text("does not belong to a sign-in that this tab has begun")
    assert page.evaluate("sessionStorage.length") == 0
    attacker.close()


def test_a_sign_in_changes_no_tab_of_another_user(signing, context):
    first, second = context.new_page(), context.new_page()
    begin_sign_in(first, signing, "ann")
    second.goto(signing.url)
    second.get_by_label("Token").fill(signing.client.create_token({"user": "bob"}).token)
    second.get_by_role("button", name="Sign in", exact=True).click()
    expect(second.locator(".viewer .who")).to_have_text("bob")
    first.get_by_role("button", name="Continue").click()
    for page, user in ((first, "ann"), (second, "bob")):
        expect(page.locator(".viewer .who")).to_have_text(user)
        page.reload()
        expect(page.locator(".viewer .who")).to_have_text(user)
