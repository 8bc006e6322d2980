"""Jobs that name an environment or setup steps, from end to end: made on the node once, then run in it."""

import os
import signal
from pathlib import Path

import pytest

from tests.server.harness import until
from tests.server.test_running import worker_pid
from tests.wheels import wheel


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a program, its requirements, and the packages that these name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "project"
    wheel(made / "wheels", "penstock_one", "1.0", needs=("penstock-two",))
    wheel(made / "wheels", "penstock_two", "2.5")
    (made / "requirements.txt").write_text("-r more.txt\npenstock-one==1.*\n")
    (made / "more.txt").write_text("penstock-two\n")
    (made / "train.py").write_text(
        "import sys, penstock_one, penstock_two, pathlib\n"
        "print(penstock_one.VERSION, penstock_two.VERSION, sys.prefix)\n"
        "print(pathlib.Path('built.txt').read_text())\n"
    )
    return made


PYTHON = {"requirements": "requirements.txt", "index": "wheels"}


def test_a_job_has_its_requirements_and_what_its_setup_made(jobs, folder):
    name = jobs.client.send_folder(folder).name
    fields = {"workdir": {"snapshot": name}, "python": PYTHON}
    steps = ["echo setting up; penstock_one > built.txt", "cp built.txt $PENSTOCK_SETUP_DIR/copy.txt"]
    first = jobs.submit("python train.py; penstock_two; cat $PENSTOCK_SETUP_DIR/copy.txt", setup=steps, **fields)
    assert jobs.ended(first).state == "succeeded", jobs.output(first)
    said = jobs.output(first).splitlines()
    one, two = said.index("penstock: its Python environment is being made"), said.index("setting up")
    assert 0 <= one < two
    assert "penstock: setup step 1 of 2: echo setting up; penstock_one > built.txt" in said
    *_, versions, built, empty, second, copied = said
    assert versions.startswith("1.0 2.5 ")
    assert (built, empty, second, copied) == ("penstock_one 1.0", "", "penstock_two 2.5", "penstock_one 1.0")

    again = jobs.submit("python train.py", setup=steps, **fields, pool="default")
    assert jobs.ended(again).state == "succeeded", jobs.output(again)
    assert versions in jobs.output(again)


def test_what_cannot_be_had_fails_the_job_with_the_reason(jobs, folder):
    job = jobs.submit("true", python={"requirements": ["penstock-nowhere"], "index": str(folder / "wheels")})
    ended = jobs.ended(job)
    assert (ended.state, ended.attempt) == ("failed", 1)
    assert "its Python environment is not there: uv ended with exit 1" in ended.reason
    assert "penstock-nowhere was not found" in ended.reason
    assert ended.reason.rpartition(" (")[2].rstrip(")") in jobs.output(job)


def test_a_step_that_fails_ends_the_attempt_with_its_exit_code(jobs):
    job = jobs.submit("echo never", setup=["true", "echo no compiler >&2\nexit 7"], retries=1)
    ended = jobs.ended(job)
    assert (ended.state, ended.attempt) == ("failed", 2)
    assert ended.reason == "exit 7 (its setup failed: setup step 2 of 2 ended with exit 7: echo no compiler >&2 exit 7)"
    said = jobs.output(job)
    assert "no compiler" in said
    assert "never" not in said


def test_a_job_that_is_cancelled_while_it_is_set_up_leaves_nothing(jobs, tmp_path):
    job = jobs.submit("true", setup=f"echo $$ > {tmp_path}/pid; sleep 100")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it is being set up")
    jobs.client.cancel(job)
    assert jobs.ended(job).state == "cancelled"
    assert not os.path.exists(f"/proc/{int((tmp_path / 'pid').read_text())}")


def test_a_setup_that_dies_with_its_agent_is_done_again(server, jobs, tmp_path):
    step = f"echo $$ >> {tmp_path}/pids; [ -e {tmp_path}/go ] || sleep 100"
    job = jobs.submit("echo ran", setup=[step])
    pids = tmp_path / "pids"
    first = int(until(lambda: pids.exists() and pids.read_text(), "it is being set up"))
    (tmp_path / "go").touch()
    os.kill(worker_pid(server, jobs.client.job(job).nodes[0]), signal.SIGKILL)
    ended = jobs.ended(job)
    assert (ended.state, ended.attempt) == ("succeeded", 1)
    assert jobs.output(job).endswith("ran\n")
    assert not os.path.exists(f"/proc/{first}")
    assert len(pids.read_text().split()) == 2
