"""Pages of docs/ about the HTTP API, from the OpenAPI document of a server: its operations, and their types."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from shapes import UNITS, Json, cell, classes, kind_of, reach, shape

from penstock.core.model import events
from penstock.core.model.cluster import ClusterConfig
from penstock.server.http.rights import RIGHTS
from penstock.server.routes.openapi import declared_types
from penstock.testing.server import InProcessServer

NOUNS = {
    "Jobs": ("jobs",),
    "Cluster": (
        "health",
        "me",
        "cluster",
        "nodes",
        "queues",
        "pools",
        "quotas",
        "alerts",
        "defrag",
        "cycle",
        "timeline",
    ),
    "Looking ahead": ("plan", "eta", "whatif"),
    "The log": ("events", "changes", "counts"),
    "Money": ("usage", "waste", "bill", "accounts", "ledger", "invoices"),
    "Access": ("tokens", "login-links", "logins", "sessions", "oidc", "secrets", "secret-key"),
    "What is declared": ("config", "schema"),
    "Notifications": ("notifications",),
}
MORE = "More"
VALUES = {
    "job_id": "1",
    "node": "node-a",
    "index": "0",
    "tenant": "vision",
    "record": "17",
    "number": "INV-000001",
    "name": "HF_TOKEN",
}
"""Of parts of paths, in examples."""
PARAMETERS = {
    "idempotency-key": "a text of your own; the same request with the same one is done once",
    "limit": "maximum number of entries",
    "tenant": "only of this tenant",
    "user": "only of this user",
    "queue": "only of this queue",
    "node": "only of this node",
    "job": "only of this job",
    "attempt": "number of the attempt, from 1",
    "rank": "number of the replica, from 0",
    "offset": "byte to begin at",
    "before": "only finished jobs with a lower number",
    "after": "only events with a higher number",
    "last-event-id": "the same, as browsers send it",
    "format": "of the answer",
    "language": "of the document",
    "reason": "in words, for those who ask why",
    "token_id": "as the list of tokens has it",
    "q": "what to look for",
    "ignore_case": "whether capitals do not matter",
}
"""What parameters mean that say nothing of themselves."""
HEAD = """\
# HTTP API

From the OpenAPI document of the server (`GET /api/v1/openapi.json`) by `make docs`. Command line, Python client and web
pages are clients of it and of nothing else. Below, `$PENSTOCK_URL` is the server's address, such as
`http://127.0.0.1:7070`, and `$TOKEN` a token (`penstock token create`; that of the local administrator is in the file
`token` of the data folder).

- Each operation says who may call it. Where that is a token, it is sent as `Authorization: Bearer TOKEN`. What a caller
  may not see is answered as if it did not exist.
- Bodies are JSON. A list is cut at `limit`; the answer says how to go on.
- A write with the header `Idempotency-Key` may be sent again with the same key: it is done once, answered as before.
- Errors are problem details with a stable `code`: [error codes](errors.md). What one request may cost:
  [budgets](api-budgets.md).
- A server on standby answers writes with `not_leader` and the address of the leader.
"""


def openapi() -> Json:
    """Return the OpenAPI document, as a server gives it."""
    with (
        InProcessServer() as server,
        urllib.request.urlopen(f"{server.url}/api/v1/openapi.json") as answer,  # noqa: S310 - a server of this process
    ):
        return dict(json.load(answer))


def api_pages() -> dict[str, str]:
    """Return the page of the operations, and that of the types, by file name."""
    document = openapi()
    schemas = document["components"]["schemas"]
    logged = _event_names()
    wanted: dict[str, None] = {}

    def link(name: str) -> str:
        if name == "JobRequest":
            return "[a job file](job-fields.md)"
        return f"[{name}]({_home(name, logged)}#{name.lower()})"

    groups: dict[str, list[str]] = {title: [] for title in (*NOUNS, MORE)}
    for path, ops in document["paths"].items():
        noun = path.removeprefix("/api/v1/").split("/")[0]
        title = next((title for title, nouns in NOUNS.items() if noun in nouns), MORE)
        for method, operation in ops.items():
            groups[title] += _operation(method.upper(), path, operation, link)
            for name in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(operation)):
                reach(name, schemas, wanted, {*logged, "JobRequest"})
    page = [HEAD]
    for title, lines in groups.items():
        page += [f"## {title}", "", *lines] if lines else []
    structs = classes(declared_types())
    types = [
        "# Types of the API",
        "",
        "What [operations](api.md) take and answer, from the OpenAPI document by `make docs`.",
        *UNITS,
        "",
    ]
    for name in sorted(wanted):
        if name not in logged and name != "JobRequest":
            types += shape(name, schemas, structs, {}, lambda one: link(one).replace("(api-types.md#", "(#"))
    return {
        "api.md": "\n".join(page).rstrip() + "\n",
        "api-types.md": "\n".join(types).rstrip().replace("### ", "## ") + "\n",
    }


def _event_names() -> set[str]:
    seen: dict[str, None] = {}
    _, schemas = msgspec.json.schema_components([events.AnyEvent], ref_template="{name}")
    for kind in get_args(events.AnyEvent):
        reach(kind.__name__, schemas, seen, {ClusterConfig.__name__})
    return {*seen} - {ClusterConfig.__name__}


def _home(name: str, logged: Iterable[str]) -> str:
    return "events.md" if name in logged else "api-types.md"


def _operation(method: str, path: str, operation: Json, link: Any) -> list[str]:
    """Return one operation: what it does, who may, parameters, body, answers, an example."""
    short = path.removeprefix("/api/v1")
    right = RIGHTS.get(f"{method} {short}")
    if right is None:
        raise SystemExit(f"docs: who may call {method} {short} is to be said in server/http/rights.py")
    lines = [f"### {method} {short}", "", " ".join(operation.get("description", "").split()), ""]
    level = f"; level `{right.level}` or more" if right.level != "read" else ""
    lines += [f"Who may: {right.text}{level}.", ""]
    rows = [_parameter(one, link) for one in operation.get("parameters", ())]
    lines += ["| parameter | in | type | default | meaning |", "|---|---|---|---|---|", *rows, ""] if rows else []
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        sent = content.get("application/json")
        lines += [f"Body: {kind_of(sent['schema'], link) if sent else ', '.join(content)}.", ""]
    return [*lines, *_answers(operation["responses"], link), "", *_example(method, path, operation), ""]


def _parameter(one: Json, link: Any) -> str:
    where = f"{one['in']}, required" if one.get("required") else one["in"]
    cells = (f"`{one['name']}`", where, kind_of(one["schema"], link), _default(one["schema"]))
    filters = f"only what has this {one['name']}" if one["in"] == "query" else ""
    return f"| {' | '.join(cells)} | {cell(one.get('description') or PARAMETERS.get(one['name'], filters))} |"


def _default(schema: Json) -> str:
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") not in (None, "") else ""


def _answers(responses: Json, link: Any) -> list[str]:
    good = {status: one for status, one in responses.items() if status.startswith("2")}
    (first, *_) = good.values()
    kinds = []
    for media, of in first["content"].items():
        named = kind_of(of["schema"], link) if of["schema"] else ""
        kinds.append(named if media == "application/json" and named else f"`{media}`")
    headers = "".join(f" Header `{name}`: {of['description']}." for name, of in first.get("headers", {}).items())
    known = " or ".join(good)
    return [f"Answers {known}: {' or '.join(dict.fromkeys(kinds))}.{headers}"]


def _example(method: str, path: str, operation: Json) -> list[str]:
    """Return a call by curl that needs no more than what it shows."""
    path = re.sub(r"\{(\w+)\}", lambda part: urllib.parse.quote(VALUES.get(part[1], "3f2a9c")), path)
    query = "&".join(
        f"{one['name']}={one['schema'].get('minimum', 1)}"
        for one in operation.get("parameters", ())
        if one["in"] == "query" and one.get("required")
    )
    address = f"$PENSTOCK_URL{path}" + (f"?{query}" if query else "")
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    endless = any("text/event-stream" in one.get("content", {}) for one in operation["responses"].values())
    token = ' -H "Authorization: Bearer $TOKEN"' if operation.get("security") else ""
    way = "" if method == "GET" or (method == "POST" and body) else f" -X {method}"
    line = f'    curl -sS{" -N" if endless else ""}{way}{token} "{address}"'
    if not body:
        sent = operation.get("requestBody", {}).get("content", {})
        return [f"{line} --data-binary @chunks" if "application/octet-stream" in sent else line]
    return [line + " \\", f"      -H 'Content-Type: application/json' -d '{json.dumps(body)}'"]
