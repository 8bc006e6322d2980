"""Documents of invoices: a page (HTML), the same page on paper (PDF), a table for programs (CSV).

page, paper = render_html(invoice, "en"), render_pdf(invoice, "zh")
table = render_csv(invoice)

JSON is `msgspec.json.encode(invoice)`. Libraries of pages and PDFs (`pip install 'penstock[invoices]'`) are imported
on first use. The same invoice gives the same bytes on the same machine, so documents can be compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from penstock.core.model.invoices import Invoice
from penstock.report.invoice.errors import DocumentError, DoesNotAddUp, MissingLibrary, NotPrinted
from penstock.report.invoice.rows import LINE_COLUMNS, exact_cells, render_csv
from penstock.report.invoice.words import LANGUAGES, Language

__all__ = [
    "LANGUAGES",
    "LINE_COLUMNS",
    "DocumentError",
    "DoesNotAddUp",
    "Language",
    "MissingLibrary",
    "NotPrinted",
    "exact_cells",
    "render_csv",
    "render_html",
    "render_pdf",
]


def render_html(invoice: Invoice, language: Language) -> str:
    """Return one page that needs nothing beside itself, for the screen (light and dark) and for paper.

    Raises: MissingLibrary; DoesNotAddUp where the sums of the invoice do not fit.
    """
    with _libraries("a page"):
        from penstock.report.invoice.page import page
    return page(invoice, language)


def render_pdf(invoice: Invoice, language: Language) -> bytes:
    """Return the page of `render_html` on A4.

    Where the machine has no font for the language it is in English, and says so; characters without a font are shown
    as `?`, which is said below the title and logged.
    Raises: MissingLibrary; DoesNotAddUp; NotPrinted, for instance where the machine has no font at all.
    """
    for name in ("plutoprint", "fontTools"):  # imported by the process that prints
        if find_spec(name) is None:
            raise _missing("a PDF", name)
    with _libraries("a PDF"):
        from penstock.report.invoice.paper import paper
    return paper(invoice, language)


@contextmanager
def _libraries(what: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise _missing(what, str(error.name).split(".")[0]) from None


def _missing(what: str, package: str) -> MissingLibrary:
    hint = "pip install 'penstock[invoices]'"
    if package == "plutoprint":
        hint += "; on machines that it is not made for, print the HTML page from a browser"
    return MissingLibrary(f"{what} of an invoice needs the package {package}, which is not installed", hint=hint)
