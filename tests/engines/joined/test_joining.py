"""A machine joins once with its bundle, and from then on speaks with a key of its own."""

import datetime as dt
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, Settings
from penstock.core.model.errors import InvalidInput
from penstock.engines.agent import protocol
from penstock.engines.agent.joined import (
    DeclaredNode,
    LinkState,
    NodeLink,
    Offer,
    ServerAddress,
    decoded,
    read_link,
    storage_id,
)
from penstock.engines.joined.records import bounded
from penstock.engines.local.launch import agent_pid
from penstock.joining import node as joining
from penstock.joining.__main__ import begin_here, wish_of
from penstock.joining.node import JoinWish
from penstock.security.authority import decoded_signed, fingerprint
from penstock.server.views.cluster import version_alerts
from penstock.testing.builders import device, node
from tests.engines.joined.conftest import JoinServer, Machine
from tests.server.harness import until


def key_in_use(machine: Machine) -> str:
    signed = decoded_signed(machine.data.node_certificate("away").read_bytes())
    return fingerprint(signed.key.public_key())


def test_a_machine_joins_and_speaks_with_a_key_of_its_own(server: JoinServer, machine: Machine) -> None:
    bundle = decoded(server.bundle().encoded())
    machine.join(bundle)
    assert machine.joined() == f"127.0.0.1:{server.port}"
    record = until(
        lambda: next((one for one in server.joining.declared() if one.joined_ms), None),
        "it has joined with its own key",
    )
    assert record.keys == (key_in_use(machine),)
    assert record.keys != (fingerprint(decoded_signed(bundle.certificate.encode()).key.public_key()),)
    assert server.hellos[-1][0].name == "away"
    assert server.hellos[-1][0].address == "127.0.0.1"


def test_a_bundle_lets_one_machine_in(server: JoinServer, machine: Machine, other: Machine) -> None:
    bundle = server.bundle()
    machine.join(bundle)
    until(lambda: server.joining.declared()[0].joined_ms, "the first has joined")
    other.join(bundle)
    assert "is not that of node 'away' any more" in other.refused()
    assert {spec.name for spec, _ in server.hellos} == {"away"}


def test_a_removed_node_is_out_at_once(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle())
    machine.joined()
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined")
    assert server.joining.remove("away")
    assert "is not declared here" in machine.refused()
    assert "away" not in server.joining.connected()
    assert server.joining.declared() == []


def test_a_newer_bundle_puts_the_former_machine_out(server: JoinServer, machine: Machine, other: Machine) -> None:
    machine.join(server.bundle())
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined")
    other.join(server.bundle())
    other.joined()
    server.engine.hang_up()
    assert "there is a newer one" in machine.refused()


def test_the_agent_goes_on_with_its_own_key_after_a_kill(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle())
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined")
    key, before = key_in_use(machine), len(server.hellos)
    machine.kill_agent()
    until(lambda: len(server.hellos) > before, "it is back")
    assert key_in_use(machine) == key


def test_a_renewal_keeps_the_key_and_brings_the_authorities_of_today(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle())
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined")
    key, former = key_in_use(machine), machine.data.trusted.read_text()
    server.keeper.rotate(dt.datetime.now(dt.UTC))
    server.security.renew()
    server.engine.hang_up()
    until(
        lambda: machine.data.trusted.read_text() == server.data.trusted.read_text() != former, "it trusts the new one"
    )
    assert key_in_use(machine) == key


def test_an_agent_tries_its_servers_in_turn(server: JoinServer, machine: Machine) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = ServerAddress("127.0.0.1", closed.getsockname()[1])
        machine.join(server.bundle(), servers=(nobody, ServerAddress("127.0.0.1", server.port)))
        assert machine.joined() == f"127.0.0.1:{server.port}"


def test_servers_may_change_while_the_agent_lives(server: JoinServer, machine: Machine) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        machine.join(server.bundle(), servers=(ServerAddress("127.0.0.1", closed.getsockname()[1]),))
        until(lambda: (state := machine.state()) is not None and "cannot be reached" in state.problem, "it says so")
        machine.join(None, servers=(ServerAddress("127.0.0.1", server.port),))
        machine.joined()
        link = read_link(machine.data)
        assert link is not None
        assert link.servers == (ServerAddress("127.0.0.1", server.port),)


def test_an_agent_of_another_version_is_refused_with_a_sentence(
    server: JoinServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PROTOCOL_VERSION", protocol.PROTOCOL_VERSION + 1)
    machine.join(server.bundle())
    assert "the node needs the server's version of Penstock" in machine.refused()
    (alert,) = version_alerts(server.engine.others(), server.joining.records.declares)
    assert alert.text.startswith("node away is not used: its agent runs Penstock ")
    assert alert.resolve.endswith("on its machine, then there: penstock node join")


def test_what_was_said_of_a_node_counts_and_what_it_has_within_bounds() -> None:
    said = node("away", [device(0), device(1)], pool="secret", rack="r9", address="10.0.0.7")
    known = DeclaredNode("away", rack="r1", most=Offer(cpu_milli=1000, devices=1))  # type: ignore[arg-type]
    spec = bounded(said, known)
    assert (spec.pool, spec.rack, spec.storage, spec.at) == ("default", "r1", "node:away", "10.0.0.7")
    assert (spec.engine, bounded(said, replace(known, engine="ray")).engine) == ("", "ray")
    assert (spec.capacity.cpu_milli, len(spec.devices)) == (1000, 1)
    assert spec.capacity.memory_bytes == said.capacity.memory_bytes


def test_a_name_of_the_servers_own_machine_is_taken(server: JoinServer) -> None:
    with pytest.raises(InvalidInput, match="server's own machine"):
        server.bundle("n1")


def test_a_folder_belongs_to_one_node(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle())
    with pytest.raises(InvalidInput, match="is the folder of node 'away', not of 'more'"):
        machine.join(server.bundle("more"))


def test_a_folder_of_a_server_is_refused(server: JoinServer, machine: Machine) -> None:
    machine.root.mkdir(mode=0o700)
    (machine.root / "log").mkdir()
    with pytest.raises(InvalidInput, match="data folder of a server"):
        machine.join(server.bundle())


def test_without_a_bundle_nothing_joins(machine: Machine) -> None:
    with pytest.raises(InvalidInput, match="no node has joined"):
        machine.join(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"{}", "no join bundle"), (b"[1]", "no join bundle"), (b'{"form": 9}', "of form 9"), (b"\xff", "no join bundle")],
)
def test_what_is_no_bundle_is_named(text: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        decoded(text)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("devices", "0,x", "--devices is '0,x'"),
        ("ports", "9", "--ports is '9'"),
        ("simulated", "many", "--simulated is 'many'"),
        ("servers", "host", "no address of a server"),
    ],
)
def test_wrong_wishes_are_named(option: str, value: str, said: str) -> None:
    none = dict.fromkeys(("cpus", "memory", "devices", "simulated", "address", "ports", "shared", "servers"))
    with pytest.raises(InvalidInput, match=said):
        wish_of({**none, option: value})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a:1", "a", 1), ("[::1]:2", "::1", 2), ("::1", "::1", 7), ("a", "a", 7), ("[::1]", "::1", 7)],
)
def test_addresses_of_servers(text: str, host: str, port: int) -> None:
    found = ServerAddress.parsed(text, 7)
    assert (found.host, found.port) == (host, port)


def test_equal_storage_has_one_id(tmp_path: Path) -> None:
    assert storage_id(tmp_path) == storage_id(tmp_path) != ""
    assert [path.name for path in tmp_path.iterdir()] == [".penstock-storage"]


def test_records_outlive_the_server(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle(rack="r3"))
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined")
    again = JoinServer._peers(server, server.data)
    again.records.load()
    assert [(one.node.rack, one.keys) for one in again.declared()] == [("r3", (key_in_use(machine),))]
    assert json.loads((server.data.joined / "away.json").read_text())["node"]["rack"] == "r3"


def test_a_connected_node_learns_where_the_server_will_be_and_finds_it_there(
    server: JoinServer, machine: Machine
) -> None:
    machine.join(server.bundle())
    until(lambda: server.joining.declared()[0].joined_ms and len(server.hellos) > 1, "it has come with its own key")
    here = ServerAddress("127.0.0.1", server.port)
    until(lambda: (link := read_link(machine.data)) is not None and link.learned == (here,), "it knows where it is")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        there = ServerAddress("127.0.0.1", free.getsockname()[1])
    before = len(server.hellos)
    server.joining.addresses = (here, there)
    until(lambda: (link := read_link(machine.data)) is not None and link.learned == (here, there), "it has learned")
    assert len(server.hellos) == before
    server.move(there.port)
    until(lambda: len(server.hellos) > before, "it has found the server")
    until(lambda: (machine.state() or LinkState(False)).server == str(there), "it says where")
    machine.kill_agent()
    until(lambda: len(server.hellos) > before + 1, "the next agent knows it, too")


def test_what_people_say_of_servers_stands_beside_what_is_learned() -> None:
    first, second, third = (ServerAddress(f"{name}.example.org", 7070) for name in ("a", "b", "c"))
    link = NodeLink("away", (first, second), learned=(second, third))
    assert link.all_servers == (first, second, third)
    decoded_link = msgspec.json.Decoder(NodeLink).decode
    assert decoded_link(msgspec.json.encode(link)) == link
    assert decoded_link(b'{"node":"away","servers":[{"host":"a.example.org","port":7070}]}').learned == ()


def test_nodes_are_told_what_the_setting_names_and_others_nothing(server: JoinServer) -> None:
    server.bundle()

    def service() -> Any:
        state = SimpleNamespace(config=ClusterConfig(settings=settings))
        return SimpleNamespace(controller=SimpleNamespace(state=state))

    server.joining._service = service
    settings = Settings(agent_servers="b.example.org:7070, [2001:db8::1]:7071")
    here = f"127.0.0.1:{server.port}"
    assert server.joining.servers("away") == (here, "b.example.org:7070", "[2001:db8::1]:7071")
    assert server.joining.servers("n1") == server.joining.servers("nobody") == ()
    settings = Settings()
    assert server.joining.servers("away") == (here,)


# Beside the node's own living agent.


def test_joining_again_says_at_once_that_the_agent_runs(server: JoinServer, machine: Machine) -> None:
    machine.wish = JoinWish()
    bundle = server.bundle()
    machine.join(bundle)
    machine.joined()
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined with its own key")
    key, pid = key_in_use(machine), agent_pid(machine.data, "away")
    for again in (None, bundle):
        with pytest.raises(InvalidInput, match=f"is node 'away' already.*127.0.0.1.*process {pid}. runs"):
            machine.join(again)
    with pytest.raises(InvalidInput, match="is node 'away' already"):
        begin_here(None, machine.root, JoinWish(cpus=1))
    assert (machine.joined(), key_in_use(machine)) == (f"127.0.0.1:{server.port}", key)


def test_a_living_agent_goes_on_with_what_is_new(server: JoinServer, machine: Machine) -> None:
    machine.join(server.bundle())
    machine.joined()
    machine.join(None, cpus=1)
    machine.joined()
    assert server.hellos[-1][0].capacity.cpu_milli == 1000
    machine.join(server.bundle())
    machine.joined()


def test_a_living_agent_of_another_version_is_replaced_by_the_installed_one(
    server: JoinServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.wish = JoinWish()
    machine.join(server.bundle())
    machine.joined()
    until(lambda: server.joining.declared()[0].joined_ms, "it has joined with its own key")
    pid = agent_pid(machine.data, "away")
    monkeypatch.setattr(joining, "PROGRAM", "Penstock of tomorrow")
    machine.join(None)
    machine.joined()
    assert agent_pid(machine.data, "away") != pid
