"""What engines say of the nodes that they have brought: going, and gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.control.joining import VALID_MAX_MS, Joining
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import NodeRemoved
from penstock.core.model.ids import NodeName
from penstock.engines.agent.joined import DeclaredNode
from penstock.engines.joined.records import JoinedNodes
from penstock.engines.processes.paths import DataFolder
from penstock.testing.server import InProcessServer


class NoLinks:
    def __init__(self) -> None:
        self.dropped: list[NodeName] = []

    def connected(self) -> set[NodeName]:
        return set()

    def drop(self, node: NodeName) -> None:
        self.dropped.append(node)


@pytest.fixture
def server() -> Iterator[InProcessServer]:
    with InProcessServer() as made:
        yield made


@pytest.fixture
def links() -> NoLinks:
    return NoLinks()


@pytest.fixture
def joining(server: InProcessServer, links: NoLinks, tmp_path: Path) -> Joining:
    clock = server.engine.clock
    records = JoinedNodes(tmp_path / "joined", clock.unix_ms)
    return Joining(DataFolder(tmp_path), clock, records, lambda name: False, lambda: server.service, lambda: links)


def test_a_node_that_is_going_takes_no_new_work_and_its_jobs_move(server: InProcessServer, joining: Joining) -> None:
    job = server.submit({"command": "sleep 600", "devices": 4})
    (node,) = server.client.job(job).nodes
    joining.going(NodeName(node), deadline_ms=server.engine.clock.unix_ms() + 60_000, reason="allocation 4711 ends")
    server.settle()
    shown = server.client.node(node)
    assert (shown.draining, shown.drain_reason) == (True, "allocation 4711 ends")
    assert server.client.attempts(job).attempts[0].asked_reason == "drained"


def test_a_node_that_will_go_without_a_time_keeps_its_jobs(server: InProcessServer, joining: Joining) -> None:
    job = server.submit({"command": "sleep 600", "devices": 4})
    (node,) = server.client.job(job).nodes
    joining.going(NodeName(node), deadline_ms=None, reason="idle soon")
    server.settle()
    assert (server.client.node(node).draining, server.client.job(job).nodes) == (True, [node])


def test_a_node_that_is_gone_is_lost_at_once_and_its_jobs_run_elsewhere(
    server: InProcessServer, joining: Joining, links: NoLinks
) -> None:
    job = server.submit({"command": "sleep 600", "devices": 4})
    (node,) = server.client.job(job).nodes
    joining.gone(NodeName(node), "its machine was taken away")
    server.settle()
    assert links.dropped == [node]
    first = server.client.attempts(job).attempts[0]
    assert (first.outcome, first.detail) == ("lost", f"node {node} no longer knows replica {job}.1.0")
    assert (server.client.node(node).state, server.client.job(job).attempt) == ("lost", 2)


def test_what_an_engine_has_brought_and_lost_leaves_the_list_and_its_lease_ends_quietly(
    links: NoLinks, tmp_path: Path
) -> None:
    made = InProcessServer({"nodes": [{"name": name, "cpus": 4} for name in ("a", "b", "c")]})
    for name, engine in (("a", "slurm"), ("b", "slurm"), ("c", "ray")):
        made.engine._nodes[NodeName(name)].spec = replace(made.engine._nodes[NodeName(name)].spec, engine=engine)
    with made as server:
        records, clock = JoinedNodes(tmp_path / "joined", server.engine.clock.unix_ms), server.engine.clock
        data = DataFolder(tmp_path)
        joining = Joining(data, clock, records, lambda name: False, lambda: server.service, lambda: links)
        for name in ("a", "b", "c"):
            server.engine.crash(name)
            joining.gone(NodeName(name), "its allocation is over")
        server.settle()
        joining.clear("slurm", {NodeName("b")})
        server.settle()
        assert [(node.name, node.state) for node in server.client.nodes()] == [("b", "lost"), ("c", "lost")]
        server.advance(60)
        joining.clear("ray", ())
        server.settle()
        assert [node.name for node in server.client.nodes()] == ["b"]
        removed = [one.event.node for one in server.client.all_events() if isinstance(one.event, NodeRemoved)]
        assert removed == ["a", "c"]


def test_a_node_that_never_was_can_be_gone(joining: Joining, links: NoLinks) -> None:
    joining.gone(NodeName("nowhere"), "it never came up")
    assert links.dropped == ["nowhere"]


def test_a_server_that_does_not_listen_declares_nothing(joining: Joining) -> None:
    with pytest.raises(InvalidInput, match="does not listen"):
        joining.declare(DeclaredNode(NodeName("away")))


@pytest.mark.parametrize("valid_ms", [0, -1, VALID_MAX_MS + 1])
def test_bundles_are_valid_for_a_bounded_time(joining: Joining, valid_ms: int) -> None:
    with pytest.raises(InvalidInput, match="valid for up to 30 days"):
        joining.declare(DeclaredNode(NodeName("away")), valid_ms=valid_ms)
