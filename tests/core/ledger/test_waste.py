"""The waste ledger: used, idle for a cause, or not known; in device time and in money, adding up to what was billed."""

import random

import pytest

from penstock.control.calendar import calendar
from penstock.core.ledger.activity import Activity
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.consumption import DIMENSIONS, Consumption
from penstock.core.ledger.settlement import bill_for
from penstock.core.ledger.waste import KINDS, waste_of
from penstock.core.model import events as ev
from penstock.core.model.answers import WasteRow
from penstock.core.model.prices import Billing, Factor, Price, Tariff
from penstock.core.model.progress import Gauges
from penstock.testing.harness import cluster, note
from tests.core.ledger.test_settlement import BEGIN, DAY, END, TENANTS, billing_of, history

MINUTE, HOUR = 60_000, 3_600_000
TARIFF = Tariff((Price("device", 2_000_000), Price("cpu", 100_000)))


def folded(records):
    books, activity = UsageLog(), Activity()
    books.take(records)
    for record in records:
        activity.take(record)
    return books, activity


def waste(w, *by, from_ms=0, until_ms=None, tariff=TARIFF):
    books, activity = folded(w.records)
    until_ms = w.now if until_ms is None else until_ms
    found = calendar("UTC", 0, 0, until_ms)
    billing = Billing(tariff, "EUR", 2, "UTC")
    return waste_of(books.held("default"), activity, billing, found, by or ("tenant",), from_ms, until_ms)


def times(row):
    return {kind: getattr(row, f"{kind}_milli_ms") // 1_000 // MINUTE for kind in KINDS[:-1]}


def costs(row):
    return {kind: getattr(row, f"{kind}_cost") for kind in KINDS}


def running(w, devices=1, cpus=0, **fields):
    job = w.submit(devices, cpus=cpus, **fields)
    w.run(job)
    return job


def test_each_moment_is_used_or_idle_or_not_known():
    w = cluster(1, 4)
    job = running(w, 2)
    w.now += 60 * MINUTE
    note(w, job, 1, data_wait_milli=750)
    w.now += 12 * MINUTE
    note(w, job, 2, data_wait_milli=0)
    w.now += 60 * MINUTE
    w.exit_replica(job)
    (row,) = waste(w)
    assert times(row) == {"used": 2 * (3 + 20), "data": 2 * 9, "hang": 0, "unused": 0, "unknown": 2 * (60 + 40)}
    assert row.device_milli_ms == 2_000 * 132 * MINUTE


def test_money_is_what_that_time_cost_with_all_that_was_held():
    w = cluster(1, 4)
    job = running(w, 1, cpus=10)  # 2 for the device and 1 for the CPUs, an hour
    note(w, job, 1, step_ms=HOUR, data_wait_milli=250)
    w.now += 2 * HOUR
    w.exit_replica(job)
    (row,) = waste(w)
    assert (row.cost, costs(row)) == (
        600,
        {"used": 450, "data": 150, "hang": 0, "unused": 0, "unknown": 0, "not_held": 0},
    )


def test_a_hang_is_idle_since_the_last_step():
    w = cluster(1, 1)
    job = running(w)
    note(w, job, 1)
    w.now += 15 * MINUTE
    w.emit(ev.HangFound(job, 1, 1, (0,), "rank 0 waits", 5 * MINUTE))
    w.now += 300 * MINUTE
    assert times(waste(w)[0]) == {"used": 10, "data": 0, "hang": 305, "unused": 0, "unknown": 0}
    note(w, job, 2)
    w.now += 10 * MINUTE
    assert times(waste(w)[0]) == {"used": 20, "data": 0, "hang": 305, "unused": 0, "unknown": 0}


def test_a_hang_that_is_described_anew_is_one():
    w = cluster(1, 1)
    job = running(w)
    note(w, job, 1)
    w.now += 10 * MINUTE
    w.emit(ev.HangFound(job, 1, 1, (), "nobody can be named", 4 * MINUTE))
    w.now += 10 * MINUTE
    w.emit(ev.HangFound(job, 1, 1, (0,), "rank 0 waits", 14 * MINUTE))
    w.now += 10 * MINUTE
    w.emit(ev.CheckpointSaved(job, 1, 2))
    w.now += 10 * MINUTE
    assert times(waste(w)[0]) == {"used": 6, "data": 0, "hang": 24, "unused": 0, "unknown": 10}


def test_the_same_numbers_again_are_no_news():
    w = cluster(1, 1)
    job = running(w)
    for _ in range(6):
        note(w, job, 7, data_wait_milli=500)
        w.now += 10 * MINUTE
    assert times(waste(w)[0]) == {"used": 10, "data": 10, "hang": 0, "unused": 0, "unknown": 40}


def test_what_is_billed_and_not_held_is_apart():
    w = cluster(1, 4)
    job = w.submit(0, cpus=4, memory_gib=1, on_preempt="suspend")
    w.run(job)
    note(w, job, 1, step_ms=HOUR)
    w.now += HOUR
    w.emit(
        ev.AttemptStopRequested(job, 1, "suspended", 1_000), ev.ReplicaFrozen(job, 1, 0), ev.AttemptSuspended(job, 1)
    )
    w.now += HOUR
    w.emit(ev.AttemptResumed(job, 1))
    w.now += HOUR
    tariff = Tariff((Price("memory", 1_000_000), Price("cpu", 1_000_000)))
    (row,) = waste(w, tariff=tariff)
    assert costs(row) == {"used": 1_000, "data": 0, "hang": 0, "unused": 0, "unknown": 0, "not_held": 100}
    short = running(w)
    note(w, short, 1)
    w.now += MINUTE
    w.exit_replica(short)
    at_least = Tariff((Price("device", 60_000_000),), minimum_ms=10 * MINUTE)
    w.now += HOUR
    row = next(row for row in waste(w, "job", tariff=at_least) if row.job == short)
    assert costs(row) == {"used": 100, "data": 0, "hang": 0, "unused": 0, "unknown": 0, "not_held": 900}


def measure(w, job, busy_milli, covered_ms=10 * MINUTE):
    w.emit(ev.UseNoted(job, w.attempt(job).number, covered_ms, busy_milli))


def test_the_measured_use_of_devices_counts_where_the_program_says_nothing():
    w = cluster(1, 2)
    job = running(w, 2)
    for busy_milli in (0, 500):
        w.now += 10 * MINUTE
        measure(w, job, busy_milli)
    w.now += 10 * MINUTE
    measure(w, job, 1_000, covered_ms=4 * MINUTE)
    w.exit_replica(job)
    (row,) = waste(w)
    assert times(row) == {"used": 2 * (5 + 4), "data": 0, "hang": 0, "unused": 2 * (10 + 5), "unknown": 2 * 6}
    assert (row.idle_milli_ms, row.idle_cost) == (row.unused_milli_ms, row.unused_cost)


def test_what_a_program_says_of_itself_goes_before_what_is_measured():
    """It says that it waits for data half of the time, for 20 minutes; then nothing more."""
    w = cluster(1, 1)
    job = running(w)
    w.now += 10 * MINUTE
    measure(w, job, 0)
    note(w, job, 1, data_wait_milli=500)
    for _ in range(3):
        w.now += 10 * MINUTE
        measure(w, job, 100)
    w.exit_replica(job)
    assert times(waste(w)[0]) == {"used": 10 + 1, "data": 10, "hang": 0, "unused": 10 + 9, "unknown": 0}


def test_time_that_two_notes_cover_counts_once():
    w = cluster(1, 1)
    job = running(w)
    w.now += 10 * MINUTE
    measure(w, job, 0)
    w.now += 5 * MINUTE
    measure(w, job, 1_000, covered_ms=10 * MINUTE)
    w.exit_replica(job)
    assert times(waste(w)[0]) == {"used": 5, "data": 0, "hang": 0, "unused": 10, "unknown": 0}


def test_measured_time_is_measured_use_in_the_usage_too():
    w = cluster(1, 1)
    job = running(w)
    w.now += 10 * MINUTE
    measure(w, job, 300)
    w.exit_replica(job)
    found = Consumption(("tenant",), 0, w.now)
    found.take(w.records)
    (row,) = found.rows()
    assert (row.measured_milli_ms, row.used_milli_ms) == (1_000 * 10 * MINUTE, 1_000 * 3 * MINUTE)


def test_without_prices_there_is_the_time_alone():
    w = cluster(1, 1)
    job = running(w)
    note(w, job, 1, data_wait_milli=1_000)
    w.now += 10 * MINUTE
    (row,) = waste(w, "job", "user", tariff=Tariff(()))
    assert row == WasteRow(user="ann", job=job, device_milli_ms=600_000_000, data_milli_ms=600_000_000)
    assert (row.idle_milli_ms, row.idle_cost) == (600_000_000, 0)


def test_a_span_cuts_what_reaches_over_it():
    w = cluster(1, 1)
    begun = w.now
    job = running(w)
    note(w, job, 1, step_ms=HOUR, data_wait_milli=500)
    w.now += 2 * HOUR
    (row,) = waste(w, from_ms=begun + HOUR // 2, until_ms=begun + HOUR)
    assert (times(row)["data"], times(row)["used"], row.data_cost, row.cost) == (15, 15, 50, 100)


def noted(rng, entries):
    """Return a history in which attempts tell of themselves, hang, and are silent; some are measured."""
    found = list(entries)
    for begin_ms, event in entries:
        if not isinstance(event, ev.AttemptAllocated):
            continue
        until_ms = next((t for t, e in entries if isinstance(e, ev.JobFinished) and e.job_id == event.job_id), END)
        at_ms = begin_ms
        for step in range(rng.choice((0, 3, 40))):
            at_ms += rng.choice((MINUTE, 10 * MINUTE, 3 * DAY))
            if at_ms >= until_ms:
                break
            gauges = Gauges(step_ms=rng.choice((0, 1_000, HOUR)), data_wait_milli=rng.choice((0, 333, 1_000)))
            told = ev.ProgressNoted(event.job_id, 1, rng.choice((step, 1)), gauges)
            if rng.random() < 0.1:
                told = ev.HangFound(event.job_id, 1, step, (), "hangs", rng.choice((0, MINUTE, HOUR)))
            if rng.random() < 0.4:
                told = ev.UseNoted(event.job_id, 1, rng.choice((MINUTE, 10 * MINUTE, DAY)), rng.choice((0, 7, 1_000)))
            found.append((at_ms, told))
    ordered = sorted(found, key=lambda one: one[0])
    return [ev.Record(seq, time_ms, event) for seq, (time_ms, event) in enumerate(ordered, 1)]


@pytest.mark.parametrize("seed", range(12))
def test_all_rows_add_up_to_the_bill_and_to_the_usage(seed):
    rng = random.Random(seed)
    records, billing = noted(rng, history(rng)), billing_of(rng)
    zone = billing.time_zone
    until_ms = rng.randrange(BEGIN + 30 * DAY, END)
    records = [record for record in records if record.time_ms < until_ms]
    from_ms = rng.randrange(BEGIN, until_ms)
    books, activity = folded(records)
    months = calendar(zone, BEGIN, BEGIN, until_ms)
    usage = Consumption(("tenant",), from_ms, until_ms)
    usage.take(records)
    held = {row.tenant: row for row in usage.rows()}
    for tenant in TENANTS:
        made = bill_for(tenant, books.held(tenant), billing, months, from_ms, until_ms)
        for by in (("tenant",), ("user", "job"), ("node",), DIMENSIONS):
            rows = waste_of(books.held(tenant), activity, billing, months, by, from_ms, until_ms)
            assert sum(row.cost for row in rows) == made.total
            assert all(row.cost == sum(costs(row).values()) for row in rows)
            for row in rows:
                parts = [getattr(row, f"{kind}_milli_ms") for kind in KINDS[:-1]]
                assert sum(parts) == row.device_milli_ms
                assert min(parts) >= 0
            if tenant in held:
                assert sum(row.device_milli_ms for row in rows) == held[tenant].device_milli_ms
                measured = sum(row.device_milli_ms - row.unknown_milli_ms for row in rows)
                assert measured == held[tenant].measured_milli_ms


def test_factors_and_refunds_split_like_what_they_are_of():
    w = cluster(1, 1)
    job = running(w, priority=900)
    note(w, job, 1, step_ms=HOUR, data_wait_milli=500)
    w.now += HOUR
    w.lose("n0")
    tariff = Tariff((Price("device", 1_000_000),), factors=(Factor(2_000, priority_min=900),))
    for later_ms, cost in ((0, 200), (1, 0)):  # what is lost is given back once that is known
        (row,) = waste(w, until_ms=w.now + later_ms, tariff=tariff)
        assert (row.cost, row.data_cost, times(row)["data"]) == (cost, cost // 2, 30)
