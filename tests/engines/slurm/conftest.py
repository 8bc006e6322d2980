"""One Slurm for all tests of a session, and what was recorded of another one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.slurm import cluster
from tests.engines.slurm.cluster import SlurmCluster

RECORDED = Path(__file__).parent / "recorded"
BETWEEN = "~0123456789~"
"""The divider of the recorded tables."""


def recorded(name: str) -> str:
    """Return what a command of Slurm 22.05.8 printed."""
    return (RECORDED / name).read_text(encoding="utf-8")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The session's cluster, which commands find; its jobs are ended before."""
    made = cluster.shared()
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    made.empty()
    return made


@pytest.fixture(scope="session", autouse=True)
def _shared_cluster_ends() -> Iterator[None]:
    yield
    cluster.end_shared()
