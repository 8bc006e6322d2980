"""Changes that cost the server most, by those who may do least: bodies at their limit, long texts, long lists."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.api.snapshots import NewSnapshot
from penstock.core.model import folder_snapshots as fs
from penstock.store.folder_snapshots import SNAPSHOTS_MAX
from tests.server.costs import past
from tests.server.costs.cases import GOOD, REFUSED, Case, get, sending
from tests.server.costs.world import Sent

TEXT = 60_000
"""Characters of a text in a body of 64 KiB."""
FORBIDDEN = frozenset({403})
NUMBERS = {
    "millions of digits": "9" * TEXT,
    "many decimals": "1." + "9" * TEXT,
    "a huge exponent": "1e999999",
}
CREDIT, ADD = "POST /accounts/{tenant}/credits", f"/accounts/{past.OWN}/credits"
REVERSE = "POST /ledger/{record}/reversal"
PAY, PAYMENTS = "POST /invoices/{number}/payments", "/invoices/INV-000001/payments"
CORRECT, CORRECTIONS = "POST /invoices/{number}/corrections", "/invoices/INV-000001/corrections"


def cases() -> Iterator[Case]:
    yield from _jobs()
    yield from _nodes()
    yield from _joined()
    yield from _money()
    yield from _bad_money()
    yield from _tokens()
    yield from _secrets()
    yield from _snapshots()
    yield from _sessions()
    yield from _sign_ins()
    yield from _notifications()
    yield from _schedules()
    yield from _whatifs()


def _whatifs() -> Iterator[Case]:
    begin, show, end = "POST /whatif", "GET /whatif/{whatif_id}", "DELETE /whatif/{whatif_id}"
    asked = sending("POST", "/whatif", lambda: {"policies": ["fifo"]})
    yield Case(begin, "of the whole log", "viewer", asked, frozenset({202}), renews=True)
    yield _beyond(begin, "by who may not", "tenant_admin", asked)
    for name, body in {
        "policies of 60,000 characters": {"policies": ["fifo+" * 12_000]},
        "thousands of changes": {"set": ["settings.defrag=true"] * 2_500},
        "more policies than there may be": {"policies": ["fifo"] * 5},
        "nodes of many digits": {"nodes": "+" + "9" * TEXT},
        "a time of many digits": {"set": ["settings.defrag=true"], "since": "9" * TEXT + "d"},
        "nothing that is different": {},
    }.items():
        yield _beyond(begin, name, "viewer", sending("POST", "/whatif", lambda body=body: body))
    yield Case("GET /whatif", "all of it", "viewer", get("/whatif"))
    yield _beyond("GET /whatif", "by who may not", "tenant_admin", get("/whatif"))
    for operation in (show, end):
        method = operation.partition(" ")[0]
        yield _beyond(operation, "none", "viewer", _sent(method, "/whatif/none"))
        yield _beyond(operation, "a long id", "viewer", _sent(method, "/whatif/" + "x" * TEXT))


def _jobs() -> Iterator[Case]:
    cancel, save = "POST /jobs/{job_id}/cancel", "POST /jobs/{job_id}/checkpoint"
    waiting, live, ended = past.first_own_waiting(), past.first_own_live(), past.first_own_finished()
    yield Case(cancel, "one that waits", "member", _sent("POST", f"/jobs/{waiting}/cancel"))
    yield Case(cancel, "one that has ended", "member", _sent("POST", f"/jobs/{ended}/cancel"))
    yield _beyond(cancel, "one of another tenant", "member", _sent("POST", "/jobs/1/cancel"))
    yield _beyond(cancel, "by who may not", "reader", _sent("POST", f"/jobs/{waiting + 1}/cancel"))
    yield Case(save, "one that runs", "member", _sent("POST", f"/jobs/{live}/checkpoint"))
    yield _beyond(save, "one that waits", "member", _sent("POST", f"/jobs/{waiting + 2}/checkpoint"))


def _nodes() -> Iterator[Case]:
    drain, signs = "POST /nodes/{node}/drain", "%F0%9F%98%80" * 1_000
    yield Case(drain, "with the longest reason", "operator", _sent("POST", f"/nodes/node000/drain?reason={signs}"))
    yield Case(drain, "and move all work", "operator", _sent("POST", "/nodes/node001/drain?evict=true"))
    long = _sent("POST", f"/nodes/node000/drain?reason={'x' * 1_001}")
    yield _beyond(drain, "a longer reason", "operator", long)
    yield _beyond(drain, "a node of a long name", "operator", _sent("POST", f"/nodes/{'n' * TEXT}/drain"))
    yield _beyond(drain, "by who may not", "member", _sent("POST", "/nodes/node000/drain"))
    shut, opened = (f"POST /nodes/{{node}}/devices/{{index}}/{what}" for what in ("close", "open"))
    device = "/nodes/node000/devices/0"
    yield Case(shut, "with the longest reason", "operator", _sent("POST", f"{device}/close?reason={signs}"))
    move = _sent("POST", "/nodes/node001/devices/0/close?evict=true")
    yield Case(shut, "and move its work", "operator", move)
    yield Case(opened, "with the longest reason", "operator", _sent("POST", f"{device}/open?reason={signs}"))
    for operation, path in ((shut, f"{device}/close"), (opened, f"{device}/open")):
        yield _beyond(operation, "a longer reason", "operator", _sent("POST", f"{path}?reason={'x' * 1_001}"))
        yield _beyond(operation, "an index beyond all", "operator", _sent("POST", path.replace("/0/", f"/{'9' * 99}/")))
        yield _beyond(operation, "by who may not", "member", _sent("POST", path))


def _joined() -> Iterator[Case]:
    declare, gone, where = "POST /joined-nodes", "DELETE /joined-nodes/{node}", "/joined-nodes"
    labels = {f"l{i}": "x" * 253 for i in range(64)}
    yield _change(declare, "with the most labels", where, {"name": "n" * 63, "labels": labels})
    yield _refused(declare, "65 labels", where, {"name": "n", "labels": {**labels, "l": "x"}})
    yield _refused(declare, "a label that is longer", where, {"name": "n", "labels": {"l": "x" * 254}})
    yield _refused(declare, "a longer name", where, {"name": "n" * 64})
    yield _refused(declare, "an amount beyond all", where, {"name": "n", "memory_bytes": 2**61})
    yield _refused(declare, "721 hours", where, {"name": "n", "valid_hours": 721})
    yield _refused(declare, "a body over 64 KiB", where, {"name": "n", "at": "x" * 2**16})
    yield _beyond(declare, "by who may not", "operator", sending("POST", where, lambda: b"[" * TEXT))
    yield _beyond(gone, "none", "admin", _sent("DELETE", "/joined-nodes/none"))
    yield _beyond(gone, "a long name", "admin", _sent("DELETE", "/joined-nodes/" + "n" * TEXT))
    yield _beyond(gone, "by who may not", "operator", _sent("DELETE", "/joined-nodes/none"))


def _money() -> Iterator[Case]:
    yield _change(CREDIT, "with a note", ADD, {"amount": 1, "reference": "r" * 200, "note": "n" * 200})
    yield Case(REVERSE, "a credit", "admin", _reversing(itertools.count(reversible(), -1)))
    yield _change("POST /invoices", "a month of thousands of jobs", "/invoices", {"tenant": past.OTHER})
    yield _change(PAY, "a part", PAYMENTS, {"amount": 1, "reference": "p" * 200})
    yield _change(CORRECT, "a part of 2,000 lines", CORRECTIONS, {"amount": 1, "reason": "r" * 200})
    yield _change(CORRECT, "all of 2,000 lines", CORRECTIONS.replace("1", "3"), {"reason": "r"})


def _reversing(records: Iterator[int]) -> Callable[[], list[Sent]]:
    """Return what reverses another credit each time: a case is tried again where it cost too much."""

    def make() -> list[Sent]:
        return sending("POST", f"/ledger/{next(records)}/reversal", lambda: {"reason": "r" * 200})()

    return make


def _bad_money() -> Iterator[Case]:
    for name, text in NUMBERS.items():
        yield _refused(CREDIT, name, ADD, {"amount": text, "reference": "r"})
        yield _refused(PAY, name, PAYMENTS, {"amount": text, "reference": "r"})
        yield _refused(CORRECT, name, CORRECTIONS, {"amount": text, "reason": "r"})
    one = {"amount": 1, "reference": "r"}
    yield _refused(CREDIT, "a time that is none", ADD, {**one, "expires": "9" * TEXT})
    yield _refused(CREDIT, "a long reference", ADD, {**one, "reference": "r" * TEXT})
    yield _refused(CREDIT, "a body over 64 KiB", ADD, {**one, "note": "n" * 2**16})
    yield _refused(CREDIT, "a tenant that there is not", f"/accounts/{'t' * 63}/credits", one)
    yield _refused(REVERSE, "a long reason", "/ledger/1/reversal", {"reason": "r" * TEXT})
    yield _refused("POST /invoices", "a tenant of a long name", "/invoices", {"tenant": "t" * TEXT})
    every = {CREDIT: ADD, REVERSE: "/ledger/7/reversal", "POST /invoices": "/invoices", PAY: PAYMENTS}
    for operation, where in (every | {CORRECT: CORRECTIONS}).items():
        asked = sending("POST", where, lambda: b"[" * TEXT)
        yield _beyond(operation, "by who may not", "tenant_admin", asked)


def reversible() -> int:
    """Return the number of the last credit: it is before everything that the controller of the past wrote."""
    return past.first_record_of_controller() - 1


def _tokens() -> Iterator[Case]:
    made, gone = "POST /tokens", "DELETE /tokens/{token_id}"
    tenants = [f"tenant-{i:04}" for i in range(3_000)]
    yield _change(made, "with a note", "/tokens", {"note": "n" * TEXT}, caller="owner")
    yield _refused(made, "3,000 tenants that there are not", "/tokens", {"tenants": tenants}, caller="owner")
    yield _refused(made, "for a user of a long name", "/tokens", {"user": "u" * TEXT}, caller="tenant_admin")
    yield _refused(made, "10^18 days", "/tokens", {"days": 10**18}, caller="owner")
    yield _refused(made, "a body over 64 KiB", "/tokens", {"note": "n" * 2**16}, caller="owner")
    yield Case(gone, "one that is there", "owner", _sent("DELETE", "/tokens/token1"))
    yield _beyond(gone, "a long name", "owner", _sent("DELETE", "/tokens/" + "t" * TEXT))


def _secrets() -> Iterator[Case]:
    one, gone, key = "PUT /secrets/{name}", "DELETE /secrets/{name}", "POST /secret-key"

    def put(name: str, body: Any) -> Any:
        return sending("PUT", f"/secrets/{name}", lambda: body)

    escaped = b'{"value": "' + b"\\u0041" * 32_768 + b'"}'
    yield Case(one, "the largest value", "owner", put("n" * 63, escaped))
    yield _beyond(one, "a larger value", "owner", put("N", {"value": "v" * 32_769}))
    yield _beyond(one, "a body over 256 KiB", "owner", put("N", {"value": "v" * 2**18}))
    yield _beyond(one, "200 signs that are not ASCII", "owner", put("%E4%BD%A0" * 200, {"value": "v"}))
    yield _beyond(one, "of a tenant, by who may not", "owner", put("N", {"value": "v", "tenant": past.OWN}))
    yield Case(gone, "one that is there", "owner", _sent("DELETE", "/secrets/OWN_SECRET"))
    yield _beyond(gone, "a long name", "owner", _sent("DELETE", "/secrets/" + "s" * TEXT))
    yield Case(key, "hundreds of secrets", "admin", _sent("POST", "/secret-key"))
    yield _beyond(key, "by who may not", "tenant_admin", _sent("POST", "/secret-key"))


def _snapshots() -> Iterator[Case]:
    declare, send = "POST /snapshots", "POST /snapshots/chunks"

    def files(count: int, path: str = "{:06}" + "/d" * 30) -> Any:
        def body() -> bytes:
            chunks = [(fs.chunk_hash(str(i).encode()),) for i in range(count)]
            listed = tuple(fs.SnapshotFile(path.format(i), "file", 1, chunks[i]) for i in range(count))
            return msgspec.json.encode(NewSnapshot(fs.name_of(fs.encoded(listed)), listed))

        return sending("POST", "/snapshots", body)

    yield Case(declare, "20,000 files of which nothing is there", "owner", files(20_000), GOOD)
    yield _beyond(declare, "20,001 files", "owner", files(20_001, "{:06}"))
    yield _beyond(declare, "a body over 8 MiB", "owner", files(20_000, "{:06}" + "x" * 1_000))
    yield _beyond(declare, "by who may not", "viewer", files(20_000))
    question = sending("POST", "/snapshots", lambda: {"snapshot": "0" * 64})
    yield Case(declare, "one that is not there", "owner", question, GOOD)
    gone = "DELETE /snapshots/{name}"
    yield Case(gone, "one of the most", "owner", _sent("DELETE", f"/snapshots/{SNAPSHOTS_MAX - 1:064x}"))
    yield _beyond(gone, "one that is not there", "owner", _sent("DELETE", "/snapshots/" + "0" * 64))
    yield _beyond(gone, "a long name", "owner", _sent("DELETE", "/snapshots/" + "s" * TEXT))
    yield _beyond(gone, "by who may not", "viewer", _sent("DELETE", "/snapshots/" + "0" * 64))

    def chunks(size: int, count: int) -> Any:
        whole = [(size).to_bytes(4, "big") + i.to_bytes(4, "big") + bytes(size - 4) for i in range(count)]
        return sending("POST", "/snapshots/chunks", lambda: b"".join(whole))

    yield Case(send, "4 MiB in four chunks", "owner", chunks(2**20, 4), GOOD)
    yield Case(send, "the most chunks", "owner", chunks(1_000, 4_096), GOOD)
    yield _beyond(send, "more chunks", "owner", chunks(4, 4_097))
    yield _beyond(send, "a body over the limit", "owner", chunks(2**20, 5))
    yield _beyond(send, "by who may not", "viewer", chunks(2**20, 4))


def _schedules() -> Iterator[Case]:
    one, gone, act = "PUT /schedules/{name}", "DELETE /schedules/{name}", "POST /schedules/{name}/actions"
    rare = {"cron": "0 0 29 2 */7", "zone": "America/New_York", "overlap": "allow"}

    def put(name: str, rule: Any = rare, **body: Any) -> Any:
        job = {"command": "true", "tenant": past.OWN, "array": 5_000, "env": {"A": "x" * TEXT}, "schedule": rule}
        return sending("PUT", f"/schedules/{name}", lambda: {**job, **body})

    yield Case(one, "the largest that may be, seldom due", "owner", put("n" * 63), GOOD)
    yield _beyond(one, "more jobs than a run may have", "owner", put("n", array=100_000))
    yield _beyond(one, "a body over the limit", "owner", put("n", env={"A": "x" * 262_144}))
    yield _beyond(one, "never due", "owner", put("n", {"cron": "0 0 31 2 */7"}))
    yield _beyond(one, "a long expression", "owner", put("n", {"cron": "1,2,3,4,5," * 19 + "6 * * * *"}))
    yield _beyond(one, "an expression over the limit", "owner", put("n", {"cron": "*" * TEXT}))
    yield _beyond(one, "a zone that is none", "owner", put("n", {"cron": "@daily", "zone": "z" * 100}))
    yield _beyond(one, "200 signs that are not ASCII", "owner", put("%E4%BD%A0" * 200))
    yield _beyond(one, "by who may not", "viewer", put("n"))
    for action in ("run", "pause", "resume"):
        sent = sending("POST", f"/schedules/{'n' * 63}/actions", lambda action=action: {"action": action})
        yield Case(act, action, "owner", sent)
    yield _beyond(act, "a long name", "owner", _sent("POST", f"/schedules/{'n' * TEXT}/actions"))
    yield Case(gone, "one that is there", "owner", _sent("DELETE", f"/schedules/{'n' * 63}"))
    yield _beyond(gone, "a long name", "owner", _sent("DELETE", f"/schedules/{'n' * TEXT}"))


def _notifications() -> Iterator[Case]:
    one, gone = "PUT /notifications/{name}", "DELETE /notifications/{name}"
    tried = "POST /notifications/{name}/test"

    def put(name: str, **body: Any) -> Any:
        whole = {"channel": "webhook", "to": f"http://127.0.0.1:9/{'h' * 1_900}", "events": ["end"]}
        return sending("PUT", f"/notifications/{name}", lambda: {**whole, **body})

    yield Case(one, "the longest URL", "owner", put("n" * 63, events=["jobs", *["end"] * 10]))
    yield _beyond(one, "a longer URL", "owner", put("n", to="https://hooks.example.org/" + "h" * 2_000))
    yield _beyond(one, "a body over 16 KiB", "owner", put("n", to="h" * 16_384))
    yield _beyond(one, "4,000 events", "owner", put("n", events=["e"] * 4_000))
    yield _beyond(one, "200 signs that are not ASCII", "owner", put("%E4%BD%A0" * 200))
    yield _beyond(one, "of a tenant, by who may not", "owner", put("n", events=["budget"], tenant=past.OWN))
    yield Case(tried, "a receiver that is not there", "owner", _sent("POST", f"/notifications/{'n' * 63}/test"))
    yield _beyond(tried, "a long name", "owner", _sent("POST", f"/notifications/{'n' * TEXT}/test"))
    yield Case(gone, "one that is there", "owner", _sent("DELETE", f"/notifications/{'n' * 63}"))
    yield _beyond(gone, "a long name", "owner", _sent("DELETE", f"/notifications/{'n' * TEXT}"))


def _sent(method: str, path: str) -> Callable[[], list[Sent]]:
    return lambda: [Sent(method, path)]


def _change(
    operation: str, name: str, where: str, body: Any, statuses: frozenset[int] = GOOD, caller: str = "admin"
) -> Case:
    return Case(operation, name, caller, sending("POST", where, lambda: body), statuses)


def _refused(operation: str, name: str, where: str, body: Any, caller: str = "admin") -> Case:
    return _beyond(operation, name, caller, sending("POST", where, lambda: body))


def _beyond(operation: str, name: str, caller: str, make: Callable[[], list[Sent]]) -> Case:
    statuses = FORBIDDEN if "by who may not" in name else REFUSED
    return Case(operation, name, caller, make, statuses, beyond=True)


def _sessions() -> Iterator[Case]:
    links, logins, begin = "POST /login-links", "POST /logins", "POST /sessions"
    yield Case(
        links, "to a page with a long path", "reader", sending("POST", "/login-links", lambda: {"path": _page(500)})
    )
    yield _beyond(links, "a longer path", "reader", sending("POST", "/login-links", lambda: {"path": _page(501)}))
    yield _beyond(links, "a larger body", "reader", sending("POST", "/login-links", lambda: {"path": "/" * TEXT}))
    yield _beyond(logins, "a wrong code", "", sending("POST", "/logins", lambda: {"code": "x" * 43}))
    yield _beyond(logins, "a larger body", "", sending("POST", "/logins", lambda: {"code": "x" * TEXT}))
    yield Case(begin, "with a token", "reader", sending("POST", "/sessions", dict))


def _sign_ins() -> Iterator[Case]:
    start, finish = "POST /oidc/start", "POST /oidc/finish"

    def begin(uri: str) -> Callable[[], list[Sent]]:
        return sending("POST", "/oidc/start", lambda: {"redirect_uri": uri})

    def end(**more: str) -> Callable[[], list[Sent]]:
        usual = {"code": "x", "state": "x", "code_verifier": "x"}
        return sending("POST", "/oidc/finish", lambda: usual | more)

    yield Case("GET /oidc", "without a token", "", get("/oidc"))
    down = frozenset({502})
    yield Case(start, "a provider that is down", "", begin("https://a.example/login/callback"), down)
    yield _beyond(start, "a long address", "", begin("https://a.example/" + "x" * 15_000))
    yield _beyond(start, "a larger body", "", begin("x" * TEXT))
    for field in ("code", "state", "code_verifier"):
        yield _beyond(finish, f"a long {field}", "", end(**{field: "pso_" + "x" * 15_000}))
    yield _beyond(finish, "a larger body", "", end(code="x" * TEXT))


def _page(length: int) -> str:
    return "/" + "x" * (length - 1)
