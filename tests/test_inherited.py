"""Tests hold whatever the shell hands down: ignored signals, a narrow umask, no terminal, no standard input."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
SHOWN = "import signal; print(*(signal.getsignal(number) is signal.SIG_IGN for number in (1, 2, 3, 15)))"


def test_children_are_interrupted_and_others_read_their_files(tmp_path):
    told = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False"] * 4
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    assert not {"COLUMNS", "NO_COLOR", "FORCE_COLOR"} & os.environ.keys()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_in_the_background_is_as_one_in_front(workers):
    command = f"trap '' INT QUIT HUP TERM; umask 077; exec {sys.executable} -m pytest -n {workers} -q $TEST <&-"
    variables = os.environ | {
        "COLUMNS": "20",
        "NO_COLOR": "1",
        "TEST": f"{__file__}::{test_children_are_interrupted_and_others_read_their_files.__name__}",
    }
    told = subprocess.run(
        ["sh", "-c", command], env=variables, cwd=ROOT, capture_output=True, text=True, start_new_session=True
    )
    assert "1 passed" in told.stdout, told.stdout + told.stderr
