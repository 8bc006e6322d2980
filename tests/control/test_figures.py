"""The book of figures keeps what can be true, in bounds."""

import pytest

from penstock.control.figures import MINUTE_MS, MINUTES_KEPT, STALE_MS, FigureBook
from penstock.core.messages.reports import DeviceFigures, NodeFigures
from penstock.core.model.cluster import Node
from penstock.core.model.ids import Incarnation, NodeName
from penstock.core.model.nodes import NodeSpec
from penstock.core.model.resources import Resources
from penstock.testing.builders import device

N1 = NodeName("n1")
NODES = {N1: Node(NodeSpec(N1, Resources(), (device(0), device(1))), Incarnation("a"))}


@pytest.fixture
def book():
    return FigureBook()


def take(book, *figures, now_ms=0, nodes=NODES, notes=()):
    book.take(N1, nodes, NodeFigures(figures, notes=notes), now_ms)


def test_the_newest_figures_are_given_until_they_are_old(book):
    take(book, DeviceFigures(0, use_milli=1))
    take(book, DeviceFigures(0, use_milli=2), now_ms=5)
    assert book.of(N1, 5).devices == {0: DeviceFigures(0, use_milli=2)}
    assert book.of(N1, 5 + STALE_MS) is not None
    assert book.of(N1, 6 + STALE_MS) is None


@pytest.mark.parametrize(
    "absurd",
    [DeviceFigures(2), DeviceFigures(-1), DeviceFigures(0, use_milli=1001), DeviceFigures(0, power_mw=-1),
     DeviceFigures(0, energy_mj=2**60), DeviceFigures(0, throttled=("x" * 201,)),
     DeviceFigures(0, throttled=("x",) * 17)],
)  # fmt: skip
def test_what_cannot_be_is_left_out(book, absurd):
    take(book, absurd, DeviceFigures(1, use_milli=7))
    assert book.of(N1, 0).devices == {1: DeviceFigures(1, use_milli=7)}


def test_no_more_is_looked_at_than_the_node_has_devices(book):
    take(book, *[DeviceFigures(1)] * 2, DeviceFigures(0), notes=["n" * 500] * 99)
    assert set(book.of(N1, 0).devices) == {1}
    assert [len(note) for note in book.of(N1, 0).notes] == [200] * 16


def test_minutes_hold_means_of_what_was_reported_and_only_the_last_hour(book):
    for at in range(4):
        take(book, DeviceFigures(0, use_milli=100 * at), now_ms=MINUTE_MS + at)
    take(book, DeviceFigures(0, power_mw=9), now_ms=2 * MINUTE_MS)
    assert [(one.from_ms, one.values[:3]) for one in book.minutes(N1, 0)] == [
        (MINUTE_MS, (150, None, None)),
        (2 * MINUTE_MS, (None, None, 9)),
    ]
    for minute in range(3, 200):
        take(book, DeviceFigures(0, use_milli=1), now_ms=minute * MINUTE_MS)
    assert len(book.minutes(N1, 0)) == MINUTES_KEPT + 1


def test_nodes_and_devices_that_are_gone_are_dropped(book):
    take(book, DeviceFigures(0), DeviceFigures(1, use_milli=5))
    assert book.minutes(N1, 1)
    smaller = Node(NodeSpec(N1, Resources(), (device(0),)), Incarnation("b"))
    take(book, DeviceFigures(0, use_milli=5), nodes={N1: smaller})
    assert not book.minutes(N1, 1)
    n2 = NodeName("n2")
    book.take(n2, {n2: smaller}, NodeFigures(), 0)
    book.take(n2, {n2: smaller}, NodeFigures(), 0)
    assert book.of(N1, 0) is None


def test_nodes_that_are_not_known_leave_nothing(book):
    take(book, DeviceFigures(0), nodes={})
    assert book.of(N1, 0) is None


def test_devices_that_a_node_does_not_offer_are_counted(book):
    book.take(N1, NODES, NodeFigures(new_devices=2), 0)
    assert book.of(N1, 0).new_devices == 2
