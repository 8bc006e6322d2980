"""An invoice as one HTML page, from templates/invoice.html; the same page goes on paper."""

import unicodedata
from functools import cache, lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from penstock.core.ledger.bill import wrong_sum
from penstock.core.model.invoices import Invoice
from penstock.report.invoice.errors import DoesNotAddUp
from penstock.report.invoice.formats import Formats
from penstock.report.invoice.sums import by_queue, by_resource, by_user, steps
from penstock.report.invoice.words import TAGS, WORDS, Language

FEW_LINES = 12
"""Up to this number, line items need no page of their own."""
_NEVER_SHOWN = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
"""Controls, marks that turn the direction of the text beside them, halves of characters: a name could mislead."""
_JOINERS = "\n\u200c\u200d"
"""Allowed all the same: line breaks of notes, and joiners of writing systems and emoji."""


def page(invoice: Invoice, language: Language, notice: str = "") -> str:
    """Return the page; `notice` is shown below the title.

    Raises: DoesNotAddUp where a sum is wrong: no paper may say what its own lines deny.
    """
    wrong = wrong_sum(invoice)
    if wrong:
        raise DoesNotAddUp(f"{invoice.number}: {wrong}", hint="its JSON and CSV say what was issued")
    words = WORDS[language]
    users, others = by_user(invoice.lines)
    formats = Formats(invoice, language)
    return (
        _environment()
        .get_template("invoice.html")
        .render(
            i=invoice,
            w=words,
            f=formats,
            tag=TAGS[language],
            notice=notice,
            css=_footer(invoice, words),
            facts=_facts(invoice, formats, words),
            steps=steps(invoice),
            queues=by_queue(invoice.lines),
            resources=by_resource(invoice.lines),
            users=users,
            others=others,
            taxed=bool(invoice.tax or invoice.tax_milli or invoice.tax_name),
            few=FEW_LINES,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("penstock.report.invoice"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _clean(value) if type(value) is str else value,
    )


def _facts(invoice: Invoice, formats: Formats, words: dict[str, str]) -> list[tuple[str, str]]:
    facts = [
        (words["number"], invoice.number),
        (words["corrects"], invoice.corrects),
        (words["reason"], invoice.reason),
        (words["issued"], formats.day(invoice.issued_ms)),
        (words["tenant"], invoice.tenant),
        (words["currency"], invoice.currency),
        (words["issued_by"], invoice.issued_by),
    ]
    return [(label, value) for label, value in facts if value]


def _footer(invoice: Invoice, words: dict[str, str]) -> dict[str, Markup]:
    """Return the footers of each page, as values of the CSS property `content`."""
    left = f"{words[invoice.kind]} {invoice.number}"
    before, rest = words["page"].split("{page}")
    between, after = rest.split("{pages}")
    right = f"{_quoted(before)} counter(page) {_quoted(between)} counter(pages) {_quoted(after)}"
    return {"left": _quoted(left), "right": Markup(right)}  # noqa: S704 - all of it is quoted


def _quoted(text: str) -> Markup:
    """Return a text as a CSS string, all signs of ASCII escaped: nothing in it ends the string or the style sheet.

    Source: CSS Syntax Module Level 3, 4.3.7: up to six hexadecimal digits and a space.
    """
    safe = (c if c.isalnum() or not c.isascii() else f"\\{ord(c):06x} " for c in _clean(text))
    return Markup('"' + "".join(safe) + '"')  # noqa: S704 - nothing but letters, digits and escapes


@lru_cache(maxsize=4096)
def _clean(text: str) -> str:
    """Return a text without invisible characters that change the visible ones."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in _NEVER_SHOWN and c not in _JOINERS else c for c in text)
