"""The auditor of simulated money: a log that is sound passes, and each thing that may be wrong with one is named."""

from functools import cache

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.sim.world.auditor import Biller, Reading, money_violations
from penstock.sim.world.world import World

SEED = 31
"""Its world has invoices, credits that expire, payments and tenants that are held."""


@cache
def played():
    world = World(SEED)
    assert world.run().violations == ()
    return world, tuple(world.disk.records)


@pytest.fixture
def world():
    found, records = played()
    found.disk.records = list(records)
    return found


def found(world):
    return " | ".join(money_violations(world, world.money))


def first(world, kind, wanted=lambda event: True):
    return next(i for i, r in enumerate(world.disk.records) if isinstance(r.event, kind) and wanted(r.event))


def change(world, at, **fields):
    record = world.disk.records[at]
    world.disk.records[at] = replace(record, event=replace(record.event, **fields))


def test_the_log_as_it_was_is_sound(world):
    assert found(world) == ""


def test_a_posting_that_is_not_the_bill_is_named(world):
    at = first(world, ev.UsagePosted)
    amount = world.disk.records[at].event.amount
    change(world, at, amount=amount + 1)
    assert f"{amount + 1} are posted up to" in found(world)
    assert f"its bill is {amount}" in found(world)


def test_a_posting_that_is_missing_is_named(world):
    begin_ms = world.disk.records[0].time_ms
    posted = [i for i, r in enumerate(world.disk.records) if isinstance(r.event, ev.UsagePosted) and r.event.amount]
    del world.disk.records[max(i for i in posted if world.disk.records[i].event.month_ms == begin_ms)]
    assert "are posted for the month since" in found(world)


def test_an_invoice_of_another_number_amount_or_month_is_named(world):
    at = first(world, ev.InvoiceIssued)
    invoice = world.disk.records[at].event.invoice
    change(world, at, invoice=replace(invoice, number="INV-000009"))
    assert "INV-000009 is the 1. invoice" in found(world)
    change(world, at, invoice=replace(invoice, net=invoice.net + 1))
    assert f"{invoice.number} says {invoice.net + 1} for" in found(world)
    assert f"the lines of {invoice.number} do not add up" in found(world)
    del world.disk.records[at]
    assert f"{invoice.tenant}: the month since {invoice.from_ms} has no invoice" in found(world)


def test_what_was_confirmed_and_is_not_there_or_twice_is_named(world):
    at = first(world, ev.CreditAdded, lambda event: event.reference != "rescue")
    event = world.disk.records[at].event
    world.disk.records.append(world.disk.records[at])
    assert f"{event.tenant}: {event.reference} came 2 times" in found(world)
    del world.disk.records[-1], world.disk.records[at]
    assert f"{event.reference} was confirmed and is not in the log" in found(world)
    assert f"{event.tenant}: its balance is" in found(world)


def test_a_credit_that_ends_too_late_or_never_is_named(world):
    ends = [r for r in world.disk.records if isinstance(r.event, ev.CreditExpired)]
    others = [r for r in world.disk.records if not isinstance(r.event, ev.CreditExpired)]
    world.disk.records = others + ends
    assert "expired with" in found(world)
    world.disk.records = others
    assert f"{ends[0].event.reference} should have expired" in found(world)


def test_a_start_of_a_tenant_that_is_held_is_named(world):
    at = first(world, ev.AttemptAllocated)
    tenant = next(spec.tenant for i, spec in world.specs.items() if i == world.disk.records[at].event.job_id)
    text = "it has no credit left"
    world.disk.records.insert(at, replace(world.disk.records[at], event=ev.TenantHeld(tenant, "balance", text)))
    wrong = Reading(world.disk.records[: at + 2]).wrong
    assert wrong == [f"job {world.disk.records[at + 1].event.job_id} was started though {text}"]


def test_a_hold_that_outlives_its_attempt_is_named(world):
    ended = {r.event.job_id for r in world.disk.records if isinstance(r.event, ev.AttemptEnded)}
    at = first(world, ev.ReplicaExited, lambda event: event.job_id in ended)
    del world.disk.records[at]
    assert "ended and is billed for ever" in Reading(world.disk.records).wrong[0]


def test_the_auditor_bills_by_itself(world):
    biller = Biller(Reading(world.disk.records), world.config.billing)
    posting = world.disk.records[first(world, ev.UsagePosted, lambda event: event.amount > 0)].event
    begin_ms = posting.month_ms
    assert biller.total(posting.tenant, begin_ms, begin_ms) == 0
    assert biller.total(posting.tenant, begin_ms, posting.until_ms) == posting.amount
