"""The billing section of cluster files."""

import pytest

from penstock.core.clusterfile import parse_cluster
from penstock.core.model.prices import Billing, Factor, Price, Tariff


def read(**billing):
    found, problems = parse_cluster({"billing": billing})
    return found.config.billing, [(p.field, p.message) for p in problems]


def test_without_the_section_nothing_is_billed():
    found, problems = parse_cluster({})
    assert (found.config.billing, problems) == (Billing(), [])


def test_everything_is_read_as_it_is_written():
    found, problems = read(
        currency="CNY",
        digits=0,
        time_zone="Asia/Shanghai",
        minimum_period="30s",
        tiers={500: 0.8, 100: 0.9},
        tier_reading="whole",
        prices=[
            {"model": "H100", "per_hour": 2.35, "from": "2026-03-01T00:00+08:00"},
            {"resource": "cpu", "per_hour": "0.000001"},
        ],
        factors=[{"priority": "high", "factor": 1.5}, {"preemptible": True, "factor": 0.7}],
    )
    assert problems == []
    assert found == Billing(
        Tariff(
            (Price("device", 2_350_000, 1_772_294_400_000, "H100"), Price("cpu", 1)),
            ((100, 900), (500, 800)),
            "whole",
            (Factor(1500, 1000), Factor(700, 0, True)),
            30_000,
        ),
        "CNY",
        0,
        "Asia/Shanghai",
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"curency": "EUR"}, "billing.curency"),
        ({"currency": "euro"}, "billing.currency"),
        ({"time_zone": "in Berlin"}, "billing.time_zone"),
        ({"digits": 9}, "billing.digits"),
        ({"tiers": {0: 0.9}}, "billing.tiers.0"),
        ({"tiers": {10: -1}}, "billing.tiers.10"),
        ({"tiers": [1]}, "billing.tiers"),
        ({"tier_reading": "both"}, "billing.tier_reading"),
        ({"prices": {}, "minimum_period": "soon"}, "billing.minimum_period"),
        ({"prices": [5]}, "billing.prices[0]"),
        ({"prices": [{"per_hour": 1.0000001}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": -1}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": True}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": "NaN"}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": "1e999999"}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": "1e-1999999"}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": "1_0"}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": "\u0661"}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": 10**5000}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": float("inf")}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": [1]}]}, "billing.prices[0].per_hour"),
        ({"minimum_period": "2d"}, "billing.minimum_period"),
        ({"prices": [{}]}, "billing.prices[0].per_hour"),
        ({"prices": [{"per_hour": 1, "from": "2026-03-01"}]}, "billing.prices[0].from"),
        ({"prices": [{"resource": "gpu", "per_hour": 1}]}, "billing.prices[0].resource"),
        ({"prices": [{"resource": "cpu", "model": "EPYC", "per_hour": 1}]}, "billing.prices[0].model"),
        ({"prices": [{"per_hour": 1}, {"per_hour": 2}]}, "billing.prices[1]"),
        ({"factors": [{"factor": 0.0001}]}, "billing.factors[0].factor"),
        ({"factors": [{"factor": 1, "priority": "urgent"}]}, "billing.factors[0].priority"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(given, field):
    _, problems = read(**given)
    assert [name for name, _ in problems] == [field]


@pytest.mark.parametrize("wrong", [5, "free", [1]])
def test_it_is_a_mapping(wrong):
    _, problems = parse_cluster({"billing": wrong})
    assert [p.field for p in problems] == ["billing"]
