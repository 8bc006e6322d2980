"""A database that does not answer holds up those who ask for what is in it, and nobody else."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.server.harness import Jobs, Server

API = "/api/v1"
HELD_S = 2.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, int]]:
    """A server on a database, the address of that, and a job that has ended."""
    root: Path = tmp_path_factory.mktemp("away")
    url = postgres.shared().database()
    (root / "given").write_text(url)
    with Server(root, store_file=str(root / "given")) as server:
        yield server, url, Jobs(server.client).ended(Jobs(server.client).submit("true")).id


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/jobs/{job}", None),
        ("GET", "/jobs/{job}/explanation", None),
        ("GET", "/jobs/{job}/events", None),
        ("GET", "/jobs/{job}/outputs", None),
        ("GET", "/jobs/{job}/logs?attempt=1", None),
        ("POST", "/jobs/{job}/cancel", None),
        ("POST", "/jobs/{job}/checkpoint", None),
        ("POST", "/jobs", {"command": "true", "after_ok": "{job}"}),
    ],
)
def test_who_asks_for_a_job_that_has_ended_holds_up_nobody_else(place, method, path, body):
    server, url, job = place
    sent = None if body is None else json.dumps(body).replace('"{job}"', f"[{job}]").encode()
    asked = threading.Thread(target=lambda: server.http(method, API + path.format(job=job), sent))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE finished IN ACCESS EXCLUSIVE MODE")
        asked.start()
        time.sleep(0.2)  # the request is with the server by then
        begin = time.monotonic()
        while time.monotonic() - begin < HELD_S / 4:
            assert server.http("GET", f"{API}/health").status == 200
        assert time.monotonic() - begin < HELD_S
    asked.join()
