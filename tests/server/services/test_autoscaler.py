"""Nodes are asked for when jobs wait for capacity: by a command that adds them, and over HTTP."""

import json
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.core.model.events import CapacityRequested
from penstock.server.services.autoscaler import _post
from tests.server.harness import ROOT, Server, cluster_file, until

JOB = {"command": "true", "devices": 3, "cpus": 1, "memory": "1GiB"}


def asked(server):
    return [r.event for r in server.client.all_events() if isinstance(r.event, CapacityRequested)]


def with_hook(tmp_path, **settings):
    declared = cluster_file(1, 2, scale_after="100ms", scale_every="2s", **settings)
    declared["settings"]["allow_waiting_for_nodes"] = True
    return Server(tmp_path / "data", declared)


def test_a_simulated_provider_brings_the_node_that_a_job_waits_for(tmp_path):
    script = shlex.join([sys.executable, str(ROOT / "examples" / "simulated_provider.py")])
    hook = f"{script} --data {shlex.quote(str(tmp_path / 'data'))} --most 1"
    with with_hook(tmp_path, scale_command=hook) as server:
        job = server.client.submit(JOB).jobs[0].id
        until(lambda: server.client.job(job).state == "succeeded", "the job runs on the new node")
        assert server.client.job(job).nodes == ["scaled-0"]
        event = asked(server)[0]
        assert (event.job_ids, event.jobs, event.accepted, event.answer) == ((job,), 1, True, "started scaled-0")


def test_a_provider_that_fails_is_told_of_and_asked_again(tmp_path):
    with with_hook(tmp_path, scale_command="echo no machines left; exit 4") as server:
        server.client.submit(JOB)
        until(lambda: len(asked(server)) >= 2, "it is asked twice")
        assert [(e.accepted, e.answer) for e in asked(server)[:2]] == [(False, "no machines left")] * 2


@pytest.fixture
def provider():
    """Return (url, bodies received); it answers 200, after the first, which it refuses."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(503 if len(bodies) == 1 else 200)
            self.end_headers()
            self.wfile.write(b"later" if len(bodies) == 1 else b"coming")

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/scale", bodies
    http.shutdown()
    thread.join()
    http.server_close()


def test_over_http_the_same_is_told(tmp_path, provider):
    url, bodies = provider
    with with_hook(tmp_path, scale_url=url) as server:
        job = server.client.submit(JOB).jobs[0].id
        until(lambda: len(asked(server)) >= 2, "it is asked twice")
        assert [(e.accepted, e.answer) for e in asked(server)[:2]] == [(False, "status 503: later"), (True, "coming")]
    assert bodies[0]["missing"][0]["job_ids"] == [job]
    assert bodies[0]["missing"][0]["groups"][0]["devices"] == 3


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:,x", "/etc/hostname"])
def test_only_http_is_asked(url):
    assert _post(url, b"{}") == (False, f"'{url}' is no address that can be asked: http or https")
