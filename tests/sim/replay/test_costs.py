"""What a replay costs, in cases that can be worked out by hand."""

import pytest
from msgspec.structs import replace

from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import Billing, Price, Tariff
from penstock.report.simulation.numbers import cost_rows
from penstock.report.simulation.page import render
from penstock.sim.replay.compare import result_of
from penstock.sim.replay.costs import CostMeter, declared_billing
from penstock.sim.replay.replay import ORIGIN_MS
from penstock.testing.builders import config, node
from penstock.traces.model import CapacityChange, Outage
from tests.sim.replay.builders import HOUR, SECOND, job, ran, trace

ONE = 3_600_000_000
"""One unit of the currency for a device and second, and 100 cents."""


def billed(given, *prices, jobs=None, **terms):
    till = CostMeter(Billing(Tariff(prices or (Price("device", ONE),), **({"minimum_ms": 0} | terms))))
    done = ran(given, on_records=till.take)
    found = till.costs({life.job_id for life in done.lives} if jobs is None else jobs, done.ended_ms)
    return found and (found.total, found.by_tenant)


def two(**fields):
    """Return a minute on one device for tenant a, and half a minute on two for b, one after the other."""
    one, other = job(0, 60, 1, tenant="a"), job(0, 30, 2, tenant="b")
    return trace(one, other, nodes=(node("n", 2, **fields),), rules=config(tenants=(Tenant("a"), Tenant("b"))))


def test_each_tenant_pays_for_what_it_holds():
    assert billed(two()) == (12_000, {"a": 6_000, "b": 6_000})


def test_without_prices_nothing_is_said():
    till = CostMeter(Billing())
    done = ran(two(), on_records=till.take)
    assert till.costs({1, 2}, done.ended_ms) is None


def test_only_the_jobs_that_are_asked_for_are_in_it():
    assert billed(two(), jobs={2}) == (6_000, {"a": 0, "b": 6_000})


def test_whoever_starts_later_pays_the_later_price():
    later = Price("device", 2 * ONE, ORIGIN_MS + 75 * SECOND)
    assert billed(two(), Price("device", ONE), later)[1] == {"a": 6_000, "b": 15 * 2 * 100 + 15 * 2 * 200}


def test_the_minimum_counts_beyond_the_end_of_the_replay():
    assert billed(two(), minimum_ms=60_000) == (18_000, {"a": 6_000, "b": 12_000})


def test_what_a_node_took_is_paid_for_and_done_again():
    lost = Outage("n", 20 * SECOND, 50 * SECOND, 20 * SECOND)
    assert billed(trace(job(0, 60), nodes=(node("n", 1),), outages=(lost,))) == (8_000, {"default": 8_000})


def test_tiers_are_by_month_and_months_are_added():
    """Two hours on either side of new year: an hour at the whole price, an hour at half of it, twice."""
    begin_s = (366 * 24 - 2) * 3_600
    tiers = {"tiers": ((1, 500),)}
    assert billed(trace(job(begin_s, 4 * 3_600)), **tiers) == (540_000 * 2, {"default": 540_000 * 2})


def test_the_prices_that_were_declared_last_count():
    first, last = (Billing(Tariff((Price("device", price),))) for price in (1, 2))
    given = replace(two(), config=config(billing=first))
    assert declared_billing(given) == first
    changed = replace(
        given, changes=(CapacityChange(HOUR, config=config(billing=last)), CapacityChange(2 * HOUR, drained="n"))
    )
    assert declared_billing(changed) == last


def result(name, given, *prices):
    till = CostMeter(Billing(Tariff(prices, minimum_ms=0), digits=2))
    done = ran(given, on_records=till.take)
    return replace(result_of(name, 0, done), costs=till.costs({life.job_id for life in done.lives}, done.ended_ms))


def test_rows_are_all_and_then_each_tenant():
    results = [result("as it was", two(), Price("device", ONE)), result("dearer", two(), Price("device", 2 * ONE))]
    rows = cost_rows({one.variant: [one] for one in results})
    assert rows.currency == "EUR"
    assert rows.cells == [("all", ["120.00", "240.00"]), ("a", ["60.00", "120.00"]), ("b", ["60.00", "120.00"])]


@pytest.mark.parametrize(("prices", "shown"), [((), False), ((Price("device", ONE),), True)])
def test_the_page_has_costs_where_prices_are_declared(prices, shown):
    page = render(two(), [result("as it was", two(), *prices)])
    assert ("What it would cost" in page) == ("120.00" in page) == shown
