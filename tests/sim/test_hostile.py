"""What a hostile user of a simulated world may cost is judged from its log, and from what refusals made the core do."""

import tomllib
from pathlib import Path

import pytest

from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.lifecycle.size import RequestBounds
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.errors import Problem
from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.jobs import Dependency
from penstock.sim.world.hostile import is_hostile, left_behind, oversize, pushed_out
from penstock.sim.world.planted import planted
from penstock.sim.world.world import World
from penstock.testing.builders import job_spec

AFTER = (Dependency(1, "after_ok"), Dependency(2, "after_ok", 3))


def log(*events):
    return [Record(seq, 0, event) for seq, event in enumerate(events, start=1)]


def made(job_id, key="", batch=1, **fields):
    return JobSubmitted(job_id, job_spec(**fields), "h", idempotency_key=key, digest=key, batch=batch)


@pytest.mark.parametrize(
    ("bounds", "what"),
    [
        (RequestBounds(jobs=1), "2 jobs, at most 1"),
        (RequestBounds(dependencies_of_job=1), "2 dependencies of one job, at most 1"),
        (RequestBounds(dependencies=3), "4 dependencies of its entries, at most 3"),
        (RequestBounds(dependencies_of_all=3), "4 dependencies, at most 3"),
        (RequestBounds(job_bytes=10), "bytes of one job, at most 10"),
        (RequestBounds(log_bytes=100), "bytes, at most 100"),
    ],
)
def test_each_request_of_the_log_is_counted_once_more(bounds, what):
    records = log(made(1, "h/1", 2, after=AFTER), made(2, after=AFTER), made(3, "h/2"))
    found = [text for text in oversize(records, bounds) if "request h/1 " in text]
    assert len(found) == 1
    assert what in found[0]
    assert (
        list(oversize(records, RequestBounds(jobs=2, dependencies_of_job=2, dependencies=4, dependencies_of_all=4)))
        == []
    )


def test_a_job_beyond_its_request_is_named():
    assert list(oversize(log(made(1, "h/1"), made(2)), RequestBounds())) == ["job 2 belongs to no request"]


def test_what_a_refused_request_left_is_found_by_its_key_and_digest():
    assert left_behind(log(made(1, "h/1"), made(2, "h/2")), "h/2", "h/2") == [2]
    assert left_behind(log(made(1, "h/1")), "h/1", "another") == []


def test_many_keys_of_one_user_push_out_their_own():
    flood = [made(2 + i, f"h/{i}") for i in range(9)]
    assert pushed_out(log(made(1, "key-1"), *flood), ["key-1"]) == []
    assert pushed_out(log(made(1, "x/1"), *(made(2 + i, f"x/{i + 2}") for i in range(9))), ["x/1"]) == ["x/1"]


def test_a_request_that_is_refused_for_its_size_may_cost_no_trial():
    world = World(0)
    jobs = (NewJob(job_spec()),)
    world.hostile.worked([Submit(jobs, "h")], [Submitted((1,))], 1)
    assert world.violations == []
    world.hostile.worked([Submit(jobs, "h")], [Refusal("invalid_input", (Problem("too_large", "", ""),))], 1)
    assert world.violations == ["at 0 ms: 1 shapes were tried for requests that may cost 0"]


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        ("limit_measured_before_names", "dependencies of one job, at most 8"),
        ("rule_checked_after_work", "was refused (['too"),
        ("rule_checked_after_work", "shapes were tried for requests that may cost"),
    ],
)
def test_a_rule_that_comes_too_early_or_too_late_is_found_for_what_it_lets_through(bug, what):
    seeds = (seed for seed in range(100) if is_hostile(seed))
    with planted(bug):
        assert any(what in text for seed in seeds for text in World(seed).run().violations)


def test_honest_requests_are_refused_by_no_limit_of_a_hostile_world():
    world = World(0)
    assert world.run().violations == ()
    assert {key for key in world.clients.accepted if key.startswith("honest-")} == {f"honest-{i}" for i in range(5)}
    world.clients.refused["key-x"] = "Refusal(code='invalid_input', problems=(Problem(code='share_used_up'),))"
    assert any("honest request key-x was refused" in text for text in world.hostile.violations(world.disk.records))


def test_worlds_that_found_a_bug_before_have_no_hostile_user():
    seeds = tomllib.loads((Path(__file__).parents[1] / "seeds.toml").read_text())["seeds"]
    assert [seed for seed in seeds if is_hostile(seed)] == []
