"""What every test of a run shares: signals, umask and terminal as tests expect them, one PostgreSQL, one process that
servers are forked from, workers."""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import postgres
from tests.properties import LONG, examples
from tests.server import preloaded
from tests.training import needs

pytest_plugins = ("tests.spreading", "tests.durations", "tests.repeats")

GC_THRESHOLDS = (50_000, 20, 100)
"""The core makes and drops frozen values by the million, and no cycles: with Python's own its tests take 5 % longer."""

settings.register_profile("penstock", examples(100))
settings.load_profile("penstock")


def _forget_the_shell() -> None:
    """Undo what cron, nohup, a background shell or a wide terminal hand down, here and so in every child."""
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "dumb"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of servers and commands are started: compile once
    sys.dont_write_bytecode = False


_forget_the_shell()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, unless `-m slow` or PENSTOCK_SLOW=1 asks for them."""
    if LONG or config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_collectstart() -> None:
    """Collect no garbage while tests are collected: nothing of them is any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave tests out of later collections: hundreds of commands are forked from here, and would copy them all."""
    needs.collected()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _shared_processes_end() -> Iterator[None]:
    yield
    postgres.end_shared()
    preloaded.end()
