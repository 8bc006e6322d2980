"""Short ways to drive a world through many cycles: what was started runs, what was asked to stop leaves."""

from typing import Any

from penstock.core.model.events import ProgressNoted
from penstock.core.model.progress import Gauges
from tests.core.builders import World


def follow(w: World) -> None:
    """Report starts as running, and let whoever was asked to stop save and leave."""
    for job in sorted([*w.state.jobs.values()], key=lambda j: j.id):
        if job.state == "starting":
            w.start(job.id)
        elif job.state == "stopping":
            w.leave(job.id)


def cycles(w: World, count: int, pause_ms: int = 1_000) -> list[tuple[int, int, str]]:
    """Run cycles, everything asked for done at once; return (victim, beneficiary, rule) of every preemption."""
    asked = []
    for _ in range(count):
        found = w.cycle()
        asked += [(p.victim, p.beneficiary, p.rule) for p in found.preemptions]
        follow(w)
        w.now += pause_ms
    return asked


def running(w: World) -> set[int]:
    return {job.id for job in w.state.jobs.values() if job.attempt is not None}


def finish(w: World, job_id: int) -> None:
    """End a job whose replicas have all started."""
    for rank in range(len(w.job(job_id).attempt.replicas)):
        w.exit_replica(job_id, rank)


def use(w: World, *queue_names: str) -> int:
    """Return whole devices held by jobs of these queues."""
    held = [j for j in w.state.jobs.values() if j.attempt is not None and j.spec.queue in queue_names]
    return sum(len(r.place.devices) for j in held for r in j.attempt.replicas if r.holds)


def note(w: World, job_id: int, step: int = 1, **gauges: Any) -> None:
    """Let the program of a job that runs tell how it does."""
    attempt = w.job(job_id).attempt
    assert attempt is not None
    w.emit(ProgressNoted(job_id, attempt.number, step, Gauges(**gauges)))
