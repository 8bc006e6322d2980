"""What a tenant's entry in a cluster file says of money."""

import pytest
from msgspec.structs import replace

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import Budget, Party


def read(**fields):
    found, problems = parse_cluster({"tenants": [{"name": "vision", **fields}], "billing": {"digits": 2}})
    tenants = {tenant.name: tenant for tenant in found.config.tenants}
    return tenants.get("vision"), [problem.field for problem in problems]


def test_a_name_alone_is_enough():
    assert read() == (Tenant("vision"), [])


def test_everything_is_read_as_it_is_written():
    found, problems = read(
        description="computer vision",
        credit_limit="250.50",
        at_zero="stop_starts",
        bill_to={"name": "Vision Lab", "address": ["Weg 1", "Berlin"], "tax_id": "DE2"},
        budgets=[
            {"amount": 5000},
            {
                "name": "project",
                "amount": "1000.01",
                "from": 1_000,
                "until": 2_000,
                "hard": True,
                "alerts": [90, 50, 90],
            },
            {"name": "daily", "amount": 10, "period": "day", "alerts": []},
        ],
    )
    assert problems == []
    assert replace(found, budgets=()) == Tenant(
        "vision",
        "computer vision",
        credit_limit=25_050,
        at_zero="stop_starts",
        bill_to=Party("Vision Lab", ("Weg 1", "Berlin"), "DE2"),
    )
    assert found.budgets == (
        Budget("month", 500_000),
        Budget("project", 100_001, "once", 1_000_000, 2_000_000, hard=True, alerts=(50, 90)),
        Budget("daily", 1_000, "day", alerts=()),
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"creditlimit": 5}, "creditlimit"),
        ({"credit_limit": -5}, "credit_limit"),
        ({"credit_limit": "5.001"}, "credit_limit"),
        ({"at_zero": "explode"}, "at_zero"),
        ({"bill_to": "me"}, "bill_to"),
        ({"budgets": {"amount": 5}}, "budgets"),
        ({"budgets": [5]}, "budgets[0]"),
        ({"budgets": [{"amount": 5}] * 21}, "budgets"),
        ({"budgets": [{"amount": 5}, {"amount": 6}]}, "budgets"),
        ({"budgets": [{}]}, "budgets[0].amount"),
        ({"budgets": [{"amount": 0}]}, "budgets[0].amount"),
        ({"budgets": [{"amount": "0.001"}]}, "budgets[0].amount"),
        ({"budgets": [{"amount": 5, "period": "hour"}]}, "budgets[0].period"),
        ({"budgets": [{"amount": 5, "period": "once"}]}, "budgets[0].period"),
        ({"budgets": [{"amount": 5, "period": "day", "from": 1, "until": 2}]}, "budgets[0].period"),
        ({"budgets": [{"amount": 5, "from": 5, "until": 5}]}, "budgets[0].until"),
        ({"budgets": [{"amount": 5, "from": "soon", "until": 5}]}, "budgets[0].from"),
        ({"budgets": [{"amount": 5, "hard": 3}]}, "budgets[0].hard"),
        ({"budgets": [{"amount": 5, "alerts": "80"}]}, "budgets[0].alerts"),
        ({"budgets": [{"amount": 5, "alerts": [0]}]}, "budgets[0].alerts"),
        ({"budgets": [{"amount": 5, "alerts": list(range(1, 23))}]}, "budgets[0].alerts"),
        ({"budgets": [{"amount": 5, "limit": 6}]}, "budgets[0].limit"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(given, field):
    _, problems = read(**given)
    assert {name.removeprefix("tenants[0].") for name in problems} == {field}
