"""Which devices a node is asked to divide, when, and how often: never one with another holder, never again in haste."""

import pytest

from penstock.control.dividing import AGAIN_FIRST_MS, AGAIN_MAX_MS, LOOK_EVERY_MS, PLANS_PER_LOOK_MAX, Divisions
from penstock.control.report_filter import heard
from penstock.core.messages.orders import DivideDevice
from penstock.core.messages.reports import NodeReport
from penstock.core.model.cluster import Pool
from penstock.core.model.events import DeviceClosed, NodeDrainChanged
from penstock.core.model.nodes import DeviceInstances, OthersLoad
from penstock.testing.builders import GIB, device, node
from penstock.testing.harness import World

QUIET_MS = 10_000
HALVES = (("3g.20gb", 0), ("3g.20gb", 4))


class Cluster:
    """One node with two devices that can be divided, and one that cannot; time passes as a test says."""

    def __init__(self, strategy="training", **fields):
        self.world = World(pools=(Pool("default", mig_strategy=strategy),), **fields)
        cut = [device(i, memory_bytes=40 * GIB, mig=True) for i in range(2)]
        self.world.hello(node("a", (*cut, device(2))))
        self.divisions, self.now_ms = Divisions(), 0

    def has(self, *devices):
        self.world.report("a", instances=tuple(DeviceInstances(i, on) for i, on in enumerate(devices)))

    def orders(self, after_ms=LOOK_EVERY_MS):
        self.now_ms += after_ms
        orders = self.divisions.orders(self.world.state, self.now_ms)
        assert all((name, type(order), order.strategy) == ("a", DivideDevice, "training") for name, order in orders)
        return [order.index for _, order in orders]

    def ordered(self):
        """Return what is ordered once everything has been as it is for long enough."""
        self.orders()
        return self.orders(QUIET_MS)


@pytest.fixture
def cluster():
    made = Cluster()
    made.has((), ())
    return made


def test_an_idle_device_is_divided_after_it_has_been_quiet_and_not_again_once_it_is(cluster):
    assert (cluster.orders(), cluster.orders(QUIET_MS - 1), cluster.orders()) == ([], [], [0, 1])
    cluster.has(HALVES, ())
    assert (cluster.orders(), cluster.orders(AGAIN_FIRST_MS)) == ([], [1])


def test_a_change_of_holders_makes_it_wait_anew(cluster):
    cluster.orders()
    job = cluster.world.submit(1, profile="1g.5gb")
    cluster.world.run(job)
    assert (cluster.orders(QUIET_MS), cluster.orders(QUIET_MS)) == ([1], [0])


def test_a_node_that_does_not_divide_is_asked_less_and_less_often(cluster):
    cluster.ordered()
    pauses, last_ms = [], cluster.now_ms
    while cluster.now_ms < 3 * AGAIN_MAX_MS:
        if cluster.orders():
            pauses.append(cluster.now_ms - last_ms)
            last_ms = cluster.now_ms
    assert pauses[:4] == [AGAIN_FIRST_MS * 2**n for n in range(4)]
    assert pauses[-1] == AGAIN_MAX_MS


def test_what_a_job_has_is_left_and_the_rest_is_divided_beside_it(cluster):
    cluster.world.run(cluster.world.submit(1, profile="3g.20gb"))
    assert [tuple(free) for free in cluster.world.state.indexes.free["a"].mig] == [(0, (("3g.20gb", 4),))]
    cluster.has((("3g.20gb", 4),), HALVES)
    assert cluster.ordered() == [0]
    cluster.has(HALVES, HALVES)
    assert cluster.ordered() == []


def test_a_device_is_done_where_no_more_of_its_strategy_fits_beside_a_job(cluster):
    cluster.world.run(cluster.world.submit(1, profile="1g.5gb"))
    (_, ((_, at),)), *_ = cluster.world.state.indexes.free["a"].mig
    cluster.has((("3g.20gb", 0 if at > 3 else 4), ("1g.5gb", at)), HALVES)
    assert cluster.ordered() == []


def test_a_closed_device_is_not_divided_beside_the_job_that_is_to_leave_it(cluster):
    cluster.world.run(cluster.world.submit(1, profile="1g.5gb"))
    cluster.world.emit(DeviceClosed("a", 0, "closed", "", "ann"))
    assert cluster.ordered() == [1]


def test_no_device_that_is_held_whole_or_in_fractions_is_divided(cluster):
    cluster.world.run(cluster.world.submit(3))
    assert cluster.ordered() == []


@pytest.mark.parametrize(
    "event",
    [
        NodeDrainChanged("a", True, "maintenance", "ann"),
        *(DeviceClosed("a", 0, "xid", "Xid 79", "penstock"), DeviceClosed("a", 0, "closed", "", "ann")),
    ],
)
def test_what_is_closed_is_not_divided(cluster, event):
    cluster.world.emit(event)
    assert cluster.ordered() == ([1] if isinstance(event, DeviceClosed) else [])


def test_a_device_that_a_stranger_uses_is_not_divided(cluster):
    cluster.world.report("a", others=OthersLoad(devices=(1,)))
    assert cluster.ordered() == [0]


def test_no_order_goes_to_a_node_that_reports_no_instances():
    assert Cluster().ordered() == []


def test_no_order_is_given_in_a_pool_without_a_strategy():
    cluster = Cluster("none")
    cluster.has((), ())
    assert cluster.ordered() == []


def test_one_look_makes_a_bounded_number_of_plans_and_the_next_goes_on():
    w = World(pools=(Pool("default", mig_strategy="training"),))
    count = PLANS_PER_LOOK_MAX + 8
    models = [device(i, model=f"A100 number {i}", memory_bytes=40 * GIB, mig=True) for i in range(count)]
    w.hello(node("a", tuple(models)))
    w.report("a", instances=tuple(DeviceInstances(i, ()) for i in range(count)))
    divisions = Divisions()
    found = [len(divisions.orders(w.state, now_ms)) for now_ms in (0, QUIET_MS, QUIET_MS + LOOK_EVERY_MS)]
    assert found == [0, PLANS_PER_LOOK_MAX, 8]


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ((0, HALVES), True),
        ((0, (HALVES[1], HALVES[0])), True),
        ((0, (("3g.20gb", 1),)), False),
        ((0, (("3g.20gb", 0), ("4g.20gb", 0))), False),
        ((0, (("nonsense", 0),)), False),
        ((0, (("1g.5gb", 0),) * 17), False),
        ((2, ()), False),
        ((3, ()), False),
        ((-1, ()), False),
    ],
)
def test_only_instances_that_can_lie_there_are_heard(cluster, told, kept):
    report = NodeReport("a", cluster.world.state.nodes["a"].incarnation, 1, False, instances=(DeviceInstances(*told),))
    assert heard(cluster.world.state, report, 0).instances == ((DeviceInstances(0, HALVES),) if kept else ())
