"""Following a live job: from where its output is, to its end or the reader's leave."""

import signal

import pytest

from tests.server.harness import Jobs, until

WAITS = "echo before; touch {started}; while [ ! -e {go} ]; do sleep 0.02; done; echo after; exit 5"


@pytest.fixture
def gate(tmp_path):
    """Two files: the job makes the first, and ends once it sees the second."""
    return tmp_path / "started", tmp_path / "go"


@pytest.fixture
def job(penstock, server, gate):
    started, go = gate
    made = penstock.job("sh", "-c", WAITS.format(started=started, go=go))
    until(lambda: started.exists() and server.client.outputs(made), "it has written")
    until(lambda: server.client.outputs(made)[0].size_bytes == len("before\n"), "the agent has passed it on")
    yield made
    go.touch()
    Jobs(server.client).ended(made)


def begun(penstock, *words):
    """Return a process that has attached, and its greeting."""
    process = penstock.begin("attach", *words)
    return process, process.stderr.readline()


def test_what_comes_is_printed_and_the_code_is_the_job_s(penstock, job, gate):
    process, greeting = begun(penstock, str(job))
    gate[1].touch()
    out, err = process.communicate(timeout=60)
    assert greeting.startswith(f"penstock: job {job} (sh) is running for ")
    assert greeting.endswith("; Ctrl-C detaches, the job goes on\n")
    assert (process.returncode, out) == (5, "after\n")
    assert err.startswith(f"penstock: job {job} failed: ")


def test_the_last_lines_before_are_printed_where_they_are_asked_for(penstock, job, gate):
    process, _ = begun(penstock, str(job), "--tail", "9", "--rank", "0")
    gate[1].touch()
    assert process.communicate(timeout=60)[0] == "before\nafter\n"


def test_an_interrupt_leaves_the_job_running_and_says_how_to_come_back(penstock, server, job):
    process, _ = begun(penstock, str(job), "--rank", "0")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == f"\npenstock: detached; job {job} goes on. Come back with: penstock attach {job} --rank 0\n"
    assert server.client.job(job).state == "running"


def test_a_job_that_is_over_is_not_followed(penstock, server):
    made = penstock.job("true")
    Jobs(server.client).ended(made)
    told = penstock("attach", str(made))
    assert (told.code, told.out) == (2, "")
    assert told.err.splitlines()[1] == f"  hint: penstock logs {made}"


def test_a_rank_that_the_job_does_not_have_is_said(penstock, job):
    told = penstock("attach", str(job), "--rank", "3")
    assert (told.code, "has no rank 3" in told.err) == (5, True)
