"""Alerts about maxima: said when a percentage is reached, once a day each, and kept over a restart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.lifecycle import quota_alerts
from penstock.core.model.cluster import Pool, Queue, Tenant
from penstock.core.model.events import ConfigChanged, QuotaNoted
from penstock.core.state.quota_notes import PERIOD_MS
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.core.status.quotas import quota_rows
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster
from tests.properties import examples

HOUR = 3_600_000
LIMIT = {"queues": (Queue("default", max=(("devices", 20_000),)),)}


def look(w):
    """Have written what is to be said now; return (holder, resource, percent) of each."""
    rows = quota_rows(take_snapshot(w.state), w.now)
    due = quota_alerts.due_notes(rows, w.state.quota_notes.last, w.now)
    before = len(w.records)
    w.commit(lambda tx: quota_alerts.note(tx, due))
    found = [record.event for record in w.records[before:] if isinstance(record.event, QuotaNoted)]
    assert found == due
    return [(one.holder, one.resource, one.percent) for one in found]


def percents(w):
    return [percent for _, _, percent in look(w)]


def hold(w, devices, **fields):
    job = w.submit(devices, **fields)
    w.run(job)
    return job


def test_each_percentage_is_said_when_use_first_reaches_it():
    w = cluster(3, 8, **LIMIT)
    found = [percents(w)]
    for devices in (8, 7, 1, 2, 1, 1):  # 40, 75, 80, 90, 95 and 100 %
        hold(w, devices)
        found.append(percents(w))
    assert found == [[], [], [], [80], [], [95], [100]]


def test_a_jump_over_several_says_the_highest_alone():
    w = cluster(4, 8, **LIMIT)
    for _ in range(4):
        hold(w, 5)
    assert (percents(w), percents(w)) == ([100], [])


def test_use_that_goes_up_and_down_says_nothing_more_for_a_day():
    w = cluster(3, 8, **LIMIT)
    jobs = [hold(w, 8), hold(w, 8)]
    assert percents(w) == [80]
    for _ in range(11):
        w.exit_replica(jobs.pop())
        assert percents(w) == []
        w.now += 2 * HOUR
        jobs.append(hold(w, 8))
        assert percents(w) == []
    w.now += 2 * HOUR
    assert percents(w) == [80]


def test_queues_tenants_and_pools_are_told_apart_and_named():
    pools = (Pool("default"), Pool("p"))
    tenants = (Tenant("default"), Tenant("t", max=(("jobs", 1), ("p/devices", 2_000))))
    w = World(node("a", 4), node("b", 4, pool="p"), pools=pools, tenants=tenants)
    hold(w, 2, tenant="t", pool="p")
    assert look(w) == [("tenant:t", "jobs", 100), ("tenant:t", "p/devices", 100)]
    assert w.records[-1].event.text == "tenant t uses 2 of 2 devices of pool p (100 %)"


def test_guarantees_alone_say_nothing():
    w = cluster(1, 8, queues=(Queue("default", guaranteed=(("devices", 4_000),)),))
    hold(w, 4)
    assert look(w) == []
    (row,) = quota_rows(take_snapshot(w.state), w.now)
    assert (row.percent, row.level) == (100, 0)


@pytest.mark.parametrize(("alerts", "said"), [((50,), [50]), ((), []), ((10, 60), [10])])
def test_the_percentages_are_those_that_are_declared(alerts, said):
    w = cluster(1, 8, queues=(Queue("default", max=(("devices", 8_000),), alerts=alerts),))
    hold(w, 4)
    assert percents(w) == said
    assert quota_alerts.is_limited(w.state.config) == bool(alerts)


def test_what_was_said_is_kept_in_an_image_and_shown_with_its_quota():
    w = cluster(3, 8, **LIMIT)
    for _ in range(2):
        hold(w, 8)
    percents(w)
    w.state = State.from_image(w.state.image())
    assert percents(w) == []
    (row,) = quota_rows(take_snapshot(w.state), w.now, w.state.quota_notes.last)
    assert (row.alerted, row.alerted_ms) == (80, w.now)
    (row,) = quota_rows(take_snapshot(w.state), w.now + PERIOD_MS, w.state.quota_notes.last)
    assert (row.alerted, row.alerted_ms) == (0, 0)


def test_two_that_worked_out_the_same_write_it_once():
    w = cluster(3, 8, **LIMIT)
    for _ in range(2):
        hold(w, 8)
    due = quota_alerts.due_notes(quota_rows(take_snapshot(w.state), w.now), {}, w.now)
    assert [w.commit(lambda tx: quota_alerts.note(tx, due)) for _ in range(2)] == [1, 0]


def test_what_is_older_than_a_day_is_forgotten():
    w = cluster(3, 8, **LIMIT)
    jobs = [hold(w, 8), hold(w, 8)]
    percents(w)
    w.emit(ConfigChanged(replace(w.state.config, queues=(Queue("default", max=(("jobs", 2),)),)), "ann"))
    w.now += PERIOD_MS
    assert (look(w), len(w.state.quota_notes.last), len(jobs)) == ([("default", "jobs", 100)], 1, 2)


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3 * HOUR)), max_size=60))
def test_no_percentage_is_said_twice_within_a_day_and_none_is_missed(looks):
    """Use is given as a row; what is said is folded as the state does it."""
    w = cluster(3, 8, **LIMIT)
    (row,) = quota_rows(take_snapshot(w.state), w.now)
    said = []
    for used, pause_ms in looks:
        w.now += pause_ms
        level = max((one for one in (80, 95, 100) if used * 5 >= one), default=0)
        due = quota_alerts.due_notes([replace(row, used=used, level=level)], w.state.quota_notes.last, w.now)
        if w.commit(lambda tx, due=due: quota_alerts.note(tx, due)):
            said.append((w.now, level))
        lately = [percent for time_ms, percent in said if w.now - time_ms < PERIOD_MS]
        assert level == 0 or max(lately) >= level
        assert len(lately) == len(set(lately)) <= 3


# Cluster files.


def test_percentages_are_read_and_written_exactly():
    raw = {"queues": [{"name": "q", "alerts": [90, 50, 90]}, "r"], "tenants": [{"name": "t", "alerts": []}]}
    file, problems = parse_cluster(raw)
    assert problems == []
    assert [one.alerts for one in (*file.config.queues, *file.config.tenants)] == [(50, 90), (80, 95, 100), ()]
    assert parse_cluster(declaration(file.config))[0].config == file.config


def test_wrong_percentages_are_named():
    raw = {"queues": [{"name": "q", "alerts": 80}], "tenants": [{"name": "t", "alerts": [0]}]}
    problems = parse_cluster(raw)[1]
    assert {problem.field for problem in problems} == {"queues[0].alerts", "tenants[0].alerts"}
