"""An account that renames what root is about to touch wins nowhere; `python -m tests.hostile.races` plays many."""

import json
import os
import subprocess
import sys

import pytest

from tests.hostile.races import PLACES
from tests.server.harness import ROOT

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root touches what others own")]


def played(*words: str) -> list[dict[str, int]]:
    """Play races in a process of its own, which mounts things."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.races", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_account_that_exchanges_names_wins_nowhere():
    assert {one["place"]: one["wins"] for one in played("200")} == dict.fromkeys(PLACES, 0)


def test_it_would_win_where_root_went_by_path():
    assert played("5000", "by path")[0]["wins"] > 0
