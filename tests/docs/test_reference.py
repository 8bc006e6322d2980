"""The reference is complete: events, metrics, error codes and rights that the code has, and no others."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.api.error_texts import ANSWERS, PROBLEMS, PROGRAM
from penstock.cli.output import EXIT_CODES
from penstock.control.metrics import METRICS
from penstock.core.model.access import LEVELS
from penstock.devices.reading import FINDINGS
from penstock.server.http.responses import STATUS
from penstock.server.http.rights import PUBLIC, RIGHTS, ROLES, Right, Role
from tests.server.harness import LIMITS, Server, cluster_file

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "penstock"
NOT_OURS = ("engines", "training", "testing", "sim/apiserver", "sim/world")
"""Codes of programs, of Kubernetes, and of what pretends to be Kubernetes."""
MAKERS = {"Problem", "_refused", "_problem", "_bad"}
"""Functions whose first argument is the code of a problem."""


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Return the calls in the sources, each with the name of what is called."""
    return list(_calls())


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for path in SOURCES.rglob("*.py"):
        if not str(path.relative_to(SOURCES)).startswith(NOT_OURS):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield getattr(node.func, "id", getattr(node.func, "attr", "")), node


def text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def first_texts(*names: str) -> set[str]:
    return {text_of(call.args[0]) for name, call in calls() if name in names and call.args} - {""}


def put_together() -> list[str]:
    """Return patterns of codes that are put together, such as `unknown_{field}`."""
    made = [call.args[0] for name, call in calls() if name in MAKERS and call.args]
    return ["".join(text_of(v) or ".+" for v in one.values) for one in made if isinstance(one, ast.JoinedStr)]


def test_every_code_of_an_answer_is_explained():
    assert {*STATUS, "internal_error"} ^ {*ANSWERS} == set(), "put it into STATUS and api/error_texts.py: ANSWERS"
    assert first_texts("ApiError", "Refusal") - {*ANSWERS} == set()


def test_every_code_of_a_problem_is_explained():
    by_word = {
        text_of(word.value)
        for name, call in calls()
        if name != "Finding"
        for word in call.keywords
        if word.arg == "code"
    } - {""}
    used = first_texts(*MAKERS) | (by_word - {*ANSWERS, *PROGRAM, *(FINDINGS.keys() - PROBLEMS.keys())})
    assert used - {*PROBLEMS} == set(), "put it into api/error_texts.py: PROBLEMS"
    unused = {code for code in {*PROBLEMS} - used if not any(re.fullmatch(p, code) for p in put_together())}
    assert unused == set(), "no such code any more"


def test_every_code_with_an_exit_code_is_explained():
    assert {*EXIT_CODES} - {*ANSWERS} - {*PROGRAM} == set(), "put it into api/error_texts.py: PROGRAM"


def test_every_metric_is_explained():
    taken = [call for name, call in calls() if name in ("count", "observe") and "etrics" in ast.unparse(call.func)]
    labels = {text_of(call.args[0]): {word.arg for word in call.keywords} - {"by"} for call in taken}
    kinds = {text_of(call.args[0]): getattr(call.func, "attr", "") for call in taken}
    assert labels == {name: {*one.labels} for name, one in METRICS.items()}, "see METRICS in control/metrics.py"
    assert kinds == {n: "count" if one.kind == "counter" else "observe" for n, one in METRICS.items()}


def test_every_field_of_an_event_is_explained():
    events = (ROOT / "docs" / "events.md").read_text(encoding="utf-8").partition("## Parts of events")[0]
    bare = [line for line in events.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert bare == [], "write it below the field, or into scripts/event_fields.py"
    assert re.findall(r"### (\w+)\n\n(?:\||No fields)", events) == [], "an event says when it comes: its docstring"


def test_no_field_is_explained_that_there_is_not():
    program = "from event_fields import EVENT_FIELDS as f; import json; print(json.dumps([*f]))"
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "scripts", capture_output=True, check=True)
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"### (\w+)\n(.*?)(?=\n##|\Z)", page, re.DOTALL))
    named = [name.partition(".") for name in json.loads(told.stdout)]
    assert [f"{a}.{b}" for a, dot, b in named if dot and f"| `{b}` |" not in sections.get(a, "")] == []


def examples() -> list[str]:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").replace(" \\\n      ", " ")
    return [line.strip() for line in text.splitlines() if line.startswith("    curl ")]


ENDLESS = {f"GET {path}" for path in re.findall(r"curl -sS -N .*/api/v1(/[^\"]+)", "\n".join(examples()))}
"""Streams."""


class Caller(NamedTuple):
    """Whom a request is from."""

    role: Role
    level: str
    token: str


CLUSTER = {
    "pools": ["default", "kept"],
    "tenants": ["vision"],
    "users": [
        {"name": "tenant-viewer", "tenants": {"vision": "viewer"}},
        {"name": "member", "tenants": {"vision": "member"}},
        {"name": "tenant-admin", "tenants": {"vision": "tenant_admin"}},
        {"name": "viewer", "role": "viewer"},
        {"name": "operator", "role": "operator"},
        {"name": "admin", "role": "admin"},
        {"name": "ann", "tenants": {"vision": "member"}},
    ],
    "notifications": {
        "email": {"host": "127.0.0.1", "port": 9, "security": "none", "sender": "a@b.example", "domains": ["*"]}
    },
    "billing": {"prices": [{"resource": "device", "per_hour": 1}]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose only node takes nothing of the default pool: what is submitted never runs."""
    declared = cluster_file(1, 1, allow_waiting_for_nodes=True, job_account="nobody") | CLUSTER
    declared["nodes"][0]["pool"] = "kept"
    limits = LIMITS | {"requests_burst": 10**6, "requests_per_s": 10**6}
    with Server(tmp_path_factory.mktemp("rights") / "data", declared, limits=limits) as opened:
        yield opened


def call(server: Server, method: str, path: str, token: str, body: Any = None) -> tuple[int, bytes]:
    data = json.dumps({} if body is None else body).encode() if method in ("POST", "PUT") else None
    answer = server.http(method, path, data, token=token)
    return answer.status, answer.body


@pytest.fixture(scope="module")
def callers(server: Server) -> list[Caller]:
    """A token of the highest level for each role, and of the lower ones for administrators."""
    found = []
    for role in ROLES:
        for level in LEVELS if role == "admin" else LEVELS[-1:]:
            wanted = {"user": role.replace(" ", "-").replace("_", "-"), "level": level}
            status, answer = call(server, "POST", "/api/v1/tokens", server.token, wanted)
            assert status == 201, answer
            found.append(Caller(role, level, json.loads(answer)["token"]))
    return found


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    return server.http("GET", "/api/v1/openapi.json").json()


def test_every_operation_says_who_may(document):
    known = {f"{m.upper()} {path.removeprefix('/api/v1')}" for path, ops in document["paths"].items() for m in ops}
    assert known ^ {*RIGHTS} == set(), "put it into server/http/rights.py"


def may(right: Right, caller: Caller) -> bool:
    return caller.role in right.roles and LEVELS.index(caller.level) >= LEVELS.index(right.level)


@pytest.mark.parametrize("operation", [one for one in RIGHTS if one not in ENDLESS])
def test_who_may_is_as_it_is_said(server, callers, operation):
    right, (method, path) = RIGHTS[operation], operation.split()
    member = next(caller.token for caller in callers if caller.role == "member")
    _, made = call(server, "POST", "/api/v1/jobs", member, {"command": "sleep 60", "tenant": "vision", "devices": 1})
    names = {"job_id": str(json.loads(made)["jobs"][0]["id"]), "node": "n1", "tenant": "vision", "token_id": "none"}
    path = re.sub(r"\{(\w+)\}", lambda part: names.get(part[1], "7"), path)
    refused = {c for c in callers if call(server, method, f"/api/v1{path}", c.token, BODIES.get(operation))[0] == 403}
    if operation.startswith("DELETE /tokens"):  # what one may not revoke is as if it did not exist
        assert refused == set()
    else:
        assert refused == {caller for caller in callers if not may(right, caller)}
    assert call(server, method, f"/api/v1{path}", "", BODIES.get(operation))[0] == (
        404 if "/oidc/" in operation else 200 if right is PUBLIC else 401  # no identity provider is declared
    )


BODIES = {
    "POST /jobs": {"command": "true", "tenant": "vision"},
    "POST /plan": {"command": "true", "tenant": "vision"},
    "POST /jobs/actions": {"action": "hold", "select": {"all": True}, "dry_run": True},
    "POST /config": {"set": ["settings.defrag=true"], "dry_run": True},
    "POST /logins": {"code": "none"},
    "POST /oidc/start": {"redirect_uri": "none"},
    "POST /oidc/finish": {"code": "none", "state": "none", "code_verifier": "none"},
    "PUT /secrets/{name}": {"value": "x"},
}
"""Where the refusal depends on what is asked."""


def test_every_operation_has_an_example(document):
    assert len(examples()) == sum(len(ops) for ops in document["paths"].values())


@pytest.mark.parametrize("line", [one for one in examples() if " -N " not in one and "@chunks" not in one])
def test_an_example_is_accepted(server, line):
    words = shlex.split(line.replace("$PENSTOCK_URL", "").replace("$TOKEN", "TOKEN"))
    path = next(word for word in words if word.startswith("/api/"))
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if body else "GET"
    status, answer = call(server, method, path, server.token, body)
    assert status in (200, 201, 202, 404, 409) or path == "/api/v1/logins", answer  # no such invoice, no month, no code
