"""The page on paper: printed by PlutoPrint in a process of its own.

It is a library in C++: if a name crashes it, the server goes on. It takes a tenth of the time that
WeasyPrint needs for tables of thousands of rows.
"""

import json
import logging
import subprocess

from penstock import starts
from penstock.core.model.invoices import Invoice
from penstock.core.model.quantities import format_time
from penstock.report.invoice.errors import NotPrinted
from penstock.report.invoice.page import page
from penstock.report.invoice.words import MADE_IN_ENGLISH, WORDS, Language

PRINTER = tuple(starts.python("penstock.report.invoice.printer"))
PRINT_MAX_S = 120
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts", "~/Library/Fonts")
"""Folders searched for fonts; fontconfig supplies the missing ones."""
_SAID_MAX = 400
_log = logging.getLogger("penstock.report.invoice")


def paper(invoice: Invoice, language: Language) -> bytes:
    """Return the PDF; where characters have no font, with a notice that says so."""
    pdf, missing = _printed(page(invoice, language), invoice)
    if not missing:
        return pdf
    notice = WORDS[language]["no_glyphs"]
    if language != "en" and missing & set("".join(WORDS[language].values())):
        notice, language = MADE_IN_ENGLISH, "en"
    _log.warning(
        "invoice printed without a font for some characters",
        extra={"invoice": invoice.number, "language": language, "characters": "".join(sorted(missing))},
    )
    return _printed(page(invoice, language, notice), invoice)[0]


def _printed(html: str, invoice: Invoice) -> tuple[bytes, set[str]]:
    """Return the PDF of a page, and the characters without a font, shown as `?`."""
    issued = format_time(invoice.issued_ms - invoice.issued_ms % 1000)
    order = {"html": html, "author": invoice.issuer.name, "issued": issued, "fonts": FOLDERS}
    try:
        sent = json.dumps(order).encode()
        done = subprocess.run(  # noqa: S603 - this program itself
            PRINTER, input=sent, capture_output=True, timeout=PRINT_MAX_S, check=False, cwd=starts.HOME
        )
    except subprocess.TimeoutExpired:
        raise _not_printed(invoice, f"it took more than {PRINT_MAX_S} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-_SAID_MAX:]
        raise _not_printed(invoice, said or f"the printing process ended with {done.returncode}")
    missing, pdf = done.stdout.split(b"\n", 1)
    return pdf, set(json.loads(missing))


def _not_printed(invoice: Invoice, why: str) -> NotPrinted:
    return NotPrinted(f"{invoice.number}: the PDF could not be made: {why}", hint="print the HTML page from a browser")
