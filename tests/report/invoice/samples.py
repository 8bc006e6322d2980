"""Invoices for tests and benchmarks: a whole month of a group, and builders of single lines. Seeded, always alike."""

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.invoices import Invoice, InvoiceLine, Party

HOUR_MS = 3_600_000
GIB = 2**30
NOVEMBER_MS = 1_793_487_600_000
"""2026-11-01T00:00+01:00."""
DECEMBER_MS = 1_796_079_600_000
ISSUED_MS = 1_796_112_000_000
"""2026-12-01T08:00Z."""
_QUEUES = ("research/vision", "research/language", "production")
_USERS = ("anna", "bao.nguyen", "carlos", "王小明", "dmitri", "李娜", "eve", "fatima", "george", "hana")
_JOBS = ("train-resnet-50", "llama-70b-finetune", "eval nightly", "预训练-阶段二", "sweep-lr-0.0003", "embed-corpus")
_PRICES = {"device": (("H100", 2_500_000), ("A100", 1_200_000)), "cpu": (("", 20_000),), "memory": (("", 4_000),)}

ISSUER = Party(
    name="Rheinwerk Rechenzentrum GmbH",
    address=("Am Kanal 12", "50667 Köln", "Germany"),
    tax_id="DE 812 345 678",
    note="Please pay within 30 days to IBAN DE02 1203 0000 0000 2020 51, with the number of this invoice.",
)
CUSTOMER = Party(
    name="Institute for Machine Vision",
    address=("Cost centre 4711", "Luisenstraße 3", "10117 Berlin"),
    tax_id="DE 198 765 432",
)


def line(**changes: Any) -> InvoiceLine:
    """Return a line of 10 device-hours of H100 at 2.50: 25.00."""
    known: dict[str, Any] = {
        "queue": QueueName("research"),
        "user": UserName("anna"),
        "job_id": JobId(7),
        "job_name": "train",
        "resource": "device",
        "model": "H100",
        "quantity_ms": 10 * 1000 * HOUR_MS,
        "micro_per_hour": 2_500_000,
        "tier_milli": 1000,
        "factor_milli": 1000,
        "full": 2500,
        "amount": 2500,
    }
    return InvoiceLine(**{**known, **changes})


def invoice(lines: Sequence[InvoiceLine] = (), **changes: Any) -> Invoice:
    """Return an invoice for November 2026 whose sums follow from its lines, without tax unless told."""
    net = changes.pop("net", sum(one.amount for one in lines))
    tax = changes.pop("tax", 0)
    credit, granted = changes.pop("from_credit", 0), changes.pop("granted", 0)
    made = Invoice(
        number="R-2026-0042",
        kind="invoice",
        tenant=TenantName("vision"),
        issued_ms=ISSUED_MS,
        from_ms=NOVEMBER_MS,
        until_ms=DECEMBER_MS,
        time_zone="Europe/Berlin",
        currency="EUR",
        digits=2,
        lines=tuple(lines),
        net=net,
        tax=tax,
        total=net - granted + tax,
        from_credit=credit,
        due=net - granted + tax - credit,
        granted=granted,
    )
    return replace(made, **changes)


def month(lines: int, seed: int = 1, **changes: Any) -> Invoice:
    """Return a month with so many lines, tiers, factors, refunds, tax and credit."""
    rnd = random.Random(seed)
    held = sorted((_any_line(rnd, 1 + number // 3) for number in range(lines)), key=lambda one: (one.queue, one.user))
    net = sum(one.amount for one in held)
    tax = (net * 190 + 500) // 1000
    known: dict[str, Any] = {"tax": tax, "tax_name": "VAT", "tax_milli": 190, "issuer": ISSUER, "customer": CUSTOMER}
    return invoice(held, **{**known, "from_credit": (net + tax) // 5, "issued_by": UserName("olga"), **changes})


def _any_line(rnd: random.Random, job: int) -> InvoiceLine:
    owner = random.Random(job)
    resource = rnd.choice(("device", "device", "cpu", "memory"))
    model, price = rnd.choice(_PRICES[resource])
    milli_hours = rnd.randrange(1, 64_000)
    unit = GIB if resource == "memory" else 1000
    tier = rnd.choice((1000, 900, 800)) if resource == "device" else 1000
    factor = rnd.choice((1000, 1000, 700, 1250))
    full = (milli_hours * price + 5_000_000) // 10_000_000
    amount = (milli_hours * price * tier * factor // 10**6 + 5_000_000) // 10_000_000
    refund = rnd.random() < 0.02
    return line(
        queue=owner.choice(_QUEUES),
        user=owner.choice(_USERS),
        job_id=job,
        job_name=owner.choice(_JOBS) + f"-{job}",
        resource=resource,
        model=model,
        quantity_ms=(-1 if refund else 1) * milli_hours * unit * HOUR_MS // 1000,
        micro_per_hour=price,
        tier_milli=tier,
        factor_milli=factor,
        full=-full if refund else full,
        amount=-amount if refund else amount,
        kind="refund" if refund else "use",
    )
