"""Configurations changed by single fields, in the words of a cluster file."""

import pytest

from penstock.control.config_files import read_cluster_file, with_changes
from penstock.core.model.cluster import Pool, Queue, Tenant
from penstock.core.model.errors import InvalidInput
from penstock.testing.builders import config

BASE = config(
    queues=(Queue("research", max=(("devices", 8_000),)), Queue("a.b", parent="research")),
    pools=(Pool("default"),),
    tenants=(Tenant("default"), Tenant("s")),
    starvation_after_ms=60_000,
)


def queue(found, name):
    return next(q for q in found.queues if q.name == name)


def test_nothing_changed_is_the_same():
    assert with_changes(BASE, ()) is BASE
    assert with_changes(BASE, ["queue.research.max.devices=8"]) == BASE


@pytest.mark.parametrize("section", ["queue", "queues"])
def test_a_maximum(section):
    found = with_changes(BASE, [f"{section}.research.max.devices=16", "queue.research.weight=3"])
    assert (queue(found, "research").max, queue(found, "research").weight) == ((("devices", 16_000),), 3)


def test_a_name_may_have_dots():
    assert queue(with_changes(BASE, ["queue.a.b.policy=fifo"]), "a.b").policy == "fifo"


def test_a_pools_name_in_a_quota_may_have_dots_too():
    found = with_changes(BASE, ["queue.research.max.b.c/devices:X.1=2"], add=["pool.b.c"])
    assert queue(found, "research").max == (("b.c/devices:X.1", 2_000), ("devices", 8_000))


def test_a_field_that_is_taken_away():
    assert queue(with_changes(BASE, ["queue.research.max="]), "research").max == ()


def test_pools_settings_and_the_root():
    found = with_changes(
        BASE, ["pools.default.backfill=strict", "settings.starvation_after=2h", "root_policy=fair_share"]
    )
    assert (found.pools[0].backfill, found.settings.starvation_after_ms, found.root_policy) == (
        "strict",
        7_200_000,
        "fair_share",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("queue.research.max.devices", "expected PATH=VALUE"),
        ("queue.resaerch.weight=2", "there is no queues 'resaerch'"),
        ("queue.research.wieght=2", "wieght"),
        ("queue.research.weight=heavy", "weight"),
        ("settings.starvation_after=never", "starvation_after"),
        ("root_policy.x=1", "root_policy"),
        ("queue.research.guaranteed.devices=9", "guarantee"),
    ],
)
def test_what_a_cluster_file_would_not_allow(change, said):
    with pytest.raises(InvalidInput) as refused:
        with_changes(BASE, [change])
    assert any(said in problem.message or said in problem.field for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[1", "no YAML"),
        ("2026-99-99", "month must be"),
        ("{[1]: 2}", "no YAML"),
        ("*unknown", "no YAML"),
        pytest.param("[" * 20_000, "too deep", id="deep"),
        pytest.param("[" * 30_000 + "]" * 30_000, "too deep", id="deep and whole"),
    ],
)
def test_a_value_that_is_no_yaml_is_said_to_be_none(value, said, tmp_path):
    with pytest.raises(InvalidInput, match=said) as refused:
        with_changes(BASE, [f"settings.starvation_after={value}"])
    assert refused.value.problems
    path = tmp_path / "cluster.yaml"
    path.write_text(f"settings: {value}\n")
    with pytest.raises(InvalidInput, match=said):
        read_cluster_file(path)


@pytest.mark.parametrize(
    ("value", "said"),
    [("[" + "1," * 40_000 + "1]", "at most 65536 are read"), ("[&a [1, 2], *a]", "repeats a part of itself")],
    ids=["long", "alias"],
)
def test_a_value_of_a_change_is_short_and_repeats_nothing(value, said):
    with pytest.raises(InvalidInput, match=said):
        with_changes(BASE, [f"settings.starvation_after={value}"])


def test_a_path_of_a_change_is_short():
    with pytest.raises(InvalidInput, match="a path may have 512 characters"):
        with_changes(BASE, ["a." * 300 + "b=1"])


@pytest.mark.parametrize("path", ["billing.prices.H100.per_hour", "billing.prices.0.per_hour", "queue.research.x.y"])
def test_entries_without_names_cannot_be_set_one_by_one(path):
    base = with_changes(BASE, ['billing={currency: EUR, prices: [{resource: device, per_hour: "1.20"}]}'])
    with pytest.raises(InvalidInput) as refused:
        with_changes(base, [f"{path}=2"])
    assert refused.value.problems
