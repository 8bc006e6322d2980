"""The billing section of cluster files."""

import pytest

from penstock.core.config.billing import read_amount
from penstock.core.config.cluster import parse_cluster
from penstock.core.config.reader import Reader
from penstock.core.model.prices import Billing, Factor, Party, Price, Tariff, Terms, Window


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
        ({"factors": [{"factor": 1, "hours": ["00:00-01:00"] * 10_001}]}, "billing.factors[0].hours"),
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


def test_the_rest_is_read_as_it_is_written():
    found, problems = read(
        factors=[{"hours": ["22:00-06:00", "12:00-24:00"], "days": ["sat", "Sunday"], "factor": 0.5}],
        refund_lost=False,
        at_zero="suspend",
        invoices={"issue": "manual", "prefix": "2026/", "credit_note_prefix": "G-"},
        tax={"name": "VAT", "rate": 0.19},
        issuer={"name": "Cluster GmbH", "address": "Weg 1\n10115 Berlin", "tax_id": "DE1", "note": "30 days"},
    )
    assert problems == []
    assert found == Billing(
        Tariff(factors=(Factor(500, windows=(Window(1320, 360, (5, 6)), Window(720, 1440, (5, 6)))),)),
        refund_lost=False,
        at_zero="suspend",
        issue="manual",
        invoice_prefix="2026/",
        credit_note_prefix="G-",
        tax_name="VAT",
        tax_milli=190,
        issuer=Party("Cluster GmbH", ("Weg 1", "10115 Berlin"), "DE1", "30 days"),
    )


def test_later_terms_go_on_from_those_before_them_however_they_are_listed():
    found, problems = read(
        minimum_period="30s",
        tiers={10: 0.9},
        later=[
            {"from": 3_000, "factors": [{"factor": 2}]},
            {"from": 1_000, "minimum_period": "0s"},
            {"from": 2_000, "tiers": {20: 0.8}, "tier_reading": "whole"},
        ],
    )
    assert problems == []
    assert found.tariff.later == (
        Terms(1_000_000, ((10, 900),), "marginal", (), 0),
        Terms(2_000_000, ((20, 800),), "whole", (), 0),
        Terms(3_000_000, ((20, 800),), "whole", (Factor(2000),), 0),
    )
    assert found.tariff.minimum_max_ms == 30_000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"later": [{"minimum_period": "5s"}]}, "billing.later[0].from"),
        ({"later": [{"from": 5, "prices": []}]}, "billing.later[0].prices"),
        ({"later": [{"from": 9}, {"from": 5, "tiers": 3}]}, "billing.later[1].tiers"),
        ({"later": [{"from": 5}, {"from": 5}]}, "billing.later"),
        ({"later": {"from": 5}}, "billing.later"),
        ({"factors": [{"factor": 1, "hours": "24:00-06:00"}]}, "billing.factors[0].hours"),
        ({"factors": [{"factor": 1, "hours": ["9-17"]}]}, "billing.factors[0].hours"),
        ({"factors": [{"factor": 1, "days": "sat"}]}, "billing.factors[0].days"),
        ({"factors": [{"factor": 1, "days": []}]}, "billing.factors[0].days"),
        ({"factors": [{"factor": 1, "days": ["caturday"]}]}, "billing.factors[0].days"),
        ({"refund_lost": "maybe"}, "billing.refund_lost"),
        ({"at_zero": "explode"}, "billing.at_zero"),
        ({"invoices": {"issue": "never"}}, "billing.invoices.issue"),
        ({"invoices": {"prefix": ""}}, "billing.invoices.prefix"),
        ({"invoices": {"prefix": "a b"}}, "billing.invoices.prefix"),
        ({"invoices": {"prefix": "CN-"}}, "billing.invoices.credit_note_prefix"),
        ({"invoices": {"number": 5}}, "billing.invoices.number"),
        ({"invoices": "automatic"}, "billing.invoices"),
        ({"tax": {"name": "VAT"}}, "billing.tax.rate"),
        ({"tax": {"name": "VAT", "rate": -0.1}}, "billing.tax.rate"),
        ({"tax": 19}, "billing.tax"),
        ({"issuer": "me"}, "billing.issuer"),
        ({"issuer": {"nam": "me"}}, "billing.issuer.nam"),
        ({"issuer": {"name": "me", "address": [1]}}, "billing.issuer.address"),
        ({"issuer": {"name": "me", "address": ["x"] * 13}}, "billing.issuer.address"),
    ],
)
def test_what_is_wrong_of_the_rest_is_named_by_its_field(given, field):
    _, problems = read(**given)
    assert [name for name, _ in problems] == [field]


@pytest.mark.parametrize(
    ("digits", "written", "amount"),
    [(2, "12.34", 1234), (2, 12.3, 1230), (0, "12", 12), (0, "12.000", 12), (6, "0.000001", 1), (2, 5, 500)],
)
def test_amounts_are_read_exactly(digits, written, amount):
    problems = []
    assert (read_amount(Reader("", problems), "amount", written, digits), problems) == (amount, [])


@pytest.mark.parametrize(("digits", "written"), [(2, "12.345"), (0, "0.5"), (2, "-1"), (2, ""), (2, None), (2, "1,5")])
def test_an_amount_with_too_many_decimals_is_refused(digits, written):
    problems = []
    read_amount(Reader("", problems), "amount", written, digits)
    assert [problem.field for problem in problems] == ["amount"]
