"""What users are told, by real receivers: when, in which words, once for many events."""

import base64
import hashlib
import hmac
import json

from tests.server.services.notifying.conftest import Place


def test_a_job_is_told_of_as_it_starts_and_ends(place: Place):
    place.hook("ann", "start", "end")
    job = place.run("ann", tenant="vision", name="train", devices=1)
    place.pass_time()
    place.pass_time(10)
    assert place.titles() == [f"job {job} 'train' started", f"job {job} 'train' succeeded"]
    (event,) = place.http.got[0].json["events"]
    assert event["text"] == "It runs on n1."
    assert (event["command"], event["url"]) == (f"penstock show {job}", f"https://penstock.example.org/base/jobs/{job}")


def test_a_failure_is_told_apart_with_its_reason(place: Place):
    place.hook("ann", "failure")
    ok, bad = place.run("ann", tenant="vision"), place.run("ann", tenant="vision", command="exit 3", name="bad")
    place.pass_time(20)
    assert place.titles() == [f"job {bad} 'bad' failed: exit 3"]
    assert place.of("ann").job(ok).state == "succeeded"


def test_a_preempted_job_is_told_for_whom_where_that_is_the_same_tenants(place: Place):
    place.hook("ann", "preempted")
    low = place.run("ann", tenant="vision", devices=4, replicas=2, command="sleep 100")
    high = place.run("ann", tenant="vision", devices=4, replicas=2, priority="high")
    place.pass_time(1)
    (event,) = place.http.got[0].json["events"]
    assert event["title"] == f"job {low} 'sleep' is preempted"
    assert event["text"].startswith(f"It makes room for job {high}: it has the lower priority. It has 30s to save")


def test_a_preempted_job_is_not_told_of_another_tenants_job(place: Place):
    place.hook("ann", "preempted")
    place.run("ann", tenant="vision", devices=4, replicas=2, command="sleep 100")
    high = place.run("bob", tenant="audio", devices=4, replicas=2, priority="high")
    place.pass_time(1)
    text = place.http.got[0].json["events"][0]["text"]
    assert text.startswith("It makes room for another job: ")
    assert str(high) not in text


def test_an_array_that_ends_is_one_message_with_counts(place: Place):
    place.hook("ann", "end")
    place.of("ann").submit_request(
        {"command": "exit 3", "name": "sweep", "tenant": "vision", "array": 150, "cpus": 0.01}
    )
    place.pass_time(30, gathered=10)
    (got,) = place.http.got
    assert got.json["title"].startswith("array ")
    assert got.json["title"].endswith("'sweep': 150 failed")
    assert (got.json["counts"], len(got.json["events"]), got.json["left_out"]) == ({"failure": 150}, 5, 145)


def test_what_a_job_asks_for_itself_goes_before_what_its_user_chose(place: Place):
    place.hook("ann", "end")
    quiet = place.run("ann", tenant="vision", notify="none")
    place.run("ann", tenant="vision", notify=["start"], name="said")
    place.pass_time(20)
    assert [title.partition(" 'said' ")[2] for title in place.titles()] == ["started"]
    assert place.of("ann").job(quiet).state == "succeeded"


def test_a_webhook_is_signed_with_the_key_that_is_shown_once(place: Place):
    made = place.hook("ann", "end")
    place.run("ann", tenant="vision")
    place.pass_time(10)
    (got,) = place.http.got
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key = base64.b64decode(made.signing_key.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert got.headers["webhook-id"] == got.json["id"]


def test_what_slack_reads_can_neither_call_people_nor_make_links(place: Place):
    wanted = {"channel": "slack", "to": place.http.url, "events": ["end"]}
    place.of("ann").set_notification("chat", wanted)
    place.run("ann", tenant="vision", name="<!channel> & <https://evil.example|click>")
    place.pass_time(10)
    body = place.http.got[0].json
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in body["text"]
    assert "<" not in body["text"]
    assert body["mrkdwn"] is False


def test_an_email_says_it_in_plain_text(place: Place):
    place.of("ann").set_notification("mail", {"channel": "email", "to": "ann@example.org", "events": ["failure"]})
    job = place.run("ann", tenant="vision", command="exit 3", name="bad")
    place.pass_time(10)
    (mail,) = place.smtp.mails
    assert (mail["To"], mail["Subject"]) == ("ann@example.org", f"[penstock] job {job} 'bad' failed: exit 3")
    text = mail.get_content().replace("\r\n", "\n")
    assert text.startswith(f"Job {job} 'bad' failed: exit 3.\n2023-")
    assert f"More: penstock show {job}\nhttps://penstock.example.org/base/jobs/{job}\n" in text


def test_a_command_gets_json_on_its_input(place: Place):
    place.of("ann").set_notification("page", {"channel": "command", "to": "pager", "events": ["end"]})
    job = place.run("ann", tenant="vision")
    place.pass_time(10)
    assert json.loads(place.output.read_text())["events"][0]["job"]["id"] == job
    (view,) = place.of("ann").notifications().notifications
    assert (view.sent, view.waiting, view.last_error) == (1, 0, "")
