"""Which outputs are printed: those of the newest attempt and what follows it, and nothing twice."""

import json

import pytest

from tests.server.harness import Jobs, until

TWICE = 'for n in 1 2 3 4 5; do echo "attempt $PENSTOCK_ATTEMPT line $n"; done; [ $PENSTOCK_ATTEMPT = 2 ]'
SECOND = [f"attempt 2 line {n}" for n in range(1, 6)]


@pytest.fixture
def job(server):
    """A job that fails once and succeeds in its second attempt."""
    made = server.client.submit({"command": ["sh", "-c", TWICE], "retries": 1, "cpus": 1}).jobs[0].id
    assert Jobs(server.client).ended(made).attempt == 2
    return str(made)


@pytest.mark.parametrize("words", [(), ("-f",)], ids=["once", "follow"])
def test_only_the_newest_attempt_is_printed(penstock, job, words):
    assert penstock("logs", job, *words).out.splitlines() == SECOND


def test_an_earlier_attempt_is_printed_when_it_is_named(penstock, job):
    assert penstock("logs", job, "--attempt", "1").out.splitlines()[0] == "attempt 1 line 1"


def test_following_continues_with_later_attempts(penstock, server):
    go = server.root / "go"
    waits = f"{TWICE} || {{ while [ ! -e {go} ]; do sleep 0.02; done; exit 1; }}"
    made = server.client.submit({"command": ["sh", "-c", waits], "retries": 1, "cpus": 1}).jobs[0].id
    until(lambda: server.client.outputs(made), "it writes")
    with penstock.begin("logs", "-f", str(made)) as follower:
        lines = [follower.stdout.readline() for _ in range(5)]
        go.touch()
        lines += follower.stdout.readlines()
    assert lines == [f"{line}\n" for line in (*(f"attempt 1 line {n}" for n in range(1, 6)), *SECOND)]


@pytest.mark.parametrize(("count", "shown"), [("2", SECOND[-2:]), ("0", []), ("99", SECOND)])
def test_the_last_lines_are_enough(penstock, job, count, shown):
    assert penstock("logs", job, "--tail", count).out.splitlines() == shown


def test_the_last_lines_of_a_long_output_are_found_from_its_end(penstock, server):
    made = penstock.job("sh", "-c", "seq 1 60000")
    Jobs(server.client).ended(made)
    assert penstock("logs", str(made), "-n", "20000").out.splitlines() == [str(n) for n in range(40_001, 60_001)]


def test_lines_are_objects_for_programs(penstock, job):
    lines = [json.loads(line) for line in penstock("logs", job, "--json").out.splitlines()]
    assert lines[0] == {"job": int(job), "attempt": 2, "rank": 0, "line": SECOND[0]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--attempt", "7"), "has no attempt 7: it has 2 attempts"),
        (("--rank", "9"), "has no rank 9: its ranks are 0 to 0"),
    ],
)
def test_what_the_job_does_not_have_is_said(penstock, job, words, said):
    told = penstock("logs", job, *words)
    assert (told.code, told.out, said in told.err) == (5, "", True)


def test_a_silent_job_is_said_to_be_silent(penstock, server):
    made = penstock.job("true")
    Jobs(server.client).ended(made)
    told = penstock("logs", str(made))
    assert (told.code, told.out, told.err) == (0, "", f"penstock: job {made} is succeeded and has written nothing\n")
