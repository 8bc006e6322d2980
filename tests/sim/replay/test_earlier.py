"""Runs of earlier traces, from which a replay has learned before it begins."""

from msgspec.structs import replace

from penstock.sim.replay.earlier import earlier_runs
from penstock.sim.replay.replay import ORIGIN_MS, replay
from penstock.sim.replay.variants import variant
from penstock.testing.builders import config
from penstock.traces.model import Seen
from tests.sim.replay.builders import HOUR, SECOND, job, ran, times, trace

NOW = trace(job(0, 60))


def named(name, *jobs):
    return replace(trace(*jobs), name=name)


def spans(runs):
    """Return submits, starts and ends, in seconds before the trace begins."""
    return [tuple((at - ORIGIN_MS) // SECOND for at in (r.submitted_ms, r.started_ms, r.finished_ms)) for r in runs]


def later(given, by_s):
    return replace(given, jobs=tuple(replace(j, submit_ms=ORIGIN_MS + by_s * SECOND) for j in given.jobs))


def test_a_trace_of_offsets_is_moved_back_until_it_ends_before_the_next_begins():
    runs, note = earlier_runs([named("old", job(0, 50), job(100, 20), job(200, 1))], NOW)
    assert spans(runs) == [(-200, -200, -150), (-100, -100, -80)]
    assert note == (
        "history: 2 runs of old; 1 job that had not run and ended before the first submit left out; "
        "1 trace moved back in time to end before it"
    )


def test_calendar_times_that_come_before_stay():
    now = later(NOW, 1_000)
    runs, note = earlier_runs([later(named("old", job(0, 50)), 100)], now)
    assert spans(runs) == [(100, 100, 150)]
    assert note == "history: 1 run of old"


def test_of_several_the_earliest_comes_first():
    runs, note = earlier_runs([named("a", job(0, 10), job(50, 1)), named("b", job(0, 20), job(30, 1))], NOW)
    assert sorted(spans(runs)) == [(-80, -80, -70), (-30, -30, -29), (-30, -30, -10)]
    assert len({run.job_id for run in runs}) == 3
    assert note.startswith("history: 3 runs of a, b; 1 job ")


def test_a_run_that_was_seen_counts_from_its_real_start_and_one_that_never_ran_not_at_all():
    seen = job(0, 30, seen=Seen(40 * SECOND, 70 * SECOND))
    never = job(5, 30, seen=Seen(0, 60 * SECOND), ends="cancelled")
    stopped = job(6, 10, ends="cancelled")
    runs, _ = earlier_runs([named("old", seen, never, stopped, job(100, 5))], NOW)
    assert [(r.started_ms - r.submitted_ms, r.finished_ms - r.started_ms, r.whole) for r in runs] == [
        (40 * SECOND, 30 * SECOND, True),
        (0, 10 * SECOND, False),
    ]


def test_jobs_like_those_of_the_history_go_first_from_the_beginning():
    old = named("old", *(job(600 * i, 60 if i % 2 else 7200, 4, name=("short", "long")[i % 2 == 0]) for i in range(40)))
    now = trace(job(0, 600, 4), job(1, 7200, 4, name="long"), job(2, 60, 4, name="short"))
    known, _ = earlier_runs([old], now)
    assert times(replay(now))[2][0] == 7800, "first come, first served: nothing is known"
    assert times(replay(now, history=known))[2][0] == 600


def test_what_a_policy_may_know_of_run_times_is_a_word():
    base = config()
    assert variant("as_is", base).config.settings.predict_run_times
    assert variant("declared", base).config.settings.predict_run_times is False
    off = variant("predict_run_times=false", base).config
    assert variant("learned", off).config.settings.predict_run_times
    learned, declared = (ran(trace(*_alike()), config=variant(words, base).config) for words in ("as_is", "declared"))
    assert times(learned) != times(declared)


def _alike():
    """Return short and long jobs of two names, all too wide to run at once."""
    return [job(HOUR // SECOND * (i // 8), 600 if i % 2 else 2400, 4, name=("s", "l")[i % 2 == 0]) for i in range(48)]
