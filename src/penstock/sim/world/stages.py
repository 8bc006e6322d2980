"""Arrays that wait for arrays, in some worlds: the effect of each dependency is checked against the log."""

import random
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from penstock.core.lifecycle.ending import dependency_met
from penstock.core.model.events import AttemptAllocated, JobFinished, JobSubmitted, Record
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import DependencyKind, JobSpec, JobState
from penstock.sim.world.programs import random_behaviour

REQUESTS = (1, 2, 3)
BY_DEPENDENCY = "dependency "
"""Begins the reason of a job that was cancelled because it could never start."""


def stages_of(seed: int) -> random.Random | None:
    """Return the generator of the arrays of a seed's world: of every fifth, and none that found a bug before these."""
    return random.Random(f"{seed} stages") if seed % 5 == 1 else None


def staged_request(rng: random.Random, tenants: list[str]) -> list[dict[str, Any]]:
    """Return a request whose entries wait for earlier ones; two may have one name, together or apart."""
    entries: list[dict[str, Any]] = []
    for stage in range(rng.randint(2, 4)):
        for _ in range(rng.choice((1, 1, 2))):
            entry: dict[str, Any] = {
                "name": f"s{stage}",
                "command": list(random_behaviour(rng).command()),
                "tenant": rng.choice(tenants),
                "queue": rng.choice(("a", "b", "c")),
                "cpus": rng.choice((0, 1)),
                "retries": rng.choice((0, 1)),
                "grace": 1,
            }
            if rng.random() < 0.8:
                entry["array"] = rng.randint(1, 5)
            if stage:
                kind = rng.choice(get_args(DependencyKind))
                entry[kind] = [f"s{earlier}" for earlier in range(stage) if earlier == stage - 1 or rng.random() < 0.3]
            entries.append(entry)
    rng.shuffle(entries)
    return entries


def dependency_violations(records: Iterable[Record]) -> Iterator[str]:
    """Yield each attempt that started too early, and each end that the job's dependencies do not explain."""
    specs: dict[JobId, JobSpec] = {}
    ended: dict[JobId, JobState] = {}
    for event in (record.event for record in records):
        if isinstance(event, JobSubmitted):
            specs[event.job_id] = event.spec
        elif isinstance(event, AttemptAllocated):
            for job_id, state, met in _dependencies(specs[event.job_id], ended):
                if state is None or not met:
                    yield f"job {event.job_id} was started, and job {job_id}, which it waits for, is {state or 'live'}"
        elif isinstance(event, JobFinished):
            broken = [job_id for job_id, state, met in _dependencies(specs[event.job_id], ended) if state and not met]
            if event.reason.startswith(BY_DEPENDENCY) and not broken:
                yield f"job {event.job_id} was cancelled ({event.reason}), and its dependencies can be met"
            if broken and event.state != "cancelled":
                yield f"job {event.job_id} {event.state} though job {broken[0]} ended otherwise than it asks for"
            ended[event.job_id] = event.state


def _dependencies(spec: JobSpec, ended: dict[JobId, JobState]) -> Iterator[tuple[int, JobState | None, bool]]:
    """Yield each job that a job depends on, its final state (None: live), and whether it can meet the dependency."""
    for one in spec.after:
        for job_id in one.jobs:
            state = ended.get(JobId(job_id))
            yield job_id, state, state is None or dependency_met(one.kind, state)


def arrays_awaited(records: Iterable[Record]) -> int:
    """Return how many jobs waited for more than one job by one dependency."""
    events = (record.event for record in records)
    return sum(isinstance(e, JobSubmitted) and any(one.count > 1 for one in e.spec.after) for e in events)
