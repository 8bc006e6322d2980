"""How messages arrive: again where that may help, with the same id after a crash, and nobody waits for another."""

import pytest

from penstock.control.messages import NoteQuotas
from penstock.core.explain.notices import Notice
from penstock.core.model.events import NotificationSet, QuotaNoted
from penstock.server.services.billing import BillingService
from penstock.server.services.notifying.queues import GATHER_MAX_MS, GATHER_MS, TRIES_MAX, Digest, Queue
from penstock.server.services.notifying.service import NotificationService
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.server.harness import until
from tests.server.services.notifying.conftest import Place


def look(server: InProcessServer, service: NotificationService, *, settle: bool = True) -> None:
    async def done() -> None:
        await service.look()
        if settle:
            await service.settle()

    server._loop.run(done()).result(30)


def test_what_may_pass_is_tried_again_with_the_same_id(place: Place):
    place.hook("ann", "end")
    place.http.statuses = [503, 429]
    place.run("ann", tenant="vision")
    place.pass_time(10)
    (view,) = place.of("ann").notifications().notifications
    assert (view.waiting, view.tries, view.last_error) == (1, 1, "127.0.0.1 answered 503")
    place.pass_time(10, gathered=0)
    place.pass_time(20, gathered=0)
    assert len({got.headers["webhook-id"] for got in place.http.got}) == 1
    (view,) = place.of("ann").notifications().notifications
    assert (len(place.http.got), view.sent, view.waiting, view.tries, view.last_error) == (3, 1, 0, 0, "")


def test_what_will_not_pass_is_given_up_and_shown(place: Place):
    place.hook("ann", "end")
    place.http.statuses = [404]
    place.run("ann", tenant="vision")
    place.pass_time(10)
    (view,) = place.of("ann").notifications().notifications
    assert (view.given_up, view.waiting, view.last_error) == (1, 0, "127.0.0.1 answered 404")


@pytest.mark.parametrize(("answer", "waiting"), [("450 later", 1), ("550 never", 0)])
def test_the_answers_of_a_mail_server_are_told_apart(place: Place, answer, waiting):
    place.of("ann").set_notification("mail", {"channel": "email", "to": "ann@example.org", "events": ["end"]})
    place.smtp.answers = [answer]
    place.run("ann", tenant="vision")
    place.pass_time(10)
    (view,) = place.of("ann").notifications().notifications
    assert (view.waiting, view.last_error) == (waiting, f"the mail server answered {answer[:3]}")


def test_a_command_that_fails_is_run_again(place: Place):
    fail = place.output.with_name("fail")
    fail.touch()
    place.of("ann").set_notification("page", {"channel": "command", "to": "pager", "events": ["end"]})
    place.run("ann", tenant="vision")
    place.pass_time(10)
    fail.unlink()
    (view,) = place.of("ann").notifications().notifications
    assert (view.waiting, view.last_error) == (1, "command pager failed: exit 1")
    place.pass_time(10, gathered=0)
    (view,) = place.of("ann").notifications().notifications
    assert (view.sent, view.waiting) == (1, 0)


def test_the_next_server_goes_on_where_the_last_one_was(place: Place):
    place.hook("ann", "end")
    place.http.statuses = [503]
    place.run("ann", tenant="vision", name="first")
    place.pass_time(10)
    later = place.run("ann", tenant="vision", name="later")
    place.server.advance(10)  # nobody has read this yet
    after = NotificationService(place.server._backend, place.server._store)
    look(place.server, after)
    place.server.advance(20)
    look(place.server, after)
    after.close()
    first, again, last = place.http.got
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert last.json["title"] == f"job {later} 'later' succeeded"


def test_what_happened_before_it_was_chosen_is_not_sent(place: Place):
    place.hook("bob", "end")
    place.run("ann", tenant="vision")
    place.server.advance(10)
    place.hook("ann", "end")
    place.pass_time(1)
    assert place.http.got == []


def test_a_receiver_that_hangs_delays_its_own_queue_alone(place: Place):
    place.hook("ann", "end", name="one")
    place.hook("ann", "end", name="two")
    place.hook("ann", "end", name="three")
    place.of("bob").set_notification("mail", {"channel": "email", "to": "bob@example.org", "events": ["end"]})
    place.http.hang.clear()
    place.run("ann", tenant="vision")
    place.run("bob", tenant="audio")
    place.server.advance(10)
    service = place.server._notifications
    look(place.server, service, settle=False)
    place.server.advance(3)
    look(place.server, service, settle=False)
    until(lambda: place.smtp.mails, "the mail of another user")
    until(lambda: len(place.http.got) == 2, "two of a user's are being sent")
    place.http.hang.set()
    place.server.send_notifications()
    place.server.send_notifications()
    assert len(place.http.got) == 3


def test_a_new_key_of_the_vault_opens_what_was_sealed_before(place: Place):
    place.hook("ann", "end")
    before = [one.event for one in place.server.client.all_events() if isinstance(one.event, NotificationSet)]
    place.server.client.rotate_secret_key()
    after = [one.event for one in place.server.client.all_events() if isinstance(one.event, NotificationSet)]
    assert len(after) == len(before) + 1
    assert place.of("ann").test_notification("hook").sent


def test_other_events_are_chosen_without_the_url(place: Place):
    place.hook("ann", "end")
    made = place.of("ann").set_notification("hook", {"channel": "webhook", "events": ["failure"]})
    assert (made.notification.events, made.signing_key) == (["failure"], "")
    assert place.of("ann").test_notification("hook").sent


def test_operators_hear_of_a_lost_node_and_members_do_not(place: Place):
    place.hook("olga", "nodes")
    place.server.engine.crash("n2")
    place.pass_time(60)
    place.server.engine.boot("n2")
    place.server.advance(5)
    assert place.titles() == ["node n2 is lost: no heartbeat within its lease"]


def test_a_job_that_can_never_start_is_told_of_once_with_what_would_help(place: Place):
    place.hook("ann", "never")
    place.server.client.configure({"set": ["settings.allow_waiting_for_nodes=true"]})
    job = place.run("ann", tenant="vision", devices=64, name="huge")
    place.pass_time(60)
    place.pass_time(120)
    after = NotificationService(place.server._backend, place.server._store)  # the next server knows it, too
    for _ in range(2):
        look(place.server, after)
        place.server.advance(3)
    after.close()
    place.server.client.configure({"set": ["settings.allow_waiting_for_nodes=false"]})
    assert place.titles() == [f"job {job} 'huge' can never start as the cluster is"]
    (event,) = place.http.got[0].json["events"]
    assert "What would help: " in event["text"]
    assert event["command"] == f"penstock explain {job}"


def test_who_may_hear_of_all_tenants_hears_of_the_chosen_one_alone(place: Place):
    wanted = {"channel": "webhook", "to": place.http.url, "events": ["budget"], "tenant": "vision"}
    place.server.client.set_notification("hook", wanted)
    notes = [QuotaNoted(f"tenant:{one}", "devices", 90, 9, 10, f"{one}: 9 of 10") for one in ("audio", "vision")]
    place.server.service.ask(NoteQuotas(tuple(notes)))
    place.server.settle()
    place.pass_time(1)
    assert place.titles() == ["vision: 9 of 10"]


def test_a_tenants_admin_hears_of_a_budget_that_is_spent(tmp_path):
    command, output = tmp_path / "page", tmp_path / "out"
    command.write_text(f"#!/bin/sh\ncat > {output}\n")
    command.chmod(0o700)
    cluster = cluster_file(1, 1) | {
        "tenants": ["default", {"name": "vision", "budgets": [{"amount": 60, "hard": True}]}],
        "billing": {"currency": "EUR", "prices": [{"per_hour": 3600}], "minimum_period": "0s"},
        "notifications": {"commands": [{"name": "page", "path": str(command)}]},
    }
    with InProcessServer(cluster) as server:
        wanted = {"channel": "command", "to": "page", "events": ["tenant"], "tenant": "vision"}
        server.client.set_notification("page", wanted)
        server.submit({"command": "sleep 600", "devices": 1, "tenant": "vision"})
        server.advance(120)
        billing = BillingService(server._backend, server._store)
        server._loop.run(billing.look()).result(30)
        server.send_notifications()
        server.advance(3)
        server.send_notifications()
    said = output.read_text()
    assert '"counts":{"budget":1,"exhausted":1}' in said
    assert "budget month of tenant vision: " in said


def notice(seq: int, event: str = "success", array: int | None = 7) -> Notice:
    return Notice(event, seq, seq, f"job {seq}", job_id=seq, array_id=array)


def digest(*notices: Notice) -> Digest:
    made = Digest()
    for one in notices:
        made.add(one)
    return made


def test_ten_thousand_notices_are_one_message_of_bounded_size():
    queue = Queue()
    for start in range(0, 10_000, 1_000):
        queue.add(digest(*(notice(start + i, "failure" if i % 100 == 0 else "success") for i in range(1_000))), 0)
    assert not queue.compose("x", GATHER_MS - 1)
    assert queue.compose("x", GATHER_MS)
    message = queue.message
    assert message is not None
    assert (message.counts, len(message.notices), message.array_id) == ({"failure": 100, "success": 9_900}, 10, 7)


def test_the_more_comes_the_longer_it_is_gathered_until_it_is_quiet_again():
    queue, now_ms, waits = Queue(), 0, []
    for _ in range(12):
        queue.add(digest(notice(1), notice(2)), now_ms)
        waits.append(queue.waiting.due_ms - now_ms)
        now_ms = queue.waiting.due_ms
        assert queue.compose("x", now_ms)
        queue.arrived(now_ms)
    assert (waits[0], waits[1], waits[-1]) == (GATHER_MS, 2 * GATHER_MS, GATHER_MAX_MS)
    queue.add(digest(notice(3)), now_ms + 2 * GATHER_MAX_MS)
    assert queue.waiting.due_ms == now_ms + 2 * GATHER_MAX_MS + GATHER_MS


def test_a_message_is_given_up_after_a_bounded_number_of_tries():
    queue = Queue()
    queue.add(digest(notice(1)), 0)
    queue.compose("x", GATHER_MS)
    goes_on = [queue.failed("why", 0, again=True) for _ in range(TRIES_MAX)]
    assert goes_on == [True] * (TRIES_MAX - 1) + [False]
    assert (queue.message, queue.stats.given_up) == (None, 1)


def test_notices_of_several_arrays_are_not_called_by_one():
    found = digest(notice(1))
    found.merge(digest(notice(2, array=8)))
    assert found.array_id is None
    found.merge(digest(notice(3)))
    assert found.array_id is None
