"""Money on a real server whose log goes back months: it makes up for what it missed, by itself, and once."""

import asyncio
import csv
import io
import itertools
import random
import time
from functools import partial
from types import SimpleNamespace
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from penstock.control.calendar import month_begins, months
from penstock.core.config.cluster import parse_cluster
from penstock.core.ledger.accounts import JournalLog
from penstock.core.lifecycle.money import decide
from penstock.core.messages.money import AddCredit
from penstock.core.model import events as ev
from penstock.core.model.cluster import Tenant
from penstock.core.model.errors import PenstockError, StoreFull
from penstock.core.model.invoices import Invoice
from penstock.core.model.prices import Billing, Budget, Price, Tariff
from penstock.engines.processes.paths import DataFolder
from penstock.report.invoice import DocumentError, render_pdf
from penstock.server.http.responses import ApiError
from penstock.server.routes.invoices import _document
from penstock.server.services import billing as keeping
from penstock.server.services.billing import BillingService
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import config, node
from penstock.testing.harness import World
from tests.server.harness import Server, cluster_file, until

HOUR, DAY = 3_600_000, 86_400_000
API = "/api/v1"
ZONE = "Europe/Berlin"
BILLING = {
    "currency": "EUR",
    "time_zone": ZONE,
    "minimum_period": "0s",
    "prices": [{"per_hour": 3600}],
    "tax": {"name": "VAT", "rate": 0.19},
    "issuer": {"name": "Cluster GmbH", "address": ["Weg 1", "Berlin"], "tax_id": "DE1"},
    "invoices": {"prefix": "R/"},
}
"""A device costs one euro a second."""
TENANTS = ["default", "audio", "quiet", {"name": "vision", "bill_to": {"name": "Vision Lab"}}]
PIECES = {"vision": ((70.3, 40.1, 1), (69, 68.9, 2)), "audio": ((60, 59.5, 1), (44, 43.7, 1))}
"""From how many to how many days ago a tenant held how many devices."""


def declared(**billing):
    return cluster_file(1, 4) | {"tenants": TENANTS, "billing": BILLING | billing}


def write_past(folder, given, now_ms, job_name="train"):
    """Write a log as a server did that ended 40 days ago."""
    w = World(node("old", 4))
    w.now = now_ms - 80 * DAY
    w.emit(ev.ConfigChanged(parse_cluster(given)[0].config, "operator"))
    steps = []
    for tenant, held in PIECES.items():
        for first, last, devices in held:
            steps += [(-first, "begin", tenant, devices), (-last, "end", tenant, devices)]
    jobs = {}
    for days, what, tenant, devices in sorted(steps):
        w.now = now_ms + round(days * DAY)
        if what == "begin":
            jobs[tenant, devices] = w.submit(devices, tenant=tenant, name=f"{tenant}-{job_name}")
            w.run(jobs[tenant, devices])
        else:
            w.exit_replica(jobs.pop((tenant, devices)))
    w.lose("old")
    store = SqliteStore(folder)
    store.append(w.records, (), store.acquire_epoch())
    store.close()


def past_server(root, *, job_name="train", declared_too=None, **billing):
    """Return a server over such a log, and when it was begun (unix ms)."""
    now_ms, given = round(time.time() * 1000), declared(**billing) | (declared_too or {})
    write_past(DataFolder(root).log, given, now_ms, job_name)
    return Server(root, given), now_ms


def cents(tenant, now_ms, from_ms, until_ms):
    """Return what a tenant owes for a span: overlaps of what it held with it, at 100 cents a second."""
    parts = ((now_ms - round(a * DAY), now_ms - round(b * DAY), n) for a, b, n in PIECES[tenant])
    return sum(max(0, min(b, until_ms) - max(a, from_ms)) * n for a, b, n in parts) * 100 / 1000


def expected(tenant, now_ms):
    """Return begin, end and cents of each month that is over and came to something."""
    begins = months(ZONE, now_ms - 80 * DAY, now_ms)
    spans = itertools.pairwise(begins)
    found = [(a, b, cents(tenant, now_ms, a, b)) for a, b in spans]
    return [one for one in found if one[2]]


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    server, now_ms = past_server(tmp_path_factory.mktemp("money"))
    with server:
        server.begun_ms = now_ms
        count = sum(len(expected(tenant, now_ms)) for tenant in PIECES)
        until(lambda: len(heads(server)) >= count, "all months are invoiced")
        yield server


def heads(server, tenant=""):
    return [head for head in reversed(server.client.invoices(tenant).invoices) if head.kind == "invoice"]


def account(server, tenant):
    (found,) = server.client.accounts(tenant).accounts
    return found


def document(server, number, kind="json", **headers):
    return server.http("GET", f"{API}/invoices/{quote(number, safe='')}?format={kind}", **headers)


def post(server, path, **body):
    answer = server.http("POST", API + path, msgspec.json.encode(body), Content_Type="application/json")
    return answer.status, answer.json()


def problem(found):
    status, body = found
    return status, [one["field"] for one in body.get("problems", [])]


def test_months_that_are_over_are_invoiced_by_themselves_and_numbered_without_gaps(past):
    numbers = [head.number for head in heads(past)]
    assert numbers == [f"R/{i + 1:06d}" for i in range(len(numbers))]
    for tenant in PIECES:
        found = [(head.from_ms, head.until_ms) for head in heads(past, tenant)]
        assert found == [one[:2] for one in expected(tenant, past.begun_ms)]
        for head, (_, _, net) in zip(heads(past, tenant), expected(tenant, past.begun_ms), strict=True):
            made = msgspec.json.decode(document(past, head.number).body, type=Invoice)
            assert made.net == pytest.approx(net, abs=1)
            assert (made.tax, made.total) == ((19 * made.net + 50) // 100, made.net + made.tax)
            assert sum(line.amount for line in made.lines) == made.net
    assert account(past, "quiet").balance == 0


def test_a_list_says_how_many_older_ones_it_leaves_out_and_sums_all_that_is_open(past):
    found = past.http("GET", f"{API}/invoices?limit=1").json()
    whole = past.client.invoices()
    assert (len(found["invoices"]), found["left_out"]) == (1, len(whole.invoices) - 1)
    owed = {one.tenant: one.due for one in whole.open}
    assert {one["tenant"]: one["due"] for one in found["open"]} == owed
    assert {one.tenant: one.owed for one in past.client.accounts().accounts if one.owed} == owed


def test_the_bill_of_a_month_that_is_over_is_what_was_invoiced(past):
    for tenant in PIECES:
        for head in heads(past, tenant):
            made = msgspec.json.decode(document(past, head.number).body, type=Invoice)
            month = time.strftime("%Y-%m", time.gmtime((head.from_ms + 15 * DAY) / 1000))
            (bill,) = past.client.bills(tenant=tenant, month=month).bills
            assert (bill.total, bill.lines) == (made.net, made.lines)


def test_the_ledger_balances_entry_by_entry_and_as_a_whole(past):
    found = past.client.journal()
    assert all(sum(posting.amount for posting in entry.postings) == 0 for entry in found.entries)
    assert sum(found.balances.values()) == 0
    sums = {}
    for entry in found.entries:
        for posting in entry.postings:
            sums[posting.account] = sums.get(posting.account, 0) + posting.amount
    assert sums == found.balances
    mine = past.client.journal("vision")
    assert {entry.tenant for entry in mine.entries} == {"vision"}
    assert all(name.endswith(":vision") for name in mine.balances)
    later = past.client.journal("vision", after=mine.entries[0].seq)
    assert later.entries == mine.entries[1:]


def test_postings_are_days(past):
    entries = [one for one in past.client.journal("audio").entries if one.text.startswith("use up to")]
    assert 2 <= len(entries) <= 4
    income = -sum(p.amount for one in entries for p in one.postings if p.account == "income")
    assert income == pytest.approx((0.5 + 0.3) * 86_400 * 100, abs=2)


def test_an_invoice_is_a_document_in_each_format(past):
    number = heads(past, "vision")[0].number
    table = document(past, number, "csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert "/" not in table.headers["content-disposition"].split("filename=")[1]
    assert len(list(csv.reader(io.StringIO(table.body.decode())))) >= 2
    page = document(past, number, "html")
    assert (page.status, b"Vision Lab" in page.body, b"Cluster GmbH" in page.body) == (200, True, True)
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    made = msgspec.json.decode(document(past, number).body, type=Invoice)
    paper = document(past, number, "pdf")
    try:
        render_pdf(made, "en")
    except DocumentError:
        assert paper.status == 501
    else:
        assert paper.body.startswith(b"%PDF")


def test_an_unknown_invoice_or_format_is_said(past):
    assert document(past, "R/009999").status == 404
    assert document(past, "R/000001", "docx").status == 422


def test_credits_are_added_once(past):
    before = account(past, "default")
    path = "/accounts/default/credits"
    assert post(past, path, amount="12.50", reference="top-up")[0] == 201
    status, body = post(past, path, amount="12.50", reference="top-up")
    assert (status, body["repeated"]) == (200, True)
    after = account(past, "default")
    assert after.balance - before.balance == 1_250
    assert [(lot.reference, lot.left) for lot in after.credits] == [("top-up", 1_250)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount": "1.234"}, "amount"),
        ({"amount": "-5"}, "amount"),
        ({"amount": "0"}, "amount"),
        ({"amount": "1e3"}, "amount"),
        ({"amount": True}, "amount"),
        ({"amount": None}, "amount"),
        ({"reference": ""}, "reference"),
        ({"reference": "a\nb"}, "reference"),
        ({"kind": "gift"}, "kind"),
        ({"expires": "tomorrow"}, "expires"),
        ({"expires": "2020-01-01T00:00Z"}, "expires"),
    ],
)
def test_a_bad_credit_is_refused_by_its_field(past, change, field):
    before = account(past, "default")
    found = post(past, "/accounts/default/credits", **({"amount": "5", "reference": "bad"} | change))
    assert problem(found) == (422, [field])
    assert account(past, "default") == before


def test_other_fields_and_tenants_are_unknown(past):
    assert post(past, "/accounts/default/credits", amount=1, reference="r", sum=5)[0] == 422
    status, body = post(past, "/accounts/defualt/credits", amount=1, reference="r")
    assert (status, body["problems"][0]["field"]) == (404, "tenant")
    with pytest.raises(PenstockError, match="there is no tenant"):
        past.client.accounts("nobody")


def test_payments_are_noted_once_and_never_beyond_what_is_open(past):
    head = heads(past, "audio")[0]
    path = f"/invoices/{quote(head.number, safe='')}/payments"
    before = account(past, "audio").owed
    assert post(past, path, amount="10.00", reference="bank-1")[0] == 201
    assert post(past, path, amount="10.00", reference="bank-1")[1]["repeated"] is True
    assert account(past, "audio").owed == before - 1_000
    assert heads(past, "audio")[0].paid == 1_000
    assert problem(post(past, path, amount="99999999", reference="bank-2")) == (409, ["amount"])
    assert problem(post(past, path, amount="0", reference="bank-2")) == (422, ["amount"])
    assert post(past, "/invoices/R%2F009999/payments", amount="1", reference="r")[0] == 404


def test_a_credit_note_takes_back_a_part_and_the_invoice_stays_what_it_was(past):
    head = heads(past, "audio")[-1]
    issued = document(past, head.number).body
    path = f"/invoices/{quote(head.number, safe='')}/corrections"
    before = account(past, "audio")
    status, body = post(past, path, reason="a bad week", amount="100")
    assert status == 201
    made = msgspec.json.decode(document(past, body["number"]).body, type=Invoice)
    assert (made.kind, made.corrects, made.reason) == ("credit_note", head.number, "a bad week")
    assert (made.net, made.tax, made.total) == (-10_000, -1_900, -11_900)
    assert account(past, "audio").balance == before.balance + 11_900
    assert document(past, head.number).body == issued
    assert b"a bad week" in document(past, body["number"], "html").body
    assert problem(post(past, path, reason="", amount="1")) == (422, ["reason"])
    assert problem(post(past, path, reason="all", amount="99999999"))[0] == 409
    assert post(past, f"/invoices/{body['number']}/corrections", reason="again")[0] == 404


def test_a_credit_entered_wrongly_is_reversed_once(past):
    before = account(past, "default")
    post(past, "/accounts/default/credits", amount="99.00", reference="typing error")
    record = past.client.journal("default").entries[-1].seq
    path = f"/ledger/{record}/reversal"
    assert problem(post(past, path, reason="")) == (422, ["reason"])
    assert post(past, path, reason="9.90 were meant")[0] == 201
    assert account(past, "default") == before
    last = past.client.journal("default").entries[-1]
    assert last.text == f"record {record} reversed (typing error): 9.90 were meant"
    assert problem(post(past, path, reason="again")) == (409, ["record"])
    assert post(past, f"/ledger/{last.seq}/reversal", reason="of the reversal")[0] == 404
    assert post(past, "/ledger/999999/reversal", reason="r")[0] == 404


def test_an_invoice_is_open_again_when_a_payment_did_not_come(past):
    head = heads(past, "audio")[-1]
    path, before = f"/invoices/{quote(head.number, safe='')}/payments", account(past, "audio").owed
    post(past, path, amount="1.00", reference="will bounce")
    record = past.client.journal("audio").entries[-1].seq
    assert post(past, f"/ledger/{record}/reversal", reason="returned") == (
        201,
        {"number": head.number, "repeated": False},
    )
    assert account(past, "audio").owed == before
    assert heads(past, "audio")[-1].paid == head.paid


def test_an_invoice_of_another_origin_that_does_not_add_up_is_shown_as_data_and_not_as_a_page(past):
    """Nothing here issues one; a log that was changed by hand may hold it."""
    made = msgspec.json.decode(document(past, heads(past, "audio")[0].number).body, type=Invoice)
    with pytest.raises(ApiError) as caught:
        _document(replace(made, net=made.net + 1), "html", "en")
    assert caught.value.details.status == 409


def test_there_is_no_month_left_to_issue(past):
    status, body = post(past, "/invoices", tenant="vision")
    assert (status, "no month that is over" in body["title"]) == (409, True)
    assert post(past, "/invoices", tenant="nobody")[0] == 404


def test_a_restart_changes_nothing(past):
    before = past.client.invoices().invoices, past.client.journal(), past.client.accounts("vision").accounts
    past.stop()
    past.start()
    time.sleep(keeping.LOOK_EVERY_S + 1)
    after = past.client.invoices().invoices, past.client.journal(), past.client.accounts("vision").accounts
    assert after == before


def test_invoices_wait_to_be_issued_where_that_is_the_rule(tmp_path):
    server, now_ms = past_server(tmp_path, invoices={"issue": "manual"})
    with server:
        wanted = expected("vision", now_ms)
        unbilled = sum(net for _, _, net in wanted)
        until(lambda: abs(account(server, "vision").unbilled - unbilled) <= len(wanted), "all use is posted")
        assert heads(server) == []
        for number in range(1, len(wanted) + 1):
            assert server.client.issue_invoice("vision").number == f"INV-{number:06d}"
        with pytest.raises(PenstockError, match="no month that is over"):
            server.client.issue_invoice("vision")
        assert [head.from_ms for head in heads(server)] == [one[0] for one in wanted]


# The treasurer alone, with a clock that is moved by hand.


class Office:
    """A treasurer over a world that commits at once."""

    def __init__(self, *tenants, begun, **billing):
        tariff = Tariff((Price("device", 3_600_000_000),), minimum_ms=0)
        self.w = World(node("a", 4), billing=Billing(tariff, **billing), tenants=tenants)
        self.w.now = begun
        self.kept = {}
        log = SimpleNamespace(records=lambda after, limit: self.w.records[after : after + limit])
        self.look_ms, self.ticks = 0, 0
        clock = SimpleNamespace(unix_ms=lambda: self.w.now, monotonic_ms=self._monotonic_ms)
        store = SimpleNamespace(save_projection=self._save, projection=self.kept.get)
        self.backend = SimpleNamespace(state=self.w.state, log=log, clock=clock, ask=self._ask)
        self.store = store
        self.billing = BillingService(self.backend, store)

    def _monotonic_ms(self):
        """Let a look take `look_ms`."""
        self.ticks += 1
        return self.w.now + self.ticks * self.look_ms

    def _save(self, name, seq, body):
        self.kept[name] = seq, body

    async def _ask(self, request):
        return self.w.commit(lambda tx: decide(tx, request))

    def look(self, now_ms):
        """Look until nothing more is due; return what was written."""
        self.w.now = now_ms
        before = len(self.w.records)
        for _ in range(5):
            count = len(self.w.records)
            asyncio.run(self.billing.look())
            if len(self.w.records) == count:
                return [record.event for record in self.w.records[before:]]
        raise AssertionError("it never ends")

    def hold(self, from_ms, until_ms, tenant="t", devices=1):
        self.w.now = from_ms
        job = self.w.submit(devices, tenant=tenant)
        self.w.run(job)
        self.w.now = until_ms
        self.w.exit_replica(job)


def said(events, kind):
    return [(one.name, one.percent) for one in events if isinstance(one, ev.SpendingNoted) and one.kind == kind]


MARCH, APRIL, MAY, JUNE = (month_begins("UTC", 2026, month) for month in (3, 4, 5, 6))
T, U = Tenant("t"), Tenant("u")


def test_a_tenant_that_was_idle_for_months_stops_nobodys_books():
    office = Office(T, U, begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR)
    office.look(APRIL + HOUR)
    assert {e.amount for e in office.look(JUNE + HOUR)} == {
        0
    }  # of months that came to nothing it is said that they are over
    office.hold(JUNE + DAY, JUNE + DAY + HOUR, "t")
    office.hold(JUNE + 2 * DAY, JUNE + 2 * DAY + HOUR, "u")
    events = office.look(JUNE + 5 * DAY)
    assert {e.tenant: e.amount for e in events if isinstance(e, ev.UsagePosted)} == {"t": 360_000, "u": 360_000}
    assert office.billing.standing("t").month_spent == 360_000


@pytest.mark.parametrize("expires_ms", [APRIL, APRIL - 1, MARCH + DAY])
@pytest.mark.parametrize("now_ms", [APRIL + HOUR, JUNE + HOUR])
def test_a_credit_that_nobody_used_expires_with_its_month_or_long_before_anybody_looks(expires_ms, now_ms):
    office = Office(T, begun=MARCH)
    office.w.emit(ev.CreditAdded("t", "r", 500, "grant", expires_ms))
    said_ = [e for e in office.look(now_ms) if not (isinstance(e, ev.UsagePosted) and e.amount == 0)]
    assert said_ == [ev.CreditExpired("t", "r", 500)]


def test_what_yesterday_came_to_is_not_said_of_today():
    """Between midnight and the posting of the day before, what was used since the last posting is not today's."""
    office = Office(Tenant("t", budgets=(Budget("day", 100_000, "day"),)), begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + HOUR + 900_000)
    assert said(office.look(MARCH + 3 * HOUR), "budget") == [("day", 80)]
    assert office.look(MARCH + DAY + 5_000) == []
    assert said(office.look(MARCH + DAY + 12_000), "budget") == []
    office.hold(MARCH + DAY + HOUR, MARCH + DAY + HOUR + 850_000)
    assert said(office.look(MARCH + DAY + 3 * HOUR), "budget") == [("day", 80)]


def test_an_unusual_day_is_said_of_that_day_alone():
    office = Office(T, begun=MARCH)
    for day in range(10):
        office.hold(MARCH + day * DAY, MARCH + day * DAY + HOUR)
        assert said(office.look(MARCH + day * DAY + 2 * HOUR), "unusual") == []
    office.hold(MARCH + 10 * DAY, MARCH + 10 * DAY + 10 * HOUR)
    assert said(office.look(MARCH + 10 * DAY + 11 * HOUR), "unusual") == [("day", 1_000)]
    assert said(office.look(MARCH + 11 * DAY + 5_000), "unusual") == []
    assert said(office.look(MARCH + 11 * DAY + HOUR), "unusual") == []


def test_standings_of_a_long_look_are_shown_until_the_next_unless_the_account_changes():
    office = Office(T, begun=MARCH)
    office.look_ms = 1_000
    office.w.emit(ev.CreditAdded("t", "r", 10**9, "payment"))
    office.w.run(office.w.submit(1, tenant="t"))
    office.look(MARCH + HOUR)
    seen = office.billing.standing("t")
    office.w.now += 1_000
    assert office.billing.standing("t") is seen
    office.w.emit(ev.CreditAdded("t", "s", 1, "payment"))
    assert office.billing.standing("t").account.credit == seen.account.credit + 1
    assert office.billing.standing("t").accrued > seen.accrued


def test_standings_of_a_short_look_are_worked_out_each_time():
    office = Office(T, begun=MARCH)
    office.w.emit(ev.CreditAdded("t", "r", 10**9, "payment"))
    office.w.run(office.w.submit(1, tenant="t"))
    office.look(MARCH + HOUR)
    seen = office.billing.standing("t")
    office.w.now += 1_000
    assert office.billing.standing("t").accrued > seen.accrued


def test_standings_of_a_long_look_are_shown_no_longer_than_it_is_new():
    office = Office(T, begun=MARCH)
    office.look_ms = 1_000
    office.w.run(office.w.submit(1, tenant="t"))
    office.look(MARCH + HOUR)
    seen = office.billing.standing("t")
    office.w.now += 60_000
    assert office.billing.standing("t").accrued > seen.accrued


def test_a_tenant_without_credit_is_held_and_released_by_a_payment():
    office = Office(Tenant("t", at_zero="suspend"), begun=MARCH)
    office.w.emit(ev.CreditAdded("t", "r", 360_000, "payment"))
    office.look(MARCH + HOUR)
    job = office.w.submit(1, tenant="t")
    office.w.run(job)
    assert said(office.look(MARCH + 2 * HOUR - 1_000), "balance") == [("r", 80)]
    assert office.w.job(job).attempt.stop is None
    held = office.look(MARCH + 2 * HOUR)
    assert [e.suspend for e in held if isinstance(e, ev.TenantHeld)] == [True]
    assert office.w.job(job).attempt.stop.reason == "held"
    office.w.emit(ev.CreditAdded("t", "s", 1, "payment"))
    assert ev.TenantReleased("t") not in office.look(MARCH + 2 * HOUR + 1_000)
    office.w.emit(ev.CreditAdded("t", "u", 10**6, "payment"))
    assert ev.TenantReleased("t") in office.look(MARCH + 2 * HOUR + 2_000)


def test_books_go_on_from_what_was_kept_and_a_kept_one_of_another_version_is_folded_anew(monkeypatch):
    monkeypatch.setattr(keeping, "KEEP_EVERY_RECORDS", 5)
    office = Office(T, begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR)
    office.look(MARCH + DAY + HOUR)
    assert office.kept["books"][0] >= 5
    journal = office.billing.journal()
    for kept in (office.kept["books"], (9, b"\x93what")):
        office.kept["books"] = kept
        again = BillingService(office.backend, office.store)
        assert again.journal() == journal
        assert again.bill("t", MARCH, APRIL) == office.billing.bill("t", MARCH, APRIL)


def test_the_bill_of_a_month_whose_sessions_were_dropped_is_made_from_the_log():
    office = Office(T, begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR)
    before = office.billing.bill("t", MARCH, APRIL)
    office.look(JUNE)
    assert office.billing._books.held("t").sessions == []
    read = []
    office.backend.log.records = lambda after, limit: read.append(limit) or office.w.records[after : after + limit]
    assert office.billing.bill("t", MARCH, APRIL) == before
    assert before.total == 360_000
    assert max(read[1:]) == 1  # after the tail: it is what the invoice says


def test_bills_of_a_month_whose_sessions_were_dropped_read_the_log_once_for_all_tenants():
    office = Office(T, U, begun=MARCH)
    for begin, tenant in ((HOUR, "t"), (3 * HOUR, "u")):
        office.hold(MARCH + begin, MARCH + begin + HOUR, tenant)
    office.look(JUNE)
    begun, read = [], office.backend.log.records
    office.backend.log.records = lambda after, limit: (begun.append(after), read(after, limit))[1]
    span = MARCH, MARCH + DAY  # on no invoice
    for _ in range(2):
        assert [bill.total for bill in office.billing.bills(["t", "u"], *span)] == [360_000, 360_000]
        assert begun.count(0) == 1


def test_books_that_cannot_be_kept_are_read_all_the_same(monkeypatch, caplog):
    monkeypatch.setattr(keeping, "KEEP_EVERY_RECORDS", 5)
    office = Office(T, begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR)

    def full(*_):
        raise StoreFull("the disk of the event log is full")

    office.store.save_projection = full
    assert office.billing.tenants() == ["t"]
    assert "books not kept" in caplog.text


def test_without_prices_nothing_is_looked_at():
    office = Office(T, begun=MARCH)
    office.w.emit(ev.ConfigChanged(config(), "op"))
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR, "default")
    assert office.look(MAY) == []


def test_the_journal_is_that_of_the_log():
    office = Office(T, begun=MARCH)
    office.hold(MARCH + HOUR, MARCH + 2 * HOUR)
    office.look(MAY)
    log = JournalLog()
    for record in office.w.records:
        log.take(record)
    assert office.billing.journal() == log.entries
    assert len(log.entries) == 2


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_between_looks_the_standing_is_what_came_in_less_what_was_used(seed):
    rng = random.Random(seed)
    zone = rng.choice(["UTC", "Europe/Berlin", "America/Sao_Paulo"])
    office = Office(T, U, begun=MARCH, time_zone=zone, issue=rng.choice(["automatic", "manual"]))
    now, used, added = MARCH, {"t": 0, "u": 0}, {"t": 0, "u": 0}
    for step in range(14):
        now += rng.choice([1, 5, 23, 24, 24 * 9, 24 * 45]) * HOUR
        name = rng.choice(["t", "t", "u"])
        if rng.random() < 0.5:
            length = rng.choice([1, 60, 3_600, 86_400])
            office.hold(now, now + length * 1_000, name)
            now += length * 1_000
            used[name] += length * 100
        else:
            office.w.now = now
            amount, lasts = rng.randrange(1, 10**6), rng.choice([0, HOUR, DAY, 20 * DAY, 90 * DAY])
            given = AddCredit(name, f"c{step}", amount, "grant", "op", now + lasts if lasts else 0)
            office.w.commit(partial(decide, request=given))
            added[name] += amount
        if rng.random() < 0.7:
            now += rng.choice([5_000, 12_000, 3 * HOUR])
            office.look(now)
            if rng.random() < 0.3:
                asyncio.run(office.billing.issue(rng.choice(["t", "u"])))
    office.look(now + HOUR)
    assert office.look(now + HOUR) == []
    for name, whole in used.items():
        stands = office.billing.standing(name)
        events = [r.event for r in office.w.records if isinstance(r.event, ev.CreditExpired) and r.event.tenant == name]
        gone = sum(one.amount for one in events)
        assert stands.account.balance - stands.accrued == added[name] - gone - whole
        assert not [lot for lot in stands.account.lots if 0 < lot.expires_ms <= now]
    assert sum(office.w.state.money.ledger.values()) == 0
