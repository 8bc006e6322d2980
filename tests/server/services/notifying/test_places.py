"""Destinations that a job names itself: sent to besides its user's own, within the rules of administrators."""

import json
from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem
from penstock.server.services.notifying import service as services
from penstock.server.services.notifying.service import NotificationService
from tests.server.services.notifying.conftest import Place
from tests.server.services.notifying.test_delivery import look


@pytest.fixture(autouse=True)
def _places_of_this_test_alone(place: Place) -> Iterator[None]:
    yield
    forget_places(place)


def forget_places(place: Place) -> None:
    service = place.server._notifications
    place.server.client.act("cancel", {"all": True})
    place.server.advance(40)
    place.server.send_notifications()
    for one in service.of_jobs(None):
        service._drop(one.key)


def refusal(place: Place, user: str, **notify: object) -> ApiProblem:
    with pytest.raises(ApiProblem) as refused:
        place.of(user).submit_request({"command": "true", "tenant": "vision", "notify": notify})
    return refused.value


def secret(place: Place, url: str, name: str = "HOOK") -> None:
    place.of("ann").set_secret(name, url)


def test_a_job_names_a_url_and_its_user_has_set_nothing(place: Place):
    job = place.run("ann", tenant="vision", name="train", notify={"on": "end", "webhook": place.http.url})
    place.pass_time(10)
    (got,) = place.http.got
    assert got.json["title"] == f"job {job} 'train' succeeded"
    assert got.json["notification"].startswith("job:")
    found = place.of("ann").notifications()
    (view,) = found.of_jobs
    assert (found.notifications, view.sent, view.waiting, view.channel) == ([], 1, 0, "webhook")
    assert view.to == f"http://{place.http.host}/..."
    assert place.of("bob").notifications().of_jobs == []


def test_only_the_named_events_go_there_and_none_to_those_of_the_user(place: Place):
    place.hook("ann", "jobs")
    place.run("ann", tenant="vision", notify=["none", {"on": "start", "command": "pager"}])
    place.pass_time(10)
    assert place.http.got == []
    assert [one["event"] for one in json.loads(place.output.read_text())["events"]] == ["start"]


def test_the_url_may_be_a_secret_and_is_shown_nowhere(place: Place):
    secret(place, place.http.url)
    place.run("ann", tenant="vision", notify={"slack": {"secret": "HOOK"}})
    place.pass_time(10)
    (got,) = place.http.got
    assert "succeeded" in got.json["text"]
    assert [one.to for one in place.of("ann").notifications().of_jobs] == ["secret HOOK"]


def test_a_secret_that_leads_elsewhere_is_not_followed(place: Place):
    secret(place, "https://evil.example.org/x")
    place.run("ann", tenant="vision", notify={"webhook": {"secret": "HOOK"}})
    place.pass_time(10)
    (view,) = place.of("ann").notifications().of_jobs
    assert (view.sent, view.given_up) == (0, 1)
    assert view.last_error == "webhooks to evil.example.org are not permitted"


def test_a_secret_that_a_job_needs_for_its_message_is_kept(place: Place):
    secret(place, place.http.url)
    job = place.run("ann", tenant="vision", notify={"webhook": {"secret": "HOOK"}})
    with pytest.raises(ApiProblem, match=f"needed by job {job}"):
        place.of("ann").remove_secret("HOOK")


def test_a_notification_of_the_user_is_chosen_by_its_name_and_hears_once(place: Place):
    place.hook("ann", "failure", name="mine")
    place.hook("ann", "end", name="all")
    place.run("ann", tenant="vision", notify=["success", {"on": "success", "to": "mine"}])
    place.pass_time(10)
    assert sorted((got.json["notification"], got.json["counts"]["success"]) for got in place.http.got) == [
        ("all", 1),
        ("mine", 1),
    ]


def test_an_array_is_one_message_to_its_place(place: Place):
    place.run("ann", tenant="vision", array=6, cpus=1, command="true", notify={"webhook": place.http.url})
    place.pass_time(10)
    (got,) = place.http.got
    assert got.json["counts"] == {"success": 6}


@pytest.mark.parametrize(
    ("user", "notify", "code", "said"),
    [
        ("ann", {"webhook": "https://evil.example.org/x"}, "not_permitted", "evil.example.org are not permitted"),
        ("ann", {"webhook": "http://10.0.0.1/"}, "not_permitted", "not permitted"),
        ("ann", {"slack": "https://u:p@localhost/"}, "not_permitted", "a user or password"),
        ("ann", {"command": "root"}, "not_permitted", "there is no command 'root' for you"),
        ("ann", {"command": "pagr"}, "not_permitted", "there is no command 'pagr' for you"),
        ("ann", {"to": "hok"}, "unknown_notification", "you have no notification 'hok'"),
        ("ann", {"webhook": {"secret": "NONE"}}, "unknown_secret", "there is no secret 'NONE'"),
        ("tess", {"to": "hook"}, "unknown_notification", "you have no notification 'hook'"),
    ],
)
def test_what_is_not_permitted_is_refused_at_submit(place: Place, user, notify, code, said):
    place.hook("ann", "end")
    problem = refusal(place, user, **notify).problems[0]
    assert (problem.code, problem.field) == (code, "notify")
    assert said in problem.message


def test_a_command_closed_to_its_user_since_is_not_run(place: Place):
    place.run("ann", tenant="vision", notify={"command": "pager"})
    pager = f"notifications.commands=[{{name: pager, path: {place.output.with_name('pager')}, open_to: %s}}]"
    place.server.client.configure({"set": [pager % "operators"]})
    try:
        place.pass_time(10)
        (view,) = place.of("ann").notifications().of_jobs
        assert (view.given_up, view.last_error) == (1, "there is no command 'pager' for you")
    finally:
        place.server.client.configure({"set": [pager % "everyone"]})


def test_the_next_server_sends_to_the_same_place(place: Place):
    place.http.statuses = [503]
    place.run("ann", tenant="vision", notify={"webhook": place.http.url})
    place.pass_time(10)
    place.server.advance(20)
    after = NotificationService(place.server._backend, place.server._store)
    look(place.server, after)
    after.close()
    first, again = place.http.got
    assert first.headers["webhook-id"] == again.headers["webhook-id"]


def test_a_user_has_so_many_places_and_idle_ones_make_room(place: Place, monkeypatch):
    monkeypatch.setattr(services, "OWN_MAX", 2)
    for number in range(3):
        place.run("ann", tenant="vision", notify={"webhook": f"{place.http.url}?n={number}"}, command="true")
        place.pass_time(10)
    assert (len(place.http.got), len(place.of("ann").notifications().of_jobs)) == (3, 2)
    place.http.statuses = [503] * 3
    for number in range(3, 6):
        place.run("ann", tenant="vision", notify={"webhook": f"{place.http.url}?n={number}"}, command="true")
    place.pass_time(10)
    assert [one.waiting for one in place.of("ann").notifications().of_jobs] == [1, 1]
