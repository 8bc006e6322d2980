"""Accounts, credits, the ledger and invoices on the command line, of a server whose log goes back months."""

import csv
import io
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.control.calendar import months
from penstock.core.model.quantities import money
from tests.cli.conftest import Terminal
from tests.server.harness import until
from tests.server.services.test_billing import DAY, PIECES, ZONE, expected, past_server


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    server, now_ms = past_server(tmp_path_factory.mktemp("cli-money"), invoices={"issue": "manual", "prefix": "R/"})
    with server:
        server.begun_ms = now_ms
        wanted = expected("vision", now_ms)
        unbilled = sum(net for _, _, net in wanted)

        def posted():
            (found,) = server.client.accounts("vision").accounts
            return abs(found.unbilled - unbilled) <= len(wanted)

        until(posted, "all use is posted")
        yield server


@pytest.fixture
def penstock(past, tmp_path):
    return Terminal(tmp_path, past.data.root, past.root)


@pytest.fixture(scope="module")
def number(past, tmp_path_factory):
    """Return the number of an invoice that was issued by a command."""
    told = Terminal(tmp_path_factory.mktemp("issue"), past.data.root, past.root)("money", "invoice", "issue", "vision")
    assert told.code == 0, told.err
    return told.out.strip()


def test_accounts_are_shown_to_people_and_programs(penstock):
    told = penstock("money", "accounts")
    assert (told.code, "amounts in EUR" in told.out) == (0, True)
    assert [name for name in PIECES if name not in told.out] == []
    (one,) = penstock("money", "accounts", "vision", "--json").json()["accounts"]
    assert one["tenant"] == "vision"
    wrong = penstock("money", "accounts", "visoin")
    assert (wrong.code != 0, "did you mean 'vision'?" in wrong.err) == (True, True)


def test_a_credit_is_added_once(penstock):
    assert penstock("money", "credit", "default", "1250.00", "-r", "wire 7").out == "1250.00 added to default\n"
    assert (
        penstock("money", "credit", "default", "1250.00", "-r", "wire 7").out
        == "wire 7 was there before: nothing changed\n"
    )
    expires = "2099-01-01T00:00+01:00"
    words = ("money", "credit", "default", "5", "-r", "gift", "--grant", "--expires", expires, "--json")
    assert penstock(*words).json()["repeated"] is False
    (one,) = penstock("money", "accounts", "default", "--json").json()["accounts"]
    assert [(lot["reference"], lot["left"], lot["kind"]) for lot in one["credits"]] == [
        ("gift", 500, "grant"),
        ("wire 7", 125_000, "payment"),
    ]


@pytest.mark.parametrize("amount", ["0", "1.001", "x", "1e3"])
def test_a_bad_amount_is_named(penstock, amount):
    told = penstock("money", "credit", "default", amount, "-r", "bad")
    assert (told.code != 0, "amount" in told.err) == (True, True)


def test_the_ledger_is_printed_and_balances(penstock):
    told = penstock("money", "ledger", "vision")
    assert (told.code, "use up to" in told.out, "unbilled:vision" in told.out) == (0, True, True)
    found = penstock("money", "ledger", "--json").json()
    assert sum(found["balances"].values()) == 0
    assert all(sum(amount for _, amount in entry["postings"]) == 0 for entry in found["entries"])


def test_an_invoice_is_issued_listed_and_shown(penstock, number):
    assert number == "R/000001"
    listed = penstock("money", "invoice", "list")
    assert (listed.code, number in listed.out) == (0, True)
    (head,) = [
        one for one in penstock("money", "invoice", "list", "--json").json()["invoices"] if one["number"] == number
    ]
    shown = penstock("money", "invoice", "show", number, "--json").json()
    assert (shown["total"], shown["tenant"]) == (head["total"], "vision")
    assert sum(line["amount"] for line in shown["lines"]) == shown["net"]
    assert len(list(csv.reader(io.StringIO(penstock("money", "invoice", "show", number).out)))) >= 2
    told = penstock("money", "invoice", "show", number, "--out", "found.html")
    assert (told.code, f"{number} is in found.html" in told.out) == (0, True)
    assert "Vision Lab" in (penstock.folder / "found.html").read_text()
    assert penstock("money", "invoice", "show", number, "--out", "zh.html", "--language", "zh").code == 0


def test_an_unknown_invoice_is_said(penstock):
    told = penstock("money", "invoice", "show", "R/009999")
    assert (told.code != 0, "there is no invoice 'R/009999'" in told.err) == (True, True)


def test_an_invoice_is_paid_in_parts_and_once(penstock, number):
    assert penstock("money", "invoice", "pay", number, "100.00", "-r", "bank 1").out == f"100.00 noted for {number}\n"
    assert penstock("money", "invoice", "pay", number, "100.00", "-r", "bank 1").out == "bank 1 was noted before\n"
    (head,) = [
        one for one in penstock("money", "invoice", "list", "--json").json()["invoices"] if one["number"] == number
    ]
    assert head["paid"] == 10_000
    told = penstock("money", "invoice", "pay", number, "999999999", "-r", "bank 2")
    assert (told.code != 0, "are open on" in told.err) == (True, True)


def test_an_invoice_is_corrected_by_a_credit_note(penstock, number):
    told = penstock("money", "invoice", "correct", number, "--reason", "one bad day", "--amount", "10")
    assert told.out == f"CN-000001 corrects {number}\n"
    note = penstock("money", "invoice", "show", "CN-000001", "--json").json()
    assert (note["net"], note["corrects"], note["reason"]) == (-1_000, number, "one bad day")
    assert "CN-000001" in penstock("money", "invoice", "list", "--tenant", "vision").out


@pytest.fixture(scope="module")
def in_part(past, tmp_path_factory):
    """Return the number of an invoice of which 1.00 is paid, and 10.00 with its tax is corrected."""
    penstock = Terminal(tmp_path_factory.mktemp("part"), past.data.root, past.root)
    number = penstock("money", "invoice", "issue", "audio").out.strip()
    assert penstock("money", "invoice", "pay", number, "1.00", "-r", "bank 9").code == 0
    assert penstock("money", "invoice", "correct", number, "--reason", "one bad day", "--amount", "10").code == 0
    return number


def listed(penstock, *words):
    return penstock("money", "invoice", "list", *words, "--json").json()


def head_of(found, number):
    (head,) = [one for one in found["invoices"] if one["number"] == number]
    return head


def test_due_falls_with_payments_and_credit_notes(penstock, in_part):
    found = listed(penstock)
    head = head_of(found, in_part)
    assert (head["paid"], head["corrected"]) == (100, 1_190)
    assert (head["due_issued"], head["due"]) == (head["total"], head["total"] - 1_290)
    (note,) = [one for one in found["invoices"] if one["corrects"] == in_part]
    assert (note["due"], note["total"]) == (0, -1_190)


def test_what_is_open_is_listed_with_a_sum_for_each_tenant(penstock, in_part):
    found = listed(penstock, "--open", "--tenant", "audio")
    assert [one["number"] for one in found["invoices"]] == [in_part], "and no credit note"
    due = head_of(found, in_part)["due"]
    assert found["open"] == [{"tenant": "audio", "due": due, "invoices": 1}]
    told = penstock("money", "invoice", "list", "--open", "--tenant", "audio").out
    assert f"audio owes {money(due, 2)} EUR on 1 invoice" in told.splitlines()


def test_a_tenant_that_owes_nothing_has_nothing_open(penstock):
    assert penstock("money", "invoice", "list", "--open", "--tenant", "quiet").out == "nothing is open\n"
    assert penstock("money", "invoice", "list", "--tenant", "quiet").out == "no invoices\n"
    assert listed(penstock, "--open", "--tenant", "quiet")["open"] == []


def test_dates_of_invoices_are_those_of_their_time_zone(penstock, in_part):
    found = listed(penstock)
    head = head_of(found, in_part)
    begin = datetime.fromtimestamp(head["from_ms"] / 1000, ZoneInfo(ZONE))
    assert (found["time_zone"], begin.day, begin.hour) == (ZONE, 1, 0)
    assert (head["month"], head["from_time"]) == (f"{begin:%Y-%m}", begin.isoformat())
    assert datetime.fromisoformat(head["until_time"]).timestamp() * 1000 == head["until_ms"]
    told = penstock("money", "invoice", "list").out
    assert (head["month"] in told, head["issued_time"][:10] in told, f"months of {ZONE}" in told) == (True, True, True)


def test_the_ledger_and_budgets_go_by_the_clock_of_the_bills(penstock):
    found = penstock("money", "ledger", "vision", "--json").json()
    assert found["time_zone"] == ZONE
    entry = found["entries"][0]
    assert datetime.fromisoformat(entry["time"]).timestamp() * 1000 == entry["time_ms"]
    assert entry["time"] in penstock("money", "ledger", "vision").out


def test_a_bill_says_from_when_until_when_by_the_clock_of_its_zone(penstock, past):
    month = months(ZONE, past.begun_ms - 60 * DAY, past.begun_ms - 60 * DAY)[0]
    begin = datetime.fromtimestamp(month / 1000, ZoneInfo(ZONE))
    told = penstock("money", "bill", "--month", f"{begin:%Y-%m}")
    assert told.out.splitlines()[0].startswith(f"from {begin.isoformat()} until ")
    assert told.out.splitlines()[0].endswith(f" ({ZONE})")
    found = penstock("money", "bill", "--month", f"{begin:%Y-%m}", "--json").json()
    assert (found["time_zone"], found["from_time"]) == (ZONE, begin.isoformat())
    assert found["bills"][0]["from_ms"] == found["from_ms"] == month


def test_the_lines_of_a_bill_say_their_units(penstock, past):
    month = months(ZONE, past.begun_ms - 60 * DAY, past.begun_ms - 60 * DAY)[0]
    told = penstock("money", "bill", "--month", f"{datetime.fromtimestamp(month / 1000, ZoneInfo(ZONE)):%Y-%m}").out
    assert ("device-hours" in told, "unit_hours" in told, "per_hour" in told) == (True, False, False)


@pytest.mark.parametrize("command", ["accounts", "credit", "ledger", "invoice"])
def test_every_command_about_money_explains_itself(penstock, command):
    told = penstock("money", command, "--help")
    assert (told.code, told.err) == (0, "")


def test_a_credit_is_reversed(penstock):
    penstock("money", "credit", "quiet", "7", "-r", "typing error")
    record = penstock("money", "ledger", "quiet", "--json").json()["entries"][-1]["seq"]
    assert penstock("money", "reverse", str(record), "--reason", "wrong tenant").out == f"record {record} is reversed\n"
    assert "wrong tenant" in penstock("money", "ledger", "quiet").out
    told = penstock("money", "reverse", str(record), "--reason", "again")
    assert (told.code != 0, "was reversed before" in told.err) == (True, True)
