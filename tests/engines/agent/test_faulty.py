"""Whatever the system refuses an agent, its jobs end once, and it lives: rounds of `faulty.py`, each kind of fault.

The long version: `python -m tests.engines.agent.faulty 2000`.
"""

from collections.abc import Iterator

import pytest

from tests.engines.agent.faulty import KINDS, FaultyServer, Round, play

SEEDS = [next(seed for seed in range(kind, 1_000, len(KINDS)) if Round.of(seed).killed == killed)
         for kind in range(len(KINDS)) for killed in ("", "worker", "guardian")]  # fmt: skip


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    with FaultyServer(tmp_path_factory.mktemp("faulty")) as server:
        yield server


@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_is_lost_or_runs_twice_whatever_is_refused(faulty: FaultyServer, seed: int) -> None:
    play(faulty, seed)
