"""What a page asks for as things change: shared answers after changes of others, exact ones after its own."""

import pytest

from tests.web.test_writes import submitted

CLOCK = "{ const begun = Date.now(); window.later = 5000; Date.now = () => begun + window.later; }"
"""Stops the page's clock, some seconds ahead, so that what it has asked for so far is long ago."""
SHARED = "max-stale=1"


def asks(path):
    return lambda request: request.method == "GET" and request.url.partition("?")[0].endswith(f"/api/v1{path}")


def edited(world, number, priority):
    world.server.client.act("edit", {"ids": [str(number)]}, change={"priority": priority})
    world.server.settle()


@pytest.fixture
def job(world):
    """A job that waits."""
    number = submitted(world, name="followed", devices=8, priority="low")
    yield number
    world.server.client.cancel(number)


def test_a_page_accepts_a_shared_answer_after_a_change_of_others_and_none_after_its_own(world, viewer, job):
    first, attempts = [], asks(f"/jobs/{job}/attempts")
    one = viewer("admin")
    one.page.on("request", lambda request: first.append(request) if attempts(request) else None)
    with one.page.expect_request(attempts):
        one.open(f"/jobs/{job}")
    assert SHARED not in first[0].headers.get("cache-control", "")
    one.quiet()
    one.page.evaluate(CLOCK)
    with one.page.expect_request(attempts) as followed:
        edited(world, job, 200)
    assert SHARED in followed.value.headers["cache-control"]
    one.page.evaluate("window.later = 10000")
    one.page.get_by_role("button", name="Edit").click()
    one.page.locator("dialog[open]").get_by_label("Priority").fill("300")
    with one.page.expect_request(attempts) as own:
        one.page.locator("dialog[open]").get_by_role("button", name="Save").click()
    assert SHARED not in own.value.headers.get("cache-control", "")


def test_a_page_asks_again_where_the_shared_answer_may_be_from_before_the_change(world, viewer, job):
    one, times, shown = viewer("admin"), [], asks(f"/jobs/{job}")
    one.open(f"/jobs/{job}")
    one.quiet()
    one.page.evaluate(CLOCK)

    def aged(route):
        times.append(SHARED in route.request.headers.get("cache-control", ""))
        answer = route.fetch()
        route.fulfill(response=answer, headers=answer.headers | {"age": "0"})

    one.page.route(lambda url: url.endswith(f"/api/v1/jobs/{job}"), aged)
    with one.page.expect_request(lambda request: shown(request) and len(times) == 2, timeout=20_000) as third:
        edited(world, job, 201)
    one.page.unroute_all(behavior="wait")
    assert (times[:2], SHARED in third.value.headers["cache-control"]) == ([True, True], True)
