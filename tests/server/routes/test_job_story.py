"""What became of one job: attempts with their ranks, series, and lines of its outputs."""

import sys
from collections.abc import Iterator

import pytest

from penstock.api.jobs import Point
from penstock.client import ApiProblem
from penstock.core.model import events as ev
from penstock.server.views.story import POINTS_MAX, attempt_list, series_list, thinned
from penstock.testing.harness import cluster, note
from penstock.testing.server import InProcessServer
from tests.server.harness import SOURCES, until

OUTPUT = "import sys\nfor i in range(5000):\n    print('step', i)\nprint('Error: out of 内存')\nprint('step end')"


TRAINS = """
from penstock import training
with training.session() as run:
    for step in run.steps(5):
        run.report(loss=(4.0, 2.0, float("nan"), 1.0, 0.5)[step], **{"eval/accuracy": step / 4})
        run._reporter._last_progress_s = -1e9  # each report is written, however fast
"""


@pytest.fixture(scope="module")
def calm() -> Iterator[InProcessServer]:
    with InProcessServer() as server:
        yield server


@pytest.fixture
def printed(jobs):
    job = jobs.submit(["python3", "-c", OUTPUT], name="printed")
    assert jobs.ended(job).state == "succeeded"
    return job


def test_attempts_say_when_they_ran_where_and_why_they_ended(calm):
    job = calm.submit({"command": "sleep 600", "devices": 4, "replicas": 2})
    calm.advance(60)
    calm.client.act("requeue_hold", {"ids": [str(job)]})
    calm.advance(60)
    calm.client.act("release", {"ids": [str(job)]})
    calm.advance(700)
    found = calm.client.attempts(job)
    first, second = found.attempts
    assert (first.number, first.outcome, first.asked_reason, first.requeued) == (1, "requeued", "requeued", True)
    assert (first.replicas, first.devices, sorted(first.nodes)) == (2, 8, ["n1", "n2"])
    assert found.submitted_ms <= first.allocated_ms <= first.running_ms < first.asked_ms <= first.ended_ms
    assert (second.outcome, found.state, found.finished_ms) == ("succeeded", "succeeded", second.ended_ms)
    assert [(wait.from_ms, wait.until_ms) for wait in found.waits][1:] == [(first.ended_ms, second.allocated_ms)]
    assert (found.ranks_of, [(rank.rank, rank.node, rank.exit) for rank in found.ranks]) == (
        2,
        [(0, "n1", "exit 0"), (1, "n2", "exit 0")],
    )
    assert calm.client.attempts(job, 1).ranks[0].ended_ms == first.ended_ms


def test_the_size_of_a_job_over_time_is_a_series(calm):
    job = calm.submit({"command": "sleep 600", "devices": 2})
    calm.advance(700)
    found = calm.client.series(job)
    (devices,) = [one for one in found.series if one.name == "devices"]
    assert ([point.value for point in devices.points], devices.unit) == ([2, 0], "devices")
    assert devices.points[1].time_ms - devices.points[0].time_ms >= 600_000
    assert found.until_ms == devices.points[1].time_ms


def test_what_programs_told_is_shown_in_units_and_no_more_points_than_a_page_can_use():
    w = cluster(1)
    job = w.submit(1)
    w.run(job)
    for step in range(1, 2 * POINTS_MAX):
        w.now += 1_000
        note(w, job, step, step_ms={77: 9_000, 99: 5}.get(step, 100), data_wait_milli=250, total_steps=5_000)
    records = [r for r in w.records if getattr(r.event, "job_id", None) == job]
    found = series_list(records, w.now)
    by_name = {one.name: one for one in found.series}
    assert (found.total_steps, by_name["data_wait"].points[0].value) == (5_000, 0.25)
    assert by_name["step"].points[-1] == Point(w.now, 2 * POINTS_MAX - 1)
    values = [point.value for point in by_name["step_ms"].points]
    assert (min(values), max(values)) == (5, 9_000), "peaks stay"
    assert all(len(one.points) <= POINTS_MAX for one in found.series)
    assert "memory_bytes" not in by_name


def test_points_are_thinned_in_the_order_of_time():
    points = [Point(i, (i * 7919) % 101) for i in range(1_234)]
    times = [point.time_ms for point in thinned(points, 100)]
    assert times == sorted(set(times))
    assert 50 <= len(times) <= 100


def test_for_whom_a_job_made_room_is_shown_to_those_who_see_that_job():
    w = cluster(1)
    job = w.submit(1)
    w.run(job)
    w.emit(ev.AttemptStopRequested(job, 1, "preempted", 1_000, beneficiary=77))
    records = [r for r in w.records if getattr(r.event, "job_id", None) == job]
    assert [attempt_list(records, 0, lambda _, s=sees: s).attempts[0].beneficiary for sees in (True, False)] == [
        77,
        None,
    ]


def test_what_a_program_reports_is_drawn_also_once_it_has_ended(jobs):
    job = jobs.submit([sys.executable, "-c", TRAINS], env={"PYTHONPATH": SOURCES})
    assert jobs.ended(job).state == "succeeded"
    found = jobs.client.reported(job)
    loss, accuracy = found.metrics[:2]
    assert (loss.name, loss.last, loss.lowest, loss.highest) == ("loss", 0.5, 0.5, 4)
    (line,) = loss.lines
    assert (line.steps, line.values) == ([1, 2, 3, 4, 5], [4, 2, None, 1, 0.5])
    assert line.not_finite == [0, 0, 1, 0, 0]
    assert line.times_ms == sorted(line.times_ms)
    assert (accuracy.name, accuracy.lines[0].values) == ("eval/accuracy", [0, 0.25, 0.5, 0.75, 1])
    assert (found.rank, found.ranks, found.attempts, found.read_bytes) == (0, [0], [1], found.size_bytes)
    assert jobs.client.reported(job, 1).metrics == []


def test_an_answer_that_is_kept_does_not_outlive_the_job(jobs, tmp_path):
    say = r'echo "{\"kind\":\"progress\",\"step\":1,\"loss\":1}" >> "$PENSTOCK_REPORT_FILE"'
    job = jobs.submit(f"{say}; until [ -e {tmp_path / 'go'} ]; do sleep 0.01; done; {say}")
    until(lambda: jobs.client.reported(job).metrics, "the first report is drawn")
    (tmp_path / "go").touch()
    while jobs.client.job(job).state != "succeeded":
        jobs.client.reported(job)
    assert len(jobs.client.reported(job).metrics[0].lines[0].steps) == 2


def test_lines_are_found_from_the_end_and_a_cursor_goes_on(jobs, printed):
    found = jobs.client.search_log(printed, 1, 0, "step", limit=2)
    assert [line.text for line in found.lines] == ["step end", "step 4999"]
    more = jobs.client.search_log(printed, 1, 0, "step", limit=1, before=found.next_before)
    assert [line.text for line in more.lines] == ["step 4998"]
    (error,) = jobs.client.search_log(printed, 1, 0, r"^error.*内", regex="true", ignore_case="true").lines
    assert (error.text, error.text[error.begin : error.end]) == ("Error: out of 内存", "Error: out of 内")
    nothing = jobs.client.search_log(printed, 1, 0, "no such text")
    assert (nothing.lines, nothing.next_before, nothing.searched_bytes) == ([], 0, nothing.size_bytes)


def test_the_last_lines_of_an_output_come_with_its_size(server, printed):
    path = f"/api/v1/jobs/{printed}/logs?attempt=1&lines=2"
    last = server.http("GET", path)
    where, size = (int(last.headers[f"x-penstock-{name}"]) for name in ("offset", "size"))
    assert (last.body.decode(), where + len(last.body)) == ("Error: out of 内存\nstep end\n", size)
    assert server.http("GET", f"{path}&before={where}").body == b"step 4998\nstep 4999\n"


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [({"regex": "true", "text": "a("}, 422, "q"), ({"rank": 3, "text": "a"}, 404, ""), ({"text": "a\nb"}, 422, "q")],
)
def test_what_cannot_be_searched_is_refused(jobs, printed, query, status, field):
    with pytest.raises(ApiProblem) as refused:
        jobs.client.search_log(printed, 1, query.pop("rank", 0), query.pop("text"), **query)
    assert refused.value.details.status == status
    assert [problem.field for problem in refused.value.problems] == ([field] if field else [])
