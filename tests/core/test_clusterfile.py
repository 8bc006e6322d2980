"""Cluster files: pools, tenants, the queue tree, settings and nodes, with everything wrong said at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.clusterfile import VirtualNode, parse_cluster, tree_problems
from penstock.core.model.cluster import ClusterConfig, Pool, Queue, Settings, Tenant
from tests.core.builders import GIB
from tests.core.test_jobfile_fields import json_values


def read(raw):
    found, problems = parse_cluster(raw)
    assert problems == []
    return found


def problems(raw):
    return [(p.code, p.field) for p in parse_cluster(raw)[1]]


@pytest.mark.parametrize("raw", [None, {}, {"queues": [], "settings": {}}])
def test_an_empty_file_declares_the_defaults(raw):
    assert read(raw).config == ClusterConfig()
    assert read(raw).nodes == ()


def test_everything_that_can_be_declared_is_taken_over():
    found = read(
        {
            "pools": [{"name": "gpus", "kind": "gpu", "description": "A100"}, "cpus"],
            "tenants": [{"name": "vision", "description": "team"}, "speech"],
            "queues": [
                {"name": "a", "policy": "fifo", "preemption": "never", "max_waiting": 5},
                {"name": "b", "parent": "a"},
            ],
            "root_policy": "fifo",
            "nodes": [
                {
                    "name": "n1",
                    "cpus": 2.5,
                    "memory": "16GiB",
                    "storage": "1GB",
                    "pool": "gpus",
                    "labels": {"disk": "ssd"},
                    "rack": "r",
                    "switch": "s",
                    "simulated_devices": {"count": 4, "model": "H100", "memory": "80GiB"},
                },
            ],
        }
    )
    assert found.config.pools == (Pool("gpus", "gpu", "A100"), Pool("cpus"))
    assert found.config.tenants == (Tenant("vision", "team"), Tenant("speech"))
    assert found.config.queues == (Queue("a", "root", "fifo", "never", 5), Queue("b", "a"))
    assert found.config.root_policy == "fifo"
    assert found.nodes == (
        VirtualNode("n1", 2_500, 16 * GIB, 10**9, "gpus", (("disk", "ssd"),), "r", "s", 4, "H100", 80 * GIB),
    )


def test_a_node_takes_from_the_machine_what_it_does_not_say():
    assert read({"nodes": ["n1"]}).nodes == (VirtualNode("n1"),)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"lease_ttl": "1m"}, "lease_ttl_ms", 60_000),
        ({"lease_ttl_ms": 61_000}, "lease_ttl_ms", 61_000),
        ({"starvation_after": "1h30m"}, "starvation_after_ms", 5_400_000),
        ({"heartbeat": 0.5}, "heartbeat_ms", 500),
        ({"wait_bonus_max": 7}, "wait_bonus_max", 7),
        ({"priority_cost_ms_per_point": 3}, "priority_cost_ms_per_point", 3),
        ({"allow_waiting_for_nodes": True}, "allow_waiting_for_nodes", True),
    ],
)
def test_settings_are_read_by_name_and_durations_as_people_write_them(given, field, value):
    found = read({"settings": given}).config.settings
    assert getattr(found, field) == value
    assert found == Settings(**{field: value})


def test_all_problems_are_found_at_once():
    raw = {
        "pool": [],
        "pools": [{"name": "gpus", "kind": "gqu"}],
        "tenants": [{"name": "a b"}],
        "queues": [{"name": "q", "policy": "lifo"}, {"name": "q"}, {"name": "c", "parent": "nowhere"}],
        "settings": {"lease_tll": "1m", "heartbeat": "often"},
        "nodes": [{"name": "n", "pool": "gqus", "cpus": "many"}],
    }
    assert problems(raw) == [
        ("unknown_field", "pool"),
        ("bad_value", "pools[0].kind"),
        ("bad_value", "tenants[0].name"),
        ("duplicate_name", "queues[1].name"),
        ("bad_value", "queues[0].policy"),
        ("unknown_field", "settings.lease_tll"),
        ("bad_value", "settings.heartbeat"),
        ("bad_value", "nodes[0].cpus"),
        ("unknown_queue", "queues[1].parent"),
        ("unknown_pool", "nodes[0].pool"),
    ]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 64, None, 5])
def test_names_are_plain(name):
    assert problems({"pools": [{"name": name}]}) == [("bad_value", "pools[0].name")]


@pytest.mark.parametrize("raw", [5, "x", [], {"pools": "x"}, {"pools": [5]}, {"queues": {"a": 1}}])
def test_wrong_shapes_are_problems(raw):
    assert len(problems(raw)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"queues": [{"name": "root"}]},
        {"queues": [{"name": "a", "max_waiting": 0}]},
        {"queues": [{"name": "a", "preemption": "always"}]},
        {"queues": [{"name": "a", "parent": 5}]},
        {"root_policy": "lifo"},
        {"settings": {"wait_bonus_max": -1}},
        {"settings": {"wait_bonus_max": True}},
        {"settings": {"allow_waiting_for_nodes": 1}},
        {"settings": {"lease_ttl": "8s"}},
        {"settings": {"lease_margin": "30s"}},
        {"settings": [1]},
        {"nodes": [{"name": "n", "memory": "x"}]},
        {"nodes": [{"name": "n", "labels": ["a"]}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": -1}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"modle": "x"}}]},
        {"nodes": [{"name": "n", "simulated_devices": 4}]},
        {"nodes": [{"name": "n", "gpus": 4}]},
    ],
    ids=str,
)
def test_a_bad_value_is_one_problem(bad):
    assert len(problems(bad)) == 1


def test_the_nearest_right_word_is_said():
    _, found = parse_cluster({"settings": {"starvation_aftr": "1h"}, "queus": []})
    assert [p.hint for p in found] == ["did you mean 'queues'?", "did you mean 'starvation_after'?"]


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ((Queue("a"), Queue("b", "a"), Queue("c", "b")), []),
        ((Queue("b", "a"), Queue("a")), []),
        ((Queue("a", "a"),), [("queue_cycle", "queues[0].parent")]),
        ((Queue("a", "b"), Queue("b", "a")), [("queue_cycle", f"queues[{i}].parent") for i in (0, 1)]),
        ((Queue("a"), Queue("b", "x")), [("unknown_queue", "queues[1].parent")]),
    ],
)
def test_queues_are_a_tree_below_root(tree, found):
    assert [(p.code, p.field) for p in tree_problems(tree)] == found


def test_a_queue_below_a_cycle_ends_the_walk():
    tree = (Queue("c", "a"), Queue("a", "b"), Queue("b", "a"))
    assert {p.code for p in tree_problems(tree)} == {"queue_cycle"}


KEYS = ["pools", "tenants", "queues", "root_policy", "settings", "nodes"]
entries = st.lists(
    st.dictionaries(st.sampled_from(["name", "parent", "pool", "labels", "memory", "simulated_devices"]), json_values),
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(json_values | st.dictionaries(st.sampled_from(KEYS), json_values | entries))
def test_any_value_is_read_or_refused(raw):
    found, _ = parse_cluster(raw)
    assert isinstance(found.config, ClusterConfig)
