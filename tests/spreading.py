"""How pytest-xdist (`-n`) spreads tests: a file stays with one worker, and the slowest files begin first.

Without `-n` all run in one process, in the order of their files.
"""

import os
from typing import Any

import pytest

WORKERS_MAX = 8
SLOWEST = (
    "tests/server/test_schema.py",
    "tests/crash/test_kill_sweep.py",
    "tests/sim/test_pods.py",
    "tests/sim/test_world.py",
    "tests/crash/test_failover.py",
    "tests/training/test_libraries.py",
    "tests/server/test_tenants.py",
    "tests/training/test_torch.py",
    "tests/engines/conformance/test_jobs_local.py",
    "tests/server/http/test_costs.py",
    "tests/web/test_pages.py",
    "tests/web/test_attacks.py",
    "tests/web/test_writes.py",
    "tests/crash/test_agent_takeover.py",
    "tests/server/test_noisy_neighbour.py",
    "tests/engines/ray/test_runtime.py",
    "tests/training/ranks/test_distributed.py",
    "tests/cli/test_every_command.py",
    "tests/cli/test_foreign_text.py",
)
"""Files that take long, longest first: a worker that begins one at the end keeps all others waiting."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: half of the time tests wait, for servers, leases and graces."""
    return min(2 * len(os.sched_getaffinity(0)), WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        place = {name: number for number, name in enumerate(SLOWEST)}
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
