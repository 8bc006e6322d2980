"""Nobody sees or does what is not theirs: every operation of the API, by everybody, on what belongs to whom.

What is expected is a table of its own (`GRIDS`, `OPERATIONS`), which knows nothing of how the server decides. An
operation of the document without a row is an error, and so is a row without an operation.
"""

import contextlib
import hashlib
import http.client
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from penstock.core.model import events as ev
from penstock.core.model.access import Scope, Token
from penstock.core.model.access_events import AccessEntry
from penstock.core.model.cluster import CHECKED_BY, NodeSpec, OthersLoad
from penstock.core.model.invoices import Invoice, InvoiceLine
from penstock.core.model.nodes import DeviceUser
from penstock.core.model.prices import Party
from penstock.core.model.resources import Device, Resources
from penstock.engines.processes.paths import DataFolder
from penstock.server.views.reads import Reads
from penstock.store.sqlite import SqliteStore
from tests.server.harness import LIMITS, Answer, Server, until

API = "/api/v1"
UNKNOWN_JOB = 999_999
IDLE_MAX_S = 1.0

# Words that are tenant B's, each in one place. Nobody of tenant A may ever get one to see.

TENANT_B = "velmoctad"
SECRETS = {
    "tenant": TENANT_B,
    "member": "tuskorrel",
    "viewer": "prandlewisp",
    "admin": "gorvachine",
    "finished job": "quolbrithe",
    "live job": "hexamburl",
    "command": "mivardune",
    "environment": "plexognar",
    "name of a variable": "SNARVOLIK",
    "label": "frondequil",
    "working directory": "drummelkot",
    "output": "grumfonzel",
    "error": "yottaplimse",
    "error of a device": "klavendrosh",
    "idempotency key": "wexlumbrat",
    "budget": "cranvelloop",
    "credit": "bistromogue",
    "note of a credit": "ulvarettin",
    "customer": "zephandorie",
    "note of an invoice": "ombrelquist",
    "payment": "jarquelfin",
    "billed job": "vintrapool",
    "note of a token": "ostravimbe",
    "description": "nembrothul",
    "reservation": "kwistelmar",
    "failure of a node": "thrakkovine",
    "user of a device": "wendrokhast",
    "program on a device": "brassiquolt",
    "claim of a job": "dravonquist",
    "who was turned away": "pelzimmurra",
    "name of a schedule": "trovindelque",
    "name of a secret": "mulvanderskip",
    "value of a secret": "corvexitrun",
}
FOR_OPERATORS = ("description", "reservation", "failure of a node", "user of a device", "program on a device")
"""Shown to those alone who see the whole cluster."""
STRANGER = SECRETS["user of a device"], SECRETS["program on a device"]
FOR_ADMINISTRATORS = ("note of a token", "who was turned away")
"""Shown to the viewer of the whole cluster neither."""
FOR_NOBODY = ("value of a secret",)
USERS = [
    {"name": "vera", "role": "viewer"},
    {"name": "otto", "role": "operator"},
    {"name": "adele", "role": "admin"},
    {"name": "mila", "role": "viewer", "tenants": {"alpha": "member"}},
    {"name": "anna", "tenants": {"alpha": "viewer"}},
    {"name": "ann", "tenants": {"alpha": "member"}},
    {"name": "amy", "tenants": ["alpha"]},
    {"name": "abel", "tenants": {"alpha": "tenant_admin"}},
    {"name": "bea", "tenants": {"alpha": "tenant_admin", TENANT_B: "tenant_admin"}},
    {"name": "bert", "tenants": {"alpha": "member", TENANT_B: "member"}},
    {"name": SECRETS["viewer"], "tenants": {TENANT_B: "viewer"}},
    {"name": SECRETS["member"], "tenants": {TENANT_B: "member"}},
    {"name": SECRETS["admin"], "tenants": {TENANT_B: "tenant_admin"}},
    {"name": "nora"},
    {"name": "dora", "tenants": {"alpha": "tenant_admin"}, "disabled": True},
]
CALLERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "viewer": ("vera", "admin", ()),
    "operator": ("otto", "admin", ()),
    "operator_write": ("otto", "write", ()),
    "operator_read": ("otto", "read", ()),
    "admin": ("adele", "admin", ()),
    "admin_write": ("adele", "write", ()),
    "admin_read": ("adele", "read", ()),
    "viewer_in_a": ("vera", "admin", ("alpha",)),
    "operator_in_a": ("otto", "admin", ("alpha",)),
    "admin_in_a": ("adele", "admin", ("alpha",)),
    "mixed": ("mila", "admin", ()),
    "a_viewer": ("anna", "admin", ()),
    "member": ("ann", "admin", ()),
    "member_write": ("ann", "write", ()),
    "member_read": ("ann", "read", ()),
    "a_admin": ("abel", "admin", ()),
    "a_admin_write": ("abel", "write", ()),
    "a_admin_read": ("abel", "read", ()),
    "both": ("bea", "admin", ()),
    "both_in_a": ("bea", "admin", ("alpha",)),
    "b_viewer": (SECRETS["viewer"], "admin", ()),
    "b_member": (SECRETS["member"], "admin", ()),
    "b_admin": (SECRETS["admin"], "admin", ()),
    "nobody": ("nora", "admin", ()),
}
"""Whose token, of which level, limited to which tenants."""
STRANGERS = ("no token", "a wrong one", "expired", "revoked", "disabled", "undeclared")
OF_A_ONLY = (
    "viewer_in_a", "operator_in_a", "admin_in_a", "a_viewer", "member", "member_write", "member_read",
    "a_admin", "a_admin_write", "a_admin_read", "both_in_a", "nobody",
)  # fmt: skip

PROBING = ("admin_in_a", "member", "a_admin", "both_in_a", "nobody", "viewer", "b_admin")
"""Who is asked for more than the matrix does."""

# The table. A grid says, for each caller (but strangers, who are always refused), what follows for each target: `ok`
# stands for the status of the operation's row. `local` is whoever can read the server's own folder.

GRIDS = {
    "anybody": """
                      -
        everybody     ok
    """,
    "whole": """
                      -
        viewer        ok
        operator      ok
        operator_write ok
        operator_read ok
        admin         ok
        admin_write   ok
        admin_read    ok
        mixed         ok
        local         ok
        everybody     403
    """,
    "list": """
                      all a   b   none
        everybody     ok  ok  ok  ok
    """,
    "see": """
                      all a   b   none
        viewer        ok  ok  ok  404
        operator      ok  ok  ok  404
        operator_write ok ok  ok  404
        operator_read ok  ok  ok  404
        admin         ok  ok  ok  404
        admin_write   ok  ok  ok  404
        admin_read    ok  ok  ok  404
        mixed         ok  ok  ok  404
        both          ok  ok  ok  404
        local         ok  ok  ok  404
        viewer_in_a   ok  ok  404 404
        operator_in_a ok  ok  404 404
        admin_in_a    ok  ok  404 404
        a_viewer      ok  ok  404 404
        member        ok  ok  404 404
        member_write  ok  ok  404 404
        member_read   ok  ok  404 404
        a_admin       ok  ok  404 404
        a_admin_write ok  ok  404 404
        a_admin_read  ok  ok  404 404
        both_in_a     ok  ok  404 404
        b_viewer      ok  404 ok  404
        b_member      ok  404 ok  404
        b_admin       ok  404 ok  404
        nobody        ok  404 404 404
    """,
    "act": """
                      own colleague b   none
        operator      ok  ok        ok  404
        operator_write ok ok        ok  404
        admin         ok  ok        ok  404
        admin_write   ok  ok        ok  404
        both          ok  ok        ok  404
        local         ok  ok        ok  404
        viewer        403 403       403 404
        operator_read 403 403       403 404
        admin_read    403 403       403 404
        mixed         403 403       403 404
        operator_in_a ok  ok        404 404
        admin_in_a    ok  ok        404 404
        a_admin       ok  ok        404 404
        a_admin_write ok  ok        404 404
        both_in_a     ok  ok        404 404
        member        ok  403       404 404
        member_write  ok  403       404 404
        viewer_in_a   403 403       404 404
        a_viewer      403 403       404 404
        member_read   403 403       404 404
        a_admin_read  403 403       404 404
        b_admin       404 404       ok  404
        b_member      404 404       ok  404
        b_viewer      404 404       403 404
        nobody        404 404       404 404
    """,
    "act on many": """
                      own colleague b   none
        operator      ok  ok        ok  404
        operator_write ok ok        ok  404
        admin         ok  ok        ok  404
        admin_write   ok  ok        ok  404
        both          ok  ok        ok  404
        local         ok  ok        ok  404
        mixed         403 403       403 404
        operator_in_a ok  ok        404 404
        admin_in_a    ok  ok        404 404
        a_admin       ok  ok        404 404
        a_admin_write ok  ok        404 404
        both_in_a     ok  ok        404 404
        member        ok  403       404 404
        member_write  ok  403       404 404
        b_admin       404 404       ok  404
        b_member      404 404       ok  404
        everybody     403 403       403 403
    """,
    "submit": """
                      a   b   none
        admin         ok  ok  422
        admin_write   ok  ok  422
        local         ok  ok  422
        both          ok  ok  403
        admin_in_a    ok  403 403
        mixed         ok  403 403
        member        ok  403 403
        member_write  ok  403 403
        a_admin       ok  403 403
        a_admin_write ok  403 403
        both_in_a     ok  403 403
        b_member      403 ok  403
        b_admin       403 ok  403
        everybody     403 403 403
    """,
    "send": """
                      -
        admin         ok
        admin_write   ok
        local         ok
        both          ok
        admin_in_a    ok
        mixed         ok
        member        ok
        member_write  ok
        a_admin       ok
        a_admin_write ok
        both_in_a     ok
        b_member      ok
        b_admin       ok
        everybody     403
    """,
    "operate": """
                      node none
        operator      ok   404
        operator_write ok  404
        admin         ok   404
        admin_write   ok   404
        local         ok   404
        everybody     403  403
    """,
    "administer": """
                      a   b   none
        admin         ok  ok  404
        local         ok  ok  404
        everybody     403 403 403
    """,
    "declare": """
                      -
        admin         ok
        local         ok
        everybody     403
    """,
    "remove node": """
                      none
        admin         404
        local         404
        everybody     403
    """,
    "make token": """
                      self amy both b_member none
        admin         ok   ok  ok   ok       422
        local         422  ok  ok   ok       422
        both          ok   ok  ok   ok       403
        a_admin       ok   ok  403  403      403
        b_admin       ok   403 403  ok       403
        viewer        ok   403 403  403      403
        operator      ok   403 403  403      403
        mixed         ok   403 403  403      403
        a_viewer      ok   403 403  403      403
        member        ok   403 403  403      403
        b_viewer      ok   403 403  403      403
        b_member      ok   403 403  ok       403
        nobody        ok   403 403  403      403
        everybody     403  403 403  403      403
    """,
    "set secret": """
                      own a   b   none
        admin         ok  ok  ok  422
        local         ok  ok  ok  422
        admin_write   ok  403 403 403
        both          ok  ok  ok  403
        a_admin       ok  ok  403 403
        b_admin       ok  403 ok  403
        admin_in_a    403 ok  403 403
        both_in_a     403 ok  403 403
        mixed         ok  403 403 403
        member        ok  403 403 403
        member_write  ok  403 403 403
        a_admin_write ok  403 403 403
        b_member      ok  403 403 403
        everybody     403 403 403 403
    """,
    "remove secret": """
                      a   b   none
        admin         ok  ok  404
        local         ok  ok  404
        both          ok  ok  404
        admin_in_a    ok  404 404
        a_admin       ok  404 404
        both_in_a     ok  404 404
        viewer        403 403 404
        operator      403 403 404
        operator_write 403 403 404
        operator_read 403 403 404
        admin_write   403 403 404
        admin_read    403 403 404
        mixed         403 403 404
        viewer_in_a   403 404 404
        operator_in_a 403 404 404
        a_viewer      403 404 404
        member        403 404 404
        member_write  403 404 404
        member_read   403 404 404
        a_admin_write 403 404 404
        a_admin_read  403 404 404
        b_admin       404 ok  404
        b_member      404 403 404
        b_viewer      404 403 404
        nobody        404 404 404
    """,
    "set notification": """
                      own a   b   nodes
        admin         ok  ok  ok  ok
        local         ok  ok  ok  ok
        both          ok  ok  ok  403
        a_admin       ok  ok  403 403
        b_admin       ok  403 ok  403
        operator      ok  403 403 ok
        operator_write ok 403 403 ok
        admin_write   ok  403 403 ok
        viewer        ok  403 403 403
        mixed         ok  403 403 403
        a_viewer      ok  403 403 403
        member        ok  403 403 403
        member_write  ok  403 403 403
        a_admin_write ok  403 403 403
        b_viewer      ok  403 403 403
        b_member      ok  403 403 403
        nobody        ok  403 403 403
        everybody     403 403 403 403
    """,
    "own notification": """
                      -
        viewer_in_a   403
        operator_in_a 403
        admin_in_a    403
        both_in_a     403
        operator_read 403
        admin_read    403
        member_read   403
        a_admin_read  403
        everybody     ok
    """,
    "revoke token": """
                      amy both b_member none
        admin         ok  ok   ok       404
        local         ok  ok   ok       404
        both          ok  ok   ok       404
        a_admin       ok  404  404      404
        b_admin       404 404  ok       404
        b_member      404 404  ok       404
        everybody     404 404  404      404
    """,
}


GRIDS["list jobs"] = GRIDS["see"].replace("404", "422")
"""A tenant that is not seen is answered like one that does not exist."""


class Row(NamedTuple):
    """What is expected of one operation, and how it is asked."""

    grid: str
    ok: int = 200
    query: str = ""
    body: Any = None
    targets: tuple[str, ...] = ()
    """Of the grid; none: all of them."""
    live: bool = True
    """Whether those who may are tried on what still runs, too."""
    public: bool = False


class Named(NamedTuple):
    """A value of a request that depends on its target."""

    what: str


TENANT = "?tenant={tenant}"
OF_USER = "?user={of}"
SEEN = ("a", "b", "none")
OPERATIONS = {
    "POST /jobs": Row("submit", 200, body={"command": "true", "tenant": Named("tenant"), "after_any": Named("live")}),
    "GET /jobs": Row("list jobs", query=TENANT + "&finished=true"),
    "GET /jobs/{job_id}": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/explanation": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/events": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/eta": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/diagnosis": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/outputs": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/logs": Row("see", query="?attempt=1", targets=SEEN),
    "GET /jobs/{job_id}/logs/search": Row("see", query="?attempt=1&q=e", targets=SEEN),
    "GET /jobs/{job_id}/attempts": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/series": Row("see", targets=SEEN),
    "GET /jobs/{job_id}/reported": Row("see", targets=SEEN),
    "POST /jobs/actions": Row("act on many", body={"action": "cancel", "select": Named("select")}),
    "POST /jobs/{job_id}/cancel": Row("act", live=False),
    "POST /jobs/{job_id}/checkpoint": Row("act", 409),
    "GET /snapshots": Row("send"),
    "DELETE /snapshots/{name}": Row("send", 404),
    "POST /snapshots": Row("send", body={"snapshot": "0" * 64}),
    "POST /snapshots/chunks": Row("send", 422, body={}),
    "GET /health": Row("anybody", public=True),
    "POST /logins": Row("anybody", 401, body={"code": "a code of nobody"}, public=True),
    "GET /oidc": Row("anybody", public=True),
    "POST /oidc/start": Row("anybody", 404, body={"redirect_uri": "https://p.example.org/callback"}, public=True),
    "POST /oidc/finish": Row("anybody", 404, body={"code": "c", "state": "s", "code_verifier": "v"}, public=True),
    "POST /login-links": Row("anybody", body={"path": "/jobs/1"}),
    "POST /sessions": Row("anybody"),
    "GET /me": Row("anybody"),
    "GET /cluster": Row("anybody"),
    "GET /nodes": Row("anybody"),
    "GET /nodes/{node}": Row("anybody"),
    "GET /nodes/{node}/devices/{index}": Row("anybody"),
    "GET /devices": Row("anybody"),
    "POST /nodes/{node}/drain": Row("operate", query="?on=false"),
    "POST /nodes/{node}/devices/{index}/close": Row("operate"),
    "POST /nodes/{node}/devices/{index}/open": Row("operate"),
    "POST /joined-nodes": Row("declare", body={"name": "away"}),
    "GET /joined-nodes": Row("declare"),
    "DELETE /joined-nodes/{node}": Row("remove node"),
    "GET /schema/job": Row("anybody"),
    "GET /schema/cluster": Row("anybody"),
    "GET /queues": Row("anybody"),
    "GET /pools": Row("anybody"),
    "GET /alerts": Row("anybody"),
    "GET /defrag": Row("whole"),
    "GET /cycle": Row("whole"),
    "POST /plan": Row("submit", body={"command": "true", "tenant": Named("tenant")}),
    "GET /eta": Row("anybody", query="?max_age=86400000"),
    "GET /eta/calibration": Row("anybody"),
    "GET /events": Row("anybody", query="?limit=10000"),
    "GET /events/stream": Row("anybody"),
    "GET /changes": Row("anybody", query="?topics=jobs,nodes,counts"),
    "GET /counts": Row("anybody"),
    "GET /bill": Row("see", query=TENANT),
    "GET /accounts": Row("see", query=TENANT),
    "POST /accounts/{tenant}/credits": Row("administer", body={"amount": 9000, "reference": Named("reference")}),
    "GET /ledger": Row("see", query=TENANT),
    "POST /ledger/{record}/reversal": Row("administer", 409, body={"reason": "r"}),
    "GET /invoices": Row("list", query=TENANT),
    "POST /invoices": Row("administer", 409, body={"tenant": Named("tenant")}),
    "GET /invoices/{number}": Row("see", targets=SEEN),
    "POST /invoices/{number}/payments": Row("administer", body={"amount": 10, "reference": Named("payment")}),
    "POST /invoices/{number}/corrections": Row("administer", 409, body={"amount": 10**6, "reason": "r"}),
    "GET /tokens": Row("anybody"),
    "POST /tokens": Row("make token", 201, body={"user": Named("user")}),
    "DELETE /tokens/{token_id}": Row("revoke token"),
    "GET /secrets": Row("anybody"),
    "PUT /secrets/{name}": Row("set secret", body={"value": SECRETS["value of a secret"], "tenant": Named("holder")}),
    "DELETE /secrets/{name}": Row("remove secret", query=TENANT),
    "GET /schedules": Row("anybody"),
    "GET /schedules/{name}": Row("see", query=OF_USER, targets=SEEN),
    "PUT /schedules/{name}": Row(
        "submit", body={"command": "true", "tenant": Named("tenant"), "schedule": {"cron": "@yearly"}}
    ),
    "POST /schedules/{name}/actions": Row("act on many", query=OF_USER, body={"action": "pause"}),
    "DELETE /schedules/{name}": Row("act on many", query=OF_USER),
    "GET /notifications": Row("anybody"),
    "PUT /notifications/{name}": Row(
        "set notification",
        body={"channel": "command", "to": "pager", "events": Named("events"), "tenant": Named("about")},
    ),
    "DELETE /notifications/{name}": Row("own notification", 404),
    "POST /notifications/{name}/test": Row("own notification", 404),
    "POST /secret-key": Row("declare"),
    "GET /series": Row("anybody", query="?names=devices_held,jobs_waiting,starts,waiting_by_reason"),
    "POST /whatif": Row("whole", ok=422, body={}),
    "GET /whatif": Row("whole"),
    "GET /whatif/{whatif_id}": Row("whole", ok=404),
    "DELETE /whatif/{whatif_id}": Row("whole", ok=404),
    "GET /timeline": Row("anybody", query="?from=2020-01-01T00:00Z&until=2020-01-02T00:00Z"),
    "GET /usage": Row("anybody", query="?by=tenant,user,queue,pool,job,node"),
    "GET /waste": Row("anybody", query="?by=tenant,user,queue,pool,job,node"),
    "GET /quotas": Row("anybody"),
    "GET /config": Row("whole"),
    "POST /config": Row("declare", body={"set": ["settings.defrag=false"], "dry_run": True}),
}


def grid(name: str) -> dict[str, dict[str, int | None]]:
    """Return by caller and target what a grid says; None stands for the status of the operation."""
    head, *lines = (line.split() for line in GRIDS[name].strip().splitlines())
    said = {caller: [None if cell == "ok" else int(cell) for cell in cells] for caller, *cells in lines}
    assert all(len(cells) == len(head) for cells in said.values()), name
    callers = [*CALLERS, "local"]
    assert set(said) <= {*callers, "everybody"}, name
    return {caller: dict(zip(head, said.get(caller) or said["everybody"], strict=True)) for caller in callers}


# The world: a log of former months, and a server that goes on from there.


def secret_of(caller: str) -> str:
    """Return the secret of the token that the log holds for a caller."""
    return "pst_" + hashlib.sha256(caller.encode()).hexdigest()


def token(caller: str, user: str, level: str = "admin", tenants: tuple[str, ...] = (), **fields: Any) -> ev.TokenIssued:
    digest = hashlib.sha256(secret_of(caller).encode()).hexdigest()
    return ev.TokenIssued(Token(f"id-{caller}", digest, user, level, tenants, 1, **fields))


REVERSED: dict[str, int] = {}
"""The record of a credit of each tenant that was reversed."""


def former_months(data: Path) -> None:
    """Write the log of a cluster that has invoices, tokens, and a node that was closed for what a job met there."""
    now = datetime.now(UTC)
    end_ms = round(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp() * 1000)
    begin_ms = round(datetime(now.year - (now.month == 1), (now.month + 10) % 12 + 1, 1, tzinfo=UTC).timestamp() * 1000)
    found: list[ev.AnyEvent] = [token(caller, *said) for caller, said in CALLERS.items()]
    found += [
        token("expired", "ann", expires_ms=2),
        token("revoked", "ann"),
        ev.TokenRevoked("id-revoked"),
        token("disabled", "dora"),
        token("undeclared", "gone"),
        token("of amy", "amy"),
        token("of b", SECRETS["member"], note=SECRETS["note of a token"]),
        ev.AccessNoted("login_failed", (AccessEntry("203.0.113.7", SECRETS["who was turned away"], 3, 1, 2),)),
        ev.NodeRegistered(NodeSpec("n9", Resources(1_000, 2**30), (Device(0, "nvidia", "A100", 2**36),)), "old"),
        ev.OthersLoadChanged("n9", OthersLoad(devices=(0,), users=(DeviceUser(0, 7, *STRANGER),))),
        ev.NodeStruck("n9", SECRETS["failure of a node"], UNKNOWN_JOB, tenant=TENANT_B, user=SECRETS["member"]),
        ev.NodeShut("n9", TENANT_B, f"3 failures within 5m, the last: {SECRETS['claim of a job']}"),
        ev.NodeChecked("n9", passed=False, text="disk: no space"),
        ev.NodeDrainChanged("n9", True, CHECKED_BY, f"3 failures within 5m, the last: {SECRETS['failure of a node']}"),
    ]
    customers = {"alpha": Party("Alpha"), TENANT_B: Party(SECRETS["customer"], note=SECRETS["note of an invoice"])}
    references = {"alpha": ("a-credit", "a-paid"), TENANT_B: (SECRETS["credit"], SECRETS["payment"])}
    for number, (tenant, customer) in enumerate(customers.items(), 1):
        credit, paid = references[tenant]
        user = SECRETS["member"] if tenant == TENANT_B else "ann"
        job = SECRETS["billed job"] if tenant == TENANT_B else "a-billed"
        line = InvoiceLine(
            "default", user, UNKNOWN_JOB, job, "cpu", "", 3_600_000_000, 50_000, 1_000, 1_000, 5_000, 5_000
        )
        made = Invoice(
            f"INV-{number:06}", "invoice", tenant, end_ms, begin_ms, end_ms, "UTC", "EUR", 2, (line,),
            5_000, 0, 5_000, 0, 5_000, customer=customer,
        )  # fmt: skip
        note = SECRETS["note of a credit"] if tenant == TENANT_B else "paid"
        found += [
            ev.QuotaNoted(f"tenant:{tenant}", "jobs", 100, 1, 1, f"tenant {tenant} uses 1 of 1 jobs (100 %)"),
            ev.UsagePosted(tenant, begin_ms, end_ms, 5_000),
            ev.InvoiceIssued(made),
            ev.InvoicePaid(tenant, made.number, paid, 1_000, "adele"),
            ev.CreditAdded(tenant, credit, 900_000, "payment", by="adele", note=note),
            ev.CreditAdded(tenant, f"{credit} wrong", 7, "payment", by="adele"),
        ]
        REVERSED[tenant] = len(found)
        said = {"added_ms": end_ms, "reason": f"{tenant} erred"}
        found.append(ev.MoneyReversed(tenant, len(found), f"{credit} wrong", 7, **said))
    store = SqliteStore(DataFolder(data).log)
    records = [ev.Record(seq, end_ms, event) for seq, event in enumerate(found, 1)]
    store.append(records, [], store.acquire_epoch())
    store.close()


def declared() -> dict[str, Any]:
    node = {"cpus": 32, "memory": "8GiB", "simulated_devices": {"count": 2}}
    now_s = int(time.time())
    return {
        "settings": {
            "job_account": "root",
            "heartbeat": "100ms",
            "lease_ttl": "20s",
            "lease_margin": "8s",
            "allow_waiting_for_nodes": True,
        },
        "tenants": [
            {"name": "alpha", "description": "of A", "budgets": [{"name": "a-month", "amount": 5000}]},
            {
                "name": TENANT_B,
                "description": SECRETS["description"],
                "budgets": [{"name": SECRETS["budget"], "amount": 5000}],
                "bill_to": {"name": SECRETS["customer"]},
            },
        ],
        "users": USERS,
        "billing": {"prices": [{"resource": "cpu", "per_hour": 1}], "invoices": {"issue": "manual"}},
        "notifications": {"commands": [{"name": "pager", "path": "/bin/true", "open_to": "everyone"}]},
        "reservations": [
            {
                "name": SECRETS["reservation"],
                "tenant": TENANT_B,
                "start": now_s - 3600,
                "end": now_s + 86_400,
                "nodes": ["n3"],
            }
        ],
        "nodes": [
            {"name": "n1", **node},
            {"name": "n2", **node},
            {"name": "n3", "cpus": 1, "memory": "1GiB", "labels": {"zone": "kept"}},
        ],
    }


class World:
    """The server, what was submitted to it, and everything that was answered."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.jobs: dict[str, int] = {}
        self.answers: dict[tuple[str, str, str, int], Answer] = {}
        """By operation, caller, target and number of the request."""
        self._connections: dict[str, tuple[http.client.HTTPConnection, float]] = {}
        """Of each caller, with when it was used last."""

    def secret(self, caller: str) -> str:
        if caller == "local":
            return self.server.token
        return {"no token": "", "a wrong one": "pst_wrong"}.get(caller, secret_of(caller))

    def ask(self, caller: str, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request over the caller's connection."""
        secret = self.secret(caller)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Authorization": f"Bearer {secret}"} if secret else {}
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection(caller)
        connection.request(method, API + path, data, sent)
        response = connection.getresponse()
        endless = response.headers["Content-Type"].startswith("text/event-stream")
        if endless:
            self._connections.pop(caller)[0].close()
        return Answer(response.status, dict(response.headers.items()), b"" if endless else response.read())

    def _connection(self, caller: str) -> http.client.HTTPConnection:
        """Return the caller's connection; a new one after a while without use, for the server ends those."""
        known, used_s = self._connections.get(caller, (None, 0.0))
        if known is None or time.monotonic() - used_s > IDLE_MAX_S:
            if known is not None:
                known.close()
            known = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self._connections[caller] = known, time.monotonic()
        return known

    def submit(self, caller: str, name: str, command: str | list[str], **fields: Any) -> int:
        key = {"Idempotency_Key": fields.pop("key")} if "key" in fields else {}
        job = {"name": name, "command": command, "grace": "5s", "cpus": 1, **fields}
        found = self.ask(caller, "POST", "/jobs", job, **key)
        assert found.status == 201, found.body
        return int(found.json()["jobs"][0]["id"])

    def state(self, job_id: int, *states: str) -> None:
        until(lambda: self.ask("local", "GET", f"/jobs/{job_id}").json()["state"] in states, f"{job_id} is {states}")

    def close(self) -> None:
        for connection, _ in self._connections.values():
            connection.close()


def submit_all(world: World) -> None:
    """Submit finished and running jobs of both tenants. The devices of n1 and n2 are B's, who would leave n2 alone."""
    out, error = SECRETS["output"], SECRETS["error"]
    halves = f"printf '%s%s\\n' {out[:4]} {out[4:]}"
    spoken = f"{halves}; printf '\\n%s%s\\n' 'RuntimeError: {error[:5]}' {error[5:]}; exit 3; {SECRETS['command']}"
    word = SECRETS["error of a device"]
    struck = f"printf '\\n%s%s CUDA driver\\n' 'RuntimeError: {word[:5]}' {word[5:]}; exit 4"
    secret = {
        "env": {SECRETS["name of a variable"]: SECRETS["environment"]},
        "labels": {"x": SECRETS["label"]},
        "key": SECRETS["idempotency key"],
    }
    hold = f"echo on; {halves}; sleep 600"
    world.jobs = {
        "own finished": world.submit("member", "a-own", "echo done"),
        "colleague finished": world.submit("of amy", "a-colleague", "echo done"),
        "b finished": world.submit("b_member", SECRETS["finished job"], spoken, **secret),
        "b struck": world.submit("b_member", "struck", struck),
        "b live": world.submit("b_member", SECRETS["live job"], hold, devices=2, priority="high", preemptible=False),
        "b low": world.submit("b_member", SECRETS["live job"], hold, devices=2, priority="low"),
        "own live": world.submit("member", "a-live", "echo on; sleep 600"),
        "colleague live": world.submit("of amy", "a-live-too", "echo on; sleep 600"),
    }
    for name, job_id in world.jobs.items():
        world.state(job_id, *(("running",) if name.split()[1] in ("live", "low") else ("succeeded", "failed")))
    for caller in ("member", "of amy", "b_member"):
        set_schedule(world, caller)
    place = "/" + SECRETS["working directory"]
    world.jobs["b waiting"] = world.submit("b_member", "b-waiting", "true", devices=2, replicas=2, workdir=place)
    world.jobs["own waiting"] = world.submit("member", "a-waiting", "true", devices=2, replicas=2)
    world.jobs["own never"] = world.submit("member", "a-never", "true", node_labels={"wanted": {"zone": "kept"}})
    for name in ("own live", "colleague live", "b live"):
        path = f"/jobs/{world.jobs[name]}/logs?attempt=1"
        until(lambda path=path: b"on" in world.ask("local", "GET", path).body, f"{name} says something")


def set_schedule(world: World, caller: str) -> None:
    name = SECRETS["name of a schedule"] if caller == "b_member" else "a-schedule"
    command = SECRETS["command"] if caller == "b_member" else "true"
    tenant = TENANT_B if caller == "b_member" else "alpha"
    body = {"command": command, "name": name, "tenant": tenant, "schedule": {"cron": "@yearly"}}
    assert world.ask(caller, "PUT", f"/schedules/{name}", body).status == 200


# Everything that is asked.


def values(world: World, target: str, job: str = "finished") -> dict[str, Any]:
    """Return what stands for a target in paths, queries and bodies."""
    tenant = {"b": TENANT_B, "none": "nowhere"}.get(target, "alpha")
    owner = {"a": "own", "none": ""}.get(target, target)
    return {
        "tenant": tenant,
        "job_id": world.jobs.get(f"{owner} {job}", UNKNOWN_JOB),
        "select": {"ids": [str(world.jobs.get(f"{owner} {job}", UNKNOWN_JOB))]},
        "live": world.jobs["b live" if target == "b" else "own live"],
        "number": {"b": "INV-000002", "none": "INV-000009"}.get(target, "INV-000001"),
        "reference": SECRETS["credit"] if target == "b" else "a-credit",
        "payment": SECRETS["payment"] if target == "b" else "a-paid",
        "record": REVERSED.get(tenant, 1),
        "whatif_id": "none",
        "node": "nowhere" if target == "none" else "n3",
        "index": "0",
        "events": {"a": ["budget"], "b": ["budget"], "nodes": ["node_lost"]}.get(target, ["end"]),
        "about": tenant if target in ("a", "b") else "",
        "name": {"b": SECRETS["name of a secret"], "none": "nothing", "-": "nothing"}.get(target, "A_SECRET"),
        "schedule": {"b": SECRETS["name of a schedule"], "none": "unset"}.get(target, "a-schedule"),
        "of": {"b": SECRETS["member"], "none": "nobodys", "colleague": "amy"}.get(target, "ann"),
        "holder": "" if target == "own" else tenant,
        "user": {"self": "", "both": "bert", "b_member": SECRETS["member"], "none": "noone"}.get(target, target),
    }


def requests(world: World, operation: str, caller: str, target: str) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Yield method, path, body and headers of each request that tries a target."""
    row = OPERATIONS[operation]
    method, path = operation.split(" ")
    allowed = grid(row.grid).get(caller, {}).get(target) is None
    states = ("finished", "live") if "{job_id}" in path and target != "none" else ("finished",)
    for state in states if row.live or not allowed else states[:1]:
        known = values(world, target, state)
        if "{index}" in path and target != "none":
            known["node"] = "n9"  # the others have work
        if "{token_id}" in path:
            known["token_id"] = fresh_token(world, known["user"]) if target != "none" else "none"
        if "/schedules/" in path and method != "PUT":
            known["name"] = known["schedule"]
            if method == "DELETE" and target != "none":
                set_schedule(world, {"b": "b_member", "colleague": "of amy"}.get(target, "member"))
        if operation == "DELETE /secrets/{name}" and target != "none":
            fresh_secret(world, known["name"], known["tenant"])
        query = "" if target == "all" else row.query.format(**known)
        body = row.body and {k: known[v.what] if isinstance(v, Named) else v for k, v in row.body.items()}
        key = {"Idempotency_Key": f"of {target}"} if operation == "POST /jobs" else {}
        yield method, path.format(**known) + query, body, key


def fresh_token(world: World, user: str) -> str:
    made = world.ask("local", "POST", "/tokens", {"user": user, "note": SECRETS["note of a token"]})
    return str(made.json()["id"])


def fresh_secret(world: World, name: str, tenant: str) -> None:
    body = {"value": SECRETS["value of a secret"], "tenant": tenant}
    assert world.ask("local", "PUT", f"/secrets/{name}", body).status == 200


def targets(operation: str) -> list[str]:
    return list(OPERATIONS[operation].targets or grid(OPERATIONS[operation].grid)["local"])


def try_all(world: World) -> None:
    for operation in OPERATIONS:
        for target in targets(operation):
            for caller in (*STRANGERS, *CALLERS, "local"):
                for number, (method, path, body, headers) in enumerate(requests(world, operation, caller, target)):
                    found = world.ask(caller, method, path, body, **headers)
                    world.answers[operation, caller, target, number] = found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("tenants") / "data"
    former_months(root)
    with Server(root, declared(), limits=LIMITS | {"requests_burst": 10**6}) as server:
        made = World(server)
        with contextlib.closing(made):
            submit_all(made)
            made.ask("local", "GET", "/eta?max_age=0")
            try_all(made)
            yield made


def test_every_operation_of_the_document_has_a_row_and_every_row_an_operation(world):
    paths = world.server.http("GET", f"{API}/openapi.json").json()["paths"]
    documented = {f"{method.upper()} {path.removeprefix(API)}" for path, found in paths.items() for method in found}
    assert sorted(documented - set(OPERATIONS)) == [], "operations without a row"
    assert sorted(set(OPERATIONS) - documented) == [], "rows without an operation"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_everybody_gets_what_the_table_says(world, operation):
    row, said = OPERATIONS[operation], grid(OPERATIONS[operation].grid)
    wrong = {}
    for (of, caller, target, number), found in world.answers.items():
        if of == operation:
            expected = row.ok if row.public else 401 if caller in STRANGERS else said[caller][target] or row.ok
            if operation == "POST /jobs" and found.status == 201:
                expected = 201 if expected == 200 else expected  # the first under its key
            if found.status != expected:
                wrong[caller, target, number] = (found.status, expected, found.body[:300])
    assert wrong == {}


def test_refusals_are_problem_details(world):
    for key, found in world.answers.items():
        if found.status >= 400:
            assert found.headers["content-type"] == "application/problem+json", key
            assert found.json()["status"] == found.status, key


def test_what_is_not_theirs_looks_to_them_as_if_it_were_not_there(world):
    """But for the name that the request itself gave, both answers are the same."""
    compared = 0
    for (operation, caller, target, number), found in world.answers.items():
        if caller in OF_A_ONLY and target in ("b", "both", "b_member") and "none" in targets(operation):
            unknown = world.answers[operation, caller, "none", 0]
            state = ("finished", "live")[number]
            if target != "both" or found.status >= 400:
                assert told(found, world, target, state) == told(unknown, world, "none"), (operation, caller)
                compared += 1
    assert compared > 300


def told(found: Answer, world: World, target: str, job: str = "finished") -> tuple[int, dict[str, Any]]:
    """Return an answer without what named its target, and without when it was given."""
    text = re.sub(r"'[0-9a-f]{12}'|(?<=_ms\":)[0-9]+", "_", found.body.decode()).replace("'none'", "_")
    for name in ("tenant", "job_id", "number", "user", "name", "schedule", "of"):
        if word := str(values(world, target, job)[name]):
            text = re.sub(rf"\b{re.escape(word)}\b", name, text)
    return found.status, json.loads(text.replace(": _", ": 0").replace(":_", ":0"))


def test_refusals_did_nothing(world):
    for name in ("own live", "colleague live", "b live", "b low"):
        assert world.ask("local", "GET", f"/jobs/{world.jobs[name]}").json()["state"] == "running", name
    assert not any(node["draining"] for node in world.ask("local", "GET", "/nodes").json()["nodes"][:3])
    accounts = world.ask("local", "GET", "/accounts").json()["accounts"]
    assert {len(one["credits"]) for one in accounts} == {1}


# Contents.


def probes(world: World) -> list[tuple[str, str, Any]]:
    """Return requests beyond the matrix that might tell something of tenant B."""
    b_live, b_done = world.jobs["b live"], world.jobs["b finished"]
    job = {"command": "true", "tenant": "alpha"}
    room = {**job, "devices": 2, "priority": "high"}
    found: list[tuple[str, str, Any]] = [
        *(("GET", f"/{what}?by={by}&format={kind}", None) for what in ("usage", "waste")
          for by in ("tenant", "user", "queue", "pool", "job", "node") for kind in ("json", "csv")),
        *(("GET", f"/invoices/INV-00000{number}?format={kind}&language={language}", None)
          for number in (1, 2) for kind in ("json", "csv", "html") for language in ("en", "zh")),
        *(("GET", f"/jobs/{job_id}{what}", None)
          for job_id in world.jobs.values()
          for what in ("", "/eta", "/diagnosis", "/explanation", "/events", "/outputs", "/logs?attempt=1",
                       "/attempts", "/series", "/logs/search?attempt=1&q=e")),
        *(("GET", f"/jobs?finished=true&limit=1000&sort={sort}&totals_by={by}", None)
          for sort in ("name", "-user", "tenant", "-ends") for by in ("user", "tenant", "queue", "reason")),
        *(("GET", f"/jobs?finished=true&search={text[:3]}", None) for text in (TENANT_B, SECRETS["member"])),
        *(("GET", f"/{what}", None)
          for what in ("tokens?fields=id,user&totals_by=user", "secrets?totals_by=tenant", "accounts?sort=-balance",
                       "invoices?totals_by=tenant", "ledger?totals_by=tenant", "eta?max_age=86400000&totals_by=user",
                       "alerts?totals_by=code", "nodes?sort=-used&totals_by=model", "nodes/n1", "nodes/n2",
                       "usage?by=tenant,user&sort=-devices", "waste?by=tenant,user&sort=-cost")),
        *(("GET", f"/events?job={job_id}", None) for job_id in world.jobs.values()),
        ("GET", "/schedules?everyone=true", None),
        ("GET", "/events?kind=ScheduleSet&kind=SchedulePaused&kind=ScheduleRemoved", None),
        ("GET", "/events?kind=JobSubmitted&kind=JobFinished&since=2020-01-01T00:00Z", None),
        *(("GET", f"/timeline?by={by}", None) for by in ("node", "tenant", "user", "job")),
        ("POST", "/plan", room),
        ("POST", "/plan", {**room, "preemptible": False}),
        ("POST", "/plan", {**job, "devices": 2, "replicas": 2}),
        ("POST", "/plan", {**job, "node_labels": {"wanted": {"zone": "kept"}}}),
        *(("POST", path, {**job, kind: job_id})
          for path in ("/plan", "/jobs") for kind in ("after_ok", "after_failed", "after_any")
          for job_id in (b_live, b_done)),
        ("POST", "/jobs", {**job, "queue": "defualt"}),
        ("GET", f"/bill?tenant={TENANT_B[:-1]}", None),
        ("GET", f"/accounts?tenant={TENANT_B[:-1]}", None),
        ("POST", "/jobs", {**job, "tenant": TENANT_B[:-1]}),
        ("POST", "/plan", {**job, "tenant": TENANT_B[:-1]}),
        ("POST", "/invoices", {"tenant": TENANT_B[:-1]}),
        ("POST", f"/accounts/{TENANT_B[:-1]}/credits", {"amount": 1, "reference": "x"}),
        ("POST", "/tokens", {"user": SECRETS["member"][:-1]}),
        ("POST", "/tokens", {"tenants": [TENANT_B[:-1]]}),
        ("DELETE", "/tokens/id-of%20b", None),
        ("GET", "/jobs?limit=1000&finished=true&state=failed", None),
        ("GET", "/eta?max_age=0", None),
    ]  # fmt: skip
    return found


def followed(world: World, caller: str, until_seq: int) -> str:
    """Return what the stream of events says from the begin of the log up to a record that the caller sees."""
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=10)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {world.secret(caller)}"}
        connection.request("GET", f"{API}/events/stream?after=0", headers=headers)
        response, lines = connection.getresponse(), []
        while not lines or not lines[-1].startswith(f"id: {until_seq}\n"):
            lines.append(response.readline().decode())
        lines += [response.readline().decode() for _ in range(3)]
    return "".join(lines)


def last_drain(world: World) -> int:
    """Return the number of a new record that everybody sees."""
    for on in ("true", "false"):
        assert world.ask("operator", "POST", f"/nodes/n3/drain?on={on}").status == 200
    records = world.ask("local", "GET", "/events?limit=10000").json()
    return max(one["seq"] for one in records if one["event"]["type"] == "NodeDrainChanged")


def test_nobody_of_another_tenant_ever_sees_a_word_of_it(world):
    until_seq, leaks = last_drain(world), {}
    for caller in OF_A_ONLY:
        for (asked, target), text in everything(world, caller, until_seq).items():
            named = {*map(str, values(world, target).values())} if target in ("b", "b_member") else set()
            for what, word in SECRETS.items():
                if word.encode() in text and word not in named and word not in asked + target:
                    leaks.setdefault((what, asked, target), (caller, excerpt(text, word)))
    assert leaks == {}


def everything(world: World, caller: str, until_seq: int) -> dict[tuple[str, str], bytes]:
    """Return all that a caller was answered, and is answered to further requests, by what was asked."""
    found = {
        (operation, target): answer.body + repr(answer.headers).encode()
        for (operation, of, target, _), answer in world.answers.items()
        if of == caller
    }
    for method, path, body in probes(world) if caller in PROBING else []:
        answer = world.ask(caller, method, path, body)
        found[f"{method} {path}", json.dumps(body)] = answer.body + repr(answer.headers).encode()
    return found | {("stream", ""): followed(world, caller, until_seq).encode()}


def test_nobody_of_another_tenant_is_sent_a_change_of_it(world):
    with contextlib.ExitStack() as stack:
        streams = {caller: changes(world, caller, stack) for caller in (*OF_A_ONLY, "b_member")}
        job_id = world.submit("b_member", SECRETS["live job"], "true", devices=2, labels={"x": SECRETS["label"]})
        last_drain(world)
        sent = {caller: sent_until_drain(stream) for caller, stream in streams.items()}
    leaks = {(caller, word) for caller, text in sent.items() for word in SECRETS.values() if word in text}
    assert leaks >= {("b_member", word) for word in (TENANT_B, SECRETS["member"], SECRETS["live job"])}
    assert {caller for caller, _ in leaks} == {"b_member"}
    assert [caller for caller, text in sent.items() if f'"id":{job_id},' in text] == ["b_member"]


def changes(world: World, caller: str, stack: contextlib.ExitStack) -> http.client.HTTPResponse:
    """Return a caller's stream of changed views, after its first message."""
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=30)
    stack.callback(connection.close)
    headers = {"Authorization": f"Bearer {world.secret(caller)}"}
    connection.request("GET", f"{API}/changes?topics=jobs,nodes,counts", headers=headers)
    response = connection.getresponse()
    while response.readline() != b"\n":
        pass
    return response


def sent_until_drain(stream: http.client.HTTPResponse) -> str:
    """Return what a stream sends until it shows the node that `last_drain` closes and opens."""
    sent = ""
    while '"name":"n3"' not in sent.rpartition("data: ")[2]:
        line = stream.readline().decode()
        assert line, "the stream has ended"
        sent += line
    return sent


def excerpt(text: bytes, word: str) -> str:
    at = text.index(word.encode())
    return text[max(0, at - 80) : at + 80].decode(errors="replace")


@pytest.mark.parametrize(
    ("caller", "hidden"), [("viewer", FOR_ADMINISTRATORS), ("b_admin", (*FOR_OPERATORS, "who was turned away"))]
)
def test_whose_it_is_sees_it_and_so_does_who_sees_the_whole_cluster(world, caller, hidden):
    texts = list(everything(world, caller, last_drain(world)).values())
    missing = {what for what, word in SECRETS.items() if not any(word.encode() in text for text in texts)}
    assert missing == {*hidden, *FOR_NOBODY}


@pytest.mark.parametrize("path", ["/jobs", "/plan"])
@pytest.mark.parametrize("name", ["b live", "b finished", "b waiting"])
def test_nobody_can_wait_for_a_job_that_they_do_not_see(world, path, name):
    def refused(job_id: int) -> str:
        body = {"command": "true", "queue": "nowhere", "after_ok": job_id, "after_failed": [job_id]}
        found = world.ask("member", "POST", path, {"jobs": [body]})
        assert found.status == 422
        return found.body.decode().replace(str(job_id), "N")

    assert "job N does not exist" in refused(UNKNOWN_JOB)
    assert refused(world.jobs[name]) == refused(UNKNOWN_JOB)


def test_who_sees_a_job_can_wait_for_it(world):
    for caller, name in (("both", "b live"), ("member", "own live"), ("admin", "b live")):
        body = {"command": "true", "tenant": "alpha", "after_ok": world.jobs[name]}
        assert world.ask(caller, "POST", "/plan", body).status == 200, caller


def test_an_alert_names_the_callers_own_jobs_alone(world):
    both = {caller: world.submit(caller, "huge", "true", devices=9) for caller in ("member", "b_member")}

    def found(caller: str) -> list[list[int]]:
        alerts = world.ask(caller, "GET", "/alerts").json()["alerts"]
        return [alert["job_ids"] for alert in alerts if alert["code"] == "never_fits"]

    assert {caller: found(caller) for caller in (*both, "viewer", "nobody")} == {
        "member": [[both["member"]]],
        "b_member": [[both["b_member"]]],
        "viewer": [sorted(both.values())],
        "nobody": [],
    }


def test_figures_of_the_servers_work_are_for_those_who_see_the_whole_cluster(world):
    shown = {caller: world.ask(caller, "GET", "/cluster").json()["figures"] for caller in ("viewer", "member")}
    assert {"access_notes", "control_commit_s", "control_cycle_s"} < {figure["name"] for figure in shown["viewer"]}
    assert shown["member"] == []


def test_a_preempted_job_of_another_is_told_by_its_number_alone(world):
    body = {"command": "true", "tenant": "alpha", "devices": 2, "priority": "high"}
    victim = {"job_id": world.jobs["b low"], "rule": "lower_priority"}
    for caller, name in (("member", ""), ("viewer_in_a", None), ("admin", SECRETS["live job"])):
        found = world.ask(caller, "POST", "/plan", body)
        if name is None:
            assert found.status == 403
        else:
            assert found.json()["jobs"][0]["preempts"] == [{**victim, "name": name}]


# Tokens and what they outlive.


def test_a_stream_ends_when_its_token_is_revoked(world):
    token_id = fresh_token(world, "amy")
    made = world.ask("local", "POST", "/tokens", {"user": "ann", "level": "read"}).json()
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", f"{API}/events/stream", headers={"Authorization": f"Bearer {made['token']}"})
        response = connection.getresponse()
        assert response.readline() == b": following\n"
        assert world.ask("local", "DELETE", f"/tokens/{token_id}").status == 200
        last_drain(world)
        assert b"NodeDrainChanged" in b"".join(response.readline() for _ in range(3)), "another's token changes nothing"
        assert world.ask("local", "DELETE", f"/tokens/{made['id']}").status == 200
        seq = last_drain(world)
        assert f'"seq":{seq},'.encode() not in response.read(), "what comes after it is not told"


def test_a_token_that_a_tenant_admin_has_for_a_member_does_not_grow_with_the_member(world):
    made = {caller: world.ask(caller, "POST", "/tokens", {"user": "amy", "level": "admin"}).json() for caller in
            ("a_admin", "admin", "of amy")}  # fmt: skip
    assert world.ask("local", "POST", "/config", {"set": ["user.amy.role=admin"]}).json()["applied"]
    statuses = {
        caller: world.server.http("GET", f"{API}/config", token=found["token"]).status for caller, found in made.items()
    }
    assert world.ask("local", "POST", "/config", {"set": ["user.amy.role="]}).status == 200
    assert statuses == {"a_admin": 403, "admin": 200, "of amy": 200}


def test_a_token_makes_none_that_outlives_it(world):
    short = world.ask("local", "POST", "/tokens", {"user": "amy", "level": "admin", "days": 5}).json()

    def made(**body: Any) -> Any:
        sent = json.dumps(body).encode()
        return world.server.http("POST", f"{API}/tokens", sent, token=short["token"])

    assert made().json()["expires_ms"] == short["expires_ms"]
    assert made(days=4).json()["expires_ms"] < short["expires_ms"]
    for days in (0, 6):
        assert (made(days=days).status, made(days=days).json()["problems"][0]["field"]) == (422, "expires")


def test_a_token_of_a_removed_user_is_dead_when_the_name_is_declared_anew(world):
    assert world.ask("local", "POST", "/config", {"add": ["user.rosa"]}).json()["applied"]
    made = world.ask("local", "POST", "/tokens", {"user": "rosa"}).json()
    assert world.server.http("GET", f"{API}/me", token=made["token"]).status == 200
    for change in ("remove", "add"):
        assert world.ask("local", "POST", "/config", {change: ["user.rosa"]}).json()["applied"]
        assert world.server.http("GET", f"{API}/me", token=made["token"]).status == 401
    ids = [one["id"] for one in world.ask("local", "GET", "/tokens").json()["tokens"]]
    assert made["id"] not in ids


def test_what_is_said_of_a_job_is_not_left_out_while_its_end_is_written():
    """It is no longer in the state then, and not yet among the finished ones."""
    job = SimpleNamespace(id=1, spec=SimpleNamespace(tenant="a"))
    controller = SimpleNamespace(state=SimpleNamespace(jobs={}), ending=[(job, None)])
    record = ev.Record(1, 0, ev.ReplicaStarted(1, 1, 0))
    reader = SimpleNamespace(records=lambda after, limit: [record][after:limit], finished_job=lambda _: None)

    def found(tenant: str) -> list[ev.Record]:
        reads = Reads(SimpleNamespace(controller=controller), reader, lambda: 1)
        return reads.records(Scope("ann", tenants={tenant: "viewer"}), 0, 10)[0]

    assert (found("a"), found("b")) == ([record], [])
