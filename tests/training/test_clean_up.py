"""How a program ends after a stop: with all it has to clean up, or at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.training import CheckpointDirectory, Place

PROGRAM = """
import atexit, sys, time
from penstock import training
atexit.register(lambda: print("atexit", flush=True))
try:
    with training.session(clean_up=sys.argv[1] == "yes") as run:
        run.resume(None)
        for step in run.steps(10_000, capture=lambda: {"x": run.step}):
            if step == 3:
                print("ready", flush=True)
            time.sleep(0.01)
finally:
    print("finally")
"""


@pytest.mark.parametrize(("clean_up", "last_words"), [("yes", ["finally", "atexit"]), ("no", [])])
def test_the_state_is_saved_before_the_program_ends_as_it_asked(tmp_path: Path, clean_up: str, last_words: list[str]):
    folder, report = tmp_path / "checkpoints", tmp_path / "report"
    folder.mkdir()
    mine = {"PENSTOCK_JOB_ID": "1", "PENSTOCK_ATTEMPT": "1", "PENSTOCK_REPORT_FILE": str(report)}
    variables = os.environ | mine | {"PENSTOCK_CHECKPOINT_DIR": str(folder), "PENSTOCK_GRACE_S": "30"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, clean_up], env=variables, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        said, _ = program.communicate(timeout=30)
    assert program.returncode == 143
    assert said.split() == last_words
    steps = CheckpointDirectory(folder, Place("job-1", 1)).steps()
    assert steps
    assert steps[-1] >= 3
    assert '"why":"preemption"' in report.read_text().replace(" ", "")
