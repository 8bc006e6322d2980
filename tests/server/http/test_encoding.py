"""Answers that the client has already, or takes compressed; changes that depend on what the caller saw."""

import gzip
import json
from collections.abc import Iterator

import pytest
from starlette.datastructures import Headers

from penstock.server.http.encoding import GZIP_BYTES, has_tag, takes_gzip
from penstock.testing.server import InProcessServer

API = "/api/v1"


@pytest.fixture(scope="module")
def calm() -> Iterator[InProcessServer]:
    with InProcessServer() as server:
        server.submit({"command": "sleep 6000", "devices": 4, "replicas": 2})
        server.advance(5)
        yield server


class Sender:
    """Sends raw requests with the right token."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server

    def __call__(self, method: str, path: str, body: object = None, **headers: str):
        import http.client

        host, _, port = self._server.url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request(method, API + path, data, {"Authorization": f"Bearer {self._server.token}", **sent})
            response = connection.getresponse()
            return response.status, dict(response.headers.items()), response.read()
        finally:
            connection.close()


@pytest.fixture
def send(calm) -> Sender:
    return Sender(calm)


@pytest.mark.parametrize("path", ["/config", "/nodes", "/jobs", "/jobs/1", "/nodes/n1", "/tokens", "/queues"])
def test_what_has_not_changed_is_not_sent_again(send, path):
    status, headers, body = send("GET", path)
    assert (status, bool(body)) == (200, True)
    status, again, body = send("GET", path, If_None_Match=headers["etag"])
    assert (status, again["etag"], body) == (304, headers["etag"], b"")
    assert send("GET", path, If_None_Match='"another"')[0] == 200


def test_what_has_changed_is_sent(calm, send):
    _, headers, _ = send("GET", "/jobs")
    calm.submit({"command": "sleep 6000", "devices": 4, "replicas": 2})
    status, again, _ = send("GET", "/jobs", If_None_Match=headers["etag"])
    assert (status, again["etag"] != headers["etag"]) == (200, True)


def test_large_answers_are_compressed_for_those_who_take_that(send):
    _, plain, body = send("GET", "/openapi.json")
    status, headers, packed = send("GET", "/openapi.json", Accept_Encoding="br, gzip;q=0.5")
    assert (status, headers["content-encoding"], gzip.decompress(packed)) == (200, "gzip", body)
    assert len(packed) < len(body) / 4
    assert headers["etag"] == "W/" + plain["etag"]
    assert "content-encoding" not in plain
    assert send("GET", "/openapi.json", Accept_Encoding="gzip", If_None_Match=headers["etag"])[0] == 304


def test_small_answers_and_streams_are_not(send):
    _, headers, body = send("GET", "/health", Accept_Encoding="gzip")
    assert (len(body) < GZIP_BYTES, "content-encoding" in headers) == (True, False)


@pytest.mark.parametrize(
    ("given", "takes"),
    [("gzip", True), ("identity", False), ("gzip;q=0", False), ("GZIP ; q=1", True), ("", False), ("x-gzip2", False)],
)
def test_who_takes_gzip(given, takes):
    assert takes_gzip(Headers({"accept-encoding": given})) is takes


def test_tags_are_compared_weakly():
    assert has_tag('"a", W/"b"', '"b"')
    assert has_tag("*", '"b"')
    assert not has_tag('"a.b"', '"b"')
    assert not has_tag("", '"b"')


def test_a_configuration_that_has_changed_since_is_not_overwritten(send):
    _, headers, _ = send("GET", "/config")
    tag = headers["etag"]
    assert send("POST", "/config", {"set": ["settings.defrag=true"]}, If_Match=tag)[0] == 200
    status, headers, body = send("POST", "/config", {"set": ["settings.defrag=false"]}, If_Match=tag)
    now = json.loads(send("GET", "/config")[2])
    assert (status, json.loads(body)["code"], json.loads(body)["now"]) == (
        412,
        "precondition_failed",
        {"digest": now["digest"]},
    )
    assert now["config"]["settings"]["defrag"] is True
    assert headers["etag"] == f'"{now["digest"]}"'


def test_a_job_that_somebody_else_has_edited_is_not_edited(calm, send):
    job = calm.submit({"command": "sleep 60", "devices": 4, "replicas": 2})
    tag = send("GET", f"/jobs/{job}")[1]["etag"]
    edit = {"action": "edit", "select": {"ids": [str(job)]}, "set": {"priority": "high"}}
    assert send("POST", "/jobs/actions", edit, If_Match=tag)[0] == 200
    status, _, body = send("POST", "/jobs/actions", edit, If_Match=tag)
    assert (status, json.loads(body)["now"]["priority"]) == (412, 1000)
    assert send("POST", f"/jobs/{job}/cancel", If_Match=tag)[0] == 412
    assert calm.client.job(job).state == "waiting"
    assert send("POST", f"/jobs/{job}/cancel", If_Match=send("GET", f"/jobs/{job}")[1]["etag"])[0] == 200
    assert send("POST", f"/jobs/{job}/cancel", If_Match=tag)[0] == 412, "it is over"


def test_a_precondition_is_for_one_job(send):
    both = {"action": "hold", "select": {"ids": ["1-2"]}}
    status, _, body = send("POST", "/jobs/actions", both, If_Match='"x"')
    assert (status, json.loads(body)["problems"][0]["field"]) == (422, "If-Match")


def test_a_node_that_somebody_else_has_closed_is_not_opened(send):
    tag = send("GET", "/nodes/n2")[1]["etag"]
    assert send("POST", "/nodes/n2/drain?reason=fans", If_Match=tag)[0] == 200
    status, _, body = send("POST", "/nodes/n2/drain?on=false", If_Match=tag)
    assert (status, json.loads(body)["now"]["drain_reason"]) == (412, "fans")
    assert send("POST", "/nodes/n2/drain?on=false", If_Match=send("GET", "/nodes/n2")[1]["etag"])[0] == 200
