"""Lists of nodes: filtered, sorted, paged and counted by the server."""

from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem
from penstock.server.routes.nodes import NodeEntries
from penstock.testing.server import InProcessServer

CLUSTER = {
    "pools": ["default", "spare"],
    "nodes": [
        {"name": "a1", "cpus": 8, "simulated_devices": {"count": 4, "model": "H100"}, "rack": "r1"},
        {"name": "a2", "cpus": 8, "simulated_devices": {"count": 2, "model": "H100"}, "rack": "r2"},
        {"name": "b1", "cpus": 16, "simulated_devices": {"count": 2, "model": "A100"}, "rack": "r1", "pool": "spare"},
        {"name": "c1", "cpus": 4},
    ],
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[InProcessServer]:
    with InProcessServer(CLUSTER) as server:
        server.client.submit({"command": "sleep 3600", "devices": 4})
        server.advance(1)
        server.client.drain("a2", reason="fans")
        yield server


def names(server, **query):
    return [node["name"] for node in server.client.listed("nodes", fields="name", **query)["nodes"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["a1", "a2", "b1", "c1"]),
        ({"name": "a*"}, ["a1", "a2"]),
        ({"pool": "spare"}, ["b1"]),
        ({"state": "draining"}, ["a2"]),
        ({"state": ["draining", "ready"], "rack": "r1"}, ["a1", "b1"]),
        ({"model": "H100"}, ["a1", "a2"]),
        ({"has_free": "true"}, ["b1"]),
        ({"draining": "false", "has_free": "false"}, ["a1", "c1"]),
        ({"unhealthy": "true"}, []),
        ({"search": "H1"}, ["a1", "a2"]),
        ({"sort": "-devices"}, ["a1", "b1", "a2", "c1"]),
        ({"sort": "rack"}, ["a1", "b1", "a2", "c1"]),
        ({"sort": "-used", "limit": 1}, ["a1"]),
    ],
)
def test_nodes_are_filtered_and_sorted(nodes, query, expected):
    assert names(nodes, **query) == expected


def test_devices_are_counted_by_model_over_all_pages(nodes):
    found = nodes.client.node_list(limit=1)
    assert [(one.model, one.total, one.free, one.used, one.unhealthy, one.closed) for one in found.devices] == [
        ("A100", 2, 2, 0, 0, 0),
        ("H100", 6, 0, 4, 0, 2),
    ]
    assert (found.totals, len(found.nodes)) == ({"ready": 3, "draining": 1}, 1)
    assert [node.name for node in nodes.client.node_list(limit=1, cursor=found.next_cursor).nodes] == ["a2"]


def test_nodes_are_counted_by_rack_with_their_devices(nodes):
    groups = nodes.client.node_list(totals_by="rack").groups
    assert [(one.name, one.count, one.devices) for one in groups] == [("r1", 2, 6), ("", 1, 0), ("r2", 1, 2)]


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ({"sort": "nam"}, "unknown_sort", "did you mean 'name'?"),
        ({"fields": "name,stat"}, "unknown_field", "did you mean 'state'?"),
        ({"totals_by": "racks"}, "unknown_totals_by", "did you mean 'rack'?"),
        ({"name": "*" * 9}, "too_long", ""),
    ],
)
def test_a_word_that_the_list_does_not_know_is_refused_with_the_nearest(nodes, query, code, hint):
    with pytest.raises(ApiProblem) as refused:
        nodes.client.node_list(**query)
    assert (refused.value.details.status, refused.value.problems[0].code) == (422, code)
    assert hint in refused.value.problems[0].hint


def test_entries_are_kept_until_something_of_their_node_changes():
    with InProcessServer(CLUSTER) as server:
        entries, state = NodeEntries(), server.service.controller.state
        first = {one.name: one for one in entries.of(state)}
        assert all(first[one.name] is one for one in entries.of(state))
        server.client.submit({"command": "sleep 3600", "devices": 4})
        server.advance(1)
        held = {one.name: one for one in entries.of(state)}
        assert [name for name in first if held[name] is not first[name]] == ["a1"]
        assert (first["a1"].free, held["a1"].free) == (4, 0)
        server.client.drain("c1")
        assert {one.name: one.state for one in entries.of(state)}["c1"] == "draining"
