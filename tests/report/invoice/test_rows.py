"""The table for programs: exact, one row a line, nothing a spreadsheet would run."""

import csv
import io
from decimal import Decimal

import pytest

from penstock.report.invoice import render_csv
from tests.report.invoice.samples import GIB, HOUR_MS, invoice, line, month

HEADER = (
    "invoice,invoice_kind,tenant,from,until,queue,user,job,name,resource,model,unit_hours,per_hour,rate,amount,"
    "kind,quantity_ms,tier,factor,full,currency"
)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_says_all_of_a_line_exactly():
    refund = line(
        resource="memory",
        model="",
        quantity_ms=-3 * GIB * HOUR_MS // 2,
        micro_per_hour=4_000,
        tier_milli=900,
        factor_milli=1250,
        full=-123_456_789,
        amount=-138_888_888,
        kind="refund",
    )
    header, row, end = render_csv(invoice([refund], currency="KWD", digits=3)).split("\n")
    assert (header, end) == (HEADER, "")
    assert row == (
        "R-2026-0042,invoice,vision,2026-10-31T23:00:00Z,2026-11-30T23:00:00Z,research,anna,7,train,memory,,"
        "-1.500000000000,0.004,1.125,-138888.888,refund,-5798205849600000,0.9,1.25,-123456.789,KWD"
    )


def test_rows_add_up_to_the_net_amount():
    sample = month(500)
    found = rows(render_csv(sample))
    assert len(found) == 500
    assert sum(Decimal(row["amount"]) for row in found) * 100 == sample.net


def test_an_invoice_without_lines_is_a_header():
    assert render_csv(invoice()) == HEADER + "\n"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", " =", "\u3000@"])
def test_no_name_is_a_formula(begin):
    row = rows(render_csv(invoice([line(job_name=f"{begin}1+1", user=f"{begin}u")])))[0]
    assert row["name"] == f"'{begin}1+1"
    assert row["user"].startswith("'")


def test_a_line_stays_one_row_whatever_its_name():
    found = rows(render_csv(invoice([line(job_name='a\nb\r"c",d\t\x00'), line()])))
    assert [row["name"] for row in found] == [r'a\nb\r"c",d\t\x00', "train"]
