"""A configuration that was written down is read back as it was."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config.cluster import cluster_schema, declaration, parse_cluster
from penstock.core.model.access import User
from penstock.core.model.cluster import ClusterConfig, IdleRule, Pool, Queue, Reservation, Settings, Tenant
from penstock.core.model.prices import Billing, Budget, Factor, Party, Price, Tariff, Terms, Window
from tests.properties import examples

SCHEMA = jsonschema.Draft202012Validator(cluster_schema())
names = st.sampled_from(["a", "b", "c"])
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
milli = st.integers(0, 1_000_000)
times = st.integers(1, 4 * 10**12)


def listed(values, most=3):
    return st.lists(values, max_size=most).map(tuple)


def named(values):
    return st.lists(values, min_size=1, max_size=3, unique_by=lambda one: one.name).map(tuple)


parties = st.builds(
    Party,
    st.just("") | texts,
    listed(st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=5)),
    st.just("") | texts,
)
idle = st.none() | st.builds(IdleRule, st.integers(0, 10**9), st.sampled_from(["never", "when_wanted"]))
windows = st.builds(
    Window,
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.lists(st.integers(0, 6), min_size=1, unique=True).map(lambda days: tuple(sorted(days))),
)
one_set_of_days = listed(windows).map(lambda found: tuple(w for w in found if w.days == found[0].days))
factors = st.builds(Factor, milli, st.integers(0, 1000), st.none() | st.booleans(), one_set_of_days)
tiers = st.dictionaries(st.integers(1, 10**6), milli, max_size=3).map(lambda found: tuple(sorted(found.items())))
terms = st.builds(
    Terms, times, tiers, st.sampled_from(["marginal", "whole"]), listed(factors), st.integers(0, 86_400_000)
)
prices = st.builds(Price, st.just("device"), st.integers(0, 10**15), st.just(0) | times, st.just("") | names)
tariffs = st.builds(
    lambda prices, first, later: Tariff(
        prices, first.tiers, first.tier_reading, first.factors, first.minimum_ms, later
    ),
    st.lists(prices, max_size=3, unique_by=lambda p: (p.model, p.from_ms)).map(tuple),
    terms,
    st.lists(terms, max_size=2, unique_by=lambda t: t.from_ms).map(lambda f: tuple(sorted(f, key=lambda t: t.from_ms))),
)
budgets = st.builds(
    lambda name, amount, once, hard, alerts: Budget(
        name, amount, "once" if once else "week", *(once or (0, 0)), hard, tuple(sorted(alerts))
    ),
    names,
    st.integers(1, 10**9),
    st.none() | st.tuples(times, times).map(sorted).filter(lambda span: span[0] < span[1]).map(tuple),
    st.booleans(),
    st.sets(st.integers(1, 1000), max_size=3),
)


@st.composite
def configs(draw):
    tenants = draw(
        named(
            st.builds(
                Tenant,
                names,
                st.just("") | texts,
                st.sampled_from([(), (("devices", 2_500), ("devices:A100", 1_000)), (("memory", 2**30),)]),
                st.integers(0, 500),
                st.lists(budgets, max_size=2, unique_by=lambda b: b.name).map(tuple),
                st.integers(0, 10**9),
                st.sampled_from([None, "warn", "suspend"]),
                parties,
            )
        )
    )
    billing = draw(
        st.builds(
            Billing,
            tariffs,
            st.sampled_from(["EUR", "CNY"]),
            st.integers(0, 6),
            st.sampled_from(["UTC", "Asia/Shanghai"]),
            st.booleans(),
            st.sampled_from(["nothing", "suspend"]),
            st.sampled_from(["automatic", "manual"]),
            st.sampled_from(["INV-", "R/"]),
            st.sampled_from(["CN-", "G."]),
            issuer=parties,
        )
    )
    if draw(st.booleans()):
        billing = Billing(billing.tariff, tax_name="VAT", tax_milli=draw(milli))
    roles = st.sampled_from(["viewer", "member", "tenant_admin"])
    rights = st.dictionaries(st.sampled_from([t.name for t in tenants]), roles).map(lambda r: tuple(sorted(r.items())))
    users = st.builds(User, names, st.sampled_from(["", "admin", "viewer"]), rights, st.booleans(), st.just("") | texts)
    parts = st.sampled_from(["any", "none", "time_slicing", "mps", "mig"])
    speeds = st.sampled_from([(), (("A100", 1_000, 1_500), ("H100", 2_200, 3_000))])
    kept = st.builds(Reservation, names, st.just(tenants[0].name), st.just(1_000), st.just(5_000), st.just(("n1",)))
    return ClusterConfig(
        draw(named(st.builds(Pool, names, reserve_milli=st.integers(0, 1000), virtualization=parts, speeds=speeds))),
        tenants,
        draw(
            named(
                st.builds(
                    Queue,
                    names,
                    weight=st.integers(1, 5),
                    lend=st.sampled_from([None, ()]),
                    idle=idle,
                    alerts=st.sampled_from([(80, 95, 100), (), (1, 50)]),
                )
            )
        ),
        draw(st.builds(Settings, starvation_after_ms=st.integers(0, 10**9), defrag=st.booleans())),
        draw(st.sampled_from(["priority", "fifo"])),
        draw(st.lists(kept, max_size=1).map(tuple)),
        draw(st.sampled_from([(), ("best_fit", "worst_fit")])),
        billing,
        draw(st.lists(users, max_size=3, unique_by=lambda one: one.name).map(tuple)),
    )


@examples(60)
@given(configs())
def test_what_is_written_is_read_as_the_same(config):
    for written in (declaration(config), json.loads(json.dumps(declaration(config)))):
        parsed, problems = parse_cluster(written)
        assert problems == []
        assert parsed.config == config
        assert SCHEMA.is_valid(json.loads(json.dumps(written)))


def test_what_holds_anyway_is_not_written():
    assert declaration(ClusterConfig()) == {
        "pools": [{"name": "default"}],
        "tenants": [{"name": "default"}],
        "queues": [{"name": "default"}],
    }


def test_the_schema_is_one_and_refuses_what_the_reader_refuses():
    jsonschema.Draft202012Validator.check_schema(cluster_schema())
    for wrong in (
        {"pool": []},
        {"pools": [{"name": "p", "kind": "gqu"}]},
        {"queues": [{"name": "q", "weight": 0}]},
        {"queues": [{"name": "q", "max": {"gpus": 1}}]},
        {"queues": [{"name": "q", "idle": {}}]},
        {"reservations": [{"name": "r"}]},
        {"nodes": [{"name": "n", "simulated_devices": {"cuont": 2}}]},
        {"billing": {"currency": "euro"}},
        {"settings": {"lease_tll": "1m"}},
    ):
        assert parse_cluster(wrong)[1], wrong
        assert not SCHEMA.is_valid(wrong), wrong


@pytest.mark.parametrize("name", ["settings", "billing", "queues"])
def test_a_section_without_a_value_is_as_if_left_out(name):
    assert parse_cluster({name: None}) == parse_cluster({})
