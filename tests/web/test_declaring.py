"""Forms for tenants, users and quotas: each change is shown first, made once, refused beside its field."""

import shlex

import pytest
from playwright.sync_api import Route, expect

from penstock.client import Client
from tests.server.harness import until
from tests.web.browsing import Viewer
from tests.web.world import HOSTILE


@pytest.fixture(autouse=True)
def as_it_was(world):
    """What a test declares is taken back."""
    before = world.server.client.config().config
    yield
    world.server.client.configure({"config": before})


def entry(world, section: str, name: str) -> dict | None:
    return next((one for one in world.server.client.config().config[section] if one["name"] == name), None)


def as_member(world) -> None:
    """Submit a job."""
    with Client.at(world.server.url, token=world.tokens["member"], insecure=True) as client:
        client.submit({"tenant": "lab", "queue": "default", "command": "sleep 900"})


def without_jobs(world) -> None:
    """End the jobs of member: who has live ones is not removed, and other tests submit as it."""
    world.server.client.act("cancel", {"user": "member"})
    world.server.advance(60)
    assert world.server.client.act("cancel", {"user": "member"}, dry_run=True).matched == 0


def opened(one: Viewer, button: str):
    one.page.get_by_role("button", name=button, exact=True).click()
    return one.page.locator("dialog[open]")


def applied(dialog) -> list[str]:
    """Preview and apply; returns the paths that were to change."""
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Apply").wait_for()
    paths = dialog.locator("ul.lines code").all_inner_texts()
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="detached")
    return paths


def test_a_tenant_is_added_with_what_was_typed(world, viewer):
    text = f"a: {{b}} # {HOSTILE}\nsecond\x85line\x7f"
    one = viewer("admin", "/admin?tab=tenants")
    dialog = opened(one, "Add a tenant")
    dialog.get_by_label("Name").fill("new.one")
    dialog.get_by_label("Description").fill(text)
    dialog.get_by_label("devices", exact=True).fill("16")
    dialog.get_by_label("memory").fill("512GiB")
    dialog.get_by_label("Another resource").fill("devices:SIM-H100")
    one.page.keyboard.press("Enter")
    dialog.get_by_label("devices:SIM-H100").fill("8")
    dialog.get_by_label("Device-hours").fill("5000")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Apply").wait_for()
    assert entry(world, "tenants", "new.one") is None
    dialog.get_by_role("button", name="Apply").click()
    one.page.locator("tr[data-name='new.one']").wait_for()
    maxima = {"devices": 16, "devices:SIM-H100": 8, "memory": "512GiB"}
    declared = {"name": "new.one", "description": text, "max": maxima, "device_hours": 5000}
    assert entry(world, "tenants", "new.one") == declared


def test_a_quota_is_changed_and_taken_away_and_others_stay(world, viewer):
    world.server.client.configure({"set": ["tenant.lab.max.jobs=500", "tenant.lab.max.cpus=700"]})
    one = viewer("admin", "/admin?tab=tenants")
    dialog = opened(one, "Edit lab")
    dialog.get_by_label("devices", exact=True).fill("80.5")
    dialog.get_by_label("cpus").fill("")
    assert applied(dialog) == ["tenants.lab.max.cpus", "tenants.lab.max.devices"]
    assert entry(world, "tenants", "lab")["max"] == {"devices": 80.5, "jobs": 500}
    one.page.wait_for_function("document.activeElement?.getAttribute('aria-label') === 'Edit lab'")


def test_a_guarantee_is_of_a_queue_and_within_that_above_it(world, viewer):
    one = viewer("admin", "/admin?tab=quotas")
    dialog = opened(one, "Edit vision")
    guaranteed = dialog.get_by_role("group", name="Guaranteed").get_by_label("devices", exact=True)
    guaranteed.fill("48")
    dialog.get_by_role("button", name="Preview").click()
    dialog.locator("[role=alert]:has-text('are guaranteed 80 devices together')").wait_for()
    guaranteed.fill("16")
    dialog.get_by_role("group", name="Maximum").get_by_label("devices", exact=True).fill("40")
    assert applied(dialog) == ["queues.vision.guaranteed.devices", "queues.vision.max.devices"]
    vision = entry(world, "queues", "vision")
    assert (vision["guaranteed"], vision["max"]) == ({"devices": 16}, {"devices": 40})


def test_a_user_is_added_and_roles_are_given_and_taken(world, viewer):
    one = viewer("admin", "/admin?tab=users")
    dialog = opened(one, "Add a user")
    dialog.get_by_label("Name").fill("ann")
    dialog.get_by_label("Give a role in a tenant").select_option("lab")
    dialog.get_by_label("Give a role in a tenant").select_option("zebra")
    dialog.get_by_label("zebra").select_option("viewer")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_text("The same as a command").click()
    same = dialog.locator("details code").inner_text()
    assert shlex.split(same)[1:] == ["admin", "add", "user", "ann", 'tenants={"lab":"member","zebra":"viewer"}']
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="detached")
    assert entry(world, "users", "ann") == {"name": "ann", "tenants": {"lab": "member", "zebra": "viewer"}}
    one.page.get_by_role("link", name="Make a token for ann").click()
    assert opened(one, "Make a token").get_by_label("User").input_value() == "ann"
    one.page.keyboard.press("Escape")
    one.open("/admin?tab=users")
    dialog = opened(one, "Edit ann")
    dialog.get_by_label("zebra").select_option("")
    dialog.get_by_label("Role in the cluster").select_option("operator")
    applied(dialog)
    assert entry(world, "users", "ann") == {"name": "ann", "role": "operator", "tenants": {"lab": "member"}}


def test_a_user_is_disabled_and_enabled(world, viewer):
    one = viewer("admin", "/admin?tab=users")
    for button, text in (("Disable viewer", "Disabled"), ("Enable viewer", "Enabled")):
        dialog = opened(one, button)
        dialog.locator("li:has-text('users.viewer.disabled')").wait_for()
        dialog.get_by_role("button", name="Apply").click()
        one.page.locator(f"tr[data-name=viewer] >> text={text}").wait_for()
        assert ("disabled" in entry(world, "users", "viewer")) == (text == "Disabled")
    assert opened(one, "Disable admin").locator(".banner").inner_text().startswith("This is your own user")


def test_a_tenant_is_removed_with_the_roles_in_it(world, viewer):
    world.server.client.configure(
        {
            "add": ["tenant.old", "user.bob"],
            "set": ["user.bob.tenants={old: member, lab: viewer}", "user.bob.default_tenant=old"],
        }
    )
    one = viewer("admin", "/admin?tab=tenants")
    dialog = opened(one, "Edit old")
    dialog.get_by_role("button", name="Remove").click()
    one.page.locator("dialog[open] h2:has-text('Remove old?')").wait_for()
    dialog.locator("code:text-is('users.bob.tenants.old')").wait_for()
    dialog.get_by_role("button", name="Apply").click()
    one.page.locator("tr[data-name=old]").wait_for(state="detached")
    assert entry(world, "tenants", "old") is None
    assert entry(world, "users", "bob") == {"name": "bob", "tenants": {"lab": "viewer"}}


def test_who_has_live_jobs_is_not_removed(world, viewer):
    without_jobs(world)
    one = viewer("admin", "/admin?tab=users")
    world.server.client.configure({"add": ["user.late"]})  # the form begins with what holds when it is opened
    dialog = opened(one, "Edit member")
    dialog.get_by_role("button", name="Remove").click()
    one.page.locator("dialog[open] h2:has-text('Remove member?')").wait_for()
    one.page.locator("tr[data-name=late]").wait_for()
    dialog.locator("code:text-is('users.member')").wait_for()
    as_member(world)
    dialog.get_by_role("button", name="Apply").click()
    dialog.locator("[role=alert]:has-text('live jobs belong to it')").wait_for()
    assert entry(world, "users", "member")


def test_an_answer_that_comes_late_does_not_hide_that_of_a_later_question(world, viewer):
    without_jobs(world)
    one = viewer("admin", "/admin?tab=users")
    one.page.get_by_role("button", name="Edit member", exact=True).wait_for()
    world.server.client.configure({"add": ["user.late"]})
    held: list[Route] = []
    one.page.route("**/api/v1/config", lambda route: held.append(route) if len(held) < 2 else route.continue_())
    dialog = opened(one, "Edit member")
    dialog.get_by_role("button", name="Remove").click()
    until(lambda: len(held) == 2 or one.page.wait_for_timeout(20), "a reading and a preview")
    present, outdated = held
    assert (present.request.method, outdated.request.method) == ("GET", "POST")
    present.continue_()
    dialog.locator("code:text-is('users.member')").wait_for()
    with one.page.expect_response(lambda response: response.status == 412):
        outdated.continue_()
    one.page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert dialog.locator("[role=alert]").count() == 0
    assert dialog.locator("code:text-is('users.member')").is_visible()


def test_a_refused_value_is_named_beside_its_field(world, viewer):
    before = world.server.client.config().digest
    one = viewer("admin", "/admin?tab=tenants")
    dialog = opened(one, "Add a tenant")
    dialog.get_by_label("Name").fill("lab")
    dialog.get_by_label("memory").fill("12XB")
    for wrong, field in (("there is a tenant 'lab' already", "Name"), ("max.memory is '12XB', expected", "memory")):
        one.page.keyboard.press("Enter")
        dialog.locator(f'.wrong:has-text("{wrong}")').wait_for()
        refused = dialog.locator("[aria-invalid=true]")
        described = refused.get_attribute("aria-describedby")
        assert wrong in one.page.locator(f"[id='{described}']").inner_text()
        expect(dialog.get_by_label(field)).to_be_focused()
        assert dialog.locator("[role=alert]").count() == 0
        dialog.get_by_label("Name").fill("lab2")
    assert world.server.client.config().digest == before


def test_what_another_administrator_changed_meanwhile_is_not_overwritten(world, viewer):
    one = viewer("admin", "/admin?tab=tenants")
    dialog = opened(one, "Edit lab")
    dialog.get_by_label("devices", exact=True).fill("70")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("button", name="Apply").wait_for()
    world.server.client.configure({"set": ["tenant.lab.max.devices=60", "tenant.lab.description=theirs"]})
    dialog.get_by_role("button", name="Apply").click()
    dialog.locator("[role=alert]:has-text('the configuration has changed since')").wait_for()
    assert entry(world, "tenants", "lab")["max"] == {"devices": 60}
    expect(dialog.get_by_role("button", name="Load what is declared now")).to_be_focused()
    one.page.keyboard.press("Enter")
    dialog.locator("text=Another change has set it to 60").wait_for()
    assert dialog.get_by_label("Description").input_value() == "theirs"
    assert applied(dialog) == ["tenants.lab.max.devices"]
    lab = entry(world, "tenants", "lab")
    assert (lab["max"], lab["description"]) == ({"devices": 70}, "theirs")


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_those_who_see_all_read_and_change_nothing(viewer, role):
    one = viewer(role)
    for tab in ("tenants", "users", "quotas"):
        one.open(f"/admin?tab={tab}")
        one.page.locator("tr[data-name]").first.wait_for()
        assert one.page.locator("main .card button").count() == 0


def test_an_administrator_with_a_token_for_reading_is_offered_no_change(world, browser):
    token = world.server.client.create_token({"user": "admin", "level": "read"}).token
    one = Viewer(browser, world.server, token)
    one.sign_in("/admin?tab=users")
    one.page.locator("tr[data-name]").first.wait_for()
    assert one.page.locator("main .card button").count() == 0
    one.close()


@pytest.mark.parametrize("role", ["member", "tenant_admin"])
def test_members_see_no_list_of_tenants_or_users(viewer, role):
    one = viewer(role, "/admin?tab=users")
    expect(one.page.get_by_role("tab")).to_have_text(["Tokens", "Secrets", "Notifications"])
    assert one.page.locator("tr[data-name]").count() == 0
    assert not any("zebra" in text for text in one.traffic)
