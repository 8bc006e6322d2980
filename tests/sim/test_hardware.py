"""The fault simulator's own fold of what became of failing devices: each thing that must not be is named."""

import pytest

from penstock.core.model import events as ev
from penstock.core.model.cluster import CHECKED_BY
from penstock.core.model.jobs import ExitInfo, ReplicaPlace
from penstock.core.model.nodes import OthersLoad
from penstock.sim.world.clockwork import UNIX_BEGIN_MS
from penstock.sim.world.hardware import LEAVES_WITHIN_MS, _Check
from penstock.testing.builders import node

ILL = {("n0", 0): [(1_000, 9_000)]}
CLOSED = ev.DeviceClosed("n0", 0, "hardware_fault", "failed", CHECKED_BY)
OPENED = ev.DeviceOpened("n0", 0, CHECKED_BY)
STARTED = ev.AttemptAllocated(1, 1, (ReplicaPlace("n0", "i1", (0, 1)), ReplicaPlace("n1", "i1", (2,))), 0)
ASKED = ev.AttemptStopRequested(1, 1, "device_failed", 0)
ENDED = ev.AttemptEnded(1, 1, "lost")
LATER = ev.NodeReady("n1")
LATE_MS = 2_000 + LEAVES_WITHIN_MS + 1


def found(*told, past=ILL):
    """Return what is wrong with a log of (ms, event)."""
    records = [ev.Record(seq, UNIX_BEGIN_MS + at_ms, event) for seq, (at_ms, event) in enumerate(told, 1)]
    return list(_Check(past).violations(records))


def test_a_device_that_is_closed_while_ill_and_opened_when_well_is_as_it_should_be():
    log = [(500, STARTED), (2_000, CLOSED), (2_000, ASKED), (2_500, ENDED), (9_500, OPENED), (9_600, STARTED)]
    assert found(*log) == []


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        ([(500, CLOSED)], "device ('n0', 0) was closed, and never was ill"),
        (
            [(2_000, CLOSED), (8_000, OPENED)],
            f"device ('n0', 0) was opened by {CHECKED_BY} though it has been ill since it was closed",
        ),
        ([(2_000, CLOSED), (3_000, STARTED)], "job 1 was given device ('n0', 0), which is closed or taken"),
        (
            [(500, ev.OthersLoadChanged("n1", OthersLoad(devices=(2,)))), (600, STARTED)],
            "job 1 was given device ('n1', 2), which is closed or taken",
        ),
        (
            [(500, STARTED), (600, ASKED)],
            "job 1 was asked to leave devices that are well: [('n0', 0), ('n0', 1), ('n1', 2)]",
        ),
        (
            [(500, STARTED), (2_000, CLOSED), (LATE_MS, LATER)],
            "job 1, attempt 1 was not asked to leave ('n0', 0), which failed",
        ),
    ],
)
def test_what_must_not_be_is_named(log, wrong):
    assert found(*log) == [wrong]


@pytest.mark.parametrize(
    "gone",
    [
        ev.ReplicaExited(1, 1, 0, ExitInfo(1)),
        ev.NodeLost("n0", "no heartbeat"),
        ev.AttemptStopRequested(1, 1, "preempted", 0),
    ],
)
def test_who_has_left_or_is_leaving_need_not_be_asked(gone):
    assert found((500, STARTED), (1_500, gone), (2_000, CLOSED), (LATE_MS, LATER)) == []


def test_a_node_that_comes_anew_says_itself_who_is_there():
    others = ev.OthersLoadChanged("n1", OthersLoad(devices=(2,)))
    assert found((500, others), (600, ev.NodeRegistered(node("n1"), "i2")), (700, STARTED)) == []
