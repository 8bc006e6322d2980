"""The cluster's own log as a trace: what is read from it, and that its replay does what was done."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.reports import lose_node
from penstock.core.model.events import CheckpointSaved, ConfigChanged
from penstock.core.model.jobs import Dependency
from penstock.sim.replay.agreement import Decisions, agreement
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.replay import replay
from penstock.testing.builders import config, job_spec, node
from penstock.testing.harness import World, cluster
from penstock.traces.ownlog import trace_of
from tests.properties import examples
from tests.sim.replay.builders import job, ran, trace

SECOND = 1_000


def told(w):
    return trace_of(w.records)


def test_a_job_is_as_long_as_it_ran():
    w = cluster(1, 4)
    one = w.submit(2)
    w.cycle()
    w.now += 3 * SECOND
    w.start(one)
    w.now += 60 * SECOND
    w.exit_replica(one)
    found = told(w)
    (read,) = found.trace.jobs
    assert (read.work.run_ms, read.work.ends, read.spec.ask.device_total) == (60 * SECOND, "succeeded", 2)
    assert found.start_ms == 3 * SECOND
    assert read.seen.started_ms == read.submit_ms


def test_what_can_save_is_the_sum_of_its_attempts():
    w = cluster(1, 4)
    one = w.submit(4, priority=100)
    w.run(one)
    w.emit(CheckpointSaved(one, 1, 5))
    w.now += 20 * SECOND
    other = w.submit(4, priority=900)
    w.cycle()
    w.now += 2 * SECOND
    w.leave(one)
    w.run(other)
    w.now += 10 * SECOND
    w.exit_replica(other)
    w.run(one)
    w.now += 40 * SECOND
    w.exit_replica(one)
    found = told(w)
    assert [j.work.run_ms for j in found.trace.jobs] == [60 * SECOND, 10 * SECOND]
    assert [j.work.saves for j in found.trace.jobs] == [True, False]
    assert found.leave_ms == 2 * SECOND


def test_failures_before_the_last_attempt_are_kept():
    w = cluster(1, 4, backoff_first_ms=1)
    one = w.submit(1, retries_max=1)
    w.run(one)
    w.now += 7 * SECOND
    w.exit_replica(one, code=1)
    w.now += SECOND
    w.run(one)
    w.now += 9 * SECOND
    w.exit_replica(one)
    (read,) = told(w).trace.jobs
    assert (read.work.fails_after_ms, read.work.run_ms) == ((7 * SECOND,), 9 * SECOND)


def test_what_has_not_ended_is_said():
    w = cluster(1, 1)
    w.run(w.submit(1))
    w.submit(1)
    w.now += 30 * SECOND
    w.emit(ConfigChanged(config(), "op"))
    found = told(w).trace
    assert [j.work.run_ms for j in found.jobs] == [30 * SECOND, 0]
    assert len(found.notes) == 2
    assert [change.at_ms for change in found.changes] == [w.now]


def test_nodes_come_and_go():
    w = World(node("a", 1))
    w.submit(1, time_limit_ms=SECOND)
    w.now += 40 * SECOND
    w.hello(node("b", 2))
    w.commit(lambda tx: lose_node(tx, "a", "test"))
    w.now += 5 * SECOND
    w.hello(node("a", 1), "i2")
    w.drain("b")
    found = told(w).trace
    assert [spec.name for spec in found.nodes] == ["a", "b"]
    begun, lease_ms = found.outages[0].from_ms, w.state.config.settings.lease_ttl_ms
    assert 0 < lease_ms < 40 * SECOND
    assert [(o.node, o.from_ms - begun, o.until_ms - begun) for o in found.outages] == [
        ("b", 0, 40 * SECOND),
        ("a", 40 * SECOND - lease_ms, 45 * SECOND),
    ]
    assert found.outages[1].known_ms - begun == 40 * SECOND
    assert [change.drained for change in found.changes] == ["b"]


def test_an_empty_log_is_an_empty_trace():
    assert trace_of([]).trace.jobs == ()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200), st.integers(0, 4)), min_size=1, max_size=15))
@examples(40)
def test_the_replay_of_a_replays_log_decides_the_same(jobs):
    """Where start and end take no time nothing is uncertain: the log of a replay, replayed, is the same again."""
    given_trace = trace(*(job(at, run, devices, priority=500) for at, run, devices in sorted(jobs)))
    records = []
    ran(given_trace, on_records=records.extend)
    found = trace_of(records)
    again = Decisions()
    second = replay(found.trace, Physics(), on_plan=again)
    ended_ms = max(life.ended_ms for life in second.lives)
    said = agreement(found.jobs, again, [life.started_ms for life in second.lives], ended_ms)
    assert said.exact
    assert (said.start_off_ms, said.makespan_off) == (0, 0.0)


def test_a_dependency_on_an_array_is_one_on_the_places_of_its_jobs():
    w = cluster(1, 0, cpus=9)
    w.request(job_spec(0), array=4)
    w.submit(0, after=(Dependency(2, "after_ok", 3),))
    (*_, last) = told(w).trace.jobs
    assert last.spec.after == (Dependency(2, "after_ok", 3),)
    later = [r for r in w.records if getattr(r.event, "job_id", 9) > 2]
    assert trace_of(later).trace.jobs[-1].spec.after == (Dependency(1, "after_ok", 2),)
