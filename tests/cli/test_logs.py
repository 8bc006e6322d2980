"""Which outputs are printed: those of the newest attempt and what follows it, and nothing twice."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.types import OutputRef
from penstock.cli import logs
from penstock.cli.logs import TAIL_MAX_BYTES, OutputFollower
from penstock.client import Client
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


class Written:
    """A client of a job with one output; it keeps the pieces that were asked for."""

    def __init__(self, data: bytes, given_up: int = 0) -> None:
        self.data, self.given_up = data, given_up
        self.asked: list[tuple[int, int]] = []

    def outputs(self, job_id):
        return [OutputRef(1, 0, len(self.data))]

    def logs(self, job_id, attempt, rank, offset=0, limit=2**20):
        self.asked.append((offset, limit))
        begin = max(offset, self.given_up)
        return begin, self.data[begin : begin + limit]


def tail_of(client: Written, count: int) -> bytes:
    follower = OutputFollower(client, 1, tail=count)
    return client.data[follower._begin_of_tail(client.outputs(1)[0]) :]


@given(st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\x0b"]), max_size=30).map(b"".join), st.integers(0, 6))
def test_the_last_lines_end_with_line_feeds_alone(data, count):
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    kept = [line for line in lines if line]
    assert tail_of(Written(data), count) == b"".join(kept[len(kept) - min(count, len(kept)) :])


def test_a_long_line_is_looked_through_once():
    client = Written(b"x" * 20_000_000)
    assert len(tail_of(client, 3)) <= TAIL_MAX_BYTES + 2**20
    assert len(client.asked) < 24
    assert sum(limit for _, limit in client.asked) <= TAIL_MAX_BYTES + 2**20


def test_a_few_lines_at_the_end_of_a_long_output_take_one_small_piece():
    client = Written(b"a line\n" * 1_000_000)
    assert tail_of(client, 3) == b"a line\n" * 3
    assert [limit for _, limit in client.asked] == [65_536]


def test_the_last_lines_begin_where_older_bytes_were_given_up():
    client = Written(b"x\n" * 100_000, given_up=150_001)
    assert tail_of(client, 99_999) == client.data[150_001:]


def test_outputs_are_listed_once_where_no_rank_is_named(penstock, monkeypatch, job):
    asked = []
    outputs = Client.outputs
    monkeypatch.setattr(Client, "outputs", lambda self, number: asked.append(number) or outputs(self, number))
    with contextlib.closing(Client.of(penstock.data)) as client:
        monkeypatch.setattr(logs, "client_of", lambda: client)
        logs.logs(int(job), follow=False, rank=None, attempt=None, tail=0, json=False)
    assert asked == [int(job)]


class Growing(Written):
    """A client of a job whose second attempt begins after the first look."""

    def __init__(self) -> None:
        super().__init__(b"one\ntwo\n")
        self.attempts = 1

    def outputs(self, job_id):
        return [OutputRef(attempt, 0, len(self.data)) for attempt in range(1, self.attempts + 1)]


def test_the_last_lines_are_of_what_is_there_at_first_and_a_later_attempt_is_whole(capfdbinary):
    client = Growing()
    follower = OutputFollower(client, 1, tail=1)
    follower.step()
    client.attempts = 2
    follower.step()
    assert capfdbinary.readouterr().out == b"two\none\ntwo\n"
