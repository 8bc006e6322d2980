"""Eight kinds of process trees, ended in every way at any moment: nothing of them is left. `bench/leaks.py` is longer.

How soon their places are free is measured there.
"""

import contextlib
import os
import signal

import pytest

from penstock.core.model.resources import Resources
from penstock.engines.processes import procfs
from tests.engines.agent.builders import KEY
from tests.engines.agent.leaks import KINDS, Held, Leaks, Outcome, available, plan
from tests.engines.processes.processes import SESSIONS, Program
from tests.server.harness import until

ATTEMPTS: dict[Held, int] = {"groups": 6, "unified": 3, "sessions": 4}
AT_ONCE = 24


def _mode(held: Held) -> object:
    needed = [] if held == "sessions" else [pytest.mark.root]
    skip = pytest.mark.skipif(not available(held), reason="no writable control groups of this kind here")
    return pytest.param(held, marks=[*needed, skip])


@pytest.fixture(scope="module", params=[_mode(held) for held in ATTEMPTS])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Outcome], list[str]]:
    """Return what became of all attempts under one containment, and what was left when their agent had left."""
    held: Held = request.param
    with Leaks(tmp_path_factory.mktemp("leaks") / "node", held) as leaks:
        outcomes = leaks.run([plan(kind, seed) for seed in range(ATTEMPTS[held]) for kind in KINDS], AT_ONCE)
        left = leaks.end()
    return outcomes, left


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_tree_is_left_once_its_exit_is_told(run, kind):
    problems = [text for outcome in run[0] if outcome.plan.kind == kind for text in outcome.problems()]
    assert not problems, "\n".join(problems)


def test_nothing_is_left_of_all_of_them_when_the_agent_has_left(run):
    assert run[1] == []


def test_trees_were_ended_before_and_after_they_were_complete(run):
    assert {outcome.complete for outcome in run[0]} == {True, False}


def test_without_control_groups_who_hides_session_and_environment_gets_away(tmp_path):
    """What is not promised: the agent says which containment it uses, and why limits do not hold."""
    script = "setsid env -i sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 60' &"
    program = Program(SESSIONS.box(f"n1.{KEY}", Resources()), tmp_path, ("sh", "-c", script)).open()
    folder = program.data.job(KEY.job_id)
    pid = int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "a process hides"))
    ticks = procfs.start_ticks(pid)
    try:
        program.close()
        assert procfs.alive(pid, ticks)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
