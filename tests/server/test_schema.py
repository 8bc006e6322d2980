"""The whole API under generated requests: nothing breaks, and each answer is as the OpenAPI document says.

Schemathesis makes the requests from the document: examples, edges of each value, random values, wrong ones, and chains
of operations. It runs as a program of its own. Each operation gets a few random requests in CI, many by
`make soak`.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.properties import LONG
from tests.server.harness import LIMITS, Jobs, Server, cluster_file, environment
from tests.server.test_tenants import former_months

API = "/api/v1"
EXAMPLES = 200 if LONG else 5
ENDLESS = (f"{API}/events/stream", f"{API}/changes")
UNLIMITED = LIMITS | {"requests_burst": 10**9, "requests_per_s": 10**9, "failed_logins_burst": 10**9}
EXPECTED = """
[phases.coverage]
unexpected-methods = ["DELETE", "PUT", "PATCH"]

[[operations]]
include-path = "/api/v1/plan"
# Its body is that of a submit, which is looked at edge by edge.
phases.coverage.enabled = false

[[operations]]
include-name = "PUT /api/v1/schedules/{name}"
# So is its: thousands of requests, most without a schedule. Edges of the name, and other methods: by DELETE.
phases.coverage.enabled = false

[checks.positive_data_acceptance]
# A request that fits its schema may still name a queue that there is not, a version that has passed, or ask for what is
# not left.
expected-statuses = ["2xx", "401", "403", "404", "409", "412", "422", "501"]

[checks.not_a_server_error]
# 501: a document needs a library that is not installed.
expected-statuses = ["2xx", "3xx", "4xx", "501"]
"""


class Exchange(NamedTuple):
    """One request and its answer."""

    method: str
    path: str
    status: int
    media: str
    body: str


class Tried(NamedTuple):
    """What a run of Schemathesis came to."""

    code: int
    text: str
    exchanges: list[Exchange]
    operations: list[tuple[str, str]]
    """All of the document, as method and path."""


@pytest.fixture(scope="module")
def idle_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a history, and a node that takes nothing any more: commands that were made up must never run."""
    declared = cluster_file(1, 1, allow_waiting_for_nodes=True)
    declared["nodes"][0]["pool"] = "kept"
    declared |= {
        "pools": ["default", "kept"],
        "queues": [{"name": "default", "max_waiting": 50}],
        "billing": {"prices": [{"resource": "cpu", "per_hour": 3}]},
        "users": [{"name": "ann", "tenants": ["default"]}],
    }
    root = tmp_path_factory.mktemp("schema") / "data"
    former_months(root)
    with Server(root, declared, limits=UNLIMITED) as server:
        jobs = Jobs(server.client)
        jobs.ended(jobs.submit("echo hello", devices=1, pool="kept"))
        server.client.drain("n1")
        yield server


@pytest.fixture(scope="module")
def tried(idle_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    server, folder = idle_server, tmp_path_factory.mktemp("schemathesis")
    (folder / "schemathesis.toml").write_text(EXPECTED, encoding="utf-8")
    address = f"http://127.0.0.1:{server.port}"
    document = server.http("GET", f"{API}/openapi.json").json()
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", address, "--no-color"]
    command += ["--header", f"Authorization: Bearer {server.token}", "--checks", "all"]
    command += [word for path in ENDLESS for word in ("--exclude-path", path)]
    command += ["--max-examples", str(EXAMPLES), "--seed", "1917", "--generation-database", "none", "--workers", "1"]
    command += [
        "--continue-on-failure",
        "--request-timeout",
        "60",
        "--max-response-time",
        "60",
        "--report-har-path",
        "har.json",
    ]
    command += ["--output-sanitize", "false", "--suppress-health-check", "all", "--no-shrink"]
    found = subprocess.run(
        command, cwd=folder, env=environment(server.root), capture_output=True, text=True, timeout=360 + 30 * EXAMPLES
    )
    operations = [(m.upper(), path) for path, ops in document["paths"].items() for m in ops]
    return Tried(found.returncode, found.stdout + found.stderr, list(exchanges(folder / "har.json")), operations)


def exchanges(path: Path) -> Iterator[Exchange]:
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["log"]["entries"]
    for entry in entries:
        request, response = entry["request"], entry["response"]
        where = re.sub(r"^https?://[^/]*", "", request["url"]).partition("?")[0]
        content = response["content"]
        media = content.get("mimeType", "").partition(";")[0]
        yield Exchange(request["method"], where, response["status"], media, content.get("text", ""))


def operation_of(exchange: Exchange, operations: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Return which operation a request was for; the most literal one, where several would do."""
    for method, path in sorted(operations, key=lambda one: one[1].count("{")):
        pattern = re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(path))
        if method == exchange.method and re.fullmatch(pattern, exchange.path):
            return method, path
    return None


def test_every_answer_is_as_the_document_says(tried):
    assert tried.code == 0, tried.text


def test_every_operation_is_tried(tried):
    hit = Counter(operation_of(exchange, tried.operations) for exchange in tried.exchanges)
    missing = [one for one in tried.operations if not hit[one] and one[1] not in ENDLESS]
    assert missing == []


def test_nothing_breaks_the_server(tried, idle_server):
    assert [exchange for exchange in tried.exchanges if exchange.status >= 500 and exchange.status != 501] == []
    assert idle_server.client.healthy()


def test_every_refusal_is_a_problem(tried):
    for exchange in tried.exchanges:
        if exchange.status >= 400 and exchange.method != "HEAD":
            assert exchange.media == "application/problem+json", exchange
            assert json.loads(exchange.body)["status"] == exchange.status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/events/stream", 200),
        ("/events/stream?after=0", 200),
        ("/events/stream?after=x", 422),
        ("/events/stream?after=-1", 422),
        ("/changes", 200),
        ("/changes?topics=jobs,nodes,counts", 200),
        ("/changes?after=x", 200),
        ("/changes?topics=x", 422),
    ],
)
def test_an_endless_operation_is_as_the_document_says(idle_server, path, status):
    paths = idle_server.http("GET", f"{API}/openapi.json").json()["paths"]
    operation = paths[API + path.partition("?")[0]]["get"]
    answer = idle_server.http("GET", API + path, read=False)
    declared = operation["responses"].get(str(answer.status)) or operation["responses"][f"{answer.status // 100}XX"]
    assert answer.status == status
    assert answer.headers["content-type"].partition(";")[0] in declared["content"]
