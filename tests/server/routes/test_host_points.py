"""What a node reports of its host decides, and its page shows by which points."""

from typing import Any

from penstock.control.host_loads import NOTE_EVERY_MS
from penstock.core.messages.reports import HostFigures, NodeFigures, NodeReport
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer


class Session:
    """The connection of a node, of which nothing is asked."""

    def taken(self, *_: Any, **__: Any) -> None: ...
    def close(self) -> None: ...


def test_a_nodes_page_shows_the_points_that_its_reports_lead_to_and_lists_do_not():
    declared = cluster_file(1, 0) | {"pools": [{"name": "default", "placement": "host_load"}]}
    with InProcessServer(declared) as server:
        before = server.client.node("n1").host_points
        controller = server.service.controller
        incarnation, host = controller.state.nodes["n1"].incarnation, HostFigures(cpu_milli=450)
        for _ in range(3):
            bare = NodeReport("n1", incarnation, 0, inventory=False)
            seq = controller.leases.of(bare).last_seq + 1
            server.service.on_report(
                NodeReport("n1", incarnation, seq, inventory=False, figures=NodeFigures(host=host)), Session()
            )
            server.settle()
            server.advance(NOTE_EVERY_MS / 1000)
        assert before.startswith("90/100 points: utilisation 30/40")
        assert server.client.node("n1").host_points.startswith("100/100 points: utilisation 40/40")
        assert [one.host_points for one in server.client.nodes()] == [""]
