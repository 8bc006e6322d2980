"""Handles of jobs: submitted in every form, waited for, followed, cancelled, shown."""

import re
from collections.abc import Iterator

import pytest

from penstock.api.types import JobView
from penstock.client import Client, JobFailed, ServerNotRunning
from penstock.client.notebook import jobs_html
from penstock.client.requests import JobFields
from penstock.core.config.job_fields import FIELDS
from penstock.core.model.errors import InvalidInput
from penstock.testing.server import InProcessServer

WAIT_S = 30


def pass_time(virtual: InProcessServer, seconds: float) -> None:
    """Let time pass once everything that was submitted is planned and started."""
    virtual.settle()
    virtual.advance(seconds)


@pytest.fixture(scope="module")
def virtual() -> Iterator[InProcessServer]:
    with InProcessServer() as running:
        yield running


@pytest.fixture
def client(virtual) -> Iterator[Client]:
    with Client.connect(virtual.url, token=virtual.token) as made:
        yield made


@pytest.fixture
def real(server) -> Iterator[Client]:
    with Client.connect(data=server.data.root) as made:
        yield made


def test_a_command_is_a_line_or_words_with_the_fields_of_a_job_file(client, virtual):
    job = client.submit("sleep 60", name="naps", devices=2, labels={"a": "b"})
    shown = job.view()
    assert (shown.name, shown.devices_milli, shown.command) == ("naps", 2000, ["/bin/sh", "-c", "sleep 60"])
    assert client.submit(["sleep", "60"]).view().command == ["sleep", "60"]
    virtual.settle()
    assert job.status == "running"


def test_every_field_of_a_job_file_is_a_typed_argument():
    assert set(JobFields.__annotations__) == set(FIELDS) - {"command", "lease", "array", "schedule"}


def test_an_unknown_field_is_named_by_the_server(client):
    with pytest.raises(Exception, match="devcies") as refused:
        client.submit("true", devcies=2)  # type: ignore[call-overload]
    assert "devices" in refused.value.problems[0].hint


def test_a_job_file_gives_a_handle_for_each_of_its_jobs(client, tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text("defaults: {cpus: 1}\njobs: [{command: sleep 5, name: a}, {command: sleep 5, name: b}]\n")
    jobs = client.submit(path, queue="default")
    assert [job.name for job in jobs] == ["a", "b"]
    assert [job.name for job in jobs[1:]] == ["b"]
    with pytest.raises(InvalidInput, match=r"'jobs.yaml' is no command") as refused:
        client.submit("jobs.yaml")
    assert refused.value.hint == "a job file is given as Path('jobs.yaml')"


def test_plain_data_is_sent_as_it_is(client):
    answer = client.submit({"command": "true", "name": "plain"}, idempotency_key="one")
    assert client.submit({"command": "true", "name": "plain"}, idempotency_key="one").repeated
    assert [ref.name for ref in answer.jobs] == ["plain"]
    with pytest.raises(InvalidInput, match="name is given beside plain data"):
        client.submit({"command": "true"}, name="x")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="arguments are for functions"):
        client.submit("echo", "x")  # type: ignore[call-overload]


def test_an_array_ends_as_a_whole(client, virtual):
    jobs = client.submit("sleep 5", array="0-2", name="three")
    assert len(jobs) == 3
    with pytest.raises(TimeoutError, match=r"3 jobs have not ended after 0 s: \d+, \d+, \d+"):
        jobs.wait(0)
    pass_time(virtual, 10)
    assert jobs.wait(WAIT_S) == ["succeeded"] * 3
    assert {job.id for job in jobs.as_completed()} == {job.id for job in jobs}
    assert list(jobs.results()) == [None] * 3


def test_a_cancelled_job_has_no_result(client, virtual):
    jobs = client.submit("sleep 600", array=2)
    jobs.cancel()
    pass_time(virtual, 60)
    assert jobs.wait(WAIT_S) == ["cancelled"] * 2
    with pytest.raises(JobFailed, match="was cancelled") as raised:
        jobs[0].result()
    assert (raised.value.job_id, raised.value.state) == (jobs[0].id, "cancelled")


def test_a_waiting_job_says_why_and_when(client, virtual):
    jobs = client.submit("sleep 60", devices=4, time_limit="2m", array=3)
    virtual.settle()
    waiting = jobs[2]
    assert waiting.status == "waiting"
    assert waiting.explain().state == "waiting"
    assert waiting.eta().id == waiting.id
    assert jobs[0].eta() is None
    jobs.cancel()
    pass_time(virtual, 60)


def test_the_output_comes_while_it_is_written_and_whole(real):
    job = real.submit("echo one; echo two; printf three")
    assert list(job.logs(follow=True)) == ["one", "two", "three"]
    assert list(job.logs()) == ["one", "two", "three"]
    assert job.wait(WAIT_S) == "succeeded"


def test_lines_of_several_replicas_begin_with_their_rank(real):
    job = real.submit("echo here", replicas=2, cpus=1)
    assert sorted(job.logs(follow=True)) == ["[0] here", "[1] here"]
    assert list(job.logs(rank=1)) == ["here"]


def test_a_failed_command_shows_its_last_lines(real):
    with pytest.raises(JobFailed, match=r"job \d+ \(sh\) has failed: .*exit 3") as raised:
        real.submit(["sh", "-c", "echo before; exit 3"]).result(WAIT_S)
    assert raised.value.output == "before"


def view(**of) -> JobView:
    given = {"id": 1, "name": "n", "state": "failed", "reason": "", "nodes": [], "devices_text": "2", **of}
    rest = {name: 0 for name in JobView.__struct_fields__[:23] if name not in given}
    return JobView(**(rest | {"queue": "q", "started_ms": 1_000, "finished_ms": 3_000} | given))


def test_what_others_have_named_is_escaped_in_a_notebook():
    evil = "<script>alert(1)</script>"
    html = jobs_html([view(name=evil, reason=evil, nodes=[evil], queue=evil, state=evil)])
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 5
    assert "<td>2.0s</td>" in html


def test_many_jobs_are_counted_and_the_first_are_shown():
    html = jobs_html([view(id=number) for number in range(30)])
    assert "30 jobs: 30 failed" in html
    assert len(re.findall("<tr>", html)) == 21
    assert "and 10 more" in html


def test_a_notebook_shows_jobs_as_they_are(client, virtual):
    jobs = client.submit("sleep 1", array=5)
    pass_time(virtual, 5)
    assert "5 jobs: 5 succeeded" in jobs._repr_html_()
    assert f"<td>{jobs[0].id}</td>" in jobs[0]._repr_html_()


def test_a_notebook_shows_what_is_known_when_the_server_is_away(client, monkeypatch):
    job = client.submit("true", name="<b>")

    def away(*_, **__):
        raise ServerNotRunning("it is <away>")

    monkeypatch.setattr(client, "_anywhere", away)
    assert job._repr_html_() == f"<p>&lt;Job {job.id} (&lt;b&gt;)&gt;: it is &lt;away&gt;</p>"


def test_a_bar_shows_how_many_have_ended(client, virtual, capsys):
    jobs = client.submit("sleep 1", array=3)
    pass_time(virtual, 5)
    jobs.wait(WAIT_S, progress=True)
    assert "3/3" in capsys.readouterr().err
