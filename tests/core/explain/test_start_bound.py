"""The latest start is one: whatever jobs do within their limits, each has started by then."""

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.explain import explain
from penstock.core.model.jobs import Dependency
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster
from tests.properties import examples

GRACE_MS = 2_000
KEPT = "unknown: capacity is kept for other jobs first"


def submitted(draw):
    """Return a world in which some jobs run, some start and others wait, all with limits and none to be preempted.

    Some wait for the ends of others, or for their turn in an array.
    """
    w = cluster(2, draw.choice((1, 2, 4)))
    for _ in range(draw.randint(2, 9)):
        limit = draw.choice((5_000, 20_000, 60_000))
        shape = (draw.choice((1, 1, 2)), draw.choice((1, 1, 2)))
        devices = min(shape[0], len(w.state.nodes["n0"].spec.devices))
        spec = job_spec(devices, shape[1], time_limit_ms=limit, grace_ms=GRACE_MS, preemptible=False,
                        estimated_duration_ms=draw.choice((0, 1_000)))  # fmt: skip
        live = sorted(w.state.jobs)
        if live and draw.random() < 0.2:
            spec = replace(spec, after=(Dependency(draw.choice(live), "after_any"),))
        array = draw.choice((0, 0, 0, 3))
        w.request(replace(spec, array_parallel=bool(array)), array=array)
        if draw.random() < 0.3:
            begin(w, draw)
            w.tick(draw.randint(0, 5_000))
    begin(w, draw)
    w.cycle()
    return w


def begin(w, draw):
    """Let some of the jobs that have a place run, and the others take their time to start."""
    for job in [job for job in w.state.jobs.values() if job.state == "stopping"]:
        w.leave(job.id)
    w.cycle()
    w.tick(draw.randint(0, 30_000))
    w.start(*(i for i in starting(w) if draw.random() < 0.7))


def starting(w):
    return [job.id for job in w.state.jobs.values() if job.attempt is not None and not job.attempt.running_ms]


def cycle(w):
    w.cycle()
    w.start(*starting(w))


@examples(150)
@given(seed=st.integers(0, 10**9))
def test_every_job_has_started_by_its_bound_however_long_jobs_run(seed):
    draw = random.Random(seed)
    w = submitted(draw)
    found = [explain(w.state, job, w.now) for job in w.state.jobs.values() if job.state == "waiting"]
    bounds = {one.job_id: one.start_by_ms for one in found if one.start_by_ms}
    assert {one.start_note for one in found if not one.start_by_ms and w.job(one.job_id).ready} <= {KEPT}
    w.start(*starting(w))
    while any(job.state == "waiting" for job in w.state.jobs.values()):
        running = [job for job in w.state.jobs.values() if job.attempt is not None]
        ends = {job.id: _end_ms(job, draw, w.now) for job in running}
        job_id, w.now = min(ends.items(), key=lambda item: (item[1], item[0]))
        for replica in w.attempt(job_id).replicas:
            w.exit_replica(job_id, replica.rank)
        cycle(w)
        started = [i for i in bounds if i not in w.state.jobs or w.job(i).state != "waiting"]
        late = {i: w.now - bounds.pop(i) for i in started}
        assert not [i for i, ms in late.items() if ms > 0]


def _end_ms(job, draw, now_ms):
    """Draw an end anywhere up to limit and grace, mostly at the very last."""
    stop = job.attempt.stop
    last = (stop.requested_ms if stop is not None else job.attempt.running_ms + job.spec.time_limit_ms) + GRACE_MS
    return last if draw.random() < 0.7 else draw.randint(now_ms, last)
