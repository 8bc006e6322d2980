"""Devices that appear while the server runs are offered as the server lists them; nothing that runs is disturbed."""

import asyncio
from contextlib import closing

import pytest
from msgspec.structs import replace

from penstock import bootstrap
from penstock.core.config.cluster import ClusterFile
from penstock.core.config.nodes import VirtualNode
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.resources import DeviceLink, Discovery
from penstock.devices.inventory import in_order
from penstock.engines.local.admission import Admission
from penstock.engines.local.agents import LocalAgents
from penstock.engines.local.launch import living, start_agent
from penstock.engines.local.new_devices import PAUSE_FIRST_S, NewDevices
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import config, device, linked, node
from penstock.testing.harness import World
from tests.engines.agent.fakeserver import FakeServer
from tests.server.harness import until


def card(uuid, index=0, **fields):
    return device(index, vendor="acme", uuid=uuid, **fields)


def uuids(devices):
    assert [one.index for one in devices] == list(range(len(devices)))
    return [one.uuid for one in devices]


# Numbers of devices.


def test_known_devices_keep_their_numbers_and_new_ones_come_last():
    known = (card("B"), card("C", 1))
    found = (card("A"), card("C", 1), card("D", 2), card("B", 3))
    assert uuids(in_order(known, found)) == ["B", "C", "A", "D"]


def test_a_device_that_was_not_found_keeps_its_number():
    assert uuids(in_order((card("A"), card("B", 1)), (card("C"), card("B", 1)))) == ["A", "B", "C"]


def test_links_lead_to_the_same_devices_as_before():
    found = (linked(0, "nvlink", 2, vendor="acme", uuid="A"), card("B", 1), card("C", 2))
    given = in_order((card("C"),), found)
    assert uuids(given) == ["C", "A", "B"]
    assert [one.links for one in given] == [(), (DeviceLink(0, "nvlink"),), ()]


def test_devices_without_names_are_counted_by_vendor():
    other = replace(card(""), vendor="other")
    assert [one.vendor for one in in_order((other,), (card(""), replace(other, index=1), replace(other, index=2)))] == [
        "other",
        "acme",
        "other",
    ]


def test_a_first_list_is_taken_as_it_is():
    found = (card("B"), card("A", 1))
    assert in_order((), found) == found


# When the server lists them.


class Bench:
    """A node of which the server lists devices; `offered` has the lists that its agent was given."""

    def __init__(self, tmp_path, *known) -> None:
        data = DataFolder(tmp_path)
        self.agents = LocalAgents(data, [node("n1", known)], respawn=False)
        self.admission = Admission(data, [node("n1", known)])
        self.offered, self.lists = [], 0
        self.agents.offer = self._offer
        self.here, self.said, self.vendors, self.now = known, 0, frozenset(one.vendor for one in known), 0.0
        told, clock = (lambda name: self.said), (lambda: self.now)
        self._new = NewDevices(self.agents, self.admission, told, lambda: self.vendors, self._list, clock)

    def _offer(self, spec):
        self.offered.append(uuids(spec.devices))
        self.agents._nodes = [spec]

    def _list(self):
        self.lists += 1
        return Discovery(self.here, "")

    def look(self):
        return asyncio.run(self._new.look())


def test_nothing_is_listed_while_nothing_is_new(tmp_path):
    bench = Bench(tmp_path, card("A"))
    assert (bench.look(), bench.lists) == (False, 0)


def test_a_device_that_the_agent_sees_is_listed_and_offered(tmp_path):
    bench = Bench(tmp_path, card("A"))
    bench.said, bench.here = 1, (card("N"), card("A", 1))
    assert bench.look()
    assert bench.offered == [["A", "N"]]
    said = node("n1", (card("A"), card("N", 1)))
    assert bench.admission.registered(said).devices == said.devices


def test_the_first_device_of_a_driver_that_was_just_loaded_is_offered(tmp_path):
    bench = Bench(tmp_path)
    bench.vendors, bench.here = frozenset({"acme"}), (card("A"),)
    assert bench.look()
    assert bench.offered == [["A"]]


def test_a_claim_that_proves_wrong_is_looked_into_ever_more_seldom(tmp_path):
    bench = Bench(tmp_path, card("A"))
    bench.said = 1
    for _ in range(int(10 * PAUSE_FIRST_S)):
        bench.look()
        bench.now += 1.0
    assert (bench.offered, bench.lists) == ([], 3)


def test_a_known_device_stays_as_it_is_known(tmp_path):
    bench = Bench(tmp_path, card("A"))
    bench.said, bench.here = 1, (card("A", healthy=False), card("N", 1))
    bench.look()
    assert [one.healthy for one in bench.agents.machine.devices] == [True, True]


@pytest.mark.parametrize("nodes", [[], [node("n1", (card("S", simulated=True),))]])
def test_declared_devices_are_all_there_are(tmp_path, nodes):
    assert LocalAgents(DataFolder(tmp_path), nodes, respawn=False).machine is None


# What becomes of it.


def test_a_waiting_job_starts_on_the_new_device_and_the_running_one_goes_on():
    world = World(node("n1", (card("A"),)))
    first, second = world.submit(1), world.submit(1)
    world.run(first)
    attempt = world.attempt(first)
    world.hello(node("n1", (card("A"), card("N", 1))))
    world.cycle()
    assert world.attempt(second).replicas[0].place.devices == (1,)
    assert world.attempt(first) == attempt


def test_a_living_agent_goes_on_with_the_new_devices_and_its_programs_notice_nothing(tmp_path):
    with closing(FakeServer(tmp_path / "node")) as server:
        server.agent(devices=0)
        server.ready()
        key = server.start("sleep", "60")
        pid = server.seen(key, "running").pid
        agents = LocalAgents(server.data, [node("n1", 0)], respawn=False)
        agents.offer(node("n1", (card("N"),)))
        until(lambda: uuids(server.hellos[-1][0].devices) == ["N"], "the agent offers it")
        assert len({incarnation for _, incarnation in server.hellos}) == 1
        seen = server.next_inventory(lambda report: bool(report.replicas)).replicas
        assert [(one.key, one.state, one.pid) for one in seen] == [(ReplicaKey(1, 1, 0), "running", pid)]
        assert start_agent(server.data, node("n1", (card("N"),))) is None, "it lives"
        assert uuids(living(server.data, "n1")) == ["N"]


def test_a_restarted_server_has_a_living_agent_offer_what_came_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "discovered", lambda: Discovery((card("N"), card("A", 1)), ""))
    with closing(FakeServer(tmp_path / "node")) as server:
        server.agent(devices=(card("A"),))
        server.ready()
        specs = bootstrap.node_specs(ClusterFile(config(), (VirtualNode(name="n1"),)), server.data)

        async def kept():
            await LocalAgents(server.data, specs, respawn=False).keep()

        asyncio.run(kept())
        until(lambda: uuids(server.hellos[-1][0].devices) == ["A", "N"], "the agent offers both")
