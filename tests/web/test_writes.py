"""What the pages change, done as a user does it; and what roles that may not are shown and refused."""

import pytest
import yaml
from playwright.sync_api import expect

from penstock.core.config.job import parse_request
from tests.server.harness import until
from tests.web.world import ROLES

WRITERS = ("admin", "operator", "tenant_admin")


def submitted(world, **job) -> int:
    return world.server.submit({"tenant": "lab", "queue": "default", "command": "sleep 900"} | job)


@pytest.mark.parametrize("role", ROLES)
def test_a_job_is_cancelled_by_those_who_may(world, viewer, role):
    number = submitted(world, name=f"by-{role}")
    one = viewer(role, f"/jobs/{number}")
    one.page.locator("h1:has-text('#')").wait_for()
    one.page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = one.page.locator("dialog[open]")
    if role in WRITERS:
        dialog.locator("text=1 job would change").wait_for()
        dialog.get_by_role("button", name="Cancel").last.click()
        dialog.wait_for(state="detached")
        world.server.settle()
        assert world.server.client.job(number).state in ("cancelled", "stopping")
    else:
        dialog.locator("text=not yours").or_(dialog.locator("text=0 jobs")).or_(
            dialog.locator("[role=alert]")
        ).first.wait_for()
        expect(dialog.get_by_role("button", name="Cancel").last).to_be_disabled()
        world.server.client.cancel(number)
    one.problems.clear()


def test_many_jobs_are_held_and_released_at_once(world, viewer):
    made = [submitted(world, name="bulk-hold", devices=8, priority="low") for _ in range(3)]
    one = viewer("admin", "/jobs?search=bulk-hold&state=waiting")
    one.page.locator("[data-row]").nth(2).wait_for()
    one.page.get_by_label("Choose all rows").check()
    one.page.get_by_role("button", name="Hold").click()
    one.page.locator("dialog[open] >> text=3 jobs would change").wait_for()
    one.page.locator("dialog[open]").get_by_role("button", name="Hold").click()
    one.page.locator(".note:has-text('Hold: 3 jobs')").wait_for()
    assert {world.server.client.job(number).reason for number in made} == {"held"}
    world.server.client.act("cancel", {"ids": [str(number) for number in made]})


def test_a_job_is_edited(world, viewer):
    number = submitted(world, name="edited", devices=8, priority="low")
    one = viewer("admin", f"/jobs/{number}")
    one.page.get_by_role("button", name="Edit").click()
    one.page.locator("dialog[open]").get_by_label("Priority").fill("777")
    one.page.locator("dialog[open]").get_by_role("button", name="Save").click()
    one.page.locator("dialog[open]").wait_for(state="detached")
    assert world.server.client.job(number).priority == 777
    world.server.client.cancel(number)


def test_a_node_is_closed_and_opened_by_operators(world, viewer):
    one = viewer("operator", "/nodes?tab=list&node=r1-n0")
    one.page.get_by_role("button", name="Close to new work").click()
    one.page.locator("dialog[open]").get_by_label("Reason").fill("fan")
    one.page.locator("dialog[open]").get_by_role("button", name="Close to new work").click()
    one.page.locator(".note:has-text('r1-n0')").wait_for()
    assert next(node for node in world.server.client.nodes() if node.name == "r1-n0").drain_reason == "fan"
    one.page.get_by_role("button", name="Open again").click()
    one.page.locator("dialog[open]").get_by_role("button", name="Open again").click()
    one.page.get_by_role("button", name="Close to new work").wait_for()


def test_a_device_is_closed_and_opened_by_operators(world, viewer):
    one = viewer("operator", "/nodes?tab=list&node=r1-n0")
    one.page.get_by_role("button", name="Close device r1-n0/1").click()
    dialog = one.page.locator("dialog[open]")
    dialog.get_by_label("Reason").fill("fan is broken")
    dialog.get_by_role("button", name="Close to new work").click()
    one.page.locator(".note:has-text('r1-n0/1 gets no new work')").wait_for()
    closed = world.server.client.node("r1-n0").devices[1].closed
    assert (closed.reason, closed.code) == ("fan is broken", "closed")
    one.page.locator(".aside tr:has-text('fan is broken')").wait_for()
    one.page.get_by_role("button", name="Open device r1-n0/1").click()
    one.page.locator("dialog[open]").get_by_role("button", name="Open again").click()
    one.page.locator(".note:has-text('r1-n0/1 gets work again')").wait_for()
    assert world.server.client.node("r1-n0").devices[1].closed is None


def test_viewers_are_offered_no_node_to_close(viewer):
    one = viewer("viewer", "/nodes?tab=list&node=r1-n0")
    one.page.locator(".aside h2").wait_for()
    assert one.page.get_by_role("button", name="Close to new work").count() == 0
    assert one.page.get_by_role("button", name="Close device").count() == 0


def test_a_job_is_submitted_with_its_plan_and_its_file_in_sight(world, viewer):
    one = viewer("member", "/submit")
    one.page.get_by_label("Command").fill("python train.py --name 'a: b'")
    one.page.get_by_label("Name", exact=True).fill("from-the-form")
    one.page.get_by_label("Devices of each replica").fill("2")
    one.page.locator("pre:has-text('devices: 2')").wait_for()
    one.page.locator(".why-text").wait_for(timeout=20_000)
    one.page.get_by_role("button", name="Submit", exact=True).click()
    one.page.locator("h1:has-text('from-the-form')").wait_for()
    number = int(one.page.url.rpartition("/")[2])
    assert world.server.client.job(number).devices == 2
    world.server.client.cancel(number)


def test_a_form_brings_what_its_job_needs(viewer):
    one = viewer("member", "/submit")
    one.page.get_by_label("Command").fill("python train.py")
    for title in ("Environment, files and ports", "Elasticity and checkpoints"):
        one.page.locator("summary", has_text=title).click()
    one.page.locator("select", has=one.page.locator("option[value=packages]")).select_option("packages")
    one.page.get_by_role("textbox", name="Packages").fill("torch==2.5, numpy")
    one.page.get_by_label("Setup").fill("make -C kernels\ntrue")
    one.page.get_by_label("Environment variables").fill("LR=0.1\nOPTIONS=a=b")
    one.page.get_by_label("Inputs").fill("data/a.csv https://example.org/a.csv")
    one.page.get_by_label("Ports").fill("http metrics")
    one.page.get_by_label("Replicas at most").fill("4")
    for label, samples in (("Batch at least", "64"), ("Batch at most", "512"), ("Batch of a device", "128")):
        one.page.get_by_label(label).fill(samples)
    one.page.get_by_label("Refuse it where").check()
    said = one.page.locator("pre.json:has-text('shared: true')").inner_text()
    assert yaml.safe_load(said) == {
        "command": "python train.py",
        "replicas": "1..4",
        "python": {"requirements": ["torch==2.5", "numpy"]},
        "setup": ["make -C kernels", "true"],
        "env": {"LR": "0.1", "OPTIONS": "a=b"},
        "inputs": {"data/a.csv": "https://example.org/a.csv"},
        "ports": ["http", "metrics"],
        "batch": {"min": 64, "max": 512, "per_device_max": 128},
        "checkpoint": {"shared": True},
    }
    assert parse_request(yaml.safe_load(said))[1] == []
    one.page.locator(".why-text").wait_for(timeout=20_000)


def test_a_schedule_is_set_paused_run_and_removed(world, viewer):
    one = viewer("member", "/submit")
    one.page.get_by_label("Command").fill("true")
    one.page.locator("summary", has_text="Schedule").click()
    one.page.get_by_label("Times").fill("@yearly")
    expect(one.page.get_by_role("button", name="Set the schedule")).to_be_disabled()
    one.page.get_by_label("Name", exact=True).fill("by-form")
    one.page.get_by_role("button", name="Set the schedule").click()
    one.page.get_by_role("button", name="Pause by-form").click()
    one.page.get_by_role("button", name="Resume by-form").click()
    one.page.get_by_role("button", name="Run by-form now").click()
    until(lambda: shown(world, "by-form").run_total == 1, "a run is submitted")
    assert not shown(world, "by-form").paused
    one.page.get_by_role("button", name="Remove by-form").click()
    one.page.locator("dialog[open]").get_by_role("button", name="Remove").click()
    until(lambda: shown(world, "by-form") is None, "it is removed")


def shown(world, name):
    return next((one for one in world.server.client.schedules(everyone=True) if one.name == name), None)


def test_a_wrong_form_says_which_field(viewer):
    one = viewer("member", "/submit")
    one.page.get_by_label("Command").fill("true")
    one.page.get_by_label("Time limit").fill("soon")
    one.page.get_by_role("button", name="Submit", exact=True).click()
    one.page.locator("[role=alert]:has-text('time_limit')").first.wait_for()


def test_rules_are_changed_after_a_preview(world, viewer):
    one = viewer("admin", "/admin")
    one.page.get_by_label("Change").fill("queue.default.policy=fifo")
    one.page.get_by_role("button", name="Preview", exact=True).click()
    one.page.locator("text=1 change").first.wait_for()
    assert next(q for q in world.server.client.queues() if q.name == "default").policy == "priority"
    one.page.get_by_role("button", name="Switch it on").click()
    one.page.locator("dialog[open]").get_by_role("button", name="Switch it on").click()
    one.page.locator(".note").wait_for()
    assert next(q for q in world.server.client.queues() if q.name == "default").policy == "fifo"
    world.server.client.configure({"set": ["queue.default.policy=priority"]})


def test_a_token_is_made_shown_once_and_revoked(world, viewer):
    one = viewer("member", "/admin?tab=tokens")
    one.page.get_by_role("button", name="Make a token").click()
    one.page.locator("dialog[open]").get_by_label("Note").fill("for-ci")
    one.page.locator("dialog[open]").get_by_role("button", name="Make a token").click()
    made = one.page.locator(".banner code")
    made.wait_for()
    assert made.inner_text().startswith("pst_")
    row = one.page.locator("tr:has-text('for-ci')")
    row.get_by_role("button", name="Revoke").click()
    one.page.locator("dialog[open]").get_by_role("button", name="Revoke").click()
    row.wait_for(state="detached")


def test_credit_is_added_once_for_each_reference(world, viewer):
    one = viewer("admin", "/money")
    one.page.locator(".card:has-text('lab')").first.get_by_role("button", name="Add credit").click()
    one.page.locator("dialog[open]").get_by_label("Amount").fill("100")
    one.page.locator("dialog[open]").get_by_label("Reference").fill("T-1")
    one.page.locator("dialog[open]").get_by_role("button", name="Add credit").click()
    one.page.locator(".note").wait_for()
    assert next(a for a in world.server.client.accounts("lab").accounts if a.tenant == "lab").credit > 0


def test_an_edit_that_would_help_is_a_button(world, viewer):
    number = submitted(world, name="would-like-more", devices=8, priority=1500)
    one = viewer("admin", f"/jobs/{number}")
    one.page.locator(".edits button").first.wait_for()
    assert one.page.locator(".why-text").inner_text()
    one.page.locator(".edits button").first.click()
    one.page.locator("dialog[open]").wait_for()
    world.server.client.cancel(number)


def test_a_notification_is_chosen_and_removed(viewer):
    one = viewer("member", "/admin?tab=notifications")
    one.page.get_by_role("button", name="Add a notification").click()
    dialog = one.page.locator("dialog[open]")
    dialog.get_by_label("To").fill("https://hooks.example.org/secret-path")
    dialog.get_by_role("button", name="Save").click()
    row = one.page.locator("tr:has-text('hooks.example.org')")
    row.wait_for()
    assert one.page.locator(".banner code").inner_text().startswith("whsec_")
    assert "secret-path" not in one.page.content()
    row.get_by_role("button", name="Remove").click()
    row.wait_for(state="detached")
