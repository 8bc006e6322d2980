"""What a simulated world says of dependencies on arrays is judged from its log alone."""

import random

import pytest

from penstock.core.config.job import parse_request
from penstock.core.model.events import AttemptAllocated, JobFinished, JobSubmitted, Record
from penstock.core.model.jobs import Dependency
from penstock.sim.world.stages import arrays_awaited, dependency_violations, staged_request, stages_of
from penstock.testing.builders import job_spec

MADE = (JobSubmitted(1, job_spec(), "u", 1), JobSubmitted(2, job_spec(), "u", 1, 1))
WHY = "dependency after_ok 1 cannot be met: job 1 failed"


def judged(kind, *events):
    after = (Dependency(1, kind, 2),)
    log = (*MADE, JobSubmitted(3, job_spec(after=after), "u"), *events)
    return list(dependency_violations(Record(seq, 0, event) for seq, event in enumerate(log, start=1)))


def ends(*states):
    return [JobFinished(job_id, state) for job_id, state in enumerate(states, start=1)]


def start():
    return AttemptAllocated(3, 1, ())


@pytest.mark.parametrize(
    ("kind", "events", "found"),
    [
        ("after_ok", [*ends("succeeded", "succeeded"), start(), JobFinished(3, "failed")], []),
        ("after_ok", [*ends("failed"), JobFinished(3, "cancelled", WHY)], []),
        ("after_any", [*ends("failed", "cancelled"), start()], []),
        ("after_any", [*ends("failed"), start()], ["job 3 was started, and job 2, which it waits for, is live"]),
        ("after_failed", [*ends("failed", "succeeded"), start()],
         ["job 3 was started, and job 2, which it waits for, is succeeded"]),
        ("after_any", [*ends("failed"), JobFinished(3, "cancelled", WHY)],
         [f"job 3 was cancelled ({WHY}), and its dependencies can be met"]),
        ("after_ok", [*ends("failed"), JobFinished(3, "failed")],
         ["job 3 failed though job 1 ended otherwise than it asks for"]),
    ],
)  # fmt: skip
def test_attempts_and_ends_have_to_follow_from_dependencies(kind, events, found):
    assert judged(kind, *events) == found


def test_requests_of_stages_can_be_submitted_and_wait_for_arrays():
    rng, arrays = random.Random(1), 0
    for _ in range(200):
        raw = staged_request(rng, ["t"])
        entries, problems = parse_request(raw)
        assert problems == []
        arrays += any(entry.after_names and entry.array > 1 for entry in entries)
    assert arrays > 100


def test_worlds_that_found_a_bug_before_there_were_stages_have_none():
    import tomllib
    from pathlib import Path

    seeds = tomllib.loads((Path(__file__).parents[1] / "seeds.toml").read_text())["seeds"]
    with_stages = [1866]  # found in its world as it is
    assert [seed for seed in seeds if stages_of(seed) is not None] == with_stages
    assert stages_of(1) is not None


def test_arrays_that_are_awaited_are_counted():
    log = [Record(1, 0, JobSubmitted(3, job_spec(after=(Dependency(1, "after_ok", n),)), "u")) for n in (1, 2, 9)]
    assert arrays_awaited(log) == 2
