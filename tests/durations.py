"""Where the time of the tests goes: the slowest ones, the total, and a budget for each folder.

Seconds are those of set-up, call and tear-down, summed over all workers. With `--budgets` a folder that takes more than
its budget fails the run: who adds slow tests there shares what is slow to start, or raises the budget and says why.
"""

from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

SLOWEST_SHOWN = 20
BUDGETS_S = {
    "tests/cli": 1900,  # README, tutorial and the page on policies are played as they stand
    "tests/client": 120,
    "tests/calls": 120,
    "tests/control": 240,
    "tests/core": 1900,
    "tests/crash": 1000,
    "tests/devices": 90,
    "tests/docs": 240,  # how-tos are played as they stand
    "tests/engines": 1800,  # real Slurm, Ray and containers, and machines in network namespaces
    "tests/formats": 60,
    "tests/hostile": 600,  # a server of root with jobs that take all they can
    "tests/mcp": 240,
    "tests/migrate": 120,
    "tests/report": 440,
    "tests/security": 120,
    "tests/server": 3600,
    "tests/sim": 1000,
    "tests/store": 480,
    "tests/testing": 120,
    "tests/traces": 240,
    "tests/training": 1000,
    "tests/web": 1200,  # in a real browser: every page by every role, every change
}
"""Seconds of all workers together: about three times those of a quiet machine of two cores; some are half as fast."""
OTHERS_S = 400
"""Budget of the files in no folder."""


def busy_and_all() -> tuple[int, int]:
    """Return the ticks that the cores of this machine were busy, and all of them; zeros where nothing counts them."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)  # but idle and waiting for disks


class Durations:
    """Seconds of each test, as its reports come in."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, float] = defaultdict(float)
        self._begun = busy_and_all()

    def busy_share(self) -> float:
        """Return which part of the cores' time has been used since the run began, by whomever."""
        (busy, whole), (busy_before, whole_before) = busy_and_all(), self._begun
        return (busy - busy_before) / max(1, whole - whole_before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += report.duration

    def folders(self) -> dict[str, list[float]]:
        """Return the seconds of the tests of each folder below `tests`; those of no folder as `tests`."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for name, seconds in self.tests.items():
            found["/".join(name.partition("::")[0].split("/")[:-1][:2])].append(seconds)
        return dict(sorted(found.items()))

    def over(self) -> dict[str, tuple[float, int]]:
        """Return the folders that took more than their budget, with both."""
        sums = {folder: sum(seconds) for folder, seconds in self.folders().items()}
        budgets = {folder: BUDGETS_S.get(folder, OTHERS_S) for folder in sums}
        return {folder: (sums[folder], budgets[folder]) for folder in sums if sums[folder] > budgets[folder]}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budgets", action="store_true", help="fail when a folder takes more than its budget")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(), "durations")


@pytest.hookimpl(wrapper=True)  # after tests.repeats, which makes a failed run a good one
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    yield
    durations = session.config.pluginmanager.get_plugin("durations")
    if durations and session.config.getoption("budgets") and durations.over() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    durations = config.pluginmanager.get_plugin("durations")
    if durations is None or len(durations.tests) <= SLOWEST_SHOWN:
        return
    line = terminalreporter.write_line
    terminalreporter.section(f"slowest {SLOWEST_SHOWN}")
    slowest = sorted(durations.tests.items(), key=lambda item: -item[1])[:SLOWEST_SHOWN]
    for name, seconds in slowest:
        line(f"{seconds:7.1f} s  {name}")
    terminalreporter.section("seconds of workers by folder")
    for folder, each in durations.folders().items():
        line(f"{sum(each):7.1f} s of {BUDGETS_S.get(folder, OTHERS_S):4}  {len(each):5} tests  {folder}")
    line(f"{sum(durations.tests.values()):7.1f} s in all; the cores were busy {durations.busy_share():.0%} of the time")
    for folder, (taken, budget) in durations.over().items():
        line(f"{folder} took {taken:.0f} s, budget {budget} s")
