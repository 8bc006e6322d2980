"""Devices closed and opened over the API, by hand and for what their node reports; who sees what of it."""

import http.client
import threading
from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem
from penstock.core.messages.reports import NodeReport
from penstock.core.model.access import Scope
from penstock.core.model.nodes import DeviceFault, DeviceUser, OthersLoad
from penstock.server.views.cluster import node_view
from penstock.testing.harness import cluster
from penstock.testing.server import InProcessServer

XID = DeviceFault(1, "xid", "Xid 79: GPU has fallen off the bus", 79)


@pytest.fixture
def server() -> Iterator[InProcessServer]:
    with InProcessServer() as server:
        yield server


def report(server: InProcessServer, *faults: DeviceFault) -> None:
    """Let node n1 report these faults, and no others."""
    controller, answered = server.service.controller, threading.Event()
    node = controller.state.nodes["n1"]
    asked = NodeReport("n1", node.incarnation, 0, inventory=False, faults=faults)
    asked = NodeReport("n1", node.incarnation, controller.leases.of(asked).last_seq + 1, inventory=False, faults=faults)
    server.service.ask(asked, lambda _: answered.set())
    assert answered.wait(30)
    server.settle()


def device(server: InProcessServer, index: int):
    return server.client.node("n1").devices[index]


def test_a_device_closed_by_hand_gets_no_job_until_it_is_opened(server):
    done = server.client.close_device("n1", 1, reason="fan is broken")
    assert (done.node, done.note, done.device) == ("n1", "", device(server, 1))
    closed = done.device.closed
    user = server.client.me().user
    assert (closed.by, closed.code, closed.reason, closed.fault) == (user, "closed", "fan is broken", False)
    assert (closed.opens_ms, done.device.healthy) == (0, False)
    jobs = [server.submit({"command": "sleep 600", "devices": 4}) for _ in range(2)]
    server.advance(1)
    assert [server.client.job(job).state for job in jobs] == ["running", "waiting"]
    assert server.client.open_device("n1", 1).device.closed is None
    server.advance(1)
    assert server.client.job(jobs[1]).state == "running"
    told = [one.event for one in server.client.events() if type(one.event).__name__.startswith("Device")]
    assert [(event.by, event.reason) for event in told] == [(user, "fan is broken"), (user, "")]


def test_what_its_node_reports_closes_it_again_and_is_said_when_it_is_opened(server):
    report(server, XID)
    closed = device(server, 1).closed
    assert (closed.by, closed.code, closed.fault, closed.opens_ms) == ("penstock", "xid", True, 0)
    (alert,) = server.client.alerts()
    assert (alert.code, alert.text) == ("device_closed", f"1 device of n1 is closed: {XID.text} (device 1)")
    (row,) = server.client.devices(state="closed").devices
    assert (row.id, row.reason) == ("n1/1", XID.text)
    assert server.client.open_device("n1", 1).note == (
        f"its node still reports a fault, which closes it again: {XID.text}"
    )
    report(server, XID)
    assert device(server, 1).closed is not None


def test_it_is_known_when_it_opens_once_the_fault_is_gone(server):
    report(server, XID)
    server.advance(60)
    report(server)
    now_ms, opens_ms = server.engine.clock.unix_ms(), device(server, 1).closed.opens_ms
    assert opens_ms == now_ms + 600_000
    server.advance(600)
    assert device(server, 1).closed is None


def test_jobs_on_it_are_asked_to_move_where_that_is_wanted(server):
    job = server.submit({"command": "sleep 600", "devices": 4, "node_labels": {}})
    server.advance(1)
    node = server.client.job(job).nodes[0]
    server.client.close_device(node, 0)
    assert server.client.job(job).state == "running"
    server.client.close_device(node, 0, evict=True)
    assert server.client.job(job).state == "stopping"


@pytest.mark.parametrize(
    ("node", "index", "text"),
    [
        ("n1", 4, "node n1 has no device 4: it has 4 devices, numbered from 0"),
        ("m1", 0, "there is no node 'm1'"),
    ],
)
def test_what_there_is_not_is_not_found(server, node, index, text):
    for change in (server.client.close_device, server.client.open_device):
        with pytest.raises(ApiProblem, match=text):
            change(node, index)


def test_of_two_changes_decided_on_one_version_the_second_is_refused(server):
    def asked(method: str, path: str, tag: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {server.token}"} | ({"If-Match": tag} if tag else {})
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request(method, f"/api/v1/nodes/n1{path}", headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers["ETag"]

    _, tag = asked("GET", "")
    assert asked("POST", "/devices/0/close", tag)[0] == 200
    assert asked("POST", "/devices/0/open", tag)[0] == 412
    assert device(server, 0).closed is not None


@pytest.mark.parametrize(
    ("scope", "shown", "seen"),
    [
        (Scope("otto", "operator"), "own", ["eve"]),
        (Scope("ann", "", {"default": "member"}), "own", []),
        (Scope("ann", "", {"default": "member"}), "tenants", []),
        (Scope("ann", "", {"default": "member"}), "users", ["eve"]),
    ],
)
def test_names_of_other_users_of_devices_are_for_whom_they_are_shown(scope, shown, seen):
    w = cluster(1, 2, holders_shown=shown)
    w.report("n0", others=OthersLoad(devices=(1,), users=(DeviceUser(1, 4711, "eve", "python"),)))
    free, taken = node_view(w.state, "n0", connected=True, scope=scope).devices
    assert (free.taken, taken.taken, [one.user for one in taken.users]) == (False, True, seen)
