"""Random lines and invoices: every sign, every kind, names from writing systems and worse."""

from hypothesis import strategies as st

from penstock.core.model.invoices import Invoice, InvoiceLine
from tests.report.invoice.samples import invoice, line

NAMES = st.one_of(st.sampled_from(["anna", "王小明", "", "a/b", "<b>", "&amp;", '"', "'"]), st.text(max_size=12))
AMOUNTS = st.integers(-(10**9), 10**12)


def lines(most: int = 12) -> st.SearchStrategy[list[InvoiceLine]]:
    one = st.builds(
        line,
        queue=st.sampled_from(["research", "production/night"]),
        user=st.sampled_from(["anna", "bao", "王小明"]) | NAMES,
        job_id=st.integers(0, 10**9),
        job_name=NAMES,
        resource=st.sampled_from(["device", "cpu", "memory"]),
        model=st.sampled_from(["", "H100", "A100"]),
        quantity_ms=st.integers(-(10**15), 10**20),
        micro_per_hour=st.integers(0, 10**12),
        tier_milli=st.sampled_from([1000, 900, 500, 0]),
        factor_milli=st.sampled_from([1000, 700, 1250, 2000]),
        full=AMOUNTS,
        amount=AMOUNTS,
        kind=st.sampled_from(["use", "use", "refund"]),
    )
    return st.lists(one, max_size=most)


@st.composite
def invoices(draw: st.DrawFn) -> Invoice:
    currency, digits = draw(st.sampled_from([("EUR", 2), ("JPY", 0), ("KWD", 3), ("CNY", 2), ("XTS", 6)]))
    held = draw(lines())
    tax_milli = draw(st.sampled_from([0, 75, 190]))
    net = sum(one.amount for one in held)
    return invoice(
        held,
        currency=currency,
        digits=digits,
        tax=net * tax_milli // 1000,
        tax_milli=tax_milli,
        tax_name="VAT" if tax_milli else "",
        from_credit=draw(st.integers(0, 10**6)),
        granted=draw(st.sampled_from([0, 0, 1, 999])),
    )
