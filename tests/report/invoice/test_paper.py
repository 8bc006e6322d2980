"""The page on paper: all of it, numbered, the same bytes each time; and what happens where something is missing."""

import io
import json
import logging
import subprocess
import sys

import pytest

from penstock.report.invoice import LANGUAGES, MissingLibrary, NotPrinted, render_csv, render_html, render_pdf
from tests.report.invoice.needs import CHINESE, LATIN, need, need_font
from tests.report.invoice.samples import CUSTOMER, ISSUER, invoice, line, month

for library in ("jinja2", "babel", "fontTools", "plutoprint", "pypdf"):
    need(library)

import pypdf  # noqa: E402 - after the check that it is there

from penstock.report.invoice import paper  # noqa: E402


def read(pdf: bytes) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages]


@pytest.fixture
def only_latin(tmp_path, monkeypatch):
    need_font(LATIN)
    use_fonts(tmp_path, monkeypatch, str(LATIN.parent))


def use_fonts(tmp_path, monkeypatch, folder: str) -> None:
    config = tmp_path / "fonts.conf"
    config.write_text(
        f"<fontconfig><dir>{folder}</dir><cachedir>{tmp_path}/cache</cachedir></fontconfig>", encoding="utf-8"
    )
    monkeypatch.setenv("FONTCONFIG_FILE", str(config))
    monkeypatch.setattr(paper, "FOLDERS", (folder,))


def test_paper_says_number_period_and_amount_due():
    made = invoice([line()], tax=475, tax_name="VAT", tax_milli=190, issuer=ISSUER, customer=CUSTOMER)
    (text,) = read(render_pdf(made, "en"))
    for part in ("Invoice R-2026-0042", "Page 1 of 1", "€25.00", "VAT 19%", "€29.75", CUSTOMER.name, "#7 train"):
        assert part in text


def test_paper_in_chinese():
    need_font(CHINESE)
    (text,) = read(render_pdf(invoice([line(user="王小明")], issuer=ISSUER), "zh"))
    for part in ("账单 R-2026-0042", "第 1 页，共 1 页", "应付金额", "€25.00", "2026年11月1日至30日", "王小明"):
        assert part in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_two_thousand_lines_are_all_there_on_numbered_pages_with_heads(language):
    need_font(CHINESE)
    made = month(2000)
    pdf = render_pdf(made, language)
    pages = read(pdf)
    count = len(pages)
    assert 30 < count < 60
    assert len(pdf) < 500_000
    for number, text in enumerate(pages, 1):
        said = f"Page {number} of {count}" if language == "en" else f"第 {number} 页，共 {count} 页"
        assert said in text
        assert "R-2026-0042" in text
    whole = "\n".join(pages)
    for one in made.lines:
        assert f"#{one.job_id}" in whole
    heads = [("Unit price" if language == "en" else "单价") in text for text in pages]
    assert heads[0] is False
    assert all(heads[1:-1])


def test_the_same_invoice_gives_the_same_bytes(monkeypatch):
    first = render_pdf(month(60), "en")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "C")
    assert render_pdf(month(60), "en") == first
    about = pypdf.PdfReader(io.BytesIO(first)).metadata
    assert about.creation_date.isoformat() == "2026-12-01T08:00:00+00:00"
    assert (about.title, about.author) == ("Invoice R-2026-0042", ISSUER.name)


def test_a_name_in_a_language_without_a_font_is_not_a_box(only_latin, caplog):
    with caplog.at_level(logging.WARNING, "penstock.report.invoice"):
        (text,) = read(render_pdf(invoice([line(user="王小明", job_name="привет")]), "en"))
    assert "???" in text
    assert "#7 привет" in text
    assert "no font for some characters" in text
    (record,) = caplog.records
    assert (record.invoice, record.characters) == ("R-2026-0042", "小明王")


def test_without_a_chinese_font_paper_is_in_english_and_says_so(only_latin, caplog):
    (text,) = read(render_pdf(invoice([line()]), "zh"))
    assert "no font for the language that was asked for: made in English" in text
    assert "Amount due" in text
    assert [record.language for record in caplog.records] == ["en"]


def test_without_any_font_nothing_is_printed(tmp_path, monkeypatch):
    use_fonts(tmp_path, monkeypatch, str(tmp_path / "none"))
    with pytest.raises(NotPrinted, match="no font is installed: apt-get install fonts-noto-cjk"):
        render_pdf(invoice(), "en")


def test_a_crash_of_the_printing_library_is_an_error_and_no_more(monkeypatch):
    monkeypatch.setattr(paper, "PRINTER", (sys.executable, "-c", "import os; os.abort()"))
    with pytest.raises(NotPrinted, match=r"R-2026-0042: .* ended with -6") as caught:
        render_pdf(invoice(), "en")
    assert "browser" in caught.value.hint


def test_printing_has_an_end(monkeypatch):
    monkeypatch.setattr(paper, "PRINTER", (sys.executable, "-c", "import signal; signal.pause()"))
    monkeypatch.setattr(paper, "PRINT_MAX_S", 0.2)
    with pytest.raises(NotPrinted, match=r"more than 0\.2 s"):
        render_pdf(invoice(), "en")


def test_nothing_is_fetched_while_printing(tmp_path):
    sheet = tmp_path / "hide.css"
    sheet.write_text("p{display:none}", encoding="utf-8")
    html = f'<link rel="stylesheet" href="{sheet.as_uri()}"><style>@import "{sheet.as_uri()}";</style><p>still here</p>'
    order = json.dumps({"html": html, "author": "", "issued": "2026-12-01T08:00:00Z", "fonts": []})
    done = subprocess.run(paper.PRINTER, input=order.encode(), capture_output=True, timeout=60)
    assert read(done.stdout.split(b"\n", 1)[1]) == ["still here"]


@pytest.mark.parametrize("name", ["</main>\x00<script>", "a\u0301" * 300, "👩‍💻" * 40, "שלום", "x" * 4000])
def test_any_name_can_be_printed(name):
    made = invoice([line(user=name, job_name=name, queue=name), line()], reason=name)
    assert any("€50.00" in text for text in read(render_pdf(made, "en")))


def test_credit_notes_and_empty_invoices_are_one_page():
    credit = invoice(kind="credit_note", number="C-1", corrects="R-2026-0041", reason="a slow node", net=-1200)
    (text,) = read(render_pdf(credit, "en"))
    assert "Credit note" in text
    assert "R-2026-0041" in text
    assert len(read(render_pdf(invoice(), "en"))) == 1


@pytest.mark.parametrize("library", ["plutoprint", "fontTools", "jinja2", "babel"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(library, monkeypatch):
    for module in [name for name in sys.modules if name.startswith("penstock.report.invoice.")]:
        if module.split(".")[-1] in ("page", "formats", "paper"):
            monkeypatch.delitem(sys.modules, module)
    for module in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibrary, match=library) as caught:
        (render_html if library in ("jinja2", "babel") else render_pdf)(invoice(), "en")
    assert caught.value.hint.startswith("pip install 'penstock[invoices]'")
    assert render_csv(invoice()).startswith("invoice,")
