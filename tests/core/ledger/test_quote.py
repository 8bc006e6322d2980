"""What a job would cost, told before it is one."""

from penstock.core.ledger.pricing import GIB
from penstock.core.ledger.quote import quote
from penstock.core.ledger.schedule import UTC
from penstock.core.model.prices import HOUR_MS, Billing, Factor, Price, Tariff, Window
from penstock.testing.builders import job_spec

PRICES = (Price("device", 2_000_000, model="A100"), Price("device", 5_000_000, model="H100"), Price("cpu", 100_000))


def quoted(spec, models, length_ms=0, billing=None, start_ms=0):
    return quote(spec, models, billing or Billing(Tariff(PRICES)), UTC, start_ms, length_ms)


def test_all_replicas_and_resources_count():
    found = quoted(job_spec(2, 3, cpus=4, memory_gib=1), ["A100"], 2 * HOUR_MS)
    assert (found.hour_low, found.hour_high) == (3 * (2 * 200 + 40), 3 * (2 * 200 + 40))
    assert (found.total_low, found.length_ms) == (2 * found.hour_low, 2 * HOUR_MS)


def test_both_ends_are_told_where_several_models_may_be_given():
    found = quoted(job_spec(1, cpus=0), ["A100", "H100"])
    assert (found.hour_low, found.hour_high, found.total_low) == (200, 500, 0)
    assert quoted(job_spec(1, cpus=0, models=("H100",)), ["A100", "H100"]).hour_low == 500


def test_a_short_job_costs_its_minimum():
    assert quoted(job_spec(1, cpus=0), ["H100"], 1_000).total_low == round(500 / 60)


def test_the_factor_of_the_hours_in_which_it_would_run_counts_and_tiers_do_not():
    night = Factor(500, windows=(Window(0, 360),))
    billing = Billing(Tariff(PRICES, tiers=((1, 100),), factors=(night,)))
    found = quoted(job_spec(1, cpus=0), ["H100"], 8 * HOUR_MS, billing)
    assert (found.hour_low, found.total_low) == (250, 6 * 250 + 2 * 500)


def test_a_part_of_a_device_costs_its_part_and_memory_its_price():
    billing = Billing(Tariff((*PRICES, Price("memory", 10_000))))
    spec = job_spec(1, cpus=0, memory_gib=10, share_milli=250)
    assert quoted(spec, ["A100"], billing=billing).hour_low == 50 + 10
    assert spec.ask.host_total.memory_bytes == 10 * GIB
