"""Who speaks for a node with its key gets no more for it than was declared."""

import json
import socket
import ssl

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.ids import SERVER_IDENTITY
from penstock.core.model.resources import Resources
from penstock.engines.agent import protocol as p
from penstock.engines.local.launch import node_config
from tests.server.harness import Server, cluster_file, until
from tests.server.http.test_accesslog import noted


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "data", cluster_file(1, 2)) as running:
        yield running


def said(server, spec):
    """Return what the server answers to an agent of the node n1 that describes it so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(server.data.trusted)
    context.load_cert_chain(server.data.node_certificate("n1"))
    port = json.loads(server.data.server_info.read_bytes())["agent_port"]
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with context.wrap_socket(plain, server_hostname=SERVER_IDENTITY) as link:
        link.sendall(p.frame(p.AgentHello(p.PROTOCOL_VERSION, spec, "liar")))
        frames, bodies = p.Deframer(), []
        while not bodies and (got := link.recv(1 << 16)):
            bodies = list(frames.feed(got))
        return [p.decode_to_agent(body) for body in bodies]


def test_a_node_that_says_more_is_registered_as_it_was_declared(server):
    own = node_config(server.data.node("n1") / "agent.json").spec
    more = replace(
        own, capacity=Resources(10**9, 2**50, 2**50), pool="gold", devices=(replace(own.devices[0], links=()),)
    )
    assert isinstance(said(server, more)[0], p.ServerWelcome)
    found = [r.event for r in server.client.all_events() if isinstance(r.event, ev.NodeRegistered)]
    (lied,) = [event.spec for event in found if event.incarnation == "liar"]
    assert (lied.capacity.cpu_milli, lied.capacity.memory_bytes, lied.pool) == (32_000, 8 * 2**30, "default")
    assert lied.devices == own.devices[:1]
    entry = ("node_claimed_more", "n1", "more or other than is known: pool, cpu_milli, memory_bytes, storage_bytes")
    until(lambda: entry in noted(server), "the log has it")


def test_a_node_that_cannot_be_is_refused(server):
    own = node_config(server.data.node("n1") / "agent.json").spec
    (answer,) = said(server, replace(own, capacity=Resources(-1)))
    assert answer.reason.startswith("what the agent says of its node cannot be: an amount is not between 0 and")
    until(lambda: ("node_refused", "n1", answer.reason[:100]) in noted(server), "the log has it")
