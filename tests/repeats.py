"""With `--repeat-failed` each failed test is repeated once, alone, when nothing else runs any more.

A test that passes then is flaky: it is listed under FLAKY, with its first failure, and fails no run. A file that could
not be collected is not flaky, and nothing is repeated where a run was stopped early, or where too many tests failed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator

import pytest

REPEATED_MAX = 20
"""Where more fail the cause is another one."""
REPEAT_S = 600
KINDS = ("failed", "error")


def passes_alone(name: str, config: pytest.Config) -> bool:
    """Return whether the test `name` passes in a process of its own: skipped, not found and too slow are not passed."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "--no-repeat-failed", "--verbosity=0", "--color=no", name]
    if config.option.markexpr:
        command += ["-m", config.option.markexpr]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    with tempfile.TemporaryFile("w+") as output:  # a pipe would wait for what a test leaves behind
        try:
            done = subprocess.run(
                command,
                cwd=config.rootpath,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=REPEAT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        output.seek(0)
        return done.returncode == 0 and bool(re.search(r"^(=+ )?1 passed\b[^\n]*\n*\Z", output.read(), re.MULTILINE))


def first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else report.longreprtext).partition("\n")[0]


class Repeats:
    """Runs in the process that prints; never in a worker."""

    @pytest.hookimpl(wrapper=True, trylast=True)  # after workers and all that they share, before the summary
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        stopped = session.shouldstop or session.shouldfail
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not stopped:
            self._repeat(session)

    def _repeat(self, session: pytest.Session) -> None:
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        reports = [report for kind in KINDS for report in terminal.stats.get(kind, ())]
        failed = {report.nodeid: report for report in reversed(reports) if isinstance(report, pytest.TestReport)}
        terminal.section("failed tests, each repeated alone")
        if len(failed) > REPEATED_MAX:
            terminal.write_line(f"{len(failed)} tests failed: none is repeated where more than {REPEATED_MAX} fail")
            return
        flaky = {}
        for name, report in reversed(failed.items()):
            if passes_alone(name, session.config):
                flaky[name] = report
            terminal.write_line(f"{'passed' if name in flaky else 'failed again'}: {name}")
        for kind in KINDS:
            left = [report for report in terminal.stats.pop(kind, ()) if report.nodeid not in flaky]
            if left:
                terminal.stats[kind] = left
        if flaky:
            terminal._add_stats("flaky", list(flaky.values()))
        if not any(kind in terminal.stats for kind in KINDS):
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # below everything but the closing line
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        yield
        flaky = terminalreporter.getreports("flaky")
        if flaky:
            style = terminalreporter.config.option.tbstyle
            terminalreporter.summary_failures_combined("flaky", "FIRST FAILURES OF FLAKY TESTS", style=style)
            terminalreporter.section("FLAKY")
        for report in flaky:
            terminalreporter.write_line(f"{report.nodeid} - {first_line(report)}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--repeat-failed",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="repeat each failed test once, alone; what passes then is flaky, and fails no run",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("repeat_failed") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Repeats(), "repeats")
