"""Lets the tests of the core import their builders, however pytest was started, and leaves no bug planted."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model.faults import plant

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.fixture(autouse=True)
def _nothing_stays_planted() -> Iterator[None]:
    plant()
    yield
    plant()
