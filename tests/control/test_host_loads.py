"""How hosts are used is noted sparingly, in steps, and only where placement goes by it."""

import pytest

from penstock.control.host_loads import NOTE_EVERY_MS, HostLoads
from penstock.core.messages.reports import HostFigures, NodeFigures, NodeReport
from penstock.core.model.cluster import HostLoad, Pool
from penstock.core.model.events import ConfigChanged, HostLoadNoted
from penstock.testing.builders import ask, config, node
from penstock.testing.harness import World
from tests.control.rig import Rig

EVERY_MS = 20_000
BY_LOAD = (Pool("default", placement="host_load"),)


class Bench:
    """Node a, of 16 CPUs and 64 GiB."""

    def __init__(self) -> None:
        self.world, self.loads = World(node("a", 0), pools=BY_LOAD), HostLoads()

    def runs(self, cpu, memory=0, ms=NOTE_EVERY_MS + EVERY_MS, **fields):
        """Let time pass, with figures every 20 s."""
        until_ms = self.world.now + ms
        while self.world.now < until_ms:
            self.world.now += EVERY_MS
            figures = NodeFigures(host=HostFigures(cpu, memory, **fields))
            report = NodeReport("a", "i1", 1, False, figures=figures)
            self.world.commit(lambda tx, report=report: self.loads.note(tx, report, self.world.now))

    @property
    def notes(self):
        return [record.event.load for record in self.world.records if isinstance(record.event, HostLoadNoted)]


@pytest.fixture
def bench():
    return Bench()


def test_a_steady_node_is_noted_once(bench):
    bench.runs(420, 130, ms=20 * NOTE_EVERY_MS)
    assert bench.notes == [HostLoad(cpu_milli=400, memory_milli=100)]


def test_an_idle_node_writes_nothing(bench):
    bench.runs(30, 60, ms=20 * NOTE_EVERY_MS)
    assert bench.notes == []


def test_a_mean_of_a_minute_is_noted_not_a_moment(bench):
    for cpu in (1000, 0, 0, 1000):
        bench.runs(cpu, ms=EVERY_MS)
    assert bench.notes == [HostLoad(cpu_milli=500)]


def test_small_changes_about_a_step_are_not_noted(bench):
    for cpu in (440, 460, 440, 470, 340, 330):
        bench.runs(cpu)
    assert bench.notes == [HostLoad(cpu_milli=400)]
    bench.runs(480)
    assert bench.notes[1:] == [HostLoad(cpu_milli=500)]


def test_jobs_that_use_what_they_asked_for_write_nothing(bench):
    bench.world.run(bench.world.submit(gang=ask(0, cpus=8, memory_gib=32)))
    bench.runs(520, 480)
    assert bench.notes == []
    bench.runs(50, 60)
    assert bench.notes == [HostLoad(cpu_milli=-400, memory_milli=-400)]


def test_what_is_not_measured_is_not_known(bench):
    bench.runs(None, 500, network_bps=10**12)
    assert bench.notes == [HostLoad(memory_milli=500)]


def test_past_performance_goes_with_it(bench):
    for _ in range(2):
        job = bench.world.submit(0)
        bench.world.run(job)
        bench.world.exit_replica(job, code=None, problem="cannot start: hardware error")
    bench.runs(0)
    assert bench.notes == [HostLoad(performance=8)]


def test_a_pool_that_goes_by_something_else_forgets_it(bench):
    bench.runs(600)
    bench.world.emit(ConfigChanged(config(), "op"))
    bench.runs(900, ms=4 * NOTE_EVERY_MS)
    assert bench.notes == [HostLoad(cpu_milli=600), HostLoad()]


def test_a_controller_notes_it_of_reports_and_hears_nothing_impossible():
    rig = Rig("a", pools=BY_LOAD)

    def reports(**host):
        for _ in range(5):
            rig.clock.now += EVERY_MS
            rig.report("a", figures=NodeFigures(host=HostFigures(**host)))
        return rig.state.nodes["a"].load

    assert reports(cpu_milli=500) == HostLoad(cpu_milli=500)
    assert reports(cpu_milli=1001) == HostLoad(cpu_milli=500)
    assert reports(cpu_milli=900, network_bps=-1) == HostLoad(cpu_milli=500)
    assert reports(cpu_milli=900, network_bps=2) == HostLoad(cpu_milli=900)
