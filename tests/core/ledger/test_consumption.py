"""Usage by whom and for what: sums of sessions cut to a span, and what programs say they used of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger.activity import Activity
from penstock.core.ledger.books import UsageLog
from penstock.core.ledger.consumption import DIMENSIONS, SUMS, Consumption, shares
from penstock.core.ledger.sessions import Amounts, sessions
from penstock.core.model.answers import ModelUsage
from penstock.core.model.cluster import Tenant
from penstock.core.model.measured import Measured
from penstock.testing.builders import GIB, device, node
from penstock.testing.harness import World, cluster, note
from tests.core.histories import operations, play, small_world
from tests.properties import examples


def rows(w, *by, from_ms=0, until_ms=None):
    found = Consumption(by or ("tenant",), from_ms, w.now if until_ms is None else until_ms)
    found.take(w.records)
    return found.rows()


def ran(w, length_ms, devices=1, replicas=1, **fields):
    job = w.submit(devices, replicas, **fields)
    w.run(job)
    w.now += length_ms
    for rank in range(replicas):
        w.exit_replica(job, rank)
    return job


def test_sums_are_of_devices_cpus_and_memory_by_whom():
    w = cluster(1, 4, tenants=(Tenant("a"), Tenant("b")))
    ran(w, 1_000, 2, cpus=3, memory_gib=1, tenant="b")
    ran(w, 500, 1, cpus=1, tenant="a")
    a, b = rows(w)
    assert (a.tenant, a.device_milli_ms, a.cpu_milli_ms, a.memory_byte_ms, a.jobs, a.attempts) == (
        ("a", 500_000, 500_000, 0, 1, 1)
    )
    assert (b.tenant, b.device_milli_ms, b.cpu_milli_ms, b.memory_byte_ms) == ("b", 2_000_000, 3_000_000, 1_000 * GIB)
    assert [(one.model, one.device_milli_ms) for one in b.models] == [("A100", 2_000_000)]


def test_a_span_cuts_what_reaches_over_it_and_leaves_out_the_rest():
    w = cluster(1, 4)
    first = w.now
    ran(w, 1_000)
    ran(w, 1_000)
    assert rows(w, from_ms=first + 600, until_ms=first + 1_400)[0].device_milli_ms == 800_000
    assert rows(w, from_ms=first + 600, until_ms=first + 1_400)[0].jobs == 2
    assert rows(w, from_ms=first + 1_000)[0].device_milli_ms == 1_000_000
    assert rows(w, until_ms=first) == []
    assert rows(w, from_ms=first + 5_000, until_ms=first + 9_000) == []


def test_what_lasts_counts_up_to_the_end_of_the_span():
    w = cluster(1, 4)
    w.run(w.submit(1))
    assert rows(w, until_ms=w.now + 70)[0].device_milli_ms == 70_000


def used(w, length_ms, energy_mj, devices=1, **fields):
    """Let a job run whose node measured the energy of its devices throughout."""
    job = w.submit(devices, **fields)
    w.run(job)
    w.now += length_ms
    w.exit_replica(job, measured=Measured(powered_ms=devices * length_ms, energy_mj=energy_mj))
    return job


def test_energy_is_that_of_ended_replicas_and_what_was_not_measured_has_none():
    w = cluster(1, 4)
    used(w, 1_000, 700_000, 2)
    ran(w, 1_000)
    w.run(w.submit(1))
    (row,) = rows(w)
    assert (row.energy_mj, row.powered_milli_ms) == (700_000, 2_000_000)
    assert [(one.energy_mj, one.powered_milli_ms) for one in row.models] == [(700_000, 2_000_000)]


@given(st.lists(st.integers(0, 3_000), max_size=6), st.integers(0, 10**9), st.integers(0, 3_000))
@examples(100)
def test_energy_of_adjacent_spans_adds_up_to_all_of_it(cuts, energy_mj, length_ms):
    w = cluster(1, 4)
    first = w.now
    used(w, length_ms, energy_mj)
    edges = [0, *sorted(first + cut for cut in cuts), w.now + 10_000]
    found = [row for begin, end in pairwise(edges) for row in rows(w, from_ms=begin, until_ms=end)]
    if length_ms:
        assert sum(row.energy_mj for row in found) == energy_mj
    (whole,) = rows(w, until_ms=w.now + 10_000)
    assert (whole.energy_mj, sum(one.energy_mj for one in whole.models)) == (energy_mj, energy_mj)


def test_energy_of_two_models_adds_up_to_the_row():
    w = World(node("a", (device(0), device(1, model="H100"))))
    used(w, 1_000, 101, 2)
    (row,) = rows(w)
    assert [(one.model, one.energy_mj) for one in row.models] == [("A100", 50), ("H100", 51)]


def test_each_attempt_and_each_job_counts_once_in_a_row():
    w = cluster(2, 4)
    job = w.submit(1, 2, retries_max=1)
    w.run(job)
    w.now += 10
    w.exit_replica(job, 0, 1)
    w.leave(job)
    w.now += 60_000
    w.run(job)
    w.now += 10
    (row,) = rows(w)
    assert (row.jobs, row.attempts) == (1, 2)
    assert [(r.job, r.jobs) for r in rows(w, "job")] == [(job, 1)]


def test_each_model_has_its_own_figures_and_they_add_up_to_the_row():
    w = World(node("a", 4), node("b", (device(0, model="H100"),)))
    ran(w, 1_000, 2, cpus=3, memory_gib=1, models=("A100",))
    job = w.submit(1, cpus=2, models=("H100",))
    w.run(job)
    note(w, job, data_wait_milli=250)
    w.now += 2_000
    w.exit_replica(job)
    ran(w, 500, 0, cpus=1)
    (row,) = rows(w)
    none, a100, h100 = row.models
    assert none == ModelUsage("", cpu_milli_ms=500_000, jobs=1, attempts=1)
    assert a100 == ModelUsage("A100", 2_000_000, 3_000_000, 1_000 * GIB, jobs=1, attempts=1)
    assert h100 == ModelUsage("H100", 2_000_000, 4_000_000, 0, 2_000_000, 1_500_000, 1, 1)
    for name in SUMS:
        assert sum(getattr(one, name) for one in row.models) == getattr(row, name)


def test_cpus_of_a_replica_on_two_models_go_by_their_devices():
    usage = Amounts((("A100", 1_000), ("H100", 2_000)), cpu_milli=1_000, memory_bytes=100)
    a100, h100 = Amounts((("A100", 1_000),), 333, 33), Amounts((("H100", 2_000),), 667, 67)
    assert shares(usage) == [("A100", a100), ("H100", h100)]


def test_rows_come_in_the_order_of_their_dimensions():
    w = cluster(1, 4, tenants=(Tenant("a"), Tenant("b")))
    for tenant in ("b", "a", "b"):
        ran(w, 10, tenant=tenant)
    assert [(r.tenant, r.job) for r in rows(w, "tenant", "job")] == [("a", 2), ("b", 1), ("b", 3)]


def test_jobs_come_in_the_order_of_their_numbers():
    w = cluster(1, 4)
    for _ in range(11):
        ran(w, 10)
    assert [row.job for row in rows(w, "job")] == list(range(1, 12))


def test_what_was_used_is_known_from_when_programs_tell_how_long_they_wait():
    w = cluster(1, 4)
    job = w.submit(2)
    w.run(job)
    w.now += 1_000
    note(w, job, data_wait_milli=250)
    w.now += 2_000
    note(w, job, 2, data_wait_milli=1_000)
    w.now += 1_000
    w.exit_replica(job)
    (row,) = rows(w)
    assert (row.device_milli_ms, row.measured_milli_ms) == (2_000 * 4_000, 2_000 * 3_000)
    assert row.used_milli_ms == 2_000 * 1_500


def test_what_programs_told_counts_inside_the_span_only():
    w = cluster(1, 4)
    job = w.submit(1)
    w.run(job)
    begin = w.now
    note(w, job, data_wait_milli=500)
    w.now += 4_000
    (row,) = rows(w, from_ms=begin + 1_000, until_ms=begin + 3_000)
    assert (row.measured_milli_ms, row.used_milli_ms) == (2_000_000, 1_000_000)


def test_nothing_is_said_of_who_tells_nothing():
    w = World(node("a", 2))
    ran(w, 100, share_milli=500)
    (row,) = rows(w)
    assert (row.device_milli_ms, row.measured_milli_ms, row.used_milli_ms) == (50_000, 0, 0)


@examples(60)
@given(operations, st.integers(0, 60_000), st.integers(0, 60_000), st.integers(1, 50))
def test_any_dimensions_add_up_to_the_sessions_of_the_span(done, after, length, batch):
    w = play(small_world(), done)
    from_ms = 1_000_000 + after
    until_ms = from_ms + length
    expected = 0
    for one in sessions(w.records):
        end_ms = min(one.end_ms or until_ms, until_ms)
        expected += one.amounts.device_milli * max(0, end_ms - max(one.start_ms, from_ms))
    for by in [(), *((name,) for name in DIMENSIONS), DIMENSIONS]:
        found = Consumption(by or ("tenant",), from_ms, until_ms)
        for at in range(0, len(w.records), batch):
            found.take(w.records[at : at + batch])
        made = found.rows()
        assert sum(row.device_milli_ms for row in made) == expected
        assert sum(one.device_milli_ms for row in made for one in row.models if one.model) == expected
        for row in made:
            assert all(sum(getattr(one, name) for one in row.models) == getattr(row, name) for name in SUMS)
        assert all(0 <= row.used_milli_ms <= row.measured_milli_ms <= row.device_milli_ms for row in made)


@examples(40)
@given(operations, st.integers(0, 60_000), st.integers(1, 50))
def test_looking_in_between_changes_nothing(done, after, batch):
    w = play(small_world(), done)
    for by in (("tenant",), ("user", "node"), ("job",)):
        found = Consumption(by, 1_000_000 + after)
        for at in range(0, len(w.records), batch):
            found.take(w.records[at : at + batch])
            found.rows(found.time_ms)
        assert found.rows(w.now) == rows(w, *by, from_ms=1_000_000 + after)
        assert found.rows(w.now) == found.rows(w.now)


@examples(40)
@given(operations, st.integers(0, 60_000), st.integers(0, 200))
def test_sums_of_what_has_ended_go_on_as_if_all_records_had_been_folded(done, after, known):
    w = play(small_world(), done)
    books, activity = UsageLog(), Activity()
    books.take(w.records[:known])
    for record in w.records[:known]:
        activity.take(record)
    from_ms, live = 1_000_000 + after, [*books.all_ended(), *books.log.open.values()]
    for by in (("tenant",), ("user", "node"), ("job",)):
        copy = activity.of({(one.job_id, one.attempt) for one in live})
        found = Consumption.of_ended(by, from_ms, books.log.image(), books.all_ended(), copy)
        found.take(w.records[known:])
        assert found.rows(w.now) == rows(w, *by, from_ms=from_ms)
        assert found.size <= len(found.rows(w.now)) + len(w.state.jobs)


@pytest.mark.parametrize("name", DIMENSIONS)
def test_each_dimension_is_one_of_a_session(name):
    w = cluster(1, 4)
    job = ran(w, 10)
    (row,) = rows(w, name)
    expected = {"tenant": "default", "user": "ann", "queue": "default", "pool": "default", "job": job, "node": "n0"}
    assert getattr(row, name) == expected[name]
