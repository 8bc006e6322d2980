"""What is ahead, of a real server: estimates of starts, how right they were, and the process that works them out."""

import asyncio
import itertools
import sys
import threading
from types import SimpleNamespace

import pytest

from penstock.api.types import EtaList
from penstock.control.messages import ImageTaken
from penstock.core.audit import audit
from penstock.core.lifecycle.requests import Submit
from penstock.core.messages.requests import Refusal
from penstock.core.model.answers import PlannedJob
from penstock.core.model.events import AttemptAllocated, AttemptEnded, JobSubmitted, NodeReady, Record
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, UserName
from penstock.core.model.start_text import estimate_text
from penstock.core.order.turns import Submitter
from penstock.core.predict.calibration import Calibration
from penstock.core.state.state import State
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import calling
from penstock.server.services import estimate_process as module
from penstock.server.services.estimate_process import EstimateProcess
from penstock.server.services.estimates import EstimateService, noted_again_ms
from penstock.sim.forecast.worker import ForecastPlan, Started, WhatIfSubmitted, WhenStart
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World
from tests.server.harness import Jobs, Server, cluster_file, until


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    declared = cluster_file(nodes=1, devices=2, estimate_starts_every="200ms")
    with Server(tmp_path_factory.mktemp("quick"), declared) as server:
        yield server


def estimates(server):
    records = server.client.all_events()
    return [(r.event.made_ms, e) for r in records if hasattr(r.event, "estimates") for e in r.event.estimates]


def test_waiting_jobs_are_told_when_they_start(quick):
    jobs = Jobs(quick.client)
    holder = jobs.submit("sleep 60", devices=2, time_limit="2m")
    waiting = [jobs.submit("true", devices=2, time_limit="1m") for _ in range(3)]
    told = until(lambda: [e for e in quick.client.etas(0).jobs if e.id in waiting and e.likely_ms], "an estimate")
    assert {e.id for e in told} <= set(waiting)
    assert all(e.early_ms <= e.likely_ms <= e.late_ms for e in told)
    until(lambda: {e.job_id for _, e in estimates(quick)} >= set(waiting), "estimates in the log")
    quick.client.cancel(holder)
    for job in (holder, *waiting):
        jobs.ended(job)
    assert not quick.client.etas(0).jobs
    score = quick.client.eta_calibration()
    assert score.overall.count >= 3
    assert sum(score.overall.parts) == score.overall.count


def test_a_page_has_the_latest_estimates_at_once_and_newer_ones_are_made_behind_it(quick):
    jobs = Jobs(quick.client)
    holder = jobs.submit("sleep 60", devices=2, time_limit="2m")
    first = jobs.submit("true", devices=2, time_limit="1m")
    until(lambda: [e for e in quick.client.etas(0).jobs if e.id == first], "an estimate")

    def page():
        answer = quick.http("GET", "/api/v1/eta?max_age=0", **{"Cache-Control": "max-stale=600"})
        return {job["id"] for job in answer.json()["jobs"]}

    second = jobs.submit("true", devices=2, time_limit="1m")
    assert first in page()
    until(lambda: second in page(), "the estimate that was made behind the page")
    quick.client.cancel(holder)
    for job in (holder, first, second):
        jobs.ended(job)


def test_lists_say_when_each_waiting_job_is_expected_to_start(quick):
    jobs = Jobs(quick.client)
    holder = jobs.submit("sleep 60", devices=2, time_limit="2m", name="listed-runs")
    waiting = [jobs.submit("true", devices=2, time_limit="1m", name=f"listed-{i}") for i in range(3)]

    def listed():
        found = quick.client.jobs(name="listed-*", sort="starts").jobs
        return found if sum(bool(job.start_likely_ms) for job in found) == 3 else None

    found = until(listed, "estimates in the list")
    for job in (holder, *waiting):
        quick.client.cancel(job)
        jobs.ended(job)
    assert [job.id for job in found] == [*waiting, holder]
    assert sorted(job.start_likely_ms for job in found[:3]) == [job.start_likely_ms for job in found[:3]]
    assert found[3].start_likely_ms == 0


def test_a_log_with_estimates_is_decided_again_as_it_was(quick):
    records = list(quick.client.all_events())
    assert estimates(quick)
    assert all(ruling.lawful for ruling in audit(records))


def asked(world, *wanted):
    return WhenStart(world.state.image(), (), world.now, 5_000, tuple(wanted))


def waiting_world():
    world = World(node("a", 2))
    world.run(world.submit(2, time_limit_ms=60_000))
    return world, world.submit(2)


def test_the_process_answers_and_ends_with_who_asked():
    world, job = waiting_world()
    estimate_process = EstimateProcess()
    try:
        found = estimate_process.ask(asked(world, job))
        assert found.samples == 50
        assert world.now < found.times[job][1] <= world.now + 60_000
        request = Submit((), UserName("ann"))
        assert (
            estimate_process.ask(WhatIfSubmitted(world.state.image(), (), world.now, 5_000, request, {})).plan.jobs
            == []
        )
    finally:
        process = estimate_process._process
        estimate_process.close()
    assert process.poll() is not None
    with pytest.raises(ApiError, match="the server is ending"):
        estimate_process.ask(asked(world, job))


def test_a_process_that_dies_is_said_and_started_anew():
    world, job = waiting_world()
    estimate_process = EstimateProcess()
    estimate_process.ask(asked(world, job))
    estimate_process._process.kill()
    with pytest.raises(ApiError, match="the process that looks ahead died"):
        estimate_process.ask(asked(world, job))
    assert estimate_process.ask(asked(world, job)).samples == 50
    estimate_process.close()


def test_a_process_that_never_lives_is_said():
    world, job = waiting_world()
    with pytest.raises(ApiError, match="died"):
        EstimateProcess((sys.executable, "-c", "pass")).ask(asked(world, job))


def test_a_question_that_fails_is_said_and_the_next_is_answered():
    world, job = waiting_world()
    estimate_process = EstimateProcess()
    with pytest.raises(ApiError, match="cannot be estimated: KeyError"):
        estimate_process.ask(asked(world, job + 1_000))
    assert estimate_process.ask(asked(world, job)).samples == 50
    estimate_process.close()


def test_no_time_gives_no_sample():
    world, job = waiting_world()
    estimate_process = EstimateProcess()
    found = estimate_process.ask(WhenStart(world.state.image(), (), world.now, -1, (job,)))
    assert (found.samples, found.times[job]) == (0, (0, 0, 0))
    estimate_process.close()


def test_an_empty_state_has_nothing_ahead():
    estimate_process = EstimateProcess()
    assert estimate_process.ask(WhenStart(State().image(), (), 1, 1_000, ())).times == {}
    estimate_process.close()


def test_what_is_said_is_noted_more_seldom_the_longer_a_job_waits():
    minute, noted = 60_000, [0]
    while noted[-1] < 14 * 24 * 60 * minute:
        noted.append(noted_again_ms(noted[-1], 0))
    assert noted[1:3] == [10 * minute, 20 * minute]
    assert len(noted) < 25


def test_what_others_print_is_no_answer(tmp_path):
    world, job = waiting_world()
    script = "import penstock.sim.forecast.worker as f; old = f.answer\n"
    script += "def loud(q):\n    print('x' * 20_000, flush=True)\n    return old(q)\n"
    script += "f.answer = loud\nf.main()"
    estimate_process = EstimateProcess((sys.executable, "-c", script))
    assert estimate_process.ask(asked(world, job)).samples == 50
    estimate_process.close()


@pytest.mark.parametrize("said", ["text that is no message at all", "\\0" * 7 + "\\1x"])
def test_an_answer_that_is_none_ends_the_process(said):
    world, job = waiting_world()
    estimate_process = EstimateProcess(("sh", "-c", f"printf '{said}'; cat > /dev/null"))
    with pytest.raises(ApiError, match="died"):
        estimate_process.ask(asked(world, job))
    assert estimate_process._process is None


def test_a_process_that_never_answers_is_ended(monkeypatch):
    world, job = waiting_world()
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    estimate_process = EstimateProcess(("sleep", "60"))
    with pytest.raises(ApiError, match="died"):
        estimate_process.ask(WhenStart(world.state.image(), (), world.now, 100, (job,)))


def test_a_plan_is_corrected_as_the_estimates_of_waiting_jobs_are():
    now, sampled = 10**12, (10**12 + 60_000, 10**12 + 120_000, 10**12 + 240_000)
    planned = PlannedJob("j", 1, False, (), (), *sampled, samples=50, started=50, text="")
    found = EstimateService(None, EstimateProcess())._corrected(planned, now)
    given = Calibration().corrected(sampled, now)
    assert given != sampled
    assert (found.start_p10_ms, found.start_p50_ms, found.start_p90_ms) == given
    assert found.text == f"waits: starts {estimate_text(now, *given)}"


def test_what_was_submitted_lately_is_taken_into_account():
    """The log tells what was submitted; the process plays a state on with days like those."""
    day_ms = 86_400_000
    world, job = waiting_world()
    urgent = job_spec(2, priority=900)
    records = [Record(1, world.now - 3 * day_ms, NodeReady(NodeName("a")))]
    for number in range(150):
        at_ms, job_id = world.now - 3 * day_ms + number * day_ms // 50, JobId(1_000 + number)
        records.append(Record(1, at_ms, JobSubmitted(job_id, urgent, UserName("ann"))))
        records.append(Record(2, at_ms + 1, AttemptAllocated(job_id, AttemptNumber(1), ())))
        records.append(Record(3, at_ms + 1 + day_ms // 50, AttemptEnded(job_id, AttemptNumber(1), "succeeded")))
    log = SimpleNamespace(finished_jobs=lambda _: (), records=lambda seq, _: () if seq else records)
    clock = SimpleNamespace(unix_ms=lambda: world.now, monotonic_ms=lambda: 0)
    asked_of = EstimateProcess()
    backend = SimpleNamespace(log=log, clock=clock, durable_seq=0)
    samples, (estimate,) = EstimateService(backend, asked_of)._estimates(world.state.image(), (job,), world.now)
    asked_of.close()
    assert samples
    assert estimate.sampled[1] > world.now + 2 * 3_600_000 or not estimate.sampled[1]


class Asked:
    """Stands for a simulation process: it answers once it may."""

    def __init__(self, reply):
        self.begun, self.may, self.questions, self._reply = threading.Event(), threading.Event(), [], reply

    def ask(self, question):
        self.questions.append(type(question).__name__)
        self.begun.set()
        assert self.may.wait(10)
        return self._reply


def test_a_plan_waits_for_no_look_and_many_who_ask_alike_share_the_next():
    world, job = waiting_world()

    async def ask(_):
        return ImageTaken(world.state.image())

    log = SimpleNamespace(finished_jobs=lambda _: (), records=lambda *_: (), outcomes=lambda _: {})
    clock = SimpleNamespace(unix_ms=lambda: next(ticks), monotonic_ms=lambda: 0)
    ticks = itertools.count(world.now)
    backend = SimpleNamespace(log=log, clock=clock, durable_seq=0, state=world.state, ask=ask)
    looks, plans = Asked(Started(1, {job: (0, 0, 0)})), Asked(ForecastPlan(refusal=Refusal("conflict", "no")))
    service = EstimateService(backend, looks, plans)
    plans.may.set()

    async def play():
        calling.set(Submitter("red", "reader"))
        polls = [asyncio.ensure_future(service.look(0)) for _ in range(12)]
        await asyncio.to_thread(looks.begun.wait)
        calling.set(Submitter("blue", "ann"))
        assert (await service.plan(Submit((), UserName("ann")))).code == "conflict"
        looks.may.set()
        return await asyncio.gather(*polls, return_exceptions=True)

    answers = asyncio.run(play())
    assert [len(one.jobs) for one in answers if isinstance(one, EtaList)] == [1, 1, 1]
    assert [one.details.code for one in answers if isinstance(one, ApiError)] == ["too_many_requests"] * 9
    assert looks.questions == ["WhenStart"] * 2
