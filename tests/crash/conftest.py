"""Lets the crash tests import their harness, however pytest was started."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.crash.cluster import Cluster  # noqa: E402


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One node, a short lease (4 s, of which the node uses 2 s), a server that restarts dead agents."""
    one = Cluster(tmp_path / "data", nodes=("n1",), lease_ttl="4s", lease_margin="2s", heartbeat="200ms")
    with one:
        yield one
