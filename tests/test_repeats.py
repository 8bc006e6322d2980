"""A failed test is repeated once, alone: what passes then is flaky, and everything else fails the run as ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST_TIME = """
from pathlib import Path
def first_time(name):
    mark = Path(name)
    was = mark.exists()
    mark.touch()
    return not was
"""
PASSES = "def test_passes(): pass\n"
FLAKY = FIRST_TIME + (
    "import os\ndef test_flaky():\n    assert not first_time('call'), 'the first time\\nand more'\n"
    "    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"
)
FLAKY_SETUP = FIRST_TIME + (
    "import pytest\n@pytest.fixture\ndef service(): assert not first_time('setup'), 'not started'\n"
    "def test_service(service): pass\n"
)
FAILS = "def test_fails(): assert 1 == 2\n"
SETUP_FAILS = "import pytest\n@pytest.fixture\ndef service(): assert 0\ndef test_no_service(service): pass\n"
SKIPPED_THEN = (
    FIRST_TIME + "import pytest\ndef test_skipped():\n    first_time('skip') or pytest.skip()\n    assert 0\n"
)
SLOW = FIRST_TIME + "import pytest\n@pytest.mark.slow\ndef test_slow(): assert not first_time('slow')\n"
BROKEN_FIRST = FIRST_TIME + "assert not first_time('collection')\ndef test_once(): pass\n"
workers = pytest.mark.parametrize("workers", ["0", "2"])


def run(folder: Path, *arguments: str, workers: str = "0", **files: str) -> tuple[int, list[str]]:
    """Run these test files, and return the exit code and the lines printed."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -m 'not slow'\n")
    (folder / "conftest.py").write_text('pytest_plugins = ("tests.repeats", "tests.durations")\n')
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:schemathesis", "-p", "no:anyio", "-n", workers, *arguments]
    variables = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "--repeat-failed",
        "PYTEST_XDIST_WORKER": "gw1",
    }
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def section(lines: list[str], name: str) -> list[str]:
    """Return the lines of the section called `name`, but for the closing line of all."""
    begin = next((number for number, line in enumerate(lines) if line.strip("= ") == name), len(lines))
    end = next((number for number in range(begin + 1, len(lines)) if lines[number].startswith("===")), len(lines))
    return lines[begin + 1 : end]


def closing(lines: list[str]) -> str:
    return lines[-1].strip("= ").partition(" in ")[0]


@workers
def test_flaky_tests_are_listed_and_fail_no_run(tmp_path, workers):
    code, lines = run(tmp_path, workers=workers, a=PASSES, b=FLAKY, c=FLAKY_SETUP)
    assert sorted(section(lines, "FLAKY")) == [
        "test_b.py::test_flaky - AssertionError: the first time",
        "test_c.py::test_service - AssertionError: not started",
    ]
    assert (code, closing(lines)) == (0, "1 passed, 2 flaky")
    assert "FIRST FAILURES OF FLAKY TESTS" in "".join(lines)


@workers
def test_what_fails_again_fails_the_run(tmp_path, workers):
    code, lines = run(tmp_path, workers=workers, a=PASSES, b=FLAKY, c=FAILS, d=SETUP_FAILS, e=SKIPPED_THEN)
    assert section(lines, "FLAKY") == ["test_b.py::test_flaky - AssertionError: the first time"]
    assert (code, closing(lines)) == (1, "2 failed, 1 passed, 1 error, 1 flaky")
    assert "FAILED test_c.py::test_fails - assert 1 == 2" in lines
    assert "ERROR test_d.py::test_no_service - assert 0" in lines


def test_a_file_that_could_not_be_collected_is_not_flaky(tmp_path):
    code, lines = run(tmp_path, "--continue-on-collection-errors", a=BROKEN_FIRST, b=FLAKY)
    assert (code, closing(lines)) == (1, "1 error, 1 flaky")


def test_nothing_is_repeated_where_too_many_fail(tmp_path):
    many = FLAKY + "import pytest\n@pytest.mark.parametrize('case', range(20))\ndef test_many(case): assert 0\n"
    code, lines = run(tmp_path, a=many)
    assert (code, closing(lines)) == (1, "21 failed")
    assert "21 tests failed: none is repeated where more than 20 fail" in lines


def test_a_run_that_was_stopped_early_stays_failed(tmp_path):
    code, lines = run(tmp_path, "-x", a=FLAKY, b=PASSES)
    assert (code, closing(lines)) == (1, "1 failed")


def test_a_repeat_chooses_by_the_markers_of_the_run(tmp_path):
    code, lines = run(tmp_path, "-m", "slow", a=SLOW)
    assert (code, closing(lines)) == (0, "1 flaky")


def test_a_folder_over_its_budget_fails_a_run_whose_tests_were_flaky(tmp_path):
    (tmp_path / "no_time.py").write_text(
        "def pytest_configure():\n    from tests import durations as d\n    d.OTHERS_S = -1\n"
    )
    code, lines = run(tmp_path, "-p", "no_time", "--budgets", a=FLAKY)
    assert (code, closing(lines)) == (1, "1 flaky")


def test_without_the_option_a_failure_is_one(tmp_path):
    code, lines = run(tmp_path, "--no-repeat-failed", a=FLAKY)
    assert (code, closing(lines)) == (1, "1 failed")
