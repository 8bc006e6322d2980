"""What goes wrong in a running program, by its own gauges: told with numbers, and with what helps."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.explain.reasons import ALERTS
from penstock.core.explain.why import explain
from penstock.core.health.anomaly import UNTOUCHED_AFTER_MS, anomalies
from penstock.core.model.answers import OF_RUNNING
from penstock.core.model.events import CheckpointSaved, HangFound, UseNoted
from penstock.core.status.alerts import alerts
from penstock.testing.harness import cluster, note
from tests.core.elastic.test_elastic_plan import MINUTE, elastic


def training(devices=2, **fields):
    w = cluster(1, 4)
    job = w.submit(devices, **fields)
    w.run(job)
    return w, job


def told(w):
    return [alert.code for alert in alerts(w.state, w.now)]


def test_a_loss_that_is_no_number_is_told_at_once():
    w, job = training()
    note(w, job, 812, loss_not_finite=True)
    (alert,) = alerts(w.state, w.now)
    assert (alert.code, alert.job_ids) == ("loss_not_finite", (job,))
    assert alert.text == "its loss is NaN or infinite, at step 812; it has saved nothing yet"
    assert alert.resolve == (
        "cancel it: penstock cancel 1; then resume from a checkpoint before that (penstock checkpoints 1) "
        "with a lower learning rate, or clipped gradients"
    )
    w.emit(CheckpointSaved(job, 1, 700, 5, ""))
    assert alerts(w.state, w.now)[0].text.endswith("; it last saved at step 700")
    note(w, job, 900)
    assert told(w) == []


def test_steps_twice_as_long_as_the_fastest_are_told_after_a_minute():
    w, job = training()
    note(w, job, 10, step_ms=200)
    note(w, job, 20, step_ms=420, data_wait_milli=123)
    w.now += MINUTE - 1
    assert told(w) == []
    w.now += 1
    (alert,) = alerts(w.state, w.now)
    assert alert.code == "slow_steps"
    assert alert.text == (
        "a step takes 420 ms, 2.1 times its fastest with 1 replica, 200 ms; it waits for data 12 % of the time; "
        "it runs on n0"
    )
    assert alert.resolve.endswith("a job that saves can be moved: penstock drain n0 --evict")


def test_devices_that_were_never_used_are_told_once_it_has_run_for_long():
    w, job = training()
    w.emit(UseNoted(job, 1, 60_000, 400, untouched=1))
    w.now += UNTOUCHED_AFTER_MS - 1
    assert told(w) == []
    assert "never" not in explain(w.state, w.job(job), w.now).text
    w.now += 1
    (alert,) = alerts(w.state, w.now)
    assert (alert.code, alert.text) == ("untouched", "its programs have never used 1 of its 2 devices")
    assert explain(w.state, w.job(job), w.now).text.endswith("; it has never used 1 device of its own")
    w.emit(UseNoted(job, 1, 60_000, 400))
    assert told(w) == []


@pytest.mark.parametrize(("fastest_ms", "now_ms"), [(200, 399), (4, 9), (0, 500)])
def test_steps_that_are_not_so_slow_or_too_short_to_tell_are_not(fastest_ms, now_ms):
    w, job = training()
    note(w, job, 10, step_ms=fastest_ms)
    note(w, job, 20, step_ms=now_ms)
    w.now += MINUTE
    assert told(w) == []


def test_what_another_size_took_is_no_measure():
    w = cluster(1, 4)
    job = w.submit(gang=elastic(1, 4), retries_max=1)
    w.run(job)
    note(w, job, 10, step_ms=100)
    for rank in range(4):
        w.exit_replica(job, rank, code=1)
    w.submit(3, priority=900)
    w.now += MINUTE
    w.cycle()
    w.start(job, 2)
    note(w, job, 20, step_ms=400)
    w.now += MINUTE
    assert (len(w.job(job).attempt.replicas), told(w)) == (1, [])


def test_a_job_that_waits_for_data_most_of_its_time_is_told():
    w, job = training()
    note(w, job, 10, data_wait_milli=501)
    w.now += MINUTE
    (alert,) = alerts(w.state, w.now)
    assert (alert.code, alert.text) == ("starved", "it waits for data 50 % of the time, while it holds 2 devices")
    assert alert.resolve == "more loader workers and `cpus`, data nearer to the node, or fewer devices"
    note(w, job, 20, data_wait_milli=500)
    w.now += MINUTE
    assert told(w) == []


def test_who_holds_no_device_keeps_none_idle():
    w, job = training(devices=0)
    note(w, job, 10, data_wait_milli=900)
    w.now += MINUTE
    assert told(w) == []


def test_a_part_of_a_device_is_held_too():
    w = cluster(1, 4)
    job = w.submit(1, share_milli=500)
    w.run(job)
    note(w, job, 10, data_wait_milli=900)
    w.now += MINUTE
    assert [a.text for a in alerts(w.state, w.now)] == [
        "it waits for data 90 % of the time, while it holds 0.5 devices"
    ]


def test_of_one_that_stops_hangs_or_has_begun_anew_nothing_is_told():
    w, job = training(retries_max=1)
    note(w, job, 10, data_wait_milli=900, loss_not_finite=True)
    w.now += MINUTE
    assert told(w) == ["loss_not_finite", "starved"]
    w.emit(HangFound(job, 1, 10, (0,), "rank 0 is stopped", 9_000))
    assert told(w) == ["hung"]
    note(w, job, 10, data_wait_milli=900)
    w.exit_replica(job, code=1)
    assert list(anomalies(w.job(job), w.now)) == []
    w.now += MINUTE
    w.run(job)
    assert list(anomalies(w.job(job), w.now)) == []
    note(w, job, 10, loss_not_finite=True)
    for change in ({"suspended_ms": 1}, {"choice": 0, "suspended_ms": 2}):
        attempt = msgspec.structs.replace(w.job(job).attempt, **change)
        assert list(anomalies(msgspec.structs.replace(w.job(job), attempt=attempt), w.now)) == []
    w.cancel(job)
    assert list(anomalies(w.job(job), w.now)) == []


def test_another_shape_has_no_fastest_step():
    w, job = training()
    note(w, job, 10, step_ms=100)
    note(w, job, 20, step_ms=900)
    w.now += MINUTE
    attempt = msgspec.structs.replace(w.job(job).attempt, choice=1)
    spec = msgspec.structs.replace(w.job(job).spec, alternatives=(w.job(job).spec.ask,))
    other = msgspec.structs.replace(w.job(job), attempt=attempt, spec=spec)
    assert [one.code for one in anomalies(w.job(job), w.now)] == ["slow_steps"]
    assert list(anomalies(other, w.now)) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000), st.integers(0, 1_000), st.booleans(), st.integers(0, 3 * MINUTE)), max_size=6
    )
)
def test_whatever_is_told_is_so(notes):
    w, job = training()
    for step_ms, waits, strange, pause_ms in notes:
        note(w, job, 5, step_ms=step_ms, data_wait_milli=waits, loss_not_finite=strange)
        w.now += pause_ms
    codes = told(w)
    assert set(codes) <= OF_RUNNING <= set(ALERTS)
    fastest = min((ms for ms, *_ in notes if ms), default=0)
    last = notes[-1] if notes else (0, 0, False, 0)
    assert ("loss_not_finite" in codes) == last[2]
    assert ("starved" in codes) == (last[1] > 500 and last[3] >= MINUTE)
    assert ("slow_steps" in codes) == (last[0] >= max(10, 2 * fastest) and fastest > 0 and last[3] >= MINUTE)


def second_attempt(**fields):
    """Return a world in which the first attempt of a job has reported steps of 30 s, and the second has just begun."""
    w, job = training(retries_max=1, **fields)
    note(w, job, 10, step_ms=30_000, report_gap_ms=60_000)
    w.exit_replica(job, code=1)
    w.now += MINUTE
    w.run(job)
    return w, job


def test_an_attempt_that_reports_nothing_where_an_earlier_one_did_is_told():
    w, job = second_attempt()
    w.now = w.attempt(job).running_ms + 15 * MINUTE + 5 * MINUTE - 1
    assert told(w) == []
    w.now += 1
    (alert,) = alerts(w.state, w.now)
    assert (alert.code, alert.job_ids) == ("no_report", (job,))
    assert alert.text == "attempt 2 has run for 20m 0s and reported no step; attempt 1 reported steps"
    assert alert.resolve == "see what it does: penstock logs 1; or cancel it: penstock cancel 1"
    note(w, job, 11, step_ms=30_000)
    assert told(w) == []


@pytest.mark.parametrize("sign", [CheckpointSaved(1, 2, 10, 5, ""), HangFound(1, 2, 0, (0,), "rank 0 is stopped", 9)])
def test_a_checkpoint_is_a_report_and_a_hang_says_more(sign):
    w, _ = second_attempt(hang_limit_ms=MINUTE)
    w.now += 60 * MINUTE
    assert told(w) == ["no_report"]
    w.emit(sign)
    assert "no_report" not in told(w)


def test_a_program_that_never_reported_is_not_expected_to():
    w, _ = training()
    w.now += 100 * 60 * MINUTE
    assert told(w) == []
