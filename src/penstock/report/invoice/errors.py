"""Errors of invoice documents."""

from penstock.core.model.errors import PenstockError


class DocumentError(PenstockError):
    code = "document"


class MissingLibrary(DocumentError):
    """A package of the extra `invoices` is not installed."""

    code = "missing_library"


class DoesNotAddUp(DocumentError):
    """The sums of an invoice do not fit each other: no document is made of it."""

    code = "invoice_does_not_add_up"


class NotPrinted(DocumentError):
    """The PDF could not be made; the page (HTML) can be printed by any browser."""

    code = "not_printed"
