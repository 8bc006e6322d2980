"""Configurations changed by single fields, in the words of a cluster file."""

import pytest

from penstock.control.declared import with_changes
from penstock.core.errors import InvalidInput
from penstock.core.model.cluster import Pool, Queue, Tenant
from tests.core.builders import config

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
