"""The page of an invoice: every amount on it, exact; sums that add up; nothing of a name but its letters."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.report.invoice import LANGUAGES, DoesNotAddUp, render_html
from tests.properties import examples
from tests.report.invoice.needs import need
from tests.report.invoice.reading import Read, smallest
from tests.report.invoice.samples import CUSTOMER, DECEMBER_MS, HOUR_MS, ISSUER, NOVEMBER_MS, invoice, line, month
from tests.report.invoice.strategies import NAMES, invoices

need("jinja2")
need("babel")


def totals(read: Read) -> dict[str, str]:
    return {row[0]: row[1] for row in read.rows("totals")}


@pytest.mark.parametrize("language", LANGUAGES)
@examples(60)
@given(invoices())
def test_every_amount_is_shown_and_all_sums_add_up(language, made):
    read, digits = Read(render_html(made, language)), made.digits
    shown, subtotals = [], []
    for row in read.rows("lines"):
        if len(row) == 8 and row[0] and row[2].strip("-0123456789,.") == "" and row[2]:
            shown.append(smallest(row[-1], digits))
        elif len(row) == 2:
            subtotals.append(smallest(row[-1], digits))
    assert sorted(shown) == sorted(one.amount for one in made.lines)
    assert sum(subtotals) == sum(smallest(text.split("|")[-2], digits) for text in read.headings) == made.net
    if made.lines:
        assert sum(smallest(row[-1], digits) for row in read.rows("resources")[1:]) == made.net
        assert sum(smallest(row[-1], digits) for row in read.rows("users")[1:]) == made.net
    amounts = [smallest(row[1], digits) for name, rows in read.tables if name == "totals" for row in rows]
    assert made.total in amounts
    assert amounts[-1] == made.due
    ways = [amounts[:at] for at, amount in enumerate(amounts) if amount == made.net]  # a step may be as much as the sum
    assert any(sum(way) == made.net or not way for way in ways)


def test_the_way_to_the_amount_due_is_shown():
    held = [
        line(full=2500, amount=2000, tier_milli=800),
        line(full=1000, amount=1250, factor_milli=1250, job_id=8),
        line(full=-400, amount=-400, quantity_ms=-1, kind="refund", job_id=9),
    ]
    made = invoice(held, tax=542, tax_name="VAT", tax_milli=190, from_credit=1000)
    assert totals(Read(render_html(made, "en"))) == {
        "Usage at list prices": "35.00",
        "Discounts": "-5.00",
        "Surcharges": "2.50",
        "Refunds for failed nodes": "-4.00",
        "Net amount": "€28.50",
        "VAT 19%": "5.42",
        "Total": "€33.92",
        "Paid from credit": "-10.00",
        "Amount due": "€23.92",
    }
    assert "You saved €5.00 against list prices." in render_html(made, "en")
    assert "为您节省 €5.00。" in render_html(made, "zh")


def test_what_grants_paid_is_taken_off_before_the_tax():
    made = invoice([line()], granted=500, tax=380, tax_name="VAT", tax_milli=190, from_credit=1000)
    assert totals(Read(render_html(made, "en"))) == {
        "Net amount": "€25.00",
        "Paid from grants": "-5.00",
        "Taxable amount": "€20.00",
        "VAT 19%": "3.80",
        "Total": "€23.80",
        "Paid from credit": "-10.00",
        "Amount due": "€13.80",
    }
    untaxed = totals(Read(render_html(invoice([line()], granted=500), "zh")))
    assert list(untaxed.values())[:3] == ["€25.00", "-5.00", "€20.00"]


def test_the_amount_due_stands_at_the_top():
    text = Read(render_html(invoice([line()], from_credit=1000), "en")).text
    assert re.search(r"Period\s*1.*?Amount due\s+€15\.00\s+Total", text, re.DOTALL)


def test_users_beyond_the_dearest_are_one_row_of_the_summary():
    held = [line(user=f"u{n:02}", amount=100 * (n + 1)) for n in range(12)]
    rows = Read(render_html(invoice(held), "en")).rows("users")
    assert rows[1] == ["u11", "", "12.00"]
    assert rows[8:] == [["u04", "", "5.00"], ["4 others", "", "10.00"]]
    assert "其他 4 位用户" in render_html(invoice(held), "zh")


def test_a_line_shows_quantity_price_and_what_changed_it():
    held = [
        line(job_name="train", quantity_ms=1234567 * HOUR_MS + 180_000, tier_milli=800, factor_milli=1250),
        line(resource="cpu", model="", micro_per_hour=20_000, tier_milli=1000, factor_milli=875, job_id=8),
        line(resource="memory", model="", quantity_ms=2**29 * HOUR_MS, micro_per_hour=4_001, job_id=0, job_name=""),
    ]
    rows = Read(render_html(invoice(held), "en")).rows("lines")
    assert rows[0] == ["anna", "Resource", "Quantity", "", "Unit price", "Tier", "Factor", "Amount (EUR)"]
    assert rows[1] == ["#7 train", "H100", "1,234.5671", "device-hours", "2.50", "-20%", "+25%", "25.00"]
    assert rows[2] == ["#8 train", "CPU", "10.0000", "CPU-hours", "0.02", "", "-12.5%", "25.00"]
    assert rows[3] == ["All jobs", "Memory", "0.5000", "GiB-hours", "0.004001", "", "", "25.00"]
    assert rows[4] == ["Subtotal anna", "75.00"]
    chinese = Read(render_html(invoice(held), "zh")).rows("lines")
    assert chinese[3] == ["全部作业", "内存", "0.5000", "GiB·时", "0.004001", "", "", "25.00"]


def test_a_refund_is_called_one():
    held = [line(), line(amount=-500, full=-500, quantity_ms=-2000 * HOUR_MS, kind="refund")]
    row = Read(render_html(invoice(held), "en")).rows("lines")[2]
    assert row[0] == "#7 trainRefund: time lost to a failed node"
    assert (row[2], row[-1]) == ("-2.0000", "-5.00")


def test_lines_are_grouped_by_queue_and_user():
    held = [line(queue=queue, user=user, amount=n) for n, (queue, user) in enumerate(["bz", "az", "ax", "bz"])]
    read = Read(render_html(invoice(held), "en"))
    assert read.headings == ["Queue |a|0.03|", "Queue |b|0.03|"]
    heads = [row[0] for row in read.rows("lines") if len(row) == 8 and row[1] == "Resource"]
    assert heads == ["x", "z", "z"]
    assert [row[1] for row in read.rows("lines") if len(row) == 2] == ["0.02", "0.01", "0.03"]


@pytest.mark.parametrize(
    ("currency", "digits", "english", "chinese"),
    [
        ("EUR", 2, "-€1,234,567.89", "-€1,234,567.89"),
        ("USD", 2, "-US$1,234,567.89", "-US$1,234,567.89"),
        ("CNY", 2, "-CN¥1,234,567.89", "-¥1,234,567.89"),
        ("JPY", 0, "-JP¥123,456,789", "-JP¥123,456,789"),
        ("KWD", 3, "-KWD\xa0123,456.789", "-KWD\xa0123,456.789"),
        ("XTS", 6, "-XTS\xa0123.456789", "-XTS\xa0123.456789"),
    ],
)
def test_money_is_written_as_in_the_language_with_the_digits_of_the_invoice(currency, digits, english, chinese):
    made = invoice([line(amount=-123_456_789)], currency=currency, digits=digits)
    assert totals(Read(render_html(made, "en")))["Total"] == english
    assert totals(Read(render_html(made, "zh")))["合计"] == chinese


@pytest.mark.parametrize("amount", [10**25 + 1, 2**63 + 1, 2**53 + 1])
def test_no_amount_is_too_large_to_be_exact(amount):
    made = invoice([line(amount=amount, full=amount)])
    assert smallest(totals(Read(render_html(made, "en")))["Total"], 2) == amount


@pytest.mark.parametrize(
    ("quantity", "shown"),
    [(18_000_000, "0.0050"), (179_999, "0.0000"), (180_000, "0.0001"), (540_000, "0.0002"), (-180_000, "-0.0001")],
)
def test_quantities_are_rounded_half_away_from_zero(quantity, shown):
    assert Read(render_html(invoice([line(quantity_ms=quantity)]), "en")).rows("lines")[1][2] == shown


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "english", "chinese"),
    [
        (NOVEMBER_MS, DECEMBER_MS, "1–30 Nov 2026", "2026年11月1日至30日"),
        (NOVEMBER_MS, NOVEMBER_MS + 24 * HOUR_MS, "1 Nov 2026", "2026年11月1日"),
        (NOVEMBER_MS, NOVEMBER_MS, "1 Nov 2026", "2026年11月1日"),
        (NOVEMBER_MS, DECEMBER_MS + 1, "1 Nov – 1 Dec 2026", "2026年11月1日至12月1日"),
        (NOVEMBER_MS - 1, DECEMBER_MS, "31 Oct – 30 Nov 2026", "2026年10月31日至11月30日"),
    ],
)
def test_a_period_shows_its_last_day_and_its_exact_end(from_ms, until_ms, english, chinese):
    made = invoice(from_ms=from_ms, until_ms=until_ms)
    facts = {row[0]: row[1] for row in Read(render_html(made, "en")).rows("facts")}
    assert re.sub("[\u2009\u202f]", " ", facts["Period"]).startswith(english + "from 2026-")
    assert facts["Date of issue"] == "1 December 2026"
    facts = {row[0]: row[1] for row in Read(render_html(made, "zh")).rows("facts")}
    assert facts["账期"].startswith(chinese + "自 2026-")
    assert facts["开具日期"] == "2026年12月1日"


def test_the_exact_interval_is_in_the_time_zone_of_the_invoice():
    text = Read(render_html(invoice(), "en")).text
    assert "from 2026-11-01 00:00+01:00 until before 2026-12-01 00:00+01:00 (Europe/Berlin)" in text
    shanghai = Read(render_html(invoice(time_zone="Asia/Shanghai", until_ms=DECEMBER_MS + 500), "en")).text
    assert "from 2026-11-01 07:00+08:00 until before 2026-12-01 07:00:00.500+08:00 (Asia/Shanghai)" in shanghai


def test_issuer_and_customer_are_named():
    text = Read(render_html(invoice(issuer=ISSUER, customer=CUSTOMER), "en")).text
    for part in (ISSUER.name, *ISSUER.address, ISSUER.tax_id, ISSUER.note, CUSTOMER.name, *CUSTOMER.address):
        assert part in text
    assert "Billed to\nvision\n" in re.sub(
        r"\s*\n\s*", "\n", re.sub("(?<=to)", "\n", Read(render_html(invoice(), "en")).text)
    )


def test_a_credit_note_says_what_it_corrects_and_why():
    made = invoice(kind="credit_note", number="C-1", corrects="R-2026-0041", reason="<node> was slow", net=-1200)
    read = Read(render_html(made, "en"))
    facts = {row[0]: row[1] for row in read.rows("facts")}
    assert (facts["Corrects invoice"], facts["Reason"]) == ("R-2026-0041", "<node> was slow")
    assert re.search(r"Amount credited\s+€12.00", read.text)
    assert totals(read) == {"Total": "-€12.00"}
    assert "The reason" not in read.text
    assert "no line items; the reason says" in read.text
    assert "You saved" not in read.text
    assert "贷项通知单" in Read(render_html(made, "zh")).text


def test_a_credit_note_may_give_back_credit():
    made = invoice([line(amount=-500, full=-625)], kind="credit_note", corrects="R-1", from_credit=-500)
    assert totals(Read(render_html(made, "en")))["Returned as credit"] == "5.00"


def test_a_credit_note_says_what_goes_back_to_grants():
    made = invoice([line(amount=-500, full=-625)], kind="credit_note", granted=-200)
    read = totals(Read(render_html(made, "en")))
    assert (read["Net amount"], read["Given back to grants"], read["Total"]) == ("-€5.00", "2.00", "-€3.00")


def test_an_invoice_of_nothing_says_so():
    read = Read(render_html(invoice(), "en"))
    assert "Nothing was used in this period." in read.text
    assert totals(read) == {"Total": "€0.00", "Amount due": "€0.00"}
    assert "Nothing is left to pay." in read.text
    assert not read.rows("lines")


@pytest.mark.parametrize("change", [{"net": 2501}, {"total": 2499}, {"due": 1}])
def test_no_page_is_made_of_an_invoice_that_does_not_add_up(change):
    with pytest.raises(DoesNotAddUp, match=f"R-2026-0042: {next(iter(change))} is"):
        render_html(replace(invoice([line()]), **change), "en")


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><style>*{display:none}",
    "</table></td>",
    "{{ 7 * 7 }}{% raw %}",
    '"}@page{@top-left{content:"PAID"}}',
    "\\22 }*{color:red}",
    "<!--",
    "&lt;b&gt;",
    "\x00\x1b[31m\x7f",
    "\u202e00.001\u202c",
    "\ud800",
)


def of_name(name: str):
    """Return an invoice with `name` wherever a person may write something."""
    party = replace(ISSUER, name=name, address=(name,), tax_id=name, note=name)
    return invoice(
        [line(queue=name, user=name, job_name=name, model=name)],
        number=name,
        tenant=name,
        issued_by=name,
        corrects=name,
        reason=name,
        tax_name=name,
        tax=1,
        issuer=party,
        customer=party,
    )


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_only_text(name, language):
    tame, read = Read(render_html(of_name("tame"), language)), Read(render_html(of_name(name), language))
    assert read.tags == tame.tags
    assert re.sub(r'content:"[^"]*"', "", read.style) == re.sub(r'content:"[^"]*"', "", tame.style)
    seen = re.sub("[\x00-\x1f\x7f\u202a-\u202e\ud800-\udfff]", "\ufffd", name)
    assert read.rows("lines")[1][0] == f"#7 {seen}"
    assert read.text.count(seen) == tame.text.count("tame")


@examples(150)
@given(NAMES.filter(lambda text: text not in ("", "\n", "\r")))
def test_no_name_changes_the_shape_of_the_page(name):
    assert Read(render_html(of_name(name), "en")).tags == Read(render_html(of_name("tame"), "en")).tags


@given(st.text(max_size=8))
def test_the_footer_carries_the_number_whatever_it_is(number):
    style = Read(render_html(invoice(number=number), "en")).style
    content = re.search(r'@bottom-left\{content:"([^"]*)"\}', style)[1]
    assert re.fullmatch(r"(\\[0-9a-f]{6} |[0-9A-Za-z]|[^\x00-\x7f])*", content)
    shown = re.sub(r"\\([0-9a-f]{6}) ", lambda found: chr(int(found[1], 16)), content)
    assert shown.startswith("Invoice ")
    assert len(shown) == len("Invoice ") + len(number)


def test_long_names_are_cut_and_may_break():
    read = Read(render_html(invoice([line(job_name="x" * 500)]), "en"))
    assert read.rows("lines")[1][0] == "#7 " + "x" * 119 + "…"
    assert "overflow-wrap:break-word" in read.style


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_needs_nothing_beside_itself(language):
    html = render_html(month(40), language)
    assert not re.search(r"https?:|url\(|@import|<script|<link|<img|\bsrc=", html)
    assert "default-src 'none'" in html
    assert "prefers-color-scheme:dark" in html


def test_the_same_invoice_gives_the_same_page():
    assert render_html(month(60), "zh") == render_html(month(60), "zh")


def test_the_rounding_rule_is_said():
    assert "rounded once, half up, to €0.01" in render_html(invoice(), "en")
    assert "四舍五入到 JP¥1" in render_html(invoice(currency="JPY", digits=0), "zh")
