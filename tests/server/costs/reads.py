"""Reads that cost the server most, by those who may do least: pages at their limit, times far away, every dimension."""

from collections.abc import Iterator

from penstock.server.routes.series import MEASURED, NAMES
from tests.server.costs import past
from tests.server.costs.cases import EITHER, GOOD, REFUSED, Case, get
from tests.server.costs.world import Sent

ALL_DIMENSIONS = "tenant,user,queue,pool,job,node"
LONG = "x" * 60_000
FAR = ("0001-01-01T00:00Z", "9999-12-31T23:59Z", "1970-01-01T00:00Z")
WORST_NUMBER = 2**53


def cases() -> Iterator[Case]:
    yield from _jobs()
    yield from _cluster()
    yield from _log()
    yield from _history()
    yield from _money()
    yield from _lists()
    yield from _sums()
    yield from _declared()
    yield from _odd()


def _read(path: str, name: str, caller: str = "reader", **fields: object) -> Case:
    operation = fields.pop("operation", path.partition("?")[0])
    return Case(f"GET {operation}", name, caller, get(path), **fields)  # type: ignore[arg-type]


def _jobs() -> Iterator[Case]:
    yield _read("/jobs?limit=1000", "live jobs of a tenant with few")
    yield _read("/jobs?limit=1000", "live jobs of a tenant with thousands", "other_reader")
    yield _read("/jobs?limit=1000", "live jobs of all", "viewer")
    yield _read("/jobs?limit=1", "one live job", "other_reader")
    slow = "name=" + "*a" * 8 + "".join(f"&label=l{i}=x" for i in range(32))
    yield _read("/jobs?name=none&finished=true&limit=1000", "a filter that nothing matches")
    yield _read("/jobs?state=suspended&limit=1000", "a filter that no live job matches", "other_reader")
    yield _read("/jobs?sort=newest&limit=1000", "a page of all, sorted", "viewer")
    yield _read("/jobs?sort=priority&fold_arrays=true&limit=1000", "arrays of all, folded", "viewer")
    yield _read(f"/jobs?{slow}", "a pattern of many stars", "viewer")
    search = "search=" + "x" * 100
    yield _read(f"/jobs?{search}&finished=true&limit=1000", "a search that nothing matches", "viewer")
    yield _read("/jobs?sort=-ends&totals_by=reason&limit=1000", "by expected end, counted by reason", "viewer")
    yield _read("/jobs?sort=name&totals_by=user&fields=id,name&limit=1000", "by name, two fields", "viewer")
    yield _read("/jobs?search=" + "x" * 101, "beyond a search", statuses=REFUSED, beyond=True)
    yield _read("/jobs?fields=" + ",".join(["id"] * 400), "beyond fields", statuses=REFUSED, beyond=True)
    yield _read("/jobs?sort=" + "x" * 40, "no order", statuses=REFUSED, beyond=True)
    yield _read("/jobs?state=none", "beyond the states that there are", statuses=REFUSED, beyond=True)
    yield _read("/jobs?cursor=" + "x" * 500, "no cursor", statuses=REFUSED, beyond=True)
    yield _read("/jobs?" + "&".join(["label=" + "x" * 1_500] * 5), "beyond a label", statuses=REFUSED, beyond=True)
    yield _read("/jobs?finished=true&limit=1000&before=9007199254740992", "finished jobs")
    yield _read("/jobs?tenant=nobody&finished=true&limit=1", "no tenant", statuses=REFUSED, beyond=True)
    yield _read("/jobs?limit=1001", "beyond a page", statuses=REFUSED, beyond=True)
    yield _read("/jobs?tenant=" + "x" * 64, "beyond a name", statuses=REFUSED, beyond=True)
    one = "/jobs/{job_id}"
    live, ended = past.first_own_waiting(), past.first_own_finished()
    yield _read(f"/jobs/{live}", "a waiting job", operation=one)
    yield _read(f"/jobs/{ended}", "a finished job", operation=one)
    yield _read(f"/jobs/{WORST_NUMBER}", "none", operation=one, statuses=REFUSED, beyond=True)
    yield _read(f"/jobs/{WORST_NUMBER + 1}", "beyond a number", operation=one, statuses=REFUSED, beyond=True)
    yield _read(f"/jobs/{'9' * 60_000}", "a number of many digits", operation=one, statuses=REFUSED, beyond=True)
    yield _read(
        f"/jobs/{past.own_gang()}/explanation", "a job of 64 groups and 8 other shapes", operation=f"{one}/explanation"
    )
    for part in ("eta", "diagnosis", "explanation", "events", "outputs", "attempts", "series", "reported"):
        where = f"/jobs/{{job_id}}/{part}"
        yield _read(f"/jobs/{live}/{part}", "a waiting job", operation=where)
        yield _read(f"/jobs/{ended}/{part}", "a finished job", operation=where)
        yield _read(f"/jobs/{WORST_NUMBER}/{part}", "none", operation=where, statuses=REFUSED, beyond=True)
    yield _read(f"/jobs/{ended}/reported?rank={2**31}", "no rank", operation="/jobs/{job_id}/reported")
    logs = "/jobs/{job_id}/logs"
    yield _read(f"/jobs/{ended}/logs?attempt=1&limit=1048576", "a MiB", operation=logs)
    yield _read(f"/jobs/{ended}/logs?attempt=1&offset={2**62}", "from far behind its end", operation=logs)
    yield _read(f"/jobs/{ended}/logs?attempt=1&lines=10000", "10,000 lines", operation=logs)
    beyond = {"statuses": REFUSED, "beyond": True}
    yield _read(f"/jobs/{ended}/logs?attempt=1&limit=1048577", "beyond a MiB", operation=logs, **beyond)
    search = "/jobs/{job_id}/logs/search"
    asked = f"/jobs/{ended}/logs/search?attempt=1&limit=1000&ignore_case=true"
    costly = "(a%7CR%7Cu%7Cn).{0,40}(e%7Ci%7Cx)%7B40%7D$%7C" * 4 + "%5Cw*z"
    yield _read(f"{asked}&q=xx", "a text that is nowhere", operation=search)
    yield _read(f"{asked}&q=Error", "a text that is in every line", operation=search)
    yield _read(f"{asked}&regex=true&q={costly}", "an expression of many states", operation=search)
    yield _read(
        f"{asked}&regex=true&q=(((((a%7B9%7D)%7B9%7D)%7B9%7D)%7B9%7D)%7B9%7D)", "too large", operation=search, **beyond
    )
    yield _read(f"{asked}&q=" + "x" * 201, "beyond a text", operation=search, **beyond)


def _cluster() -> Iterator[Case]:
    yield Case("GET /health", "without a token", "", get("/health"))
    for path in (
        "/me",
        "/cluster",
        "/nodes",
        "/schema/job",
        "/schema/cluster",
        "/queues",
        "/pools",
        "/alerts",
        "/quotas",
        "/counts",
    ):
        yield _read(path, "all of it")
    for path in ("/nodes", "/queues", "/alerts", "/quotas"):
        yield _read(path, "all of it, seeing thousands of jobs", "other_reader")
    slow = "name=" + "*a" * 8 + "&search=" + "x" * 100
    yield _read(f"/nodes?{slow}", "a pattern of many stars", "viewer")
    yield _read("/nodes?sort=-free&totals_by=model&limit=1000", "by free devices, counted by model", "viewer")
    one = {"operation": "/nodes/{node}"}
    yield _read("/nodes/node000", "a full node", "viewer", **one)
    yield _read("/nodes/" + "x" * 63, "none", statuses=REFUSED, beyond=True, **one)
    yield _read("/nodes/" + "x" * 64, "beyond a name", statuses=REFUSED, beyond=True, **one)
    tags = ",".join(['"x"'] * 500)
    packed = {"Accept-Encoding": "gzip," * 90 + "gzip", "If-None-Match": tags}
    yield Case("GET /nodes", "compressed, with many tags", "viewer", get("/nodes", **packed))
    yield Case("GET /jobs", "compressed, with many tags", "viewer", get("/jobs?limit=1000", **packed))
    yield Case("GET /events", "compressed, with many tags", "viewer", get("/events?limit=10000", **packed))
    yield _read("/nodes?name=" + "*" * 9, "beyond stars", statuses=REFUSED, beyond=True)
    yield _read("/devices?limit=1000", "the largest page", "viewer")
    yield _read(f"/devices?sort=-power&totals_by=node&node={'*a' * 8}", "a pattern of many stars", "viewer")
    yield _read("/devices?limit=1001", "beyond a page", statuses=REFUSED, beyond=True)
    device = {"operation": "/nodes/{node}/devices/{index}"}
    yield _read("/nodes/node000/devices/0", "one of a full node", "viewer", **device)
    yield _read("/nodes/node000/devices/1000001", "beyond an index", statuses=REFUSED, beyond=True, **device)
    yield _read(f"/joined-nodes?{slow}&limit=1000", "a pattern of many stars", "admin")
    yield _read("/joined-nodes?sort=-joined&totals_by=pool&limit=1000", "the largest page", "admin")
    yield _read("/joined-nodes?limit=1001", "beyond a page", "admin", statuses=REFUSED, beyond=True)
    yield _read("/joined-nodes", "by who may not", "operator", statuses=frozenset({403}), beyond=True)
    yield _read("/snapshots?sort=-used&limit=1000", "the largest page", "owner")
    yield _read("/snapshots?search=f&sort=bytes", "all of them", "owner")
    yield _read("/snapshots?limit=1001", "beyond a page", "owner", statuses=REFUSED, beyond=True)
    yield _read("/snapshots", "by who may not", "viewer", statuses=frozenset({403}), beyond=True)
    for path in ("/defrag", "/cycle", "/config"):
        yield _read(path, "all of it", "viewer")
        yield _read(path, "by who may not", statuses=frozenset({403}), beyond=True)
    yield _read("/eta?max_age=0", "anew")
    yield _read("/eta?max_age=0", "anew, seeing thousands of jobs", "other_reader")
    yield _read("/eta?max_age=86400001", "beyond an age", statuses=REFUSED, beyond=True)
    yield _read("/eta/calibration", "all of it")


def _log() -> Iterator[Case]:
    yield _read("/events?after=0&limit=10000", "from the first record on")
    yield _read("/events?after=0&limit=10000", "all that there is", "viewer")
    yield _read("/events?after=0&limit=1", "one of a whole log")
    yield _read(f"/events?after={WORST_NUMBER}&limit=10000", "behind the end")
    yield _read("/events?limit=10001", "beyond a page", statuses=REFUSED, beyond=True)
    stream = [Sent("GET", "/events/stream?after=0")]
    yield Case("GET /events/stream", "from the first record on", "reader", lambda: stream)
    yield Case("GET /events/stream", "64 after each other", "reader", lambda: stream * 64)
    yield from _changes()
    wrong = [Sent("GET", "/events/stream", headers={"Last-Event-ID": "9" * 1_000})]
    yield Case("GET /events/stream", "from a number of many digits", "reader", lambda: wrong, REFUSED, True)


def _history() -> Iterator[Case]:
    names = "names=" + ",".join(name for name in NAMES if name not in MEASURED)
    for length, caller in (("89", "viewer"), ("40", "other_reader"), ("1", "reader")):
        yield _read(f"/series?{names}&from={past.days_ago(int(length))}", f"{length} days of all series", caller)
    for query, name in (
        ("names=" + "x," * 190, "no series"),
        ("names=" + "x" * 401, "beyond a text"),
        ("step=" + "9" * 20, "a step of many digits"),
        (f"from={past.days_ago(92)}", "beyond 90 days"),
        ("names=cycle_time", "how long the server takes"),
    ):
        yield _read(f"/series?{query}", name, statuses=REFUSED, beyond=True)
    month = "from=" + past.days_ago(30)
    for by in ("node", "tenant", "user", "job"):
        yield _read(f"/timeline?{month}&by={by}&limit=1000", f"a month by {by}, of all", "viewer")
    yield _read(f"/timeline?{month}&limit=1000", "a month of a tenant, and of others that they held", "other_reader")
    yield _read(f"/timeline?{month}&by=user&tenant={past.OWN}&user=mel&limit=1", "a month of one user")
    for query, name in (
        (f"from={past.days_ago(32)}", "beyond a month"),
        ("from=0001-01-01T00:00Z", "the year 1"),
        (f"{month}&limit=1001", "beyond a page"),
        (f"{month}&tenant={past.OTHER}", "of another tenant"),
        (f"{month}&cursor=" + "x" * 201, "beyond a cursor"),
    ):
        yield _read(f"/timeline?{query}", name, statuses=REFUSED, beyond=True)


def _changes() -> Iterator[Case]:
    everything = [Sent("GET", "/changes?topics=jobs,nodes,counts")]
    yield Case("GET /changes", "all topics", "reader", lambda: everything)
    yield Case("GET /changes", "64 after each other", "other_reader", lambda: everything * 64)
    wrong = [Sent("GET", f"/changes?topics=jobs,{'x' * 90}")]
    yield Case("GET /changes", "a topic that there is not", "reader", lambda: wrong, REFUSED, True)
    unknown = [Sent("GET", "/changes?topics=jobs", headers={"Last-Event-ID": "9" * 30})]
    yield Case("GET /changes", "after a message that is not known", "reader", lambda: unknown)


def _money() -> Iterator[Case]:
    yield _read("/bill", "this month")
    yield _read("/bill?summed=true", "this month, in sums")
    for month in ("1970-01", "0001-01", "9999-12", "2020-01"):
        yield _read(f"/bill?month={month}", f"the month {month}", statuses=EITHER)
    yield _read("/bill?month=" + "9" * 11, "beyond a month", statuses=REFUSED, beyond=True)
    yield _read("/bill?tenant=" + "x" * 63, "a tenant of a similar name", statuses=REFUSED, beyond=True)
    yield _read("/accounts", "all of it")
    yield _read("/accounts", "all tenants", "viewer")
    yield _read("/ledger?after=0&limit=10000", "all of it")
    yield _read("/ledger?after=0&limit=10000", "all tenants", "viewer")
    yield _read("/ledger?limit=1&after=9007199254740992", "nothing")
    yield _read("/ledger?limit=10001", "beyond a page", statuses=REFUSED, beyond=True)
    yield _read("/invoices?limit=1000", "all of it")
    yield _read("/invoices?limit=1000&open=true", "all that is open")
    yield _read("/invoices?limit=1001", "beyond a page", statuses=REFUSED, beyond=True)
    for kind in ("json", "html", "pdf", "csv"):
        for language in ("en", "zh"):
            path = f"/invoices/INV-000001?format={kind}&language={language}"
            yield _read(path, f"2,000 lines as {kind} in {language}", operation="/invoices/{number}")
    of_other = "/invoices/INV-000002?format=pdf"
    beyond = {"operation": "/invoices/{number}", "statuses": REFUSED, "beyond": True}
    yield _read(of_other, "of another tenant", **beyond)
    yield _read("/invoices/" + "%E4%BD%A0" * 40, "40 signs that are not ASCII", **beyond)
    yield _read("/invoices/" + "%2F" * 60_000 + "?format=pdf", "a long number", **beyond)


def _lists() -> Iterator[Case]:
    """Each of the shorter lists: searched, sorted, counted, and then page by page."""
    for path, asked in (
        ("/queues", "sort=-waiting&totals_by=policy&name=" + "*a" * 8),
        ("/pools", "sort=-available&totals_by=kind&name=" + "*a" * 8),
        ("/quotas", "sort=-percent&totals_by=resource&name=" + "*a" * 8),
        ("/alerts", "sort=-count&totals_by=code&search=" + "x" * 100),
        ("/accounts", "sort=-balance"),
        ("/ledger", "sort=-seq&totals_by=tenant&limit=10000&search=" + "x" * 100),
        ("/invoices", "sort=-due&totals_by=month&limit=1000&month=2020-01"),
        ("/secrets", "sort=-set&totals_by=owner&name=" + "*a" * 8),
        ("/tokens", "sort=-created&totals_by=user&user=" + "*a" * 8 + "&search=" + "x" * 100),
    ):
        yield _read(f"{path}?{asked}", "sorted, searched, counted", "admin")
        yield _read(f"{path}?cursor=" + "x" * 3_001, "beyond a cursor", statuses=REFUSED, beyond=True)
    for path in ("/usage", "/waste"):
        whole = f"{path}?by={ALL_DIMENSIONS}&since=1970-01-01T00:00:01Z"
        yield _read(f"{whole}&sort=-devices&limit=1000", "all time, sorted", "viewer")
    yield _read("/events?kind=QuotaNoted&limit=10000", "events of which there are none", "viewer")
    yield _read("/events?since=1970-01-01T00:00Z&until=9999-12-31T23:59Z", "events of all times", "viewer")
    yield _read(f"/events?job={past.first_own_finished()}&limit=10000", "events of a job")
    yield _read("/events?kind=x", "no kind", statuses=REFUSED, beyond=True)


def _sums() -> Iterator[Case]:
    for path in ("/usage", "/waste"):
        for kind in ("json", "csv", "parquet"):
            asked = f"{path}?by={ALL_DIMENSIONS}&since=1970-01-01T00:00:01Z&format={kind}"
            yield _read(asked, f"all time by every dimension as {kind}")
        yield _read(f"{path}?by={ALL_DIMENSIONS}&since=1970-01-01T00:00:01Z", "all time, of all", "viewer")
        yield _read(f"{path}?since=9999-12-31T23:59Z&until=1970-01-01T00:00Z", "an end before its begin")
        yield _read(f"{path}?since=0001-01-01T00:00Z", "the year 1", statuses=REFUSED, beyond=True)
        yield _read(f"{path}?by=" + "j," * 50, "dimensions that are none", statuses=REFUSED, beyond=True)
        yield _read(f"{path}?by=" + "x" * 101, "beyond a text", statuses=REFUSED, beyond=True)


def _declared() -> Iterator[Case]:
    yield _read("/tokens", "the own", "owner")
    yield _read("/tokens", "those of members", "tenant_admin")
    yield _read("/tokens", "all of it", "admin")
    yield _read("/secrets", "those of a tenant")
    yield _read("/secrets", "all of it", "admin")
    yield _read("/schedules", "the own", "owner")
    yield _read("/schedules?everyone=true", "all of it", "viewer")
    one = "/schedules/{name}"
    yield _read("/schedules/schedule-0", "one", "owner", operation=one)
    yield _read(f"/schedules/{'n' * 200}", "a long name", "owner", operation=one, statuses=REFUSED, beyond=True)
    yield _read("/notifications", "the own", "owner")
    yield _read("/notifications?everyone=true", "all of it", "admin")
    yield _read("/notifications?everyone=true", "by who may not", "owner", statuses=REFUSED, beyond=True)


def _odd() -> Iterator[Case]:
    """Requests at the limits of HTTP; they are no more than any other to the operations that they go to."""
    document = "/openapi.json"
    yield Case("GET /openapi.json", "without a token", "", get(document))
    yield Case("GET /openapi.json", "200 times", "", lambda: [Sent("GET", document)] * 200)
    headers = {f"X-{i}": "v" * 400 for i in range(120)}
    yield Case("GET /me", "all headers that there may be", "reader", get("/me", **headers))
    beyond = {f"X-{i}": "v" for i in range(200)}
    yield Case("GET /me", "more headers than there may be", "reader", get("/me", **beyond), REFUSED, True)
    yield Case("GET /me", "a token of 60,000 characters", "", get("/me", Authorization=f"Bearer {LONG}"), REFUSED, True)
    yield Case("GET /me", "a long query", "reader", get("/me?" + "&".join(f"a{i}={i}" for i in range(5_000))))
    yield Case("GET /me", "a target over the limit", "reader", get("/me?" + "x" * 2**17), REFUSED, True)
    deep = get("/api/v1" + "/a" * 30_000)
    yield Case("GET /me", "a path of 30,000 parts", "reader", deep, REFUSED, True)
    for method in ("HEAD", "OPTIONS", "TRACE", "BREW"):
        sent = [Sent(method, "/jobs?limit=1000")]
        yield Case("GET /jobs", f"with the method {method}", "reader", lambda sent=sent: sent, GOOD | REFUSED, True)
