"""What a simulated program does follows from its command; machines crash and come back."""

import pytest

from penstock.core.messages.orders import SaveReplica, StopReplica
from penstock.core.messages.reports import ProgressSeen
from penstock.testing.builders import node
from penstock.testing.conformance import SuiteServer
from penstock.testing.engine import Behaviour, FakeEngine, behaviour_of
from tests.engines.agent.builders import KEY, start

SAVES = Behaviour(100, saves_every=10)


@pytest.fixture
def heard() -> SuiteServer:
    return SuiteServer(lease_ms=20_000)


@pytest.fixture
def engine(heard: SuiteServer) -> FakeEngine:
    made = FakeEngine(node("n1"))
    made.start(heard)
    return made


def begin(engine: FakeEngine, *command: str) -> None:
    engine.send([("n1", start(command=command, incarnation="n1-1"))])


def steps(heard: SuiteServer) -> list[tuple[str, int]]:
    seen_at_all: list[ProgressSeen] = [seen for report in heard.reports for seen in report.progress]
    return [(seen.why or seen.kind, seen.step) for seen in dict.fromkeys(seen_at_all)]


@pytest.mark.parametrize(
    ("command", "behaviour"),
    [
        (("sleep", "90"), Behaviour(900)),
        (("/bin/sh", "-c", "sleep 0.5"), Behaviour(5)),
        (("/bin/sh", "-c", "exit 7"), Behaviour(10, exit_code=7)),
        (("false",), Behaviour(10, exit_code=1)),
        (("/bin/sh", "-c", "sleep 2; exit 1"), Behaviour(20)),
        (("/bin/sh", "-c", "sleep $LONG && exit"), Behaviour(10)),
        (("python", "train.py"), Behaviour(10)),
        (SAVES.command(), SAVES),
    ],
)
def test_a_command_is_read_not_run(command, behaviour):
    assert behaviour_of(start(command=command)) == behaviour


def test_nothing_happens_but_as_time_passes(engine, heard):
    begin(engine, "sleep", "30")
    engine.advance(29_999)
    assert engine.running() == [KEY]
    engine.advance(1)
    assert engine.running() == []
    assert heard.seen(KEY)[-1].exit.code == 0


def test_a_program_that_is_asked_to_stop_saves_and_the_next_attempt_goes_on_there(engine, heard):
    begin(engine, *SAVES.command())
    engine.advance(1_500)
    engine.send([("n1", StopReplica(KEY, 5_000))])
    engine.advance(200)
    again = type(KEY)(KEY.job_id, 2, 0)
    engine.send([("n1", start(again, SAVES.command(), incarnation="n1-1"))])
    engine.advance(100)
    assert steps(heard) == [("interval", 10), ("preemption", 16), ("resumed", 16)]


def test_a_program_saves_when_it_is_asked_to(engine, heard):
    begin(engine, *SAVES.command())
    engine.advance(300)
    engine.send([("n1", SaveReplica(KEY))])
    assert steps(heard) == [("requested", 3)]
    assert engine.running() == [KEY]


def test_a_machine_that_crashes_is_silent_and_comes_back_empty_in_another_life(engine, heard):
    begin(engine, "sleep", "600")
    engine.crash("n1")
    reports = len(heard.reports)
    engine.advance(10_000)
    assert (len(heard.reports), engine.running(), engine.connected()) == (reports, [], set())
    engine.boot("n1")
    assert [incarnation for _, incarnation in heard.hellos] == ["n1-1", "n1-2"]
    assert heard.reports[-1].replicas == ()


def test_a_machine_that_is_up_is_not_booted_again(engine, heard):
    engine.boot("n1")
    assert len(heard.hellos) == 1


def test_an_engine_that_was_stopped_says_nothing_more(engine, heard):
    engine.stop()
    reports = len(heard.reports)
    engine.advance(5_000)
    assert len(heard.reports) == reports
