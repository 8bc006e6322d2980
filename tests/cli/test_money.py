"""Accounts, credits, the ledger and invoices on the command line, of a server whose log goes back months."""

import csv
import io

import pytest

from tests.cli.conftest import Terminal
from tests.server.harness import until
from tests.server.services.test_billing import PIECES, expected, past_server


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    server, now_ms = past_server(tmp_path_factory.mktemp("cli-money"), invoices={"issue": "manual", "prefix": "R/"})
    with server:
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
    told = Terminal(tmp_path_factory.mktemp("issue"), past.data.root, past.root)("invoice", "issue", "vision")
    assert told.code == 0, told.err
    return told.out.strip()


def test_accounts_are_shown_to_people_and_programs(penstock):
    told = penstock("account")
    assert (told.code, "amounts in EUR" in told.out) == (0, True)
    assert [name for name in PIECES if name not in told.out] == []
    (one,) = penstock("account", "vision", "--json").json()["accounts"]
    assert one["tenant"] == "vision"
    wrong = penstock("account", "visoin")
    assert (wrong.code != 0, "did you mean 'vision'?" in wrong.err) == (True, True)


def test_a_credit_is_added_once(penstock):
    assert penstock("credit", "default", "1250.00", "-r", "wire 7").out == "1250.00 added to default\n"
    assert penstock("credit", "default", "1250.00", "-r", "wire 7").out == "wire 7 was there before: nothing changed\n"
    expires = "2099-01-01T00:00+01:00"
    words = ("credit", "default", "5", "-r", "gift", "--grant", "--expires", expires, "--json")
    assert penstock(*words).json()["repeated"] is False
    (one,) = penstock("account", "default", "--json").json()["accounts"]
    assert [(lot["reference"], lot["left"], lot["kind"]) for lot in one["credits"]] == [
        ("gift", 500, "grant"),
        ("wire 7", 125_000, "payment"),
    ]


@pytest.mark.parametrize("amount", ["0", "1.001", "x", "1e3"])
def test_a_bad_amount_is_named(penstock, amount):
    told = penstock("credit", "default", amount, "-r", "bad")
    assert (told.code != 0, "amount" in told.err) == (True, True)


def test_the_ledger_is_printed_and_balances(penstock):
    told = penstock("ledger", "vision")
    assert (told.code, "use up to" in told.out, "unbilled:vision" in told.out) == (0, True, True)
    found = penstock("ledger", "--json").json()
    assert sum(found["balances"].values()) == 0
    assert all(sum(amount for _, amount in entry["postings"]) == 0 for entry in found["entries"])


def test_an_invoice_is_issued_listed_and_shown(penstock, number):
    assert number == "R/000001"
    listed = penstock("invoice", "list")
    assert (listed.code, number in listed.out) == (0, True)
    (head,) = [one for one in penstock("invoice", "list", "--json").json()["invoices"] if one["number"] == number]
    shown = penstock("invoice", "show", number, "--json").json()
    assert (shown["total"], shown["tenant"]) == (head["total"], "vision")
    assert sum(line["amount"] for line in shown["lines"]) == shown["net"]
    assert len(list(csv.reader(io.StringIO(penstock("invoice", "show", number).out)))) >= 2
    told = penstock("invoice", "show", number, "--out", "found.html")
    assert (told.code, f"{number} is in found.html" in told.out) == (0, True)
    assert "Vision Lab" in (penstock.folder / "found.html").read_text()
    assert penstock("invoice", "show", number, "--out", "zh.html", "--language", "zh").code == 0


def test_an_unknown_invoice_is_said(penstock):
    told = penstock("invoice", "show", "R/009999")
    assert (told.code != 0, "there is no invoice 'R/009999'" in told.err) == (True, True)


def test_an_invoice_is_paid_in_parts_and_once(penstock, number):
    assert penstock("invoice", "pay", number, "100.00", "-r", "bank 1").out == f"100.00 noted for {number}\n"
    assert penstock("invoice", "pay", number, "100.00", "-r", "bank 1").out == "bank 1 was noted before\n"
    (head,) = [one for one in penstock("invoice", "list", "--json").json()["invoices"] if one["number"] == number]
    assert head["paid"] == 10_000
    told = penstock("invoice", "pay", number, "999999999", "-r", "bank 2")
    assert (told.code != 0, "are open on" in told.err) == (True, True)


def test_an_invoice_is_corrected_by_a_credit_note(penstock, number):
    told = penstock("invoice", "correct", number, "--reason", "one bad day", "--amount", "10")
    assert told.out == f"CN-000001 corrects {number}\n"
    note = penstock("invoice", "show", "CN-000001", "--json").json()
    assert (note["net"], note["corrects"], note["reason"]) == (-1_000, number, "one bad day")
    assert "CN-000001" in penstock("invoice", "list", "--tenant", "vision").out


@pytest.mark.parametrize("command", ["account", "credit", "ledger", "invoice"])
def test_every_command_about_money_explains_itself(penstock, command):
    told = penstock(command, "--help")
    assert (told.code, told.err) == (0, "")


def test_a_credit_is_reversed(penstock):
    penstock("credit", "quiet", "7", "-r", "typing error")
    record = penstock("ledger", "quiet", "--json").json()["entries"][-1]["seq"]
    assert penstock("reverse", str(record), "--reason", "wrong tenant").out == f"record {record} is reversed\n"
    assert "wrong tenant" in penstock("ledger", "quiet").out
    told = penstock("reverse", str(record), "--reason", "again")
    assert (told.code != 0, "was reversed before" in told.err) == (True, True)
