"""Who may speak to the server, and for whom: shown by connections with certificates of every kind."""

import contextlib
import datetime as dt
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.reports import NodeReport
from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import SERVER_IDENTITY
from penstock.engines.agent import protocol as p
from penstock.engines.agent import server_side as link
from penstock.engines.agent import tls
from penstock.engines.local.launch import agent_pid, known_nodes, replace_agent
from penstock.security import authority as ca
from penstock.security.keeper import CertificateKeeper
from penstock.testing.builders import node
from tests.engines.agent.fakeserver import FakeServer
from tests.properties import examples
from tests.server.harness import until

NOW = dt.datetime.now(dt.UTC)
OPEN: list[ssl.SSLSocket] = []
"""Closed at the end of each test."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    """A server without an agent, with certificates for the nodes n1 and n2."""
    made = FakeServer(tmp_path / "node")
    made.certify("n1", "n2")
    yield made
    for opened in OPEN:
        opened.close()
    OPEN.clear()
    made.close()


@pytest.fixture
def agent(server: FakeServer) -> FakeServer:
    server.agent()
    server.ready()
    return server


class Speaker:
    """Speaks to a server as an agent would, with a certificate of one's choice."""

    def __init__(self, server: FakeServer, own: Path | None, **settings: object) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(server.data.trusted)
        if own is not None:
            context.load_cert_chain(own)
        for name, value in settings.items():
            setattr(context, name, value)
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self.link = context.wrap_socket(plain, server_hostname=SERVER_IDENTITY)
        OPEN.append(self.link)

    def said(self, *messages: p.ToServer) -> list[p.ToAgent]:
        """Send messages and return all that the server says until it hangs up, or one answer to the last."""
        self.link.sendall(b"".join(map(p.frame, messages)))
        data = self.link.recv(1 << 16)
        return [p.decode_to_agent(body) for body in p.Deframer().feed(data)]


def hello(name: str = "n1", version: int = p.PROTOCOL_VERSION) -> p.AgentHello:
    return p.AgentHello(version, node(name), "life")


def refused(server: FakeServer, own: Path | None, **settings: object) -> bool:
    """Return whether the server lets nobody in with this certificate."""
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        return Speaker(server, own, **settings).said(hello()) == []
    return True


def test_who_has_the_nodes_certificate_is_welcome(server):
    assert isinstance(Speaker(server, server.data.node_certificate("n1")).said(hello())[0], p.ServerWelcome)


def test_a_certificate_speaks_for_its_own_node_only(server):
    (answer,) = Speaker(server, server.data.node_certificate("n2")).said(hello("n1"))
    assert answer == p.ServerRefused("the certificate is for node 'n2', not for 'n1'")
    assert (server.hellos, server.engine.connected()) == ([], set())


@pytest.mark.parametrize("name", ["..", ".", ".n1", "a/b", "a\n", "a\x1b[2J", "x" * 256])
def test_a_name_that_leads_elsewhere_is_no_nodes(server, tmp_path, monkeypatch, name):
    own = server.data.node_certificate("n1")
    (answer,) = Speaker(server, own).said(hello(name))
    assert isinstance(answer, p.ServerRefused)
    with pytest.raises(ca.CertificateError, match="cannot be the name of a node"):
        ca.sign_node(ca.new_authority(NOW), name, NOW)
    with pytest.raises(InvalidInput, match="cannot be the name of a node"):
        server.data.node(name)
    monkeypatch.setattr(ca, "is_node_name", lambda name: True)
    signer = ca.decoded(server.keeper.authority_file.read_bytes())
    (tmp_path / "own.pem").write_bytes(ca.sign_node(signer, name, NOW).pem())
    (answer,) = Speaker(server, tmp_path / "own.pem").said(hello(name))
    assert answer.reason.startswith("its name cannot be that of a node")
    (answer,) = Speaker(server, tmp_path / "own.pem").said(hello("n1"))
    assert answer.reason == "the certificate is for node 'None', not for 'n1'"
    assert server.hellos == []


def test_folders_that_are_no_nodes_are_passed_over(server):
    for name in (".hidden", "a\x1b"):
        (server.data.root / "nodes" / name).mkdir()
    (server.data.root / "nodes" / "linked").symlink_to(server.data.root)
    assert known_nodes(server.data) == ["n1", "n2"]


def test_an_agent_of_another_version_is_named_whatever_its_hello_says_else(server):
    own, later = server.data.node_certificate("n1"), p.PROTOCOL_VERSION + 1
    strange = msgspec.msgpack.encode({"type": "AgentHello", "version": later, "program": "9.9", "spec": "of later"})
    speaker = Speaker(server, own)
    speaker.link.sendall(len(strange).to_bytes(4, "big") + strange)
    (answer,) = speaker.said()
    assert answer.reason.startswith(f"the agent runs Penstock 9.9, protocol {later}, this server {p.PROGRAM}: ")
    assert server.engine.others() == {"n1": f"Penstock 9.9, protocol {later}"}
    Speaker(server, own).said(hello())
    assert server.engine.others() == {}


def test_a_report_about_another_node_is_not_listened_to(server):
    speaker = Speaker(server, server.data.node_certificate("n2"))
    (welcome,) = speaker.said(hello("n2"))
    reports = [p.AgentReport(1, welcome.session, NodeReport(name, "life", 1, True)) for name in ("n1", "n2")]
    speaker.said(*reports)
    assert [report.node for report in server.reports] == ["n2"]


def test_without_a_certificate_nobody_is_let_in(server):
    assert refused(server, None)
    assert server.hellos == []


def test_a_certificate_of_another_authority_is_refused(server, tmp_path):
    other = tmp_path / "n1.pem"
    other.write_bytes(ca.sign_node(ca.new_authority(NOW), "n1", NOW).pem())
    assert refused(server, other)


def test_the_servers_own_certificate_is_no_agents(server):
    assert refused(server, server.keeper.server_file)


def test_a_certificate_that_has_ended_is_refused(server, tmp_path):
    signer = ca.decoded(server.keeper.authority_file.read_bytes())
    old = tmp_path / "old.pem"
    old.write_bytes(ca.sign_node(signer, "n1", NOW - ca.NODE_LIFE).pem())
    assert refused(server, old)


def test_older_tls_is_not_spoken(server):
    own = server.data.node_certificate("n1")
    assert refused(server, own, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_another_version_of_the_protocol_is_told_and_hung_up_on(server):
    (answer,) = Speaker(server, server.data.node_certificate("n1")).said(hello(version=2))
    assert isinstance(answer, p.ServerRefused)
    assert answer.reason.startswith(f"the agent runs protocol 2, this server {p.PROGRAM}: ")


def test_before_its_hello_nobody_may_send_much(server):
    speaker = Speaker(server, server.data.node_certificate("n1"))
    speaker.link.sendall((p.HELLO_MAX_BYTES + 1).to_bytes(4, "big"))
    assert speaker.link.recv(10) == b""


def test_who_says_no_hello_is_dropped(server, monkeypatch):
    monkeypatch.setattr(link, "HELLO_S", 0.05)
    assert Speaker(server, server.data.node_certificate("n1")).link.recv(10) == b""


def test_a_server_that_stops_closes_connections_without_a_hello_too(server, monkeypatch):
    monkeypatch.setattr(link, "HELLO_S", 600)
    speaker = Speaker(server, server.data.node_certificate("n1"))
    until(lambda: server.engine._connections, "the server has the connection")
    server.engine.stop()
    assert speaker.link.recv(10) == b""


def test_connections_over_the_limit_are_closed(server, monkeypatch):
    monkeypatch.setattr(link, "CONNECTIONS_MAX", 1)
    first, second = (Speaker(server, server.data.node_certificate(name)) for name in ("n1", "n2"))
    assert second.link.recv(10) == b""
    assert isinstance(first.said(hello())[0], p.ServerWelcome)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 40, p.frame(hello())])
def test_whoever_does_not_speak_tls_is_hung_up_on(agent, junk):
    with socket.create_connection(("127.0.0.1", agent.port), timeout=10) as plain:
        plain.sendall(junk)
        with contextlib.suppress(ConnectionError):
            while plain.recv(1 << 16):
                pass
    agent.next_inventory(lambda r: True)


def test_a_report_without_a_hello_is_not_listened_to(agent):
    before = len(agent.hellos)
    speaker = Speaker(agent, agent.data.node_certificate("n2"))
    speaker.link.sendall(p.frame(p.AgentReport(1, 99, NodeReport("n2", "i", 1, True))))
    agent.next_inventory(lambda r: True)
    assert (len(agent.hellos), [r for r in agent.reports if r.node == "n2"]) == (before, [])


def test_an_agent_says_nothing_to_a_server_it_does_not_trust(server):
    server.data.trusted.write_bytes(ca.bundle([ca.new_authority(NOW).certificate]))
    server.agent()
    log = server.data.node("n1") / "agent.log"
    until(lambda: "no secure connection to the server" in log.read_text(), "the agent says so")
    assert server.hellos == []


def test_a_nodes_certificate_cannot_pose_as_the_server(server):
    own = server.data.node_certificate("n2")
    posing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    posing.load_cert_chain(own)
    channel = tls.Channel(tls.agent_context(server.data.trusted, own))
    with pytest.raises(ssl.SSLCertVerificationError):
        converse(channel, posing, b"", [1 << 16])


# Certificates that change while jobs run.


def comes_back(server: FakeServer) -> None:
    """Let every session begin anew, and wait for the agent."""
    before = len(server.hellos)
    server.security.renew()
    server._loop.call_soon_threadsafe(server.engine.hang_up)
    until(lambda: len(server.hellos) > before, "the agent is back")


def test_new_certificates_are_taken_up_while_a_job_runs(agent):
    key = agent.start("sleep", "60")
    pid = agent.seen(key, "running").pid
    former = agent.data.node_certificate("n1").read_bytes()
    agent.data.node_certificate("n1").unlink()
    agent.certify()
    comes_back(agent)
    assert agent.data.node_certificate("n1").read_bytes() != former
    assert agent.next_inventory(lambda r: True).replicas[0].pid == pid


def test_a_job_outlives_the_authority_under_which_it_began(agent, tmp_path):
    key = agent.start("sleep", "60")
    pid = agent.seen(key, "running").pid
    former = tmp_path / "former.pem"
    former.write_bytes(agent.data.node_certificate("n2").read_bytes())
    agent.keeper.rotate(NOW)
    comes_back(agent)  # with its certificate of the former authority
    assert isinstance(Speaker(agent, former).said(hello("n2"))[0], p.ServerWelcome)
    agent.certify("n1", "n2")
    agent.keeper.drop_former(NOW)
    comes_back(agent)
    assert refused(agent, former)
    assert agent.next_inventory(lambda r: True).replicas[0].pid == pid


def test_an_agent_goes_on_with_the_installed_program_and_its_jobs(agent):
    key = agent.start("sleep", "60")
    pid, former = agent.seen(key, "running").pid, agent_pid(agent.data, "n1")
    replace_agent(agent.data, "n1")
    until(lambda: agent_pid(agent.data, "n1") not in (None, -1, former), "another guardian holds the lock")
    seen = agent.next_inventory(lambda r: bool(r.replicas))
    assert (seen.replicas[0].pid, seen.replicas[0].state) == (pid, "running")


# The agent's end, without sockets.


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("channel")
    CertificateKeeper(folder).ensure((), {"n1": folder / "n1.pem"}, NOW)
    return folder


def converse(channel: tls.Channel, server: ssl.SSLContext, answer: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Return what the server heard and what the channel heard, over a wire that cuts anywhere."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = server.wrap_bio(inward, outward, server_side=True)
    sizes = itertools.cycle(cuts)
    heard, told, sent, shaken = bytearray(), bytearray(), False, False
    for _ in range(30_000):
        inward.write(channel.to_wire())
        with contextlib.suppress(ssl.SSLWantReadError):
            if not shaken:
                end.do_handshake()
                shaken = True
            if not sent:
                end.write(answer)
                sent = True
            heard += end.read(1 << 20)
        data = outward.read(next(sizes))
        if not data and shaken and not inward.pending:
            break
        told += channel.receive(data)
    return bytes(heard), bytes(told)


@examples(30)
@given(cuts=st.lists(st.integers(1, 3_000), min_size=1, max_size=20))
def test_everything_arrives_however_the_wire_is_cut(files, cuts):
    channel = tls.Channel(tls.agent_context(files / "trusted.pem", files / "n1.pem"))
    channel.send(b"q" * 40_000)
    assert converse(channel, tls.server_context(files / "trusted.pem", files / "server.pem"), b"a" * 5_000, cuts) == (
        b"q" * 40_000,
        b"a" * 5_000,
    )


def test_a_snapshot_that_is_slow_to_read_keeps_neither_orders_nor_answers_back(server, monkeypatch):
    go_on, asked = threading.Event(), threading.Event()
    read: list[int] = []

    def slow(name, wanted):
        read.append(wanted.number)
        asked.set()
        assert go_on.wait(20)
        return p.ServerPart(wanted.number, (b"x" * p.PART_BYTES,))

    monkeypatch.setattr(server.engine, "_fetch", slow)
    speaker = Speaker(server, server.data.node_certificate("n1"))
    assert isinstance(speaker.said(hello())[0], p.ServerWelcome)
    speaker.link.sendall(p.frame(p.AgentFetch(1, "of/it", (0,))) + p.frame(p.AgentFetch(2, "of/it", (0,))))
    assert asked.wait(20)
    report = p.AgentReport(1, 1, NodeReport("n1", "life", 1, False, ()))
    assert isinstance(speaker.said(report)[0], p.ServerTaken)
    go_on.set()
    deframer, parts = p.Deframer(), []
    while not parts:
        parts = [p.decode_to_agent(body) for body in deframer.feed(speaker.link.recv(1 << 18))]
    assert [(part.number, len(part.chunks[0])) for part in parts] == [(1, p.PART_BYTES)]
    assert read == [1], "one after the other: the second came too early"


def test_who_has_not_said_hello_gets_no_part_of_a_snapshot(server, monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(server.engine, "_fetch", lambda name, wanted: read.append(name) or p.ServerPart(wanted.number))
    speaker = Speaker(server, server.data.node_certificate("n1"))
    assert isinstance(speaker.said(p.AgentFetch(1, "of/it"), hello())[0], p.ServerWelcome)
    speaker.link.sendall(p.frame(p.AgentFetch(2, "of/it")))
    assert [p.decode_to_agent(body).number for body in p.Deframer().feed(speaker.link.recv(1 << 16))] == [2]
    assert read == ["n1"]
