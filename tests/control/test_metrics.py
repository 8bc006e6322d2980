"""Figures of the server's own work are sums, bounded, and the same whichever order labels are given in."""

from penstock.control import metrics as module
from penstock.control.metrics import MemoryMetrics, Series


def test_counters_add_up_by_their_labels():
    metrics = MemoryMetrics()
    metrics.count("asked", kind="submit", by=2)
    metrics.count("asked", kind="cancel")
    metrics.count("asked", kind="submit")
    assert metrics.series() == [Series("asked", {"kind": "cancel"}, 1), Series("asked", {"kind": "submit"}, 3)]


def test_measured_values_have_a_sum_a_maximum_and_a_last():
    metrics = MemoryMetrics()
    for value in (2.0, 5.0, 1.0):
        metrics.observe("cycle_s", value)
    assert metrics.series() == [Series("cycle_s", {}, 3, sum=8.0, most=5.0, last=1.0)]


def test_the_order_of_labels_does_not_matter():
    metrics = MemoryMetrics()
    metrics.count("asked", a="1", b="2")
    metrics.count("asked", b="2", a="1")
    assert [series.count for series in metrics.series()] == [2]


def test_no_more_series_are_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr(module, "SERIES_MAX", 2)
    metrics = MemoryMetrics()
    for user in ("a", "b", "c", "a"):
        metrics.count("asked", user=user)
    assert [(series.labels["user"], series.count) for series in metrics.series()] == [("a", 2), ("b", 1)]
