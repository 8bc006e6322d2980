"""Estimates take into account that more jobs will be submitted, as on the days before."""

import random

from msgspec.structs import replace

from penstock.core.model.ids import JobId, UserName
from penstock.core.predict.arrivals import DAY_MS, Arrival
from penstock.sim.forecast.further_jobs import FURTHER_MAX, further_jobs
from penstock.sim.forecast.outlook import BUNDLE_PART, EXACT_MOMENTS, declared_lengths, outlook
from penstock.testing.builders import job_spec, queues
from penstock.testing.harness import cluster

HOUR = 3_600_000


def arrival(w, number, before_ms, devices=4, length_ms=HOUR, **fields):
    spec = replace(job_spec(devices, **fields), command=())
    return Arrival(JobId(number), w.now - before_ms, spec, UserName("ann"), length_ms, length_ms, length_ms)


def drawn(w, days, *, seed=0, live=None, weary=lambda: False, most=10):
    found = further_jobs(days, w.state, w.now, random.Random(seed), lambda job_id: (live or {}).get(job_id, 0), weary)
    return [job for job, _ in zip(found, range(most), strict=False)]


def thrice(w, *day):
    return tuple([replace(one, submitted_ms=one.submitted_ms - back * DAY_MS) for one in day] for back in range(3))


def test_a_day_comes_again_whole_and_at_its_time():
    w = cluster(1, 4)
    today = [arrival(w, 1, DAY_MS - HOUR), arrival(w, 2, 2 * HOUR)]
    before = [arrival(w, 3, 2 * DAY_MS - 3 * HOUR)]
    seen = set()
    for seed in range(40):
        jobs = drawn(w, (today, before, []), seed=seed)
        assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)
        hours = tuple((job.submit_ms - w.now) // HOUR % 24 for job in jobs if job.submit_ms < w.now + DAY_MS)
        assert hours in ((1, 22), (3,), ())
        seen.add(hours)
    assert len(seen) == 3
    assert drawn(w, (today, before, [])) == drawn(w, (today, before, []))


def test_one_day_in_four_is_empty_where_three_are_known():
    w = cluster(1, 4)
    days = thrice(w, arrival(w, 1, HOUR))
    times = [(job.submit_ms - w.now) // DAY_MS for job in drawn(w, days, most=3_000)]
    assert len(set(times)) == len(times)
    assert 0.72 < len(times) / (1 + times[-1]) < 0.78


def test_two_days_are_too_few_to_go_by():
    w = cluster(1, 4)
    assert drawn(w, thrice(w, arrival(w, 1, HOUR))[:2]) == []


def test_one_that_still_runs_is_as_long_as_this_sample_says():
    w = cluster(1, 4)
    days = thrice(w, arrival(w, 1, 3 * HOUR, length_ms=5), arrival(w, 2, HOUR, length_ms=0), arrival(w, 3, HOUR))
    assert {job.work.run_ms for job in drawn(w, days, live={1: 9})} == {HOUR, 9}


def test_one_of_a_queue_that_is_gone_does_not_come_again():
    w = cluster(1, 4, queues=queues("left"))
    days = thrice(w, arrival(w, 1, 3 * HOUR, queue="left"), arrival(w, 2, 2 * HOUR, queue="gone"))
    assert {job.spec.queue for job in drawn(w, days)} == {"left"}


def test_what_comes_is_bounded():
    w = cluster(1, 4)
    days = thrice(w, *[arrival(w, i, HOUR) for i in range(100)])
    assert len(drawn(w, days, most=10 * FURTHER_MAX)) == FURTHER_MAX
    assert drawn(w, ()) == drawn(w, ([], [], [])) == []
    polls = iter([False, False, True])
    assert len(drawn(w, days, weary=lambda: next(polls))) == 2


def overtaken():
    """Return a world that is full for an hour, a long job that waits for that, and a day of short ones every hour."""
    w = cluster(1, 4)
    w.run(w.submit(4, estimated_duration_ms=HOUR, preemptible=False))
    waits = w.submit(4, estimated_duration_ms=20 * HOUR)
    day = [arrival(w, 100 + i, DAY_MS - i * HOUR // 2, priority=900) for i in range(1, 20)]
    return w, waits, thrice(w, *day)


def likely_h(w, job_id, samples=3, **options):
    found = outlook(w.state.image(), [job_id], w.now, declared_lengths, samples=samples, **options)[job_id]
    return (found.quantile_ms(0.5) - w.now) / HOUR


def test_who_is_overtaken_by_jobs_still_to_come_is_told_so():
    w, waits, days = overtaken()
    assert likely_h(w, waits) == 1
    assert 19 < likely_h(w, waits, 5, days=days) < 21


def test_a_first_sample_that_takes_long_ends_without_further_jobs():
    w, waits, days = overtaken()
    assert likely_h(w, waits, samples=1, days=days, spent=lambda: 0.6) == 1


def test_where_much_happens_starts_come_little_later_for_being_decided_together():
    w = cluster(1, 4)
    for _ in range(2 * EXACT_MOMENTS):
        w.submit(4, estimated_duration_ms=HOUR // 60, preemptible=False)
    last = w.submit(4)
    exact_h = 2 * EXACT_MOMENTS / 60
    assert exact_h < likely_h(w, last, samples=1) < exact_h * (1 + BUNDLE_PART)
