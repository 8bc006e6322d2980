"""A server of its own, with its real clock and processes: it sends by itself, and loses nothing when it is killed."""

import json

from tests.server.harness import Jobs, Server, cluster_file, until
from tests.server.services.notifying.receivers import http_receiver


def test_a_server_sends_by_itself_and_what_a_killed_one_was_sending_is_sent_again(tmp_path):
    with http_receiver() as http:
        declared = cluster_file(1, 1) | {"notifications": {"webhooks": {"internal": [http.host]}}}
        with Server(tmp_path / "data", declared) as server:
            wanted = {"channel": "webhook", "to": http.url, "events": ["start", "failure"]}
            server.client.set_notification("hook", wanted)
            http.hang.clear()
            job = Jobs(server.client).submit("exit 3", name="bad")
            until(lambda: http.got, "it is sent")
            server.hang_up()
            server.process.kill()
            server.process.wait(30)
            http.hang.set()
            server.start()
            until(lambda: len(http.got) == 2, "it is sent again")
            link = f"http://127.0.0.1:{server.port}/jobs/{job}"
    first, again = (json.loads(got.body) for got in http.got)
    assert first == again | {"events": first["events"]}
    assert [event["title"] for event in first["events"]] == [
        f"job {job} 'bad' started",
        f"job {job} 'bad' failed: exit 3",
    ]
    assert again["events"][0]["url"] == link
