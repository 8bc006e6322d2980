"""The examples of the SDK do what they say, each as a program of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.harness import environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAY = {
    "sdk_functions.py": [
        r"job \d+: .+",
        r"  78\d\d\d of 100000 points are inside",
        r"pi is about 3\.1\d\d",
        r"job \d+ failed: division by zero",
    ],
    "sdk_map.py": [
        r"best rate: 0\.1 \(loss 0\.0156\)",
        r"best width: 128",
        r"3 commands: succeeded, succeeded, succeeded",
    ],
    "sdk_async.py": [
        r"job \d+: \d words",
        r"job \d+: \d words",
        r"job \d+: \d words",
        r"1 job has not ended after 0\.1 s: \d+",
        r"slow: cancelled",
    ],
}


def test_every_example_of_the_sdk_is_tried():
    assert {path.name for path in EXAMPLES.glob("sdk_*.py")} == set(SAY)


@pytest.mark.parametrize("name", SAY)
def test_an_example_says_what_it_should(name, server, keys):
    given = {"PENSTOCK_HOME": str(server.data.root), "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLES / name)],
        env=environment(server.root, **given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(SAY[name]), done.stdout
    assert [line for line, said in zip(lines, SAY[name], strict=True) if not re.fullmatch(said, line)] == []
